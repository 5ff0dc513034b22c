#include "codec/sparse/top_k.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/subset.h"
#include "codec/sparse/index_set.h"
#include "tests/harness.h"

enum { MAX_DIM = 3000 };

static void *block(size_t n, size_t n_bytes)
{
    void *room = malloc(n * n_bytes + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(room);
    return room;
}

/* A message in a heap block of exactly its size. */
struct message {
    uint8_t *data;
    size_t n;
    uint64_t bits;
};

static struct message message_of(const float *values, const uint32_t *indices, size_t dim, size_t k)
{
    const size_t bound = tally_top_k_bound(dim, k);
    uint8_t *room = block(bound, 1);
    struct message message;
    memset(room, 0xaa, bound);
    CU_ASSERT_EQUAL_FATAL(
        tally_top_k_encode(values, indices, dim, k, room, bound, &message.bits, NULL), TALLY_OK);
    message.n = (size_t)((message.bits + 7) / 8);
    CU_ASSERT_TRUE_FATAL(message.n <= bound);
    message.data = block(message.n, 1);
    memcpy(message.data, room, message.n);
    free(room);
    return message;
}

/* Whether the message decodes to the given values and indices. */
static bool reads_back(const struct message *message, const float *values, const uint32_t *indices,
                       size_t dim, size_t k)
{
    float *got_values = block(k, sizeof *got_values);
    uint32_t *got_indices = block(k, sizeof *got_indices);
    const bool good = tally_top_k_decode(message->data, message->n, message->bits, dim, k,
                                         got_values, got_indices, NULL) == TALLY_OK &&
                      memcmp(got_values, values, k * sizeof *values) == 0 &&
                      memcmp(got_indices, indices, k * sizeof *indices) == 0;
    free(got_values);
    free(got_indices);
    return good;
}

static void draw(struct tally_rng *rng, size_t dim, size_t k, uint32_t *ret_indices)
{
    uint32_t *taken = block(tally_subset_room((uint32_t)k), sizeof *taken);
    tally_subset_draw(rng, (uint32_t)dim, (uint32_t)k, taken, ret_indices);
    free(taken);
}

static struct tally_rng stream(uint32_t round)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(9, 0), 1, round, TALLY_RNG_UPLINK);
    return rng;
}

/* FORMAT.md, section 4.1. */
static void test_codec_top_k__example_of_format_md(void)
{
    const float y[10] = {0, -3, 1, 0, 3, 2, 0, -2, 1, 0};
    const uint8_t expected[13] = {0, 0, 0x40, 0xc0, 0, 0, 0x40, 0x40, 0, 0, 0, 0x40, 0x06};
    const float values[3] = {-3, 3, 2};
    uint32_t indices[3];
    CU_ASSERT_EQUAL(tally_top_k_select(y, 10, 3, indices, NULL), TALLY_OK);
    CU_ASSERT_TRUE(indices[0] == 1 && indices[1] == 4 && indices[2] == 5);
    struct message message = message_of(values, indices, 10, 3);
    CU_ASSERT_EQUAL(message.bits, 103);
    CU_ASSERT_EQUAL_FATAL(message.n, 13);
    CU_ASSERT_EQUAL(memcmp(message.data, expected, 13), 0);
    CU_ASSERT_TRUE(reads_back(&message, values, indices, 10, 3));
    CU_ASSERT_EQUAL(tally_top_k_formula_bits(10, 3), 108);
    free(message.data);
}

static void test_codec_top_k__formula_counts_whole_indices(void)
{
    static const uint64_t rows[][3] = {{1, 1, 32},     {2, 1, 33},      {3, 1, 34},
                                       {4, 2, 68},     {5, 2, 70},      {30, 3, 111},
                                       {64, 10, 380},  {65, 10, 390},   {7840, 100, 4500},
                                       {30, 30, 1110}, {1 << 20, 1, 52}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CU_ASSERT_EQUAL(tally_top_k_formula_bits((size_t)rows[i][0], (size_t)rows[i][1]),
                        rows[i][2]);
    }
}

/* Every set of indices below 12 is read back, and no two sets of the same size have the same
 * string. */
static void test_codec_top_k__every_small_set_has_its_own_string(void)
{
    enum { MOST = 12 };
    const float values[MOST] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};
    static bool seen[MOST + 1][MOST + 1]
                    [1 << MOST]; /* by size, length and bits of the set's string */
    for (size_t dim = 1; dim <= MOST; dim++) {
        memset(seen, 0, sizeof seen);
        for (uint32_t set = 1; set < UINT32_C(1) << dim; set++) {
            uint32_t indices[MOST];
            size_t k = 0;
            for (uint32_t i = 0; i < dim; i++) {
                if ((set >> i & 1) != 0) {
                    indices[k++] = i;
                }
            }
            struct message message = message_of(values, indices, dim, k);
            CU_ASSERT_TRUE(reads_back(&message, values, indices, dim, k));
            uint32_t string = 0;
            for (size_t i = 4 * k; i < message.n; i++) {
                string |= (uint32_t)message.data[i] << (8 * (i - 4 * k));
            }
            CU_ASSERT_TRUE_FATAL(message.bits - 32 * k <= MOST);
            CU_ASSERT_TRUE_FATAL(string < 1 << MOST);
            bool *place = &seen[k][message.bits - 32 * k][string];
            CU_ASSERT_FALSE(*place);
            *place = true;
            CU_ASSERT_TRUE(k < dim || message.bits == 32 * k);
            free(message.data);
        }
    }
}

/* The mean over sets is close to log2 C(d, k), and no set exceeds the bound. */
static void test_codec_top_k__sets_cost_nearly_the_ideal(void)
{
    static const uint32_t rows[][2] = {
        {30, 1},         {30, 3},          {30, 10},       {30, 15},     {30, 27},
        {784, 8},        {784, 78},        {784, 196},     {784, 706},   {7840, 1},
        {7840, 78},      {7840, 784},      {7840, 2744},   {7840, 3920}, {7840, 7000},
        {1000000, 1000}, {1000000, 30000}, {INT32_MAX, 20}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const size_t dim = rows[r][0], k = rows[r][1];
        const double n = (double)(k < dim - k ? k : dim - k);
        uint32_t *indices = block(k, sizeof *indices);
        float *values = calloc(k, sizeof *values);
        CU_ASSERT_PTR_NOT_NULL_FATAL(values);
        const uint32_t n_sets = k > 2000 ? 5 : 200;
        double total = 0;
        for (uint32_t s = 0; s < n_sets; s++) {
            struct tally_rng rng = stream(s);
            draw(&rng, dim, k, indices);
            struct message message = message_of(values, indices, dim, k);
            if (s == 0) {
                CU_ASSERT_TRUE(reads_back(&message, values, indices, dim, k));
            }
            total += (double)(message.bits - 32 * k);
            free(message.data);
        }
        const double ideal =
            (lgamma((double)dim + 1) - lgamma((double)k + 1) - lgamma((double)(dim - k) + 1)) /
            log(2);
        CU_ASSERT_TRUE(total / n_sets >= ideal - 0.5 - 0.001 * ideal); /* sample mean */
        CU_ASSERT_TRUE(total / n_sets <= ideal + 0.2 * n + 2);
        free(indices);
        free(values);
    }
}

/* The sets with the longest strings: the last k indices, and all but the last ones. */
static void test_codec_top_k__no_set_exceeds_the_bound(void)
{
    for (size_t dim = 1; dim <= 200; dim++) {
        for (size_t k = 1; k <= dim; k++) {
            uint32_t indices[200];
            float values[200] = {0};
            for (size_t shape = 0; shape < 2; shape++) { /* last k; all but the last */
                for (size_t i = 0; i < k; i++) {
                    indices[i] = (uint32_t)(shape == 0 ? dim - k + i : i);
                }
                struct message message = message_of(values, indices, dim, k);
                CU_ASSERT_TRUE(message.bits <= 32 * k + tally_index_set_bound(dim, k));
                CU_ASSERT_TRUE(reads_back(&message, values, indices, dim, k));
                free(message.data);
            }
        }
    }
}

/* Orders by descending magnitude; of equal magnitudes, the lower index comes first. */
static int compare_selected(const void *a, const void *b)
{
    const float *const *left = a, *const *right = b;
    const float difference = fabsf(**right) - fabsf(**left);
    return difference != 0 ? (difference > 0) - (difference < 0)
                           : (*left > *right) - (*left < *right);
}

static void expect_selection(const float *y, size_t dim, size_t k)
{
    static const float *sorted[MAX_DIM];
    static uint32_t indices[MAX_DIM];
    static bool expected[MAX_DIM];
    for (size_t i = 0; i < dim; i++) {
        sorted[i] = &y[i];
        expected[i] = false;
    }
    qsort(sorted, dim, sizeof *sorted, compare_selected);
    for (size_t i = 0; i < k; i++) {
        expected[sorted[i] - y] = true;
    }
    CU_ASSERT_EQUAL_FATAL(tally_top_k_select(y, dim, k, indices, NULL), TALLY_OK);
    size_t n = 0;
    for (size_t i = 0; i < dim; i++) {
        if (expected[i]) {
            CU_ASSERT_EQUAL(indices[n], i);
            n++;
        }
    }
}

static void test_codec_top_k__selects_the_largest(void)
{
    static float y[MAX_DIM];
    for (uint32_t round = 0; round < 300; round++) {
        struct tally_rng rng = stream(round);
        const size_t dim = 1 + tally_rng_below(&rng, round % 10 == 0 ? MAX_DIM : 60);
        const size_t k = 1 + tally_rng_below(&rng, (uint32_t)dim);
        for (size_t i = 0; i < dim; i++) {
            double normal[2];
            tally_rng_normal(&rng, normal, 2);
            uint32_t word = tally_rng_u32(&rng);
            word = (word >> 23 & 255) == 255 ? word & INT32_MAX >> 9 : word;
            float any; /* any finite float32, exponents equally likely */
            memcpy(&any, &word, sizeof any);
            y[i] = round % 4 == 0   ? (float)normal[0]
                   : round % 4 == 1 ? (float)rint(2 * normal[0]) /* many equal, and zeros */
                   : round % 4 == 2 ? any
                                    : 1 + (float)tally_rng_below(&rng, 9) * FLT_EPSILON;
        }
        expect_selection(y, dim, k);
    }
}

static void test_codec_top_k__of_equal_ones_the_lower_index_is_taken(void)
{
    const float rows[][6] = {{0, 0, 0, 0, 0, 0},
                             {1, -1, 1, -1, 1, -1},
                             {0, -0.0f, 2, 0, -2, 0},
                             {FLT_MAX, -FLT_MAX, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MAX, 0}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (size_t k = 1; k <= 6; k++) {
            expect_selection(rows[r], 6, k);
        }
    }
}

static void test_codec_top_k__what_is_not_finite_is_refused(void)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 4; b++) {
        float y[5] = {1, 2, 3, 4, 5};
        uint32_t indices[5] = {0, 1, 2, 3, 4};
        uint8_t data[32];
        uint64_t bits;
        y[3] = bad[b];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_top_k_select(y, 5, 1, indices, &err), TALLY_NOT_FINITE, &err);
        TALLY_ASSERT_TEXT(err.message, "coordinate 3 of 5 is not finite");
        CU_ASSERT_EQUAL(tally_top_k_encode(y, indices, 5, 5, data, sizeof data, &bits, NULL),
                        TALLY_NOT_FINITE);
    }
}

static void test_codec_top_k__capacity_is_respected(void)
{
    const float values[4] = {1, 2, 3, 4};
    const uint32_t indices[4] = {20, 30, 98, 99};
    const size_t bound = tally_top_k_bound(100, 4);
    for (size_t capacity = 0; capacity <= bound; capacity++) {
        uint8_t *data = block(capacity, 1);
        uint64_t bits;
        CU_ASSERT_EQUAL(tally_top_k_encode(values, indices, 100, 4, data, capacity, &bits, NULL),
                        capacity < bound ? TALLY_OUT_OF_RANGE : TALLY_OK);
        free(data);
    }
}

static void expect_refused(const uint8_t *data, size_t n, uint64_t bits, size_t dim, size_t k,
                           enum tally_status expected, const char *message)
{
    uint8_t *copy = block(n, 1);
    float *values = block(k, sizeof *values);
    uint32_t *indices = block(k, sizeof *indices);
    struct tally_error err = TALLY_ERROR_INIT;
    memcpy(copy, data, n);
    TALLY_ASSERT_STATUS(tally_top_k_decode(copy, n, bits, dim, k, values, indices, &err), expected,
                        &err);
    TALLY_ASSERT_TEXT(err.field, "payload");
    if (message != NULL) {
        TALLY_ASSERT_TEXT(err.message, message);
    }
    free(copy);
    free(values);
    free(indices);
}

static void test_codec_top_k__every_kind_of_nonsense_is_refused(void)
{
    uint8_t good[13] = {0, 0, 0x40, 0xc0, 0, 0, 0x40, 0x40, 0, 0, 0, 0x40, 0x06};
    static const struct {
        size_t n;
        uint64_t bits;
        size_t dim, k;
        const char *message;
    } rows[] = {
        {12, 103, 10, 3, "12 bytes do not frame 103 bits with zero padding"},
        {13, UINT64_MAX, 10, 3,
         "13 bytes do not frame 18446744073709551615 bits with zero padding"},
        {0, 0, 10, 3, "ends in the 3 values, after 0 bits"},
        {12, 95, 10, 3, "ends in the 3 values, after 95 bits"},
        {8, 64, 10, 3, "ends in the 3 values, after 64 bits"},
        {12, 96, 10, 3, "ends in index 0 of 3"},
        {13, 99, 10, 3, "ends in index 1 of 3"},
        {13, 102, 10, 3, "ends in index 2 of 3"},
        {13, 104, 10, 3, "104 bits announced, 10 coordinates take 103"},
        {13, 103, 6, 3, "103 bits announced, 6 coordinates take 101"}, /* 0, 3 and 4 */
        {13, 103, 10, 4, "ends in the 4 values, after 103 bits"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_refused(good, rows[i].n, rows[i].bits, rows[i].dim, rows[i].k, TALLY_MALFORMED,
                       rows[i].message);
    }
    good[12] |= 0x80;
    expect_refused(good, 13, 103, 10, 3, TALLY_MALFORMED,
                   "13 bytes do not frame 103 bits with zero padding");
    good[12] = 0x7f; /* 0 0, then ones: out of range */
    expect_refused(good, 13, 103, 10, 3, TALLY_MALFORMED, "index 0 of 3 is above 7");
    good[12] = 0x0e; /* 0 1, 1 1 0 0: index 6 */
    expect_refused(good, 13, 103, 10, 3, TALLY_MALFORMED, "ends in index 2 of 3");
    const uint8_t last[13] = {0,    0, 0x40, 0xc0, 0,    0,   0x40,
                              0x40, 0, 0,    0,    0x40, 0x2f}; /* 1 1 1 1 0 1 0: index 9 */
    expect_refused(last, 13, 103, 10, 3, TALLY_MALFORMED, "index 0 of 3 is above 7");
    good[3] = 0x7f; /* 0x7f400000 is finite */
    good[2] = 0x80;
    expect_refused(good, 13, 103, 10, 3, TALLY_NOT_FINITE, "coordinate 0 is not finite");
}

/* A damaged message is refused, or is the only encoding of other values or another set. */
static void test_codec_top_k__every_flipped_bit_is_refused_or_canonical(void)
{
    for (uint32_t round = 0; round < 60; round++) {
        struct tally_rng rng = stream(round);
        const size_t dim = 1 + tally_rng_below(&rng, 90);
        const size_t k = 1 + tally_rng_below(&rng, (uint32_t)dim);
        uint32_t indices[90];
        float values[90];
        draw(&rng, dim, k, indices);
        for (size_t i = 0; i < k; i++) {
            values[i] = (float)i - 3;
        }
        struct message good = message_of(values, indices, dim, k);
        for (size_t bit = 0; bit < 8 * good.n; bit++) {
            memset(indices + k, 0xaa, sizeof indices - k * sizeof *indices);
            good.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            const enum tally_status status =
                tally_top_k_decode(good.data, good.n, good.bits, dim, k, values, indices, NULL);
            if (status == TALLY_OK) {
                struct message again = message_of(values, indices, dim, k);
                CU_ASSERT_EQUAL(again.bits, good.bits);
                CU_ASSERT_EQUAL(memcmp(again.data, good.data, good.n), 0);
                free(again.data);
            } else {
                CU_ASSERT_TRUE(status == TALLY_MALFORMED || status == TALLY_NOT_FINITE);
            }
            for (size_t i = k; i < 90; i++) { /* nothing is written beyond k */
                CU_ASSERT_EQUAL(indices[i], 0xaaaaaaaa);
            }
            good.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        for (size_t n = 0; n < good.n; n++) {
            expect_refused(good.data, n, 8 * n, dim, k, TALLY_MALFORMED, NULL);
        }
        free(good.data);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_top_k__example_of_format_md),
    TALLY_TEST(test_codec_top_k__formula_counts_whole_indices),
    TALLY_TEST(test_codec_top_k__every_small_set_has_its_own_string),
    TALLY_TEST(test_codec_top_k__sets_cost_nearly_the_ideal),
    TALLY_TEST(test_codec_top_k__no_set_exceeds_the_bound),
    TALLY_TEST(test_codec_top_k__selects_the_largest),
    TALLY_TEST(test_codec_top_k__of_equal_ones_the_lower_index_is_taken),
    TALLY_TEST(test_codec_top_k__what_is_not_finite_is_refused),
    TALLY_TEST(test_codec_top_k__capacity_is_respected),
    TALLY_TEST(test_codec_top_k__every_kind_of_nonsense_is_refused),
    TALLY_TEST(test_codec_top_k__every_flipped_bit_is_refused_or_canonical),
};
TALLY_SUITE(codec_top_k, TESTS);

/* The vector forms of `unary` and the plain one give the same bytes, levels, sums and refusals. */
#include "codec/unary/unary_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/encoding.h"
#include "tests/harness.h"

enum { MAX_DIM = 1000, MAX_BYTES = 8 * MAX_DIM };

static const struct tally_encoding *const UNARY = &TALLY_ENCODING_UNARY;

static void unlimited(void)
{
    tally_cpu_set_limit(TALLY_CPU_AVX512);
}

/* Fills each block with levels of a random spread. Some blocks are zero, and some have levels that
 * do not fit a byte. */
static void fill(struct tally_rng *rng, uint32_t top, int32_t *levels, size_t dim)
{
    static const double spreads[] = {0.05, 0.3, 0.5, 1, 1.6, 3, 10, 40, 200};
    double normal[MAX_DIM + 1];
    double spread = 0;
    tally_rng_normal(rng, normal, dim);
    for (size_t i = 0; i < dim; i++) {
        if (i % TALLY_UNARY_BLOCK == 0) {
            spread = spreads[tally_rng_below(rng, sizeof spreads / sizeof spreads[0])];
        }
        const double v = fmin(fabs(round(spread * normal[i])), top);
        levels[i] = (int32_t)copysign(v, normal[i]);
    }
    if (dim > 0 && tally_rng_below(rng, 4) == 0) {
        const int32_t special[] = {125, 126, 127, 128, 129, 255, 256, 400};
        const int32_t v = special[tally_rng_below(rng, 8)];
        levels[tally_rng_below(rng, (uint32_t)dim)] = v <= (int32_t)top ? v : (int32_t)top;
    }
}

static uint32_t random_top(struct tally_rng *rng)
{
    static const uint32_t tops[] = {1, 2, 3, 4, 5, 6, 50, 126, 127, 128, 500, 1 << 21};
    return tops[tally_rng_below(rng, sizeof tops / sizeof tops[0])];
}

/* A message as the plain form alone writes it. */
struct message {
    uint8_t data[MAX_BYTES];
    size_t n;
    uint64_t bits, nonzeros;
};

static void encode_plainly(const int32_t *levels, size_t dim, struct message *ret_message)
{
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, ret_message->data, sizeof ret_message->data);
    ret_message->nonzeros = 0;
    for (size_t i = 0; i < dim; i += TALLY_UNARY_BLOCK) {
        const size_t n = dim - i < TALLY_UNARY_BLOCK ? dim - i : TALLY_UNARY_BLOCK;
        tally_unary_encode_block_ref(levels + i, n, &writer, &ret_message->nonzeros);
    }
    ret_message->bits = tally_bit_writer_tell(&writer);
    ret_message->n = tally_bit_writer_finish(&writer);
    CU_ASSERT_FALSE(writer.overflow);
}

/* Copies n bytes to `shift` bytes after the start of a block that ends with them. */
static uint8_t *place(const uint8_t *data, size_t n, size_t shift, uint8_t **ret_block)
{
    *ret_block = malloc(n + shift + (n + shift == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(*ret_block);
    if (n > 0) {
        memcpy(*ret_block + shift, data, n);
    }
    return *ret_block + shift;
}

/* Whether encode() writes exactly the bytes of the message and none after them. */
static bool encodes_to(const int32_t *levels, size_t dim, const struct tally_grid *grid,
                       const struct message *expected, size_t shift)
{
    enum { BEHIND = 64 };
    if (UNARY->bound(levels, dim) != expected->n) {
        return false;
    }
    uint8_t *block = malloc(shift + expected->n + BEHIND);
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    memset(block, 0xa5, shift + expected->n + BEHIND);
    uint8_t *data = block + shift;
    struct tally_level_stats stats;
    bool same = UNARY->encode(levels, dim, grid, data, expected->n, &stats) == TALLY_OK &&
                stats.payload_bits == expected->bits && stats.nonzeros == expected->nonzeros &&
                stats.formula_bits == expected->bits - expected->nonzeros &&
                memcmp(data, expected->data, expected->n) == 0;
    for (size_t i = 0; i < BEHIND; i++) {
        same = same && data[expected->n + i] == 0xa5;
    }
    free(block);
    return same;
}

static bool decodes_to(const struct message *message, const struct tally_grid *grid,
                       const int32_t *expected, size_t dim, size_t shift)
{
    int32_t levels[MAX_DIM];
    int64_t sums[MAX_DIM];
    for (size_t i = 0; i < dim; i++) {
        sums[i] = (INT64_C(1) << 40) - (int64_t)i;
    }
    uint8_t *block;
    const uint8_t *data = place(message->data, message->n, shift, &block);
    struct tally_level_stats stats, summed;
    bool same = UNARY->decode(data, message->n, message->bits, dim, grid, levels, &stats, NULL) ==
                    TALLY_OK &&
                UNARY->accumulate(data, message->n, message->bits, dim, grid, sums, &summed,
                                  NULL) == TALLY_OK;
    free(block);
    same = same && stats.nonzeros == message->nonzeros && summed.nonzeros == message->nonzeros &&
           stats.payload_bits == message->bits && summed.payload_bits == message->bits &&
           summed.formula_bits == message->bits - message->nonzeros;
    for (size_t i = 0; same && i < dim; i++) {
        same = levels[i] == expected[i] && sums[i] == (INT64_C(1) << 40) - (int64_t)i + expected[i];
    }
    return same;
}

static void test_codec_unary_kernels__same_bytes_levels_and_sums(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(61, 0), 0, 0, TALLY_RNG_NOISE);
    int wrong = 0;
    for (size_t i = 0; i < 4000; i++) {
        int32_t levels[MAX_DIM + 1];
        static struct message message;
        const size_t dim = i < 300 ? i : tally_rng_below(&rng, MAX_DIM / 4);
        const uint32_t top = random_top(&rng);
        const struct tally_grid grid = {.step = 1, .intervals = 2 * top};
        fill(&rng, top < 300 ? top : 300, levels, dim);
        encode_plainly(levels, dim, &message);
        for (int cpu = 0; cpu < TALLY_N_CPUS; cpu++) {
            tally_cpu_set_limit((enum tally_cpu)cpu);
            wrong += !encodes_to(levels, dim, &grid, &message, i % 9);
            wrong += !decodes_to(&message, &grid, levels, dim, i % 9);
        }
    }
    unlimited();
    CU_ASSERT_EQUAL(wrong, 0);
}

/* Blocks that fill their four planes and signs (levels of 3 and 2), at the end of the buffer. */
static void test_codec_unary_kernels__full_blocks_at_the_end(void)
{
    const struct tally_grid grid = {.step = 1, .intervals = 20};
    int wrong = 0;
    for (size_t before = 0; before < 3; before++) {
        for (size_t threes = 0; threes <= TALLY_UNARY_BLOCK; threes++) {
            int32_t levels[3 * TALLY_UNARY_BLOCK] = {0};
            static struct message message;
            const size_t dim = (before + 1) * TALLY_UNARY_BLOCK;
            for (size_t i = 0; i < TALLY_UNARY_BLOCK; i++) {
                levels[before * TALLY_UNARY_BLOCK + i] = i < threes ? -3 : 2;
                levels[i] = before > 0 && i < threes ? 1 : levels[i]; /* shifts what follows */
            }
            encode_plainly(levels, dim, &message);
            for (int cpu = 0; cpu < TALLY_N_CPUS; cpu++) {
                tally_cpu_set_limit((enum tally_cpu)cpu);
                wrong += !encodes_to(levels, dim, &grid, &message, 0);
                wrong += !decodes_to(&message, &grid, levels, dim, 0);
            }
        }
    }
    unlimited();
    CU_ASSERT_EQUAL(wrong, 0);
}

/* The vector forms handle a last block of any n levels up to 10 without the plain form, and decode
 * it unchanged. */
static void test_codec_unary_kernels__last_blocks_are_ordinary(void)
{
    for (int32_t top = 0; top <= 10; top++) {
        for (size_t n = 1; n <= TALLY_UNARY_BLOCK; n++) {
            int32_t levels[TALLY_UNARY_BLOCK], decoded[TALLY_UNARY_BLOCK];
            for (size_t i = 0; i < n; i++) {
                levels[i] = i % 3 == 0 ? top : -top;
            }
            struct message message;
            encode_plainly(levels, n, &message);
            for (enum tally_cpu cpu = TALLY_CPU_AVX2; cpu <= tally_cpu_used(); cpu++) {
                struct tally_bit_reader reader;
                uint64_t nonzeros = 0;
                uint8_t *block;
                tally_bit_reader_init(&reader, place(message.data, message.n, n % 3, &block),
                                      message.bits);
                CU_ASSERT_TRUE(tally_unary_kernel_for(cpu)->decode_last(
                    &reader, n, top > 0 ? (uint32_t)top : 1, decoded, &nonzeros));
                CU_ASSERT_EQUAL(tally_bit_reader_tell(&reader), message.bits);
                CU_ASSERT_EQUAL(nonzeros, message.nonzeros);
                CU_ASSERT_EQUAL(memcmp(decoded, levels, n * sizeof *levels), 0);
                free(block);
            }
        }
    }
}

/* Whether all forms return the status and text of the plain form, and leave the sums unchanged on
 * failure. */
static bool same_refusal(const uint8_t *bytes, size_t n, uint64_t bits, size_t dim,
                         const struct tally_grid *grid)
{
    char expected[sizeof((struct tally_error *)0)->message] = "";
    enum tally_status first = TALLY_OK;
    bool same = true;
    uint8_t *block;
    const uint8_t *data = place(bytes, n, n % 8, &block);
    for (int cpu = 0; cpu < TALLY_N_CPUS; cpu++) {
        int32_t levels[MAX_DIM];
        int64_t sums[MAX_DIM], before[MAX_DIM];
        struct tally_level_stats stats;
        struct tally_error err = TALLY_ERROR_INIT, sum_err = TALLY_ERROR_INIT;
        for (size_t i = 0; i < dim; i++) {
            sums[i] = before[i] = (int64_t)i * 1000003 - 500;
        }
        tally_cpu_set_limit((enum tally_cpu)cpu);
        const enum tally_status status =
            UNARY->decode(data, n, bits, dim, grid, levels, &stats, &err);
        same =
            same && status == UNARY->accumulate(data, n, bits, dim, grid, sums, &stats, &sum_err);
        same = same && strcmp(err.message, sum_err.message) == 0;
        if (cpu == 0) {
            first = status;
            memcpy(expected, err.message, sizeof expected);
        }
        same = same && status == first && strcmp(expected, err.message) == 0;
        for (size_t i = 0; same && i < dim; i++) {
            same = sums[i] == before[i] + (status == TALLY_OK ? levels[i] : 0);
        }
    }
    free(block);
    unlimited();
    return same;
}

/* Flipped bits, truncated messages, and other grids and dimensions. */
static void test_codec_unary_kernels__same_refusals_and_untouched_sums(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(62, 0), 0, 0, TALLY_RNG_NOISE);
    int wrong = 0;
    for (size_t i = 0; i < 6000; i++) {
        int32_t levels[MAX_DIM + 1];
        static struct message message;
        const size_t dim = 1 + tally_rng_below(&rng, MAX_DIM / 2);
        const uint32_t top = random_top(&rng);
        const struct tally_grid grid = {.step = 1, .intervals = 2 * random_top(&rng)};
        fill(&rng, top < 300 ? top : 300, levels, dim);
        encode_plainly(levels, dim, &message);
        const size_t damage = tally_rng_below(&rng, 4);
        size_t n = message.n, decoded_dim = dim;
        uint64_t bits = message.bits;
        if (damage == 1) {
            const uint32_t bit = tally_rng_below(&rng, (uint32_t)bits);
            message.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        } else if (damage == 2) {
            bits = tally_rng_below(&rng, (uint32_t)bits);
            n = (size_t)(bits + 7) / 8;
            if (bits % 8 != 0) {
                message.data[n - 1] &= (uint8_t)((1u << bits % 8) - 1);
            }
        } else if (damage == 3) {
            decoded_dim = 1 + tally_rng_below(&rng, MAX_DIM / 2);
        }
        wrong += !same_refusal(message.data, n, bits, decoded_dim, &grid);
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* Blocks whose last bits, up to 7, are cut off and replaced by padding zeros. A form that checks
 * only whole bytes would accept those zeros and read past the end. */
static void test_codec_unary_kernels__a_block_may_not_reach_into_the_padding(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(67, 0), 0, 0, TALLY_RNG_NOISE);
    const struct tally_grid grid = {.step = 1, .intervals = 1000};
    int wrong = 0;
    for (size_t i = 0; i < 1500; i++) {
        int32_t levels[4 * TALLY_UNARY_BLOCK + 1];
        static struct message message;
        const size_t dim = TALLY_UNARY_BLOCK * (1 + i % 4);
        fill(&rng, 500, levels, dim);
        if (i % 3 == 0) { /* as many bits as four planes and the signs can take */
            for (size_t j = dim - TALLY_UNARY_BLOCK; j < dim; j++) {
                levels[j] = tally_rng_below(&rng, 2) == 0 ? 3 : -3;
            }
        }
        encode_plainly(levels, dim, &message);
        for (uint64_t bits = message.bits - 1; (bits + 7) / 8 == message.n && bits % 8 != 0;
             bits--) {
            message.data[message.n - 1] &= (uint8_t)((1u << bits % 8) - 1);
            wrong += !same_refusal(message.data, message.n, bits, dim, &grid);
            wrong += !same_refusal(message.data, message.n, bits, dim + 1, &grid);
            wrong += !same_refusal(message.data, message.n, bits, dim + 200, &grid);
        }
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void test_codec_unary_kernels__random_bytes(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(63, 0), 0, 0, TALLY_RNG_NOISE);
    int wrong = 0;
    for (size_t i = 0; i < 6000; i++) {
        uint8_t data[400];
        const size_t n = tally_rng_below(&rng, sizeof data + 1);
        const uint32_t sparse = tally_rng_below(&rng, 3);
        for (size_t b = 0; b < n; b++) {
            data[b] = (uint8_t)(tally_rng_u32(&rng) & (sparse > 0 ? tally_rng_u32(&rng) : 255u));
        }
        const struct tally_grid grid = {.step = 1, .intervals = 2 * random_top(&rng)};
        wrong += !same_refusal(data, n, 8 * (uint64_t)n, 1 + tally_rng_below(&rng, MAX_DIM), &grid);
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* Whether tally_quantize_encode() equals tally_quantize() followed by encode(): for every
 * instruction set, with and without the encoding's own form, and whatever the payload's content and
 * capacity. */
static bool same_as_two_steps(struct tally_rng *rng, size_t dim)
{
    static float y[MAX_DIM];
    double normal[MAX_DIM + 1];
    const struct tally_grid grid = {.step = 0.37, .intervals = 2 * random_top(rng)};
    const double spread = 0.37 * exp(6 * tally_rng_uniform(rng) - 2);
    tally_rng_normal(rng, normal, dim);
    for (size_t i = 0; i < dim; i++) {
        const bool is_wild = tally_rng_below(rng, 200) == 0;
        y[i] = (float)(is_wild ? 300 * normal[i] * spread : fmin(normal[i] * spread, 100));
    }
    struct tally_rng stream;
    tally_rng_init(&stream, rng->key, tally_rng_u32(rng), 3, TALLY_RNG_UPLINK);
    const struct tally_vector vector = {.y = y, .dim = dim, .grid = &grid, .rng = &stream};
    int32_t levels[MAX_DIM], scratch[MAX_DIM];
    uint64_t clipped, clipped_too;
    tally_cpu_set_limit(TALLY_CPU_PORTABLE);
    bool same = tally_quantize(&grid, y, dim, &stream, levels, &clipped, NULL) == TALLY_OK;
    const size_t n = UNARY->bound(levels, dim);
    uint8_t *expected = malloc(n + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(expected);
    struct tally_level_stats stats, stats_too;
    same = same && UNARY->encode(levels, dim, &grid, expected, n, &stats) == TALLY_OK;
    struct tally_encoding plain = *UNARY;
    plain.quantize_encode = NULL;
    for (int way = 0; way < 2 * TALLY_N_CPUS; way++) {
        const struct tally_encoding *encoding = way % 2 == 0 ? UNARY : &plain;
        tally_cpu_set_limit((enum tally_cpu)(way / 2));
        struct tally_buffer payload = {0};
        same = same && tally_buffer_reserve(&payload, 1 + tally_rng_below(rng, 500)) == TALLY_OK;
        payload.size = tally_rng_below(rng, (uint32_t)payload.capacity + 1);
        same = same && tally_quantize_encode(encoding, &vector, scratch, &payload, &stats_too,
                                             &clipped_too, NULL) == TALLY_OK;
        same = same && payload.size == n && memcmp(payload.data, expected, n) == 0 &&
               clipped == clipped_too && memcmp(&stats, &stats_too, sizeof stats) == 0;
        same = same && payload.capacity < 2 * n + 1000; /* grows by halves, and no more */
        tally_buffer_fini(&payload);
    }
    free(expected);
    unlimited();
    return same;
}

/* A limit of exactly the message's size has no effect, at every size; one byte less is too
 * small. */
static void test_codec_unary_kernels__quantize_encode_heeds_a_limit(void)
{
    static float y[700];
    int32_t levels[700];
    const struct tally_grid grid = {.step = 1, .intervals = 2000};
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(66, 0), 0, 0, TALLY_RNG_UPLINK);
    for (size_t i = 0; i < 700; i++) {
        y[i] = (float)(i % 97 == 0 ? 900 : i % 3);
    }
    bool heeded = true;
    for (size_t dim = 1; dim <= 700; dim += 3) {
        const struct tally_vector vector = {.y = y, .dim = dim, .grid = &grid, .rng = &rng};
        uint64_t clipped;
        struct tally_level_stats stats;
        heeded = heeded && tally_quantize(&grid, y, dim, &rng, levels, &clipped, NULL) == TALLY_OK;
        const size_t n = UNARY->bound(levels, dim);
        for (int cpu = 0; cpu < TALLY_N_CPUS; cpu++) {
            tally_cpu_set_limit((enum tally_cpu)cpu);
            struct tally_buffer exact = {.limit = n}, less = {.limit = n - 1};
            heeded = heeded && tally_quantize_encode(UNARY, &vector, levels, &exact, &stats,
                                                     &clipped, NULL) == TALLY_OK;
            heeded = heeded && exact.size == n;
            heeded = heeded && tally_quantize_encode(UNARY, &vector, levels, &less, &stats,
                                                     &clipped, NULL) == TALLY_TOO_LARGE;
            tally_buffer_fini(&exact);
            tally_buffer_fini(&less);
        }
    }
    unlimited();
    CU_ASSERT_TRUE(heeded);
}

static void test_codec_unary_kernels__quantize_encode_equals_its_two_steps(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(64, 0), 0, 0, TALLY_RNG_NOISE);
    int wrong = 0;
    for (size_t i = 0; i < 1500; i++) {
        wrong += !same_as_two_steps(&rng, i < 200 ? i : tally_rng_below(&rng, MAX_DIM));
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void test_codec_unary_kernels__quantize_encode_refuses(void)
{
    static float y[500];
    int32_t scratch[500];
    const struct tally_grid grid = {.step = 1, .intervals = 20};
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(65, 0), 0, 0, TALLY_RNG_UPLINK);
    for (size_t i = 0; i < 500; i++) {
        y[i] = (float)(i % 5);
    }
    y[333] = NAN;
    y[400] = INFINITY;
    struct tally_vector vector = {.y = y, .dim = 500, .grid = &grid, .rng = &rng};
    for (int cpu = 0; cpu < TALLY_N_CPUS; cpu++) {
        tally_cpu_set_limit((enum tally_cpu)cpu);
        struct tally_buffer payload = {0}, small = {.limit = 100};
        struct tally_level_stats stats = {.nonzeros = 42};
        uint64_t clipped = 42;
        struct tally_error err = TALLY_ERROR_INIT;
        vector.dim = 500;
        TALLY_ASSERT_STATUS(
            tally_quantize_encode(UNARY, &vector, scratch, &payload, &stats, &clipped, &err),
            TALLY_NOT_FINITE, &err);
        TALLY_ASSERT_TEXT(err.message, "coordinate 333 of 500 is NaN");
        tally_error_clear(&err);
        vector.dim = 333;
        TALLY_ASSERT_STATUS(
            tally_quantize_encode(UNARY, &vector, scratch, &small, &stats, &clipped, &err),
            TALLY_TOO_LARGE, &err);
        CU_ASSERT_EQUAL(stats.nonzeros, 42);
        CU_ASSERT_EQUAL(clipped, 42);
        tally_buffer_fini(&payload);
        tally_buffer_fini(&small);
    }
    unlimited();
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_unary_kernels__last_blocks_are_ordinary),
    TALLY_TEST(test_codec_unary_kernels__same_bytes_levels_and_sums),
    TALLY_TEST(test_codec_unary_kernels__full_blocks_at_the_end),
    TALLY_TEST(test_codec_unary_kernels__same_refusals_and_untouched_sums),
    TALLY_TEST(test_codec_unary_kernels__a_block_may_not_reach_into_the_padding),
    TALLY_TEST(test_codec_unary_kernels__random_bytes),
    TALLY_TEST(test_codec_unary_kernels__quantize_encode_equals_its_two_steps),
    TALLY_TEST(test_codec_unary_kernels__quantize_encode_heeds_a_limit),
    TALLY_TEST(test_codec_unary_kernels__quantize_encode_refuses),
};
TALLY_SUITE(codec_unary_kernels, TESTS);

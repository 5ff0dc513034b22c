/* Every golden file (README.md) on every instruction set: valid messages decode to the file's
 * values and encode to the same bytes; malformed ones are refused for the reason in the file. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/json.h"
#include "codec/adaptive/adaptive.h"
#include "codec/buffer.h"
#include "codec/dithered/dithered.h"
#include "codec/encoding.h"
#include "codec/numeric/cpu.h"
#include "codec/numeric/float32.h"
#include "codec/numeric/subset.h"
#include "codec/quantize/qsgd.h"
#include "codec/sparse/top_k.h"
#include "tests/harness.h"

/* The contents of a golden file. */
struct vector {
    struct tally_json *json;
    size_t dim;
    uint64_t payload_bits, formula_bits;
    struct tally_grid grid;
    uint32_t s;
    size_t k;
    const char *refused, *says; /* NULL if it is valid */
    struct tally_buffer payload;
    struct tally_buffer meaning; /* double[dim], or [k]: levels or values */
    struct tally_buffer indices; /* double[k] */
    double norm;
};

static void *allocate(size_t n, size_t n_bytes)
{
    void *block = calloc(n + (n == 0), n_bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    return block;
}

static void append(struct tally_buffer *buffer, const void *bytes, size_t n)
{
    CU_ASSERT_EQUAL_FATAL(tally_buffer_append(buffer, bytes, n), TALLY_OK);
}

/* Repeats everything from byte `start` on, so that it occurs `times` times. */
static void repeat(struct tally_buffer *buffer, size_t start, int64_t times)
{
    const size_t n = buffer->size - start;
    for (int64_t k = 1; k < times && n > 0; k++) {
        CU_ASSERT_EQUAL_FATAL(tally_buffer_reserve(buffer, n), TALLY_OK);
        append(buffer, buffer->data + start, n);
    }
}

static void append_hex(struct tally_buffer *buffer, const char *hex)
{
    for (; hex[0] != '\0' && hex[1] != '\0'; hex += 2) {
        const char digits[3] = {hex[0], hex[1], '\0'};
        const uint8_t byte = (uint8_t)strtoul(digits, NULL, 16);
        append(buffer, &byte, 1);
    }
}

/* Appends the numbers of the array, or the bytes of the text, at index 1 of a piece. */
static void append_piece(struct tally_buffer *buffer, const struct tally_json *piece)
{
    struct tally_json *holder = tally_json_object(); /* the interface reads members */
    CU_ASSERT_TRUE_FATAL(
        holder != NULL &&
        tally_json_set(holder, "times", tally_json_copy(tally_json_at(piece, 0))) &&
        tally_json_set(holder, "what", tally_json_copy(tally_json_at(piece, 1))));
    const struct tally_json *numbers = tally_json_get(holder, "what");
    const size_t start = buffer->size;
    if (tally_json_is_array(numbers)) {
        for (size_t i = 0; i < tally_json_size(numbers); i++) {
            struct tally_json *one = tally_json_object();
            CU_ASSERT_TRUE_FATAL(
                one != NULL &&
                tally_json_set(one, "number", tally_json_copy(tally_json_at(numbers, i))));
            const double number = tally_json_get_real(one, "number", NAN);
            append(buffer, &number, sizeof number);
            tally_json_free(one);
        }
    } else {
        append_hex(buffer, tally_json_get_text(holder, "what"));
    }
    repeat(buffer, start, tally_json_get_integer(holder, "times", 0));
    tally_json_free(holder);
}

static void expand(const struct tally_json *pieces, struct tally_buffer *buffer)
{
    for (size_t i = 0; pieces != NULL && i < tally_json_size(pieces); i++) {
        append_piece(buffer, tally_json_at(pieces, i));
    }
}

/* Reads a number, or the text of a number above 2^63. */
static uint64_t bits_of(const struct tally_json *json, const char *key)
{
    const char *text = tally_json_get_text(json, key);
    return text != NULL ? strtoull(text, NULL, 10) : (uint64_t)tally_json_get_integer(json, key, 0);
}

static struct vector vector_read(const char *path)
{
    struct tally_buffer text = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    char piece[4096];
    for (size_t n = fread(piece, 1, sizeof piece, file); n > 0;
         n = fread(piece, 1, sizeof piece, file)) {
        append(&text, piece, n);
    }
    fclose(file);
    struct vector vector = {.norm = 0};
    TALLY_ASSERT_STATUS(tally_json_parse((char *)text.data, text.size, &vector.json, &err),
                        TALLY_OK, &err);
    tally_buffer_fini(&text);
    vector.dim = (size_t)tally_json_get_integer(vector.json, "dim", 0);
    vector.payload_bits = bits_of(vector.json, "payload_bits");
    vector.formula_bits = bits_of(vector.json, "formula_bits");
    vector.grid.step = 1;
    vector.grid.intervals = (uint32_t)tally_json_get_integer(vector.json, "intervals", 0);
    vector.grid.scale = (uint32_t)tally_json_get_integer(vector.json, "scale", 0);
    vector.s = (uint32_t)tally_json_get_integer(vector.json, "s", 0);
    vector.k = (size_t)tally_json_get_integer(vector.json, "k", 0);
    vector.norm = tally_json_get_real(vector.json, "norm", 0);
    vector.refused = tally_json_get_text(vector.json, "refused");
    vector.says = tally_json_get_text(vector.json, "says");
    expand(tally_json_get(vector.json, "payload"), &vector.payload);
    expand(tally_json_get(vector.json, "levels"), &vector.meaning);
    expand(tally_json_get(vector.json, "values"), &vector.meaning);
    expand(tally_json_get(vector.json, "indices"), &vector.indices);
    CU_ASSERT_TRUE_FATAL(vector.dim > 0);
    return vector;
}

static void vector_fini(struct vector *vector)
{
    tally_buffer_fini(&vector->payload);
    tally_buffer_fini(&vector->meaning);
    tally_buffer_fini(&vector->indices);
    tally_json_free(vector->json);
}

/* Whether a decoder's result is the one in the file. */
static bool as_expected(const struct vector *vector, enum tally_status status,
                        const struct tally_error *err)
{
    if (vector->refused == NULL) {
        return status == TALLY_OK;
    }
    const enum tally_status expected =
        strcmp(vector->refused, "not-finite") == 0 ? TALLY_NOT_FINITE : TALLY_MALFORMED;
    return status == expected && vector->says != NULL && vector->says[0] != '\0' &&
           strstr(err->message, vector->says) != NULL;
}

static bool means(const struct vector *vector, const int32_t *levels)
{
    bool same = vector->meaning.size == vector->dim * sizeof(double);
    for (size_t i = 0; same && i < vector->dim; i++) {
        double expected;
        memcpy(&expected, vector->meaning.data + i * sizeof expected, sizeof expected);
        same = levels[i] == expected;
    }
    return same;
}

static bool is_payload(const struct vector *vector, const uint8_t *bytes, size_t n)
{
    return n == vector->payload.size && (n == 0 || memcmp(bytes, vector->payload.data, n) == 0);
}

static bool has_costs(const struct vector *vector, const struct tally_level_stats *stats)
{
    return stats->payload_bits == vector->payload_bits &&
           stats->formula_bits == vector->formula_bits;
}

static bool encodes(const struct tally_encoding *encoding, const struct vector *vector,
                    const int32_t *levels)
{
    const size_t n = encoding->bound(levels, vector->dim);
    uint8_t *bytes = allocate(n, 1);
    struct tally_level_stats stats;
    const bool good =
        encoding->encode(levels, vector->dim, &vector->grid, bytes, n, &stats) == TALLY_OK &&
        has_costs(vector, &stats) &&
        is_payload(vector, bytes, (size_t)((stats.payload_bits + 7) / 8));
    free(bytes);
    return good;
}

static bool accumulates(const struct tally_encoding *encoding, const struct vector *vector,
                        const int32_t *levels)
{
    int64_t *sums = allocate(vector->dim, sizeof *sums);
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    bool good = as_expected(vector,
                            encoding->accumulate(vector->payload.data, vector->payload.size,
                                                 vector->payload_bits, vector->dim, &vector->grid,
                                                 sums, &stats, &err),
                            &err);
    for (size_t i = 0; i < vector->dim; i++) {
        good = good && sums[i] == (vector->refused == NULL ? levels[i] : 0);
    }
    free(sums);
    return good && (vector->refused != NULL || has_costs(vector, &stats));
}

static bool check_levels(const struct tally_encoding *encoding, const struct vector *vector)
{
    int32_t *levels = allocate(vector->dim, sizeof *levels);
    struct tally_level_stats stats;
    bool good = true;
    for (int cpu = TALLY_CPU_PORTABLE; cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_error err = TALLY_ERROR_INIT;
        tally_cpu_set_limit((enum tally_cpu)cpu);
        good = good && as_expected(vector,
                                   encoding->decode(vector->payload.data, vector->payload.size,
                                                    vector->payload_bits, vector->dim,
                                                    &vector->grid, levels, &stats, &err),
                                   &err);
        good = good && accumulates(encoding, vector, levels);
        if (good && vector->refused == NULL) {
            good = has_costs(vector, &stats) && means(vector, levels) &&
                   encodes(encoding, vector, levels);
        }
        if (!good) {
            printf("on %s: %s\n", TALLY_CPU_NAMES[cpu], err.message);
            break;
        }
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(levels);
    return good;
}

static bool check_unary(const struct vector *vector)
{
    return check_levels(&TALLY_ENCODING_UNARY, vector);
}

static bool check_entropy(const struct vector *vector)
{
    return check_levels(&TALLY_ENCODING_ENTROPY, vector);
}

/* The stream that a file specifies. */
static struct tally_rng stream_of(const struct vector *vector)
{
    struct tally_rng rng;
    tally_rng_init(&rng,
                   tally_rng_key((uint64_t)tally_json_get_integer(vector->json, "seed", 0),
                                 (uint32_t)tally_json_get_integer(vector->json, "run", 0)),
                   (uint32_t)tally_json_get_integer(vector->json, "client", 0),
                   (uint32_t)tally_json_get_integer(vector->json, "round", 0),
                   (enum tally_rng_purpose)tally_json_get_integer(vector->json, "purpose", 0));
    return rng;
}

/* Whether the values are the file's levels without their dither, and encode to the payload. */
static bool encodes_values(const struct vector *vector, const struct tally_rng *rng,
                           const int64_t *values)
{
    int32_t *levels = allocate(vector->dim, sizeof *levels);
    float *y = allocate(vector->dim, sizeof *y);
    struct tally_buffer payload = {0};
    struct tally_level_stats stats;
    uint64_t clipped;
    for (size_t i = 0; i < vector->dim; i++) {
        levels[i] = (int32_t)lrint((double)values[i] * 0x1p-32); /* within half a step */
        y[i] = (float)((double)values[i] * 0x1p-32);
    }
    const struct tally_vector source = {
        .y = y, .dim = vector->dim, .grid = &vector->grid, .rng = rng};
    bool good = means(vector, levels);
    good = good &&
           tally_dithered_encode(&source, levels, &payload, &stats, &clipped, NULL) == TALLY_OK;
    good = good && means(vector, levels) && has_costs(vector, &stats) &&
           is_payload(vector, payload.data, payload.size);
    tally_buffer_fini(&payload);
    free(levels);
    free(y);
    return good;
}

static bool check_dithered(const struct vector *vector)
{
    int64_t *values = allocate(vector->dim, sizeof *values);
    const struct tally_rng rng = stream_of(vector);
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    bool good = tally_dithered_grid_is_valid(&vector->grid) &&
                as_expected(vector,
                            tally_dithered_decode(vector->payload.data, vector->payload.size,
                                                  vector->payload_bits, vector->dim, &vector->grid,
                                                  &rng, values, &stats, &err),
                            &err);
    if (good && vector->refused == NULL) {
        good = has_costs(vector, &stats) && encodes_values(vector, &rng, values);
    }
    free(values);
    return good;
}

/* On every instruction set, since the dithers come from its kernel. */
static bool check_adaptive(const struct vector *vector)
{
    int32_t *levels = allocate(vector->dim, sizeof *levels);
    const struct tally_rng rng = stream_of(vector);
    const struct tally_rng *dither = tally_json_get(vector->json, "seed") != NULL ? &rng : NULL;
    bool good = true;
    for (int cpu = TALLY_CPU_PORTABLE; good && cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_buffer payload = {0};
        struct tally_level_stats stats;
        struct tally_error err = TALLY_ERROR_INIT;
        tally_cpu_set_limit((enum tally_cpu)cpu);
        good = as_expected(vector,
                           tally_adaptive_decode(vector->payload.data, vector->payload.size,
                                                 vector->payload_bits, vector->dim, dither, levels,
                                                 &stats, &err),
                           &err);
        if (good && vector->refused == NULL) {
            good = has_costs(vector, &stats) && means(vector, levels) &&
                   tally_adaptive_encode(levels, vector->dim, dither, &payload, &stats, NULL) ==
                       TALLY_OK &&
                   has_costs(vector, &stats) && is_payload(vector, payload.data, payload.size);
        }
        if (!good) {
            printf("on %s: %s\n", TALLY_CPU_NAMES[cpu], err.message);
        }
        tally_buffer_fini(&payload);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(levels);
    return good;
}

static bool check_float32(const struct vector *vector)
{
    float *values = allocate(vector->dim, sizeof *values);
    uint8_t *bytes = allocate(tally_float32_bound(vector->dim), 1);
    struct tally_error err = TALLY_ERROR_INIT;
    bool good = as_expected(vector,
                            tally_float32_decode(vector->payload.data, vector->payload.size,
                                                 vector->payload_bits, vector->dim, values, &err),
                            &err);
    for (size_t i = 0; good && vector->refused == NULL && i < vector->dim; i++) {
        double expected;
        memcpy(&expected, vector->meaning.data + i * sizeof expected, sizeof expected);
        good = values[i] == expected && !signbit(values[i]) == !signbit(expected);
    }
    if (good && vector->refused == NULL) {
        uint64_t bits;
        good = tally_float32_encode(values, vector->dim, bytes, tally_float32_bound(vector->dim),
                                    &bits, NULL) == TALLY_OK &&
               bits == vector->payload_bits && bits == vector->formula_bits &&
               is_payload(vector, bytes, tally_float32_bound(vector->dim));
    }
    free(values);
    free(bytes);
    return good;
}

/* Whether these are the file's k values and k indices. */
static bool means_sparse(const struct vector *vector, const float *values, const uint32_t *indices)
{
    bool same = vector->meaning.size == vector->k * sizeof(double) &&
                vector->indices.size == vector->meaning.size;
    for (size_t i = 0; same && i < vector->k; i++) {
        double value, index;
        memcpy(&value, vector->meaning.data + i * sizeof value, sizeof value);
        memcpy(&index, vector->indices.data + i * sizeof index, sizeof index);
        same = values[i] == value && !signbit(values[i]) == !signbit(value) && indices[i] == index;
    }
    return same;
}

static bool check_top_k(const struct vector *vector)
{
    const size_t bound = tally_top_k_bound(vector->dim, vector->k);
    float *values = allocate(vector->k, sizeof *values);
    uint32_t *indices = allocate(vector->k, sizeof *indices);
    uint8_t *bytes = allocate(bound, 1);
    struct tally_error err = TALLY_ERROR_INIT;
    bool good = as_expected(vector,
                            tally_top_k_decode(vector->payload.data, vector->payload.size,
                                               vector->payload_bits, vector->dim, vector->k, values,
                                               indices, &err),
                            &err);
    if (good && vector->refused == NULL) {
        uint64_t bits;
        good = means_sparse(vector, values, indices) &&
               tally_top_k_formula_bits(vector->dim, vector->k) == vector->formula_bits &&
               tally_top_k_encode(values, indices, vector->dim, vector->k, bytes, bound, &bits,
                                  NULL) == TALLY_OK &&
               bits == vector->payload_bits && is_payload(vector, bytes, (size_t)((bits + 7) / 8));
    }
    free(values);
    free(indices);
    free(bytes);
    return good;
}

static bool check_rand_k(const struct vector *vector)
{
    const uint32_t k = (uint32_t)vector->k;
    float *values = allocate(k, sizeof *values);
    uint32_t *indices = allocate(k, sizeof *indices);
    uint32_t *taken = allocate(tally_subset_room(k), sizeof *taken);
    struct tally_rng rng = stream_of(vector);
    struct tally_error err = TALLY_ERROR_INIT;
    bool good = as_expected(vector,
                            tally_float32_decode(vector->payload.data, vector->payload.size,
                                                 vector->payload_bits, k, values, &err),
                            &err);
    if (good && vector->refused == NULL) {
        tally_subset_draw(&rng, (uint32_t)vector->dim, k, taken, indices);
        good = means_sparse(vector, values, indices) && vector->payload_bits == 32 * (uint64_t)k &&
               vector->formula_bits == vector->payload_bits;
    }
    free(values);
    free(indices);
    free(taken);
    return good;
}

static bool check_qsgd(const struct vector *vector)
{
    const uint64_t bits = tally_qsgd_bits(vector->s, vector->dim);
    const size_t n = (size_t)((bits + 7) / 8);
    int32_t *levels = allocate(vector->dim, sizeof *levels);
    uint8_t *bytes = allocate(n, 1);
    struct tally_qsgd qsgd;
    struct tally_error err = TALLY_ERROR_INIT;
    bool good = as_expected(vector,
                            tally_qsgd_decode(vector->payload.data, vector->payload.size,
                                              vector->payload_bits, vector->s, vector->dim, &qsgd,
                                              levels, &err),
                            &err);
    if (good && vector->refused == NULL) {
        good = (double)qsgd.norm == vector->norm && qsgd.levels == vector->s &&
               means(vector, levels) && bits == vector->payload_bits &&
               bits == vector->formula_bits &&
               tally_qsgd_encode(&qsgd, levels, vector->dim, bytes, n) == TALLY_OK &&
               is_payload(vector, bytes, n);
    }
    free(levels);
    free(bytes);
    return good;
}

/* Checks the files in a folder, of which there must be at least `at_least`. */
static void check_folder(const char *name, bool (*check)(const struct vector *vector), int at_least)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", TALLY_GOLDEN_DIR, name);
    DIR *folder = opendir(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(folder);
    int n = 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s/%s", TALLY_GOLDEN_DIR, name, entry->d_name);
        struct vector vector = vector_read(path);
        const bool good =
            check(&vector) && (vector.refused != NULL) == (strstr(name, "-malformed") != NULL);
        if (!good) {
            printf("%s\n", path);
        }
        CU_ASSERT_TRUE(good);
        vector_fini(&vector);
        n++;
    }
    closedir(folder);
    CU_ASSERT_TRUE(n >= at_least);
}

static void test_golden__unary(void)
{
    check_folder("unary", check_unary, 20);
    check_folder("unary-malformed", check_unary, 15);
}

static void test_golden__float32(void)
{
    check_folder("float32", check_float32, 5);
    check_folder("float32-malformed", check_float32, 9);
}

static void test_golden__top_k(void)
{
    check_folder("top_k", check_top_k, 15);
    check_folder("top_k-malformed", check_top_k, 15);
}

static void test_golden__rand_k(void)
{
    check_folder("rand_k", check_rand_k, 5);
    check_folder("rand_k-malformed", check_rand_k, 3);
}

static void test_golden__qsgd(void)
{
    check_folder("qsgd", check_qsgd, 10);
    check_folder("qsgd-malformed", check_qsgd, 11);
}

static void test_golden__entropy(void)
{
    check_folder("entropy", check_entropy, 50);
    check_folder("entropy-malformed", check_entropy, 15);
}

static void test_golden__entropy_long(void)
{
    check_folder("entropy-long", check_entropy, 10);
    check_folder("entropy-long-malformed", check_entropy, 15);
}

static void test_golden__dithered(void)
{
    check_folder("dithered", check_dithered, 40);
    check_folder("dithered-malformed", check_dithered, 6);
}

static void test_golden__adaptive(void)
{
    check_folder("adaptive", check_adaptive, 50);
    check_folder("adaptive-malformed", check_adaptive, 15);
}

static const struct tally_test tests[] = {
    TALLY_TEST(test_golden__unary),        TALLY_TEST(test_golden__float32),
    TALLY_TEST(test_golden__top_k),        TALLY_TEST(test_golden__rand_k),
    TALLY_TEST(test_golden__qsgd),         TALLY_TEST(test_golden__entropy),
    TALLY_TEST(test_golden__entropy_long), TALLY_TEST(test_golden__dithered),
    TALLY_TEST(test_golden__adaptive),
};
TALLY_SUITE(golden, tests);

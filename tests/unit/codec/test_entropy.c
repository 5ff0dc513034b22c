#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/encoding.h"
#include "codec/entropy/arith.h"
#include "codec/entropy/entropy_model.h"
#include "codec/numeric/checksum.h"
#include "codec/numeric/cpu.h"
#include "codec/numeric/rng.h"
#include "tests/harness.h"

static const struct tally_encoding *const ENTROPY = &TALLY_ENCODING_ENTROPY;
static const struct tally_grid GRID = {.step = 0.1, .intervals = 100}; /* levels to 50 */
static const struct tally_grid WIDE = {.step = 0.1, .intervals = TALLY_MAX_INTERVALS};
enum { LONG = 1 << 18, TOP = TALLY_MAX_INTERVALS / 2 };

static void *allocate(size_t n)
{
    void *block = malloc(n + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    return block;
}

/* Encodes into a heap block of exactly bound() bytes, shortened to the message; the caller frees
 * it. */
static uint8_t *encode(const int32_t *levels, size_t dim, size_t *ret_n,
                       struct tally_level_stats *ret_stats)
{
    size_t n = ENTROPY->bound(levels, dim);
    uint8_t *data = allocate(n);
    CU_ASSERT_EQUAL_FATAL(ENTROPY->encode(levels, dim, &WIDE, data, n, ret_stats), TALLY_OK);
    *ret_n = (size_t)((ret_stats->payload_bits + 7) / 8);
    CU_ASSERT_TRUE_FATAL(*ret_n <= n);
    return data;
}

static bool same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}

/* Whether accumulate() agrees with decode(), which gave `status` and, if OK, `levels`. */
static bool accumulates_alike(const uint8_t *data, size_t n, uint64_t payload_bits, size_t dim,
                              const struct tally_grid *grid, enum tally_status status,
                              const int32_t *levels, const struct tally_level_stats *stats)
{
    int64_t *sums = allocate(dim * sizeof *sums);
    for (size_t i = 0; i < dim; i++) {
        sums[i] = (int64_t)i * 1000003 - 500;
    }
    struct tally_level_stats seen;
    bool good = ENTROPY->accumulate(data, n, payload_bits, dim, grid, sums, &seen, NULL) == status;
    good = good && (status != TALLY_OK || same_stats(&seen, stats));
    for (size_t i = 0; i < dim; i++) {
        const int64_t added = status == TALLY_OK ? levels[i] : 0;
        good = good && sums[i] == (int64_t)i * 1000003 - 500 + added;
    }
    free(sums);
    return good;
}

/* Decodes from a copy in a block of exactly n bytes, so that the address sanitizer sees any read
 * outside. True if the bytes are refused as MALFORMED and leave sums alone, or are exactly what the
 * decoded levels encode to: no two messages mean the same. */
static bool refused_or_canonical(const uint8_t *bytes, size_t n, uint64_t payload_bits, size_t dim,
                                 const struct tally_grid *grid, size_t *accepted)
{
    uint8_t *data = allocate(n);
    int32_t *levels = allocate(dim * sizeof *levels);
    if (n > 0) {
        memcpy(data, bytes, n);
    }
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status =
        ENTROPY->decode(data, n, payload_bits, dim, grid, levels, &stats, &err);
    bool good = status == TALLY_MALFORMED && err.message[0] != '\0';
    if (status == TALLY_OK) {
        struct tally_level_stats again;
        size_t n_again;
        uint8_t *encoded = encode(levels, dim, &n_again, &again);
        good = n_again == n && memcmp(encoded, data, n) == 0 && same_stats(&again, &stats) &&
               stats.payload_bits == payload_bits;
        *accepted += 1;
        free(encoded);
    }
    good = good && accumulates_alike(data, n, payload_bits, dim, grid, status, levels, &stats);
    free(data);
    free(levels);
    return good;
}

static bool round_trips(const int32_t *levels, size_t dim, const struct tally_grid *grid)
{
    struct tally_level_stats sent, seen;
    size_t n;
    uint8_t *data = encode(levels, dim, &n, &sent);
    uint8_t *copy = allocate(n);
    int32_t *back = allocate(dim * sizeof *back);
    memcpy(copy, data, n);
    struct tally_level_stats wanted = {.formula_bits = dim, .payload_bits = sent.payload_bits};
    for (size_t i = 0; i < dim; i++) {
        wanted.formula_bits += (uint64_t)abs(levels[i]);
        wanted.nonzeros += levels[i] != 0;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    bool good =
        ENTROPY->decode(copy, n, sent.payload_bits, dim, grid, back, &seen, &err) == TALLY_OK;
    good = good && memcmp(back, levels, dim * sizeof *back) == 0;
    good = good && same_stats(&sent, &wanted) && same_stats(&seen, &wanted);
    good = good && accumulates_alike(copy, n, sent.payload_bits, dim, grid, TALLY_OK, back, &seen);
    if (!good) {
        printf("%zu coordinates, the first %d: %s\n", dim, levels[0], err.message);
    }
    free(data);
    free(copy);
    free(back);
    return good;
}

enum shape { ZERO, SPARSE, BELL, WIDE_BELL, UNIFORM, HEAVY, CONSTANT, ONE_FAR, HALVES, N_SHAPES };

static int32_t bell(struct tally_rng *rng, uint32_t width)
{
    int32_t sum = 0;
    for (int k = 0; k < 4; k++) {
        sum += (int32_t)tally_rng_below(rng, width + 1);
    }
    return sum - (int32_t)(2 * width);
}

static int32_t clamp(int64_t level, int32_t top)
{
    return (int32_t)(level > top ? top : level < -top ? -top : level);
}

/* Fills levels with what the shape says, none above `top`. */
static void random_levels(struct tally_rng *rng, enum shape shape, int32_t top, int32_t *levels,
                          size_t dim)
{
    const int32_t constant = (int32_t)tally_rng_below(rng, (uint32_t)top + 1);
    const uint32_t width = 1 + tally_rng_below(rng, 1u << tally_rng_below(rng, 20));
    const size_t far = tally_rng_below(rng, (uint32_t)dim);
    for (size_t i = 0; i < dim; i++) {
        int64_t level = 0;
        switch (shape) {
        case SPARSE:
            level = tally_rng_below(rng, 50) == 0 ? bell(rng, 3) : 0;
            break;
        case BELL:
            level = bell(rng, 1 + width % 8);
            break;
        case WIDE_BELL:
            level = bell(rng, width);
            break;
        case UNIFORM:
            level = (int64_t)tally_rng_below(rng, 2 * (uint32_t)top + 1) - top;
            break;
        case HEAVY:
            level = (INT64_C(1) << tally_rng_below(rng, 22)) / (1 + tally_rng_below(rng, 64)) *
                    (tally_rng_below(rng, 2) == 0 ? 1 : -1);
            break;
        case CONSTANT:
            level = constant;
            break;
        case ONE_FAR:
            level = i == far ? -top : 0;
            break;
        case HALVES:
            level = i < far ? bell(rng, 1) : bell(rng, width);
            break;
        case ZERO:
        case N_SHAPES:
        default:
            break;
        }
        levels[i] = clamp(level, top);
    }
}

static struct tally_rng stream(uint64_t seed)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(seed, 0), 0, 0, TALLY_RNG_NOISE);
    return rng;
}

/* --- round trips ----------------------------------------------------------------------------- */

/* The encoder's number of bits is the decoder's own, and that of the bytes. */
static void test_codec_entropy__hundred_thousand_random_messages_round_trip(void)
{
    struct tally_rng rng = stream(41);
    bool good = true;
    for (uint32_t k = 0; k < 100000; k++) {
        int32_t levels[100];
        const size_t dim = 1 + tally_rng_below(&rng, k % 16 == 0 ? 100 : 20);
        const bool wide = k / N_SHAPES % 2 != 0;
        random_levels(&rng, k % N_SHAPES, wide ? TOP : 50, levels, dim);
        good = good && round_trips(levels, dim, wide ? &WIDE : &GRID);
    }
    CU_ASSERT_TRUE(good);
}

/* Around the ends of the blocks, and where the other coder takes over. */
static void test_codec_entropy__all_shapes_round_trip_at_every_block_boundary(void)
{
    static const size_t dims[] = {
        255,   256,      257,  511,      512,       513,       1024,         4095,  4096,
        4097,  4098,     8192, 16383,    16384,     16385,     32768,        32769, 49152,
        65537, LONG - 1, LONG, LONG + 1, LONG + 63, LONG + 64, LONG + 16384, 300001};
    struct tally_rng rng = stream(42);
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        int32_t *levels = allocate(dims[k] * sizeof *levels);
        for (enum shape shape = 0; shape < N_SHAPES; shape++) {
            random_levels(&rng, shape, TOP, levels, dims[k]);
            CU_ASSERT_TRUE(round_trips(levels, dims[k], &WIDE));
        }
        free(levels);
    }
}

/* Both extremes of the largest grid, next to each other and to small levels; every level of a small
 * one. */
static void test_codec_entropy__extreme_levels_round_trip(void)
{
    const int32_t extremes[] = {TOP, -TOP, 0, 1, -TOP, TOP - 1, 1 - TOP, 10, -10, 11, -11, 26, 27};
    CU_ASSERT_TRUE(round_trips(extremes, sizeof extremes / sizeof extremes[0], &WIDE));
    for (int32_t level = -50; level <= 50; level++) {
        CU_ASSERT_TRUE(round_trips(&level, 1, &GRID));
    }
    for (uint32_t magnitude = 1; magnitude <= TOP; magnitude *= 2) {
        const int32_t around[] = {(int32_t)magnitude, -(int32_t)magnitude, (int32_t)magnitude - 1,
                                  1 - (int32_t)magnitude};
        CU_ASSERT_TRUE(round_trips(around, 4, &WIDE));
        CU_ASSERT_TRUE(round_trips(around, 1, &WIDE));
    }
}

/* The same bytes whichever kernels run. */
static void test_codec_entropy__every_instruction_set_writes_the_same_bytes(void)
{
    struct tally_rng rng = stream(43);
    const size_t dim = LONG + 100;
    int32_t *levels = allocate(dim * sizeof *levels);
    for (enum shape shape = 0; shape < N_SHAPES; shape++) {
        random_levels(&rng, shape, TOP, levels, dim);
        tally_cpu_set_limit(TALLY_CPU_PORTABLE);
        size_t n, n_again;
        struct tally_level_stats stats, again;
        uint8_t *plain = encode(levels, dim, &n, &stats);
        for (enum tally_cpu cpu = TALLY_CPU_AVX2; cpu <= tally_cpu_best(); cpu++) {
            tally_cpu_set_limit(cpu);
            uint8_t *data = encode(levels, dim, &n_again, &again);
            CU_ASSERT_EQUAL_FATAL(n_again, n);
            CU_ASSERT_EQUAL(memcmp(data, plain, n), 0);
            CU_ASSERT_TRUE(round_trips(levels, dim, &WIDE));
            free(data);
        }
        free(plain);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(levels);
}

/* --- examples of FORMAT.md ------------------------------------------------------------------- */

static void expect_example(const int32_t *levels, size_t dim, const char *hex, uint64_t bits)
{
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = encode(levels, dim, &n, &stats);
    char text[3 * 64] = "";
    for (size_t i = 0; i < n && i < 63; i++) {
        sprintf(text + 3 * i, "%02x ", data[i]);
    }
    TALLY_ASSERT_TEXT(text, hex);
    CU_ASSERT_EQUAL(stats.payload_bits, bits);
    CU_ASSERT_TRUE(round_trips(levels, dim, &WIDE));
    free(data);
}

static void test_codec_entropy__examples_of_format_md(void)
{
    const int32_t zeros[30] = {0}, mixed[7] = {0, 1, -1, 2, -3, 0, 4};
    const int32_t far[3] = {0, 0, 100}, wide[3] = {1000, -3, -777};
    expect_example(zeros, 30, "00 ", 5);
    expect_example(mixed, 7, "1c e5 fb 0f ", 28);
    expect_example(far, 3, "0f c4 d0 1b d5 01 ", 41);
    expect_example(wide, 3, "bf fc df 37 be cf ae 25 37 01 ", 73);
}

static void expect_checksum(const int32_t *levels, size_t dim, const char *expected)
{
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = encode(levels, dim, &n, &stats);
    char text[64];
    sprintf(text, "%llu bits, %016llx", (unsigned long long)stats.payload_bits,
            (unsigned long long)tally_checksum64(data, n));
    TALLY_ASSERT_TEXT(text, expected);
    free(data);
}

static void test_codec_entropy__long_examples_of_format_md(void)
{
    int32_t *levels = allocate(LONG * sizeof *levels);
    for (int32_t i = 0; i < 7840; i++) {
        levels[i] = i / 2000 * (i % 3 - 1);
    }
    expect_checksum(levels, 7840, "18690 bits, 02313a050e792710");
    for (int32_t i = 0; i < LONG; i++) {
        levels[i] = i % 10001 == 10000 ? -20 : i % 1000 == 999 ? 1 : 0;
    }
    expect_checksum(levels, LONG, "5584 bits, 3b3d83d5f7442f65");
    for (int32_t i = 0; i < LONG; i++) {
        levels[i] = (i % 101 - 50) * 37;
    }
    expect_checksum(levels, LONG, "3141648 bits, c9769427c5018097");
    free(levels);
}

/* --- what it costs --------------------------------------------------------------------------- */

static uint64_t bits_of(const int32_t *levels, size_t dim)
{
    size_t n;
    struct tally_level_stats stats;
    free(encode(levels, dim, &n, &stats));
    return stats.payload_bits;
}

static void test_codec_entropy__a_zero_vector_costs_a_few_bits(void)
{
    const int32_t levels[1000] = {0};
    for (size_t dim = 1; dim <= 1000; dim++) {
        CU_ASSERT_TRUE(bits_of(levels, dim) <= 6 + dim / 300);
    }
}

/* No levels cost much more than writing them out in log2(p + 1) bits each, plus the head. */
static void test_codec_entropy__no_shape_explodes(void)
{
    static const size_t dims[] = {1, 2, 10, 100, 1000, 10000, 300000};
    static const int32_t tops[] = {1, 7, 50, 1000, 65536, TOP};
    struct tally_rng rng = stream(44);
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        int32_t *levels = allocate(dims[k] * sizeof *levels);
        for (size_t t = 0; t < sizeof tops / sizeof tops[0]; t++) {
            double raw = 1;
            while ((1 << (int)raw) < 2 * tops[t] + 1) {
                raw++;
            }
            for (enum shape shape = 0; shape < N_SHAPES; shape++) {
                random_levels(&rng, shape, tops[t], levels, dims[k]);
                const double bits = (double)bits_of(levels, dims[k]);
                const double most =
                    1.35 * raw * (double)dims[k] + 40 + (dims[k] >= LONG ? 2064 : 0);
                CU_ASSERT_TRUE(bits <= most);
                if (bits > most) {
                    printf("dim %zu top %d shape %d: %.0f bits, raw %.0f\n", dims[k], tops[t],
                           (int)shape, bits, raw * (double)dims[k]);
                }
            }
        }
        free(levels);
    }
}

static void test_codec_entropy__small_capacity_is_refused(void)
{
    const int32_t levels[5] = {3, -4, 0, 50, 7};
    const size_t need = ENTROPY->bound(levels, 5);
    for (size_t capacity = 0; capacity < need; capacity++) {
        uint8_t *data = allocate(capacity);
        struct tally_level_stats stats = {.payload_bits = 77};
        CU_ASSERT_EQUAL(ENTROPY->encode(levels, 5, &GRID, data, capacity, &stats),
                        TALLY_OUT_OF_RANGE);
        CU_ASSERT_EQUAL(stats.payload_bits, 77);
        free(data);
    }
}

/* --- malformed ------------------------------------------------------------------------------- */

static void expect_malformed(const uint8_t *data, size_t n, uint64_t payload_bits, size_t dim,
                             const char *message)
{
    int32_t *levels = allocate(dim * sizeof *levels);
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(ENTROPY->decode(data, n, payload_bits, dim, &GRID, levels, &stats, &err),
                        TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.field, "payload");
    TALLY_ASSERT_TEXT(err.message, message);
    free(levels);
}

static void test_codec_entropy__lengths_that_lie_are_refused(void)
{
    const uint8_t data[3] = {0};
    expect_malformed(NULL, 0, 0, 7, "ends in the block of coordinate 0 of 7, after 0 bits");
    expect_malformed(data, 0, UINT64_MAX, 7,
                     "0 bytes do not frame 18446744073709551615 bits with zero padding");
    expect_malformed(data, 3, UINT64_MAX - 6, 7,
                     "3 bytes do not frame 18446744073709551609 bits with zero padding");
    expect_malformed(data, 1, 6, 30, "6 bits announced, 30 coordinates take 5");
    expect_malformed(data, 1, 4, 30, "4 bits announced, 30 coordinates take 5");
    expect_malformed(data, 3, 24, LONG,
                     "ends in the block of coordinate 0 of 262144, after 24 bits");
    const uint8_t padded[1] = {0x20};
    expect_malformed(padded, 1, 5, 30, "1 bytes do not frame 5 bits with zero padding");
    const uint8_t scale[2] = {0xff, 0x3f};
    expect_malformed(scale, 2, 14, 30, "scale 78 is above 52");
}

/* One zero, written as the escape and a symbol's number: its own, or the escape's. */
static void test_codec_entropy__escapes_that_are_not_needed_are_refused(void)
{
    const uint32_t none[TALLY_ENTROPY_SYMBOLS] = {0}, named[] = {10, TALLY_ENTROPY_ESCAPE};
    struct tally_entropy_table table;
    tally_entropy_table(0, none, &table);
    for (int k = 0; k < 2; k++) {
        uint8_t data[16];
        struct tally_bit_writer writer;
        struct tally_arith_encoder encoder;
        tally_bit_writer_init(&writer, data, sizeof data);
        tally_bit_write(&writer, 0, 4);
        tally_arith_encoder_init(&encoder, &writer);
        tally_arith_encode(&encoder, table.cumulative[TALLY_ENTROPY_ESCAPE],
                           table.frequency[TALLY_ENTROPY_ESCAPE], TALLY_ENTROPY_TOTAL_BITS);
        tally_arith_encode(&encoder, named[k], 1, 5);
        tally_arith_encoder_finish(&encoder);
        const uint64_t bits = tally_bit_writer_tell(&writer);
        expect_malformed(data, tally_bit_writer_finish(&writer), bits, 1,
                         "coordinate 0 escapes from a symbol that has a frequency");
    }
}

/* What decodes from a state out of its range would be encoded from another. */
static void test_codec_entropy__states_out_of_their_range_are_refused(void)
{
    int32_t *levels = calloc(LONG, sizeof *levels);
    CU_ASSERT_PTR_NOT_NULL_FATAL(levels);
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = encode(levels, LONG, &n, &stats);
    uint8_t kept[4], *first = data + 2, *last = data + 2 + 4 * 63;
    memcpy(kept, first, 4);
    memcpy(first, "\xff\x7f\x00\x00", 4);
    expect_malformed(data, n, 8 * n, LONG, "state 0 is 32767");
    memcpy(first, kept, 4);
    last[3] |= 0x80;
    char text[64];
    sprintf(text, "state 63 is %lu",
            (unsigned long)last[0] | (unsigned long)last[1] << 8 | (unsigned long)last[2] << 16 |
                (unsigned long)last[3] << 24);
    expect_malformed(data, n, 8 * n, LONG, text);
    free(data);
    free(levels);
}

static void test_codec_entropy__levels_above_the_grid_are_refused(void)
{
    const int32_t above[3] = {50, -51, 0};
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = encode(above, 3, &n, &stats);
    expect_malformed(data, n, stats.payload_bits, 3, "level of coordinate 1 is above 50");
    free(data);
    int32_t *levels = calloc(LONG, sizeof *levels);
    CU_ASSERT_PTR_NOT_NULL_FATAL(levels);
    levels[200000] = 51;
    data = encode(levels, LONG, &n, &stats);
    expect_malformed(data, n, stats.payload_bits, LONG, "level of coordinate 200000 is above 50");
    CU_ASSERT_TRUE(
        accumulates_alike(data, n, stats.payload_bits, LONG, &GRID, TALLY_MALFORMED, NULL, NULL));
    free(data);
    free(levels);
}

/* All messages of up to 13 bits for some dimensions: every string that decodes is the only one of
 * its levels. */
static void test_codec_entropy__all_short_messages_are_refused_or_canonical(void)
{
    static const size_t dims[] = {1, 2, 3, 30, 300};
    const struct tally_grid tiny = {.step = 1, .intervals = 2};
    bool good = true;
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        size_t accepted = 0;
        for (uint64_t bits = 0; bits <= 13; bits++) {
            for (uint32_t value = 0; value < 1u << bits; value++) {
                const uint8_t data[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
                good = good && refused_or_canonical(data, (size_t)(bits + 7) / 8, bits, dims[k],
                                                    value % 2 == 0 ? &GRID : &tiny, &accepted);
            }
        }
        CU_ASSERT_TRUE(accepted > 0);
    }
    CU_ASSERT_TRUE(good);
}

static void test_codec_entropy__random_bytes_are_refused_or_canonical(void)
{
    struct tally_rng rng = stream(45);
    bool good = true;
    size_t accepted = 0;
    for (int k = 0; k < 30000; k++) {
        uint8_t data[24];
        const size_t n = tally_rng_below(&rng, sizeof data + 1);
        for (size_t b = 0; b < n; b++) {
            data[b] = (uint8_t)tally_rng_u32(&rng);
        }
        const uint64_t bits = 8 * n - (n > 0 ? tally_rng_below(&rng, 8) : 0);
        if (n > 0 && bits % 8 != 0) {
            data[n - 1] &= (uint8_t)((1u << bits % 8) - 1);
        }
        good = good && refused_or_canonical(data, n, bits, 1 + tally_rng_below(&rng, 40),
                                            k % 2 == 0 ? &WIDE : &GRID, &accepted);
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(accepted > 0);
}

/* Every prefix, with the padding clean, and longer ones with zeros and with ones. */
static void test_codec_entropy__every_truncation_and_extension_is_refused(void)
{
    struct tally_rng rng = stream(46);
    for (uint32_t k = 0; k < 90; k++) {
        int32_t levels[40], back[40];
        size_t n;
        struct tally_level_stats stats, seen;
        random_levels(&rng, k % N_SHAPES, k % 2 == 0 ? 50 : TOP, levels, 40);
        uint8_t *data = encode(levels, 40, &n, &stats);
        uint8_t *longer = calloc(n + 9, 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
        memcpy(longer, data, n);
        bool refused = true;
        for (uint64_t bits = 0; bits <= stats.payload_bits + 64; bits++) {
            const size_t bytes = (size_t)(bits + 7) / 8;
            uint8_t *cut = allocate(bytes);
            memcpy(cut, longer, bytes);
            if (bits % 8 != 0) {
                cut[bytes - 1] &= (uint8_t)((1u << bits % 8) - 1);
            }
            refused = refused && (bits == stats.payload_bits ||
                                  ENTROPY->decode(cut, bytes, bits, 40, &WIDE, back, &seen, NULL) ==
                                      TALLY_MALFORMED);
            free(cut);
        }
        CU_ASSERT_TRUE(refused);
        free(longer);
        free(data);
    }
}

static void test_codec_entropy__every_flipped_bit_is_refused_or_canonical(void)
{
    struct tally_rng rng = stream(47);
    size_t accepted = 0;
    for (uint32_t k = 0; k < 90; k++) {
        int32_t levels[40];
        size_t n;
        struct tally_level_stats stats;
        const struct tally_grid *grid = k % 2 == 0 ? &GRID : &WIDE;
        random_levels(&rng, k % N_SHAPES, (int32_t)grid->intervals / 2, levels, 40);
        uint8_t *data = encode(levels, 40, &n, &stats);
        bool good = true;
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            good = good && refused_or_canonical(data, n, stats.payload_bits, 40, grid, &accepted);
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        CU_ASSERT_TRUE(good);
        free(data);
    }
    CU_ASSERT_TRUE(accepted > 0);
}

/* The same of long messages, at places all over them, most of them near both ends. */
static void test_codec_entropy__damaged_long_messages_are_refused(void)
{
    struct tally_rng rng = stream(48);
    int32_t *levels = allocate((LONG + 7) * sizeof *levels);
    for (uint32_t k = 0; k < N_SHAPES; k++) {
        size_t n, accepted = 0;
        struct tally_level_stats stats;
        const struct tally_grid *grid = k % 2 == 0 ? &GRID : &WIDE;
        random_levels(&rng, k, (int32_t)grid->intervals / 2, levels, LONG + 7);
        uint8_t *data = encode(levels, LONG + 7, &n, &stats);
        bool good = true;
        for (size_t try = 0; try < 24; try++) {
            const size_t near = tally_rng_below(&rng, 300) % n;
            const size_t at = try % 3 == 0   ? near
                              : try % 3 == 1 ? n - 1 - near
                                             : tally_rng_below(&rng, (uint32_t)n);
            data[at] ^= (uint8_t)(1 << try % 8);
            good = good && refused_or_canonical(data, n, 8 * n, LONG + 7, grid, &accepted);
            data[at] ^= (uint8_t)(1 << try % 8);
            const size_t left = n - 1 - near;
            good = good && refused_or_canonical(data, left, 8 * left, LONG + 7, grid, &accepted);
        }
        CU_ASSERT_TRUE(good);
        uint8_t *longer = calloc(n + 130, 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
        memcpy(longer, data, n);
        for (size_t more = 1; more <= 130; more += 43) {
            good = good && refused_or_canonical(longer, n + more, 8 * (n + more), LONG + 7, grid,
                                                &accepted);
        }
        CU_ASSERT_TRUE(good);
        free(longer);
        free(data);
    }
    free(levels);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_entropy__hundred_thousand_random_messages_round_trip),
    TALLY_TEST(test_codec_entropy__all_shapes_round_trip_at_every_block_boundary),
    TALLY_TEST(test_codec_entropy__extreme_levels_round_trip),
    TALLY_TEST(test_codec_entropy__every_instruction_set_writes_the_same_bytes),
    TALLY_TEST(test_codec_entropy__examples_of_format_md),
    TALLY_TEST(test_codec_entropy__long_examples_of_format_md),
    TALLY_TEST(test_codec_entropy__a_zero_vector_costs_a_few_bits),
    TALLY_TEST(test_codec_entropy__no_shape_explodes),
    TALLY_TEST(test_codec_entropy__small_capacity_is_refused),
    TALLY_TEST(test_codec_entropy__lengths_that_lie_are_refused),
    TALLY_TEST(test_codec_entropy__escapes_that_are_not_needed_are_refused),
    TALLY_TEST(test_codec_entropy__states_out_of_their_range_are_refused),
    TALLY_TEST(test_codec_entropy__levels_above_the_grid_are_refused),
    TALLY_TEST(test_codec_entropy__all_short_messages_are_refused_or_canonical),
    TALLY_TEST(test_codec_entropy__random_bytes_are_refused_or_canonical),
    TALLY_TEST(test_codec_entropy__every_truncation_and_extension_is_refused),
    TALLY_TEST(test_codec_entropy__every_flipped_bit_is_refused_or_canonical),
    TALLY_TEST(test_codec_entropy__damaged_long_messages_are_refused),
};
TALLY_SUITE(codec_entropy, TESTS);

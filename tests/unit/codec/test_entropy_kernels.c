/* The vector forms of `entropy` compared with the plain one, the model, and the bit-exact coder. */
#include "codec/entropy/entropy_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/entropy/arith.h"
#include "codec/numeric/rng.h"
#include "tests/harness.h"

enum { MOST = TALLY_ENTROPY_LONG_BLOCK, SLACK = 64 };
static const struct tally_entropy_kernel *const PLAIN = &TALLY_ENTROPY_PORTABLE;

static void *allocate(size_t n)
{
    void *block = malloc(n + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    return block;
}

static struct tally_rng stream(uint64_t seed)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(seed, 0), 0, 0, TALLY_RNG_NOISE);
    return rng;
}

/* Fills `levels` with small levels and occasional large ones. */
static void fill(struct tally_rng *rng, int32_t *levels, size_t n)
{
    const uint32_t width = 1 + tally_rng_below(rng, 8);
    const uint32_t far = 1 + tally_rng_below(rng, 1000);
    for (size_t i = 0; i < n; i++) {
        levels[i] = (int32_t)(tally_rng_below(rng, width) + tally_rng_below(rng, width)) -
                    (int32_t)(width - 1);
        if (tally_rng_below(rng, far) == 0) {
            const uint32_t range = 1u << (1 + tally_rng_below(rng, 22));
            levels[i] = (int32_t)tally_rng_below(rng, range + 1) - (int32_t)(range / 2);
        }
    }
}

static size_t random_n(struct tally_rng *rng, uint32_t most)
{
    return tally_rng_below(rng, 2) == 0 ? tally_rng_below(rng, 300)
                                        : tally_rng_below(rng, most + 1);
}

static bool same_scan(const struct tally_entropy_scan *a, const struct tally_entropy_scan *b)
{
    return a->sum == b->sum && a->nonzeros == b->nonzeros && a->largest == b->largest;
}

static void random_table(struct tally_rng *rng, struct tally_entropy_table *ret_table)
{
    uint32_t counts[TALLY_ENTROPY_SYMBOLS] = {0};
    for (uint32_t left = tally_rng_below(rng, TALLY_ENTROPY_WINDOW + 1); left > 0;) {
        const uint32_t n = 1 + tally_rng_below(rng, left);
        counts[tally_rng_below(rng, TALLY_ENTROPY_ESCAPE)] += n;
        left -= n;
    }
    tally_entropy_table(tally_rng_below(rng, TALLY_ENTROPY_SCALES), counts, ret_table);
}

static bool counts_alike(const struct tally_entropy_kernel *kernel, struct tally_rng *rng)
{
    const size_t n = random_n(rng, TALLY_ENTROPY_WINDOW);
    int32_t *levels = allocate(n * sizeof *levels);
    fill(rng, levels, n);
    uint32_t plain[TALLY_ENTROPY_SYMBOLS] = {3}, seen[TALLY_ENTROPY_SYMBOLS] = {3};
    const unsigned shift = tally_rng_below(rng, 2) * tally_rng_below(rng, 20);
    tally_entropy_count(levels, n, shift, plain);
    kernel->count(levels, n, shift, seen);
    free(levels);
    return memcmp(plain, seen, sizeof plain) == 0;
}

static bool splits_alike(const struct tally_entropy_kernel *kernel, struct tally_rng *rng)
{
    const size_t n = random_n(rng, MOST);
    int32_t *levels = allocate(n * sizeof *levels);
    uint8_t *plain = allocate(n), *seen = allocate(n);
    uint16_t *found = allocate(2 * n), *found_plain = allocate(2 * n);
    int64_t *sums = calloc(n + 1, sizeof *sums);
    struct tally_entropy_scan scan, plain_scan;
    fill(rng, levels, n);
    const unsigned shift = tally_rng_below(rng, 2) * tally_rng_below(rng, 20);
    PLAIN->symbols(levels, n, shift, plain, &plain_scan);
    kernel->symbols(levels, n, shift, seen, &scan);
    bool good = memcmp(plain, seen, n) == 0 && same_scan(&scan, &plain_scan);
    for (size_t i = 0; i < n; i++) {
        plain[i] = (uint8_t)(tally_rng_below(rng, 40) == 0 ? tally_rng_below(rng, 32) : plain[i]);
    }
    const uint32_t some = tally_rng_u32(rng), set = some & tally_rng_u32(rng);
    const size_t n_found = PLAIN->find(plain, n, set, found_plain);
    good = good && kernel->find(plain, n, set, found) == n_found &&
           memcmp(found, found_plain, 2 * n_found) == 0;
    kernel->add(levels, n, sums);
    kernel->add(levels, n, sums);
    for (size_t i = 0; i < n; i++) {
        good = good && sums[i] == 2 * (int64_t)levels[i];
    }
    free(levels);
    free(plain);
    free(seen);
    free(found);
    free(found_plain);
    free(sums);
    return good;
}

/* Whether the levels and the scan match the symbols, checked by a plain loop. */
static bool are_levels(const uint8_t *symbols, size_t n, const int32_t *levels,
                       const struct tally_entropy_scan *scan)
{
    struct tally_entropy_scan wanted = {0};
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        const int32_t level = symbols[i] <= 20 ? symbols[i] - 10 : 0;
        good = good && levels[i] == level;
        wanted.sum += (uint64_t)abs(level);
        wanted.nonzeros += level != 0;
        wanted.largest =
            (uint32_t)abs(level) > wanted.largest ? (uint32_t)abs(level) : wanted.largest;
    }
    return good && same_scan(&wanted, scan);
}

/* Encodes symbols with the plain kernel and with `kernel`, which must agree. Then decodes them with
 * `kernel` from a block of exact size, both whole and truncated. */
static bool codes_alike(const struct tally_entropy_kernel *kernel, struct tally_rng *rng)
{
    const size_t n = random_n(rng, MOST), room = 2 * n + SLACK;
    struct tally_entropy_table table;
    struct tally_rans_encode_table encode_table;
    struct tally_rans_decode_table *decode_table = aligned_alloc(64, sizeof *decode_table);
    CU_ASSERT_PTR_NOT_NULL_FATAL(decode_table);
    random_table(rng, &table);
    tally_rans_encode_table(&table, &encode_table);
    tally_rans_decode_table(&table, decode_table);
    uint8_t *symbols = allocate(n), *back = allocate(n);
    uint8_t *plain = allocate(room), *seen = allocate(room);
    for (size_t i = 0; i < n; i++) {
        do {
            symbols[i] = (uint8_t)tally_rng_below(rng, TALLY_ENTROPY_SYMBOLS);
        } while (table.frequency[symbols[i]] == 0);
    }
    struct tally_rans_states first, plain_states, states;
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        first.lane[i] =
            TALLY_RANS_LOWEST + tally_rng_u32(rng) % (UINT32_MAX / 2 - TALLY_RANS_LOWEST);
    }
    plain_states = states = first;
    const uint8_t *at = PLAIN->encode(&encode_table, symbols, n, &plain_states, plain + room, NULL);
    const uint8_t *at_seen = kernel->encode(&encode_table, symbols, n, &states, seen + room, NULL);
    const size_t n_bytes = (size_t)(plain + room - at);
    bool good = (size_t)(seen + room - at_seen) == n_bytes && memcmp(at, at_seen, n_bytes) == 0 &&
                memcmp(&states, &plain_states, sizeof states) == 0;
    uint8_t *exact = allocate(n_bytes);
    memcpy(exact, at, n_bytes);
    int32_t *levels = allocate(n * sizeof *levels);
    struct tally_entropy_scan scan;
    good = good && kernel->decode(decode_table, exact, exact + n_bytes, n, &states, back, levels,
                                  &scan) == exact + n_bytes;
    good = good && are_levels(symbols, n, levels, &scan);
    good = good && memcmp(back, symbols, n) == 0 && memcmp(&states, &first, sizeof states) == 0;
    free(exact);
    if (n_bytes > 0) {
        const size_t less = tally_rng_below(rng, (uint32_t)n_bytes);
        exact = allocate(less);
        memcpy(exact, at, less);
        states = plain_states;
        good = good && kernel->decode(decode_table, exact, exact + less, n, &states, back, levels,
                                      &scan) == NULL;
        free(exact);
    }
    free(symbols);
    free(levels);
    free(back);
    free(plain);
    free(seen);
    free(decode_table);
    return good;
}

static void test_codec_entropy_kernels__all_forms_give_the_same(void)
{
    for (enum tally_cpu cpu = TALLY_CPU_PORTABLE; cpu <= tally_cpu_best(); cpu++) {
        const struct tally_entropy_kernel *kernel = tally_entropy_kernel_for(cpu);
        struct tally_rng rng = stream(51);
        bool good = true;
        for (int k = 0; k < 400; k++) {
            good = good && counts_alike(kernel, &rng);
            good = good && splits_alike(kernel, &rng);
            good = good && codes_alike(kernel, &rng);
        }
        CU_ASSERT_TRUE(good);
    }
}

/* The largest possible sum of magnitudes of a block. */
static void test_codec_entropy_kernels__a_block_of_the_largest_levels_does_not_overflow(void)
{
    int32_t *levels = allocate(MOST * sizeof *levels);
    uint8_t *symbols = allocate(MOST);
    for (size_t i = 0; i < MOST; i++) {
        levels[i] = i % 2 == 0 ? 1 << 21 : -(1 << 21);
    }
    for (enum tally_cpu cpu = TALLY_CPU_PORTABLE; cpu <= tally_cpu_best(); cpu++) {
        struct tally_entropy_scan scan;
        tally_entropy_kernel_for(cpu)->symbols(levels, MOST, 0, symbols, &scan);
        CU_ASSERT_EQUAL(scan.sum, UINT64_C(1) << 35);
        CU_ASSERT_EQUAL(scan.nonzeros, MOST);
        CU_ASSERT_EQUAL(scan.largest, 1 << 21);
    }
    free(levels);
    free(symbols);
}

/* Division state / frequency by multiplication, for every frequency: at both ends of randomly
 * sampled quotients, and at the ends of the range. */
static void test_codec_entropy_kernels__the_reciprocals_divide_exactly(void)
{
    struct tally_rng rng = stream(52);
    bool good = true;
    for (uint32_t frequency = 1; frequency < TALLY_ENTROPY_TOTAL; frequency++) {
        struct tally_entropy_table table = {.frequency = {(uint16_t)frequency}, .cumulative = {7}};
        table.frequency[TALLY_ENTROPY_ESCAPE] = 1;
        struct tally_rans_encode_table encode_table;
        tally_rans_encode_table(&table, &encode_table);
        const uint32_t most = frequency << 19;
        for (int k = 0; k < 200; k++) {
            const uint32_t q = k == 0 ? (1 << 19) - 1 : k == 1 ? 1 : tally_rng_below(&rng, 1 << 19);
            const uint32_t states[] = {q * frequency, q * frequency + frequency - 1};
            for (int e = 0; e < 2; e++) {
                if (states[e] == 0 || states[e] >= most) {
                    continue;
                }
                const uint32_t got =
                    states[e] + encode_table.bias[0] +
                    ((uint32_t)((uint64_t)states[e] * encode_table.reciprocal[0] >> 32) >>
                     encode_table.shift[0]) *
                        (TALLY_ENTROPY_TOTAL - frequency);
                good = good && got == TALLY_ENTROPY_TOTAL * q + states[e] % frequency + 7;
            }
        }
    }
    CU_ASSERT_TRUE(good);
}

/* --- model ----------------------------------------------------------------------------------- */

static void test_codec_entropy_kernels__tables_are_complete(void)
{
    struct tally_rng rng = stream(53);
    bool good = true;
    for (int k = 0; k < 20000; k++) {
        struct tally_entropy_table table;
        random_table(&rng, &table);
        uint32_t total = 0;
        for (unsigned s = 0; s < TALLY_ENTROPY_SYMBOLS; s++) {
            good = good && table.cumulative[s] == total;
            total += table.frequency[s];
        }
        good = good && total == TALLY_ENTROPY_TOTAL && table.frequency[TALLY_ENTROPY_ESCAPE] > 0;
    }
    CU_ASSERT_TRUE(good);
}

/* x P(Z < x) + the density at x, of a standard normal Z. */
static double integral(double x)
{
    return x * erfc(-x / sqrt(2)) / 2 + exp(-x * x / 2) / sqrt(2 * acos(-1));
}

/* The weight of `high` by the definition of the priors: of a normal variable, stochastically
 * rounded. */
static uint64_t weight_of(unsigned prior, int high)
{
    static const double std[] = {0x1p-11, 0x1p-9, 0x1p-7, 0x1.6a09e667f3bcdp-6, /* 2^-5.5 */
                                 0x1p-4,  .12,    .2,     .3,
                                 .42,     .6,     .85,    1.2,
                                 1.7,     2.4,    3.4};
    const double z = high / std[prior], step = 1 / std[prior];
    const double share = integral(z + step) - 2 * integral(z) + integral(z - step);
    return (uint64_t)llrint(32768 * std[prior] * share);
}

/* The frequencies of FORMAT.md, section 6. */
static void frequencies_of(unsigned prior, const uint32_t *counts, uint64_t *ret_frequency)
{
    uint64_t weights[TALLY_ENTROPY_ESCAPE], sum = 0, unseen = 0, missing = 4096;
    unsigned largest = 0;
    for (unsigned s = 0; s < TALLY_ENTROPY_ESCAPE; s++) {
        weights[s] = 256 * (uint64_t)counts[s] + 2 + (s <= 20 ? weight_of(prior, (int)s - 10) : 0);
        sum += weights[s];
    }
    for (unsigned s = 0; s < TALLY_ENTROPY_ESCAPE; s++) {
        ret_frequency[s] = 4095 * weights[s] / sum;
        unseen += ret_frequency[s] == 0 ? weights[s] : 0;
        largest = ret_frequency[s] > ret_frequency[largest] ? s : largest;
        missing -= ret_frequency[s];
    }
    ret_frequency[TALLY_ENTROPY_ESCAPE] = 1 + 4095 * unseen / sum;
    ret_frequency[largest] += missing - ret_frequency[TALLY_ENTROPY_ESCAPE];
}

/* With this many counts, some frequency changes if any weight of a prior changes by 1. */
static void test_codec_entropy_kernels__priors_are_as_defined(void)
{
    struct tally_rng rng = stream(54);
    for (unsigned scale = 0; scale <= 18; scale++) {
        const unsigned prior = scale < 15 ? scale : 13 + (scale - 15) % 2;
        bool good = true;
        for (int k = 0; k < 500; k++) {
            uint32_t counts[TALLY_ENTROPY_SYMBOLS] = {0};
            for (int n = 0; n < k % 7; n++) {
                counts[tally_rng_below(&rng, TALLY_ENTROPY_ESCAPE)] += tally_rng_below(&rng, 50);
            }
            struct tally_entropy_table table;
            uint64_t expected[TALLY_ENTROPY_SYMBOLS];
            tally_entropy_table(scale, counts, &table);
            frequencies_of(prior, counts, expected);
            for (unsigned s = 0; s < TALLY_ENTROPY_SYMBOLS; s++) {
                good = good && table.frequency[s] == expected[s];
            }
        }
        CU_ASSERT_TRUE(good);
    }
}

/* FORMAT.md: the remainder to 4096 goes to the largest frequency; of several, to the first. */
static void test_codec_entropy_kernels__the_first_of_equals_takes_what_is_missing(void)
{
    uint32_t counts[TALLY_ENTROPY_SYMBOLS] = {0};
    counts[3] = counts[5] = counts[17] = 1000;
    struct tally_entropy_table table;
    tally_entropy_table(0, counts, &table);
    CU_ASSERT_EQUAL(table.frequency[5], table.frequency[17]);
    CU_ASSERT_TRUE(table.frequency[3] > table.frequency[5]);
}

/* The scales begin where FORMAT.md says. */
static void test_codec_entropy_kernels__scales_begin_at_their_thresholds(void)
{
    static const uint64_t from[] = {0,    3,    13,   43,   121,  283,  506,  801,        1160,
                                    1641, 2329, 3230, 4306, 5551, 6942, 8456, 8456 + 1920};
    for (unsigned k = 1; k < sizeof from / sizeof from[0]; k++) {
        struct tally_entropy_sample sample = {.stride = 1, .n = 4096, .sum = from[k]};
        CU_ASSERT_EQUAL(tally_entropy_sample_scale(&sample), k);
        sample.sum--;
        CU_ASSERT_EQUAL(tally_entropy_sample_scale(&sample), k - 1);
    }
    const struct tally_entropy_sample widest = {.stride = 1, .n = 10, .sum = 220};
    CU_ASSERT_EQUAL(tally_entropy_sample_scale(&widest), 52);
}

static void test_codec_entropy_kernels__every_level_has_a_code_of_its_own(void)
{
    struct tally_rng rng = stream(54);
    bool good = true;
    for (unsigned scale = 0; scale < TALLY_ENTROPY_SCALES; scale++) {
        const unsigned shift = tally_entropy_shift(scale);
        CU_ASSERT_TRUE(shift <= 19);
        for (int32_t k = -4000; k <= 4000; k++) {
            const int32_t far = (int32_t)tally_rng_below(&rng, (1 << 22) + 1) - (1 << 21);
            const int32_t level = k % 2 == 0 ? k : far;
            const struct tally_entropy_code code = tally_entropy_code(level, shift);
            good = good && code.symbol < TALLY_ENTROPY_ESCAPE && code.n_extra <= 42 &&
                   code.extra >> code.n_extra == 0;
            good = good && code.n_extra == tally_entropy_n_extra(code.symbol, shift);
            good = good && tally_entropy_level(code.symbol, code.extra, shift) == level;
        }
    }
    CU_ASSERT_TRUE(good);
}

static void test_codec_entropy_kernels__blocks_follow_one_another(void)
{
    static const size_t starts[] = {0, 32, 64, 128, 256, 512, 1024, 2048, 4096, 6144, 8192};
    for (size_t k = 0; k + 1 < sizeof starts / sizeof starts[0]; k++) {
        CU_ASSERT_EQUAL(tally_entropy_block_end(starts[k], 2048), starts[k + 1]);
        CU_ASSERT_EQUAL(tally_entropy_block_before(starts[k + 1], 2048), starts[k]);
    }
}

/* The sample is the same whether it is taken at once or in pieces from the end. */
static void test_codec_entropy_kernels__samples_add_up(void)
{
    struct tally_rng rng = stream(55);
    enum { DIM = 20000 };
    int32_t *levels = allocate(DIM * sizeof *levels);
    fill(&rng, levels, DIM);
    for (size_t dim = 1; dim <= DIM; dim = dim * 3 + 1) {
        struct tally_entropy_sample whole = tally_entropy_sample(dim), pieces = whole;
        tally_entropy_sample_add(&whole, 0, levels, dim);
        for (size_t end = dim; end > 0;) {
            const size_t n = 1 + tally_rng_below(&rng, (uint32_t)end);
            tally_entropy_sample_add(&pieces, end - n, levels + end - n, n);
            end -= n;
        }
        CU_ASSERT_EQUAL(whole.n, pieces.n);
        CU_ASSERT_EQUAL(whole.sum, pieces.sum);
        CU_ASSERT_TRUE(whole.n <= TALLY_ENTROPY_SAMPLE && whole.n > 0);
    }
    free(levels);
}

/* --- the bit-exact coder --------------------------------------------------------------------- */

/* Messages of random shares. Some consist mostly of shares at the very top of the range, which
 * produce words of ones and carries. */
static void test_codec_entropy_kernels__the_bit_exact_coder_round_trips(void)
{
    struct tally_rng rng = stream(56);
    bool good = true;
    uint64_t longest = 0;
    for (int k = 0; k < 5000; k++) {
        enum { MOST_SYMBOLS = 300 };
        uint32_t first[MOST_SYMBOLS], width[MOST_SYMBOLS];
        unsigned bits[MOST_SYMBOLS];
        const size_t n = tally_rng_below(&rng, MOST_SYMBOLS + 1);
        uint8_t data[2 * MOST_SYMBOLS + 16];
        struct tally_bit_writer writer;
        struct tally_arith_encoder encoder;
        tally_bit_writer_init(&writer, data, sizeof data);
        tally_bit_write(&writer, 5, 3);
        tally_arith_encoder_init(&encoder, &writer);
        for (size_t i = 0; i < n; i++) {
            bits[i] = tally_rng_below(&rng, TALLY_ARITH_BITS + 1);
            const uint32_t total = 1u << bits[i];
            const bool top =
                tally_rng_below(&rng, 300) < (unsigned)k % 300; /* ones, except at the end */
            width[i] = top ? 1 : 1 + tally_rng_below(&rng, total);
            first[i] = top ? total - 1 : tally_rng_below(&rng, total - width[i] + 1);
            tally_arith_encode(&encoder, first[i], width[i], bits[i]);
        }
        tally_arith_encoder_finish(&encoder);
        const uint64_t n_bits = tally_bit_writer_tell(&writer);
        tally_bit_writer_finish(&writer);
        longest = n_bits > longest ? n_bits : longest;

        struct tally_bit_reader reader;
        struct tally_arith_decoder decoder;
        tally_bit_reader_init(&reader, data, n_bits);
        good = good && tally_bit_read(&reader, 3) == 5;
        tally_arith_decoder_init(&decoder, &reader);
        for (size_t i = 0; i < n; i++) {
            const uint32_t share = tally_arith_decode(&decoder, bits[i]);
            good = good && share >= first[i] && share - first[i] < width[i];
            tally_arith_narrow(&decoder, first[i], width[i]);
        }
        bool is_exact;
        good = good && tally_arith_decoder_finish(&decoder, &is_exact) + 3 == n_bits;
        good = good && is_exact && !writer.overflow;
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(longest > 1000);
}

/* Rounding leaves the end of a range unused. No encoder writes a string that lies there, even if
 * the string looks valid at the end. */
static void test_codec_entropy_kernels__a_string_in_no_share_is_not_exact(void)
{
    struct tally_arith_decoder decoder = {.range = (UINT64_C(1) << 62) + 5};
    bool is_exact;
    decoder.above = decoder.range - 1;
    CU_ASSERT_EQUAL(tally_arith_decode(&decoder, 12), 4095);
    decoder.code = decoder.above = 0;
    CU_ASSERT_EQUAL(tally_arith_decoder_finish(&decoder, &is_exact), 1);
    CU_ASSERT_FALSE(is_exact);
    decoder.astray = false;
    CU_ASSERT_EQUAL(tally_arith_decode(&decoder, 12), 0);
    CU_ASSERT_EQUAL(tally_arith_decoder_finish(&decoder, &is_exact), 1);
    CU_ASSERT_TRUE(is_exact);
}

/* A carry passes through a run of ones longer than any word: one more share at the end of a string
 * 0.0111... makes it 0.1000... */
static void test_codec_entropy_kernels__a_carry_goes_through_words_of_ones(void)
{
    for (size_t n = 1; n < 20; n++) {
        uint8_t data[64];
        struct tally_bit_writer writer;
        struct tally_arith_encoder encoder;
        tally_bit_writer_init(&writer, data, sizeof data);
        tally_arith_encoder_init(&encoder, &writer);
        tally_arith_encode(&encoder, 1, 2, 2); /* [1/4, 3/4) */
        for (size_t i = 0; i < n; i++) {
            /* The middle part of an interval around 1/2 is again around 1/2. */
            tally_arith_encode(&encoder, (1 << 15) - 1, 2, 16);
        }
        /* The upper half starts at 1/2: `low`, which was below 1/2 until now, reaches it. */
        tally_arith_encode(&encoder, 1, 1, 1);
        tally_arith_encoder_finish(&encoder);
        CU_ASSERT_EQUAL(tally_bit_writer_tell(&writer), 2 + 15 * n);
        tally_bit_writer_finish(&writer);
        CU_ASSERT_EQUAL(data[0], 1); /* 0.1000...: bit 0 comes first */
        for (size_t i = 1; i < (2 + 15 * n + 7) / 8; i++) {
            CU_ASSERT_EQUAL(data[i], 0);
        }
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_entropy_kernels__all_forms_give_the_same),
    TALLY_TEST(test_codec_entropy_kernels__a_block_of_the_largest_levels_does_not_overflow),
    TALLY_TEST(test_codec_entropy_kernels__the_reciprocals_divide_exactly),
    TALLY_TEST(test_codec_entropy_kernels__tables_are_complete),
    TALLY_TEST(test_codec_entropy_kernels__priors_are_as_defined),
    TALLY_TEST(test_codec_entropy_kernels__the_first_of_equals_takes_what_is_missing),
    TALLY_TEST(test_codec_entropy_kernels__scales_begin_at_their_thresholds),
    TALLY_TEST(test_codec_entropy_kernels__every_level_has_a_code_of_its_own),
    TALLY_TEST(test_codec_entropy_kernels__blocks_follow_one_another),
    TALLY_TEST(test_codec_entropy_kernels__samples_add_up),
    TALLY_TEST(test_codec_entropy_kernels__the_bit_exact_coder_round_trips),
    TALLY_TEST(test_codec_entropy_kernels__a_string_in_no_share_is_not_exact),
    TALLY_TEST(test_codec_entropy_kernels__a_carry_goes_through_words_of_ones),
};
TALLY_SUITE(codec_entropy_kernels, TESTS);

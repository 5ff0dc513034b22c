/* Sums of messages in units of their grid: exact in any order, in 32 bits while they fit, and as
 * they were if a message is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/adaptive/adaptive_dithers.h"
#include "codec/adaptive/adaptive_long.h"
#include "tests/harness.h"
#include "tests/unit/codec/dithered_sample.h"

enum { CLIENTS = 3 };
static const size_t DIMS[] = {1000, TALLY_ADAPTIVE_LONG_MESSAGE + 77};
static const int32_t LARGEST[] = {3, 20000, TALLY_ADAPTIVE_MAX_LEVEL};

struct client {
    struct tally_rng rng;
    int32_t *levels, *dithers;
    struct tally_buffer payload;
    struct tally_level_stats stats;
};

/* Mostly zeros; every 500th level is large. */
static void init(struct client *client, uint32_t number, size_t dim, int32_t largest)
{
    struct tally_rng rng;
    *client = (struct client){.levels = dithered_allocate(dim * sizeof *client->levels),
                              .dithers = dithered_allocate(dim * sizeof *client->dithers)};
    tally_rng_init(&client->rng, tally_rng_key(17, 0), number, 1, TALLY_RNG_UPLINK);
    tally_rng_init(&rng, tally_rng_key(5, 0), number, 0, TALLY_RNG_SAMPLING);
    struct tally_adaptive_words words;
    tally_adaptive_words_init(&words, &client->rng);
    for (size_t i = 0; i < dim; i += TALLY_ADAPTIVE_STEPS) {
        int32_t row[TALLY_ADAPTIVE_STEPS];
        tally_adaptive_dithers(&words, i / TALLY_ADAPTIVE_STEPS, row);
        memcpy(client->dithers + i, row,
               (dim - i < TALLY_ADAPTIVE_STEPS ? dim - i : TALLY_ADAPTIVE_STEPS) * sizeof *row);
    }
    for (size_t i = 0; i < dim; i++) {
        const uint32_t drawn = tally_rng_below(&rng, 20);
        const int32_t level = drawn > 2 ? 0 : (int32_t)drawn - 1;
        client->levels[i] = i % 500 == number ? (number == 1 ? -largest : largest) : level;
    }
    CU_ASSERT_EQUAL_FATAL(tally_adaptive_encode(client->levels, dim, &client->rng, &client->payload,
                                                &client->stats, NULL),
                          TALLY_OK);
}

static void fini(struct client *client)
{
    free(client->levels);
    free(client->dithers);
    tally_buffer_fini(&client->payload);
}

static enum tally_status count(const struct client *client, size_t dim, uint64_t bits,
                               struct tally_adaptive_units *units, struct tally_error *err)
{
    struct tally_level_stats stats;
    return tally_adaptive_count_into(client->payload.data, (size_t)((bits + 7) / 8), bits, dim,
                                     &client->rng, units, &stats, err);
}

static struct tally_adaptive_units begin(size_t dim)
{
    void *sums = calloc(dim, sizeof(int64_t));
    CU_ASSERT_PTR_NOT_NULL_FATAL(sums);
    return (struct tally_adaptive_units){.step = 1, .bound = 0x1p22, .sums = sums};
}

static size_t count_wrong(const struct tally_adaptive_units *units, const int64_t *expected,
                          size_t dim)
{
    size_t n_wrong = 0;
    int64_t *sums = dithered_allocate(dim * sizeof *sums);
    double *scaled = dithered_allocate(dim * sizeof *scaled);
    tally_adaptive_units_get(units, 0, dim, sums);
    tally_adaptive_units_scaled(units, 0, dim, 0x1p-16, scaled);
    for (size_t i = 0; i < dim; i++) {
        n_wrong += sums[i] != expected[i] || scaled[i] != (double)expected[i] * 0x1p-16;
    }
    free(sums);
    free(scaled);
    return n_wrong;
}

static void check_sums(const struct client clients[CLIENTS], size_t dim, int32_t largest)
{
    int64_t *expected = calloc(dim, sizeof *expected);
    CU_ASSERT_PTR_NOT_NULL_FATAL(expected);
    double square = 0;
    for (size_t m = 0; m < CLIENTS; m++) {
        for (size_t i = 0; i < dim; i++) {
            const int32_t level = clients[m].levels[i], dither = clients[m].dithers[i];
            expected[i] += (int64_t)level * 65536 - (dither >> 16);
            square += pow(level - dither * 0x1p-32, 2);
        }
    }
    for (int first = 0; first < CLIENTS; first++) {
        struct tally_adaptive_units units = begin(dim);
        for (size_t k = 0; k < CLIENTS; k++) {
            const struct client *client = &clients[((size_t)first + k) % CLIENTS];
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(count(client, dim, client->stats.payload_bits, &units, &err),
                                TALLY_OK, &err);
        }
        CU_ASSERT_EQUAL(count_wrong(&units, expected, dim), 0);
        CU_ASSERT_EQUAL(units.reach > TALLY_ADAPTIVE_NARROW_REACH, largest > 3);
        CU_ASSERT_TRUE(fabs(tally_adaptive_units_square(&units) / square - 1) < 1e-3);
        free(units.sums);
    }
    free(expected);
}

static void test_codec_adaptive_units__sums_are_exact_in_any_order(void)
{
    for (size_t d = 0; d < sizeof DIMS / sizeof *DIMS; d++) {
        for (size_t k = 0; k < sizeof LARGEST / sizeof *LARGEST; k++) {
            struct client clients[CLIENTS];
            for (uint32_t m = 0; m < CLIENTS; m++) {
                init(&clients[m], m, DIMS[d], LARGEST[k]);
            }
            for (int cpu = TALLY_CPU_PORTABLE; cpu <= (int)tally_cpu_best(); cpu++) {
                tally_cpu_set_limit((enum tally_cpu)cpu);
                check_sums(clients, DIMS[d], LARGEST[k]);
            }
            tally_cpu_set_limit(TALLY_CPU_AVX512);
            for (size_t m = 0; m < CLIENTS; m++) {
                fini(&clients[m]);
            }
        }
    }
}

/* A message that ends early, or has a level beyond the bound of the sums. */
static void test_codec_adaptive_units__a_refused_message_leaves_no_trace(void)
{
    for (size_t d = 0; d < sizeof DIMS / sizeof *DIMS; d++) {
        const size_t dim = DIMS[d];
        struct client kept, refused;
        init(&kept, 0, dim, 3);
        init(&refused, 1, dim, 20000);
        for (int64_t reach = 0; reach <= TALLY_ADAPTIVE_NARROW_REACH;
             reach += TALLY_ADAPTIVE_NARROW_REACH - 5) { /* the second widens the sums */
            struct tally_adaptive_units units = begin(dim);
            int64_t *expected = dithered_allocate(dim * sizeof *expected);
            units.reach = reach;
            CU_ASSERT_EQUAL(count(&kept, dim, kept.stats.payload_bits, &units, NULL), TALLY_OK);
            tally_adaptive_units_get(&units, 0, dim, expected);
            CU_ASSERT_EQUAL(count(&refused, dim, refused.stats.payload_bits - 8, &units, NULL),
                            TALLY_MALFORMED);
            CU_ASSERT_EQUAL(count_wrong(&units, expected, dim), 0);
            units.bound = 20000;
            CU_ASSERT_EQUAL(count(&refused, dim, refused.stats.payload_bits, &units, NULL),
                            TALLY_MALFORMED);
            CU_ASSERT_EQUAL(count_wrong(&units, expected, dim), 0);
            units.bound = 20001;
            CU_ASSERT_EQUAL(count(&refused, dim, refused.stats.payload_bits, &units, NULL),
                            TALLY_OK);
            CU_ASSERT_TRUE(count_wrong(&units, expected, dim) > dim / 2);
            free(units.sums);
            free(expected);
        }
        fini(&kept);
        fini(&refused);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_adaptive_units__sums_are_exact_in_any_order),
    TALLY_TEST(test_codec_adaptive_units__a_refused_message_leaves_no_trace),
};
TALLY_SUITE(codec_adaptive_units, TESTS);

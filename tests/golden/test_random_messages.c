/* A hundred thousand random messages of each encoding. The encoder's bit count equals the decoder's
 * and the length of the string, and the message decodes to what was encoded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codec/adaptive/adaptive.h"
#include "codec/numeric/bits.h"
#include "codec/numeric/cpu.h"
#include "codec/numeric/float32.h"
#include "codec/sparse/top_k.h"
#include "tests/golden/random_messages.h"
#include "tests/harness.h"

enum { MESSAGES = 100000 };

/* Memory blocks that a decoder reads and writes. */
enum block { PAYLOAD, LEVELS, SUMS, N_BLOCKS };

/* Returns a block of n bytes, followed by an inaccessible page. Vector code that reads or writes
 * beyond the block crashes in every build. Every call returns the same memory. */
static void *fenced(enum block block, size_t n)
{
    enum { ROOM = 1 << 20 };
    static uint8_t *begin[N_BLOCKS];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (begin[block] == NULL) {
        uint8_t *room =
            mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CU_ASSERT_TRUE_FATAL(room != MAP_FAILED && mprotect(room + ROOM, page, PROT_NONE) == 0);
        begin[block] = room;
    }
    CU_ASSERT_TRUE_FATAL(n <= ROOM);
    return begin[block] + ROOM - n;
}

/* Returns a fenced copy of the message's payload. */
static const uint8_t *payload_of(const struct random_message *message)
{
    uint8_t *payload = fenced(PAYLOAD, message->n_payload);
    memcpy(payload, message->payload, message->n_payload);
    return payload;
}

static bool same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}

/* Compares the encoder's counts with counts made here. */
static bool is_counted(const struct random_message *message)
{
    struct tally_level_stats stats = {.formula_bits = message->dim,
                                      .payload_bits = message->stats.payload_bits};
    for (size_t i = 0; i < message->dim; i++) {
        stats.formula_bits += (uint64_t)abs(message->levels[i]);
        stats.nonzeros += message->levels[i] != 0;
    }
    return same_stats(&stats, &message->stats) &&
           (message->kind != RANDOM_UNARY ||
            stats.payload_bits == stats.formula_bits + stats.nonzeros) &&
           tally_bits_are_framed(message->payload, message->n_payload, stats.payload_bits);
}

static bool decodes(const struct random_message *message)
{
    int32_t *levels = fenced(LEVELS, message->dim * sizeof *levels);
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    const bool good =
        random_encoding(message->kind)
                ->decode(payload_of(message), message->n_payload, message->stats.payload_bits,
                         message->dim, &message->grid, levels, &stats, &err) == TALLY_OK &&
        same_stats(&stats, &message->stats) &&
        memcmp(levels, message->levels, message->dim * sizeof *levels) == 0;
    if (!good) {
        printf("%s\n", err.message);
    }
    return good;
}

static bool accumulates(const struct random_message *message)
{
    int64_t *sums = fenced(SUMS, message->dim * sizeof *sums);
    for (size_t i = 0; i < message->dim; i++) {
        sums[i] = (int64_t)i * 1000003 - 500;
    }
    struct tally_level_stats stats;
    bool good =
        random_encoding(message->kind)
                ->accumulate(payload_of(message), message->n_payload, message->stats.payload_bits,
                             message->dim, &message->grid, sums, &stats, NULL) == TALLY_OK &&
        same_stats(&stats, &message->stats);
    for (size_t i = 0; i < message->dim; i++) {
        good = good && sums[i] == (int64_t)i * 1000003 - 500 + message->levels[i];
    }
    return good;
}

/* A zero is appended to the message: one bit, or 16 in the long form. It decodes to the same
 * levels, until the decoder compares the announced length with its own count and reports both. */
static bool is_told_by_decoder(const struct random_message *message)
{
    const uint64_t longer =
        message->stats.payload_bits + (message->kind == RANDOM_ENTROPY_LONG ? 16 : 1);
    const size_t n = (size_t)((longer + 7) / 8);
    uint8_t *payload = fenced(PAYLOAD, n);
    int32_t *levels = fenced(LEVELS, message->dim * sizeof *levels);
    memset(payload, 0, n);
    memcpy(payload, message->payload, message->n_payload);
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    unsigned long long announced = 0, dim = 0, told = 0;
    const bool good = random_encoding(message->kind)
                              ->decode(payload, n, longer, message->dim, &message->grid, levels,
                                       &stats, &err) == TALLY_MALFORMED &&
                      sscanf(err.message, "%llu bits announced, %llu coordinates take %llu",
                             &announced, &dim, &told) == 3 &&
                      announced == longer && dim == message->dim &&
                      told == message->stats.payload_bits;
    if (!good) {
        printf("%llu bits, one more: %s\n", (unsigned long long)message->stats.payload_bits,
               err.message);
    }
    return good;
}

static bool check_levels(const struct random_message *message)
{
    return is_counted(message) && decodes(message) && accumulates(message) &&
           is_told_by_decoder(message);
}

static bool check_float32(const struct random_message *message)
{
    const uint64_t bits = message->stats.payload_bits;
    float *values = fenced(LEVELS, message->dim * sizeof *values);
    const bool good = bits == 32 * message->dim && message->n_payload == 4 * message->dim &&
                      tally_float32_decode(payload_of(message), message->n_payload, bits,
                                           message->dim, values, NULL) == TALLY_OK &&
                      memcmp(values, message->values, message->n_payload) == 0 &&
                      tally_float32_decode(payload_of(message), message->n_payload, bits - 1,
                                           message->dim, values, NULL) == TALLY_MALFORMED;
    return good;
}

static bool check_qsgd(const struct random_message *message)
{
    const uint32_t s = message->qsgd.levels;
    const uint64_t bits = message->stats.payload_bits;
    uint64_t width = 0;
    while (s >> width != 0) {
        width++;
    }
    int32_t *levels = fenced(LEVELS, message->dim * sizeof *levels);
    struct tally_qsgd qsgd;
    const bool good = bits == 32 + message->dim * (1 + width) &&
                      tally_bits_are_framed(message->payload, message->n_payload, bits) &&
                      tally_qsgd_decode(payload_of(message), message->n_payload, bits, s,
                                        message->dim, &qsgd, levels, NULL) == TALLY_OK &&
                      qsgd.norm == message->qsgd.norm && qsgd.levels == s &&
                      memcmp(levels, message->levels, message->dim * sizeof *levels) == 0 &&
                      tally_qsgd_decode(payload_of(message), message->n_payload, bits - 1, s,
                                        message->dim, &qsgd, levels, NULL) == TALLY_MALFORMED;
    return good;
}

static bool check_top_k(const struct random_message *message)
{
    const size_t dim = message->dim, k = message->k;
    const uint64_t bits = message->stats.payload_bits;
    float *values = fenced(LEVELS, k * sizeof *values);
    uint32_t *indices = fenced(SUMS, k * sizeof *indices);
    const bool good = tally_bits_are_framed(message->payload, message->n_payload, bits) &&
                      tally_top_k_decode(payload_of(message), message->n_payload, bits, dim, k,
                                         values, indices, NULL) == TALLY_OK &&
                      memcmp(values, message->values, k * sizeof *values) == 0 &&
                      memcmp(indices, message->indices, k * sizeof *indices) == 0 &&
                      tally_top_k_decode(payload_of(message), (size_t)((bits + 6) / 8), bits - 1,
                                         dim, k, values, indices, NULL) != TALLY_OK;
    return good;
}

static bool check_adaptive(const struct random_message *message)
{
    const uint64_t bits = message->stats.payload_bits;
    const struct tally_rng rng = random_dither(message),
                           *dither = message->has_dither ? &rng : NULL;
    int32_t *levels = fenced(LEVELS, message->dim * sizeof *levels);
    struct tally_level_stats stats;
    const bool good =
        is_counted(message) &&
        tally_adaptive_decode(payload_of(message), message->n_payload, bits, message->dim, dither,
                              levels, &stats, NULL) == TALLY_OK &&
        same_stats(&stats, &message->stats) &&
        memcmp(levels, message->levels, message->dim * sizeof *levels) == 0;
    /* One zero more decodes to the same levels, and is refused all the same. */
    const size_t n = (size_t)((bits + 8) / 8);
    uint8_t *longer = fenced(PAYLOAD, n);
    memset(longer, 0, n);
    memcpy(longer, message->payload, message->n_payload);
    return good && tally_adaptive_decode(longer, n, bits + 1, message->dim, dither, levels, &stats,
                                         NULL) == TALLY_MALFORMED;
}

static void check_kind(enum random_kind kind, uint64_t seed,
                       bool (*check)(const struct random_message *message))
{
    struct tally_rng rng = random_stream(seed);
    uint32_t n_good = 0;
    for (uint32_t k = 0; k < MESSAGES && n_good == k; k++) {
        tally_cpu_set_limit((enum tally_cpu)(k % TALLY_N_CPUS));
        struct random_message message;
        random_message_init(&message, &rng, kind);
        /* The reader's instruction set may differ from the writer's. */
        tally_cpu_set_limit((enum tally_cpu)(k / TALLY_N_CPUS % TALLY_N_CPUS));
        if (check(&message)) {
            n_good++;
        } else {
            printf("message %lu of %zu coordinates\n", (unsigned long)k, message.dim);
        }
        random_message_fini(&message);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    CU_ASSERT_EQUAL(n_good, MESSAGES);
}

static void test_random_messages__unary(void)
{
    check_kind(RANDOM_UNARY, 51, check_levels);
}

static void test_random_messages__entropy(void)
{
    check_kind(RANDOM_ENTROPY, 52, check_levels);
}

static void test_random_messages__entropy_in_its_long_form(void)
{
    check_kind(RANDOM_ENTROPY_LONG, 53, check_levels);
}

static void test_random_messages__float32(void)
{
    check_kind(RANDOM_FLOAT32, 54, check_float32);
}

static void test_random_messages__qsgd(void)
{
    check_kind(RANDOM_QSGD, 55, check_qsgd);
}

static void test_random_messages__top_k(void)
{
    check_kind(RANDOM_TOP_K, 56, check_top_k);
}

static void test_random_messages__adaptive(void)
{
    check_kind(RANDOM_ADAPTIVE, 57, check_adaptive);
}

static const struct tally_test tests[] = {
    TALLY_TEST(test_random_messages__unary),
    TALLY_TEST(test_random_messages__entropy),
    TALLY_TEST(test_random_messages__entropy_in_its_long_form),
    TALLY_TEST(test_random_messages__float32),
    TALLY_TEST(test_random_messages__qsgd),
    TALLY_TEST(test_random_messages__top_k),
    TALLY_TEST(test_random_messages__adaptive),
};
TALLY_SUITE(random_messages, tests);

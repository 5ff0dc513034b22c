#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "codec/numeric/checksum.h"

void *fuzz_allocate(size_t n, size_t n_bytes)
{
    void *block = malloc(n * n_bytes);
    FUZZ_CHECK(block != NULL || n == 0);
    return block;
}

enum tally_cpu fuzz_cpu(unsigned choice)
{
    const enum tally_cpu best = tally_cpu_best();
    return (enum tally_cpu)((unsigned)best - choice % ((unsigned)best + 1));
}

bool fuzz_draws(const uint8_t *data, size_t size, unsigned n)
{
    return tally_checksum64(data, size) % n == 0;
}

static size_t dim_of(const uint8_t *data, size_t size)
{
    const size_t dim = (size_t)1 + data[0] + (data[1] > 239 ? 32u * (data[1] - 239u) : 0);
    return data[1] == 255 && fuzz_draws(data, size, 64) ? dim + 4096 : dim;
}

struct tally_rng fuzz_stream(const uint8_t bytes[FUZZ_STREAM])
{
    enum { SEED = 71 };
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(SEED, bytes[0] / 2), bytes[1], bytes[2],
                   bytes[0] % 2 == 0 ? TALLY_RNG_UPLINK : TALLY_RNG_DOWNLINK);
    return rng;
}

bool fuzz_message_read(const uint8_t *data, size_t size, struct fuzz_message *ret_message)
{
    if (size < FUZZ_MESSAGE_HEAD) {
        return false;
    }
    const size_t n_payload = size - FUZZ_MESSAGE_HEAD;
    uint64_t payload_bits = 8 * (uint64_t)n_payload - (data[3] & 7);
    if (data[3] & 8) {
        payload_bits ^= 1ull << 4 * (data[3] / 16);
    }
    *ret_message = (struct fuzz_message){
        .dim = dim_of(data, size),
        .grid = {.step = 0.5, .intervals = 2u << (data[2] % 22)},
        .cpu = fuzz_cpu(data[2] / 22),
        .twice = data[2] >= 6 * 22,
        .payload_bits = payload_bits,
        .payload = data + FUZZ_MESSAGE_HEAD,
        .n_payload = n_payload,
    };
    return true;
}

/* The result of decoding a message on one instruction set. */
struct reading {
    enum tally_status status;
    int32_t *levels; /* heap */
    struct tally_level_stats stats;
    struct tally_error err;
};

static struct reading decode(const struct tally_encoding *encoding,
                             const struct fuzz_message *message)
{
    struct reading reading = {.levels = fuzz_allocate(message->dim, sizeof *reading.levels)};
    reading.status =
        encoding->decode(message->payload, message->n_payload, message->payload_bits, message->dim,
                         &message->grid, reading.levels, &reading.stats, &reading.err);
    return reading;
}

static bool same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}

static void check_stats(const struct fuzz_message *message, const struct reading *reading)
{
    uint64_t formula_bits = message->dim, nonzeros = 0;
    const int32_t top = (int32_t)(message->grid.intervals / 2);
    for (size_t i = 0; i < message->dim; i++) {
        const int32_t level = reading->levels[i];
        FUZZ_CHECK(level >= -top && level <= top);
        formula_bits += (uint64_t)abs(level);
        nonzeros += level != 0;
    }
    FUZZ_CHECK(reading->stats.payload_bits == message->payload_bits);
    FUZZ_CHECK(reading->stats.formula_bits == formula_bits);
    FUZZ_CHECK(reading->stats.nonzeros == nonzeros);
}

static void check_accumulate(const struct tally_encoding *encoding,
                             const struct fuzz_message *message, const struct reading *reading)
{
    const int64_t first = -7000000000;
    const bool accepted = reading->status == TALLY_OK;
    int64_t *sums = fuzz_allocate(message->dim, sizeof *sums);
    for (size_t i = 0; i < message->dim; i++) {
        sums[i] = first + (int64_t)i;
    }
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status =
        encoding->accumulate(message->payload, message->n_payload, message->payload_bits,
                             message->dim, &message->grid, sums, &stats, &err);
    FUZZ_CHECK(status == reading->status && strcmp(err.message, reading->err.message) == 0);
    FUZZ_CHECK(!accepted || same_stats(&stats, &reading->stats));
    for (size_t i = 0; i < message->dim; i++) {
        FUZZ_CHECK(sums[i] == first + (int64_t)i + (accepted ? reading->levels[i] : 0));
    }
    free(sums);
}

static void check_encode(const struct tally_encoding *encoding, const struct fuzz_message *message,
                         const struct reading *reading)
{
    const size_t n = encoding->bound(reading->levels, message->dim);
    uint8_t *data = fuzz_allocate(n, 1);
    struct tally_level_stats stats;
    FUZZ_CHECK(encoding->encode(reading->levels, message->dim, &message->grid, data, n, &stats) ==
               TALLY_OK);
    FUZZ_CHECK(same_stats(&stats, &reading->stats));
    FUZZ_CHECK((stats.payload_bits + 7) / 8 == message->n_payload);
    FUZZ_CHECK(memcmp(data, message->payload, message->n_payload) == 0);
    free(data);
}

/* Checks that decoding under the current instruction set limit gives the same result. */
static void check_decode(const struct tally_encoding *encoding, const struct fuzz_message *message,
                         const struct reading *expected)
{
    struct reading reading = decode(encoding, message);
    FUZZ_CHECK(reading.status == expected->status);
    FUZZ_CHECK(strcmp(reading.err.message, expected->err.message) == 0);
    FUZZ_CHECK(
        reading.status != TALLY_OK ||
        (same_stats(&reading.stats, &expected->stats) &&
         memcmp(reading.levels, expected->levels, message->dim * sizeof *expected->levels) == 0));
    free(reading.levels);
}

void fuzz_check_message(const struct tally_encoding *encoding, const struct fuzz_message *message)
{
    tally_cpu_set_limit(message->cpu);
    struct reading reading = decode(encoding, message);
    if (reading.status == TALLY_OK) {
        check_stats(message, &reading);
        check_encode(encoding, message, &reading);
    } else {
        FUZZ_CHECK(reading.status == TALLY_MALFORMED);
        FUZZ_CHECK(reading.err.message[0] != '\0');
    }
    check_accumulate(encoding, message, &reading);
    tally_cpu_set_limit(TALLY_CPU_PORTABLE);
    if (message->twice && message->cpu != TALLY_CPU_PORTABLE) {
        check_decode(encoding, message, &reading);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(reading.levels);
}

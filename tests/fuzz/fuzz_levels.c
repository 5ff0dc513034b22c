/* Levels through every encoding and back, on every instruction set.
 *
 *     byte 0     |level| <= 2^(byte 0 mod 22); bit 7: levels are bytes, else 3 bytes each
 *     the rest   levels, little-endian, modulo the range */
#include <string.h>

#include "codec/cpu.h"
#include "tests/fuzz/fuzz.h"

/* Of sum |level|: a unary message of more bits would take the time of thousands of others. */
enum { MOST_UNARY = 20000 };

static int32_t level_of(const uint8_t *bytes, size_t n_bytes, int32_t top)
{
    int32_t value = bytes[n_bytes - 1] < 128 ? bytes[n_bytes - 1] : bytes[n_bytes - 1] - 256;
    for (size_t i = n_bytes - 1; i > 0; i--) {
        value = value * 256 + bytes[i - 1];
    }
    return value >= -top && value <= top ? value : value % (top + 1);
}

/* The message of the levels, on the heap; the same from every instruction set. */
static uint8_t *encode(const struct tally_encoding *encoding, const int32_t *levels,
                       struct fuzz_message *message)
{
    uint8_t *first = NULL;
    for (int cpu = TALLY_CPU_PORTABLE; cpu <= (int)tally_cpu_best(); cpu++) {
        tally_cpu_set_limit((enum tally_cpu)cpu);
        const size_t n = encoding->bound(levels, message->dim);
        uint8_t *bytes = fuzz_allocate(n, 1);
        struct tally_level_stats stats;
        FUZZ_CHECK(encoding->encode(levels, message->dim, &message->grid, bytes, n, &stats) ==
                   TALLY_OK);
        const size_t n_payload = (size_t)((stats.payload_bits + 7) / 8);
        FUZZ_CHECK(n_payload <= n);
        if (first == NULL) {
            first = fuzz_allocate(n_payload, 1);
            memcpy(first, bytes, n_payload);
            message->payload_bits = stats.payload_bits;
            message->n_payload = n_payload;
        }
        FUZZ_CHECK(stats.payload_bits == message->payload_bits);
        FUZZ_CHECK(memcmp(bytes, first, n_payload) == 0);
        free(bytes);
    }
    return first;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    const size_t n_bytes = data[0] & 128 ? 1 : 3;
    struct fuzz_message message = {.dim = (size - 1) / n_bytes,
                                   .grid = {.step = 1, .intervals = 2u << (data[0] % 22)}};
    if (message.dim == 0) {
        return 0;
    }
    int32_t *levels = fuzz_allocate(message.dim, sizeof *levels);
    uint64_t sum = 0;
    for (size_t i = 0; i < message.dim; i++) {
        levels[i] =
            level_of(data + 1 + i * n_bytes, n_bytes, (int32_t)(message.grid.intervals / 2));
        sum += (uint64_t)abs(levels[i]);
    }
    for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
        if (TALLY_ENCODINGS[e] == &TALLY_ENCODING_UNARY && sum > MOST_UNARY) {
            continue;
        }
        uint8_t *payload = encode(TALLY_ENCODINGS[e], levels, &message);
        int32_t *back = fuzz_allocate(message.dim, sizeof *back);
        struct tally_level_stats stats;
        message.payload = payload;
        FUZZ_CHECK(TALLY_ENCODINGS[e]->decode(payload, message.n_payload, message.payload_bits,
                                              message.dim, &message.grid, back, &stats,
                                              NULL) == TALLY_OK);
        FUZZ_CHECK(memcmp(back, levels, message.dim * sizeof *back) == 0);
        fuzz_check_message(TALLY_ENCODINGS[e], &message);
        free(back);
        free(payload);
    }
    free(levels);
    return 0;
}

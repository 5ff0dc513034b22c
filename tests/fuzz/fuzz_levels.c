/* Encodes levels and decodes them again, or damages their message before decoding it. Such messages
 * are nearly valid, which random bytes hardly ever are.
 *
 *     byte 0     |level| <= 2^(byte 0 mod 22); bit 7: levels are bytes, else 3 bytes each
 *     byte 1     mod 4: unary, entropy, entropy in its long form, entropy; div 4 mod 4: fuzz_cpu();
 *                div 16: the damage to the message, see damage()
 *     byte 2     the place of the damage, in 1/256 of the message
 *     the rest   levels, little-endian, modulo the range */
#include <string.h>

#include "tests/entropy_long_form.h"
#include "tests/fuzz/fuzz.h"

enum {
    HEAD = 3,
    MOST_UNARY = 20000, /* of sum |level|: longer messages would cost too much time */
};

static int32_t level_of(const uint8_t *bytes, size_t n_bytes, int32_t top)
{
    int32_t value = bytes[n_bytes - 1] < 128 ? bytes[n_bytes - 1] : bytes[n_bytes - 1] - 256;
    for (size_t i = n_bytes - 1; i > 0; i--) {
        value = value * 256 + bytes[i - 1];
    }
    return value >= -top && value <= top ? value : value % (top + 1);
}

/* Encodes the levels; the message is in a heap block of exactly its size. */
static uint8_t *encode(const struct tally_encoding *encoding, const int32_t *levels,
                       enum tally_cpu cpu, struct fuzz_message *message)
{
    tally_cpu_set_limit(cpu);
    const size_t n = encoding->bound(levels, message->dim);
    uint8_t *bytes = fuzz_allocate(n, 1);
    struct tally_level_stats stats;
    FUZZ_CHECK(encoding->encode(levels, message->dim, &message->grid, bytes, n, &stats) ==
               TALLY_OK);
    message->payload_bits = stats.payload_bits;
    message->n_payload = (size_t)((stats.payload_bits + 7) / 8);
    FUZZ_CHECK(message->n_payload <= n);
    uint8_t *exact = fuzz_allocate(message->n_payload, 1);
    memcpy(exact, bytes, message->n_payload);
    free(bytes);
    return exact;
}

/* Checks that plain C and the message's instruction set give the same message, and that it decodes
 * to the levels. */
static void check_round_trip(const struct tally_encoding *encoding, const int32_t *levels,
                             struct fuzz_message *message)
{
    uint8_t *plain = encode(encoding, levels, TALLY_CPU_PORTABLE, message);
    const uint64_t payload_bits = message->payload_bits;
    uint8_t *payload = encode(encoding, levels, message->cpu, message);
    FUZZ_CHECK(message->payload_bits == payload_bits);
    FUZZ_CHECK(memcmp(payload, plain, message->n_payload) == 0);
    int32_t *back = fuzz_allocate(message->dim, sizeof *back);
    int64_t *sums = fuzz_allocate(message->dim, sizeof *sums);
    memset(sums, 0, message->dim * sizeof *sums);
    struct tally_level_stats stats;
    FUZZ_CHECK(encoding->decode(payload, message->n_payload, payload_bits, message->dim,
                                &message->grid, back, &stats, NULL) == TALLY_OK);
    FUZZ_CHECK(memcmp(back, levels, message->dim * sizeof *back) == 0);
    FUZZ_CHECK(stats.payload_bits == payload_bits);
    FUZZ_CHECK(encoding->accumulate(payload, message->n_payload, payload_bits, message->dim,
                                    &message->grid, sums, &stats, NULL) == TALLY_OK);
    for (size_t i = 0; i < message->dim; i++) {
        FUZZ_CHECK(sums[i] == levels[i]);
    }
    free(sums);
    free(back);
    free(payload);
    free(plain);
}

/* Changes a message into another one that is still framed. Kinds 8 to 11 flip a bit; 12 and 13 cut
 * off 1 or 16 bits; 14 and 15 append 1 or 32 bits, of zeros or ones. */
static uint8_t *damage(struct fuzz_message *message, const uint8_t *payload, unsigned kind,
                       unsigned where)
{
    static const unsigned SHORTER[2] = {1, 16}, LONGER[2] = {1, 32};
    const uint64_t at = message->payload_bits * where / 256;
    const uint64_t bits = kind < 12   ? message->payload_bits
                          : kind < 14 ? message->payload_bits - SHORTER[kind % 2]
                                      : message->payload_bits + LONGER[kind % 2];
    if (kind >= 12 && kind < 14 && message->payload_bits < SHORTER[kind % 2]) {
        return NULL;
    }
    const size_t n = (size_t)((bits + 7) / 8);
    uint8_t *other = fuzz_allocate(n, 1);
    memset(other, kind >= 14 && where % 2 == 1 ? 255 : 0, n);
    memcpy(other, payload, n < message->n_payload ? n : message->n_payload);
    if (kind < 12 && n > 0) {
        other[at / 8] ^= (uint8_t)(1 << at % 8);
    }
    if (bits % 8 != 0) {
        other[n - 1] &= (uint8_t)((1 << bits % 8) - 1);
    }
    message->payload_bits = bits;
    message->n_payload = n;
    return other;
}

static void check_damaged(const struct tally_encoding *encoding, const int32_t *levels,
                          struct fuzz_message *message, unsigned kind, unsigned where)
{
    uint8_t *payload = encode(encoding, levels, message->cpu, message);
    uint8_t *other = damage(message, payload, kind, where);
    free(payload);
    if (other != NULL) {
        message->payload = other;
        fuzz_check_message(encoding, message);
        free(other);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tally_encoding *const ENCODINGS[4] = {
        &TALLY_ENCODING_UNARY, &TALLY_ENCODING_ENTROPY, &ENTROPY_LONG_FORM,
        &TALLY_ENCODING_ENTROPY};
    if (size < HEAD) {
        return 0;
    }
    const size_t n_bytes = data[0] & 128 ? 1 : 3;
    struct fuzz_message message = {
        .dim = (size - HEAD) / n_bytes,
        .grid = {.step = 1, .intervals = 2u << (data[0] % 22)},
        .cpu = fuzz_cpu(data[1] / 4 % 4),
        .twice = data[2] % 2 == 1,
    };
    if (message.dim == 0) {
        return 0;
    }
    const struct tally_encoding *encoding = ENCODINGS[data[1] % 4];
    int32_t top = (int32_t)(message.grid.intervals / 2);
    if (encoding == &TALLY_ENCODING_UNARY && top > MOST_UNARY / (int32_t)message.dim) {
        top = 1 + MOST_UNARY / (int32_t)message.dim;
    }
    int32_t *levels = fuzz_allocate(message.dim, sizeof *levels);
    for (size_t i = 0; i < message.dim; i++) {
        levels[i] = level_of(data + HEAD + i * n_bytes, n_bytes, top);
    }
    if (data[1] < 128) {
        check_round_trip(encoding, levels, &message);
    } else {
        check_damaged(encoding, levels, &message, data[1] / 16, data[2]);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(levels);
    return 0;
}

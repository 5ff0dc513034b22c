/* fuzz: shared by the fuzz targets. A target is one file with LLVMFuzzerTestOneInput(), linked with
 * clang's libFuzzer (preset `fuzz`) or, in every other build, with replay.c, which passes it the
 * seed files. */
#ifndef TALLY_TESTS_FUZZ_FUZZ_H
#define TALLY_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/encoding.h"
#include "codec/numeric/cpu.h"
#include "codec/numeric/rng.h"

/* Checks a property that must hold for every input. A failure aborts the process, which is a
 * finding. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A heap block of exactly n elements, so that the address sanitizer detects accesses beyond its
 * bounds. */
void *fuzz_allocate(size_t n, size_t n_bytes);

/* Whether this input is drawn: one in n is, by its checksum. Slow inputs thus stay rare. libFuzzer
 * prefers inputs with high counters, and would otherwise spend most of its time on them. */
bool fuzz_draws(const uint8_t *data, size_t size, unsigned n);

/* A message of levels and what its receiver knows, as read by the targets of the encodings:
 *
 *     byte 0, 1   dim - 1: byte 0; if byte 1 > 239, plus 32 (byte 1 - 239); if it is 255, plus
 *                 4096 if fuzz_draws(64). Most are small, because most errors occur in small
 *                 messages; some exceed the window of the encoding `entropy`.
 *     byte 2      p = 2^(1 + byte 2 mod 22); fuzz_cpu(byte 2 div 22); `twice` from 132 on
 *     byte 3      payload_bits = 8 bytes - byte 3 mod 8; with bit 3, a wrong length: the bit
 *                 of weight 16^(byte 3 / 16) is flipped
 *     the rest    the payload
 */
enum { FUZZ_MESSAGE_HEAD = 4 };
struct fuzz_message {
    size_t dim;
    struct tally_grid grid;
    enum tally_cpu cpu;
    bool twice;
    uint64_t payload_bits;
    const uint8_t *payload;
    size_t n_payload;
};

/* The instruction set that an input chooses. Testing all of them on every input would cost an
 * execution's time, and other inputs test the rest anyway. 0 is the best available. */
enum tally_cpu fuzz_cpu(unsigned choice);

/* The stream of dithers that FUZZ_STREAM bytes of an input choose. */
enum { FUZZ_STREAM = 3 };
struct tally_rng fuzz_stream(const uint8_t bytes[FUZZ_STREAM]);

/* Returns false if there are fewer bytes than a head. */
bool fuzz_message_read(const uint8_t *data, size_t size, struct fuzz_message *ret_message);

/* Checks what must hold for any message. decode() and accumulate() agree on the message's
 * instruction set and, if `twice`, with decode() in plain C. A refused message is MALFORMED, has a
 * reason, and leaves the sums unchanged. An accepted one encodes to the same bytes and bits
 * again. */
void fuzz_check_message(const struct tally_encoding *encoding, const struct fuzz_message *message);

#endif

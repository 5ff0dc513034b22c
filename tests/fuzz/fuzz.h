/* fuzz: what the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput(), linked
 * with clang's libFuzzer (preset `fuzz`) or, everywhere else, with replay.c, which gives it the
 * files of its seeds. */
#ifndef TALLY_TESTS_FUZZ_FUZZ_H
#define TALLY_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/encoding.h"
#include "codec/numeric/cpu.h"

/* Of a property that must hold for every input; ends the process, which is a finding. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A heap block of exactly n elements, so that the address sanitizer sees its borders. */
void *fuzz_allocate(size_t n, size_t n_bytes);

/* Whether this input is drawn: one of n is, by its checksum. So slow inputs stay rare; libFuzzer
 * prefers inputs with high counters and would otherwise spend most of the time on them. */
bool fuzz_draws(const uint8_t *data, size_t size, unsigned n);

/* A message of levels and all that its receiver knows, as the targets of the encodings read it:
 *
 *     byte 0, 1   dim - 1: byte 0; where byte 1 > 239, also 32 (byte 1 - 239); where it is 255,
 *                 also 4096 if fuzz_draws(64): small ones most of the time, as most of what can go
 *                 wrong does so in them, and some beyond the window of the encoding `entropy`
 *     byte 2      p = 2^(1 + byte 2 mod 22); fuzz_cpu(byte 2 div 22); `twice` from 132 on
 *     byte 3      payload_bits = 8 bytes - byte 3 mod 8; with bit 3, a claim that is wrong in the
 *                 bit of weight 16^(byte 3 / 16)
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

/* One of the instruction sets, as an input chooses it: all of them for every input would take an
 * execution's time for what the next one does anyway. 0 is the best that there is. */
enum tally_cpu fuzz_cpu(unsigned choice);

/* False if there are fewer bytes than a head. */
bool fuzz_message_read(const uint8_t *data, size_t size, struct fuzz_message *ret_message);

/* What must hold of any message: decode() and accumulate() of the message's instruction set agree,
 * and, if `twice`, decode() of plain C with them; what is refused is MALFORMED, for a reason, and
 * leaves the sums alone; what is accepted encodes to the same bytes and bits again. */
void fuzz_check_message(const struct tally_encoding *encoding, const struct fuzz_message *message);

#endif

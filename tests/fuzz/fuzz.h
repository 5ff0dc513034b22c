/* fuzz: what the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput(), linked
 * with clang's libFuzzer (preset `fuzz`) or, everywhere else, with replay.c, which gives it the
 * files of its corpus. */
#ifndef TALLY_TESTS_FUZZ_FUZZ_H
#define TALLY_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/encoding.h"

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

/* A message of levels and all that its receiver knows, as the targets of the encodings read it:
 *
 *     byte 0, 1   dim - 1: byte 0; where byte 1 > 239, also 256 (byte 1 - 239)
 *     byte 2      p = 2^(1 + byte 2 mod 22)
 *     byte 3      payload_bits = 8 bytes - byte 3 mod 8; with bit 3, a claim that is wrong in the
 * bit of weight 16^(byte 3 / 16) the rest    the payload */
enum { FUZZ_MESSAGE_HEAD = 4 };
struct fuzz_message {
    size_t dim;
    struct tally_grid grid;
    uint64_t payload_bits;
    const uint8_t *payload;
    size_t n_payload;
};

/* False if there are fewer bytes than a head. */
bool fuzz_message_read(const uint8_t *data, size_t size, struct fuzz_message *ret_message);

/* What must hold of any message: decode() and accumulate() agree, on every instruction set; what is
 * refused is MALFORMED, for a reason, and leaves the sums alone; what is accepted encodes to the
 * same bytes and bits again. */
void fuzz_check_message(const struct tally_encoding *encoding, const struct fuzz_message *message);

#endif

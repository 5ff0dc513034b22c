/* bits: writes and reads single bits in a byte buffer, and counts them.
 *
 * Bit i of a message is bit i % 8 of byte i / 8, the least significant first; the last byte is
 * padded with zero bits. tell() gives the same number of bits on both sides. */
#ifndef TALLY_CODEC_NUMERIC_BITS_H
#define TALLY_CODEC_NUMERIC_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number of bits of a value without leading zeros; 0 has none. */
static inline unsigned tally_bit_length(uint32_t value)
{
    return value == 0 ? 0 : 32 - (unsigned)__builtin_clz(value);
}

/* |level|. */
static inline uint32_t tally_magnitude(int32_t level)
{
    return (uint32_t)(level < 0 ? -level : level);
}

struct tally_bit_writer {
    uint8_t *data; /* owned by the caller; `capacity` bytes */
    size_t capacity;
    uint64_t n_bits;  /* written so far */
    uint64_t pending; /* bits that do not fill a word yet, n_bits % 64 of them */
    bool overflow;    /* a write did not fit; nothing is written after it */
};

void tally_bit_writer_init(struct tally_bit_writer *writer, uint8_t *data, size_t capacity);
/* Writes the n low bits of `bits`, lowest first; 0 <= n <= 64. */
void tally_bit_write(struct tally_bit_writer *writer, uint64_t bits, unsigned n);
/* Bits written. */
uint64_t tally_bit_writer_tell(const struct tally_bit_writer *writer);
/* Writes out what is pending, zero-padded. Returns the bytes used, or 0 with `overflow` set. */
size_t tally_bit_writer_finish(struct tally_bit_writer *writer);

struct tally_bit_reader {
    const uint8_t *data;
    uint64_t n_bits;   /* of the whole message */
    uint64_t position; /* bits read */
    bool overrun;      /* a read went past the end and returned 0 */
};

/* The caller checks n_bits <= 8 * n_bytes, with tally_bits_are_framed(). */
void tally_bit_reader_init(struct tally_bit_reader *reader, const uint8_t *data, uint64_t n_bits);
/* Reads n bits, first bit lowest; 0 <= n <= 57. */
uint64_t tally_bit_read(struct tally_bit_reader *reader, unsigned n);
uint64_t tally_bit_reader_tell(const struct tally_bit_reader *reader);

/* Whether n_bytes is exactly what n_bits need and the padding bits are zero. */
bool tally_bits_are_framed(const uint8_t *data, size_t n_bytes, uint64_t n_bits);

#endif

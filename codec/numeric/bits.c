#include "codec/numeric/bits.h"

#include <string.h>

void tally_bit_writer_init(struct tally_bit_writer *writer, uint8_t *data, size_t capacity)
{
    *writer = (struct tally_bit_writer){.data = data, .capacity = capacity};
}

/* Stores the low `n` bytes of `word`, or sets overflow. */
static void store_bytes(struct tally_bit_writer *writer, uint64_t at, uint64_t word, size_t n)
{
    if (writer->overflow || at + n > writer->capacity) {
        writer->overflow = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        writer->data[at + i] = (uint8_t)(word >> (8 * i));
    }
}

void tally_bit_write(struct tally_bit_writer *writer, uint64_t bits, unsigned n)
{
    if (n == 0) {
        return;
    }
    if (n < 64) {
        bits &= (UINT64_C(1) << n) - 1;
    }
    unsigned used = (unsigned)(writer->n_bits % 64);
    writer->pending |= bits << used;
    if (used + n >= 64) {
        store_bytes(writer, writer->n_bits / 64 * 8, writer->pending, 8);
        writer->pending = used == 0 ? 0 : bits >> (64 - used);
    }
    writer->n_bits += n;
}

uint64_t tally_bit_writer_tell(const struct tally_bit_writer *writer)
{
    return writer->n_bits;
}

size_t tally_bit_writer_finish(struct tally_bit_writer *writer)
{
    size_t n = (size_t)((writer->n_bits % 64 + 7) / 8);
    store_bytes(writer, writer->n_bits / 64 * 8, writer->pending, n);
    return writer->overflow ? 0 : (size_t)((writer->n_bits + 7) / 8);
}

void tally_bit_reader_init(struct tally_bit_reader *reader, const uint8_t *data, uint64_t n_bits)
{
    *reader = (struct tally_bit_reader){.data = data, .n_bits = n_bits};
}

/* Up to 64 bits from the position on, at least 57 of them valid unless the message ends. */
static uint64_t peek(const struct tally_bit_reader *reader)
{
    size_t at = (size_t)(reader->position / 8);
    size_t n_bytes = (size_t)((reader->n_bits + 7) / 8);
    size_t n = n_bytes - at < 8 ? n_bytes - at : 8;
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (uint64_t)reader->data[at + i] << (8 * i);
    }
    return word >> (reader->position % 8);
}

uint64_t tally_bit_read(struct tally_bit_reader *reader, unsigned n)
{
    if (n == 0) {
        return 0;
    }
    if (n > reader->n_bits - reader->position) {
        reader->overrun = true;
        reader->position = reader->n_bits;
        return 0;
    }
    uint64_t bits = peek(reader) & ((UINT64_C(1) << n) - 1);
    reader->position += n;
    return bits;
}

uint64_t tally_bit_reader_tell(const struct tally_bit_reader *reader)
{
    return reader->position;
}

bool tally_bits_are_framed(const uint8_t *data, size_t n_bytes, uint64_t n_bits)
{
    if (n_bytes > SIZE_MAX / 8 || n_bits > (uint64_t)n_bytes * 8 ||
        (n_bits + 7) / 8 != (uint64_t)n_bytes) {
        return false;
    }
    unsigned used = (unsigned)(n_bits % 8);
    return used == 0 || data[n_bytes - 1] >> used == 0;
}

/* unary_x86: the vector forms of unary_kernels.h, over a vector of 64 bytes.
 *
 * The including file first defines, for its instruction set:
 *
 *     struct bytes                                 64 x int8
 *     bytes_zero()
 *     bytes_of_levels(levels)                      of int32[64], saturated
 *     bytes_magnitude(v)                           |v|, at most 127
 *     bytes_of_group(constants, common, group, y, &magnitude, &negative, &clipped)
 *                                                  of rounded float[64]; false: a NaN or infinity
 *     bytes_above(v, k), bytes_negative(v)         masks: v > k, v < 0
 *     bytes_increment(v, mask), bytes_negate(v, mask)
 *     bytes_store(v, levels), bytes_add(v, sums)   to int32[64], onto int64[64]
 *
 * The first four planes of a block are done without a branch, because their number is a coin toss
 * for levels of standard deviation 1. A plane without bits costs nothing else. */
#ifndef TALLY_CODEC_UNARY_UNARY_X86_H
#define TALLY_CODEC_UNARY_UNARY_X86_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "codec/unary/unary_kernels.h"

enum {
    LARGEST = 126,    /* level that a byte holds and that is not the saturated value */
    ENCODE_ROOM = 40, /* bytes that writing four planes and the signs touches: five words */
    AHEAD = 32,       /* how many blocks ahead the input is prefetched: two pages */
    DECODE_ROOM = 41, /* bytes that reading the same touches */
    MORE_ROOM = 17,   /* bytes that reading or writing one more plane and the signs touches */
    LAST_ROOM = 96,   /* bytes of an ordinary last block: enough for any levels up to 10 */
};

static inline unsigned n_ones(uint64_t mask)
{
    return (unsigned)__builtin_popcountll(mask);
}

/* A tally_bit_writer in registers. */
struct sink {
    uint8_t *at;
    uint64_t pending;
    unsigned used; /* bits of `pending` */
};

/* Appends n <= 64 bits; the other bits of `bits` are 0. */
static inline void put(struct sink *sink, uint64_t bits, unsigned n)
{
    const uint64_t word = sink->pending | bits << sink->used;
    const uint64_t rest = bits >> 1 >> (63 - sink->used);
    const unsigned used = sink->used + n;
    memcpy(sink->at, &word, sizeof word);
    /* `used >= 64 ? rest : word`, which compilers turn into an unpredictable branch. */
    const uint64_t is_full = 0 - (uint64_t)(used / 64);
    sink->pending = word ^ ((word ^ rest) & is_full);
    sink->at += used / 64 * 8;
    sink->used = used % 64;
}

/* Writes one block of |levels| with the mask of negative ones. False: not ordinary, and *sink is
 * undefined. */
static inline bool encode_block(struct sink *sink, const uint8_t *end, struct bytes magnitude,
                                uint64_t negative, unsigned *ret_nonzeros)
{
    const uint64_t m0 = bytes_above(magnitude, 0), m1 = bytes_above(magnitude, 1);
    const uint64_t m2 = bytes_above(magnitude, 2), m3 = bytes_above(magnitude, 3);
    put(sink, m0, 64);
    put(sink, _pext_u64(m1, m0), n_ones(m0));
    put(sink, _pext_u64(m2, m1), n_ones(m1));
    put(sink, _pext_u64(m3, m2), n_ones(m2));
    if (m3 != 0) {
        if (bytes_above(magnitude, LARGEST) != 0) {
            return false;
        }
        uint64_t above = m3;
        for (int k = 4; above != 0; k++) {
            if (end - sink->at < MORE_ROOM) {
                return false;
            }
            const uint64_t next = bytes_above(magnitude, k);
            put(sink, _pext_u64(next, above), n_ones(above));
            above = next;
        }
    }
    put(sink, _pext_u64(negative, m0), n_ones(m0));
    *ret_nonzeros = n_ones(m0);
    return true;
}

static inline struct sink sink_of(const struct tally_bit_writer *writer)
{
    return (struct sink){.at = writer->data + writer->n_bits / 64 * 8,
                         .pending = writer->pending,
                         .used = (unsigned)(writer->n_bits % 64)};
}

static inline void close_sink(const struct sink *sink, struct tally_bit_writer *writer)
{
    writer->n_bits = (uint64_t)(sink->at - writer->data) * 8 + sink->used;
    writer->pending = sink->pending;
}

static size_t encode_blocks(const int32_t *levels, size_t n_blocks, struct tally_bit_writer *writer,
                            uint64_t *nonzeros)
{
    if (writer->overflow) {
        return 0;
    }
    const uint8_t *end = writer->data + writer->capacity;
    struct sink sink = sink_of(writer);
    size_t block = 0;
    for (; block < n_blocks && end - sink.at >= ENCODE_ROOM; block++) {
        struct sink next = sink;
        unsigned n;
        const struct bytes v = bytes_of_levels(levels + TALLY_UNARY_BLOCK * block);
        if (!encode_block(&next, end, bytes_magnitude(v), bytes_negative(v), &n)) {
            break;
        }
        sink = next;
        *nonzeros += n;
    }
    close_sink(&sink, writer);
    return block;
}

/* The processor's own prefetching stops at each page, which costs a quarter of the speed. The block
 * may lie past the end of y, where a prefetch may go but a pointer into y may not. */
static inline void prefetch_block(const float *y, size_t block)
{
    enum { LINE_BYTES = 64 };
    const size_t n_bytes = TALLY_UNARY_BLOCK * sizeof *y;
    const uintptr_t at = (uintptr_t)y + block * n_bytes;
    for (size_t i = 0; i < n_bytes; i += LINE_BYTES) {
        _mm_prefetch((const void *)(at + i), _MM_HINT_T0);
    }
}

static size_t quantize_encode_blocks(const struct tally_rounding *rounding,
                                     const struct tally_rng *rng, uint32_t group, const float *y,
                                     size_t n_blocks, struct tally_bit_writer *writer,
                                     uint64_t *nonzeros, uint64_t *clipped)
{
    const struct tally_quantize_constants constants = constants_of(rounding);
    const struct tally_philox_common common = tally_philox_common_of(rng);
    const uint8_t *end = writer->data + writer->capacity;
    struct sink sink = sink_of(writer);
    size_t block = 0;
    for (; block < n_blocks && end - sink.at >= ENCODE_ROOM; block++) {
        struct sink next = sink;
        struct bytes magnitude;
        uint64_t negative, outside = 0;
        unsigned n;
        prefetch_block(y, block + AHEAD);
        if (!bytes_of_group(&constants, &common, group + (uint32_t)block,
                            y + TALLY_UNARY_BLOCK * block, &magnitude, &negative, &outside) ||
            !encode_block(&next, end, magnitude, negative, &n)) {
            break;
        }
        sink = next;
        *nonzeros += n;
        *clipped += outside;
    }
    close_sink(&sink, writer);
    return block;
}

/* The 64 bits at a position from which 9 bytes can be read. */
static inline uint64_t window(const uint8_t *data, uint64_t position)
{
    const uint8_t *at = data + position / 8;
    const unsigned shift = (unsigned)(position % 8);
    uint64_t low;
    memcpy(&low, at, sizeof low);
    return low >> shift | (uint64_t)at[8] << 1 << (63 - shift);
}

/* What decoding needs besides the position. */
struct source {
    const uint8_t *data;
    size_t n_bytes;
    uint32_t top;
    uint64_t no_2, no_3, no_4; /* all ones where |level| may not be 2, 3, 4 */
};

static inline bool has_room(const struct source *source, uint64_t position, size_t n)
{
    return source->n_bytes - (size_t)(position / 8) >= n;
}

/* Reads the planes after the fourth, whose mask is `above`. */
static inline bool decode_more(const struct source *source, uint64_t *position, uint64_t above,
                               struct bytes *v)
{
    for (uint32_t level = 5; above != 0; level++) {
        if (!has_room(source, *position, MORE_ROOM)) {
            return false;
        }
        const unsigned n = n_ones(above);
        above = _pdep_u64(window(source->data, *position), above);
        *position += n;
        *v = bytes_increment(*v, above);
        if (above != 0 && (level > source->top || level > LARGEST)) {
            return false;
        }
    }
    return true;
}

/* Reads one block of n coordinates; DECODE_ROOM bytes must be readable. False: not ordinary, and
 * *position is undefined. */
static inline bool decode_block(const struct source *source, unsigned n, uint64_t *position,
                                struct bytes *ret_levels, unsigned *ret_nonzeros)
{
    uint64_t at = *position;
    const uint64_t m0 = _bzhi_u64(window(source->data, at), n);
    const unsigned n0 = n_ones(m0);
    at += n;
    /* Counting ones before they are expanded shortens the chain from position to position. */
    const uint64_t p1 = _bzhi_u64(window(source->data, at), n0);
    const unsigned n1 = n_ones(p1);
    at += n0;
    const uint64_t p2 = _bzhi_u64(window(source->data, at), n1);
    const unsigned n2 = n_ones(p2);
    at += n1;
    const uint64_t p3 = _bzhi_u64(window(source->data, at), n2);
    at += n2;
    const uint64_t m1 = _pdep_u64(p1, m0), m2 = _pdep_u64(p2, m1);
    struct bytes v = bytes_increment(bytes_increment(bytes_zero(), m0), m1);
    if (__builtin_expect(((m1 & source->no_2) | (m2 & source->no_3) | (p3 & source->no_4)) != 0,
                         0)) {
        return false;
    }
    v = bytes_increment(v, m2);
    const uint64_t m3 = _pdep_u64(p3, m2);
    v = bytes_increment(v, m3);
    if (p3 != 0 && !decode_more(source, &at, m3, &v)) {
        return false;
    }
    *ret_levels = bytes_negate(v, _pdep_u64(window(source->data, at), m0));
    *position = at + n0;
    *ret_nonzeros = n0;
    return true;
}

static inline struct source source_of(const uint8_t *data, size_t n_bytes, uint32_t top)
{
    return (struct source){.data = data,
                           .n_bytes = n_bytes,
                           .top = top,
                           .no_2 = top < 2 ? UINT64_MAX : 0,
                           .no_3 = top < 3 ? UINT64_MAX : 0,
                           .no_4 = top < 4 ? UINT64_MAX : 0};
}

static inline __attribute__((always_inline)) size_t read_blocks(struct tally_bit_reader *reader,
                                                                size_t n_blocks, uint32_t top,
                                                                uint64_t *nonzeros, int32_t *levels,
                                                                int64_t *sums)
{
    const struct source source = source_of(reader->data, (size_t)((reader->n_bits + 7) / 8), top);
    uint64_t position = reader->position, sum = 0;
    size_t block = 0;
    for (; block < n_blocks && has_room(&source, position, DECODE_ROOM); block++) {
        uint64_t next = position;
        struct bytes v;
        unsigned n;
        /* Up to 7 of the readable bits are padding, which no block may reach into. */
        if (!decode_block(&source, TALLY_UNARY_BLOCK, &next, &v, &n) || next > reader->n_bits) {
            break;
        }
        if (levels != NULL) {
            bytes_store(v, levels + TALLY_UNARY_BLOCK * block);
        } else {
            bytes_add(v, sums + TALLY_UNARY_BLOCK * block);
        }
        position = next;
        sum += n;
    }
    reader->position = position;
    *nonzeros += sum;
    return block;
}

static size_t decode_blocks(struct tally_bit_reader *reader, size_t n_blocks, uint32_t top,
                            int32_t *levels, uint64_t *nonzeros)
{
    return read_blocks(reader, n_blocks, top, nonzeros, levels, NULL);
}

static size_t accumulate_blocks(struct tally_bit_reader *reader, size_t n_blocks, uint32_t top,
                                int64_t *sums, uint64_t *nonzeros)
{
    return read_blocks(reader, n_blocks, top, nonzeros, NULL, sums);
}

/* Decodes from a copy with zeros after it, because wide reads may reach past the end. */
static bool decode_last(struct tally_bit_reader *reader, size_t n, uint32_t top, int32_t *levels,
                        uint64_t *nonzeros)
{
    uint8_t copy[LAST_ROOM + MORE_ROOM] = {0};
    const size_t first = (size_t)(reader->position / 8);
    const size_t rest = (size_t)((reader->n_bits + 7) / 8) - first;
    if (rest == 0) {
        return false; /* there may be no data at all */
    }
    memcpy(copy, reader->data + first, rest < LAST_ROOM ? rest : LAST_ROOM);
    const struct source source = source_of(copy, sizeof copy, top);
    const uint64_t start = reader->position % 8;
    uint64_t at = start;
    struct bytes v;
    unsigned n_nonzeros;
    if (!decode_block(&source, (unsigned)n, &at, &v, &n_nonzeros) || at > LAST_ROOM * 8 ||
        at - start > reader->n_bits - reader->position) {
        return false;
    }
    bytes_store(v, levels);
    reader->position += at - start;
    *nonzeros += n_nonzeros;
    return true;
}

#endif

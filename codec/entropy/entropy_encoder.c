/* entropy_encoder: encodes levels as a message of either form.
 *
 * The short form is written from the first level to the last. The long form is written from the
 * last block to the first and from the end of the buffer to its beginning, because a rANS decoder
 * takes the encoder's steps in reverse order; the message is then moved to the front. */
#include <string.h>

#include "codec/entropy/arith.h"
#include "codec/entropy/entropy_message.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_escaped(const struct tally_entropy_table *table, unsigned symbol)
{
    return table->frequency[symbol] == 0;
}

static void write_scale(struct tally_bit_writer *writer, unsigned scale)
{
    const bool more = scale >= TALLY_ENTROPY_SCALE_MORE;
    tally_bit_write(writer, more ? TALLY_ENTROPY_SCALE_MORE : scale, TALLY_ENTROPY_SCALE_BITS);
    tally_bit_write(writer, more ? scale - TALLY_ENTROPY_SCALE_MORE : 0,
                    more ? TALLY_ENTROPY_SCALE_MORE_BITS : 0);
}

static void encode_raw(struct tally_arith_encoder *encoder, uint64_t bits, unsigned n)
{
    for (unsigned piece; n > 0; n -= piece, bits >>= piece) {
        piece = (unsigned)smaller(n, TALLY_ENTROPY_RAW_BITS);
        tally_arith_encode(encoder, (uint32_t)bits & ((1u << piece) - 1), 1, piece);
    }
}

static void encode_level(struct tally_arith_encoder *encoder,
                         const struct tally_entropy_table *table, int32_t level, unsigned shift)
{
    const struct tally_entropy_code code = tally_entropy_code(level, shift);
    const bool escaped = is_escaped(table, code.symbol);
    const unsigned symbol = escaped ? TALLY_ENTROPY_ESCAPE : code.symbol;
    tally_arith_encode(encoder, table->cumulative[symbol], table->frequency[symbol],
                       TALLY_ENTROPY_TOTAL_BITS);
    encode_raw(encoder, code.symbol, escaped ? TALLY_ENTROPY_ESCAPED_BITS : 0);
    encode_raw(encoder, code.extra, code.n_extra);
}

static void encode_short(const int32_t *levels, size_t dim, unsigned scale,
                         struct tally_bit_writer *writer, struct tally_level_stats *stats)
{
    const unsigned shift = tally_entropy_shift(scale);
    write_scale(writer, scale);
    struct tally_arith_encoder encoder;
    tally_arith_encoder_init(&encoder, writer);
    uint32_t counts[TALLY_ENTROPY_SYMBOLS] = {0};
    for (size_t start = 0, end; start < dim; start = end) {
        end = smaller(tally_entropy_block_end(start, TALLY_ENTROPY_SHORT_BLOCK), dim);
        struct tally_entropy_table table;
        tally_entropy_table(scale, counts, &table);
        for (size_t i = start; i < end; i++) {
            encode_level(&encoder, &table, levels[i], shift);
        }
        const struct tally_entropy_scan scan = tally_entropy_scan_of(levels + start, end - start);
        tally_entropy_count_bits(stats, &scan, end - start);
        tally_entropy_slide(levels + start, start, end - start, shift, counts);
    }
    tally_arith_encoder_finish(&encoder);
    stats->payload_bits = tally_bit_writer_tell(writer);
    tally_bit_writer_finish(writer);
}

/* The symbols that more bits follow: the classes, the escape, and those that are escaped. */
static uint32_t followed_symbols(const struct tally_entropy_table *table)
{
    uint32_t set = UINT32_MAX << TALLY_ENTROPY_FIRST_CLASS;
    for (unsigned s = 0; s < TALLY_ENTROPY_FIRST_CLASS; s++) {
        set |= (uint32_t)is_escaped(table, s) << s;
    }
    return set;
}

static void split(const struct tally_entropy_kernel *kernel,
                  const struct tally_entropy_table *table, const int32_t *levels, size_t n,
                  unsigned shift, struct tally_entropy_block *block,
                  struct tally_level_stats *stats)
{
    struct tally_entropy_scan scan;
    kernel->symbols(levels, n, shift, block->symbols, &scan);
    tally_entropy_count_bits(stats, &scan, n);
    block->n = n;
    block->n_followed = kernel->find(block->symbols, n, followed_symbols(table), block->followed);
    for (size_t k = 0; k < block->n_followed; k++) {
        const size_t i = block->followed[k];
        block->symbols[i] =
            (uint8_t)tally_entropy_code(tally_entropy_high(levels[i], shift), 0).symbol;
    }
}

static void write_lows(const int32_t *levels, size_t n, unsigned shift,
                       struct tally_bit_writer *writer)
{
    const size_t most = shift == 0 ? 0 : 64 / shift; /* in one write */
    for (size_t i = 0; shift > 0 && i < n; i += most) {
        const size_t n_here = smaller(most, n - i);
        uint64_t bits = 0;
        for (size_t k = 0; k < n_here; k++) {
            const uint32_t raised = (uint32_t)levels[i + k] + ((1u << shift) >> 1);
            bits |= (uint64_t)(raised & ((1u << shift) - 1)) << (k * shift);
        }
        tally_bit_write(writer, bits, (unsigned)(n_here * shift));
    }
}

/* Writes the bits that follow the symbols of a block, in words that end at `end`; returns where
 * they begin. */
static uint8_t *write_extras(const struct tally_entropy_table *table,
                             const struct tally_entropy_block *block, const int32_t *levels,
                             unsigned shift, uint8_t *end)
{
    uint64_t n_bits = (uint64_t)block->n * shift;
    for (size_t k = 0; k < block->n_followed; k++) {
        const unsigned symbol = block->symbols[block->followed[k]];
        n_bits += tally_entropy_n_extra(symbol, 0) +
                  (is_escaped(table, symbol) ? TALLY_ENTROPY_ESCAPED_BITS : 0);
    }
    const size_t n_bytes = (size_t)(2 * ((n_bits + 15) / 16));
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, end - n_bytes, n_bytes);
    for (size_t k = 0; k < block->n_followed; k++) {
        const struct tally_entropy_code code =
            tally_entropy_code(tally_entropy_high(levels[block->followed[k]], shift), 0);
        tally_bit_write(&writer, code.symbol,
                        is_escaped(table, code.symbol) ? TALLY_ENTROPY_ESCAPED_BITS : 0);
        tally_bit_write(&writer, code.extra, code.n_extra);
    }
    write_lows(levels, block->n, shift, &writer);
    tally_bit_write(&writer, 0, (unsigned)(8 * n_bytes - n_bits));
    tally_bit_writer_finish(&writer);
    return end - n_bytes;
}

static size_t last_block(size_t dim)
{
    size_t start = 0;
    while (tally_entropy_block_end(start, TALLY_ENTROPY_LONG_BLOCK) < dim) {
        start = tally_entropy_block_end(start, TALLY_ENTROPY_LONG_BLOCK);
    }
    return start;
}

/* Encodes from the last block to the first, and from the end of `data` to its beginning, because a
 * decoder goes the other way. Moves the message to the front and returns its bytes. */
static size_t encode_long(const int32_t *levels, size_t dim, unsigned scale, uint8_t *data,
                          size_t capacity, struct tally_level_stats *stats)
{
    const struct tally_entropy_kernel *kernel = tally_entropy_kernel_for(tally_cpu_used());
    const unsigned shift = tally_entropy_shift(scale);
    uint8_t *at = data + capacity;
    struct tally_rans_states states;
    tally_rans_init(&states);
    for (size_t start = last_block(dim), end = dim;;
         start = tally_entropy_block_before(start, TALLY_ENTROPY_LONG_BLOCK)) {
        struct tally_entropy_table table;
        struct tally_rans_encode_table encode_table;
        struct tally_entropy_block block;
        tally_entropy_table_before(levels + start, start, scale, &table);
        tally_rans_encode_table(&table, &encode_table);
        split(kernel, &table, levels + start, end - start, shift, &block, stats);
        at = write_extras(&table, &block, levels + start, shift, at);
        /* Prefetches the block before this one, which is next, if it has full length. */
        const int32_t *next =
            start >= 2 * TALLY_ENTROPY_LONG_BLOCK ? levels + start - block.n : NULL;
        at = kernel->encode(&encode_table, block.symbols, block.n, &states, at, next);
        end = start;
        if (start == 0) {
            break;
        }
    }
    at -= TALLY_ENTROPY_LONG_HEAD_BYTES;
    at[0] = (uint8_t)scale;
    at[1] = 0;
    tally_rans_write(&states, at + 2);
    const size_t n_bytes = (size_t)(data + capacity - at);
    memmove(data, at, n_bytes);
    stats->payload_bits = 8 * (uint64_t)n_bytes;
    return n_bytes;
}

enum tally_status tally_entropy_encode(const int32_t *levels, size_t dim, bool is_long,
                                       uint8_t *data, size_t capacity,
                                       struct tally_level_stats *ret_stats)
{
    if (capacity < tally_entropy_bound(levels, dim)) {
        return TALLY_OUT_OF_RANGE;
    }
    struct tally_entropy_sample sample = tally_entropy_sample(dim);
    tally_entropy_sample_add(&sample, 0, levels, dim);
    const unsigned scale = tally_entropy_sample_scale(&sample);
    struct tally_level_stats stats = {0};
    if (is_long) {
        encode_long(levels, dim, scale, data, capacity, &stats);
    } else {
        struct tally_bit_writer writer;
        tally_bit_writer_init(&writer, data, capacity);
        encode_short(levels, dim, scale, &writer, &stats);
    }
    *ret_stats = stats;
    return TALLY_OK;
}

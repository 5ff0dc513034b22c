/* entropy: levels through an arithmetic coder, close to their zero-order entropy; FORMAT.md
 * section 6.
 *
 * One model (entropy_model.h), two coders: short messages go through one that ends on a bit
 * (arith.h), long ones through one that runs in vector registers (entropy_kernels.h). Nothing is
 * looked up, guessed or tuned that the decoder does not repeat: what decodes encodes to the same
 * bytes again.
 */
#include <string.h>

#include "codec/encoding.h"
#include "codec/entropy/arith.h"
#include "codec/entropy/entropy_kernels.h"
#include "codec/entropy/entropy_model.h"

enum {
    /* From here on the 64 states of 32 bits weigh less than 0.6 % even where levels have an entropy
     * of 1 bit; below, 2^18 coordinates take the other coder some milliseconds. */
    LONG_MESSAGE = 1 << 18,
    SCALE_BITS = 4, /* of the scale; all ones: SCALE_MORE_BITS follow */
    SCALE_MORE = (1 << SCALE_BITS) - 1,
    SCALE_MORE_BITS = 6,
    ESCAPED_BITS = 5, /* of a symbol after the escape */
    RAW_BITS = 16,    /* bits without a model go through the coder in pieces of this size */
    LONG_HEAD_BYTES = 2 + 4 * TALLY_RANS_LANES,
};

/* 12 bits of an improbable symbol, 5 of its number, 1 of sign, at most 22 of offset and low bits.
 */
static const size_t WORST_BYTES = 5;

static size_t entropy_bound(const int32_t *levels, size_t dim)
{
    (void)levels;
    return WORST_BYTES * dim + 2 * (dim / TALLY_ENTROPY_LONG_BLOCK) + LONG_HEAD_BYTES + 64;
}

static bool is_long(size_t dim)
{
    return dim >= LONG_MESSAGE;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

const struct tally_entropy_kernel *tally_entropy_kernel_for(enum tally_cpu cpu)
{
#ifdef TALLY_X86_64
    if (cpu == TALLY_CPU_AVX512 && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2")) {
        return &TALLY_ENTROPY_AVX512;
    }
    return cpu >= TALLY_CPU_AVX2 ? &TALLY_ENTROPY_AVX2 : &TALLY_ENTROPY_PORTABLE;
#else
    (void)cpu;
    return &TALLY_ENTROPY_PORTABLE;
#endif
}

static struct tally_entropy_scan scan_levels(const int32_t *levels, size_t n)
{
    struct tally_entropy_scan scan = {0};
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = (uint32_t)(levels[i] < 0 ? -levels[i] : levels[i]);
        scan.sum += magnitude;
        scan.nonzeros += magnitude != 0;
        scan.largest = magnitude > scan.largest ? magnitude : scan.largest;
    }
    return scan;
}

static void count(struct tally_level_stats *stats, const struct tally_entropy_scan *scan, size_t n)
{
    stats->formula_bits += n + scan->sum;
    stats->nonzeros += scan->nonzeros;
}

/* Moves the window, of which `counts` are the levels, from before block[n], which starts at
 * `start`, to its end. */
static void slide(const int32_t *block, size_t start, size_t n, unsigned shift,
                  uint32_t counts[TALLY_ENTROPY_SYMBOLS])
{
    uint32_t left[TALLY_ENTROPY_SYMBOLS] = {0};
    const size_t n_window = smaller(start, TALLY_ENTROPY_WINDOW);
    tally_entropy_count(block - n_window, n_window + n - smaller(start + n, TALLY_ENTROPY_WINDOW),
                        shift, left);
    tally_entropy_count(block, n, shift, counts);
    for (unsigned s = 0; s < TALLY_ENTROPY_SYMBOLS; s++) {
        counts[s] -= left[s];
    }
}

/* The table of a long message's block that starts at `start`, its first level at *block. */
static void table_before(const int32_t *block, size_t start, unsigned scale,
                         struct tally_entropy_table *ret_table)
{
    const size_t n = smaller(start, TALLY_ENTROPY_WINDOW);
    uint32_t counts[TALLY_ENTROPY_SYMBOLS] = {0};
    tally_entropy_kernel_for(tally_cpu_used())
        ->count(block - n, n, tally_entropy_shift(scale), counts);
    tally_entropy_table(scale, counts, ret_table);
}

/* --- encoder --------------------------------------------------------------------------------- */

static bool is_escaped(const struct tally_entropy_table *table, unsigned symbol)
{
    return table->frequency[symbol] == 0;
}

static void write_scale(struct tally_bit_writer *writer, unsigned scale)
{
    const bool more = scale >= SCALE_MORE;
    tally_bit_write(writer, more ? SCALE_MORE : scale, SCALE_BITS);
    tally_bit_write(writer, more ? scale - SCALE_MORE : 0, more ? SCALE_MORE_BITS : 0);
}

static void encode_raw(struct tally_arith_encoder *encoder, uint64_t bits, unsigned n)
{
    for (unsigned piece; n > 0; n -= piece, bits >>= piece) {
        piece = (unsigned)smaller(n, RAW_BITS);
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
    encode_raw(encoder, code.symbol, escaped ? ESCAPED_BITS : 0);
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
        const struct tally_entropy_scan scan = scan_levels(levels + start, end - start);
        count(stats, &scan, end - start);
        slide(levels + start, start, end - start, shift, counts);
    }
    tally_arith_encoder_finish(&encoder);
    stats->payload_bits = tally_bit_writer_tell(writer);
    tally_bit_writer_finish(writer);
}

/* A block of a long message as its symbols, and which of them some bits follow. */
struct block {
    size_t n, n_followed;
    uint8_t symbols[TALLY_ENTROPY_LONG_BLOCK];
    uint16_t followed[TALLY_ENTROPY_LONG_BLOCK]; /* indices, ascending */
};

/* The classes, the escape, and the symbols that are escaped. */
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
                  unsigned shift, struct block *block, struct tally_level_stats *stats)
{
    struct tally_entropy_scan scan;
    kernel->symbols(levels, n, shift, block->symbols, &scan);
    count(stats, &scan, n);
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
static uint8_t *write_extras(const struct tally_entropy_table *table, const struct block *block,
                             const int32_t *levels, unsigned shift, uint8_t *end)
{
    uint64_t n_bits = (uint64_t)block->n * shift;
    for (size_t k = 0; k < block->n_followed; k++) {
        const unsigned symbol = block->symbols[block->followed[k]];
        n_bits += tally_entropy_n_extra(symbol, 0) + (is_escaped(table, symbol) ? ESCAPED_BITS : 0);
    }
    const size_t n_bytes = (size_t)(2 * ((n_bits + 15) / 16));
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, end - n_bytes, n_bytes);
    for (size_t k = 0; k < block->n_followed; k++) {
        const struct tally_entropy_code code =
            tally_entropy_code(tally_entropy_high(levels[block->followed[k]], shift), 0);
        tally_bit_write(&writer, code.symbol, is_escaped(table, code.symbol) ? ESCAPED_BITS : 0);
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

static void store32(uint8_t *data, uint32_t word)
{
    for (int i = 0; i < 4; i++) {
        data[i] = (uint8_t)(word >> 8 * i);
    }
}

/* From the last block to the first, and in memory from the end to the beginning: a decoder goes the
 * other way. Returns the bytes used, moved to the front. */
static size_t encode_long(const int32_t *levels, size_t dim, unsigned scale, uint8_t *data,
                          size_t capacity, struct tally_level_stats *stats)
{
    const struct tally_entropy_kernel *kernel = tally_entropy_kernel_for(tally_cpu_used());
    const unsigned shift = tally_entropy_shift(scale);
    uint8_t *at = data + capacity;
    struct tally_rans_states states;
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        states.lane[i] = TALLY_RANS_LOWEST;
    }
    for (size_t start = last_block(dim), end = dim;;
         start = tally_entropy_block_before(start, TALLY_ENTROPY_LONG_BLOCK)) {
        struct tally_entropy_table table;
        struct tally_rans_encode_table encode_table;
        struct block block;
        table_before(levels + start, start, scale, &table);
        tally_rans_encode_table(&table, &encode_table);
        split(kernel, &table, levels + start, end - start, shift, &block, stats);
        at = write_extras(&table, &block, levels + start, shift, at);
        /* Only the blocks of full length are followed by one as long. */
        const int32_t *next =
            start >= 2 * TALLY_ENTROPY_LONG_BLOCK ? levels + start - block.n : NULL;
        at = kernel->encode(&encode_table, block.symbols, block.n, &states, at, next);
        end = start;
        if (start == 0) {
            break;
        }
    }
    at -= LONG_HEAD_BYTES;
    at[0] = (uint8_t)scale;
    at[1] = 0;
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        store32(at + 2 + 4 * (size_t)i, states.lane[i]);
    }
    const size_t n_bytes = (size_t)(data + capacity - at);
    memmove(data, at, n_bytes);
    stats->payload_bits = 8 * (uint64_t)n_bytes;
    return n_bytes;
}

static enum tally_status encode(const int32_t *levels, size_t dim, bool has_states, uint8_t *data,
                                size_t capacity, struct tally_level_stats *ret_stats)
{
    if (capacity < entropy_bound(levels, dim)) {
        return TALLY_OUT_OF_RANGE;
    }
    struct tally_entropy_sample sample = tally_entropy_sample(dim);
    tally_entropy_sample_add(&sample, 0, levels, dim);
    const unsigned scale = tally_entropy_sample_scale(&sample);
    struct tally_level_stats stats = {0};
    if (has_states) {
        encode_long(levels, dim, scale, data, capacity, &stats);
    } else {
        struct tally_bit_writer writer;
        tally_bit_writer_init(&writer, data, capacity);
        encode_short(levels, dim, scale, &writer, &stats);
    }
    *ret_stats = stats;
    return TALLY_OK;
}

/* --- decoder --------------------------------------------------------------------------------- */

/* A message as it is read, block after block. */
struct message {
    size_t dim, start; /* coordinates in all, and before the next block */
    bool has_states;   /* it is in the form of a long message */
    uint64_t payload_bits;
    uint32_t top; /* largest magnitude that the grid has */
    unsigned scale, shift;
    struct tally_entropy_sample sample;
    struct tally_level_stats stats;

    struct tally_bit_reader reader; /* short */
    struct tally_arith_decoder decoder;
    uint32_t counts[TALLY_ENTROPY_SYMBOLS];

    const uint8_t *data, *end; /* long: what is left */
    struct tally_rans_states states;
};

static enum tally_status bad_length(const struct message *message, uint64_t bits,
                                    struct tally_error *err)
{
    return tally_fail(
        err, TALLY_MALFORMED, "payload", "%llu bits announced, %zu coordinates take %llu",
        (unsigned long long)message->payload_bits, message->dim, (unsigned long long)bits);
}

static enum tally_status ends_early(const struct message *message, struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, "payload",
                      "ends in the block of coordinate %zu of %zu, after %llu bits", message->start,
                      message->dim, (unsigned long long)message->payload_bits);
}

static uint32_t load32(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
           (uint32_t)data[3] << 24;
}

static enum tally_status open_short(struct message *message, const uint8_t *data,
                                    struct tally_error *err)
{
    tally_bit_reader_init(&message->reader, data, message->payload_bits);
    message->scale = (unsigned)tally_bit_read(&message->reader, SCALE_BITS);
    if (message->scale == SCALE_MORE) {
        message->scale += (unsigned)tally_bit_read(&message->reader, SCALE_MORE_BITS);
    }
    if (message->reader.overrun) {
        return ends_early(message, err);
    }
    tally_arith_decoder_init(&message->decoder, &message->reader);
    memset(message->counts, 0, sizeof message->counts);
    return TALLY_OK;
}

static enum tally_status open_long(struct message *message, const uint8_t *data, size_t n_bytes,
                                   struct tally_error *err)
{
    if (n_bytes < LONG_HEAD_BYTES) {
        return ends_early(message, err);
    }
    message->scale = (unsigned)data[0] | (unsigned)data[1] << 8;
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        const uint32_t state = load32(data + 2 + 4 * (size_t)i);
        if (state < TALLY_RANS_LOWEST || state >> TALLY_RANS_STATE_BITS != 0) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "state %d is %lu", i,
                              (unsigned long)state);
        }
        message->states.lane[i] = state;
    }
    message->data = data + LONG_HEAD_BYTES;
    message->end = data + n_bytes;
    return TALLY_OK;
}

static enum tally_status message_open(struct message *message, const uint8_t *data, size_t n_bytes,
                                      uint64_t payload_bits, size_t dim, bool has_states,
                                      const struct tally_grid *grid, struct tally_error *err)
{
    if (!tally_bits_are_framed(data, n_bytes, payload_bits)) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "%zu bytes do not frame %llu bits with zero padding", n_bytes,
                          (unsigned long long)payload_bits);
    }
    message->dim = dim;
    message->start = 0;
    message->has_states = has_states;
    message->scale = 0;
    message->payload_bits = payload_bits;
    message->top = grid->intervals / 2;
    message->stats = (struct tally_level_stats){.payload_bits = payload_bits};
    message->sample = tally_entropy_sample(dim);
    enum tally_status status =
        has_states ? open_long(message, data, n_bytes, err) : open_short(message, data, err);
    if (status == TALLY_OK && message->scale >= TALLY_ENTROPY_SCALES) {
        status = tally_fail(err, TALLY_MALFORMED, "payload", "scale %u is above %d", message->scale,
                            TALLY_ENTROPY_SCALES - 1);
    }
    message->shift = tally_entropy_shift(message->scale);
    return status;
}

/* A level far above any grid is moved nearer, so that sums do not overflow until it is refused. */
static int32_t within_reach(int64_t level)
{
    const int64_t most = TALLY_MAX_INTERVALS;
    return (int32_t)(level > most ? most : level < -most ? -most : level);
}

/* Makes a level of a symbol and bits that `read` takes from wherever they are. False: an escape
 * that no encoder writes. */
static bool finish_level(struct message *message, const struct tally_entropy_table *table,
                         unsigned symbol, unsigned shift,
                         uint64_t (*read)(struct message *message, unsigned n), int32_t *ret_level)
{
    if (symbol == TALLY_ENTROPY_ESCAPE) {
        symbol = (unsigned)read(message, ESCAPED_BITS);
        if (table->frequency[symbol] != 0) { /* the escape's own is not 0 either */
            return false;
        }
    }
    const uint64_t extra = read(message, tally_entropy_n_extra(symbol, shift));
    const int64_t level = tally_entropy_level(symbol, extra, shift);
    *ret_level = within_reach(level);
    return true;
}

static enum tally_status bad_escape(size_t coordinate, struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, "payload",
                      "coordinate %zu escapes from a symbol that has a frequency", coordinate);
}

static uint64_t read_modelled_raw(struct message *message, unsigned n)
{
    uint64_t bits = 0;
    for (unsigned done = 0; done < n;) {
        const unsigned piece = (unsigned)smaller(n - done, RAW_BITS);
        const uint32_t share = tally_arith_decode(&message->decoder, piece);
        tally_arith_narrow(&message->decoder, share, 1);
        bits |= (uint64_t)share << done;
        done += piece;
    }
    return bits;
}

static unsigned symbol_at(const struct tally_entropy_table *table, uint32_t share)
{
    unsigned symbol = 0;
    for (unsigned step = TALLY_ENTROPY_SYMBOLS / 2; step > 0; step /= 2) {
        symbol += share >= table->cumulative[symbol + step] ? step : 0;
    }
    return symbol;
}

static enum tally_status read_short(struct message *message, int32_t *levels, size_t n,
                                    struct tally_entropy_scan *ret_scan, struct tally_error *err)
{
    struct tally_entropy_table table;
    tally_entropy_table(message->scale, message->counts, &table);
    for (size_t i = 0; i < n; i++) {
        const uint32_t share = tally_arith_decode(&message->decoder, TALLY_ENTROPY_TOTAL_BITS);
        const unsigned symbol = symbol_at(&table, share);
        tally_arith_narrow(&message->decoder, table.cumulative[symbol], table.frequency[symbol]);
        if (!finish_level(message, &table, symbol, message->shift, read_modelled_raw, &levels[i])) {
            return bad_escape(message->start + i, err);
        }
    }
    *ret_scan = scan_levels(levels, n);
    slide(levels, message->start, n, message->shift, message->counts);
    return TALLY_OK;
}

static uint64_t read_raw(struct message *message, unsigned n)
{
    return tally_bit_read(&message->reader, n);
}

/* Makes levels of what was modelled of them and their low bits. */
static void read_lows(struct message *message, int32_t *levels, size_t n)
{
    const unsigned shift = message->shift;
    const int64_t unit = INT64_C(1) << shift, half = unit / 2;
    const size_t most = 57 / shift; /* in one read */
    for (size_t i = 0; i < n; i += most) {
        const size_t n_here = smaller(most, n - i);
        const uint64_t bits = tally_bit_read(&message->reader, (unsigned)(n_here * shift));
        for (size_t k = 0; k < n_here; k++) {
            const int64_t low = (int64_t)(bits >> (k * shift)) & (unit - 1);
            levels[i + k] = within_reach(levels[i + k] * unit + low - half);
        }
    }
}

/* The bits after the symbols of a block, into levels that have what the symbols alone say. */
static enum tally_status read_extras(struct message *message,
                                     const struct tally_entropy_table *table,
                                     const struct block *block, int32_t *levels,
                                     struct tally_entropy_scan *scan, struct tally_error *err)
{
    tally_bit_reader_init(&message->reader, message->data,
                          8 * (uint64_t)(message->end - message->data));
    for (size_t k = 0; k < block->n_followed; k++) {
        const size_t i = block->followed[k];
        if (!finish_level(message, table, block->symbols[i], 0, read_raw, &levels[i])) {
            return bad_escape(message->start + i, err);
        }
        const struct tally_entropy_scan one = scan_levels(&levels[i], 1);
        scan->sum += one.sum;
        scan->nonzeros += one.nonzeros;
        scan->largest = one.largest > scan->largest ? one.largest : scan->largest;
    }
    if (message->shift > 0) {
        read_lows(message, levels, block->n);
        *scan = scan_levels(levels, block->n);
    }
    const unsigned padding = (unsigned)(-tally_bit_reader_tell(&message->reader) % 16);
    if (tally_bit_read(&message->reader, padding) != 0) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "a one in the padding after the block of coordinate %zu", message->start);
    }
    if (message->reader.overrun) {
        return ends_early(message, err);
    }
    message->data += tally_bit_reader_tell(&message->reader) / 8;
    return TALLY_OK;
}

static enum tally_status read_long(struct message *message, int32_t *levels, size_t n,
                                   struct tally_entropy_scan *ret_scan, struct tally_error *err)
{
    const struct tally_entropy_kernel *kernel = tally_entropy_kernel_for(tally_cpu_used());
    struct tally_rans_decode_table decode_table;
    struct tally_entropy_table table;
    struct block block;
    table_before(levels, message->start, message->scale, &table);
    tally_rans_decode_table(&table, &decode_table);
    message->data = kernel->decode(&decode_table, message->data, message->end, n, &message->states,
                                   block.symbols, levels, ret_scan);
    if (message->data == NULL) {
        return ends_early(message, err);
    }
    block.n = n;
    block.n_followed =
        kernel->find(block.symbols, n, UINT32_MAX << TALLY_ENTROPY_FIRST_CLASS, block.followed);
    return read_extras(message, &table, &block, levels, ret_scan, err);
}

static enum tally_status check_magnitudes(const struct message *message, const int32_t *levels,
                                          size_t n, struct tally_error *err)
{
    size_t i = 0;
    while (i < n && levels[i] <= (int32_t)message->top && levels[i] >= -(int32_t)message->top) {
        i++;
    }
    return i == n
               ? TALLY_OK
               : tally_fail(err, TALLY_MALFORMED, "payload", "level of coordinate %zu is above %lu",
                            message->start + i, (unsigned long)message->top);
}

/* Reads the next block into levels[n]; right before it stand the levels of its window. */
static enum tally_status message_read(struct message *message, int32_t *levels, size_t *ret_n,
                                      struct tally_error *err)
{
    const size_t longest =
        message->has_states ? TALLY_ENTROPY_LONG_BLOCK : TALLY_ENTROPY_SHORT_BLOCK;
    const size_t end = smaller(tally_entropy_block_end(message->start, longest), message->dim);
    const size_t n = end - message->start;
    struct tally_entropy_scan scan;
    enum tally_status status = message->has_states ? read_long(message, levels, n, &scan, err)
                                                   : read_short(message, levels, n, &scan, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (scan.largest > message->top) {
        return check_magnitudes(message, levels, n, err);
    }
    count(&message->stats, &scan, n);
    tally_entropy_sample_add(&message->sample, message->start, levels, n);
    message->start += n;
    *ret_n = n;
    return TALLY_OK;
}

static enum tally_status close_short(const struct message *message, struct tally_error *err)
{
    bool is_exact;
    const uint64_t head = message->scale < SCALE_MORE ? SCALE_BITS : SCALE_BITS + SCALE_MORE_BITS;
    const uint64_t bits = head + tally_arith_decoder_finish(&message->decoder, &is_exact);
    if (bits != message->payload_bits) {
        return bad_length(message, bits, err);
    }
    return is_exact ? TALLY_OK
                    : tally_fail(err, TALLY_MALFORMED, "payload",
                                 "not the first string of its %llu bits for these levels",
                                 (unsigned long long)bits);
}

static enum tally_status close_long(const struct message *message, struct tally_error *err)
{
    const uint64_t left = 8 * (uint64_t)(message->end - message->data);
    const uint64_t bits = (message->payload_bits + 7) / 8 * 8 - left;
    if (bits != message->payload_bits) { /* the last byte counts as a whole, zeros or not */
        return bad_length(message, bits, err);
    }
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        if (message->states.lane[i] != TALLY_RANS_LOWEST) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "state %d ends as %lu, not %d", i,
                              (unsigned long)message->states.lane[i], TALLY_RANS_LOWEST);
        }
    }
    return TALLY_OK;
}

/* After the last block: whether an encoder ends like this. */
static enum tally_status message_close(const struct message *message, struct tally_error *err)
{
    enum tally_status status =
        message->has_states ? close_long(message, err) : close_short(message, err);
    const unsigned scale = tally_entropy_sample_scale(&message->sample);
    if (status == TALLY_OK && scale != message->scale) {
        status = tally_fail(err, TALLY_MALFORMED, "payload",
                            "the scale is %u, that of these levels is %u", message->scale, scale);
    }
    return status;
}

static enum tally_status decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                size_t dim, bool has_states, const struct tally_grid *grid,
                                int32_t *levels, struct tally_level_stats *ret_stats,
                                struct tally_error *err)
{
    struct message message;
    enum tally_status status =
        message_open(&message, data, n_bytes, payload_bits, dim, has_states, grid, err);
    while (status == TALLY_OK && message.start < dim) {
        size_t n;
        status = message_read(&message, levels + message.start, &n, err);
    }
    if (status == TALLY_OK) {
        status = message_close(&message, err);
    }
    if (status == TALLY_OK) {
        *ret_stats = message.stats;
    }
    return status;
}

/* Adds the blocks of a message, times `sign`, to sums while there are any before coordinate `end`.
 */
static enum tally_status add_blocks(struct message *message, size_t end, int sign, int64_t *sums,
                                    struct tally_error *err)
{
    const struct tally_entropy_kernel *kernel = tally_entropy_kernel_for(tally_cpu_used());
    int32_t room[TALLY_ENTROPY_WINDOW + TALLY_ENTROPY_LONG_BLOCK];
    int32_t *block = room + TALLY_ENTROPY_WINDOW; /* right after its window */
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && message->start < end) {
        int64_t *at = sums + message->start;
        size_t n = 0;
        status = message_read(message, block, &n, err);
        if (sign > 0) {
            kernel->add(block, n, at);
        } else {
            for (size_t i = 0; i < n; i++) {
                at[i] -= block[i];
            }
        }
        const size_t n_window = smaller(message->start, TALLY_ENTROPY_WINDOW);
        memmove(block - n_window, block + n - n_window, n_window * sizeof room[0]);
    }
    return status;
}

static enum tally_status accumulate(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                    size_t dim, bool has_states, const struct tally_grid *grid,
                                    int64_t *sums, struct tally_level_stats *ret_stats,
                                    struct tally_error *err)
{
    struct message message;
    enum tally_status status =
        message_open(&message, data, n_bytes, payload_bits, dim, has_states, grid, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = add_blocks(&message, dim, 1, sums, err);
    if (status == TALLY_OK) {
        status = message_close(&message, err);
    }
    if (status != TALLY_OK) { /* what has been added goes the way it came */
        const size_t added = message.start;
        message_open(&message, data, n_bytes, payload_bits, dim, has_states, grid, NULL);
        add_blocks(&message, added, -1, sums, NULL);
        return status;
    }
    *ret_stats = message.stats;
    return TALLY_OK;
}

/* --- the vtables ----------------------------------------------------------------------------- */

static enum tally_status entropy_encode(const int32_t *levels, size_t dim,
                                        const struct tally_grid *grid, uint8_t *data,
                                        size_t capacity, struct tally_level_stats *ret_stats)
{
    (void)grid;
    return encode(levels, dim, is_long(dim), data, capacity, ret_stats);
}

static enum tally_status entropy_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                        size_t dim, const struct tally_grid *grid, int32_t *levels,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err)
{
    return decode(data, n_bytes, payload_bits, dim, is_long(dim), grid, levels, ret_stats, err);
}

static enum tally_status entropy_accumulate(const uint8_t *data, size_t n_bytes,
                                            uint64_t payload_bits, size_t dim,
                                            const struct tally_grid *grid, int64_t *sums,
                                            struct tally_level_stats *ret_stats,
                                            struct tally_error *err)
{
    return accumulate(data, n_bytes, payload_bits, dim, is_long(dim), grid, sums, ret_stats, err);
}

const struct tally_encoding TALLY_ENCODING_ENTROPY = {
    .name = "entropy",
    .bound = entropy_bound,
    .encode = entropy_encode,
    .decode = entropy_decode,
    .accumulate = entropy_accumulate,
};

static enum tally_status long_encode(const int32_t *levels, size_t dim,
                                     const struct tally_grid *grid, uint8_t *data, size_t capacity,
                                     struct tally_level_stats *ret_stats)
{
    (void)grid;
    return encode(levels, dim, true, data, capacity, ret_stats);
}

static enum tally_status long_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                     size_t dim, const struct tally_grid *grid, int32_t *levels,
                                     struct tally_level_stats *ret_stats, struct tally_error *err)
{
    return decode(data, n_bytes, payload_bits, dim, true, grid, levels, ret_stats, err);
}

static enum tally_status long_accumulate(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                         size_t dim, const struct tally_grid *grid, int64_t *sums,
                                         struct tally_level_stats *ret_stats,
                                         struct tally_error *err)
{
    return accumulate(data, n_bytes, payload_bits, dim, true, grid, sums, ret_stats, err);
}

const struct tally_encoding TALLY_ENTROPY_LONG_FORM = {
    .name = "entropy in its long form",
    .bound = entropy_bound,
    .encode = long_encode,
    .decode = long_decode,
    .accumulate = long_accumulate,
};

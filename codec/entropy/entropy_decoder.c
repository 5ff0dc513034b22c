/* entropy_decoder: a message of either form to levels, block after block.
 *
 * Nothing that a sender claims is believed: every step inverts one of the encoder's, and the scale,
 * the end states, the padding and the length are compared with what an encoder of these levels
 * would have written. A message that passes encodes to the same bytes again. */
#include <string.h>

#include "codec/entropy/arith.h"
#include "codec/entropy/entropy_message.h"
#include "codec/quantize/payload.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A message as it is read, block after block. */
struct message {
    size_t dim, start; /* coordinates in total, and before the next block */
    bool is_long;      /* the message has the long form */
    uint64_t payload_bits;
    uint32_t top; /* largest magnitude that the grid has */
    unsigned scale, shift;
    struct tally_entropy_sample sample;
    struct tally_level_stats stats;

    struct tally_bit_reader reader; /* short */
    struct tally_arith_decoder decoder;
    uint32_t counts[TALLY_ENTROPY_SYMBOLS];

    const uint8_t *data, *end; /* long: unread bytes */
    struct tally_rans_states states;
};

static enum tally_status ends_early(const struct message *message, struct tally_error *err)
{
    return tally_payload_ends_early(message->start, message->dim, message->payload_bits, err);
}

static enum tally_status open_short(struct message *message, const uint8_t *data,
                                    struct tally_error *err)
{
    tally_bit_reader_init(&message->reader, data, message->payload_bits);
    message->scale = (unsigned)tally_bit_read(&message->reader, TALLY_ENTROPY_SCALE_BITS);
    if (message->scale == TALLY_ENTROPY_SCALE_MORE) {
        message->scale += (unsigned)tally_bit_read(&message->reader, TALLY_ENTROPY_SCALE_MORE_BITS);
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
    if (n_bytes < TALLY_ENTROPY_LONG_HEAD_BYTES) {
        return ends_early(message, err);
    }
    message->scale = (unsigned)data[0] | (unsigned)data[1] << 8;
    message->data = data + TALLY_ENTROPY_LONG_HEAD_BYTES;
    message->end = data + n_bytes;
    return tally_rans_read(data + 2, &message->states, err);
}

static enum tally_status message_open(struct message *message, const uint8_t *data, size_t n_bytes,
                                      uint64_t payload_bits, size_t dim, bool is_long,
                                      const struct tally_grid *grid, struct tally_error *err)
{
    message->dim = dim;
    message->start = 0;
    message->is_long = is_long;
    message->scale = 0;
    message->payload_bits = payload_bits;
    message->top = grid->intervals / 2;
    message->stats = (struct tally_level_stats){.payload_bits = payload_bits};
    message->sample = tally_entropy_sample(dim);
    enum tally_status status = tally_payload_check_frame(data, n_bytes, payload_bits, err);
    if (status == TALLY_OK) {
        status = is_long ? open_long(message, data, n_bytes, err) : open_short(message, data, err);
    }
    if (status == TALLY_OK && message->scale >= TALLY_ENTROPY_SCALES) {
        status = tally_fail(err, TALLY_MALFORMED, "payload", "scale %u is above %d", message->scale,
                            TALLY_ENTROPY_SCALES - 1);
    }
    message->shift = tally_entropy_shift(message->scale);
    return status;
}

/* Clamps a level far above any grid, so that sums do not overflow before it is refused. */
static int32_t within_reach(int64_t level)
{
    const int64_t most = TALLY_MAX_INTERVALS;
    return (int32_t)(level > most ? most : level < -most ? -most : level);
}

/* Makes a level from a symbol and the bits that `read` returns. False: an escape that no encoder
 * writes. */
static bool finish_level(struct message *message, const struct tally_entropy_table *table,
                         unsigned symbol, unsigned shift,
                         uint64_t (*read)(struct message *message, unsigned n), int32_t *ret_level)
{
    if (symbol == TALLY_ENTROPY_ESCAPE) {
        symbol = (unsigned)read(message, TALLY_ENTROPY_ESCAPED_BITS);
        if (table->frequency[symbol] != 0) { /* the escape's own is never 0 */
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
        const unsigned piece = (unsigned)smaller(n - done, TALLY_ENTROPY_RAW_BITS);
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
    *ret_scan = tally_entropy_scan_of(levels, n);
    tally_entropy_slide(levels, message->start, n, message->shift, message->counts);
    return TALLY_OK;
}

static uint64_t read_raw(struct message *message, unsigned n)
{
    return tally_bit_read(&message->reader, n);
}

/* Completes levels[n], which hold only their modelled part, with their low bits. */
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

/* Reads the bits after the symbols of a block into levels, which hold what the symbols alone
 * give. */
static enum tally_status read_extras(struct message *message,
                                     const struct tally_entropy_table *table,
                                     const struct tally_entropy_block *block, int32_t *levels,
                                     struct tally_entropy_scan *scan, struct tally_error *err)
{
    tally_bit_reader_init(&message->reader, message->data,
                          8 * (uint64_t)(message->end - message->data));
    for (size_t k = 0; k < block->n_followed; k++) {
        const size_t i = block->followed[k];
        if (!finish_level(message, table, block->symbols[i], 0, read_raw, &levels[i])) {
            return bad_escape(message->start + i, err);
        }
        const struct tally_entropy_scan one = tally_entropy_scan_of(&levels[i], 1);
        tally_entropy_scan_merge(scan, &one);
    }
    if (message->shift > 0) {
        read_lows(message, levels, block->n);
        *scan = tally_entropy_scan_of(levels, block->n);
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
    struct tally_entropy_block block;
    tally_entropy_table_before(levels, message->start, message->scale, &table);
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
    return i == n ? TALLY_OK : tally_payload_level_above(message->start + i, message->top, err);
}

/* Reads the next block into levels[n]; the levels of its window precede it. */
static enum tally_status message_read(struct message *message, int32_t *levels, size_t *ret_n,
                                      struct tally_error *err)
{
    const size_t longest = message->is_long ? TALLY_ENTROPY_LONG_BLOCK : TALLY_ENTROPY_SHORT_BLOCK;
    const size_t end = smaller(tally_entropy_block_end(message->start, longest), message->dim);
    const size_t n = end - message->start;
    struct tally_entropy_scan scan;
    enum tally_status status = message->is_long ? read_long(message, levels, n, &scan, err)
                                                : read_short(message, levels, n, &scan, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (scan.largest > message->top) {
        return check_magnitudes(message, levels, n, err);
    }
    tally_entropy_count_bits(&message->stats, &scan, n);
    tally_entropy_sample_add(&message->sample, message->start, levels, n);
    message->start += n;
    *ret_n = n;
    return TALLY_OK;
}

static enum tally_status close_short(const struct message *message, struct tally_error *err)
{
    bool is_exact;
    const uint64_t head = message->scale < TALLY_ENTROPY_SCALE_MORE
                              ? TALLY_ENTROPY_SCALE_BITS
                              : TALLY_ENTROPY_SCALE_BITS + TALLY_ENTROPY_SCALE_MORE_BITS;
    const uint64_t bits = head + tally_arith_decoder_finish(&message->decoder, &is_exact);
    return tally_payload_check_string(message->payload_bits, message->dim, bits, is_exact, err);
}

static enum tally_status close_long(const struct message *message, struct tally_error *err)
{
    const uint64_t left = 8 * (uint64_t)(message->end - message->data);
    /* All bits of the last byte count. */
    const uint64_t bits = (message->payload_bits + 7) / 8 * 8 - left;
    const enum tally_status status =
        tally_payload_check_length(message->payload_bits, message->dim, bits, err);
    return status == TALLY_OK ? tally_rans_check_end(&message->states, err) : status;
}

/* After the last block: checks that an encoder ends a message like this. */
static enum tally_status message_close(const struct message *message, struct tally_error *err)
{
    enum tally_status status =
        message->is_long ? close_long(message, err) : close_short(message, err);
    const unsigned scale = tally_entropy_sample_scale(&message->sample);
    if (status == TALLY_OK && scale != message->scale) {
        status = tally_fail(err, TALLY_MALFORMED, "payload",
                            "the scale is %u, that of these levels is %u", message->scale, scale);
    }
    return status;
}

enum tally_status tally_entropy_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                       size_t dim, bool is_long, const struct tally_grid *grid,
                                       int32_t *levels, struct tally_level_stats *ret_stats,
                                       struct tally_error *err)
{
    struct message message;
    enum tally_status status =
        message_open(&message, data, n_bytes, payload_bits, dim, is_long, grid, err);
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

/* Adds the blocks of a message that start before coordinate `end`, times `sign`, to sums. */
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

enum tally_status tally_entropy_accumulate(const uint8_t *data, size_t n_bytes,
                                           uint64_t payload_bits, size_t dim, bool is_long,
                                           const struct tally_grid *grid, int64_t *sums,
                                           struct tally_level_stats *ret_stats,
                                           struct tally_error *err)
{
    struct message message;
    enum tally_status status =
        message_open(&message, data, n_bytes, payload_bits, dim, is_long, grid, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = add_blocks(&message, dim, 1, sums, err);
    if (status == TALLY_OK) {
        status = message_close(&message, err);
    }
    if (status != TALLY_OK) { /* subtracts what was added */
        const size_t added = message.start;
        message_open(&message, data, n_bytes, payload_bits, dim, is_long, grid, NULL);
        add_blocks(&message, added, -1, sums, NULL);
        return status;
    }
    *ret_stats = message.stats;
    return TALLY_OK;
}

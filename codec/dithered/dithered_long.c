/* dithered_long: whole long messages, block after block. The encoder goes from the last block to
 * the first and from the end of the buffer to its beginning, as codec/entropy does it, and rounds
 * each block right before encoding it, so the vector passes through the cache once. */
#include "codec/dithered/dithered_long.h"

#include <assert.h>
#include <string.h>

#include "codec/dithered/dithered_message.h"
#include "codec/numeric/bits.h"
#include "codec/quantize/payload.h"

/* --- encoder --------------------------------------------------------------------------------- */

static bool is_tail(const struct tally_dithered_model *model, uint8_t symbol)
{
    return symbol == 0 || symbol == 2 * model->reach + 2;
}

static uint32_t excess_of(const struct tally_dithered_model *model, int32_t level)
{
    return tally_magnitude(tally_dithered_high(model, level)) - (uint32_t)model->reach;
}

static void write_tails(const struct tally_dithered_model *model, const uint8_t *symbols,
                        const int32_t *levels, size_t n, struct tally_bit_writer *writer)
{
    for (size_t i = 0; i < n; i++) {
        if (is_tail(model, symbols[i])) {
            const uint32_t excess = excess_of(model, levels[i]);
            assert(excess > 0);
            const unsigned more = tally_bit_length(excess) - 1;
            tally_bit_write(writer, UINT64_C(1) << more, more + 1);
            tally_bit_write(writer, excess & ((1u << more) - 1), more);
        }
    }
}

static void write_lows(const struct tally_dithered_model *model, const int32_t *levels, size_t n,
                       struct tally_bit_writer *writer)
{
    const uint32_t half = (1u << model->shift) >> 1;
    for (size_t i = 0; model->shift > 0 && i < n; i++) {
        tally_bit_write(writer, (uint32_t)levels[i] + half, model->shift);
    }
}

static uint64_t n_bits_of(const struct tally_dithered_model *model, const uint8_t *symbols,
                          const int32_t *levels, size_t n, size_t n_tails)
{
    uint64_t bits = (uint64_t)n * model->shift;
    for (size_t i = 0; n_tails > 0 && i < n; i++) {
        bits +=
            is_tail(model, symbols[i]) ? 2 * tally_bit_length(excess_of(model, levels[i])) - 1 : 0;
    }
    return bits;
}

/* Writes the bits that follow the code words of a block, in words that end at `end`; returns where
 * they begin. */
static uint8_t *write_extras(const struct tally_dithered_model *model, const uint8_t *symbols,
                             const int32_t *levels, size_t n, size_t n_tails, uint8_t *end)
{
    const uint64_t n_bits = n_bits_of(model, symbols, levels, n, n_tails);
    const size_t n_bytes = (size_t)(2 * ((n_bits + 15) / 16));
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, end - n_bytes, n_bytes);
    if (n_tails > 0) {
        write_tails(model, symbols, levels, n, &writer);
    }
    write_lows(model, levels, n, &writer);
    tally_bit_write(&writer, 0, (unsigned)(8 * n_bytes - n_bits));
    tally_bit_writer_finish(&writer);
    return end - n_bytes;
}

/* The part of the message written so far is at the end of the payload. */
struct long_encoder {
    const struct tally_dithered_kernel *kernel;
    const struct tally_dithered_model *model;
    const struct tally_vector *vector;
    const struct tally_dithered_table *table;
    struct tally_rans_states states;
    struct tally_buffer *payload;
    size_t used; /* bytes */
    struct tally_level_stats stats;
    uint64_t clipped;
};

/* Makes room for n bytes more before the message. */
static enum tally_status make_room(struct long_encoder *encoder, size_t n)
{
    struct tally_buffer *payload = encoder->payload;
    const size_t used = encoder->used, before = payload->capacity;
    const enum tally_status status = tally_buffer_reserve(payload, used + n);
    if (status == TALLY_OK && payload->capacity > before) {
        memmove(payload->data + payload->capacity - used, payload->data + before - used, used);
    }
    return status;
}

/* Rounds the coordinates from `start` on; *ret_largest: the largest magnitude of a level. */
static enum tally_status round_block(struct long_encoder *encoder, size_t start,
                                     struct tally_dithered_block *block, uint32_t *ret_largest)
{
    const struct tally_vector *vector = encoder->vector;
    struct tally_entropy_scan scan;
    encoder->kernel->dithers(vector->rng, (uint32_t)(start / TALLY_RNG_LANES), block->n,
                             block->dithers);
    if (encoder->kernel->quantize(vector->grid, vector->y + start, block->dithers, block->n,
                                  block->levels, &encoder->clipped) < block->n) {
        return TALLY_NOT_FINITE;
    }
    encoder->kernel->scan(block->levels, block->n, &scan);
    encoder->stats.formula_bits += scan.sum;
    encoder->stats.nonzeros += scan.nonzeros;
    *ret_largest = scan.largest;
    return TALLY_OK;
}

static void write_block(struct long_encoder *encoder, struct tally_dithered_block *block)
{
    const struct tally_dithered_model *model = encoder->model;
    uint8_t *end = encoder->payload->data + encoder->payload->capacity;
    uint8_t *at = end - encoder->used;
    encoder->kernel->bins(encoder->table, block->dithers, block->n, block->bins);
    const size_t n_tails = encoder->kernel->symbols(model, block->levels, block->n, block->symbols);
    at = write_extras(model, block->symbols, block->levels, block->n, n_tails, at);
    at = encoder->kernel->encode(encoder->table, block->symbols, block->bins, block->n,
                                 &encoder->states, at);
    encoder->used = (size_t)(end - at);
}

/* Writes the states, and moves the message from the end of the payload to its beginning. */
static enum tally_status finish(struct long_encoder *encoder)
{
    struct tally_buffer *payload = encoder->payload;
    const enum tally_status status = make_room(encoder, TALLY_DITHERED_LONG_HEAD_BYTES);
    if (status == TALLY_OK) {
        encoder->used += TALLY_DITHERED_LONG_HEAD_BYTES;
        uint8_t *at = payload->data + payload->capacity - encoder->used;
        tally_rans_write(&encoder->states, at);
        memmove(payload->data, at, encoder->used);
        payload->size = encoder->used;
    }
    return status;
}

/* Room for a block beyond its bits: for a last word, and what the kernel overwrites. */
enum { BLOCK_SLACK = 128 };

enum tally_status tally_dithered_long_encode(const struct tally_dithered_model *model,
                                             const struct tally_vector *vector,
                                             struct tally_buffer *payload,
                                             struct tally_level_stats *ret_stats,
                                             uint64_t *ret_clipped)
{
    struct tally_dithered_table table;
    struct tally_dithered_block block;
    struct long_encoder encoder = {.kernel = tally_dithered_kernel_for(tally_cpu_used()),
                                   .model = model,
                                   .vector = vector,
                                   .table = &table,
                                   .payload = payload,
                                   .stats = {.formula_bits = vector->dim}};
    payload->size = 0;
    tally_dithered_table(model, &table);
    tally_rans_init(&encoder.states);
    enum tally_status status = tally_buffer_reserve(payload, vector->dim / 4);
    for (size_t end = vector->dim, start; status == TALLY_OK && end > 0; end = start) {
        uint32_t largest;
        start = (end - 1) / TALLY_DITHERED_BLOCK * TALLY_DITHERED_BLOCK;
        block.n = end - start;
        status = round_block(&encoder, start, &block, &largest);
        if (status == TALLY_OK) {
            const uint64_t bits = tally_dithered_bits_at_most(model, largest, block.n);
            status = make_room(&encoder, (size_t)(bits / 8) + BLOCK_SLACK);
        }
        if (status == TALLY_OK) {
            write_block(&encoder, &block);
        }
    }
    if (status == TALLY_OK) {
        status = finish(&encoder);
    }
    encoder.stats.payload_bits = 8 * (uint64_t)encoder.used;
    *ret_stats = encoder.stats;
    *ret_clipped = encoder.clipped;
    return status;
}

/* --- decoder --------------------------------------------------------------------------------- */

static enum tally_status ends_early(const struct tally_dithered_long *message,
                                    struct tally_error *err)
{
    return tally_payload_ends_early(message->start, message->dim, message->payload_bits, err);
}

enum tally_status tally_dithered_long_open(struct tally_dithered_long *message, const uint8_t *data,
                                           size_t n_bytes, struct tally_error *err)
{
    message->start = 0;
    message->stats = (struct tally_level_stats){.payload_bits = message->payload_bits,
                                                .formula_bits = message->dim};
    if (n_bytes < TALLY_DITHERED_LONG_HEAD_BYTES) {
        return ends_early(message, err);
    }
    tally_dithered_table(message->model, &message->table);
    tally_dithered_starts(&message->table);
    message->data = data + TALLY_DITHERED_LONG_HEAD_BYTES;
    message->end = data + n_bytes;
    return tally_rans_read(data, &message->states, err);
}

/* The magnitude of a tail's unit. An excess too large for any level gives another that is too
 * large. */
static int32_t read_tail(const struct tally_dithered_model *model, struct tally_bit_reader *reader)
{
    unsigned more = 0;
    while (more < TALLY_DITHERED_EXCESS_BITS && !reader->overrun &&
           tally_bit_read(reader, 1) == 0) {
        more++;
    }
    return model->reach + (int32_t)(1u << more | (uint32_t)tally_bit_read(reader, more));
}

/* Makes levels from units and their low bits. Clamps to +-TALLY_MAX_INTERVALS, which is still above
 * every valid level. */
static void read_lows(const struct tally_dithered_model *model, struct tally_bit_reader *reader,
                      int32_t *levels, size_t n)
{
    const int64_t half = (int64_t)((1u << model->shift) >> 1), most = TALLY_MAX_INTERVALS;
    for (size_t i = 0; i < n; i++) {
        const int64_t level = levels[i] * (INT64_C(1) << model->shift) +
                              (int64_t)tally_bit_read(reader, model->shift) - half;
        levels[i] = (int32_t)(level > most ? most : level < -most ? -most : level);
    }
}

static enum tally_status read_extras(struct tally_dithered_long *message,
                                     struct tally_dithered_block *block, size_t n_tails,
                                     struct tally_error *err)
{
    const struct tally_dithered_model *model = message->model;
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, message->data, 8 * (uint64_t)(message->end - message->data));
    for (size_t i = 0; n_tails > 0 && i < block->n; i++) {
        if (is_tail(model, block->symbols[i])) {
            const int32_t magnitude = read_tail(model, &reader);
            block->levels[i] = block->levels[i] < 0 ? -magnitude : magnitude;
        }
    }
    if (model->shift > 0) {
        read_lows(model, &reader, block->levels, block->n);
    }
    if (tally_bit_read(&reader, (unsigned)(-tally_bit_reader_tell(&reader) % 16)) != 0) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "nonzero padding after the block of coordinate %zu", message->start);
    }
    if (reader.overrun) {
        return ends_early(message, err);
    }
    message->data += tally_bit_reader_tell(&reader) / 8;
    return TALLY_OK;
}

static enum tally_status above_top(const struct tally_dithered_long *message,
                                   const struct tally_dithered_block *block,
                                   struct tally_error *err)
{
    size_t i = 0;
    while (tally_magnitude(block->levels[i]) <= message->top) {
        i++;
    }
    return tally_payload_level_above(message->start + i, message->top, err);
}

enum tally_status tally_dithered_long_read(struct tally_dithered_long *message,
                                           struct tally_dithered_block *ret_block,
                                           struct tally_error *err)
{
    const struct tally_dithered_kernel *kernel = tally_dithered_kernel_for(tally_cpu_used());
    const size_t left = message->dim - message->start;
    const size_t n = left < TALLY_DITHERED_BLOCK ? left : TALLY_DITHERED_BLOCK;
    struct tally_entropy_scan scan;
    ret_block->n = n;
    kernel->dithers(message->rng, (uint32_t)(message->start / TALLY_RNG_LANES), n,
                    ret_block->dithers);
    kernel->bins(&message->table, ret_block->dithers, n, ret_block->bins);
    message->data = kernel->decode(&message->table, ret_block->bins, message->data, message->end, n,
                                   &message->states, ret_block->symbols);
    if (message->data == NULL) {
        return ends_early(message, err);
    }
    const size_t n_tails = kernel->levels(message->model, ret_block->symbols, n, ret_block->levels);
    const enum tally_status status = n_tails > 0 || message->model->shift > 0
                                         ? read_extras(message, ret_block, n_tails, err)
                                         : TALLY_OK;
    if (status != TALLY_OK) {
        return status;
    }
    kernel->scan(ret_block->levels, n, &scan);
    if (scan.largest > message->top) {
        return above_top(message, ret_block, err);
    }
    message->stats.formula_bits += scan.sum;
    message->stats.nonzeros += scan.nonzeros;
    message->start += n;
    return TALLY_OK;
}

enum tally_status tally_dithered_long_close(const struct tally_dithered_long *message,
                                            struct tally_error *err)
{
    const uint64_t left = 8 * (uint64_t)(message->end - message->data);
    /* All bits of the last byte count. */
    const uint64_t bits = (message->payload_bits + 7) / 8 * 8 - left;
    const enum tally_status status =
        tally_payload_check_length(message->payload_bits, message->dim, bits, err);
    return status == TALLY_OK ? tally_rans_check_end(&message->states, err) : status;
}

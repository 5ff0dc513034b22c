/* dithered_decoder: the bits of a message to integers, coordinate after coordinate.
 *
 * Nothing that a sender claims is believed: the string and its length are compared with what an
 * encoder of these levels would have written, and a level above the top is refused. A message that
 * passes encodes to the same bytes again. */
#include <assert.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_long.h"
#include "codec/dithered/dithered_message.h"
#include "codec/dithered/trellis.h"
#include "codec/entropy/arith.h"
#include "codec/quantize/payload.h"

/* A short message as it is read. */
struct message {
    size_t dim, start; /* coordinates in total, and before the next one */
    uint64_t payload_bits;
    uint32_t top;   /* largest |level| */
    unsigned state; /* of the trellis */
    struct tally_dithered_model model;
    const struct tally_rng *rng;
    uint32_t words[TALLY_RNG_LANES]; /* of the group that the next coordinate belongs to */
    struct tally_bit_reader reader;
    struct tally_arith_decoder decoder;
    struct tally_level_stats stats;
};

static void open_short(const struct tally_dithered_message *from, struct message *message)
{
    message->dim = from->dim;
    message->start = 0;
    message->state = 0;
    message->payload_bits = from->payload_bits;
    message->top = from->grid->intervals / 2;
    message->model = tally_dithered_model(from->grid->scale, TALLY_TRELLIS_LEAST_SCALE);
    message->rng = from->rng;
    message->stats =
        (struct tally_level_stats){.payload_bits = from->payload_bits, .formula_bits = from->dim};
    tally_bit_reader_init(&message->reader, from->data, from->payload_bits);
    tally_arith_decoder_init(&message->decoder, &message->reader);
}

static uint32_t decode_raw(struct tally_arith_decoder *decoder, unsigned n)
{
    uint32_t bits = 0;
    for (unsigned done = 0, piece; done < n; done += piece) {
        piece = n - done < TALLY_DITHERED_RAW_BITS ? n - done : TALLY_DITHERED_RAW_BITS;
        const uint32_t share = tally_arith_decode(decoder, piece);
        tally_arith_narrow(decoder, share, 1);
        bits |= share << done;
    }
    return bits;
}

/* The inverse of encode_excess(). An excess too large for any level gives another that is too
 * large. */
static int32_t decode_excess(struct tally_arith_decoder *decoder)
{
    unsigned more = 0;
    while (more < TALLY_DITHERED_EXCESS_BITS && decode_raw(decoder, 1) == 0) {
        more++;
    }
    return (int32_t)(1u << more | decode_raw(decoder, more));
}

/* The symbol, -reach - 1 .. reach + 1 with the tails at the ends, that `share` belongs to. Most
 * levels are near 0, so the search starts there. */
static int32_t decode_symbol(struct message *message, int32_t dither)
{
    struct tally_dithered_model *model = &message->model;
    const uint32_t share = tally_arith_decode(&message->decoder, TALLY_DITHERED_TOTAL_BITS);
    struct tally_dithered_bound first, end;
    int32_t symbol = 0;
    tally_dithered_bound(model, 0, dither, &first);
    if (share >= first.shares) {
        tally_dithered_bound(model, 1, dither, &end);
        while (share >= end.shares) {
            first = end;
            symbol++;
            tally_dithered_bound(model, symbol + 1, dither, &end);
        }
    } else {
        do {
            end = first;
            symbol--;
            tally_dithered_bound(model, symbol, dither, &first);
        } while (share < first.shares);
    }
    tally_arith_narrow(&message->decoder, first.shares, end.shares - first.shares);
    tally_dithered_learn(model, &first, &end);
    return symbol;
}

/* Reads a level, of magnitude at most 2^37. */
static int64_t decode_level(struct message *message, int32_t dither)
{
    const struct tally_dithered_model *model = &message->model;
    int64_t high = decode_symbol(message, dither);
    if (high > model->reach) {
        high = model->reach + decode_excess(&message->decoder);
    } else if (high < -model->reach) {
        high = -model->reach - decode_excess(&message->decoder);
    }
    const int64_t half = (int64_t)((1u << model->shift) >> 1);
    return high * (INT64_C(1) << model->shift) +
           (int64_t)decode_raw(&message->decoder, model->shift) - half;
}

/* Reads the next coordinate as q 2^32 - U'. */
static enum tally_status message_read(struct message *message, int64_t *ret_value,
                                      struct tally_error *err)
{
    const size_t i = message->start, lane = i % TALLY_RNG_LANES;
    if (lane == 0) {
        tally_rng_lanes(message->rng, (uint32_t)(i / TALLY_RNG_LANES), message->words);
    }
    const int32_t word = (int32_t)message->words[lane];
    const int32_t dither = tally_trellis_dither(message->state, word);
    const int64_t level = decode_level(message, dither);
    const uint64_t magnitude = (uint64_t)(level < 0 ? -level : level);
    if (magnitude > message->top) {
        return tally_payload_level_above(i, message->top, err);
    }
    message->stats.formula_bits += magnitude;
    message->stats.nonzeros += magnitude != 0;
    message->start++;
    message->state = tally_trellis_next(message->state, word, level);
    *ret_value = level * (INT64_C(1) << 32) - dither;
    return TALLY_OK;
}

/* After the last coordinate: checks that an encoder ends a message like this. */
static enum tally_status message_close(const struct message *message, struct tally_error *err)
{
    bool is_exact;
    const uint64_t bits = tally_arith_decoder_finish(&message->decoder, &is_exact);
    return tally_payload_check_string(message->payload_bits, message->dim, bits, is_exact, err);
}

/* Where the coordinates before `end` go: they are written to `values`, if not NULL, or added to
 * `sums`, times `sign`. */
struct target {
    int64_t *values, *sums;
    int sign;
    size_t end;
};

/* Stores or adds the value of coordinate `start`. */
static void put(const struct target *target, size_t start, int64_t value)
{
    if (target->values != NULL) {
        target->values[start] = value;
    } else {
        assert(target->sums != NULL);
        target->sums[start] += target->sign * value;
    }
}

static enum tally_status read_short(const struct tally_dithered_message *from,
                                    const struct target *target, size_t *ret_done,
                                    struct tally_level_stats *ret_stats, struct tally_error *err)
{
    struct message message;
    enum tally_status status = TALLY_OK;
    open_short(from, &message);
    while (status == TALLY_OK && message.start < target->end) {
        int64_t value = 0;
        const size_t start = message.start;
        status = message_read(&message, &value, err);
        if (status == TALLY_OK) {
            put(target, start, value);
        }
    }
    *ret_done = message.start;
    *ret_stats = message.stats;
    return status == TALLY_OK && target->end == from->dim ? message_close(&message, err) : status;
}

static void put_block(const struct target *target, size_t start,
                      const struct tally_dithered_block *block)
{
    const struct tally_dithered_kernel *kernel = tally_dithered_kernel_for(tally_cpu_used());
    int64_t *at = (target->values != NULL ? target->values : target->sums) + start;
    if (target->values != NULL) {
        memset(at, 0, block->n * sizeof *at);
    }
    kernel->add(block->levels, block->dithers, block->n, target->sign, at);
}

static enum tally_status read_long(const struct tally_dithered_message *from,
                                   const struct target *target, size_t *ret_done,
                                   struct tally_level_stats *ret_stats, struct tally_error *err)
{
    const struct tally_dithered_model model = tally_dithered_model(from->grid->scale, 0);
    struct tally_dithered_long message = {.model = &model,
                                          .rng = from->rng,
                                          .dim = from->dim,
                                          .top = from->grid->intervals / 2,
                                          .payload_bits = from->payload_bits};
    enum tally_status status = tally_dithered_long_open(&message, from->data, from->n_bytes, err);
    while (status == TALLY_OK && message.start < target->end) {
        struct tally_dithered_block block;
        const size_t start = message.start;
        status = tally_dithered_long_read(&message, &block, err);
        if (status == TALLY_OK) {
            put_block(target, start, &block);
        }
    }
    *ret_done = message.start;
    *ret_stats = message.stats;
    return status == TALLY_OK && target->end == from->dim ? tally_dithered_long_close(&message, err)
                                                          : status;
}

static enum tally_status read_all(const struct tally_dithered_message *from,
                                  const struct target *target, size_t *ret_done,
                                  struct tally_level_stats *ret_stats, struct tally_error *err)
{
    *ret_done = 0;
    const enum tally_status status =
        tally_payload_check_frame(from->data, from->n_bytes, from->payload_bits, err);
    if (status != TALLY_OK) {
        return status;
    }
    return (from->is_long ? read_long : read_short)(from, target, ret_done, ret_stats, err);
}

enum tally_status tally_dithered_decode_as(const struct tally_dithered_message *message,
                                           int64_t *values, struct tally_level_stats *ret_stats,
                                           struct tally_error *err)
{
    const struct target target = {.values = values, .sign = 1, .end = message->dim};
    struct tally_level_stats stats;
    size_t done;
    const enum tally_status status = read_all(message, &target, &done, &stats, err);
    if (status == TALLY_OK) {
        *ret_stats = stats;
    }
    return status;
}

enum tally_status tally_dithered_accumulate_as(const struct tally_dithered_message *message,
                                               int64_t *sums, struct tally_level_stats *ret_stats,
                                               struct tally_error *err)
{
    struct target target = {.sums = sums, .sign = 1, .end = message->dim};
    struct tally_level_stats stats;
    size_t done;
    const enum tally_status status = read_all(message, &target, &done, &stats, err);
    if (status == TALLY_OK) {
        *ret_stats = stats;
    } else if (done > 0) { /* subtracts what was added */
        target.sign = -1;
        target.end = done;
        read_all(message, &target, &done, &stats, NULL);
    }
    return status;
}

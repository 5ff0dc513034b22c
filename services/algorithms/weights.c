#include "services/algorithms/weights.h"

#include <string.h>

#include "codec/numeric/fetch.h"
#include "codec/numeric/gcd.h"
#include "services/objectives/data/sharding.h"

enum { WEIGHT_BYTES = 4 };

static bool travels(const struct tally_setting *setting)
{
    return setting->weighs_points && setting->points == 0;
}

uint64_t tally_weight_bits(const struct tally_setting *setting)
{
    return travels(setting) ? 8 * WEIGHT_BYTES : 0;
}

/* Makes room for the weight in front of the message, which is empty in a cut round. */
static enum tally_status make_room(struct tally_message *message, struct tally_error *err)
{
    struct tally_buffer *payload = &message->payload;
    const enum tally_status status = tally_buffer_reserve(payload, WEIGHT_BYTES);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a message of %zu bytes",
                          payload->size + WEIGHT_BYTES);
    }
    memmove(payload->data + WEIGHT_BYTES, payload->data, payload->size);
    payload->size += WEIGHT_BYTES;
    message->bits.formula_bits += 8 * WEIGHT_BYTES;
    message->bits.payload_bits += 8 * WEIGHT_BYTES;
    message->bits.messages = 1;
    return TALLY_OK;
}

enum tally_status tally_weight_put(const struct tally_client_task *task,
                                   struct tally_message *message, struct tally_error *err)
{
    if (!travels(task->setting)) {
        return TALLY_OK;
    }
    if (task->plan->cut) {
        message->payload.size = 0;
        message->bits = (struct tally_bits){0};
    }
    uint32_t n;
    enum tally_status status = tally_objective_points(task->objective, task->client, &n, err);
    if (status == TALLY_OK && n > TALLY_WEIGHT_MOST) {
        status = tally_fail(err, TALLY_OUT_OF_RANGE, "weighting",
                            "client %u has %u points, the limit is %d", task->client, n,
                            (int)TALLY_WEIGHT_MOST);
    }
    if (status == TALLY_OK) {
        status = make_room(message, err);
    }
    for (int i = 0; status == TALLY_OK && i < WEIGHT_BYTES; i++) {
        message->payload.data[i] = (uint8_t)(n >> 8 * i);
    }
    return status;
}

enum tally_status tally_weight_take(const struct tally_setting *setting,
                                    struct tally_message_view *message, struct tally_error *err)
{
    if (!travels(setting)) {
        message->weight =
            setting->weighs_points
                ? tally_shard_of(setting->points, setting->clients, message->client).size
                : 1;
        return TALLY_OK;
    }
    uint32_t n = 0;
    if (message->n_payload < WEIGHT_BYTES || message->payload_bits < 8 * WEIGHT_BYTES) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "the payload does not begin with the client's number of points");
    }
    for (int i = 0; i < WEIGHT_BYTES; i++) {
        n |= (uint32_t)message->payload[i] << 8 * i;
    }
    if (n < 1 || n > TALLY_WEIGHT_MOST) {
        return tally_fail(err, TALLY_MALFORMED, "payload", "number of points %u outside [1, %d]", n,
                          (int)TALLY_WEIGHT_MOST);
    }
    message->weight = n;
    message->payload += WEIGHT_BYTES;
    message->n_payload -= WEIGHT_BYTES;
    message->payload_bits -= 8 * WEIGHT_BYTES;
    return TALLY_OK;
}

void tally_weights_add(struct tally_weights *weights, uint32_t weight)
{
    weights->sum += weight;
    weights->unit = tally_gcd(weights->unit, weight);
}

size_t tally_weighted_sum_words(const struct tally_setting *setting)
{
    return setting->weighs_points ? 2 : 1;
}

static size_t coordinates_bytes(const struct tally_setting *setting)
{
    return setting->dim * tally_weighted_sum_words(setting) * sizeof(int64_t);
}

size_t tally_sums_bytes(const struct tally_setting *setting)
{
    return coordinates_bytes(setting) + sizeof(struct tally_sums_notes);
}

struct tally_sums_notes *tally_sums_notes(const struct tally_setting *setting, const int64_t *sums)
{
    const uintptr_t first = (uintptr_t)sums;
    return (struct tally_sums_notes *)(first + coordinates_bytes(setting));
}

void tally_sums_begin(const struct tally_setting *setting, int64_t *sums)
{
    *tally_sums_notes(setting, sums) = (struct tally_sums_notes){0};
}

void tally_sums_clear(const struct tally_setting *setting, int64_t *sums)
{
    const size_t used = tally_sums_notes(setting, sums)->used_bytes;
    memset(sums, 0, used > 0 ? used : coordinates_bytes(setting));
    *tally_sums_notes(setting, sums) = (struct tally_sums_notes){0};
}

enum { BLOCK = 256 }; /* its addends stay in the processor's first cache */

static void add_block(const struct tally_setting *setting, uint32_t weight, const int64_t *addends,
                      size_t n, int64_t *sums)
{
    if (setting->weighs_points) {
        for (size_t i = 0; i < n; i++) {
            tally_fixed_point_add_weighted(sums + 2 * i, addends[i], weight);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            sums[i] += addends[i];
        }
    }
}

static size_t block_at(size_t at, size_t dim)
{
    return dim - at < BLOCK ? dim - at : BLOCK;
}

void tally_weighted_sum_add_floats(const struct tally_setting *setting, uint32_t weight,
                                   const float *values, int64_t *sums)
{
    int64_t addends[BLOCK];
    for (size_t at = 0; at < setting->dim; at += BLOCK) {
        const size_t n = block_at(at, setting->dim);
        tally_fixed_point_of_floats(values + at, n, addends);
        add_block(setting, weight, addends, n, sums + at * tally_weighted_sum_words(setting));
    }
}

void tally_weighted_sum_add_levels(const struct tally_setting *setting, uint32_t weight,
                                   const int32_t *levels, double scale, int64_t *sums)
{
    int64_t addends[BLOCK];
    for (size_t at = 0; at < setting->dim; at += BLOCK) {
        const size_t n = block_at(at, setting->dim);
        tally_fixed_point_of_levels(levels + at, scale, n, addends);
        add_block(setting, weight, addends, n, sums + at * tally_weighted_sum_words(setting));
    }
}

void tally_weighted_sum_add_block(const struct tally_setting *setting, uint32_t weight,
                                  const int64_t *addends, size_t first, size_t n, int64_t *sums)
{
    add_block(setting, weight, addends, n, sums + first * tally_weighted_sum_words(setting));
}

void tally_weighted_means(const struct tally_server_task *task, size_t first, size_t n,
                          double *ret_means)
{
    if (!task->setting->weighs_points) {
        tally_fetch_ahead(task->sums + first, n * sizeof *task->sums);
        tally_fixed_point_means(task->sums + first, n, (double)task->received, ret_means);
        return;
    }
    const double divisor = tally_weighted_divisor(task);
    tally_weighted_values(task, first, n, ret_means);
    for (size_t i = 0; i < n; i++) {
        ret_means[i] /= divisor;
    }
}

void tally_weighted_values(const struct tally_server_task *task, size_t first, size_t n,
                           double *ret_values)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t *word = task->sums + 2 * (first + i);
        ret_values[i] = tally_fixed_point_weighted_value(word, task->weights.unit);
    }
}

double tally_weighted_divisor(const struct tally_server_task *task)
{
    const uint64_t sum = task->weights.sum / task->weights.unit;
    return (double)sum;
}

double tally_weighted_mean(const struct tally_server_task *task, size_t i)
{
    double mean;
    tally_weighted_means(task, i, 1, &mean);
    return mean;
}

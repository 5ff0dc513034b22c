/* EF21: Richtarik, Sokolov, Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and
 * Practically Faster Error Feedback", NeurIPS 2021, Algorithm 2; with several queries a round, its
 * stochastic form (Fatkhullin, Sokolov, Gorbunov, Li, Richtarik, "EF21 with Bells & Whistles:
 * Practical Algorithmic Extensions of Modern Error Feedback", 2021).
 *
 *     client   grad: mean of K gradients at x; sends c_m = C(grad - g_m)
 *     both     g_m <- g_m + c_m;  g_m starts at 0
 *     server   x <- x - eta (1/M) sum g_m; broadcast as float32
 *
 * C keeps k of d coordinates: `top_k` those of largest magnitude (codec/sparse/top_k.h), `rand_k`
 * those that both sides draw from the stream of the message (codec/numeric/subset.h), as they are:
 * |C(v) - v|^2 is at most (1 - k/d) |v|^2, for `rand_k` on average.
 *
 * Idea: both sides keep an estimate g_m of the client's gradient, and each round corrects its k
 * worst coordinates. When x converges, the gradients converge too, and the estimates reach them. A
 * sparse message of the gradient itself would omit the same coordinates every time. g_m is the
 * client's shift (shift.h); the decoded message is added to it without a factor.
 *
 * Departs from the paper: the paper lets g_m start anywhere and suggests the first gradient, which
 * costs a dense message; here g_m starts at 0. A round may lack clients (policy `drop`): they keep
 * their g_m and count with it, as in the partial participation of the second paper. A broadcast has
 * one control bit, which says whether the client's message counted. */
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/float32.h"
#include "codec/numeric/subset.h"
#include "codec/sparse/index_set.h"
#include "codec/sparse/top_k.h"
#include "services/algorithms/baseline.h"
#include "services/algorithms/client_shifts.h"

static enum tally_compressor compressor_of(const struct tally_setting *setting)
{
    return (enum tally_compressor)setting->params->baseline.compressor;
}

static size_t k_of(const struct tally_setting *setting)
{
    return (size_t)setting->params->baseline.k;
}

static enum tally_status plan(const struct tally_setting *setting, int64_t stage,
                              const void *memory, struct tally_round_plan *ret_plan,
                              struct tally_error *err)
{
    if (k_of(setting) > setting->dim) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "k", "k %zu is above the dimension %zu",
                          k_of(setting), setting->dim);
    }
    enum tally_status status = tally_baseline_plan(setting, stage, memory, ret_plan, err);
    ret_plan->facts.shift_gain = 1;
    return status;
}

/* Draws the coordinates of a `rand_k` message, which both sides know. Errors: NO_MEMORY. */
static enum tally_status draw(const struct tally_setting *setting, uint32_t client, uint32_t round,
                              uint32_t *ret_indices, struct tally_error *err)
{
    const uint32_t k = (uint32_t)k_of(setting);
    struct tally_rng rng;
    uint32_t *taken = malloc(tally_subset_room(k) * sizeof *taken);
    if (taken == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to draw %u coordinates", k);
    }
    tally_rng_init(&rng, setting->key, client, round, TALLY_RNG_UPLINK);
    tally_subset_draw(&rng, (uint32_t)setting->dim, k, taken, ret_indices);
    free(taken);
    return TALLY_OK;
}

/* vector[0 .. k - 1] <- the coordinates of vector at the ascending indices. */
static void gather(float *vector, const uint32_t *indices, size_t k)
{
    for (size_t i = 0; i < k; i++) {
        vector[i] = vector[indices[i]];
    }
}

/* The inverse of gather(); all other coordinates become 0. */
static void scatter(float *vector, size_t dim, const uint32_t *indices, size_t k)
{
    size_t end = dim;
    for (size_t i = k; i-- > 0;) {
        const float value = vector[i];
        memset(vector + indices[i], 0, (end - indices[i]) * sizeof *vector);
        vector[indices[i]] = value;
        end = indices[i];
    }
    memset(vector, 0, end * sizeof *vector);
}

static size_t message_bound(const struct tally_setting *setting)
{
    return compressor_of(setting) == TALLY_TOP_K ? tally_top_k_bound(setting->dim, k_of(setting))
                                                 : tally_float32_bound(k_of(setting));
}

static struct tally_bits bits_of(const struct tally_setting *setting, uint64_t payload_bits)
{
    const size_t k = k_of(setting);
    return (struct tally_bits){.formula_bits = compressor_of(setting) == TALLY_TOP_K
                                                   ? tally_top_k_formula_bits(setting->dim, k)
                                                   : 32 * (uint64_t)k,
                               .payload_bits = payload_bits,
                               .messages = 1};
}

/* Writes the first k values of scratch->vector. */
static enum tally_status write_message(const struct tally_setting *setting, const float *values,
                                       const uint32_t *indices, struct tally_message *message,
                                       struct tally_error *err)
{
    const size_t bound = message_bound(setting);
    uint64_t bits = 0;
    enum tally_status status = tally_baseline_open_message(message, 8 * (uint64_t)bound, err);
    if (status != TALLY_OK) {
        return status;
    }
    status =
        compressor_of(setting) == TALLY_TOP_K
            ? tally_top_k_encode(values, indices, setting->dim, k_of(setting),
                                 message->payload.data, bound, &bits, err)
            : tally_float32_encode(values, k_of(setting), message->payload.data, bound, &bits, err);
    message->payload.size = (size_t)((bits + 7) / 8);
    message->bits = bits_of(setting, bits);
    return status;
}

/* Sends C(scratch->vector), and adds it to the client's shift. */
static enum tally_status send(const struct tally_client_task *task, struct tally_scratch *scratch,
                              struct tally_message *message, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const size_t dim = setting->dim, k = k_of(setting);
    float *vector = scratch->vector;
    uint32_t *indices = (uint32_t *)scratch->levels;
    if (tally_baseline_first_unsummable(setting, vector, dim) < dim) {
        return tally_baseline_diverged(task, err);
    }
    enum tally_status status = compressor_of(setting) == TALLY_TOP_K
                                   ? tally_top_k_select(vector, dim, k, indices, err)
                                   : draw(setting, task->client, task->round, indices, err);
    if (status != TALLY_OK) {
        return status;
    }
    gather(vector, indices, k);
    status = write_message(setting, vector, indices, message, err);
    if (status == TALLY_OK) {
        scatter(vector, dim, indices, k);
        tally_shift_add(task->shift, task->round, vector, task->plan->facts.shift_gain, dim);
    }
    return status;
}

static enum tally_status client_step(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = tally_client_loss(task, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    status = tally_client_shifts_difference(task, scratch, err);
    return status != TALLY_OK ? status : send(task, scratch, &answer->message, err);
}

/* Does not change the sums, because the server needs only the shifts. */
static enum tally_status receive(const struct tally_setting *setting,
                                 const struct tally_round_plan *plan,
                                 const struct tally_message_view *message,
                                 struct tally_scratch *scratch, int64_t *sums,
                                 struct tally_bits *ret_bits, struct tally_error *err)
{
    (void)sums;
    const size_t dim = setting->dim, k = k_of(setting);
    float *vector = scratch->vector;
    uint32_t *indices = (uint32_t *)scratch->levels;
    enum tally_status status;
    if (compressor_of(setting) == TALLY_TOP_K) {
        status = tally_top_k_decode(message->payload, message->n_payload, message->payload_bits,
                                    dim, k, vector, indices, err);
    } else {
        status = tally_float32_decode(message->payload, message->n_payload, message->payload_bits,
                                      k, vector, err);
        status = status != TALLY_OK ? status
                                    : draw(setting, message->client, message->number, indices, err);
    }
    if (status == TALLY_OK) {
        status = tally_baseline_check_bounds(setting, vector, k, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    scatter(vector, dim, indices, k);
    tally_shift_add(message->shift, message->number, vector, plan->facts.shift_gain, dim);
    *ret_bits = bits_of(setting, message->payload_bits);
    return TALLY_OK;
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    return tally_client_shifts_mean(task, true, scratch, err) != TALLY_OK
               ? TALLY_NO_MEMORY
               : tally_client_shifts_descend(task, scratch, decision, err);
}

static struct tally_message_bits message_bits(const struct tally_setting *setting)
{
    const size_t k = k_of(setting);
    const bool sends_indices = compressor_of(setting) == TALLY_TOP_K;
    return (struct tally_message_bits){
        .uplink = 32 * (uint64_t)k + (sends_indices ? tally_index_set_bound(setting->dim, k) : 0),
        .downlink = tally_baseline_bits_float32(setting).downlink,
        .is_bound = sends_indices,
        .least = 32 * (uint64_t)k,
        .field = "algorithm.k"};
}

const struct tally_algorithm TALLY_EF21 = {
    .name = "ef21",
    TALLY_BASELINE_COMMON_SLOTS,
    TALLY_CLIENT_SHIFTS_SLOTS(zero),
    .fields = TALLY_EF21_FIELDS,
    .n_fields = 4,
    .plan = plan,
    .step_limit = tally_baseline_step_limit,
    .message_bits = message_bits,
    .receive = receive,
};

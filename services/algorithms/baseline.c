#include "services/algorithms/baseline.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "codec/numeric/fetch.h"
#include "codec/numeric/fixed_point.h"
#include "codec/numeric/float32.h"
#include "codec/quantize/qsgd.h"
#include "services/algorithms/compression.h"
#include "services/algorithms/weights.h"
#include "services/objectives/loss_path.h"
#include "services/objectives/losses/loss_kind.h"

#define PARAM(member) offsetof(struct tally_baseline_params, member)

#define STEP_SIZE                                                                                  \
    TALLY_POSITIVE("step_size", PARAM(step_size), 1e9, .required = true, .unit = "x per gradient", \
                   .doc = "step size eta")
#define LOCAL_STEPS                                                                                \
    TALLY_INTEGER("local_steps", PARAM(local_steps), 1, INT32_MAX, .required = true,               \
                  .unit = "gradient queries",                                                      \
                  .doc = "gradient queries K of a client between two rounds")
#define STEP_DECAY                                                                                 \
    TALLY_REAL("step_decay", PARAM(step_decay), 0, 1e9, .omits_zero = true,                        \
               .unit = "per gradient query",                                                       \
               .doc = "decay of the steps: after t queries per client a step is `step_size` / "    \
                      "(1 + `step_decay` t) long")
#define LOCAL_STEPS_GROWTH                                                                         \
    TALLY_REAL("local_steps_growth", PARAM(local_steps_growth), 0, 1000, .omits_zero = true,       \
               .doc =                                                                              \
                   "growth of round length: a round that begins after t queries per client has "   \
                   "`local_steps` + `local_steps_growth` t queries, rounded down")
#define LEVELS                                                                                     \
    TALLY_INTEGER("levels", PARAM(levels), 1, TALLY_QSGD_MAX_LEVELS, .required = true,             \
                  .unit = "levels", .doc = "levels s of the QSGD quantizer")

const struct tally_field TALLY_BASELINE_FIELDS[4] = {
    STEP_SIZE,
    LOCAL_STEPS,
    LEVELS,
    TALLY_POSITIVE("server_step_size", PARAM(server_step_size), 1e9,
                   .doc = "the server's step size, in units of `step_size`"),
};

const struct tally_field TALLY_SCHEDULED_FIELDS[5] = {
    STEP_SIZE, LOCAL_STEPS, STEP_DECAY, LOCAL_STEPS_GROWTH, LEVELS,
};

const struct tally_field TALLY_PROXIMAL_FIELDS[5] = {
    STEP_SIZE,
    LOCAL_STEPS,
    STEP_DECAY,
    LOCAL_STEPS_GROWTH,
    TALLY_REAL("mu", PARAM(mu), 0, 1e9, .required = true, .unit = "gradient per x",
               .doc = "weight mu of the proximal term mu/2 |x - x_round|^2, which keeps a client "
                      "near the point of the round; 0: `fedavg`"),
};

const struct tally_field TALLY_DIANA_FIELDS[4] = {
    STEP_SIZE,
    LOCAL_STEPS,
    LEVELS,
    TALLY_POSITIVE("alpha", PARAM(alpha), 1, .auto_allowed = true,
                   .doc = "share alpha of a client's message that is added to its shift; `auto`: "
                          "1 / (1 + min(d / `levels`^2, sqrt(d) / `levels`))"),
};

const struct tally_field TALLY_SCAFFOLD_FIELDS[3] = {
    STEP_SIZE,
    LOCAL_STEPS,
    TALLY_POSITIVE(
        "server_step_size", PARAM(server_step_size), 1e9,
        .doc = "the server's step size S, by which the clients' mean difference is multiplied"),
};

static const char *const COMPRESSOR_NAMES[] = {"top_k", "rand_k", NULL};

const struct tally_field TALLY_EF21_FIELDS[4] = {
    STEP_SIZE,
    LOCAL_STEPS,
    TALLY_INTEGER("k", PARAM(k), 1, TALLY_MAX_DIM, .required = true, .unit = "coordinates",
                  .doc = "number of coordinates in a message, at most the dimension"),
    TALLY_CHOICE("compressor", PARAM(compressor), COMPRESSOR_NAMES,
                 .doc = "coordinates that are sent: those of largest magnitude, whose indices are "
                        "sent too, or random ones, which both sides draw from the seed"),
};

union tally_algorithm_params tally_baseline_defaults(void)
{
    return (union tally_algorithm_params){
        .baseline = {.step_size = 1, .local_steps = 1, .server_step_size = 1, .alpha = NAN}};
}

int64_t tally_baseline_first_stage(const union tally_algorithm_params *params)
{
    (void)params;
    return 0; /* no query has been made */
}

struct tally_step_limit tally_baseline_step_limit(const union tally_algorithm_params *params,
                                                  double smoothness)
{
    return (struct tally_step_limit){params->baseline.step_size, 2 / smoothness, "2 / smoothness"};
}

enum tally_status tally_baseline_plan(const struct tally_setting *setting, int64_t stage,
                                      const void *memory, struct tally_round_plan *ret_plan,
                                      struct tally_error *err)
{
    (void)err;
    const struct tally_baseline_params *params = &setting->params->baseline;
    const int64_t more = (int64_t)(params->local_steps_growth * (double)stage);
    *ret_plan = (struct tally_round_plan){.stage = stage, .samples = params->local_steps + more};
    if (tally_is_compressed(setting)) {
        ret_plan->grid = tally_compression_grid(setting, ret_plan->samples, memory);
    }
    return TALLY_OK;
}

/* Whether the stage counts queries. Otherwise it stays 0. */
static bool is_scheduled(const struct tally_baseline_params *params)
{
    return params->step_decay > 0 || params->local_steps_growth > 0;
}

/* The step size after n queries of the open round. */
static double step_size_at(const struct tally_client_task *task, int64_t n)
{
    const struct tally_baseline_params *params = &task->setting->params->baseline;
    return params->step_size / (1 + params->step_decay * (double)(task->plan->stage + n));
}

enum { BLOCK = 256 }; /* its steps stay in the processor's first cache */

static size_t block_at(size_t at, size_t dim)
{
    return dim - at < BLOCK ? dim - at : BLOCK;
}

static uint64_t count_not_finite(const double *x, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) { /* no exit, for vector instructions */
        count += !(fabs(x[i]) <= DBL_MAX);
    }
    return count;
}

enum tally_status tally_baseline_diverged(const struct tally_client_task *task,
                                          struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FINITE, NULL,
                      "the steps of client %u diverged; step_size %g is too large", task->client,
                      task->setting->params->baseline.step_size);
}

/* Takes the step after n queries of the open round from the point `from` to scratch->local, against
 * scratch->gradient. Whether the new point is finite. */
static bool take_step(const struct tally_client_task *task, int64_t n, const double *correction,
                      const double *from, struct tally_scratch *scratch)
{
    const struct tally_setting *setting = task->setting;
    const double mu = setting->params->baseline.mu;
    const double step_size = step_size_at(task, n);
    for (size_t i = 0; mu > 0 && i < setting->dim; i++) {
        scratch->gradient[i] += mu * (from[i] - task->x[i]);
    }
    for (size_t i = 0; correction != NULL && i < setting->dim; i++) {
        scratch->gradient[i] += correction[i];
    }
    uint64_t n_others = 0;
    for (size_t at = 0; at < setting->dim; at += BLOCK) {
        const size_t m = block_at(at, setting->dim);
        tally_fetch_ahead(scratch->gradient + at, m * sizeof *scratch->gradient);
        tally_fetch_ahead(from + at, m * sizeof *from);
        for (size_t i = at; i < at + m; i++) {
            scratch->local[i] = from[i] - step_size * scratch->gradient[i];
        }
        n_others += count_not_finite(scratch->local + at, m);
    }
    if (tally_domain_is_bounded(&setting->domain)) {
        tally_domain_project(&setting->domain, scratch->local, setting->dim);
        n_others = count_not_finite(scratch->local, setting->dim);
    }
    return n_others == 0;
}

/* Whether the client's point is left in scratch->vector: a training loop has float weights, and
 * only a projection makes them doubles. */
static bool stays_float(const struct tally_client_task *task)
{
    return tally_objective_trains(task->objective) &&
           !tally_domain_is_bounded(&task->setting->domain);
}

/* Goes where the client's own training loop leads. */
static enum tally_status train(const struct tally_client_task *task, struct tally_scratch *scratch,
                               struct tally_error *err)
{
    const size_t dim = task->setting->dim;
    for (size_t i = 0; i < dim; i++) {
        scratch->vector[i] = (float)task->x[i];
    }
    enum tally_status status =
        tally_objective_train(task->objective, task->client, task->round, scratch->vector, err);
    if (status == TALLY_OK && !stays_float(task)) {
        for (size_t i = 0; i < dim; i++) {
            scratch->local[i] = (double)scratch->vector[i];
        }
        tally_domain_project(&task->setting->domain, scratch->local, dim);
    }
    return status;
}

enum tally_status tally_baseline_walk(const struct tally_client_task *task,
                                      struct tally_scratch *scratch, double *ret_loss,
                                      struct tally_error *err)
{
    if (tally_objective_trains(task->objective)) {
        return train(task, scratch, err);
    }
    return tally_baseline_corrected_walk(task, NULL, scratch, ret_loss, err);
}

enum tally_status tally_baseline_corrected_walk(const struct tally_client_task *task,
                                                const double *correction,
                                                struct tally_scratch *scratch, double *ret_loss,
                                                struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const size_t dim = setting->dim;
    const int64_t samples = task->plan->samples;
    const int64_t every = setting->evaluate_every;
    struct tally_loss_path path = {0};
    if (task->evaluate && !tally_loss_path_init(&path, task->objective, samples, every)) {
        tally_loss_path_fini(&path);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to evaluate dim %zu", dim);
    }
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, task->client, task->round, TALLY_RNG_SAMPLING);
    const double *here = task->x; /* which need not be copied */
    enum tally_status status = TALLY_OK;
    bool is_finite = true;
    for (int64_t step = 0; status == TALLY_OK && step < samples; step++) {
        if (task->evaluate) {
            status = tally_loss_path_visit(&path, step, here, err);
        }
        if (status == TALLY_OK) {
            status =
                tally_objective_local_gradient(task->objective, task->client, here,
                                               setting->minibatch, &rng, scratch->gradient, err);
        }
        if (status == TALLY_OK) {
            is_finite = take_step(task, step, correction, here, scratch);
            here = scratch->local;
        }
    }
    if (here == task->x) {
        memcpy(scratch->local, task->x, dim * sizeof *task->x);
        is_finite = count_not_finite(scratch->local, dim) == 0;
    }
    if (status == TALLY_OK && task->evaluate) {
        status = tally_loss_path_mean(&path, ret_loss, err);
    }
    tally_loss_path_fini(&path);
    if (status != TALLY_OK) {
        return status;
    }
    if (!is_finite || (task->evaluate && !isfinite(*ret_loss))) {
        return tally_baseline_diverged(task, err);
    }
    return TALLY_OK;
}

void tally_baseline_difference(const struct tally_client_task *task, double scale,
                               struct tally_scratch *scratch)
{
    const size_t dim = task->setting->dim;
    const bool is_float = stays_float(task);
    for (size_t at = 0, n; at < dim; at += n) {
        n = block_at(at, dim);
        tally_fetch_ahead(task->x + at, n * sizeof *task->x);
        tally_fetch_ahead(scratch->vector + at, n * sizeof *scratch->vector);
        for (size_t i = at; is_float && i < at + n; i++) {
            scratch->vector[i] = (float)(scale * ((double)scratch->vector[i] - task->x[i]));
        }
        if (!is_float) {
            tally_fetch_ahead(scratch->local + at, n * sizeof *scratch->local);
        }
        for (size_t i = at; !is_float && i < at + n; i++) {
            scratch->vector[i] = (float)(scale * (scratch->local[i] - task->x[i]));
        }
    }
}

/* Makes room for a message of n payload bits and n formula bits. */
enum tally_status tally_baseline_open_message(struct tally_message *message, uint64_t n_bits,
                                              struct tally_error *err)
{
    const size_t n_bytes = (size_t)((n_bits + 7) / 8);
    message->payload.size = 0;
    enum tally_status status = tally_buffer_reserve(&message->payload, n_bytes);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a message of %zu bytes", n_bytes);
    }
    message->payload.size = n_bytes;
    message->grid = (struct tally_grid){0};
    message->bits =
        (struct tally_bits){.formula_bits = n_bits, .payload_bits = n_bits, .messages = 1};
    return TALLY_OK;
}

static uint32_t qsgd_levels(const struct tally_setting *setting)
{
    return (uint32_t)setting->params->baseline.levels;
}

size_t tally_baseline_memory_bytes(const struct tally_setting *setting)
{
    return tally_is_compressed(setting) ? tally_compression_bytes(setting)
                                        : tally_server_optimizer_bytes(setting);
}

void tally_baseline_memory_begin(const struct tally_setting *setting, const double *x,
                                 int64_t opening_samples, const char *schedule, void *memory)
{
    if (tally_is_compressed(setting)) {
        tally_compression_begin(setting, x, memory);
    } else {
        tally_server_optimizer_begin(setting, x, opening_samples, schedule, memory);
    }
}

bool tally_baseline_memory_is_valid(const struct tally_setting *setting, const void *memory)
{
    return tally_is_compressed(setting) ? tally_compression_is_valid(setting, memory)
                                        : tally_server_optimizer_is_valid(setting, memory);
}

struct tally_message_bits tally_baseline_bits_float32(const struct tally_setting *setting)
{
    if (tally_is_compressed(setting)) {
        return tally_compression_bits(setting);
    }
    const uint64_t bits = 32 * (uint64_t)setting->dim;
    return (struct tally_message_bits){.uplink = bits, .downlink = bits};
}

struct tally_message_bits tally_baseline_bits_qsgd(const struct tally_setting *setting)
{
    return (struct tally_message_bits){.uplink =
                                           tally_qsgd_bits(qsgd_levels(setting), setting->dim),
                                       .downlink = tally_baseline_bits_float32(setting).downlink};
}

static enum tally_status write_float32(const struct tally_setting *setting,
                                       struct tally_scratch *scratch, struct tally_message *message,
                                       struct tally_error *err)
{
    uint64_t n_bits;
    enum tally_status status =
        tally_baseline_open_message(message, tally_baseline_bits_float32(setting).downlink, err);
    return status != TALLY_OK
               ? status
               : tally_float32_encode(scratch->vector, setting->dim, message->payload.data,
                                      message->payload.size, &n_bits, err);
}

/* Whether the server can sum the value exactly; false for NaN. */
static bool is_summable(const struct tally_setting *setting, float value)
{
    return fabs((double)value) <= tally_fixed_point_bound(setting->cohort);
}

size_t tally_baseline_first_unsummable(const struct tally_setting *setting, const float *values,
                                       size_t n)
{
    const double bound = tally_fixed_point_bound(setting->cohort);
    uint32_t n_outside = 0;
    for (size_t at = 0, m; at < n; at += m) {
        m = block_at(at, n);
        tally_fetch_ahead(values + at, m * sizeof *values);
        for (size_t i = at; i < at + m; i++) { /* no exit, for vector instructions */
            n_outside += !(fabs((double)values[i]) <= bound);
        }
    }
    size_t i = n_outside > 0 ? 0 : n;
    while (i < n && is_summable(setting, values[i])) {
        i++;
    }
    return i;
}

/* Both sides: adds a decoded message, float[dim], to the client's shift unless `shift` is NULL. */
static void keep(const struct tally_setting *setting, const struct tally_round_plan *plan,
                 struct tally_shift *shift, uint32_t round, const float *decoded)
{
    if (shift != NULL) {
        tally_shift_add(shift, round, decoded, plan->facts.shift_gain, setting->dim);
    }
}

/* keep() for the message in scratch->levels. */
static void keep_qsgd(const struct tally_setting *setting, const struct tally_round_plan *plan,
                      struct tally_shift *shift, uint32_t round, const struct tally_qsgd *qsgd,
                      struct tally_scratch *scratch)
{
    const double scale = (double)qsgd->norm / (double)qsgd->levels;
    for (size_t i = 0; shift != NULL && i < setting->dim; i++) {
        scratch->vector[i] = (float)(scale * scratch->levels[i]);
    }
    keep(setting, plan, shift, round, scratch->vector);
}

enum tally_status tally_baseline_send_float32(const struct tally_client_task *task,
                                              struct tally_scratch *scratch,
                                              struct tally_message *message,
                                              struct tally_error *err)
{
    const size_t dim = task->setting->dim;
    if (tally_is_compressed(task->setting)) {
        return tally_compression_send(task, scratch, message, err);
    }
    if (tally_baseline_first_unsummable(task->setting, scratch->vector, dim) < dim) {
        return tally_baseline_diverged(task, err);
    }
    enum tally_status status = write_float32(task->setting, scratch, message, err);
    if (status == TALLY_OK) {
        keep(task->setting, task->plan, task->shift, task->round, scratch->vector);
    }
    return status;
}

enum tally_status tally_baseline_send_qsgd(const struct tally_client_task *task,
                                           struct tally_scratch *scratch,
                                           struct tally_message *message, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    struct tally_rng rng;
    struct tally_qsgd qsgd;
    tally_rng_init(&rng, setting->key, task->client, task->round, TALLY_RNG_UPLINK);
    enum tally_status status = tally_qsgd_quantize(
        qsgd_levels(setting), scratch->vector, setting->dim, &rng, &qsgd, scratch->levels, NULL);
    if (status == TALLY_NOT_FINITE || !is_summable(setting, qsgd.norm)) {
        return tally_baseline_diverged(task, err);
    }
    if (status == TALLY_OK) {
        status =
            tally_baseline_open_message(message, tally_baseline_bits_qsgd(setting).uplink, err);
    }
    if (status == TALLY_OK) {
        status = tally_qsgd_encode(&qsgd, scratch->levels, setting->dim, message->payload.data,
                                   message->payload.size);
    }
    if (status == TALLY_OK) {
        keep_qsgd(setting, task->plan, task->shift, task->round, &qsgd, scratch);
    }
    return status;
}

static enum tally_status refuse_value(const struct tally_setting *setting, float value,
                                      const char *name, struct tally_error *err)
{
    const double bound = tally_fixed_point_bound(setting->cohort);
    return tally_fail(err, TALLY_MALFORMED, "payload", "%s %g outside [-%g, %g]", name,
                      (double)value, bound, bound);
}

enum tally_status tally_baseline_check_bounds(const struct tally_setting *setting,
                                              const float *values, size_t n,
                                              struct tally_error *err)
{
    const size_t i = tally_baseline_first_unsummable(setting, values, n);
    return i == n ? TALLY_OK : refuse_value(setting, values[i], "value", err);
}

/* Whether a message need not be decoded into a vector: nothing but plain sums takes it. */
static bool is_only_added(const struct tally_setting *setting,
                          const struct tally_message_view *message)
{
    return !setting->weighs_points && message->shift == NULL;
}

/* Adds a float32 message to the sums in one pass. False, with nothing added, if it is malformed or
 * must be decoded. */
static bool add_float32(const struct tally_setting *setting,
                        const struct tally_message_view *message, int64_t *sums)
{
    return is_only_added(setting, message) &&
           message->n_payload == tally_float32_bound(setting->dim) &&
           message->payload_bits == tally_baseline_bits_float32(setting).uplink &&
           tally_fixed_point_add_float32(message->payload, setting->dim,
                                         tally_fixed_point_bound(setting->cohort),
                                         sums) == setting->dim;
}

enum tally_status tally_baseline_receive_float32(const struct tally_setting *setting,
                                                 const struct tally_round_plan *plan,
                                                 const struct tally_message_view *message,
                                                 struct tally_scratch *scratch, int64_t *sums,
                                                 struct tally_bits *ret_bits,
                                                 struct tally_error *err)
{
    if (tally_is_compressed(setting)) {
        return tally_compression_receive(setting, plan, message, scratch, sums, ret_bits, err);
    }
    *ret_bits = (struct tally_bits){.formula_bits = message->payload_bits,
                                    .payload_bits = message->payload_bits,
                                    .messages = 1};
    if (add_float32(setting, message, sums)) {
        return TALLY_OK;
    }
    enum tally_status status =
        tally_float32_decode(message->payload, message->n_payload, message->payload_bits,
                             setting->dim, scratch->vector, err);
    if (status == TALLY_OK) {
        status = tally_baseline_check_bounds(setting, scratch->vector, setting->dim, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    tally_weighted_sum_add_floats(setting, message->weight, scratch->vector, sums);
    keep(setting, plan, message->shift, message->number, scratch->vector);
    return TALLY_OK;
}

enum tally_status tally_baseline_receive_qsgd(const struct tally_setting *setting,
                                              const struct tally_round_plan *plan,
                                              const struct tally_message_view *message,
                                              struct tally_scratch *scratch, int64_t *sums,
                                              struct tally_bits *ret_bits, struct tally_error *err)
{
    struct tally_qsgd qsgd;
    *ret_bits = (struct tally_bits){.formula_bits = message->payload_bits,
                                    .payload_bits = message->payload_bits,
                                    .messages = 1};
    if (is_only_added(setting, message) &&
        tally_qsgd_add(message->payload, message->n_payload, message->payload_bits,
                       qsgd_levels(setting), setting->dim, tally_fixed_point_bound(setting->cohort),
                       sums)) {
        return TALLY_OK;
    }
    enum tally_status status =
        tally_qsgd_decode(message->payload, message->n_payload, message->payload_bits,
                          qsgd_levels(setting), setting->dim, &qsgd, scratch->levels, err);
    if (status == TALLY_OK && !is_summable(setting, qsgd.norm)) {
        status = refuse_value(setting, qsgd.norm, "norm", err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const double scale = (double)qsgd.norm / (double)qsgd.levels;
    tally_weighted_sum_add_levels(setting, message->weight, scratch->levels, scale, sums);
    keep_qsgd(setting, plan, message->shift, message->number, &qsgd, scratch);
    return TALLY_OK;
}

static int64_t next_stage(const struct tally_server_task *task)
{
    const bool counts = is_scheduled(&task->setting->params->baseline);
    return task->plan->stage + (counts ? task->plan->samples : 0);
}

enum tally_status tally_baseline_decide(const struct tally_server_task *task, double scale,
                                        struct tally_scratch *scratch,
                                        struct tally_decision *decision, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    double square = 0, steps[BLOCK];
    if (tally_is_compressed(setting)) {
        decision->next_stage = next_stage(task);
        return tally_compression_decide(task, scale, scratch, decision, err);
    }
    for (size_t at = 0; at < setting->dim; at += BLOCK) {
        const size_t n = block_at(at, setting->dim);
        tally_fetch_ahead(task->x + at, n * sizeof *task->x);
        tally_fetch_ahead(scratch->vector + at, n * sizeof *scratch->vector);
        tally_weighted_means(task, at, n, steps);
        for (size_t i = 0; i < n; i++) {
            square += steps[i] * steps[i];
            steps[i] *= scale;
        }
        tally_server_optimizer_steps(setting, task->memory, at, n, steps);
        for (size_t i = 0; i < n; i++) {
            scratch->vector[at + i] = (float)(task->x[at + i] + steps[i]);
        }
    }
    return tally_baseline_conclude(task, square, scratch, decision, err);
}

enum tally_status tally_baseline_conclude(const struct tally_server_task *task, double square,
                                          struct tally_scratch *scratch,
                                          struct tally_decision *decision, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    decision->norm = sqrt(square);
    decision->passed = true;
    decision->next_stage = next_stage(task);
    enum tally_status status = write_float32(setting, scratch, &decision->broadcast, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "the new point");
    }
    return status;
}

enum tally_status tally_baseline_apply(const struct tally_setting *setting,
                                       const struct tally_message_view *broadcast,
                                       struct tally_scratch *scratch, double *x,
                                       struct tally_error *err)
{
    if (tally_is_compressed(setting)) {
        return tally_compression_apply(setting, broadcast, scratch, x, err);
    }
    enum tally_status status =
        tally_float32_decode(broadcast->payload, broadcast->n_payload, broadcast->payload_bits,
                             setting->dim, scratch->vector, err);
    if (status != TALLY_OK) {
        return status;
    }
    for (size_t at = 0; at < setting->dim; at += BLOCK) {
        const size_t n = block_at(at, setting->dim);
        tally_fetch_ahead(scratch->vector + at, n * sizeof *scratch->vector);
        tally_fetch_ahead(x + at, n * sizeof *x);
        for (size_t i = at; i < at + n; i++) {
            x[i] = (double)scratch->vector[i];
        }
    }
    tally_domain_project(&setting->domain, x, setting->dim);
    return TALLY_OK;
}

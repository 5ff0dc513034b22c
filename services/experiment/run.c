#include "services/experiment/run.h"

#include <math.h>
#include <stdlib.h>

#include "services/experiment/host_entropy.h"
#include "services/job/job_local.h"

struct recorder {
    const struct tally_job_spec *spec;
    const atomic_bool *stop;
    struct tally_run *run;
    size_t capacity; /* of the curve */
    int32_t *levels; /* scratch, int32[dim] */
    bool failed;     /* memory ran out */
};

void tally_run_fini(struct tally_run *run)
{
    free(run->curve);
    *run = (struct tally_run){0};
}

static void add_point(struct recorder *recorder, double time_step, double regret)
{
    struct tally_run *run = recorder->run;
    if (run->n_points == recorder->capacity) {
        const size_t capacity = recorder->capacity == 0 ? 64 : 2 * recorder->capacity;
        struct tally_run_point *curve = realloc(run->curve, capacity * sizeof *curve);
        if (curve == NULL) {
            recorder->failed = true;
            return;
        }
        run->curve = curve;
        recorder->capacity = capacity;
    }
    run->curve[run->n_points++] = (struct tally_run_point){time_step, regret};
}

static bool on_round(void *context, const struct tally_job *job,
                     const struct tally_round_record *record)
{
    struct recorder *recorder = context;
    (void)job;
    add_point(recorder, (double)record->time_step, record->cumulative_regret);
    return !recorder->failed && !atomic_load(recorder->stop);
}

static void on_message(void *context, const struct tally_job *job, bool is_uplink,
                       const struct tally_message_view *message)
{
    struct recorder *recorder = context;
    struct tally_run *run = recorder->run;
    double bits;
    (void)job;
    if (is_uplink && message->payload_bits == 0) {
        run->uplink.control++; /* it declines: no message, one control bit */
        return;
    }
    /* The engine has accepted the message, so decoding succeeds. */
    if (tally_message_entropy(recorder->spec, is_uplink, message, recorder->levels, &bits, NULL) ==
        TALLY_OK) {
        *(is_uplink ? &run->uplink.entropy_payload : &run->downlink.entropy_payload) += bits;
    }
}

static void take_result(const struct tally_job *job, struct tally_run *run)
{
    const struct tally_progress *progress = tally_job_progress(job);
    const double clients = (double)tally_job_get_spec(job)->clients;
    run->diverged =
        tally_job_status(job) != TALLY_JOB_COMPLETED || !isfinite(progress->cumulative_regret);
    run->regret = run->diverged ? INFINITY : progress->cumulative_regret;
    run->uplink.formula = (double)progress->bits.uplink.formula_bits / clients;
    run->uplink.payload = (double)progress->bits.uplink.payload_bits / clients;
    run->uplink.entropy_payload /= clients;
    run->downlink.formula = (double)progress->bits.downlink.formula_bits;
    run->downlink.payload = (double)progress->bits.downlink.payload_bits;
    run->downlink.control = (double)progress->bits.control_bits - run->uplink.control;
    run->uplink.control /= clients;
}

enum tally_status tally_run_job(const struct tally_job_spec *spec,
                                const struct tally_objective *objective, double f_star,
                                const atomic_bool *stop, struct tally_run *ret_run,
                                struct tally_error *err)
{
    struct tally_run run = {0};
    struct recorder recorder = {.spec = spec,
                                .stop = stop,
                                .run = &run,
                                .levels = malloc(objective->dim * sizeof *recorder.levels)};
    const struct tally_local_observer observer = {
        .context = &recorder, .on_round = on_round, .on_message = on_message};
    struct tally_job *job = NULL;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = TALLY_NO_MEMORY;
    add_point(&recorder, 0, 0);
    if (recorder.levels != NULL && !recorder.failed) {
        status = tally_local_run_on(spec, objective, f_star, &observer, &job, &why);
    }
    if (status == TALLY_OK) {
        take_result(job, &run);
    }
    tally_job_free(job);
    free(recorder.levels);
    if (status == TALLY_OK) {
        *ret_run = run;
        return TALLY_OK;
    }
    tally_run_fini(&run);
    if (recorder.failed || status == TALLY_NO_MEMORY) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a run of dim %zu",
                          objective->dim);
    }
    return tally_fail(err, status, why.field, "%s", why.message);
}

double tally_run_regret_at(const struct tally_run *run, double time_step)
{
    size_t i = 0;
    while (i < run->n_points && run->curve[i].time_step < time_step) {
        i++;
    }
    if (i == run->n_points) {
        return INFINITY; /* it had diverged by then */
    }
    const struct tally_run_point *to = &run->curve[i];
    if (i == 0) {
        return to->regret;
    }
    const double share = (time_step - to[-1].time_step) / (to->time_step - to[-1].time_step);
    return to[-1].regret + share * (to->regret - to[-1].regret);
}

/* Operations of one evaluation of f: a pass over the images, or a quadratic form. */
static double evaluation_cost(const struct tally_job_spec *spec)
{
    const struct tally_data_spec *data = &spec->objective.data;
    const double dim = (double)tally_objective_spec_dim(&spec->objective);
    return data->type == TALLY_DATA_IDX
               ? 2 * dim * (double)(data->idx.classes * data->idx.points_per_class)
               : 2 * dim * dim;
}

double tally_run_cost(const struct tally_job_spec *spec)
{
    const double steps = (double)(spec->clients * spec->horizon);
    const double dim = (double)tally_objective_spec_dim(&spec->objective);
    const bool moves = tally_job_spec_algorithm(spec)->moves_locally;
    /* If clients do not move locally, f is evaluated once per iterate, of which there are
     * dozens. */
    const double evaluations = moves ? steps / (double)spec->evaluate_every : 50;
    return 1e-9 * (4 * dim * (double)spec->minibatch * steps + evaluations * evaluation_cost(spec));
}

/* job_stopping: the rules of `stop` that need no clock, and the best point (`keep.best`).
 *
 * When a round closes, its metrics and its loss are numbers of the point that the clients had,
 * which is still the engine's point: the round has not moved it yet. So they are judged then:
 *
 *     the round's answers -> metrics, loss -> better than all before? keep a copy of the point
 *                                          -> a rule is met? the job ends with this point
 *                                          -> else the round moves the point
 *
 * A round that meets a rule thus takes no step, and the model of a job that stopped is the one that
 * was measured. The rules about bits are checked after the round's step, whose broadcast they
 * count; if models are evaluated, the one that this step has made is, before the job ends. Its
 * reason is therefore written at the end, from progress.stopped, which is stored. The host's rule
 * about seconds takes the answers of the open round back, and continues in the same way. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/job/job_engine.h"

static double mean_of(const char *name, const char *metrics)
{
    struct tally_metric_summary summary;
    while (tally_metrics_next(&metrics, &summary)) {
        if (strcmp(summary.name, name) == 0) {
            return summary.mean;
        }
    }
    return (double)NAN;
}

/* The value with this name, NaN = there is none, and the round whose record has it. */
static double value_of(const char *name, const struct job_measured *measured, int64_t *ret_round)
{
    const double evaluated = mean_of(name, measured->evaluation->metrics);
    *ret_round = isnan(evaluated) ? measured->round : measured->evaluation->round;
    if (!isnan(evaluated)) {
        return evaluated;
    }
    const double mean = mean_of(name, measured->metrics);
    return isnan(mean) && strcmp(name, TALLY_LOSS_NAME) == 0 && isfinite(measured->loss)
               ? measured->loss
               : mean;
}

static bool is_better(double value, double best, double by, bool is_lower)
{
    return is_lower ? value < best - by : value > best + by;
}

/* Keeps the point if it is the best so far. Of equal points the first stays. */
static void note_best(struct tally_job *job, const struct job_measured *measured)
{
    const struct tally_keep *keep = &job->spec.keep;
    struct tally_best *best = &job->progress.best;
    if (keep->best[0] == '\0') {
        return;
    }
    int64_t round;
    const double value = value_of(keep->best, measured, &round);
    const bool is_lower = tally_better_is_lower(keep->better, keep->best);
    if (!isnan(value) && (best->iterate == 0 || is_better(value, best->value, 0, is_lower))) {
        *best = (struct tally_best){value, job->progress.round, job->progress.iterate};
        memcpy(job->best_x, job->x, job->setting.dim * sizeof *job->x);
        job->has_new_best = true;
    }
}

static void set_stopped(struct tally_job *job, const char *rule, double value, int64_t round)
{
    struct tally_stopped *stopped = &job->progress.stopped;
    *stopped = (struct tally_stopped){.value = value, .round = round};
    snprintf(stopped->rule, sizeof stopped->rule, "%s", rule);
}

/* Sets progress.stopped, and the reason that people read. */
static void stop(struct tally_job *job, const char *rule, double value, int64_t round,
                 const char *text)
{
    set_stopped(job, rule, value, round);
    TALLY_REASON_WRITE(job->reason, STOP_RULE_MET, text);
}

bool job_has_stopped(const struct tally_job *job)
{
    return job->progress.stopped.rule[0] != '\0';
}

static bool meets_threshold(struct tally_job *job, const struct job_measured *measured)
{
    int64_t round = 0;
    const struct tally_stop *rules = &job->spec.stop;
    const double value =
        rules->metric[0] != '\0' ? value_of(rules->metric, measured, &round) : (double)NAN;
    const bool is_met = value >= rules->at_least || value <= rules->at_most; /* false for NaN */
    if (is_met) {
        const bool is_least = value >= rules->at_least;
        char text[TALLY_REASON_CAPACITY];
        snprintf(text, sizeof text, "%s %g of round %" PRId64 " is %s %g", rules->metric, value,
                 round, is_least ? "at least" : "at most",
                 is_least ? rules->at_least : rules->at_most);
        stop(job, "metric", value, round, text);
    }
    return is_met;
}

static bool meets_loss(struct tally_job *job, const struct job_measured *measured)
{
    const double loss = measured->loss;
    const int64_t round = measured->round;
    const bool is_met = isfinite(loss) && loss <= job->spec.stop.loss;
    if (is_met) {
        char text[TALLY_REASON_CAPACITY];
        snprintf(text, sizeof text, "loss %g of round %" PRId64 " is at most %g", loss, round,
                 job->spec.stop.loss);
        stop(job, "loss", loss, round, text);
    }
    return is_met;
}

/* Counts a value, if there is one. */
static bool loses_patience(struct tally_job *job, const struct job_measured *measured)
{
    int64_t round = 0;
    const struct tally_stop *rules = &job->spec.stop;
    const char *name = tally_stop_watched(rules);
    struct tally_patience *patience = &job->progress.patience;
    const double value = rules->patience > 0 ? value_of(name, measured, &round) : (double)NAN;
    if (isnan(value)) {
        return false;
    }
    const bool is_lower = tally_better_is_lower(rules->better, name);
    if (patience->round == 0 || is_better(value, patience->best, rules->min_delta, is_lower)) {
        *patience = (struct tally_patience){.best = value, .round = round};
        return false;
    }
    const bool is_met = ++patience->n_stale >= rules->patience;
    if (is_met) {
        char text[TALLY_REASON_CAPACITY];
        snprintf(text, sizeof text, "%s %g of round %" PRId64 " was not improved in %" PRId64 "%s",
                 name, patience->best, patience->round, rules->patience,
                 rules->patience == 1 ? " round" : " rounds");
        stop(job, "patience", patience->best, patience->round, text);
    }
    return is_met;
}

bool job_judges_points(const struct tally_job *job)
{
    const struct tally_stop *rules = &job->spec.stop;
    return job->spec.keep.best[0] != '\0' || rules->metric[0] != '\0' || rules->patience > 0 ||
           !isnan(rules->loss);
}

bool job_judge_point(struct tally_job *job, const struct job_measured *measured)
{
    note_best(job, measured);
    if (job_has_stopped(job)) {
        return false;
    }
    const bool loses = loses_patience(job, measured); /* counts in every case */
    return meets_threshold(job, measured) || meets_loss(job, measured) || loses;
}

static bool meets_bits(struct tally_job *job, const char *rule, uint64_t payload_bits,
                       int64_t limit)
{
    const uint64_t bits = payload_bits + job->progress.bits.control_bits;
    const bool is_met = limit > 0 && bits >= (uint64_t)limit;
    if (is_met) {
        set_stopped(job, rule, (double)bits, job->progress.round);
    }
    return is_met;
}

void job_judge_bits(struct tally_job *job)
{
    const struct tally_ledger *bits = &job->progress.bits;
    const struct tally_stop *rules = &job->spec.stop;
    if (!meets_bits(job, "uplink_bits", bits->uplink.payload_bits, rules->uplink_bits)) {
        (void)meets_bits(job, "downlink_bits", bits->downlink.payload_bits, rules->downlink_bits);
    }
}

/* Writes the reason of a rule that is met by no measured value. */
static void write_reason(struct tally_job *job)
{
    const struct tally_stopped *stopped = &job->progress.stopped;
    const struct tally_stop *rules = &job->spec.stop;
    char text[TALLY_REASON_CAPACITY];
    if (strcmp(stopped->rule, "seconds") == 0) {
        snprintf(text, sizeof text, "%g seconds have passed, at least %g", stopped->value,
                 rules->seconds);
    } else {
        const bool is_up = strcmp(stopped->rule, "uplink_bits") == 0;
        snprintf(text, sizeof text, "%s are %.0f, at least %" PRId64, stopped->rule, stopped->value,
                 is_up ? rules->uplink_bits : rules->downlink_bits);
    }
    TALLY_REASON_WRITE(job->reason, STOP_RULE_MET, text);
}

void job_end(struct tally_job *job)
{
    if (job_has_stopped(job) && job->reason[0] == '\0') {
        write_reason(job);
    }
    job->open = (struct tally_job_round){0};
    job->clients.n_awaited = 0;
    job_move(job, TALLY_EVENT_COMPLETE, NULL);
}

enum tally_status tally_job_stop(struct tally_job *job, double seconds,
                                 struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    *ret_outcome = (struct tally_job_outcome){0};
    if (!job_is_open(job)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "the job is %s",
                          tally_job_status_name(job->status));
    }
    job->has_new_best = false;
    if (tally_job_round_only_evaluates(&job->open)) {
        job_close_round(job, ret_outcome);
        return TALLY_OK;
    }
    set_stopped(job, "seconds", seconds, job->progress.round);
    if (job->open.evaluate_model) {
        job_clients_withdraw(&job->clients);
        job_open_round(job, ret_outcome);
        return TALLY_OK;
    }
    write_reason(job);
    return job_move(job, TALLY_EVENT_COMPLETE, err);
}

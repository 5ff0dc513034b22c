/* job_round: opening, closing and recording rounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/wide_sum.h"
#include "codec/utf8.h"
#include "services/job/job_engine.h"

/* The algorithm cannot continue, because of the error `why`. */
static void fail_algorithm(struct tally_job *job, const struct tally_error *why)
{
    if (why->status == TALLY_NOT_FINITE) {
        TALLY_REASON_WRITE(job->reason, DIVERGED, why->message);
    } else {
        TALLY_REASON_WRITE(job->reason, ALGORITHM_FAILED, why->message);
    }
    job_move(job, TALLY_EVENT_FAIL, NULL);
}

/* The cumulative regret after `samples` more queries of every client at the last loss. */
static double regret_after(const struct tally_job *job, int64_t samples)
{
    const struct tally_progress *progress = &job->progress;
    return progress->cumulative_regret +
           (double)(samples * job->setting.cohort) * (progress->loss - progress->f_star);
}

static void add_record(struct tally_job *job, struct tally_round_record *record,
                       struct tally_job_outcome *outcome)
{
    struct tally_progress *progress = &job->progress;
    progress->round++;
    progress->time_step += record->samples;
    progress->cumulative_regret = regret_after(job, record->samples);
    if (progress->round == 1) {
        record->bits.control_bits += job->survey.bits;
    }
    tally_ledger_add(&progress->bits, &record->bits);
    record->round = progress->round;
    record->time_step = progress->time_step;
    record->loss = progress->loss;
    record->cumulative_regret = progress->cumulative_regret;
    job_metrics_close(&job->metrics, record->round, record->metrics);
    if (record->metrics[0] != '\0') {
        tally_metrics_update(progress->metrics, record->metrics);
    }
    if (outcome != NULL) {
        outcome->records[outcome->n_records++] = *record;
    }
    job_check_invariants(job);
}

/* Checks that the regret stays finite if the open round, of which the loss is known, has `samples`
 * queries: large losses may add up to infinity. Without a reference the regret is NaN. */
static enum tally_status check_regret(const struct tally_job *job, int64_t samples,
                                      struct tally_error *err)
{
    const double regret = regret_after(job, samples);
    return isfinite(regret) || !job_has_regret(job)
               ? TALLY_OK
               : tally_fail(err, TALLY_NOT_FINITE, NULL,
                            "the regret after round %lld is not finite: the loss is %g, f(x*) %g",
                            (long long)job->open.round, job->progress.loss, job->progress.f_star);
}

void job_note_setback(struct tally_job *job, const char *why)
{
    char *setback = job->progress.setback;
    memset(setback, 0, TALLY_SETBACK_CAPACITY);
    memcpy(setback, why, strnlen(why, TALLY_SETBACK_CAPACITY - 1));
    setback[tally_utf8_valid_prefix(setback, strlen(setback))] = '\0';
    tally_utf8_sanitize_line(setback);
}

/* Evaluation of models. */

bool tally_job_round_evaluates(const struct tally_job_round *round, uint32_t client)
{
    return round->evaluate_model && (round->evaluator == 0 || round->evaluator == client + 1);
}

bool tally_job_round_only_evaluates(const struct tally_job_round *round)
{
    return round->evaluate_model && round->plan.cut && round->plan.samples == 0;
}

/* The client that evaluates the model of the open round: the first one that is asked to compute,
 * under `drop` the first of those that are not absent. */
static enum tally_status choose_evaluator(struct tally_job *job, uint32_t *ret_client,
                                          struct tally_error *err)
{
    const uint32_t n = job->clients.cohort.n;
    uint32_t *order = malloc(n * sizeof *order);
    if (order == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a round of %u clients", n);
    }
    memcpy(order, job->clients.cohort.drawn, n * sizeof *order);
    const enum tally_status status = tally_job_order(job, order, n, err);
    uint32_t i = 0;
    while (job->spec.policy == TALLY_POLICY_DROP && i < n - 1 &&
           job->clients.all[order[i]].absent) {
        i++;
    }
    *ret_client = order[i];
    free(order);
    return status;
}

/* Has the clients of the open round evaluate its point, if a round has made it and none has
 * queried it. Without memory nobody does. */
static void ask_to_evaluate(struct tally_job *job)
{
    uint32_t client = 0;
    const bool is_new = job->progress.round > 0 && !job->progress.has_loss;
    if (!is_new || !tally_job_spec_evaluates(&job->spec) ||
        (job->spec.evaluation == TALLY_EVALUATION_ONE &&
         choose_evaluator(job, &client, NULL) != TALLY_OK)) {
        return;
    }
    job->open.evaluate_model = true;
    job->open.evaluator = job->spec.evaluation == TALLY_EVALUATION_ONE ? client + 1 : 0;
}

/* Opens the round after the last one, in which the last model is evaluated. False if it is not. */
static bool open_last_evaluation(struct tally_job *job)
{
    if (!job->open.evaluate_model) {
        return false;
    }
    job->open.evaluate = false;
    job->open.plan = (struct tally_round_plan){.stage = job->progress.stage, .cut = true};
    if (job->open.evaluator > 0) {
        job_clients_leave_only(&job->clients, job->open.evaluator - 1);
    }
    return true;
}

/* Concludes the evaluation of the open round's point, the model of the last closed round. */
static void take_evaluation(struct tally_job *job, struct tally_round_evaluation *ret_evaluation)
{
    if (job->open.evaluate_model) {
        job_metrics_close(&job->evaluation, job->progress.round, ret_evaluation->metrics);
    }
    if (ret_evaluation->metrics[0] != '\0') {
        ret_evaluation->round = job->progress.round;
        tally_metrics_update(job->progress.metrics, ret_evaluation->metrics);
    }
}

/* Opening. */

/* Round (k, j) would exceed T: the rest of the horizon counts in the regret, and nothing is
 * sent. */
static void cut_at_horizon(struct tally_job *job, struct tally_job_outcome *outcome)
{
    struct tally_progress *progress = &job->progress;
    struct tally_round_record record = {.iterate = progress->iterate,
                                        .stage = progress->stage,
                                        .samples = job->spec.horizon - progress->time_step,
                                        .cut = true};
    record.bits.uplink = job->received_bits; /* of weights only */
    record.bits.telemetry_bits = job->telemetry_bits;
    if (job->open.evaluate) {
        tally_job_list_missing(job, record.missing);
    }
    add_record(job, &record, outcome);
    job_end(job);
}

/* A digest of all that a client's update depends on besides spec, client and round. Below 2^28, so
 * that it takes at most four bytes as a varint; never 0. */
static uint32_t mark_of(const struct tally_job *job)
{
    enum { N_MARKS = (1 << 28) - 1 };
    const struct tally_job_round *open = &job->open;
    const struct tally_round_plan *plan = &open->plan;
    const struct tally_walk_facts *facts = &plan->facts;
    const uint64_t integers[] = {job->progress.x_checksum,
                                 (uint64_t)open->iterate,
                                 (uint64_t)plan->stage,
                                 (uint64_t)plan->samples,
                                 plan->grid.intervals,
                                 plan->grid.scale,
                                 plan->max_bits,
                                 (uint64_t)facts->repeats,
                                 plan->cut,
                                 open->evaluate};
    const double reals[] = {plan->grid.step,   facts->distance,     facts->client_spread,
                            facts->noise,      facts->noise_growth, facts->travel_step,
                            facts->shift_gain, facts->step_size};
    const uint64_t survey[] = {open->surveys, open->scaling};
    uint64_t sum = tally_checksum64(integers, sizeof integers);
    if (job->survey.features > 0) {
        sum = tally_checksum64_more(sum, survey, sizeof survey);
    }
    return 1 + (uint32_t)(tally_checksum64_more(sum, reals, sizeof reals) % N_MARKS);
}

/* Has all clients survey their points, before the first round. */
static void open_survey(struct tally_job *job)
{
    job->open.surveys = true;
    job->open.evaluate = false;
    job->open.plan = (struct tally_round_plan){.stage = job->progress.stage};
    job_clients_open_all(&job->clients, job->open.round);
    job->open.mark = mark_of(job);
    job_check_invariants(job);
}

void job_open_sums(struct tally_job *job)
{
    tally_sums_clear(&job->setting, job->sums);
    job->weights = (struct tally_weights){0};
    job->received_bits = (struct tally_bits){0};
}

void job_open_round(struct tally_job *job, struct tally_job_outcome *outcome)
{
    struct tally_progress *progress = &job->progress;
    job_open_sums(job);
    job->telemetry_bits = 0;
    job_metrics_clear(&job->metrics);
    job_metrics_clear(&job->evaluation);
    job->open = (struct tally_job_round){.round = progress->round + 1,
                                         .iterate = progress->iterate,
                                         .evaluate = !progress->has_loss,
                                         .scaling = job->survey.digest};
    job_clients_open_round(&job->clients, job->open.round);
    job_kept_open(job);
    ask_to_evaluate(job);
    int64_t left = job->spec.horizon - progress->time_step;
    if (left == 0 || job_has_stopped(job)) {
        if (open_last_evaluation(job)) {
            job->open.mark = mark_of(job);
        } else {
            job_end(job);
        }
        return;
    }
    if (job_survey_is_due(&job->survey)) {
        open_survey(job);
        return;
    }
    struct tally_error why = TALLY_ERROR_INIT;
    if (job->algorithm->plan(&job->setting, progress->stage, job->memory, &job->open.plan, &why) !=
        TALLY_OK) {
        fail_algorithm(job, &why);
        return;
    }
    /* Clients that go on from queries of the opening round leave the point, whose loss is known. */
    const bool leaves = job->open.plan.facts.repeats > 0 && job->open.plan.samples > 0;
    const bool is_known = progress->has_loss && !leaves;
    job->open.evaluate = !is_known;
    if (job->open.plan.samples > left) {
        job->open.plan.samples = left;
        job->open.plan.cut = true;
        if (is_known && check_regret(job, left, &why) != TALLY_OK) {
            fail_algorithm(job, &why);
            return;
        }
        if (is_known) {
            cut_at_horizon(job, outcome);
            return;
        }
    }
    job->open.mark = mark_of(job);
    job_check_invariants(job);
}

/* Closing. */

/* The answer of the i-th client of the cohort, in client order; NULL if it has not answered. */
static const struct job_client *answer_of(const struct tally_job *job, uint32_t i)
{
    const uint32_t client = job->clients.cohort.drawn[i];
    return tally_job_has_received(job, client) ? &job->clients.all[client] : NULL;
}

/* Takes the mean of the clients' losses, which is NaN if one of them has reported none. */
static void take_losses(struct tally_job *job)
{
    if (!job->open.evaluate) {
        return;
    }
    const bool is_weighted = tally_job_spec_weighs_losses(&job->spec);
    struct tally_wide_sum sum = {0};
    double n = 0;
    for (uint32_t i = 0; i < job->clients.cohort.n; i++) {
        const struct job_client *client = answer_of(job, i);
        if (client != NULL) {
            const uint32_t weight = is_weighted ? client->weight / job->weights.unit : 1;
            tally_wide_sum_add(&sum, weight, client->loss);
            n += weight;
        }
    }
    job->progress.loss = tally_wide_sum_mean(&sum, n);
    job->progress.has_loss = true;
}

/* The record of the open round, except what the algorithm decides. */
static struct tally_round_record record_of(const struct tally_job *job)
{
    struct tally_round_record record = {.iterate = job->open.iterate,
                                        .stage = job->open.plan.stage,
                                        .samples = job->open.plan.samples,
                                        .received = job->open.received};
    tally_job_list_missing(job, record.missing);
    record.bits.uplink = job->received_bits;
    record.bits.telemetry_bits = job->telemetry_bits;
    return record;
}

bool job_is_opening(const struct tally_job *job)
{
    const struct tally_opening *opening = job->algorithm->opening;
    return opening != NULL && opening->opens(&job->params);
}

/* Estimates the unknown parameters from the reports of the clients that answered. */
static enum tally_status estimate(struct tally_job *job, struct tally_round_record *record,
                                  struct tally_error *err)
{
    const struct tally_opening *opening = job->algorithm->opening;
    struct tally_report *reports = calloc((size_t)job->open.received, sizeof *reports);
    if (reports == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' reports");
    }
    int64_t n = 0;
    for (uint32_t i = 0; i < job->clients.cohort.n; i++) {
        const struct job_client *client = answer_of(job, i);
        if (client != NULL) {
            reports[n++] = client->report;
        }
    }
    struct tally_estimates estimates = {0};
    enum tally_status status = opening->conclude(&job->setting, &job->open.plan, reports, n,
                                                 &estimates, &record->bits.control_bits, err);
    free(reports);
    union tally_algorithm_params params = job->params;
    if (status == TALLY_OK && !opening->adopt(&job->setting, &estimates, &params)) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, "algorithm",
                            "an estimate of the opening round is not a positive finite number; "
                            "give the members that are `auto`");
    }
    if (status == TALLY_OK) {
        job->progress.estimates = estimates;
        job->params = params;
        job->progress.stage = job->algorithm->first_stage(&job->params);
        job_begin_memory(job, job->open.plan.samples, "");
    }
    return status;
}

/* The server decodes its own broadcast, as every client does, so that all copies of x are equal. */
static enum tally_status take_broadcast(struct tally_job *job, struct tally_round_record *record,
                                        struct tally_error *err)
{
    struct tally_progress *progress = &job->progress;
    struct tally_message_view view = tally_message_view(&job->decision.broadcast);
    view.number = (uint32_t)progress->iterate + 1;
    enum tally_status status =
        job->algorithm->apply(&job->setting, &view, &job->scratch, job->x, err);
    if (status != TALLY_OK) {
        return status;
    }
    record->bits.downlink = job->decision.broadcast.bits;
    record->bits.delivered_payload_bits =
        job->decision.broadcast.bits.payload_bits * job->setting.cohort;
    progress->iterate++;
    progress->has_loss = false;
    progress->x_checksum = job_sum_point(job);
    job_broadcasts_add(&job->broadcasts, job->setting.dim, &job->decision.broadcast);
    return TALLY_OK;
}

/* Tells an algorithm that keeps accounts how much each client has sent. Returns the control bits of
 * the clients that declined to send: one bit each. */
static uint64_t spend(struct tally_job *job)
{
    const bool keeps_accounts = job->memory != NULL && job->algorithm->memory.spend != NULL;
    for (uint32_t i = 0; keeps_accounts && i < job->clients.cohort.n; i++) {
        const struct job_client *client = answer_of(job, i);
        if (client != NULL) {
            job->algorithm->memory.spend(&job->setting, job->memory, job->clients.cohort.drawn[i],
                                         client->receipt.payload_bits);
        }
    }
    return (uint64_t)job->open.received - (uint64_t)job->received_bits.messages;
}

static double sum_squares(const struct tally_job *job)
{
    double sum = 0;
    for (uint32_t i = 0; job->memory != NULL && i < job->clients.cohort.n; i++) {
        const struct job_client *client = answer_of(job, i);
        sum += client != NULL ? client->report.norm : 0;
    }
    return sum;
}

enum tally_status job_decide(struct tally_job *job, struct tally_round_record *record,
                             struct tally_error *err)
{
    struct tally_decision *decision = &job->decision;
    decision->passed = false;
    decision->norm = 0;
    decision->control_bits = 0;
    const uint64_t declined = spend(job);
    const struct tally_server_task task = {.setting = &job->setting,
                                           .plan = &job->open.plan,
                                           .sums = job->sums,
                                           .received = (int64_t)job->received_bits.messages,
                                           .weights = job->weights,
                                           .round = (uint32_t)job->open.round,
                                           .squares = sum_squares(job),
                                           .iterate = (uint32_t)job->open.iterate,
                                           .x = job->x,
                                           .memory = job->memory};
    enum tally_status status = job->algorithm->decide(&task, &job->scratch, decision, err);
    record->norm = decision->norm;
    record->passed = decision->passed;
    record->bits.control_bits = declined + !decision->passed + decision->control_bits;
    if (status == TALLY_OK && decision->passed) {
        status = take_broadcast(job, record, err);
    }
    if (status == TALLY_OK) {
        job->progress.stage = decision->next_stage;
    }
    return status;
}

/* Judges the point by what has been measured at it: by the clients of the round, and by the
 * evaluation. */
static bool judge(struct tally_job *job, const struct tally_round_evaluation *evaluation)
{
    if (!job_judges_points(job)) {
        return false;
    }
    char metrics[TALLY_METRICS_CAPACITY];
    job_metrics_summarize(&job->metrics, metrics);
    return job_judge_point(job, &(struct job_measured){.metrics = metrics,
                                                       .round = job->open.round,
                                                       .evaluation = evaluation,
                                                       .loss = job->progress.loss});
}

/* The round of the last evaluation has no record: its bits go to that of the last round. */
static void close_last_evaluation(struct tally_job *job, struct tally_round_evaluation *evaluation)
{
    if (evaluation->round != 0) {
        evaluation->telemetry_bits = job->telemetry_bits;
        job->progress.bits.telemetry_bits += job->telemetry_bits;
    }
    const struct job_measured measured = {
        .metrics = "", .evaluation = evaluation, .loss = (double)NAN};
    if (job_judges_points(job)) {
        (void)job_judge_point(job, &measured);
    }
    job_end(job);
}

/* The record of a round that takes no step, because the job ends with the point that it has. */
static void rest(struct tally_job *job, struct tally_round_record *record)
{
    record->bits.control_bits = spend(job);
}

void job_close_round(struct tally_job *job, struct tally_job_outcome *outcome)
{
    const double last_loss = job->progress.loss;
    struct tally_error why = TALLY_ERROR_INIT;
    struct tally_round_record record = record_of(job);
    bool decides = false;
    job->has_new_best = false;
    /* From here on, all metrics of the last closed round are known, before the next step is taken:
     * those of its model are in outcome->evaluation, and progress.metrics has all. */
    take_evaluation(job, &outcome->evaluation);
    if (tally_job_round_only_evaluates(&job->open)) {
        close_last_evaluation(job, &outcome->evaluation);
        return;
    }
    take_losses(job);
    enum tally_status status = check_regret(job, job->open.plan.samples, &why);
    const bool stops = status == TALLY_OK && judge(job, &outcome->evaluation);
    if (status == TALLY_OK && job->open.plan.cut) {
        cut_at_horizon(job, outcome);
        return;
    }
    if (status == TALLY_OK && job_is_opening(job)) {
        status = estimate(job, &record, &why);
    } else if (status == TALLY_OK && stops) {
        rest(job, &record);
    } else if (status == TALLY_OK) {
        status = job_decide(job, &record, &why);
        decides = true;
    }
    job_kept_close(job, decides);
    if (status != TALLY_OK) {
        job->progress.loss = last_loss; /* the round is not recorded */
        job->progress.has_loss = !job->open.evaluate;
        job->progress.stopped = (struct tally_stopped){.round = 0};
        fail_algorithm(job, &why);
        return;
    }
    add_record(job, &record, outcome);
    tally_metrics_update(job->progress.metrics, outcome->evaluation.metrics); /* they win */
    if (!stops && job->progress.time_step < job->spec.horizon) {
        job_judge_bits(job);
    }
    if (stops) {
        job_end(job);
    } else {
        job_open_round(job, outcome);
    }
}

/* All clients have answered the survey: the first round opens. */
static void close_survey(struct tally_job *job, struct tally_job_outcome *outcome)
{
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status = job_survey_close(&job->survey, &job->spec, &why);
    job_clients_close_all(&job->clients);
    if (status != TALLY_OK) {
        job->open = (struct tally_job_round){0};
        TALLY_REASON_WRITE(job->reason, SURVEY_FAILED, why.message);
        job_move(job, TALLY_EVENT_FAIL, NULL);
        return;
    }
    outcome->surveyed = true;
    job_open_round(job, outcome);
}

/* The round that only evaluates needs no quorum: the job's result is complete without it. */
static void close_evaluation_if_complete(struct tally_job *job, struct tally_job_outcome *outcome)
{
    const int64_t most = job->open.evaluator > 0 ? 1 : (int64_t)tally_job_spec_answers(&job->spec);
    const bool may_end = job->spec.policy != TALLY_POLICY_WAIT && job->open.overdue;
    const bool waits_for_none =
        job->spec.policy == TALLY_POLICY_DROP && job->clients.n_awaited == 0;
    if (job->open.received == most || may_end || waits_for_none) {
        job_close_round(job, outcome);
    }
}

void job_close_if_complete(struct tally_job *job, struct tally_job_outcome *outcome)
{
    if (job->open.surveys) {
        if (job->open.received == job->clients.n) {
            close_survey(job, outcome);
        }
        return;
    }
    if (tally_job_round_only_evaluates(&job->open)) {
        close_evaluation_if_complete(job, outcome);
        return;
    }
    const uint32_t answers = tally_job_spec_answers(&job->spec);
    const bool may_drop = job->spec.policy != TALLY_POLICY_WAIT &&
                          job->open.received >= (job->spec.quorum > 0 ? job->spec.quorum : answers);
    const bool waits_for_none =
        job->spec.policy == TALLY_POLICY_DROP && job->clients.n_awaited == 0;
    if (job->open.received == answers || (may_drop && (job->open.overdue || waits_for_none))) {
        job_close_round(job, outcome);
    }
}

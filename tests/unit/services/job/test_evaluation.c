/* Evaluation of the models of a job whose clients train, and failures that cost a client a round.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/job/document.h"
#include "services/job/job_local.h"
#include "services/job/model_copy.h"
#include "services/objectives/plugin_objective.h"
#include "tests/harness.h"

/* The plug-in: client m moves the weight half the way to m. */

static struct {
    int n_evaluations;
    uint32_t evaluator, model_of; /* of the last one */
    float weight;
    int n_trainings;
    uint32_t failing_client, failing_round; /* 0 = none */
    int failures;                           /* of that client in that round */
    bool fails_to_evaluate, is_unsure;
} SEEN;

static int loop_open(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                     size_t capacity)
{
    (void)problem;
    (void)ret_why;
    (void)capacity;
    *ret_state = &SEEN;
    return 0;
}

static void loop_close(void *state)
{
    (void)state;
}

static int loop_train(void *state, const struct tally_plugin_training *task, float *weights,
                      uint64_t *ret_samples, char *ret_why, size_t capacity)
{
    (void)state;
    SEEN.n_trainings++;
    if (task->round == SEEN.failing_round && task->client == SEEN.failing_client &&
        SEEN.failures-- > 0) {
        snprintf(ret_why, capacity, "out of data");
        return 1;
    }
    weights[0] += ((float)task->client - weights[0]) / 2;
    *ret_samples = task->client + 1;
    return 0;
}

static int loop_evaluate(void *state, const struct tally_plugin_training *task,
                         const float *weights, struct tally_plugin_metric *ret_metrics,
                         size_t *ret_n, char *ret_why, size_t capacity)
{
    (void)state;
    SEEN.n_evaluations++;
    SEEN.evaluator = task->client;
    SEEN.model_of = task->round;
    SEEN.weight = weights[0];
    if (SEEN.fails_to_evaluate) {
        snprintf(ret_why, capacity, "no test data");
        return 1;
    }
    ret_metrics[0] =
        (struct tally_plugin_metric){"weight", SEEN.is_unsure ? (double)NAN : (double)weights[0]};
    ret_metrics[1] = (struct tally_plugin_metric){"client", task->client};
    *ret_n = 2;
    return 0;
}

static const struct tally_plugin LOOP = {.abi = TALLY_PLUGIN_ABI,
                                         .size = sizeof LOOP,
                                         .name = "loop",
                                         .open = loop_open,
                                         .close = loop_close,
                                         .train = loop_train,
                                         .evaluate = loop_evaluate};

/* A job of it, with what its rounds gave. */

enum { CLIENTS = 4, ROUNDS = 3 };

struct host {
    struct tally_job_spec spec;
    struct tally_objective *objective;
    struct tally_model_copy *copy;
    struct tally_job *job;
    struct tally_round_record records[ROUNDS];
    int n_records;
    struct tally_round_evaluation evaluations[ROUNDS + 1]; /* by round */
    int n_evaluations;
};

static void host_init(struct host *host, const struct tally_plugin *plugin, const char *members)
{
    char document[512];
    struct tally_plugin_instance *instance;
    const struct tally_plugin_problem problem = {.size = sizeof problem,
                                                 .dim = 1,
                                                 .clients = CLIENTS,
                                                 .options = "",
                                                 .data_dir = ".",
                                                 .rounds = ROUNDS};
    memset(&SEEN, 0, sizeof SEEN);
    *host = (struct host){.n_records = 0};
    snprintf(document, sizeof document,
             "{\"objective\": {\"type\": \"training\", \"name\": \"loop\", \"dim\": 1},"
             " \"algorithm\": {\"type\": \"fedavg\"}, \"clients\": %d, \"horizon\": %d%s}",
             CLIENTS, ROUNDS, members);
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_document_parse(document, strlen(document), &host->spec, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_plugin_instance_open(plugin, &problem, &instance, &err), TALLY_OK,
                        &err);
    TALLY_ASSERT_STATUS(
        tally_plugin_objective_of(instance, &problem, true, NULL, &host->objective, &err), TALLY_OK,
        &err);
    TALLY_ASSERT_STATUS(tally_model_copy_new(&host->spec, host->objective, &host->copy, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_job_new(&host->spec, &host->job, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_job_start(host->job, NAN, "", &err), TALLY_OK, &err);
}

static void host_fini(struct host *host)
{
    tally_job_free(host->job);
    tally_model_copy_free(host->copy);
    tally_objective_free(host->objective);
}

static void keep(struct host *host, const struct tally_job_outcome *outcome)
{
    for (int i = 0; i < outcome->n_records; i++) {
        host->records[host->n_records++] = outcome->records[i];
    }
    if (outcome->evaluation.round != 0) {
        host->evaluations[outcome->evaluation.round] = outcome->evaluation;
        host->n_evaluations++;
    }
    while (tally_model_copy_iterate(host->copy) < tally_job_progress(host->job)->iterate) {
        const int64_t next = tally_model_copy_iterate(host->copy) + 1;
        const struct tally_message_view view =
            tally_message_view(tally_job_broadcast(host->job, next));
        CU_ASSERT_EQUAL_FATAL(tally_model_copy_apply(host->copy, next, &view, NULL), TALLY_OK);
    }
}

/* Has a client compute and send; the status is that of the computation. */
static enum tally_status ask(struct host *host, uint32_t client)
{
    const struct tally_job_round round = *tally_job_open_round(host->job);
    struct tally_update update;
    struct tally_bits bits;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_outcome outcome;
    CU_ASSERT_TRUE(tally_job_asks(host->job, client));
    enum tally_status status =
        tally_model_copy_compute(host->copy, &round, client, &update, &bits, &err);
    if (status == TALLY_OK) {
        TALLY_ASSERT_STATUS(tally_job_receive(host->job, &update, &outcome, &err), TALLY_OK, &err);
    } else {
        TALLY_ASSERT_STATUS(tally_job_take_setback(host->job, client, err.message, &outcome, NULL),
                            TALLY_OK, NULL);
    }
    keep(host, &outcome);
    return status;
}

static void run_round(struct host *host)
{
    for (uint32_t m = 0; m < CLIENTS; m++) {
        CU_ASSERT_EQUAL(ask(host, m), TALLY_OK);
    }
}

static void set_absent(struct host *host, uint32_t client, bool absent)
{
    struct tally_job_outcome outcome;
    tally_job_set_absent(host->job, client, absent, &outcome);
    keep(host, &outcome);
}

/* The mean of a metric in a text of summaries; NaN if it is not there. */
static double mean_of(const char *text, const char *name)
{
    struct tally_metric_summary summary;
    while (tally_metrics_next(&text, &summary)) {
        if (strcmp(summary.name, name) == 0) {
            return summary.mean;
        }
    }
    return NAN;
}

/* Evaluation. */

static void test_job_evaluation__one_client_evaluates_each_model_and_the_last(void)
{
    struct host host;
    host_init(&host, &LOOP, "");
    CU_ASSERT_FALSE(tally_job_open_round(host.job)->evaluate_model); /* the initial point */
    for (int r = 1; r <= ROUNDS; r++) {
        CU_ASSERT_EQUAL(SEEN.n_evaluations, r > 2 ? r - 2 : 0);
        const uint64_t bits = tally_job_progress(host.job)->bits.telemetry_bits;
        for (uint32_t m = 0; m < CLIENTS; m++) {
            CU_ASSERT_EQUAL(host.n_evaluations, r > 1 ? r - 2 : 0); /* not before it closes */
            ask(&host, m);
        }
        CU_ASSERT_EQUAL(host.n_records, r);
        CU_ASSERT_TRUE(isnan(mean_of(host.records[r - 1].metrics, "weight")));
        const uint64_t of_evaluation = r > 1 ? 2 * 64 + 8 * (6 + 6) : 0;
        CU_ASSERT_EQUAL(host.records[r - 1].bits.telemetry_bits, CLIENTS * 32 + of_evaluation);
        CU_ASSERT_EQUAL(tally_job_progress(host.job)->bits.telemetry_bits - bits,
                        host.records[r - 1].bits.telemetry_bits);
    }
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
    const struct tally_job_round *open = tally_job_open_round(host.job);
    CU_ASSERT_TRUE(tally_job_round_only_evaluates(open) && open->evaluator == 1);
    CU_ASSERT_FALSE(tally_job_asks(host.job, 1));
    ask(&host, 0);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(host.n_records, ROUNDS);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->round, ROUNDS);
    CU_ASSERT_EQUAL(SEEN.n_evaluations, ROUNDS);
    CU_ASSERT_EQUAL(SEEN.model_of, ROUNDS);
    CU_ASSERT_EQUAL(host.n_evaluations, ROUNDS);
    double weight = 0;
    uint64_t bits = 0;
    for (int r = 1; r <= ROUNDS; r++) { /* the model of round r, by hand */
        weight += (1.5 - weight) / 2;
        CU_ASSERT_DOUBLE_EQUAL(mean_of(host.evaluations[r].metrics, "weight"), weight, 1e-6);
        CU_ASSERT_EQUAL(host.evaluations[r].telemetry_bits, r == ROUNDS ? 2 * 64 + 8 * 12 : 0);
        tally_record_evaluate(&host.records[r - 1], &host.evaluations[r]);
        bits += host.records[r - 1].bits.telemetry_bits;
    }
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->bits.telemetry_bits, bits);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(tally_job_progress(host.job)->metrics, "weight"), weight, 1e-6);
    host_fini(&host);
}

static void test_job_evaluation__every_client_may_evaluate_for_itself(void)
{
    struct host host;
    host_init(&host, &LOOP, ", \"evaluation\": \"clients\"");
    for (int r = 1; r <= ROUNDS; r++) {
        run_round(&host);
    }
    run_round(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(SEEN.n_evaluations, ROUNDS * CLIENTS);
    for (int r = 1; r <= ROUNDS; r++) {
        const char *text = host.evaluations[r].metrics;
        struct tally_metric_summary summary;
        CU_ASSERT_TRUE(tally_metrics_next(&text, &summary));
        TALLY_ASSERT_TEXT(summary.name, "client");
        CU_ASSERT_TRUE(summary.mean == 1.5 && summary.min == 0 && summary.max == 3);
    }
    host_fini(&host);
}

static void test_job_evaluation__none_means_none(void)
{
    struct host host;
    host_init(&host, &LOOP, ", \"evaluation\": \"none\"");
    for (int r = 1; r <= ROUNDS; r++) {
        run_round(&host);
    }
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(SEEN.n_evaluations, 0);
    CU_ASSERT_EQUAL(host.n_evaluations, 0);
    host_fini(&host);
}

static void test_job_evaluation__a_plugin_without_the_function_costs_one_round_trip(void)
{
    struct host host;
    struct tally_plugin older = LOOP;
    older.size = offsetof(struct tally_plugin, evaluate);
    host_init(&host, &older, "");
    for (int r = 1; r <= ROUNDS; r++) {
        run_round(&host);
    }
    CU_ASSERT_EQUAL(ask(&host, 0), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(host.n_evaluations, 0);
    TALLY_ASSERT_TEXT(tally_job_progress(host.job)->metrics, "");
    host_fini(&host);
}

static void test_job_evaluation__a_failure_is_kept_and_fails_nothing(void)
{
    struct host host;
    host_init(&host, &LOOP, "");
    run_round(&host);
    SEEN.fails_to_evaluate = true;
    run_round(&host);
    TALLY_ASSERT_TEXT(tally_job_progress(host.job)->setback,
                      "plug-in loop: evaluation of round 1's model by client 0: no test data");
    CU_ASSERT_EQUAL(host.n_evaluations, 0);
    SEEN.fails_to_evaluate = false;
    SEEN.is_unsure = true;
    run_round(&host);
    CU_ASSERT_EQUAL(host.n_evaluations, 1); /* without the metric that is not finite */
    CU_ASSERT_TRUE(isnan(mean_of(host.evaluations[2].metrics, "weight")));
    CU_ASSERT_EQUAL(mean_of(host.evaluations[2].metrics, "client"), 0);
    ask(&host, 0);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    host_fini(&host);
}

static void test_job_evaluation__an_absent_evaluator_does_not_hold_a_round_up(void)
{
    struct host host;
    host_init(&host, &LOOP, ", \"policy\": \"drop\"");
    run_round(&host);
    set_absent(&host, 0, true); /* too late to ask another one */
    CU_ASSERT_EQUAL(tally_job_open_round(host.job)->evaluator, 1);
    for (uint32_t m = 1; m < CLIENTS; m++) {
        ask(&host, m);
    }
    CU_ASSERT_EQUAL(host.n_records, 2);
    CU_ASSERT_EQUAL(host.n_evaluations, 0);
    CU_ASSERT_EQUAL(tally_job_open_round(host.job)->evaluator, 2); /* client 1 */
    for (uint32_t m = 1; m < CLIENTS; m++) {
        ask(&host, m);
    }
    CU_ASSERT_EQUAL(mean_of(host.evaluations[2].metrics, "client"), 1);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
    set_absent(&host, 1, true); /* the only one that the last round asks */
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(host.n_evaluations, 1);
    host_fini(&host);
}

static void test_job_evaluation__the_last_one_is_not_waited_for_past_the_deadline(void)
{
    static const char *const POLICIES[] = {"wait", "drop", "fail"};
    for (int policy = 0; policy < 3; policy++) {
        char members[64];
        struct host host;
        struct tally_job_outcome outcome;
        snprintf(members, sizeof members, ", \"policy\": \"%s\"", POLICIES[policy]);
        host_init(&host, &LOOP, members);
        for (int r = 1; r <= ROUNDS; r++) {
            run_round(&host);
        }
        CU_ASSERT_EQUAL(tally_job_overdue(host.job, &outcome, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(tally_job_status(host.job),
                        policy == 0 ? TALLY_JOB_RUNNING : TALLY_JOB_COMPLETED);
        host_fini(&host);
    }
}

/* Goes on with a job restored from the state of the current one. */
static void restore(struct host *host)
{
    struct tally_buffer state = {0};
    struct tally_job *again;
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(host->job, &state), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_job_restore(&host->spec, tally_job_status(host->job),
                                            tally_job_progress(host->job), state.data, state.size,
                                            &again, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_open_round(again)->mark, tally_job_open_round(host->job)->mark);
    CU_ASSERT_TRUE(tally_job_open_round(again)->evaluate_model);
    tally_job_free(host->job);
    host->job = again;
    tally_buffer_fini(&state);
}

static void test_job_evaluation__a_restored_job_goes_on_with_it(void)
{
    struct host host;
    host_init(&host, &LOOP, "");
    for (int r = 1; r <= ROUNDS; r++) {
        run_round(&host);
        restore(&host);
    }
    ask(&host, 0);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(host.n_evaluations, ROUNDS);
    host_fini(&host);
}

/* The summary of the metric `client` of a round's model. */
static void expect_clients(const struct host *host, int round, double mean, double min, double max)
{
    const char *text = host->evaluations[round].metrics;
    struct tally_metric_summary summary;
    CU_ASSERT_TRUE_FATAL(tally_metrics_next(&text, &summary));
    TALLY_ASSERT_TEXT(summary.name, "client");
    CU_ASSERT_TRUE(summary.mean == mean && summary.min == min && summary.max == max);
}

/* Client m has m + 1 samples. They come with its update, and for the last model with the one before
 * it, which is remembered across a restart. */
static void test_job_evaluation__clients_count_by_their_samples(void)
{
    for (int restarts = 0; restarts < 2; restarts++) {
        struct host host;
        host_init(&host, &LOOP, ", \"evaluation\": \"clients\", \"weighting\": \"points\"");
        for (int r = 1; r <= ROUNDS; r++) {
            run_round(&host);
            if (restarts > 0) {
                restore(&host);
            }
        }
        run_round(&host);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        for (int r = 1; r <= ROUNDS; r++) {
            expect_clients(&host, r, (0 * 1 + 1 * 2 + 2 * 3 + 3 * 4) / 10.0, 0, 3);
        }
        host_fini(&host);
    }
}

static void test_job_evaluation__a_client_without_samples_counts_like_the_others(void)
{
    struct host host;
    host_init(&host, &LOOP,
              ", \"evaluation\": \"clients\", \"weighting\": \"points\", \"policy\": \"drop\"");
    set_absent(&host, 3, true);
    for (int r = 1; r <= ROUNDS; r++) {
        for (uint32_t m = 0; m < 3; m++) {
            ask(&host, m);
        }
    }
    set_absent(&host, 3, false);
    run_round(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    expect_clients(&host, 2, (0 * 1 + 1 * 2 + 2 * 3) / 6.0, 0, 2);
    expect_clients(&host, 3, (0 * 1 + 1 * 2 + 2 * 3 + 3 * 2) / 8.0, 0, 3);
    host_fini(&host);
}

/* A job that its bits stop ends like one at its horizon: after the evaluation of its last model,
 * which cannot change why the job stopped. */
static void test_job_evaluation__the_last_model_of_a_stopped_job_is_evaluated(void)
{
    static const char *const RULES[] = {"uplink_bits", "downlink_bits"};
    static const int BITS[] = {2 * CLIENTS * 32, 2 * 32};
    for (int i = 0; i < 4; i++) {
        char members[160];
        struct host host;
        const char *rule = RULES[i % 2];
        snprintf(members, sizeof members,
                 ", \"stop\": {\"%s\": %d, \"metric\": \"weight\", \"at_least\": 1.1},"
                 " \"keep\": {\"best\": \"weight\"}",
                 rule, BITS[i % 2] - 1);
        host_init(&host, &LOOP, members);
        run_round(&host);
        run_round(&host);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
        TALLY_ASSERT_TEXT(tally_job_reason(host.job), "");
        if (i >= 2) {
            restore(&host);
        }
        const struct tally_job_round *open = tally_job_open_round(host.job);
        CU_ASSERT_TRUE(tally_job_round_only_evaluates(open) && open->evaluator == 1);
        ask(&host, 0);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(host.n_records, 2);
        CU_ASSERT_EQUAL(host.n_evaluations, 2);
        CU_ASSERT_EQUAL(SEEN.model_of, 2);
        CU_ASSERT_DOUBLE_EQUAL(mean_of(host.evaluations[2].metrics, "weight"), 1.125, 1e-6);
        const struct tally_progress *progress = tally_job_progress(host.job);
        CU_ASSERT_DOUBLE_EQUAL(progress->best.value, 1.125, 1e-6);
        CU_ASSERT_EQUAL(progress->best.iterate, 3);
        TALLY_ASSERT_TEXT(progress->stopped.rule, rule);
        CU_ASSERT_EQUAL(progress->stopped.value, BITS[i % 2]);
        CU_ASSERT_EQUAL(progress->stopped.round, 2);
        snprintf(members, sizeof members, "stop_rule_met: %s are %d, at least %d", rule,
                 BITS[i % 2], BITS[i % 2] - 1);
        TALLY_ASSERT_TEXT(tally_job_reason(host.job), members);
        host_fini(&host);
    }
}

/* Has a client compute, and the time be up before its update arrives: it is refused. */
static void stop_before_an_update(struct host *host, uint32_t client, double seconds)
{
    struct tally_update update;
    struct tally_bits bits;
    struct tally_job_outcome outcome;
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_job_round round = *tally_job_open_round(host->job);
    CU_ASSERT_EQUAL(tally_model_copy_compute(host->copy, &round, client, &update, &bits, NULL),
                    TALLY_OK);
    TALLY_ASSERT_STATUS(tally_job_stop(host->job, seconds, &outcome, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(outcome.n_records, 0);
    CU_ASSERT_EQUAL(outcome.evaluation.round, 0);
    CU_ASSERT_EQUAL(tally_job_status(host->job), TALLY_JOB_RUNNING);
    TALLY_ASSERT_TEXT(tally_job_reason(host->job), "");
    const struct tally_job_round *open = tally_job_open_round(host->job);
    CU_ASSERT_TRUE(tally_job_round_only_evaluates(open));
    CU_ASSERT_EQUAL(open->round, round.round);
    CU_ASSERT_EQUAL(open->received, 0);
    CU_ASSERT_EQUAL(tally_job_receive(host->job, &update, &outcome, &err),
                    TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(err.message, "the job stops: round 2 takes no more updates");
}

/* The answers that the open round has had do not count, but the samples of the clients' earlier
 * ones do. */
static void test_job_evaluation__the_last_model_is_evaluated_when_the_time_is_up(void)
{
    for (int i = 0; i < 4; i++) {
        const bool asks_all = i % 2 == 1;
        struct host host;
        host_init(&host, &LOOP,
                  asks_all ? ", \"stop\": {\"seconds\": 5}, \"evaluation\": \"clients\","
                             " \"weighting\": \"points\", \"keep\": {\"best\": \"weight\"}"
                           : ", \"stop\": {\"seconds\": 5}");
        run_round(&host);
        const struct tally_progress before = *tally_job_progress(host.job);
        ask(&host, 0);
        ask(&host, 2);
        stop_before_an_update(&host, 3, 5.5);
        if (i >= 2) {
            restore(&host);
        }
        if (asks_all) {
            run_round(&host);
            expect_clients(&host, 1, (0 * 1 + 1 * 2 + 2 * 3 + 3 * 4) / 10.0, 0, 3);
        } else {
            CU_ASSERT_FALSE(tally_job_asks(host.job, 2));
            ask(&host, 0);
        }
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(host.n_records, 1);
        CU_ASSERT_EQUAL(host.n_evaluations, 1);
        CU_ASSERT_EQUAL(SEEN.model_of, 1);
        const double weight = asks_all ? (0 * 1 + 1 * 2 + 2 * 3 + 3 * 4) / 20.0 : 0.75;
        CU_ASSERT_DOUBLE_EQUAL(mean_of(host.evaluations[1].metrics, "weight"), weight, 1e-6);
        const struct tally_progress *after = tally_job_progress(host.job);
        CU_ASSERT_EQUAL(after->x_checksum, before.x_checksum);
        CU_ASSERT_EQUAL(after->round, 1);
        CU_ASSERT_EQUAL(after->time_step, before.time_step);
        CU_ASSERT_EQUAL(after->bits.uplink.payload_bits, before.bits.uplink.payload_bits);
        CU_ASSERT_EQUAL(after->bits.telemetry_bits - before.bits.telemetry_bits,
                        (uint64_t)(asks_all ? CLIENTS : 1) * (2 * 64 + 8 * 12));
        CU_ASSERT_EQUAL(after->best.iterate, asks_all ? 2 : 0);
        TALLY_ASSERT_TEXT(after->stopped.rule, "seconds");
        CU_ASSERT_EQUAL(after->stopped.value, 5.5);
        CU_ASSERT_EQUAL(after->stopped.round, 1);
        TALLY_ASSERT_TEXT(tally_job_reason(host.job),
                          "stop_rule_met: 5.5 seconds have passed, at least 5");
        host_fini(&host);
    }
}

/* The host says so again if no worker evaluates the model. */
static void test_job_evaluation__a_stopped_job_may_end_without_all_evaluations(void)
{
    for (int n = 0; n < 3; n++) { /* evaluations that arrive */
        struct host host;
        struct tally_job_outcome outcome;
        host_init(&host, &LOOP, ", \"stop\": {\"seconds\": 5}, \"evaluation\": \"clients\"");
        run_round(&host);
        ask(&host, 1);
        stop_before_an_update(&host, 0, 6);
        for (int m = 1; m <= n; m++) {
            ask(&host, (uint32_t)m);
        }
        CU_ASSERT_EQUAL(tally_job_stop(host.job, 7, &outcome, NULL), TALLY_OK);
        keep(&host, &outcome);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(tally_job_progress(host.job)->stopped.value, 6);
        CU_ASSERT_EQUAL(host.n_evaluations, n > 0);
        if (n > 0) {
            expect_clients(&host, 1, (1 + n) / 2.0, 1, n);
        }
        CU_ASSERT_EQUAL(tally_job_stop(host.job, 8, &outcome, NULL), TALLY_FAILED_PRECONDITION);
        host_fini(&host);
    }
}

static void test_job_evaluation__seconds_do_not_take_the_horizon_back(void)
{
    struct host host;
    struct tally_job_outcome outcome;
    host_init(&host, &LOOP, ", \"stop\": {\"seconds\": 5}");
    for (int r = 1; r <= ROUNDS; r++) {
        run_round(&host);
    }
    CU_ASSERT_EQUAL(tally_job_stop(host.job, 6, &outcome, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    TALLY_ASSERT_TEXT(tally_job_progress(host.job)->stopped.rule, "");
    TALLY_ASSERT_TEXT(tally_job_reason(host.job), "");
    host_fini(&host);
}

/* A client that sits the round out may evaluate in it; there is nothing to evaluate before the
 * first step, or without evaluations. */
static void test_job_evaluation__what_seconds_stop_besides_answers(void)
{
    struct host host;
    struct tally_job_outcome outcome;
    host_init(&host, &LOOP, ", \"stop\": {\"seconds\": 5}, \"policy\": \"drop\"");
    run_round(&host);
    SEEN.failing_client = 0;
    SEEN.failing_round = 2;
    SEEN.failures = 1;
    CU_ASSERT_EQUAL(ask(&host, 0), TALLY_FAILED_PRECONDITION);
    stop_before_an_update(&host, 1, 6);
    CU_ASSERT_TRUE(tally_job_asks(host.job, 0) && tally_job_awaits(host.job, 0));
    set_absent(&host, 3, true);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
    ask(&host, 0);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(host.n_evaluations, 1);
    host_fini(&host);
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        host_init(&host, &LOOP, evaluates ? "" : ", \"evaluation\": \"none\"");
        if (!evaluates) {
            run_round(&host);
        }
        ask(&host, 0);
        CU_ASSERT_EQUAL(tally_job_stop(host.job, 6, &outcome, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        TALLY_ASSERT_TEXT(tally_job_progress(host.job)->stopped.rule, "seconds");
        host_fini(&host);
    }
}

static void test_job_evaluation__what_was_not_asked_for_is_left_out(void)
{
    struct host host;
    struct tally_update update;
    struct tally_bits bits;
    struct tally_job_outcome outcome;
    struct tally_error err = TALLY_ERROR_INIT;
    host_init(&host, &LOOP, "");
    run_round(&host);
    const struct tally_job_round round = *tally_job_open_round(host.job);
    tally_model_copy_compute(host.copy, &round, 1, &update, &bits, NULL);
    CU_ASSERT_EQUAL(update.n_evaluation, 0);
    update.n_evaluation = 1;
    update.evaluation[0] = (struct tally_metric){"weight", 99};
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &update, &outcome, NULL), TALLY_OK);
    tally_model_copy_compute(host.copy, &round, 0, &update, &bits, NULL);
    update.evaluation[1] = update.evaluation[0];
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &update, &outcome, &err), TALLY_MALFORMED);
    TALLY_ASSERT_TEXT(err.field, "evaluation");
    TALLY_ASSERT_TEXT(err.message, "metric weight appears twice");
    for (uint32_t m = 0; m < CLIENTS; m += m == 0 ? 2 : 1) {
        ask(&host, m);
    }
    CU_ASSERT_DOUBLE_EQUAL(mean_of(host.evaluations[1].metrics, "weight"), 0.75, 1e-6);
    host_fini(&host);
}

static void test_job_evaluation__its_metrics_count_before_those_of_clients(void)
{
    struct host host;
    struct tally_update update;
    struct tally_bits bits;
    struct tally_job_outcome outcome;
    host_init(&host, &LOOP, "");
    for (int r = 1; r <= 2; r++) {
        const struct tally_job_round round = *tally_job_open_round(host.job);
        tally_model_copy_compute(host.copy, &round, 3, &update, &bits, NULL);
        update.n_metrics = 1;
        update.metrics[0] = (struct tally_metric){"weight", 99};
        CU_ASSERT_EQUAL(tally_job_receive(host.job, &update, &outcome, NULL), TALLY_OK);
        for (uint32_t m = 0; m < 3; m++) {
            ask(&host, m);
        }
        CU_ASSERT_EQUAL(mean_of(host.records[r - 1].metrics, "weight"), 99);
    }
    CU_ASSERT_DOUBLE_EQUAL(mean_of(tally_job_progress(host.job)->metrics, "weight"), 0.75, 1e-6);
    tally_record_evaluate(&host.records[0], &host.evaluations[1]);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(host.records[0].metrics, "weight"), 0.75, 1e-6);
    host_fini(&host);
}

/* Setbacks. */

static void test_job_evaluation__a_setback_is_tried_again_three_times(void)
{
    for (int failures = 1; failures <= 4; failures++) {
        struct host host;
        host_init(&host, &LOOP, "");
        run_round(&host);
        SEEN.failing_client = 0;
        SEEN.failing_round = 2;
        SEEN.failures = failures;
        for (int i = 0; i < failures; i++) {
            CU_ASSERT_EQUAL(ask(&host, 0), TALLY_FAILED_PRECONDITION);
            CU_ASSERT_EQUAL(tally_job_n_setbacks(host.job, 0), i + 1);
        }
        TALLY_ASSERT_TEXT(tally_job_progress(host.job)->setback,
                          "plug-in loop: training of client 0 in round 2: out of data");
        CU_ASSERT_EQUAL(SEEN.n_evaluations, 1); /* of one model, however often it is tried */
        if (failures == 4) {
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_FAILED);
            TALLY_ASSERT_TEXT(tally_job_reason(host.job),
                              "client_failed: client 0 in round 2: plug-in loop: training of "
                              "client 0 in round 2: out of data");
        } else {
            run_round(&host);
            CU_ASSERT_EQUAL(host.records[1].received, CLIENTS);
            CU_ASSERT_EQUAL(tally_job_n_setbacks(host.job, 0), 0); /* of the new round */
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
        }
        host_fini(&host);
    }
}

static void test_job_evaluation__setbacks_are_counted_anew_in_each_round(void)
{
    struct host host;
    host_init(&host, &LOOP, "");
    for (uint32_t r = 1; r <= 2; r++) {
        SEEN.failing_client = 1;
        SEEN.failing_round = r;
        SEEN.failures = 3;
        for (int i = 0; i < 3; i++) {
            ask(&host, 1);
        }
        run_round(&host);
        CU_ASSERT_EQUAL(host.n_records, (int)r);
    }
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
    host_fini(&host);
}

static void test_job_evaluation__a_dropping_round_does_without_the_client(void)
{
    struct host host;
    host_init(&host, &LOOP, ", \"policy\": \"drop\"");
    SEEN.failing_client = 2;
    SEEN.failing_round = 1;
    SEEN.failures = 9;
    CU_ASSERT_EQUAL(ask(&host, 2), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_FALSE(tally_job_asks(host.job, 2));
    CU_ASSERT_FALSE(tally_job_awaits(host.job, 2));
    set_absent(&host, 2, true); /* it does not count twice */
    ask(&host, 0);
    ask(&host, 1);
    CU_ASSERT_EQUAL(host.n_records, 0);
    ask(&host, 3);
    set_absent(&host, 2, false);
    CU_ASSERT_EQUAL(host.n_records, 1);
    CU_ASSERT_EQUAL(host.records[0].received, 3);
    TALLY_ASSERT_TEXT(host.records[0].missing, "2");
    run_round(&host); /* all of them again */
    CU_ASSERT_EQUAL(host.records[1].received, CLIENTS);
    host_fini(&host);
}

static void test_job_evaluation__a_round_that_lacks_its_quorum_asks_again(void)
{
    struct host host;
    host_init(&host, &LOOP, ", \"policy\": \"drop\", \"quorum\": 4");
    SEEN.failing_client = 1;
    SEEN.failing_round = 1;
    SEEN.failures = 2;
    CU_ASSERT_EQUAL(ask(&host, 1), TALLY_FAILED_PRECONDITION);
    ask(&host, 0);
    ask(&host, 2);
    CU_ASSERT_FALSE(tally_job_asks(host.job, 1));
    ask(&host, 3);
    CU_ASSERT_EQUAL(host.n_records, 0);
    CU_ASSERT_EQUAL(ask(&host, 1), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(ask(&host, 1), TALLY_OK);
    CU_ASSERT_EQUAL(host.n_records, 1);
    host_fini(&host);
}

static void test_job_evaluation__setbacks_need_an_open_question(void)
{
    struct host host;
    struct tally_job_outcome outcome;
    host_init(&host, &LOOP, "");
    ask(&host, 0);
    CU_ASSERT_EQUAL(tally_job_take_setback(host.job, 0, "x", &outcome, NULL),
                    TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_take_setback(host.job, CLIENTS, "x", &outcome, NULL),
                    TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(tally_job_progress(host.job)->setback, "");
    host_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_evaluation__one_client_evaluates_each_model_and_the_last),
    TALLY_TEST(test_job_evaluation__every_client_may_evaluate_for_itself),
    TALLY_TEST(test_job_evaluation__none_means_none),
    TALLY_TEST(test_job_evaluation__a_plugin_without_the_function_costs_one_round_trip),
    TALLY_TEST(test_job_evaluation__a_failure_is_kept_and_fails_nothing),
    TALLY_TEST(test_job_evaluation__an_absent_evaluator_does_not_hold_a_round_up),
    TALLY_TEST(test_job_evaluation__the_last_one_is_not_waited_for_past_the_deadline),
    TALLY_TEST(test_job_evaluation__a_restored_job_goes_on_with_it),
    TALLY_TEST(test_job_evaluation__clients_count_by_their_samples),
    TALLY_TEST(test_job_evaluation__a_client_without_samples_counts_like_the_others),
    TALLY_TEST(test_job_evaluation__the_last_model_of_a_stopped_job_is_evaluated),
    TALLY_TEST(test_job_evaluation__the_last_model_is_evaluated_when_the_time_is_up),
    TALLY_TEST(test_job_evaluation__a_stopped_job_may_end_without_all_evaluations),
    TALLY_TEST(test_job_evaluation__seconds_do_not_take_the_horizon_back),
    TALLY_TEST(test_job_evaluation__what_seconds_stop_besides_answers),
    TALLY_TEST(test_job_evaluation__what_was_not_asked_for_is_left_out),
    TALLY_TEST(test_job_evaluation__a_setback_is_tried_again_three_times),
    TALLY_TEST(test_job_evaluation__its_metrics_count_before_those_of_clients),
    TALLY_TEST(test_job_evaluation__setbacks_are_counted_anew_in_each_round),
    TALLY_TEST(test_job_evaluation__a_dropping_round_does_without_the_client),
    TALLY_TEST(test_job_evaluation__a_round_that_lacks_its_quorum_asks_again),
    TALLY_TEST(test_job_evaluation__setbacks_need_an_open_question),
};
TALLY_SUITE(job_evaluation, TESTS);

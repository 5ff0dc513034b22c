#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "tests/harness.h"
#include "tests/unit/services/job/documents.h"
#include "tests/unit/services/job/job_host.h"

/* Four clients, one local step a round. */
static struct tally_job_spec plain_spec(void)
{
    struct tally_job_spec spec = job_host_fedavg_spec(4, 0);
    spec.params.baseline.local_steps = 1;
    spec.horizon = 40;
    return spec;
}

/* Plays a round in which client m reports values[m] as the metric `name`. */
static void play(struct job_host *host, const char *name, const double values[4])
{
    job_host_compute(host);
    for (uint32_t m = 0; m < 4; m++) {
        struct tally_update *update = &host->updates[m];
        update->n_metrics = isnan(values[m]) ? 0U : 1U;
        snprintf(update->metrics[0].name, sizeof update->metrics[0].name, "%s", name);
        update->metrics[0].value = values[m];
        job_host_send(host, m);
    }
}

/* Plays rounds with the same value for all clients, until the job ends or there are no more.
 * Returns the number of rounds. */
static int play_all(struct job_host *host, const char *name, const double *values, int n)
{
    int i = 0;
    while (i < n && tally_job_status(host->job) == TALLY_JOB_RUNNING) {
        const double same[4] = {values[i], values[i], values[i], values[i]};
        play(host, name, same);
        i++;
    }
    return i;
}

static void expect_stopped(const struct job_host *host, const char *rule, double value,
                           int64_t round)
{
    const struct tally_stopped *stopped = &tally_job_progress(host->job)->stopped;
    CU_ASSERT_EQUAL(tally_job_status(host->job), TALLY_JOB_COMPLETED);
    TALLY_ASSERT_TEXT(stopped->rule, rule);
    CU_ASSERT_EQUAL(stopped->value, value);
    CU_ASSERT_EQUAL(stopped->round, round);
    CU_ASSERT_EQUAL(strncmp(tally_job_reason(host->job), "stop_rule_met: ", 15), 0);
}

/* The mean counts, not one client's value. The round that meets the rule takes no step: the job
 * ends with the point that was measured, and the round's bits and queries count. */
static void test_job_stopping__a_metric_ends_the_job_with_the_point_that_has_it(void)
{
    static struct job_host host;
    struct tally_job_spec spec = plain_spec();
    strcpy(spec.stop.metric, "accuracy");
    spec.stop.at_least = 0.9;
    job_host_init(&host, &spec);
    play(&host, "accuracy", (const double[4]){1, 0.5, 0.5, NAN});
    play(&host, "accuracy", (const double[4]){0.9, 0.9, 0.8, 0.99});
    const struct tally_progress before = *tally_job_progress(host.job);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
    play(&host, "accuracy", (const double[4]){0.9, 0.9, 0.9, 0.9});
    expect_stopped(&host, "metric", 0.9, 3);
    const struct tally_progress *after = tally_job_progress(host.job);
    const struct tally_round_record *last = &host.records[2];
    CU_ASSERT_EQUAL_FATAL(host.n_records, 3);
    CU_ASSERT_EQUAL(after->x_checksum, before.x_checksum);
    CU_ASSERT_EQUAL(after->iterate, before.iterate);
    CU_ASSERT_EQUAL(after->time_step, before.time_step + 1);
    CU_ASSERT_FALSE(last->passed);
    CU_ASSERT_EQUAL(last->received, 4);
    CU_ASSERT_EQUAL(last->bits.downlink.payload_bits, 0);
    CU_ASSERT_EQUAL(last->bits.control_bits, 0);
    CU_ASSERT_EQUAL(last->bits.uplink.payload_bits, host.records[0].bits.uplink.payload_bits);
    CU_ASSERT_TRUE(last->cumulative_regret > host.records[1].cumulative_regret);
    TALLY_ASSERT_TEXT(tally_job_reason(host.job),
                      "stop_rule_met: accuracy 0.9 of round 3 is at least 0.9");
    job_host_fini(&host);
}

static void test_job_stopping__each_rule_in_its_round(void)
{
    static const struct {
        struct tally_stop stop; /* texts, integers; reals below */
        double at_most, loss;
        double values[8];
        int n;
        const char *rule;
        double value;
        int64_t round;
        int n_rounds;
    } ROWS[] = {
        {{.metric = "m"}, 0.5, NAN, {3, 0.6, 0.5}, 3, "metric", 0.5, 3, 3},
        /* lower values of `m` are worse; equal ones are no improvement */
        {{.patience = 2, .watch = "m"}, NAN, NAN, {1, 2, 2, 1.5, 9}, 5, "patience", 2, 2, 4},
        {{.patience = 2, .watch = "m", .better = TALLY_BETTER_LOWER},
         NAN,
         NAN,
         {3, 2, 1, 1, 0.5, 0.5, 0.5},
         7,
         "patience",
         0.5,
         5,
         7},
        /* steps of exactly min_delta are too small, but they add up */
        {{.patience = 2, .watch = "m", .min_delta = 0.25},
         NAN,
         NAN,
         {1, 1.25, 1.5, 1.75, 1.75},
         5,
         "patience",
         1.5,
         3,
         5},
        /* rounds without a value do not count */
        {{.patience = 2, .watch = "m"},
         NAN,
         NAN,
         {1, NAN, NAN, NAN, 1, NAN, 1},
         7,
         "patience",
         1,
         1,
         7},
        /* a metric of the name `loss` counts before the loss of the round */
        {{.patience = 1}, NAN, NAN, {1, 2}, 2, "patience", 1, 1, 2},
        {{.metric = "m", .patience = 1, .watch = "m", .better = TALLY_BETTER_HIGHER},
         0.5,
         NAN,
         {1, 0.5},
         2,
         "metric",
         0.5,
         2,
         2},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        static struct job_host host;
        struct tally_job_spec spec = plain_spec();
        spec.stop = ROWS[i].stop;
        spec.stop.at_least = NAN;
        spec.stop.at_most = ROWS[i].at_most;
        spec.stop.loss = ROWS[i].loss;
        job_host_init(&host, &spec);
        const char *name =
            ROWS[i].stop.metric[0] == '\0' && ROWS[i].stop.watch[0] == '\0' ? "loss" : "m";
        CU_ASSERT_EQUAL(play_all(&host, name, ROWS[i].values, ROWS[i].n), ROWS[i].n_rounds);
        expect_stopped(&host, ROWS[i].rule, ROWS[i].value, ROWS[i].round);
        job_host_fini(&host);
    }
}

/* The loss of a round is that of the point it queried. Each threshold between two losses of an
 * undisturbed run ends the job in the first round below it. */
static void test_job_stopping__a_loss(void)
{
    static struct job_host whole, host;
    struct tally_job_spec spec = plain_spec();
    job_host_init(&whole, &spec);
    job_host_run(&whole);
    for (int r = 1; r < whole.n_records; r += 7) {
        spec.stop.loss = whole.records[r].loss;
        int first = 0;
        while (whole.records[first].loss > spec.stop.loss) {
            first++;
        }
        job_host_init(&host, &spec);
        job_host_run(&host);
        expect_stopped(&host, "loss", whole.records[first].loss, first + 1);
        CU_ASSERT_EQUAL(host.n_records, first + 1);
        CU_ASSERT_EQUAL(tally_job_progress(host.job)->iterate, whole.records[first].iterate);
        CU_ASSERT_EQUAL(tally_job_progress(host.job)->loss, whole.records[first].loss);
        job_host_fini(&host);
    }
    job_host_fini(&whole);
}

/* Bits are payload and control, the round that reaches the limit included, and its step is
 * taken. */
static void test_job_stopping__bits(void)
{
    static struct job_host whole, host;
    for (int algorithm = 0; algorithm < 2; algorithm++) { /* ceal has control bits */
        struct tally_job_spec spec = algorithm == 0 ? plain_spec() : job_host_spec();
        job_host_init(&whole, &spec);
        job_host_run(&whole);
        for (int direction = 0; direction < 2; direction++) {
            int64_t bits = 0;
            const int n = whole.n_records / 2;
            for (int r = 0; r <= n; r++) {
                const struct tally_ledger *of = &whole.records[r].bits;
                bits += (int64_t)((direction == 0 ? of->uplink : of->downlink).payload_bits +
                                  of->control_bits);
            }
            const struct tally_ledger *of = &whole.records[n].bits;
            if ((direction == 0 ? of->uplink : of->downlink).payload_bits == 0) {
                continue;
            }
            for (int less = 0; less < 2; less++) { /* `bits` exactly, and one fewer */
                spec.stop.uplink_bits = direction == 0 ? bits - less : 0;
                spec.stop.downlink_bits = direction == 1 ? bits - less : 0;
                job_host_init(&host, &spec);
                job_host_run(&host);
                expect_stopped(&host, direction == 0 ? "uplink_bits" : "downlink_bits",
                               (double)bits, n + 1);
                CU_ASSERT_EQUAL(host.n_records, n + 1);
                CU_ASSERT_TRUE(job_same_record(&host.records[n], &whole.records[n]));
                job_host_fini(&host);
            }
        }
        job_host_fini(&whole);
    }
}

/* A job that a rule about bits would end with its last round has reached its horizon. */
static void test_job_stopping__the_horizon_comes_before_bits(void)
{
    static struct job_host host;
    struct tally_job_spec spec = plain_spec();
    spec.horizon = 1;
    spec.stop.uplink_bits = 1;
    job_host_init(&host, &spec);
    job_host_run(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    TALLY_ASSERT_TEXT(tally_job_progress(host.job)->stopped.rule, "");
    TALLY_ASSERT_TEXT(tally_job_reason(host.job), "");
    job_host_fini(&host);
}

/* Seconds come from the host. Answers of the open round do not count. */
static void test_job_stopping__seconds(void)
{
    static struct job_host host;
    struct tally_job_spec spec = plain_spec();
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_outcome outcome;
    spec.stop.seconds = 2.5;
    job_host_init(&host, &spec);
    job_host_round(&host);
    job_host_compute(&host);
    job_host_send(&host, 1);
    const struct tally_progress before = *tally_job_progress(host.job);
    TALLY_ASSERT_STATUS(tally_job_stop(host.job, 2.75, &outcome, &err), TALLY_OK, &err);
    expect_stopped(&host, "seconds", 2.75, 1);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->x_checksum, before.x_checksum);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->bits.uplink.payload_bits,
                    before.bits.uplink.payload_bits);
    CU_ASSERT_EQUAL(tally_job_stop(host.job, 3, &outcome, &err), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->stopped.value, 2.75);
    job_host_fini(&host);
}

/* A job saved and restored before each round stops like one that was not. */
static void test_job_stopping__a_restart_forgets_nothing(void)
{
    static struct job_host host;
    struct tally_job_spec spec = plain_spec();
    static const double VALUES[] = {5, 3, 4, 3, 3};
    strcpy(spec.stop.watch, "m");
    spec.stop.better = TALLY_BETTER_LOWER;
    spec.stop.patience = 3;
    strcpy(spec.keep.best, "m");
    spec.keep.better = TALLY_BETTER_LOWER;
    job_host_init(&host, &spec);
    for (int r = 0; r < 5; r++) {
        struct tally_buffer state = {0};
        struct tally_error err = TALLY_ERROR_INIT;
        job_host_compute(&host); /* the clients keep their point */
        const struct tally_progress progress = *tally_job_progress(host.job);
        struct tally_job *restored = NULL;
        CU_ASSERT_EQUAL(tally_job_save_state(host.job, &state), TALLY_OK);
        TALLY_ASSERT_STATUS(tally_job_restore(&spec, TALLY_JOB_RUNNING, &progress, state.data,
                                              state.size, &restored, &err),
                            TALLY_OK, &err);
        tally_buffer_fini(&state);
        tally_job_free(host.job);
        host.job = restored;
        CU_ASSERT_PTR_NULL(tally_job_new_best(host.job));
        CU_ASSERT_EQUAL(play_all(&host, "m", &VALUES[r], 1), 1);
        CU_ASSERT_EQUAL(tally_job_new_best(host.job) != NULL, r < 2);
    }
    expect_stopped(&host, "patience", 3, 2);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->best.round, 1);
    struct tally_buffer state = {0};
    struct tally_job *restored = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_job_save_state(host.job, &state), TALLY_OK);
    TALLY_ASSERT_STATUS(tally_job_restore(&spec, TALLY_JOB_COMPLETED, tally_job_progress(host.job),
                                          state.data, state.size, &restored, &err),
                        TALLY_OK, &err);
    tally_buffer_fini(&state);
    tally_job_free(restored);
    job_host_fini(&host);
}

/* The best point is the one that the clients of the round had: the initial one in round 1. Of
 * equals the first stays. */
static void test_job_stopping__the_best_point_is_the_one_that_was_measured(void)
{
    static struct job_host host;
    struct tally_job_spec spec = plain_spec();
    static const double VALUES[] = {0.5, 0.75, 0.75, 0.25, 0.8125};
    strcpy(spec.keep.best, "m");
    job_host_init(&host, &spec);
    for (int r = 0; r < 5; r++) {
        const struct tally_progress before = *tally_job_progress(host.job);
        CU_ASSERT_EQUAL(play_all(&host, "m", &VALUES[r], 1), 1);
        const double *x = tally_job_new_best(host.job);
        const struct tally_best *best = &tally_job_progress(host.job)->best;
        if (r == 2 || r == 3) {
            CU_ASSERT_PTR_NULL(x);
            CU_ASSERT_EQUAL(best->value, 0.75);
            continue;
        }
        size_t dim;
        tally_job_point(host.job, &dim);
        CU_ASSERT_PTR_NOT_NULL_FATAL(x);
        CU_ASSERT_EQUAL(tally_checksum64(x, dim * sizeof *x), before.x_checksum);
        CU_ASSERT_EQUAL(best->value, VALUES[r]);
        CU_ASSERT_EQUAL(best->round, r);
        CU_ASSERT_EQUAL(best->iterate, before.iterate);
    }
    job_host_fini(&host);
}

/* What is wrong in `stop` and `keep` is named. */
static void test_job_stopping__bad_documents(void)
{
    static const struct {
        const char *members, *field, *says;
    } ROWS[] = {
        {"\"stop\": []", "stop", "must be an object"},
        {"\"stop\": {\"metrics\": \"a\"}", "stop.metrics", "unknown key"},
        {"\"stop\": {\"metric\": \"a\"}", "stop.at_least", "either at_least or at_most"},
        {"\"stop\": {\"metric\": \"a\", \"at_least\": 1, \"at_most\": 2}", "stop.at_least",
         "either at_least or at_most"},
        {"\"stop\": {\"at_most\": 1}", "stop.metric", "need a metric"},
        {"\"stop\": {\"metric\": \"A b\", \"at_least\": 1}", "stop.metric", "not the name"},
        {"\"stop\": {\"metric\": \"a\", \"at_least\": \"1\"}", "stop.at_least", "must be a number"},
        {"\"stop\": {\"metric\": \"a\", \"at_least\": 1e301}", "stop.at_least", "outside"},
        {"\"stop\": {\"metric\": \"a2345678901234567890123456789012x\", \"at_least\": 1}",
         "stop.metric", "at most 32"},
        {"\"stop\": {\"loss\": null}", "stop.loss", "must be a number"},
        {"\"stop\": {\"patience\": 0}", "stop.patience", "outside [1, 1000000]"},
        {"\"stop\": {\"patience\": 1.5}", "stop.patience", "must be an integer"},
        {"\"stop\": {\"watch\": \"a\"}", "stop.watch", "needs a patience"},
        {"\"stop\": {\"better\": \"lower\"}", "stop.better", "needs a patience"},
        {"\"stop\": {\"min_delta\": 1}", "stop.min_delta", "needs a patience"},
        {"\"stop\": {\"patience\": 1, \"min_delta\": -1}", "stop.min_delta", "outside"},
        {"\"stop\": {\"patience\": 1, \"watch\": \"test_loss\"}", "stop.better", "test_loss"},
        {"\"stop\": {\"patience\": 1, \"watch\": \"error\"}", "stop.better", "error"},
        {"\"stop\": {\"patience\": 1, \"better\": \"less\"}", "stop.better",
         "not one of auto, higher, lower"},
        {"\"stop\": {\"uplink_bits\": 0}", "stop.uplink_bits", "outside [1,"},
        {"\"stop\": {\"downlink_bits\": -1}", "stop.downlink_bits", "outside [1,"},
        {"\"stop\": {\"seconds\": 0}", "stop.seconds", "outside (0,"},
        {"\"stop\": {\"seconds\": 1e9}", "stop.seconds", "outside"},
        {"\"keep\": 1", "keep", "must be an object"},
        {"\"keep\": {\"last\": true}", "keep.last", "unknown key"},
        {"\"keep\": {\"best\": \"9\"}", "keep.best", "not the name"},
        {"\"keep\": {\"best\": \"test_loss\"}", "keep.better", "test_loss"},
        {"\"keep\": {\"better\": \"lower\"}", "keep.better", "needs a metric"},
        {"\"keep\": {\"every\": 0}", "keep.every", "outside [1,"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        char members[300], text[4000];
        struct tally_job_spec spec;
        struct tally_error err;
        snprintf(members, sizeof members, "\"horizon\": 10000, %s", ROWS[i].members);
        document_edit(DOCUMENT_SHORTEST, "\"horizon\": 2000", members, text);
        CU_ASSERT_NOT_EQUAL(document_parse(text, &spec, &err), TALLY_OK);
        TALLY_ASSERT_TEXT(err.field, ROWS[i].field);
        if (strstr(err.message, ROWS[i].says) == NULL) {
            printf("\n%s: %s", ROWS[i].members, err.message);
            CU_FAIL("message");
        }
    }
}

/* The greatest number of kept models is permitted, and one more is not: by number, and by bytes. */
static void test_job_stopping__the_bound_of_kept_models(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_spec spec = plain_spec();
    spec.keep.every = 3;
    spec.horizon = 3 * TALLY_KEEP_MOST + 2;
    TALLY_ASSERT_STATUS(tally_job_spec_validate(&spec, &err), TALLY_OK, &err);
    spec.horizon = 3 * TALLY_KEEP_MOST + 3;
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, &err), TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(err.field, "keep.every");
    spec.keep.every = 4;
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_job_spec_validate(&spec, &err), TALLY_OK, &err);
    spec.objective.data.synthetic_linear.dim = 10000000; /* 80 MB, so 125 models */
    spec.objective.data.synthetic_linear.points = 12;
    spec.keep.every = 8;
    spec.horizon = 8 * 125 + 7;
    TALLY_ASSERT_STATUS(tally_job_spec_validate(&spec, &err), TALLY_OK, &err);
    spec.horizon = 8 * 126;
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, &err), TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(err.field, "keep.every");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_stopping__a_metric_ends_the_job_with_the_point_that_has_it),
    TALLY_TEST(test_job_stopping__each_rule_in_its_round),
    TALLY_TEST(test_job_stopping__a_loss),
    TALLY_TEST(test_job_stopping__bits),
    TALLY_TEST(test_job_stopping__the_horizon_comes_before_bits),
    TALLY_TEST(test_job_stopping__seconds),
    TALLY_TEST(test_job_stopping__a_restart_forgets_nothing),
    TALLY_TEST(test_job_stopping__the_best_point_is_the_one_that_was_measured),
    TALLY_TEST(test_job_stopping__bad_documents),
    TALLY_TEST(test_job_stopping__the_bound_of_kept_models),
};
TALLY_SUITE(job_stopping, TESTS);

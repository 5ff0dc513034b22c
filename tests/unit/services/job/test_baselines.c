/* Whole jobs of the four baselines: bits, cut rounds, and the regret at the clients' own
 * iterates. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"
#include "tests/unit/services/local_loss.h"
#include "tests/unit/services/local_run.h"

enum { MINIBATCH_SGD = 1, FEDAVG, FEDPAQ, FEDCOM, N_ALGORITHMS };

/* Small: 5 clients, shards of 13 and 12 points of dim 6. */
static struct tally_job_spec small(int algorithm, int64_t local_steps, int64_t horizon)
{
    struct tally_job_spec spec = job_host_spec();
    spec.algorithm = algorithm;
    spec.params.baseline = (struct tally_baseline_params){
        .step_size = 0.06, .local_steps = local_steps, .levels = 3, .server_step_size = 2};
    spec.horizon = horizon;
    spec.initial_point.radius = 3;
    return spec;
}

/* The problem of [1] section V with the loud noise level, as in deploy/jobs. */
static struct tally_job_spec synthetic(int algorithm)
{
    static const double step_sizes[N_ALGORITHMS] = {0, 1, 0.1, 0.1, 0.002};
    struct tally_job_spec spec = small(algorithm, algorithm == MINIBATCH_SGD ? 50 : 100, 2000);
    spec.params.baseline.step_size = step_sizes[algorithm];
    spec.params.baseline.server_step_size = 10;
    spec.objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 30, .points = 2000, .frobenius_norm = 100, .noise_std = 1};
    spec.clients = 10;
    spec.seed = 1;
    spec.initial_point.radius = 2;
    return spec;
}

static struct tally_job *run(const struct tally_job_spec *spec)
{
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_spec_validate(spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(local_run(spec, NULL, NULL, &job, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

/* Table I of [1]. Its first four rows follow from the formulas. */
static void test_job_baselines__synthetic_bits_are_those_of_table_1(void)
{
    static const uint64_t uplink[N_ALGORITHMS] = {0, 38400, 19200, 2440, 2440};
    static const uint64_t downlink[N_ALGORITHMS] = {0, 38400, 19200, 19200, 19200};
    for (int a = 1; a < N_ALGORITHMS; a++) {
        const struct tally_job_spec spec = synthetic(a);
        struct tally_job *job = run(&spec);
        const struct tally_progress *progress = tally_job_progress(job);
        const struct tally_ledger *bits = &progress->bits;
        const int64_t rounds = a == MINIBATCH_SGD ? 40 : 20;
        CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(progress->time_step, 2000);
        CU_ASSERT_EQUAL(progress->round, rounds);
        CU_ASSERT_EQUAL(progress->iterate, rounds + 1);
        CU_ASSERT_EQUAL(progress->stage, 0);
        CU_ASSERT_EQUAL(bits->uplink.formula_bits, 10 * uplink[a]);
        CU_ASSERT_EQUAL(bits->uplink.payload_bits, 10 * uplink[a]);
        CU_ASSERT_EQUAL(bits->uplink.messages, (uint64_t)(10 * rounds));
        CU_ASSERT_EQUAL(bits->uplink.clipped, 0);
        CU_ASSERT_EQUAL(bits->downlink.formula_bits, downlink[a]);
        CU_ASSERT_EQUAL(bits->downlink.payload_bits, downlink[a]);
        CU_ASSERT_EQUAL(bits->downlink.messages, (uint64_t)rounds);
        CU_ASSERT_EQUAL(bits->delivered_payload_bits, 10 * downlink[a]);
        CU_ASSERT_EQUAL(bits->control_bits, 0);
        CU_ASSERT_EQUAL(bits->telemetry_bits, (uint64_t)(10 * rounds * (64 + 32)));
        CU_ASSERT_TRUE(progress->cumulative_regret > 0);
        tally_job_free(job);
    }
}

typedef void visit_fn(void *context, int64_t step, double f);

static double loss_at(const struct job_host *host, const double *x)
{
    double sum = 0;
    for (uint32_t m = 0; m < host->spec.clients; m++) {
        sum += local_loss_of(host->objective, m, x);
    }
    return sum / (double)host->spec.clients;
}

/* Repeats the local steps of one client; calls `each` at every own iterate, before its step. */
static void walk(const struct job_host *host, uint32_t client, visit_fn *each, void *context)
{
    const struct tally_setting setting = tally_job_spec_setting(&host->spec);
    const struct tally_job_round *open = tally_job_open_round(host->job);
    const bool moves = host->spec.algorithm != MINIBATCH_SGD;
    double x[30], gradient[30];
    size_t dim;
    const double *point = tally_job_point(host->job, &dim);
    CU_ASSERT_FATAL(dim <= 30);
    memcpy(x, point, dim * sizeof *x);
    struct tally_rng rng;
    tally_rng_init(&rng, setting.key, client, (uint32_t)open->round, TALLY_RNG_SAMPLING);
    for (int64_t k = 0; k < open->plan.samples; k++) {
        each(context, k, loss_at(host, x));
        tally_objective_local_gradient(host->objective, client, x, 1, &rng, gradient, NULL);
        const double divisor =
            1 + setting.params->baseline.step_decay * (double)(open->plan.stage + k);
        for (size_t i = 0; moves && i < dim; i++) {
            x[i] -= setting.params->baseline.step_size / divisor * gradient[i];
        }
    }
}

static void add_f(void *context, int64_t step, double f)
{
    (void)step;
    *(double *)context += f;
}

/* R(T) from its definition, at evaluate_every = 1: f - f(x*) at each client's own iterate of each
 * time step. It holds in whole and cut rounds, for every K and T. */
static void expect_regret_of_own_iterates(struct job_host *host)
{
    double regret = 0;
    while (!tally_job_status_is_terminal(tally_job_status(host->job))) {
        for (uint32_t m = 0; m < 5; m++) {
            double sum = 0;
            walk(host, m, add_f, &sum);
            const int64_t samples = tally_job_open_round(host->job)->plan.samples;
            regret += sum - (double)samples * host->f_star;
        }
        job_host_round(host);
        CU_ASSERT_DOUBLE_EQUAL(tally_job_progress(host->job)->cumulative_regret, regret,
                               1e-11 * regret);
    }
    CU_ASSERT_TRUE(regret > 1);
}

static void test_job_baselines__regret_is_the_sum_over_own_iterates(void)
{
    static const int64_t shapes[][2] = {{7, 20}, {7, 21}, {5, 4}, {1, 9}, {100, 30}, {10, 11}};
    for (int a = 1; a < N_ALGORITHMS; a++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            const struct tally_job_spec spec = small(a, shapes[s][0], shapes[s][1]);
            static struct job_host host;
            job_host_init(&host, &spec);
            expect_regret_of_own_iterates(&host);
            job_host_fini(&host);
        }
    }
}

/* Steps decay, and rounds have 4, 4 + 0.5 * 4, 4 + 0.5 * 10 samples and so on. The last round is
 * cut. */
static void test_job_baselines__schedule_covers_the_horizon(void)
{
    static const int64_t samples[] = {4, 6, 9, 13, 20, 8}, before[] = {0, 4, 10, 19, 32, 52};
    enum { N_ROUNDS = sizeof samples / sizeof samples[0] };
    for (int a = FEDAVG; a <= FEDPAQ; a++) {
        struct tally_job_spec spec = small(a, 4, 60);
        spec.params.baseline.step_decay = 0.1;
        spec.params.baseline.local_steps_growth = 0.5;
        static struct job_host host;
        job_host_init(&host, &spec);
        expect_regret_of_own_iterates(&host);
        CU_ASSERT_EQUAL_FATAL(host.n_records, N_ROUNDS);
        for (int r = 0; r < N_ROUNDS; r++) {
            CU_ASSERT_EQUAL(host.records[r].samples, samples[r]);
            CU_ASSERT_EQUAL(host.records[r].stage, before[r]);
            CU_ASSERT_EQUAL(host.records[r].cut, r == N_ROUNDS - 1);
        }
        job_host_fini(&host);
    }
}

/* Even if rounds do not grow, the stage counts the queries, which the decay needs. */
static void test_job_baselines__decay_alone_counts_queries_too(void)
{
    struct tally_job_spec spec = small(FEDAVG, 7, 20);
    spec.params.baseline.step_decay = 0.1;
    static struct job_host host;
    job_host_init(&host, &spec);
    expect_regret_of_own_iterates(&host);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 3);
    CU_ASSERT_EQUAL(host.records[2].stage, 14);
    CU_ASSERT_EQUAL(host.records[2].samples, 6);
    job_host_fini(&host);
}

/* If K does not divide T, whole rounds send one message per client, and the remaining steps send
 * none. */
static void test_job_baselines__horizon_cuts_the_last_round(void)
{
    for (int a = 1; a < N_ALGORITHMS; a++) {
        for (int64_t horizon = 1; horizon <= 22; horizon++) {
            const struct tally_job_spec spec = small(a, 7, horizon);
            static struct job_host host;
            job_host_init(&host, &spec);
            job_host_run(&host);
            const int whole = (int)(horizon / 7), rest = (int)(horizon % 7);
            const uint64_t message = a >= FEDPAQ ? 32 + 6 * 3 : 32 * 6;
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
            CU_ASSERT_EQUAL_FATAL(host.n_records, whole + (rest > 0));
            for (int r = 0; r < host.n_records; r++) {
                const struct tally_round_record *record = &host.records[r];
                const bool cut = r == whole;
                CU_ASSERT_EQUAL(record->cut, cut);
                CU_ASSERT_EQUAL(record->samples, cut ? rest : 7);
                CU_ASSERT_EQUAL(record->passed, !cut);
                CU_ASSERT_EQUAL(record->bits.uplink.messages, cut ? 0 : 5);
                CU_ASSERT_EQUAL(record->bits.uplink.formula_bits, cut ? 0 : 5 * message);
                CU_ASSERT_EQUAL(record->bits.downlink.formula_bits, cut ? 0 : 32 * 6);
                CU_ASSERT_EQUAL(record->bits.telemetry_bits, cut ? 5 * 64 : 5 * 96);
            }
            CU_ASSERT_EQUAL(tally_job_progress(host.job)->iterate, whole + 1);
            job_host_fini(&host);
        }
    }
}

/* A cut does not change the rounds before it, and the steps of the cut round are those of the whole
 * round. */
static void test_job_baselines__longer_horizons_begin_like_shorter_ones(void)
{
    for (int a = 1; a < N_ALGORITHMS; a++) {
        static struct job_host longer, shorter;
        struct tally_job_spec spec = small(a, 7, 70);
        job_host_init(&longer, &spec);
        job_host_run(&longer);
        for (spec.horizon = 20; spec.horizon < 23; spec.horizon++) {
            job_host_init(&shorter, &spec);
            job_host_run(&shorter);
            CU_ASSERT_TRUE(job_same_record(&shorter.records[0], &longer.records[0]));
            CU_ASSERT_TRUE(job_same_record(&shorter.records[1], &longer.records[1]));
            CU_ASSERT_EQUAL(job_same_record(&shorter.records[2], &longer.records[2]),
                            spec.horizon != 20);
            job_host_fini(&shorter);
        }
        job_host_fini(&longer);
    }
}

/* The interpolation error. Between evaluated steps a < b, let V be the variation of f along the
 * client's iterates, sum |f(x_{k+1}) - f(x_k)|. The chord at k is a mean of f(x_a) and f(x_b) with
 * weights 1 - s and s, and |f(x_k) - f(x_a)| + |f(x_k) - f(x_b)| <= V, so one step is off by at
 * most V, a segment by (b - a - 1) V. Summed up over segments, clients and rounds, this bounds the
 * difference of the regrets; it needs no smoothness. */
struct variation {
    int64_t last;             /* step of the round */
    double before, in, bound; /* f one step ago; V of the open segment; the sum so far */
    int64_t opened;           /* step at which the segment began */
};

static void add_variation(void *context, int64_t step, double f)
{
    struct variation *variation = context;
    variation->in = step == 0 ? 0 : variation->in + fabs(f - variation->before);
    variation->before = f;
    if (step == 0) {
        variation->opened = 0;
    } else if (step % 10 == 0 || step == variation->last) {
        variation->bound += (double)(step - variation->opened - 1) * variation->in;
        variation->in = 0;
        variation->opened = step;
    }
}

static void test_job_baselines__evaluating_less_often_is_off_by_a_bounded_amount(void)
{
    for (int a = 1; a < N_ALGORITHMS; a++) {
        struct tally_job_spec spec = small(a, 43, 430 + 27);
        static struct job_host host;
        job_host_init(&host, &spec);
        double bound = 0;
        while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
            for (uint32_t m = 0; m < 5; m++) {
                struct variation variation = {.last =
                                                  tally_job_open_round(host.job)->plan.samples - 1};
                walk(&host, m, add_variation, &variation);
                bound += variation.bound;
            }
            job_host_round(&host);
        }
        const struct tally_progress every = *tally_job_progress(host.job);
        spec.evaluate_every = 10;
        struct tally_job *job = run(&spec);
        const struct tally_progress *tenth = tally_job_progress(job);
        const double difference = tenth->cumulative_regret - every.cumulative_regret;
        CU_ASSERT_TRUE(fabs(difference) <= bound * (1 + 1e-12));
        CU_ASSERT_TRUE(fabs(difference) <= 0.05 * every.cumulative_regret); /* as measured */
        CU_ASSERT_EQUAL(difference == 0, a == MINIBATCH_SGD); /* one point: nothing to skip */
        CU_ASSERT_EQUAL(tenth->x_checksum, every.x_checksum);
        CU_ASSERT_EQUAL(memcmp(&tenth->bits, &every.bits, sizeof every.bits), 0);
        tally_job_free(job);
        job_host_fini(&host);
    }
}

/* The paper's setup with a step size near FedAvg's best: the actual cost of evaluate_every = 10. */
static void test_job_baselines__synthetic_regret_is_within_1_percent_at_every_10th(void)
{
    for (int a = FEDAVG; a < N_ALGORITHMS; a++) {
        struct tally_job_spec spec = synthetic(a);
        spec.params.baseline.step_size = a == FEDCOM ? 0.002 : 0.01;
        struct tally_job *every = run(&spec);
        spec.evaluate_every = 10;
        struct tally_job *tenth = run(&spec);
        const double regret = tally_job_progress(every)->cumulative_regret;
        CU_ASSERT_DOUBLE_EQUAL(tally_job_progress(tenth)->cumulative_regret, regret, 0.01 * regret);
        CU_ASSERT_NOT_EQUAL(tally_job_progress(tenth)->cumulative_regret, regret);
        tally_job_free(every);
        tally_job_free(tenth);
    }
}

static void test_job_baselines__order_of_arrival_does_not_matter(void)
{
    static const uint32_t orders[][5] = {{4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}, {1, 4, 0, 3, 2}};
    for (int a = 1; a < N_ALGORITHMS; a++) {
        const struct tally_job_spec spec = small(a, 7, 60);
        static struct job_host host;
        job_host_init(&host, &spec);
        job_host_run(&host);
        struct job_look expected = job_look(host.job);
        job_host_fini(&host);
        for (size_t o = 0; o < 3; o++) {
            job_host_init(&host, &spec);
            for (size_t round = 0; !tally_job_status_is_terminal(tally_job_status(host.job));
                 round++) {
                job_host_compute(&host);
                for (size_t i = 0; i < 5; i++) {
                    job_host_send(&host, orders[(o + round) % 3][i]);
                }
            }
            struct job_look look = job_look(host.job);
            CU_ASSERT_TRUE(job_looks_same(&look, &expected));
            job_look_fini(&look);
            job_host_fini(&host);
        }
        job_look_fini(&expected);
    }
}

/* A job that is saved and restored before every round ends the same. */
static void test_job_baselines__survive_a_restore_in_every_round(void)
{
    for (int a = 1; a < N_ALGORITHMS; a++) {
        const struct tally_job_spec spec = small(a, 7, 60);
        struct tally_job *undisturbed = run(&spec);
        static struct job_host host;
        job_host_init(&host, &spec);
        while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
            struct tally_buffer state = {0};
            struct tally_job *again;
            struct tally_error err = TALLY_ERROR_INIT;
            CU_ASSERT_EQUAL(tally_job_save_state(host.job, &state), TALLY_OK);
            TALLY_ASSERT_STATUS(tally_job_restore(&spec, tally_job_status(host.job),
                                                  tally_job_progress(host.job), state.data,
                                                  state.size, &again, &err),
                                TALLY_OK, &err);
            tally_buffer_fini(&state);
            tally_job_free(host.job);
            host.job = again;
            size_t dim; /* broadcasts are not saved: the copy loads the point itself */
            const double *x = tally_job_point(host.job, &dim);
            CU_ASSERT_EQUAL(tally_model_copy_load(host.copy, tally_job_progress(again)->iterate,
                                                  (const uint8_t *)x, dim * sizeof *x, NULL),
                            TALLY_OK);
            job_host_round(&host);
        }
        CU_ASSERT_TRUE(
            job_same_progress(tally_job_progress(host.job), tally_job_progress(undisturbed)));
        tally_job_free(undisturbed);
        job_host_fini(&host);
    }
}

/* The step sizes range from one that diverges within one round to one that slowly exceeds the range
 * of the exact sums over many. The job fails and gives the reason. This is not an error of the
 * host. */
static void test_job_baselines__divergence_fails_the_job_and_names_the_step_size(void)
{
    static const double step_sizes[] = {1e9, 1e3, 30, 8, 5, 3};
    int failed = 0;
    for (int a = 1; a < N_ALGORITHMS; a++) {
        for (size_t s = 0; s < sizeof step_sizes / sizeof step_sizes[0]; s++) {
            for (int64_t local_steps = 1; local_steps <= 40; local_steps += 13) {
                struct tally_job_spec spec = small(a, local_steps, 4000);
                spec.params.baseline.step_size = step_sizes[s];
                spec.evaluate_every = 50;
                struct tally_job *job = run(&spec);
                if (tally_job_status(job) == TALLY_JOB_FAILED) {
                    failed++;
                    char end[60];
                    snprintf(end, sizeof end, " diverged; step_size %g is too large",
                             step_sizes[s]);
                    const char *reason = tally_job_reason(job);
                    CU_ASSERT_EQUAL(strncmp(reason, "client_failed: client ", 22), 0);
                    CU_ASSERT_PTR_NOT_NULL(strstr(reason, ": the steps of client "));
                    CU_ASSERT_PTR_NOT_NULL(strstr(reason, end));
                } else {
                    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_COMPLETED);
                    CU_ASSERT_TRUE(step_sizes[s] < 1e3); /* from 1e3 on they always fail */
                }
                tally_job_free(job);
            }
        }
    }
    CU_ASSERT_TRUE(failed >= 60);
}

/* The server cannot send the point that round 1 leads to. The round has no record, so its loss does
 * not become the job's. */
static void test_job_baselines__a_round_that_fails_does_not_change_the_loss(void)
{
    struct tally_job_spec spec = small(FEDCOM, 1, 100);
    spec.params.baseline.server_step_size = 1e60;
    struct job_host host;
    job_host_init(&host, &spec);
    const double loss = tally_job_progress(host.job)->loss;
    job_host_round(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_FAILED);
    CU_ASSERT_EQUAL(strncmp(tally_job_reason(host.job), "diverged: ", 10), 0);
    CU_ASSERT_EQUAL(host.n_records, 0);
    CU_ASSERT_TRUE(host.loss != loss);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->loss, loss);
    job_host_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_baselines__synthetic_bits_are_those_of_table_1),
    TALLY_TEST(test_job_baselines__regret_is_the_sum_over_own_iterates),
    TALLY_TEST(test_job_baselines__schedule_covers_the_horizon),
    TALLY_TEST(test_job_baselines__decay_alone_counts_queries_too),
    TALLY_TEST(test_job_baselines__horizon_cuts_the_last_round),
    TALLY_TEST(test_job_baselines__longer_horizons_begin_like_shorter_ones),
    TALLY_TEST(test_job_baselines__evaluating_less_often_is_off_by_a_bounded_amount),
    TALLY_TEST(test_job_baselines__synthetic_regret_is_within_1_percent_at_every_10th),
    TALLY_TEST(test_job_baselines__order_of_arrival_does_not_matter),
    TALLY_TEST(test_job_baselines__survive_a_restore_in_every_round),
    TALLY_TEST(test_job_baselines__divergence_fails_the_job_and_names_the_step_size),
    TALLY_TEST(test_job_baselines__a_round_that_fails_does_not_change_the_loss),
};
TALLY_SUITE(job_baselines, TESTS);

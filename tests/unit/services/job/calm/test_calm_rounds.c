/* CALM jobs in edge cases (the opening round, a short horizon, no noise, absent clients), and the
 * course of a whole job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm.h"
#include "tests/harness.h"
#include "tests/unit/services/job/calm/calm_jobs.h"

static struct job_host HOST, OTHER; /* large: not on the stack */

static void complete(const struct tally_job_spec *spec)
{
    job_host_init(&HOST, spec);
    job_host_run(&HOST);
    CU_ASSERT_EQUAL(tally_job_status(HOST.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(tally_job_progress(HOST.job)->time_step, spec->horizon);
    CU_ASSERT_EQUAL(isfinite(tally_job_progress(HOST.job)->cumulative_regret) != 0,
                    spec->reference.type != TALLY_REFERENCE_NONE);
}

static void test_calm_rounds__opening_is_repeated_without_queries(void)
{
    const struct tally_job_spec spec = calm_job_auto(30, 3);
    complete(&spec);
    CU_ASSERT_TRUE_FATAL(HOST.n_records > 4);
    CU_ASSERT_TRUE(HOST.records[0].samples == CALM_OPENING_SAMPLES && HOST.records[0].stage == 0 &&
                   !HOST.records[0].passed && HOST.records[0].bits.control_bits == 20 &&
                   HOST.records[0].bits.uplink.payload_bits == 60);
    CU_ASSERT_TRUE(HOST.records[1].samples == 0 && HOST.records[1].passed &&
                   HOST.records[1].bits.uplink.messages == 3);
    CU_ASSERT_EQUAL(HOST.records[2].samples, 18);
    CU_ASSERT_EQUAL(HOST.records[3].samples, 54);
    job_host_fini(&HOST);
}

/* If the step size is found too and there are many clients, they make fewer queries at x. More
 * follow them: the clients move, and are asked for the loss there. */
static void test_calm_rounds__first_message_goes_on_from_the_opening(void)
{
    for (int i = 0; i < 2; i++) {
        struct tally_job_spec spec = calm_job_auto(30, i == 0 ? 3 : 10);
        spec.params = TALLY_CALM.defaults();
        spec.initial_point.radius = 1; /* few of the opening's gradients are signal */
        job_host_init(&HOST, &spec);
        job_host_round(&HOST);
        CU_ASSERT_EQUAL(HOST.records[0].samples, i == 0 ? 8 : 5);
        const struct tally_job_round *open = tally_job_open_round(HOST.job);
        const int64_t samples = open->plan.samples;
        CU_ASSERT_EQUAL(open->plan.facts.repeats, i == 0 ? CALM_OPENING_SAMPLES : CALM_FEW_DRAWS);
        CU_ASSERT_TRUE(samples > 0 && samples <= 4);
        CU_ASSERT_TRUE(open->evaluate);
        calm_job_crash(&HOST);
        CU_ASSERT_TRUE(tally_job_open_round(HOST.job)->evaluate);
        job_host_round(&HOST);
        CU_ASSERT_TRUE_FATAL(HOST.n_records == 2 && HOST.records[1].passed);
        CU_ASSERT_EQUAL(HOST.records[1].samples, samples);
        CU_ASSERT_TRUE(HOST.records[1].loss < HOST.records[0].loss);
        CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->plan.facts.repeats, 0);
        job_host_fini(&HOST);
    }
}

static void test_calm_rounds__malformed_report_changes_nothing(void)
{
    const struct tally_job_spec spec = calm_job_auto(30, 3);
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    uint8_t bytes[4] = {0};
    struct tally_update update = HOST.updates[0];
    CU_ASSERT_EQUAL_FATAL(update.payload.size, 3);
    memcpy(bytes, update.payload.data, 3);
    update.payload.data = bytes;
    for (int i = 0; i < 4; i++) {
        update.payload.size = (size_t[]){3, 4, 2, 0}[i];
        update.payload_bits = (uint64_t[]){20, 20, 16, 0}[i];
        bytes[2] = (uint8_t)(HOST.updates[0].payload.data[2] ^ (i == 0 ? 0x80 : 0)); /* padding */
        struct job_look before = job_look(HOST.job);
        struct tally_job_outcome outcome;
        CU_ASSERT_EQUAL(tally_job_receive(HOST.job, &update, &outcome, NULL), TALLY_MALFORMED);
        struct job_look after = job_look(HOST.job);
        CU_ASSERT_TRUE(job_looks_same(&before, &after));
        job_look_fini(&before);
        job_look_fini(&after);
    }
    job_host_fini(&HOST);
}

static void test_calm_rounds__horizon_may_end_in_or_behind_the_opening(void)
{
    for (int64_t horizon = 1; horizon < 30; horizon++) {
        struct tally_job_spec spec = calm_job_auto(3, 3);
        spec.horizon = horizon;
        complete(&spec);
        const struct tally_ledger *bits = &tally_job_progress(HOST.job)->bits;
        CU_ASSERT_EQUAL(bits->uplink.messages > 0, horizon >= 6);
        CU_ASSERT_EQUAL(bits->control_bits > 0, horizon >= 6);
        CU_ASSERT_EQUAL(bits->downlink.messages, (horizon > 6) + (horizon >= 24));
        job_host_fini(&HOST);
    }
}

/* Data without noise; then also only one point per client, so that all its gradients are equal. */
static void test_calm_rounds__job_without_noise_completes(void)
{
    struct tally_job_spec spec = calm_job_auto(1, 3);
    for (int i = 0; i < 2; i++) {
        struct tally_synthetic_linear *data = &spec.objective.data.synthetic_linear;
        data->noise_std = 0;
        if (i == 1) {
            data->points = 3;
            data->frobenius_norm = sqrt(3.0 / 6);
        }
        complete(&spec);
        CU_ASSERT_TRUE(tally_job_progress(HOST.job)->estimates.sigma > 0);
        CU_ASSERT_TRUE(tally_job_progress(HOST.job)->iterate > 1);
        job_host_fini(&HOST);
    }
}

static void absent(struct job_host *host, uint32_t client)
{
    struct tally_job_outcome outcome;
    tally_job_set_absent(host->job, client, true, &outcome);
    for (int i = 0; i < outcome.n_records; i++) {
        host->records[host->n_records++] = outcome.records[i];
    }
}

static struct calm_memory memory_of(const struct job_host *host)
{
    struct calm_memory memory;
    struct tally_buffer state = {0};
    const struct tally_setting setting = tally_job_spec_setting(&host->spec);
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(host->job, &state), TALLY_OK);
    memcpy(&memory, state.data + state.size - 8 - calm_memory_bytes(&setting), sizeof memory);
    tally_buffer_fini(&state);
    return memory;
}

/* With fewer answers the estimate is worse: the clients' own optima no longer cancel out. */
static void test_calm_rounds__absent_clients_make_the_estimate_worse(void)
{
    struct tally_job_spec spec = calm_job_known(30, 6);
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 1;
    job_host_init(&OTHER, &spec);
    job_host_round(&OTHER);
    job_host_init(&HOST, &spec);
    absent(&HOST, 2);
    absent(&HOST, 5);
    job_host_compute(&HOST);
    const struct tally_round_plan plan = tally_job_open_round(HOST.job)->plan;
    for (uint32_t m = 0; m < 6; m++) {
        if (m != 2 && m != 5) {
            job_host_send(&HOST, m);
        }
    }
    CU_ASSERT_EQUAL_FATAL(HOST.n_records, 1);
    CU_ASSERT_EQUAL(HOST.records[0].received, 4);
    const struct calm_memory some = memory_of(&HOST), all = memory_of(&OTHER);
    /* Vz = V vnew / (V + vnew): 1 / Vz - 1 / V = 1 / vnew. */
    const double v = plan.facts.distance;
    const double vnew_some = 1 / (1 / some.state.estimate_variance - 1 / v);
    const double vnew_all = 1 / (1 / all.state.estimate_variance - 1 / v);
    const double own_optima = 0.03 * (1.0 / 4 - 1.0 / 6) * 6 / 5;
    CU_ASSERT_TRUE(vnew_some > vnew_all + own_optima);
    CU_ASSERT_TRUE(vnew_some - own_optima < vnew_all * 6 / 4);
    while (!tally_job_status_is_terminal(tally_job_status(HOST.job))) {
        job_host_compute(&HOST);
        const int64_t round = tally_job_open_round(HOST.job)->round;
        for (uint32_t m = 0; m < 6; m++) {
            if (m != 2 && m != 5 && tally_job_open_round(HOST.job)->round == round) {
                job_host_send(&HOST, m);
            }
        }
    }
    CU_ASSERT_EQUAL(tally_job_status(HOST.job), TALLY_JOB_COMPLETED);
    job_host_fini(&HOST);
    job_host_fini(&OTHER);
}

/* From the second mean on, the clients of a job whose steps are too short agree on a direction. */
static void test_calm_rounds__clients_travel_where_their_means_agree(void)
{
    const struct tally_job_spec spec = calm_job_travelling(30, 3);
    complete(&spec);
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    int n_travelled = 0;
    struct job_host *host = &OTHER;
    job_host_init(host, &spec);
    while (!tally_job_status_is_terminal(tally_job_status(host->job))) {
        const struct tally_round_plan plan = tally_job_open_round(host->job)->plan;
        const int at = host->n_records;
        job_host_round(host);
        n_travelled += plan.facts.travel_step > 0 && !plan.cut;
        if (plan.facts.travel_step > 0 && !plan.cut) { /* noise, size, regime, step, motion */
            CU_ASSERT_EQUAL(host->records[at].bits.control_bits,
                            n_travelled == 1 ? 5 + 5 + 1 + 6 + 6 : 5 + 5 + 5 + 6);
            CU_ASSERT_TRUE(host->records[at].samples >= 24);
            CU_ASSERT_TRUE(plan.facts.travel_step <= 0.95 * setting.params->calm.step_size);
        }
    }
    CU_ASSERT_TRUE(n_travelled >= 4);
    const double travelled = tally_job_progress(host->job)->cumulative_regret;
    job_host_fini(host);
    job_host_fini(&HOST);
    struct tally_job_spec stays = spec;
    stays.params.calm.local_step_limit = stays.params.calm.step_size;
    complete(&stays);
    CU_ASSERT_TRUE(travelled < 0.5 * tally_job_progress(HOST.job)->cumulative_regret);
    job_host_fini(&HOST);
}

/* A job that is judged by its regret sends no message in the last epoch: nothing could use it. A
 * job without a regret is judged by its model, which should include all the work of its clients.
 * They send the message, and the model moves. */
static void test_calm_rounds__last_epoch_counts_where_there_is_no_regret(void)
{
    for (int reference = TALLY_REFERENCE_SOLVE; reference <= TALLY_REFERENCE_NONE; reference++) {
        struct tally_job_spec spec = calm_job_travelling(30, 3);
        const bool is_judged_by_model = reference == TALLY_REFERENCE_NONE;
        spec.reference.type = reference;
        complete(&spec);
        const struct tally_round_record *last = &HOST.records[HOST.n_records - 1];
        CU_ASSERT_EQUAL(last->cut, !is_judged_by_model);
        CU_ASSERT_EQUAL(last->passed, is_judged_by_model);
        CU_ASSERT_EQUAL(last->bits.uplink.messages, is_judged_by_model ? 3 : 0);
        CU_ASSERT_TRUE((last->bits.downlink.payload_bits > 0) == is_judged_by_model);
        CU_ASSERT_TRUE(last->samples > 24); /* it is a travelling round */
        job_host_fini(&HOST);
    }
}

/* A job that may not travel plans its messages in advance and sends none at the horizon. */
static void test_calm_rounds__other_jobs_are_silent_at_the_horizon(void)
{
    struct tally_job_spec spec = calm_job_known(30, 3);
    spec.reference.type = TALLY_REFERENCE_NONE;
    complete(&spec);
    CU_ASSERT_TRUE(HOST.records[HOST.n_records - 1].cut);
    job_host_fini(&HOST);
}

/* Runs rounds until the open round travels. */
static void travel_to(const struct tally_job_spec *spec)
{
    job_host_init(&HOST, spec);
    while (tally_job_open_round(HOST.job)->plan.facts.travel_step == 0) {
        job_host_round(&HOST);
    }
}

/* The point that client 1 reaches from x, by the formulas of calm_client.c. */
static void travel_alone(const struct tally_job_round *round, double *w)
{
    const struct tally_job_spec *spec = &HOST.spec;
    const struct tally_walk_facts *facts = &round->plan.facts;
    const struct tally_setting setting = tally_job_spec_setting(spec);
    double g[30], before[30] = {0}, seen = facts->noise;
    struct tally_rng rng;
    tally_rng_init(&rng, setting.key, 1, (uint32_t)round->round, TALLY_RNG_SAMPLING);
    for (int64_t i = 0; i < round->plan.samples; i++) {
        CU_ASSERT_EQUAL_FATAL(
            tally_objective_local_gradient(HOST.objective, 1, w, spec->minibatch, &rng, g, NULL),
            TALLY_OK);
        double half = 0;
        for (int k = 0; k < 30; k++) {
            half += (g[k] - before[k]) * (g[k] - before[k]) / (2 * 30);
        }
        if (i > 0) {
            seen += (half - seen) * fmax(1 / (6.0 + (double)i), 0.05);
        }
        const double eh = facts->travel_step / spec->params.calm.step_size;
        const double step =
            spec->params.calm.step_size * eh / (eh + (1 - eh) * fmax(1, seen / facts->noise));
        for (int k = 0; k < 30; k++) {
            w[k] -= step * g[k];
            before[k] = g[k];
        }
    }
}

/* On a fine grid the message says exactly how far the client travelled. The task states a third of
 * the true noise, so steps become shorter on the way. */
static void test_calm_rounds__client_sends_how_far_it_travelled(void)
{
    const struct tally_job_spec spec = calm_job_travelling(30, 3);
    travel_to(&spec);
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    struct tally_job_round round = *tally_job_open_round(HOST.job);
    struct tally_update update;
    struct tally_bits bits;
    struct tally_rng rng;
    struct tally_level_stats stats;
    int64_t values[30];
    double w[30];
    size_t dim;
    const double *x = tally_job_point(HOST.job, &dim);
    CU_ASSERT_EQUAL_FATAL(dim, 30);
    job_host_compute(&HOST);
    round.plan.facts.noise /= 3;
    round.plan.grid = (struct tally_grid){.step = 1e-4,
                                          .intervals = round.plan.grid.intervals,
                                          .scale = tally_dithered_scale_of(1e3)};
    CU_ASSERT_EQUAL_FATAL(tally_model_copy_compute(HOST.copy, &round, 1, &update, &bits, NULL),
                          TALLY_OK);
    tally_rng_init(&rng, setting.key, 1, (uint32_t)round.round, TALLY_RNG_UPLINK);
    CU_ASSERT_EQUAL_FATAL(tally_dithered_decode(update.payload.data, update.payload.size,
                                                update.payload_bits, dim, &round.plan.grid, &rng,
                                                values, &stats, NULL),
                          TALLY_OK);
    memcpy(w, x, sizeof w);
    travel_alone(&round, w);
    for (int k = 0; k < 30; k++) {
        CU_ASSERT_DOUBLE_EQUAL((double)values[k] * 0x1p-32 * 1e-4, w[k] - x[k], 1.01e-4);
    }
    job_host_fini(&HOST);
}

/* Returns how the clients of a CALM job travel, their last mean, and z. */
static struct tally_calm_travel travel_of(const struct job_host *host, double *ret_z,
                                          double *ret_mean)
{
    struct tally_calm_travel travel;
    struct tally_buffer state = {0};
    const struct tally_setting setting = tally_job_spec_setting(&host->spec);
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(host->job, &state), TALLY_OK);
    const uint8_t *end = state.data + state.size - sizeof(uint64_t);
    const size_t n = setting.dim * sizeof(double);
    memcpy(ret_z, end - calm_memory_bytes(&setting) + sizeof(struct calm_memory), n);
    memcpy(ret_mean, end - n, n);
    memcpy(&travel, end - n - sizeof travel, sizeof travel);
    tally_buffer_fini(&state);
    return travel;
}

/* z is the mean of the points that the clients reached, and its variance is that of their mean. The
 * step follows from the gap and s. */
static void test_calm_rounds__estimate_travels_with_the_clients(void)
{
    const struct tally_job_spec spec = calm_job_travelling(30, 3);
    travel_to(&spec);
    for (int i = 0; i < 4; i++) {
        double x[30], z[30], mean[30];
        size_t dim;
        memcpy(x, tally_job_point(HOST.job, &dim), sizeof x);
        const struct tally_round_plan plan = tally_job_open_round(HOST.job)->plan;
        job_host_round(&HOST);
        const struct tally_calm_travel travel = travel_of(&HOST, z, mean);
        for (int k = 0; k < 30; k++) {
            CU_ASSERT_DOUBLE_EQUAL(z[k], x[k] + mean[k], 1e-12);
        }
        const struct calm_memory memory = memory_of(&HOST);
        const double h = 1 / spec.params.calm.step_size, step = plan.grid.step;
        CU_ASSERT_TRUE(memory.state.estimate_variance > step * step / 12 / 3);
        CU_ASSERT_TRUE(memory.state.estimate_variance < step * step); /* the noise is step / 1.3 */
        const double e = tally_job_open_round(HOST.job)->plan.facts.travel_step;
        CU_ASSERT_EQUAL(memory.noise, plan.facts.noise); /* s does not change meanwhile */
        const double meant = h * travel.gap / (h * h * travel.gap + memory.noise);
        CU_ASSERT_TRUE(fabs(log2(e / meant)) < 0.126); /* rounded to quarter octaves */
    }
    job_host_fini(&HOST);
}

static void test_calm_rounds__jobs_with_a_budget_do_not_travel(void)
{
    struct tally_job_spec spec = calm_job_travelling(30, 3);
    spec.budget.downlink_bits = 100000;
    job_host_init(&HOST, &spec);
    while (!tally_job_status_is_terminal(tally_job_status(HOST.job))) {
        CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->plan.facts.travel_step, 0);
        job_host_round(&HOST);
    }
    job_host_fini(&HOST);
}

/* A worker derives the number of intervals of a travelling round from the number of clients. A
 * worker of 0.13.0, which would read the task as one of averaging, therefore refuses it. */
static void test_calm_rounds__travelling_task_names_no_intervals(void)
{
    const struct tally_job_spec spec = calm_job_travelling(30, 3);
    travel_to(&spec);
    struct tally_job_round round = *tally_job_open_round(HOST.job);
    struct tally_update update;
    struct tally_bits bits;
    job_host_compute(&HOST);
    round.plan.grid.intervals = 0;
    CU_ASSERT_EQUAL_FATAL(tally_model_copy_compute(HOST.copy, &round, 1, &update, &bits, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(update.payload_bits, HOST.updates[1].payload_bits);
    CU_ASSERT_EQUAL(memcmp(update.payload.data, HOST.updates[1].payload.data, update.payload.size),
                    0);
    round.plan.facts.travel_step = 0; /* what that worker reads */
    CU_ASSERT_EQUAL(tally_model_copy_compute(HOST.copy, &round, 1, &update, &bits, NULL),
                    TALLY_OUT_OF_RANGE);
    job_host_fini(&HOST);
}

/* The regret is near what the recursion promises. h d / 2 sum V is of this size only if the point
 * comes near the optimum, round by round. */
static void test_calm_rounds__point_comes_near_the_optimum(void)
{
    struct tally_job_spec spec = calm_job_known(30, 6);
    complete(&spec);
    const struct tally_progress *progress = tally_job_progress(HOST.job);
    CU_ASSERT_TRUE(progress->iterate > 2);
    const double at_start = HOST.records[0].cumulative_regret / (double)HOST.records[0].samples;
    CU_ASSERT_TRUE(progress->cumulative_regret < 0.3 * at_start * (double)spec.horizon);
    job_host_fini(&HOST);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_rounds__opening_is_repeated_without_queries),
    TALLY_TEST(test_calm_rounds__first_message_goes_on_from_the_opening),
    TALLY_TEST(test_calm_rounds__malformed_report_changes_nothing),
    TALLY_TEST(test_calm_rounds__horizon_may_end_in_or_behind_the_opening),
    TALLY_TEST(test_calm_rounds__job_without_noise_completes),
    TALLY_TEST(test_calm_rounds__absent_clients_make_the_estimate_worse),
    TALLY_TEST(test_calm_rounds__clients_travel_where_their_means_agree),
    TALLY_TEST(test_calm_rounds__last_epoch_counts_where_there_is_no_regret),
    TALLY_TEST(test_calm_rounds__other_jobs_are_silent_at_the_horizon),
    TALLY_TEST(test_calm_rounds__client_sends_how_far_it_travelled),
    TALLY_TEST(test_calm_rounds__estimate_travels_with_the_clients),
    TALLY_TEST(test_calm_rounds__jobs_with_a_budget_do_not_travel),
    TALLY_TEST(test_calm_rounds__travelling_task_names_no_intervals),
    TALLY_TEST(test_calm_rounds__point_comes_near_the_optimum),
};
TALLY_SUITE(calm_rounds, TESTS);

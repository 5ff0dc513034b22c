/* Jobs of CALM at their edges: the opening round, a short horizon, no noise, absent clients; and
 * the course of a whole job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    CU_ASSERT_TRUE(isfinite(tally_job_progress(HOST.job)->cumulative_regret));
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

static void test_calm_rounds__malformed_report_changes_nothing(void)
{
    const struct tally_job_spec spec = calm_job_auto(30, 3);
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    uint8_t bytes[4] = {0};
    struct tally_job_update update = HOST.updates[0];
    CU_ASSERT_EQUAL_FATAL(update.n_payload, 3);
    memcpy(bytes, update.payload, 3);
    update.payload = bytes;
    for (int i = 0; i < 4; i++) {
        update.n_payload = (size_t[]){3, 4, 2, 0}[i];
        update.payload_bits = (uint64_t[]){20, 20, 16, 0}[i];
        bytes[2] = (uint8_t)(HOST.updates[0].payload[2] ^ (i == 0 ? 0x80 : 0)); /* padding */
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

/* Every client has one point: its gradients are all alike. */
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

/* With fewer answers the estimate is worse: the clients' own optima no longer average out. */
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

/* Regret is near what the recursion promises: h d / 2 sum V is of this size only if the point comes
 * near the optimum, round by round. */
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
    TALLY_TEST(test_calm_rounds__malformed_report_changes_nothing),
    TALLY_TEST(test_calm_rounds__horizon_may_end_in_or_behind_the_opening),
    TALLY_TEST(test_calm_rounds__job_without_noise_completes),
    TALLY_TEST(test_calm_rounds__absent_clients_make_the_estimate_worse),
    TALLY_TEST(test_calm_rounds__point_comes_near_the_optimum),
};
TALLY_SUITE(calm_rounds, TESTS);

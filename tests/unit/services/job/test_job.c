/* The engine: a job from its start to its horizon, with its points, records and counters. */
#include "services/job/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

/* A new job has the checksum of its initial point, but no vectors. */
static void test_job_engine__new_job_is_queued_and_holds_no_point(void)
{
    const struct tally_job_spec spec = job_host_spec();
    struct tally_job *job;
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&spec, &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_QUEUED);
    TALLY_ASSERT_TEXT(tally_job_reason(job), "");
    const struct tally_progress *progress = tally_job_progress(job);
    CU_ASSERT_EQUAL(progress->round, 0);
    CU_ASSERT_EQUAL(progress->time_step, 0);
    CU_ASSERT_EQUAL(progress->iterate, 1);
    CU_ASSERT_EQUAL(progress->stage, 2);
    CU_ASSERT_FALSE(progress->has_f_star);
    const uint64_t checksum = progress->x_checksum;
    size_t dim;
    CU_ASSERT_PTR_NULL(tally_job_point(job, &dim));
    CU_ASSERT_EQUAL_FATAL(dim, 6);
    CU_ASSERT_EQUAL_FATAL(tally_job_start(job, 0, "", NULL), TALLY_OK);
    const double *x = tally_job_point(job, &dim);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    CU_ASSERT_EQUAL(tally_job_progress(job)->x_checksum, checksum);
    double expected[6], square = 0, *made = NULL;
    tally_job_spec_initial_point(&spec, expected);
    CU_ASSERT_EQUAL(memcmp(x, expected, sizeof expected), 0);
    CU_ASSERT_EQUAL_FATAL(tally_job_make_initial_point(&spec, &made, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(memcmp(made, expected, sizeof expected), 0);
    for (size_t i = 0; i < dim; i++) {
        square += x[i] * x[i];
    }
    CU_ASSERT_DOUBLE_EQUAL(sqrt(square), 12, 1e-12);
    free(made);
    tally_job_free(job);
    tally_job_free(NULL);
}

/* Every query that a host may make of a job without vectors has an answer. */
static void expect_without_vectors(struct tally_job *job)
{
    const struct tally_update update = {.round = 0, .client = 0};
    const struct tally_update outside = {.round = 1, .client = 5};
    struct tally_job_outcome outcome;
    struct tally_buffer state = {0};
    size_t dim;
    CU_ASSERT_EQUAL(tally_job_receive(job, &update, &outcome, NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_receive(job, &outside, &outcome, NULL), TALLY_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(tally_job_save_state(job, &state), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_FALSE(tally_job_has_received(job, 0));
    CU_ASSERT_FALSE(tally_job_is_absent(job, 0));
    CU_ASSERT_PTR_NULL(tally_job_point(job, &dim));
    tally_buffer_fini(&state);
}

static void test_job_engine__one_that_never_started_has_no_vectors(void)
{
    const struct tally_job_spec spec = job_host_spec();
    struct tally_job *job, *again;
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&spec, &job, NULL), TALLY_OK);
    expect_without_vectors(job);
    CU_ASSERT_EQUAL_FATAL(
        tally_job_restore(&spec, TALLY_JOB_QUEUED, tally_job_progress(job), NULL, 0, &again, NULL),
        TALLY_OK);
    expect_without_vectors(again);
    CU_ASSERT_EQUAL(tally_job_progress(again)->x_checksum, tally_job_progress(job)->x_checksum);
    CU_ASSERT_EQUAL(tally_job_cancel(job, NULL), TALLY_OK);
    expect_without_vectors(job);
    CU_ASSERT_EQUAL(tally_job_start(job, 0, "", NULL), TALLY_FAILED_PRECONDITION);
    expect_without_vectors(job);
    tally_job_free(job);
    tally_job_free(again);
}

static void test_job_engine__full_run_ends_exactly_at_the_horizon(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    job_host_run(&host);
    const struct tally_progress *progress = tally_job_progress(host.job);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(progress->time_step, 300);
    CU_ASSERT_EQUAL(progress->round, host.n_records);
    int passed = 0, continued = 0;
    for (int i = 0; i < host.n_records; i++) {
        passed += host.records[i].passed;
        continued += !host.records[i].passed && !host.records[i].cut;
    }
    CU_ASSERT_TRUE(passed >= 3); /* otherwise the standard job tests little */
    CU_ASSERT_TRUE(continued >= 2);
    CU_ASSERT_EQUAL(progress->iterate, 1 + passed);
    CU_ASSERT_EQUAL(progress->bits.control_bits, (uint64_t)continued);
    job_host_fini(&host);
}

static void test_job_engine__ledger_is_the_sum_of_the_records(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    struct tally_ledger sum = {0};
    int added = 0;
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_round(&host);
        for (; added < host.n_records; added++) {
            tally_ledger_add(&sum, &host.records[added].bits);
        }
        const struct tally_ledger *bits = &tally_job_progress(host.job)->bits;
        CU_ASSERT_EQUAL(bits->uplink.formula_bits, sum.uplink.formula_bits);
        CU_ASSERT_EQUAL(bits->uplink.payload_bits, sum.uplink.payload_bits);
        CU_ASSERT_EQUAL(bits->uplink.messages, sum.uplink.messages);
        CU_ASSERT_EQUAL(bits->uplink.clipped, sum.uplink.clipped);
        CU_ASSERT_EQUAL(bits->downlink.formula_bits, sum.downlink.formula_bits);
        CU_ASSERT_EQUAL(bits->downlink.payload_bits, sum.downlink.payload_bits);
        CU_ASSERT_EQUAL(bits->downlink.messages, sum.downlink.messages);
        CU_ASSERT_EQUAL(bits->downlink.clipped, sum.downlink.clipped);
        CU_ASSERT_EQUAL(bits->delivered_payload_bits, sum.delivered_payload_bits);
        CU_ASSERT_EQUAL(bits->control_bits, sum.control_bits);
        CU_ASSERT_EQUAL(bits->telemetry_bits, sum.telemetry_bits);
    }
    job_host_fini(&host);
}

/* Compares each record with the counts of the clients and the broadcast, added up here. */
static void test_job_engine__records_count_what_was_sent(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    uint64_t clipped_up = 0, clipped_down = 0;
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        const struct tally_job_round open = *tally_job_open_round(host.job);
        const int n = host.n_records;
        job_host_compute(&host);
        struct tally_bits up = {0};
        for (uint32_t m = 0; m < 5; m++) {
            tally_bits_add(&up, &host.bits[m]);
            struct tally_job_outcome outcome = job_host_send(&host, m);
            CU_ASSERT_EQUAL(memcmp(&outcome.bits, &host.bits[m], sizeof outcome.bits), 0);
            CU_ASSERT_EQUAL(outcome.n_records > 0, m == 4);
        }
        clipped_up += up.clipped;
        const struct tally_round_record *record = &host.records[n];
        CU_ASSERT_EQUAL(record->round, open.round);
        CU_ASSERT_EQUAL(record->iterate, open.iterate);
        CU_ASSERT_EQUAL(record->stage, open.plan.stage);
        CU_ASSERT_EQUAL(memcmp(&record->bits.uplink, &up, sizeof up), 0);
        const uint64_t loss_bits = open.evaluate ? 5 * 64 : 0;
        const uint64_t clip_bits = !open.plan.cut ? 5 * 32 : 0;
        CU_ASSERT_EQUAL(record->bits.telemetry_bits, loss_bits + clip_bits);
        if (open.plan.cut) {
            continue;
        }
        CU_ASSERT_EQUAL(record->samples, open.plan.samples);
        CU_ASSERT_EQUAL(record->received, 5);
        CU_ASSERT_EQUAL(record->bits.control_bits, record->passed ? 0 : 1);
        struct tally_bits down = {0};
        if (record->passed) {
            down = tally_job_broadcast(host.job, record->iterate + 1)->bits;
            CU_ASSERT_TRUE(down.payload_bits > 0);
            clipped_down += down.clipped;
        }
        CU_ASSERT_EQUAL(memcmp(&record->bits.downlink, &down, sizeof down), 0);
        CU_ASSERT_EQUAL(record->bits.delivered_payload_bits, 5 * down.payload_bits);
        CU_ASSERT_EQUAL(record->bits.downlink.messages, record->passed);
    }
    CU_ASSERT_TRUE(clipped_up > 0); /* the first gradients are out of range */
    CU_ASSERT_TRUE(clipped_down > 0);
    job_host_fini(&host);
}

/* Recomputes the iterates: decodes the levels of the messages, averages and tests them, and
 * subtracts the quantized values of the broadcast. */
static void test_job_engine__point_moves_by_the_broadcast(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    const struct tally_setting setting = tally_job_spec_setting(&host.spec);
    double x[6];
    tally_job_spec_initial_point(&host.spec, x);
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        const struct tally_job_round open = *tally_job_open_round(host.job);
        const int n = host.n_records;
        job_host_compute(&host);
        double mean[6] = {0}, square = 0;
        for (uint32_t m = 0; m < 5; m++) {
            int32_t levels[6] = {0};
            struct tally_level_stats stats;
            const struct tally_update *update = &host.updates[m];
            if (!open.plan.cut) {
                CU_ASSERT_EQUAL(setting.encoding->decode(update->payload.data, update->payload.size,
                                                         update->payload_bits, 6, &open.plan.grid,
                                                         levels, &stats, NULL),
                                TALLY_OK);
            }
            for (size_t i = 0; i < 6; i++) {
                mean[i] += open.plan.grid.step * levels[i] / 5;
            }
            job_host_send(&host, m);
        }
        for (size_t i = 0; i < 6; i++) {
            square += mean[i] * mean[i];
        }
        const struct tally_round_record *record = &host.records[n];
        CU_ASSERT_DOUBLE_EQUAL(record->norm, sqrt(square), 1e-12);
        if (record->passed) {
            const struct tally_message *q = tally_job_broadcast(host.job, record->iterate + 1);
            int32_t levels[6];
            struct tally_level_stats stats;
            CU_ASSERT_EQUAL(setting.encoding->decode(q->payload.data, q->payload.size,
                                                     q->bits.payload_bits, 6, &q->grid, levels,
                                                     &stats, NULL),
                            TALLY_OK);
            for (size_t i = 0; i < 6; i++) {
                const double range = q->grid.step * q->grid.intervals / 2;
                const double inside = fmax(-range, fmin(range, mean[i]));
                CU_ASSERT_TRUE(fabs(levels[i] * q->grid.step - inside) <= q->grid.step * 1.001);
                x[i] -= 1.5 * q->grid.step * levels[i];
            }
        }
        size_t dim;
        const double *point = tally_job_point(host.job, &dim);
        for (size_t i = 0; i < 6; i++) {
            CU_ASSERT_DOUBLE_EQUAL(point[i], x[i], 1e-12);
        }
    }
    job_host_fini(&host);
}

/* R(T) from its definition: samples times M times f - f*, with f from the data at the engine's
 * point. */
static void test_job_engine__regret_is_recomputed_from_the_losses(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    double regret = 0;
    int64_t time_step = 0;
    int done = 0;
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_round(&host);
        for (; done < host.n_records; done++) {
            const struct tally_round_record *record = &host.records[done];
            CU_ASSERT_DOUBLE_EQUAL(record->loss, host.loss, 1e-12 * host.loss);
            regret += 5.0 * (double)record->samples * (host.loss - host.f_star);
            time_step += record->samples;
            CU_ASSERT_DOUBLE_EQUAL(record->cumulative_regret, regret, 1e-9 * regret);
            CU_ASSERT_EQUAL(record->time_step, time_step);
        }
    }
    const struct tally_progress *progress = tally_job_progress(host.job);
    CU_ASSERT_EQUAL(progress->cumulative_regret,
                    host.records[host.n_records - 1].cumulative_regret);
    CU_ASSERT_EQUAL(progress->f_star, host.f_star);
    CU_ASSERT_EQUAL(tally_progress_loss(progress), host.records[host.n_records - 1].loss);
    CU_ASSERT_TRUE(regret > 0);
    job_host_fini(&host);
}

/* Each point's losses are requested once. */
static void test_job_engine__evaluates_each_point_once(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    int64_t evaluated = 0;
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        const struct tally_job_round *open = tally_job_open_round(host.job);
        CU_ASSERT_EQUAL(open->evaluate, open->iterate != evaluated);
        if (open->evaluate) {
            evaluated = open->iterate;
        }
        job_host_round(&host);
    }
    job_host_fini(&host);
}

static void test_job_engine__order_of_arrival_does_not_matter(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    job_host_run(&host);
    struct job_look expected = job_look(host.job);
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(99, 0), 0, 0, TALLY_RNG_NOISE);
    for (int trial = 0; trial < 20; trial++) {
        struct job_host other;
        job_host_init_standard(&other);
        while (!tally_job_status_is_terminal(tally_job_status(other.job))) {
            uint32_t order[5] = {0, 1, 2, 3, 4};
            for (uint32_t i = 5; i > 1; i--) {
                uint32_t j = tally_rng_below(&rng, i), swap = order[i - 1];
                order[i - 1] = order[j];
                order[j] = swap;
            }
            job_host_compute(&other);
            for (int i = 0; i < 5; i++) {
                job_host_send(&other, order[i]);
            }
        }
        struct job_look look = job_look(other.job);
        CU_ASSERT_TRUE(job_looks_same(&look, &expected));
        CU_ASSERT_EQUAL(other.n_records, host.n_records);
        bool same = true;
        for (int i = 0; i < host.n_records; i++) {
            same = same && job_same_record(&other.records[i], &host.records[i]);
        }
        CU_ASSERT_TRUE(same);
        job_look_fini(&look);
        job_host_fini(&other);
    }
    job_look_fini(&expected);
    job_host_fini(&host);
}

static void test_job_engine__has_received_tells_who_answered(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    for (int round = 0; round < 3; round++) {
        job_host_compute(&host);
        for (uint32_t m = 0; m < 5; m++) {
            for (uint32_t other = 0; other < 5; other++) {
                CU_ASSERT_EQUAL(tally_job_has_received(host.job, other), other < m);
            }
            CU_ASSERT_EQUAL(tally_job_open_round(host.job)->received, m);
            job_host_send(&host, m);
        }
    }
    job_host_fini(&host);
}

/* Drawing and summing ten million coordinates would take 0.3 s of a host that creates a job. */
static void test_job_engine__a_long_initial_point_is_summed_at_the_start(void)
{
    struct tally_job_spec spec = job_host_spec();
    struct tally_job *job;
    spec.objective.data.synthetic_linear.dim = 100001;
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&spec, &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_progress(job)->x_checksum, 0);
    CU_ASSERT_EQUAL_FATAL(tally_job_start(job, 0, "", NULL), TALLY_OK);
    size_t dim;
    const double *x = tally_job_point(job, &dim);
    CU_ASSERT_EQUAL_FATAL(dim, 100001);
    CU_ASSERT_EQUAL(tally_job_progress(job)->x_checksum, tally_checksum64(x, dim * sizeof *x));
    tally_job_free(job);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_engine__new_job_is_queued_and_holds_no_point),
    TALLY_TEST(test_job_engine__a_long_initial_point_is_summed_at_the_start),
    TALLY_TEST(test_job_engine__one_that_never_started_has_no_vectors),
    TALLY_TEST(test_job_engine__full_run_ends_exactly_at_the_horizon),
    TALLY_TEST(test_job_engine__ledger_is_the_sum_of_the_records),
    TALLY_TEST(test_job_engine__records_count_what_was_sent),
    TALLY_TEST(test_job_engine__point_moves_by_the_broadcast),
    TALLY_TEST(test_job_engine__regret_is_recomputed_from_the_losses),
    TALLY_TEST(test_job_engine__evaluates_each_point_once),
    TALLY_TEST(test_job_engine__order_of_arrival_does_not_matter),
    TALLY_TEST(test_job_engine__has_received_tells_who_answered),
};
TALLY_SUITE(job_engine, TESTS);

#include "services/job/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

static void init(struct job_host *host)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(host, &spec);
}

/* Runs the standard job without incident; what every disturbed run must end as. */
static struct job_look undisturbed(void)
{
    struct job_host host;
    init(&host);
    job_host_run(&host);
    struct job_look look = job_look(host.job);
    job_host_fini(&host);
    return look;
}

/* It has the checksum of its initial point, and no vectors. */
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

/* Every question that a host may ask of a job without vectors has an answer. */
static void expect_without_vectors(struct tally_job *job)
{
    const struct tally_job_update update = {.round = 0, .client = 0};
    const struct tally_job_update outside = {.round = 1, .client = 5};
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
    init(&host);
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
    CU_ASSERT_TRUE(passed >= 3); /* else the standard job tests little */
    CU_ASSERT_TRUE(continued >= 2);
    CU_ASSERT_EQUAL(progress->iterate, 1 + passed);
    CU_ASSERT_EQUAL(progress->bits.control_bits, (uint64_t)continued);
    job_host_fini(&host);
}

static void test_job_engine__ledger_is_the_sum_of_the_records(void)
{
    struct job_host host;
    init(&host);
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

/* Each record against what the clients and the broadcast say, counted here. */
static void test_job_engine__records_count_what_was_sent(void)
{
    struct job_host host;
    init(&host);
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
    CU_ASSERT_TRUE(clipped_up > 0); /* it starts with gradients out of range */
    CU_ASSERT_TRUE(clipped_down > 0);
    job_host_fini(&host);
}

/* The iterates by hand: levels decoded from the messages, averaged, tested, quantized values of the
 * broadcast subtracted. */
static void test_job_engine__point_moves_by_the_broadcast(void)
{
    struct job_host host;
    init(&host);
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
            const struct tally_job_update *update = &host.updates[m];
            if (!open.plan.cut) {
                CU_ASSERT_EQUAL(setting.encoding->decode(update->payload, update->n_payload,
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

/* R(T) from the definition: samples times M times f - f*, f from the data at the engine's point. */
static void test_job_engine__regret_is_recomputed_from_the_losses(void)
{
    struct job_host host;
    init(&host);
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
    CU_ASSERT_TRUE(regret > 0);
    job_host_fini(&host);
}

/* Losses are asked for once per point. */
static void test_job_engine__evaluates_each_point_once(void)
{
    struct job_host host;
    init(&host);
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
    init(&host);
    job_host_run(&host);
    struct job_look expected = job_look(host.job);
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(99, 0), 0, 0, TALLY_RNG_NOISE);
    for (int trial = 0; trial < 20; trial++) {
        struct job_host other;
        init(&other);
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

/* Every message of the run is sent three times: the two copies change nothing. */
static void test_job_engine__duplicates_get_the_same_answer_and_change_nothing(void)
{
    struct job_look expected = undisturbed();
    struct job_host host;
    init(&host);
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_compute(&host);
        for (uint32_t m = 0; m < 5; m++) {
            struct tally_job_outcome first = job_host_send(&host, m), again;
            CU_ASSERT_FALSE(first.duplicate);
            struct job_look before = job_look(host.job);
            for (uint32_t copy = 0; copy < 2; copy++) {
                CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[m * copy], &again, NULL),
                                TALLY_OK);
                CU_ASSERT_TRUE(again.duplicate);
                CU_ASSERT_EQUAL(again.n_records, 0);
                CU_ASSERT_EQUAL(memcmp(&again.bits, &host.bits[m * copy], sizeof again.bits), 0);
            }
            struct job_look after = job_look(host.job);
            CU_ASSERT_TRUE(job_looks_same(&before, &after));
            job_look_fini(&before);
            job_look_fini(&after);
        }
    }
    struct job_look look = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&look, &expected));
    job_look_fini(&look);
    job_look_fini(&expected);
    job_host_fini(&host);
}

/* Sends a bad update: the status is right, the engine untouched. */
static void expect_refused(struct job_host *host, const struct tally_job_update *update,
                           enum tally_status status, const char *field)
{
    struct job_look before = job_look(host->job);
    struct tally_job_outcome outcome = {.n_records = 77}; /* written only on success */
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_receive(host->job, update, &outcome, &err), status, &err);
    TALLY_ASSERT_TEXT(err.field, field);
    CU_ASSERT_EQUAL(outcome.n_records, 77);
    CU_ASSERT_FALSE(outcome.duplicate);
    struct job_look after = job_look(host->job);
    CU_ASSERT_TRUE(job_looks_same(&before, &after));
    job_look_fini(&before);
    job_look_fini(&after);
}

/* Everything that can be wrong with client 2's update, one thing at a time. */
static void send_all_that_is_wrong(struct job_host *host)
{
    const struct tally_job_round open = *tally_job_open_round(host->job);
    const struct tally_job_update good = host->updates[2];
    struct tally_job_update bad = good;
    bad.client = 5;
    expect_refused(host, &bad, TALLY_OUT_OF_RANGE, "client");
    bad.client = UINT32_MAX;
    expect_refused(host, &bad, TALLY_OUT_OF_RANGE, "client");

    const int64_t rounds[] = {open.round + 1, open.round - 1, 0, -1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        bad = good;
        bad.round = rounds[i];
        /* The round before is closed, and client 2 has sent other bytes for it. */
        bool sent = bad.round == open.round - 1 && bad.round > 0;
        expect_refused(host, &bad, sent ? TALLY_ALREADY_EXISTS : TALLY_FAILED_PRECONDITION,
                       "round");
    }
    bad = good;
    bad.has_loss = !bad.has_loss;
    bad.loss = 1;
    expect_refused(host, &bad, TALLY_MALFORMED, "loss");
    const double losses[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (size_t i = 0; open.evaluate && i < 3; i++) {
        bad = good;
        bad.loss = losses[i];
        expect_refused(host, &bad, TALLY_MALFORMED, "loss");
    }
    bad = good;
    bad.clipped = 7; /* above dim 6 */
    expect_refused(host, &bad, TALLY_MALFORMED, "clipped");
    bad.clipped = UINT32_MAX;
    expect_refused(host, &bad, TALLY_MALFORMED, "clipped");

    const uint8_t junk[40] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    bad = good;
    bad.payload = junk;
    bad.n_payload = sizeof junk;
    bad.payload_bits = 8 * sizeof junk;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    bad.payload_bits = UINT64_MAX;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    if (open.plan.cut) {
        bad = good;
        bad.clipped = 1;
        expect_refused(host, &bad, TALLY_MALFORMED, "payload");
        bad = good;
        bad.payload_bits = 1;
        expect_refused(host, &bad, TALLY_MALFORMED, "payload");
        return;
    }
    bad = good;
    bad.payload = NULL;
    bad.n_payload = 0;
    bad.payload_bits = 0;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    bad = good;
    bad.payload_bits++;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    bad = good;
    bad.n_payload--;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
}

/* All of it in every round, before and between good messages: the job ends as if undisturbed, so no
 * sum, loss or counter was touched either. */
static void expect_undisturbed(const struct tally_job_spec *spec)
{
    struct job_host host;
    job_host_init(&host, spec);
    job_host_run(&host);
    struct job_look expected = job_look(host.job);
    job_host_fini(&host);
    job_host_init(&host, spec);
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_compute(&host);
        send_all_that_is_wrong(&host);
        job_host_send(&host, 4);
        send_all_that_is_wrong(&host);
        for (uint32_t m = 0; m < 4; m++) {
            job_host_send(&host, m);
        }
    }
    struct job_look look = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&look, &expected));
    job_look_fini(&look);
    job_look_fini(&expected);
    job_host_fini(&host);
}

static void test_job_engine__bad_updates_change_nothing(void)
{
    struct tally_job_spec spec = job_host_spec();
    expect_undisturbed(&spec);
    spec.params.ceal.first_stage = 6; /* does not fit: a round that is only evaluated */
    spec.horizon = 5;
    expect_undisturbed(&spec);
}

/* A client that has answered may not answer otherwise, not even in one bit of one member. */
static void test_job_engine__other_bytes_for_the_same_round_already_exist(void)
{
    struct job_host host;
    init(&host);
    job_host_compute(&host);
    job_host_send(&host, 1);
    const struct tally_job_update good = host.updates[1];
    struct tally_job_update bad = good;
    uint8_t *payload = malloc(good.n_payload);
    CU_ASSERT_PTR_NOT_NULL_FATAL(payload);
    for (size_t bit = 0; bit < 8 * good.n_payload; bit++) {
        memcpy(payload, good.payload, good.n_payload);
        payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bad.payload = payload;
        expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    }
    bad = good;
    bad.n_payload--;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.payload_bits++;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.clipped ^= 1;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.loss = nextafter(bad.loss, 0);
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.has_loss = false;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = host.updates[3]; /* another client's bytes under this one's name */
    bad.client = 1;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    free(payload);
    job_host_fini(&host);
}

static void test_job_engine__closed_round_is_refused_once_the_next_is_answered(void)
{
    struct job_host host;
    init(&host);
    job_host_round(&host);
    const struct tally_job_update old = host.updates[0];
    uint8_t *payload = malloc(old.n_payload);
    CU_ASSERT_PTR_NOT_NULL_FATAL(payload);
    memcpy(payload, old.payload, old.n_payload);
    struct tally_job_update late = old;
    late.payload = payload;
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &late, &outcome, NULL), TALLY_OK);
    CU_ASSERT_TRUE(outcome.duplicate); /* the last message of a client is remembered */
    job_host_compute(&host);
    job_host_send(&host, 0);
    expect_refused(&host, &late, TALLY_FAILED_PRECONDITION, "round");
    free(payload);
    job_host_fini(&host);
}

static void test_job_engine__has_received_tells_who_answered(void)
{
    struct job_host host;
    init(&host);
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

static void test_job_engine__nothing_is_received_before_the_start(void)
{
    struct job_host host;
    init(&host);
    job_host_compute(&host);
    tally_job_free(host.job);
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&host.spec, &host.job, NULL), TALLY_OK);
    expect_refused(&host, &host.updates[0], TALLY_FAILED_PRECONDITION, "job_id");
    job_host_fini(&host);
}

/* Updates under way still count while a job is paused, rounds close, but the job stays paused. */
static void test_job_engine__paused_job_takes_what_is_under_way(void)
{
    struct job_look expected = undisturbed();
    struct job_host host;
    init(&host);
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_job_start(host.job, 0, "", NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_resume(host.job, NULL), TALLY_FAILED_PRECONDITION);
    job_host_compute(&host);
    job_host_send(&host, 0);
    TALLY_ASSERT_STATUS(tally_job_pause(host.job, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_FAILED_PRECONDITION);
    for (uint32_t m = 1; m < 5; m++) {
        job_host_send(&host, m);
    }
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_PAUSED);
    CU_ASSERT_EQUAL(host.n_records, 1);
    CU_ASSERT_EQUAL(tally_job_open_round(host.job)->round, 2);
    TALLY_ASSERT_STATUS(tally_job_resume(host.job, &err), TALLY_OK, &err);
    job_host_run(&host);
    struct job_look look = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&look, &expected));
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_cancel(host.job, NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_fail(host.job, "late", NULL), TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(tally_job_reason(host.job), "");
    job_look_fini(&look);
    job_look_fini(&expected);
    job_host_fini(&host);
}

static void test_job_engine__paused_job_may_complete(void)
{
    struct job_host host;
    init(&host);
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_OK);
    job_host_run(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    job_host_fini(&host);
}

static void test_job_engine__cancelled_and_failed_jobs_take_no_more(void)
{
    for (int failed = 0; failed < 2; failed++) {
        struct job_host host;
        init(&host);
        job_host_compute(&host);
        job_host_send(&host, 0);
        if (failed) {
            CU_ASSERT_EQUAL(tally_job_fail(host.job, "disk on fire", NULL), TALLY_OK);
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_FAILED);
            TALLY_ASSERT_TEXT(tally_job_reason(host.job), "disk on fire");
        } else {
            CU_ASSERT_EQUAL(tally_job_cancel(host.job, NULL), TALLY_OK);
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_CANCELLED);
        }
        expect_refused(&host, &host.updates[1], TALLY_FAILED_PRECONDITION, "job_id");
        struct tally_job_outcome outcome; /* what was acknowledged stays so */
        CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[0], &outcome, NULL), TALLY_OK);
        CU_ASSERT_TRUE(outcome.duplicate);
        job_host_fini(&host);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_engine__new_job_is_queued_and_holds_no_point),
    TALLY_TEST(test_job_engine__one_that_never_started_has_no_vectors),
    TALLY_TEST(test_job_engine__full_run_ends_exactly_at_the_horizon),
    TALLY_TEST(test_job_engine__ledger_is_the_sum_of_the_records),
    TALLY_TEST(test_job_engine__records_count_what_was_sent),
    TALLY_TEST(test_job_engine__point_moves_by_the_broadcast),
    TALLY_TEST(test_job_engine__regret_is_recomputed_from_the_losses),
    TALLY_TEST(test_job_engine__evaluates_each_point_once),
    TALLY_TEST(test_job_engine__order_of_arrival_does_not_matter),
    TALLY_TEST(test_job_engine__duplicates_get_the_same_answer_and_change_nothing),
    TALLY_TEST(test_job_engine__bad_updates_change_nothing),
    TALLY_TEST(test_job_engine__other_bytes_for_the_same_round_already_exist),
    TALLY_TEST(test_job_engine__closed_round_is_refused_once_the_next_is_answered),
    TALLY_TEST(test_job_engine__has_received_tells_who_answered),
    TALLY_TEST(test_job_engine__nothing_is_received_before_the_start),
    TALLY_TEST(test_job_engine__paused_job_takes_what_is_under_way),
    TALLY_TEST(test_job_engine__paused_job_may_complete),
    TALLY_TEST(test_job_engine__cancelled_and_failed_jobs_take_no_more),
};
TALLY_SUITE(job_engine, TESTS);

/* CALM jobs that crash, and CALM jobs whose updates arrive in another order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/algorithms/calm.h"
#include "tests/harness.h"
#include "tests/unit/services/job/calm/calm_jobs.h"

static struct job_host HOST, EXPECTED; /* large: not on the stack */

enum { KINDS = 7, TRAVELLING = 4, SHIFTS = 5 };

/* Kinds 0 to 3: unknown constants if odd, a budget from 2 on. Then travelling, shifts, and shifts
 * with a budget. */
static struct tally_job_spec job_of_kind(int kind, uint32_t dim, int64_t clients)
{
    if (kind == TRAVELLING) {
        return calm_job_travelling(dim, clients);
    }
    struct tally_job_spec spec = kind % 2 == 0 || kind >= SHIFTS ? calm_job_known(dim, clients)
                                                                 : calm_job_auto(dim, clients);
    spec.params.calm.shifts = kind >= SHIFTS;
    if (kind / 2 == 1 || kind == SHIFTS + 1) {
        spec.budget =
            (struct tally_budget){.uplink_bits = 40 + 6 * dim, .downlink_bits = 80 + 6 * dim};
    }
    return spec;
}

static void for_each_job(void (*run)(const struct tally_job_spec *spec))
{
    static const uint32_t DIMS[] = {1, 3, 30};
    static const int64_t CLIENTS[] = {1, 3, 10};
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < 9; i++) {
            if (kind % 2 == 0 && kind != TRAVELLING && (i / 3 + i % 3) % 3 != kind / 2 % 3) {
                continue; /* planning a schedule takes long: run a third of them */
            }
            const struct tally_job_spec spec = job_of_kind(kind, DIMS[i / 3], CLIENTS[i % 3]);
            job_host_init(&EXPECTED, &spec);
            job_host_run(&EXPECTED);
            CU_ASSERT_EQUAL(tally_job_status(EXPECTED.job), TALLY_JOB_COMPLETED);
            CU_ASSERT_TRUE(DIMS[i / 3] == 1 || tally_job_progress(EXPECTED.job)->iterate > 1);
            CU_ASSERT_TRUE(kind != TRAVELLING || DIMS[i / 3] < 30 || EXPECTED.n_records > 8);
            job_host_init(&HOST, &spec);
            run(&spec);
            calm_job_expect_same(&HOST, &EXPECTED);
            job_host_fini(&HOST);
            job_host_fini(&EXPECTED);
        }
    }
}

static bool is_running(const struct job_host *host)
{
    return !tally_job_status_is_terminal(tally_job_status(host->job));
}

static void crash_at_boundaries(const struct tally_job_spec *spec)
{
    (void)spec;
    while (is_running(&HOST)) {
        struct job_look before = job_look(HOST.job);
        calm_job_crash(&HOST);
        struct job_look after = job_look(HOST.job);
        CU_ASSERT_TRUE(job_looks_same(&before, &after));
        job_look_fini(&before);
        job_look_fini(&after);
        job_host_round(&HOST);
    }
}

static void test_calm_saving__restored_after_every_round_ends_the_same(void)
{
    for_each_job(crash_at_boundaries);
}

/* The new process receives the updates of the open round again. */
static void crash_in_the_middle(const struct tally_job_spec *spec)
{
    const uint32_t half = (uint32_t)spec->clients / 2;
    while (is_running(&HOST)) {
        job_host_compute(&HOST);
        for (uint32_t m = 0; m < half; m++) {
            job_host_send(&HOST, m);
        }
        calm_job_crash(&HOST);
        CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->received, 0);
        for (uint32_t m = 0; m < spec->clients; m++) {
            CU_ASSERT_FALSE(job_host_send(&HOST, m).duplicate);
        }
    }
}

static void test_calm_saving__restored_within_a_round_ends_the_same(void)
{
    for_each_job(crash_in_the_middle);
}

static void send_backwards(const struct tally_job_spec *spec)
{
    while (is_running(&HOST)) {
        job_host_compute(&HOST);
        for (uint32_t m = (uint32_t)spec->clients; m-- > 0;) {
            job_host_send(&HOST, m);
        }
    }
}

static void test_calm_saving__order_of_arrival_does_not_matter(void)
{
    for_each_job(send_backwards);
}

/* A job saved after three rounds. The first is an opening round without a broadcast, except with
 * shifts. */
struct saved {
    struct tally_job_spec spec;
    struct tally_progress progress;
    struct tally_buffer state;
};

static void save_some(struct saved *saved, int kind)
{
    *saved = (struct saved){.spec = job_of_kind(kind, 3, 3)};
    job_host_init(&HOST, &saved->spec);
    for (int i = 0; i < 3; i++) {
        job_host_round(&HOST);
    }
    saved->progress = *tally_job_progress(HOST.job);
    CU_ASSERT_EQUAL(saved->progress.iterate, kind == SHIFTS ? 4 : 3); /* SHIFTS: no opening */
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(HOST.job, &saved->state), TALLY_OK);
    job_host_fini(&HOST);
}

static enum tally_status restore(const struct saved *saved)
{
    struct tally_job *job = NULL;
    enum tally_status status = tally_job_restore(&saved->spec, TALLY_JOB_RUNNING, &saved->progress,
                                                 saved->state.data, saved->state.size, &job, NULL);
    tally_job_free(job);
    return status;
}

static void test_calm_saving__damaged_bytes_are_data_loss(void)
{
    struct saved saved;
    save_some(&saved, 1);
    CU_ASSERT_EQUAL(restore(&saved), TALLY_OK);
    bool refused = true;
    for (size_t i = 0; i < saved.state.size; i++) {
        const uint8_t good = saved.state.data[i];
        saved.state.data[i] ^= (uint8_t)(1U << i % 8);
        refused = refused && restore(&saved) == TALLY_DATA_LOSS;
        saved.state.data[i] = good;
    }
    CU_ASSERT_TRUE(refused);
    tally_buffer_fini(&saved.state);
}

/* Restores with `part` in place of the stored bytes at offset `from` of the memory, and with a
 * correct checksum. */
static enum tally_status restore_with_part(struct saved *saved, size_t from, const void *part,
                                           size_t n)
{
    const struct tally_setting setting = tally_job_spec_setting(&saved->spec);
    const size_t body = saved->state.size - sizeof(uint64_t);
    memcpy(saved->state.data + body - calm_memory_bytes(&setting) + from, part, n);
    const uint64_t sum = tally_checksum64(saved->state.data, body);
    memcpy(saved->state.data + body, &sum, sizeof sum);
    return restore(saved);
}

static enum tally_status restore_with(struct saved *saved, const struct calm_memory *memory)
{
    return restore_with_part(saved, 0, memory, sizeof *memory);
}

static void test_calm_saving__memory_out_of_range_is_data_loss(void)
{
    struct saved saved;
    save_some(&saved, 1);
    const struct tally_setting setting = tally_job_spec_setting(&saved.spec);
    struct calm_memory good;
    memcpy(&good,
           saved.state.data + saved.state.size - sizeof(uint64_t) - calm_memory_bytes(&setting),
           sizeof good);
    CU_ASSERT_EQUAL(good.epoch, 2);
    CU_ASSERT_EQUAL(good.schedule.n, 5);
    CU_ASSERT_EQUAL(restore_with(&saved, &good), TALLY_OK);
    struct calm_memory bad[18];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bad[i] = good;
    }
    bad[0].epoch = -1;
    bad[1].epoch = 6;
    bad[2].schedule.n = -1;
    bad[3].schedule.n = TALLY_CALM_MAX_EPOCHS + 1;
    bad[4].schedule.n = 1; /* fewer than the closed epochs */
    bad[5].opening_samples = -1;
    bad[6].downlink_bits = -1;
    bad[7].state.variance = 0;
    bad[8].state.estimate_variance = NAN;
    bad[9].noise = 0;
    bad[10].client_spread = -1;
    bad[11].state.samples_left = -1;
    bad[12].state.samples_left = saved.spec.horizon + 1;
    bad[13].schedule.epochs[4].samples = 0;
    bad[14].schedule.epochs[2].uplink_resolution = -1;
    bad[15].belief.regret = NAN;
    bad[16].belief.share = -1;
    bad[17].belief.share = 1; /* in a job that does not estimate its step size */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const enum tally_status status = restore_with(&saved, &bad[i]);
        CU_ASSERT_EQUAL(status, TALLY_DATA_LOSS);
        if (status != TALLY_DATA_LOSS) {
            fprintf(stderr, "memory %zu is accepted\n", i);
        }
    }
    tally_buffer_fini(&saved.state);
}

/* In the memory, z and the bits of each client come before the travel record, the last mean after
 * it. */
static void test_calm_saving__travel_out_of_range_is_data_loss(void)
{
    enum { DIM = 3, CLIENTS = 3 };
    struct saved saved;
    save_some(&saved, TRAVELLING);
    const struct tally_setting setting = tally_job_spec_setting(&saved.spec);
    const size_t from = sizeof(struct calm_memory) + (DIM + CLIENTS) * sizeof(double);
    CU_ASSERT_EQUAL_FATAL(calm_memory_bytes(&setting),
                          from + sizeof(struct tally_calm_travel) + DIM * sizeof(double));
    struct tally_calm_travel good;
    memcpy(&good,
           saved.state.data + saved.state.size - sizeof(uint64_t) - calm_memory_bytes(&setting) +
               from,
           sizeof good);
    CU_ASSERT_EQUAL(good.epochs, 2);
    CU_ASSERT_EQUAL(restore_with_part(&saved, from, &good, sizeof good), TALLY_OK);
    struct tally_calm_travel bad[] = {good, good, good};
    bad[0].epochs = 1; /* fewer than the closed epochs */
    bad[1].samples = 0;
    bad[2].total_reach = NAN;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CU_ASSERT_EQUAL(restore_with_part(&saved, from, &bad[i], sizeof bad[i]), TALLY_DATA_LOSS);
    }
    tally_buffer_fini(&saved.state);
}

/* The shifts come last, and that of the last client is at the end. */
static void test_calm_saving__shift_that_is_no_number_is_data_loss(void)
{
    struct saved saved;
    save_some(&saved, SHIFTS);
    const struct tally_setting setting = tally_job_spec_setting(&saved.spec);
    const float good = 0.5F, bad = NAN;
    const size_t last = calm_memory_bytes(&setting) - sizeof good;
    CU_ASSERT_EQUAL(restore_with_part(&saved, last, &good, sizeof good), TALLY_OK);
    CU_ASSERT_EQUAL(restore_with_part(&saved, last, &bad, sizeof bad), TALLY_DATA_LOSS);
    tally_buffer_fini(&saved.state);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_saving__restored_after_every_round_ends_the_same),
    TALLY_TEST(test_calm_saving__restored_within_a_round_ends_the_same),
    TALLY_TEST(test_calm_saving__order_of_arrival_does_not_matter),
    TALLY_TEST(test_calm_saving__damaged_bytes_are_data_loss),
    TALLY_TEST(test_calm_saving__memory_out_of_range_is_data_loss),
    TALLY_TEST(test_calm_saving__travel_out_of_range_is_data_loss),
    TALLY_TEST(test_calm_saving__shift_that_is_no_number_is_data_loss),
};
TALLY_SUITE(calm_saving, TESTS);

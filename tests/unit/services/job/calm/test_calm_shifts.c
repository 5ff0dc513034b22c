/* CALM jobs whose clients keep shifts: what a client sends and how the server uses it. A worker may
 * have lost a shift, or have added a message to it that the server did not count. */
#include <math.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm.h"
#include "tests/harness.h"
#include "tests/unit/services/job/calm/calm_jobs.h"

static struct job_host HOST, OTHER; /* large: not on the stack */

enum { DIM = 30, CLIENTS = 5 };

/* Clients whose optima are much farther from x* than x is: 200 points for 30 unknowns, split among
 * 5 clients. */
static struct tally_job_spec unlike(void)
{
    struct tally_job_spec spec = calm_job_known(DIM, CLIENTS);
    spec.params.calm.noise = 0.05;
    spec.params.calm.noise_growth = 0.4;
    spec.params.calm.client_spread = 0.2;
    spec.minibatch = 10;
    spec.params.calm.shifts = true;
    return spec;
}

static void decode(const struct tally_update *update, const struct tally_grid *grid,
                   uint32_t client, double *ret_values)
{
    const struct tally_setting setting = tally_job_spec_setting(&HOST.spec);
    struct tally_rng rng;
    struct tally_level_stats stats;
    int64_t integers[DIM];
    tally_rng_init(&rng, setting.key, client, (uint32_t)update->round, TALLY_RNG_UPLINK);
    CU_ASSERT_EQUAL_FATAL(tally_dithered_decode(update->payload.data, update->payload.size,
                                                update->payload_bits, DIM, grid, &rng, integers,
                                                &stats, NULL),
                          TALLY_OK);
    for (int i = 0; i < DIM; i++) {
        ret_values[i] = grid->step * 0x1p-32 * (double)integers[i];
    }
}

/* The same round of a client, with its shift and with the initial shift instead. The messages
 * differ by the difference of the shifts, up to rounding, and the server's copy moves by a fraction
 * of the message. */
static void test_calm_shifts__client_sends_what_the_shift_lacks(void)
{
    const struct tally_job_spec spec = unlike();
    job_host_init(&HOST, &spec);
    job_host_init(&OTHER, &spec);
    float first[DIM], shift[DIM];
    int64_t round;
    memcpy(first, tally_job_shift(HOST.job, 2, &round), sizeof first);
    CU_ASSERT_EQUAL(round, 0);
    job_host_round(&HOST);
    job_host_round(&HOST);
    memcpy(shift, tally_job_shift(HOST.job, 2, &round), sizeof shift);
    CU_ASSERT_EQUAL_FATAL(round, 2);
    job_host_round(&OTHER);
    job_host_round(&OTHER);
    CU_ASSERT_EQUAL(
        tally_model_copy_set_shift(OTHER.copy, 2, 2, (const uint8_t *)first, sizeof first, NULL),
        TALLY_OK);
    job_host_compute(&HOST);
    job_host_compute(&OTHER);
    const struct tally_round_plan plan = tally_job_open_round(HOST.job)->plan;
    double with[DIM], without[DIM], size = 0;
    decode(&HOST.updates[2], &plan.grid, 2, with);
    decode(&OTHER.updates[2], &plan.grid, 2, without);
    for (int i = 0; i < DIM; i++) {
        const double expected = (double)shift[i] - (double)first[i];
        CU_ASSERT_DOUBLE_EQUAL(without[i] - with[i], expected, 1.001 * plan.grid.step);
        size += expected * expected;
    }
    CU_ASSERT_TRUE(size > 100 * plan.grid.step * plan.grid.step);

    job_host_send(&HOST, 2);
    CU_ASSERT_EQUAL(memcmp(shift, tally_job_shift(HOST.job, 2, &round), sizeof shift), 0);
    CU_ASSERT_EQUAL(round, 2); /* the open round still lacks its message */
    for (uint32_t m = 0; m < CLIENTS; m++) {
        m != 2 ? job_host_send(&HOST, m) : (struct tally_job_outcome){0};
    }
    const float *after = tally_job_shift(HOST.job, 2, &round);
    CU_ASSERT_EQUAL(round, 3);
    for (int i = 0; i < DIM; i++) {
        CU_ASSERT_DOUBLE_EQUAL(after[i], (double)shift[i] + plan.facts.shift_gain * with[i],
                               1e-6 * (1 + fabs((double)shift[i])));
    }
    job_host_fini(&HOST);
    job_host_fini(&OTHER);
}

/* The estimate is the mean of all shifts plus that of the messages that arrived. */
static void test_calm_shifts__absent_clients_count_with_their_shift(void)
{
    const struct tally_job_spec spec = unlike();
    double regret[2], bits[2];
    for (int kept = 0; kept < 2; kept++) {
        struct tally_job_spec drops = spec;
        drops.params.calm.shifts = kept;
        drops.policy = TALLY_POLICY_DROP;
        drops.quorum = 3;
        regret[kept] = bits[kept] = 0;
        for (uint32_t seed = 0; seed < 12; seed++) {
            drops.seed = seed;
            job_host_init(&HOST, &drops);
            for (uint32_t k = 0; !tally_job_status_is_terminal(tally_job_status(HOST.job)); k++) {
                struct tally_job_outcome outcome;
                job_host_compute(&HOST);
                for (uint32_t m = 0; m < CLIENTS; m++) {
                    const bool misses = k > 0 && (m == k % CLIENTS || m == (k + 2) % CLIENTS);
                    if (!misses) {
                        job_host_send(&HOST, m);
                    } else {
                        tally_job_set_absent(HOST.job, m, true, &outcome);
                    }
                }
                for (uint32_t m = 0; m < CLIENTS; m++) {
                    int64_t counted; /* what the server tells a worker */
                    tally_job_set_absent(HOST.job, m, false, &outcome);
                    if (tally_job_shift(HOST.job, m, &counted) != NULL) {
                        CU_ASSERT_EQUAL(
                            tally_model_copy_set_shift(HOST.copy, m, counted, NULL, 0, NULL),
                            TALLY_OK);
                    }
                }
            }
            const struct tally_progress *progress = tally_job_progress(HOST.job);
            CU_ASSERT_EQUAL(tally_job_status(HOST.job), TALLY_JOB_COMPLETED);
            regret[kept] += progress->cumulative_regret;
            bits[kept] += (double)progress->bits.uplink.payload_bits;
            job_host_fini(&HOST);
        }
    }
    CU_ASSERT_TRUE(regret[1] < 0.9 * regret[0]); /* 0.81 */
    CU_ASSERT_TRUE(bits[1] < bits[0]);
}

/* A worker to which a client is reassigned ends where the first one would have, but only with the
 * server's copy of the shift. */
static void test_calm_shifts__a_client_moves_to_another_worker(void)
{
    const struct tally_job_spec spec = unlike();
    job_host_init(&OTHER, &spec);
    job_host_run(&OTHER);
    job_host_init(&HOST, &spec);
    while (!tally_job_status_is_terminal(tally_job_status(HOST.job))) {
        struct tally_model_copy *fresh;
        size_t dim;
        const double *x = tally_job_point(HOST.job, &dim);
        const int64_t iterate = tally_job_progress(HOST.job)->iterate;
        CU_ASSERT_EQUAL_FATAL(tally_model_copy_new(&spec, HOST.objective, &fresh, NULL), TALLY_OK);
        tally_model_copy_free(HOST.copy);
        HOST.copy = fresh;
        CU_ASSERT_EQUAL(
            tally_model_copy_load(fresh, iterate, (const uint8_t *)x, dim * sizeof *x, NULL),
            TALLY_OK);
        for (uint32_t m = 0; m < CLIENTS; m++) {
            int64_t round;
            const float *shift = tally_job_shift(HOST.job, m, &round);
            CU_ASSERT_EQUAL(tally_model_copy_set_shift(fresh, m, round, NULL, 0, NULL),
                            round == 0 ? TALLY_OK : TALLY_DATA_LOSS);
            CU_ASSERT_EQUAL(tally_model_copy_set_shift(fresh, m, round, (const uint8_t *)shift,
                                                       dim * sizeof *shift, NULL),
                            TALLY_OK);
        }
        job_host_round(&HOST);
    }
    calm_job_expect_same(&HOST, &OTHER);
    job_host_fini(&HOST);
    job_host_fini(&OTHER);
}

static void test_calm_shifts__wrong_sizes_are_refused(void)
{
    struct tally_job_spec spec = unlike();
    const uint8_t bytes[DIM * sizeof(float)] = {0};
    job_host_init(&HOST, &spec);
    CU_ASSERT_EQUAL(tally_model_copy_set_shift(HOST.copy, 0, 1, bytes, sizeof bytes - 1, NULL),
                    TALLY_MALFORMED);
    CU_ASSERT_EQUAL(tally_model_copy_set_shift(HOST.copy, CLIENTS, 1, bytes, sizeof bytes, NULL),
                    TALLY_MALFORMED);
    CU_ASSERT_EQUAL(tally_model_copy_set_shift(HOST.copy, 0, 1, NULL, 0, NULL), TALLY_DATA_LOSS);
    job_host_fini(&HOST);
    spec.params.calm.shifts = false;
    job_host_init(&HOST, &spec);
    CU_ASSERT_EQUAL(tally_model_copy_set_shift(HOST.copy, 0, 1, bytes, sizeof bytes, NULL),
                    TALLY_MALFORMED);
    job_host_fini(&HOST);
}

/* With a budget, a plan with shifts promises less regret than one without, and no job exceeds the
 * budget. */
static void test_calm_shifts__keep_to_the_budget(void)
{
    struct tally_job_spec spec = unlike();
    double planned[2];
    spec.params.calm.client_spread = 2;
    spec.budget = (struct tally_budget){.uplink_bits = 260, .downlink_bits = 300};
    for (int kept = 0; kept < 2; kept++) {
        struct tally_calm_schedule schedule;
        struct tally_calm_forecast forecast;
        spec.params.calm.shifts = kept;
        const struct tally_setting setting = tally_job_spec_setting(&spec);
        calm_make_schedule(&setting, &schedule);
        calm_forecast(&setting, &schedule, &forecast);
        CU_ASSERT_TRUE(forecast.uplink_bits <= 260 && forecast.downlink_bits <= 300);
        planned[kept] = forecast.regret;
    }
    CU_ASSERT_TRUE(planned[1] < 0.8 * planned[0]); /* 0.71 */
    for (uint32_t seed = 0; seed < 12; seed++) {
        spec.seed = seed;
        job_host_init(&HOST, &spec);
        job_host_run(&HOST);
        const struct tally_progress *progress = tally_job_progress(HOST.job);
        CU_ASSERT_TRUE(progress->bits.uplink.payload_bits <= UINT64_C(260) * CLIENTS);
        CU_ASSERT_TRUE(progress->bits.downlink.payload_bits + progress->bits.control_bits <= 300);
        CU_ASSERT_TRUE(progress->iterate > 3);
        job_host_fini(&HOST);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_shifts__client_sends_what_the_shift_lacks),
    TALLY_TEST(test_calm_shifts__absent_clients_count_with_their_shift),
    TALLY_TEST(test_calm_shifts__a_client_moves_to_another_worker),
    TALLY_TEST(test_calm_shifts__wrong_sizes_are_refused),
    TALLY_TEST(test_calm_shifts__keep_to_the_budget),
};
TALLY_SUITE(calm_shifts, TESTS);

/* CALM jobs under a budget, and the messages that a round refuses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/job/job_engine.h"
#include "tests/harness.h"
#include "tests/unit/services/job/calm/calm_jobs.h"

static struct job_host HOST; /* large: not on the stack */

/* The test's random numbers: splitmix64. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static int64_t between(uint64_t *state, int64_t least, int64_t most)
{
    return least + (int64_t)(next(state) % (uint64_t)(most - least + 1));
}

/* A random factor between 2^-5 and 2^5. */
static double factor(uint64_t *state)
{
    return exp2((double)between(state, -50, 50) / 10);
}

static struct tally_job_spec random_job(uint64_t *state)
{
    struct tally_job_spec spec =
        calm_job_known((uint32_t)between(state, 1, 40), between(state, 1, 10));
    spec.seed = between(state, 0, 1000000);
    spec.horizon = between(state, 1, 400);
    struct tally_calm_params *params = &spec.params.calm;
    const int64_t unknown = between(state, 0, 7);
    params->noise = unknown % 3 == 1 ? NAN : params->noise * factor(state);
    params->initial_variance =
        unknown == 1 || unknown == 2 ? NAN : params->initial_variance * factor(state);
    params->client_spread *= factor(state);
    params->noise_growth *= factor(state);
    const int64_t least = unknown % 3 == 1 || unknown == 2 ? 20 : 10;
    const int64_t limited = between(state, 0, 4);
    spec.budget.uplink_bits = limited == 0 ? 0 : between(state, least, 600);
    spec.budget.downlink_bits = limited == 1 ? 0 : between(state, least, 600);
    spec.policy = between(state, 0, 1) == 0 ? TALLY_POLICY_WAIT : TALLY_POLICY_DROP;
    spec.quorum = spec.policy == TALLY_POLICY_DROP ? 1 : 0;
    return spec;
}

/* What the clients of a job have sent. */
struct counts {
    uint64_t uplink[HOST_MAX_CLIENTS], declined, messages;
};

static void keep(const struct tally_job_outcome *outcome)
{
    for (int i = 0; i < outcome->n_records; i++) {
        HOST.records[HOST.n_records++] = outcome->records[i];
    }
}

/* Runs one round. With policy `drop`, each client but one is absent with probability 1/3. */
static void play_round(uint64_t *state, struct counts *counts)
{
    const bool drops = HOST.spec.policy == TALLY_POLICY_DROP;
    const int64_t sure = between(state, 0, HOST.spec.clients - 1);
    bool absent[HOST_MAX_CLIENTS] = {false};
    job_host_compute(&HOST);
    const int64_t round = tally_job_open_round(HOST.job)->round;
    const bool cut = tally_job_open_round(HOST.job)->plan.cut;
    for (uint32_t m = 0; m < HOST.spec.clients; m++) {
        absent[m] = drops && m != sure && between(state, 0, 2) == 0;
        struct tally_job_outcome outcome;
        tally_job_set_absent(HOST.job, m, absent[m], &outcome);
        keep(&outcome);
    }
    for (uint32_t m = 0; m < HOST.spec.clients; m++) {
        if (!absent[m] && tally_job_open_round(HOST.job)->round == round) {
            const uint64_t bits = HOST.updates[m].payload_bits;
            job_host_send(&HOST, m);
            counts->uplink[m] += bits;
            counts->declined += bits == 0 && !cut;
            counts->messages += bits > 0;
        }
    }
}

/* Runs a job, checks that it keeps to its budget, and returns what the clients sent. */
static struct counts play_budget(const struct tally_job_spec *spec, uint64_t *state)
{
    struct counts counts = {0};
    job_host_init(&HOST, spec);
    while (!tally_job_status_is_terminal(tally_job_status(HOST.job))) {
        play_round(state, &counts);
    }
    CU_ASSERT_EQUAL(tally_job_status(HOST.job), TALLY_JOB_COMPLETED);
    const struct tally_ledger *bits = &tally_job_progress(HOST.job)->bits;
    bool kept = true;
    for (uint32_t m = 0; m < spec->clients; m++) {
        kept = kept && (spec->budget.uplink_bits == 0 ||
                        counts.uplink[m] <= (uint64_t)spec->budget.uplink_bits);
    }
    CU_ASSERT_TRUE(kept);
    const uint64_t down = bits->downlink.payload_bits + bits->control_bits;
    CU_ASSERT_TRUE(spec->budget.downlink_bits == 0 ||
                   down <= (uint64_t)spec->budget.downlink_bits + counts.declined);
    if (!kept || (spec->budget.downlink_bits > 0 &&
                  down > (uint64_t)spec->budget.downlink_bits + counts.declined)) {
        fprintf(
            stderr, "dim %u, budget %lld / %lld, opens %d: client 0 sent %llu; down %llu + %llu\n",
            (unsigned)tally_job_spec_setting(spec).dim, (long long)spec->budget.uplink_bits,
            (long long)spec->budget.downlink_bits, TALLY_CALM.first_stage(&spec->params) == 0,
            (unsigned long long)counts.uplink[0], (unsigned long long)bits->downlink.payload_bits,
            (unsigned long long)bits->control_bits);
    }
    job_host_fini(&HOST);
    return counts;
}

static void test_calm_budget__is_never_exceeded(void)
{
    uint64_t state = 1, declined = 0, messages = 0;
    for (int i = 0; i < 200; i++) {
        const struct tally_job_spec spec = random_job(&state);
        const struct counts counts = play_budget(&spec, &state);
        declined += counts.declined;
        messages += counts.messages;
    }
    CU_ASSERT_TRUE(declined > 10); /* the cap took effect */
    CU_ASSERT_TRUE(messages > 500);
}

/* Opens a round that has a cap. */
static void open_capped(void)
{
    struct tally_job_spec spec = calm_job_known(30, 3);
    spec.budget = (struct tally_budget){.uplink_bits = 150, .downlink_bits = 200};
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    CU_ASSERT_TRUE(tally_job_open_round(HOST.job)->plan.max_bits > 0);
}

static void expect_malformed(const struct tally_update *update)
{
    struct job_look before = job_look(HOST.job);
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL(tally_job_receive(HOST.job, update, &outcome, NULL), TALLY_MALFORMED);
    struct job_look after = job_look(HOST.job);
    CU_ASSERT_TRUE(job_looks_same(&before, &after));
    job_look_fini(&before);
    job_look_fini(&after);
}

static void test_calm_budget__client_declines_only_under_a_cap(void)
{
    open_capped();
    struct tally_update empty = HOST.updates[0];
    empty.payload.data = NULL;
    empty.payload.size = 0;
    empty.payload_bits = 0;
    empty.clipped = 0;
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL(tally_job_receive(HOST.job, &empty, &outcome, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(outcome.bits.messages, 0);
    job_host_send(&HOST, 1);
    job_host_send(&HOST, 2);
    CU_ASSERT_EQUAL_FATAL(HOST.n_records, 1);
    CU_ASSERT_EQUAL(HOST.records[0].received, 3);
    CU_ASSERT_EQUAL(HOST.records[0].bits.uplink.messages, 2);
    CU_ASSERT_EQUAL(HOST.records[0].bits.control_bits, 1 + 1 + 1);
    job_host_fini(&HOST);

    const struct tally_job_spec spec = calm_job_known(30, 3);
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    empty.loss = HOST.updates[0].loss;
    empty.mark = HOST.updates[0].mark;
    expect_malformed(&empty);
    job_host_fini(&HOST);
}

static void all_decline(void)
{
    for (uint32_t m = 0; m < 3; m++) {
        HOST.updates[m].payload.size = 0;
        HOST.updates[m].payload_bits = 0;
        HOST.updates[m].clipped = 0;
        job_host_send(&HOST, m);
    }
}

/* If all decline, the epoch is repeated on a grid of twice the step, until that cannot help. */
static void test_calm_budget__all_decline_and_the_talking_ends(void)
{
    open_capped();
    double step = 0;
    int repeats = 0;
    for (; tally_job_status(HOST.job) == TALLY_JOB_RUNNING && repeats < 9; repeats++) {
        const double now = tally_job_open_round(HOST.job)->plan.grid.step;
        CU_ASSERT_TRUE(repeats == 0 || fabs(now / step - 2) < 1e-9);
        step = now;
        if (repeats > 0) {
            job_host_compute(&HOST);
        }
        all_decline();
        CU_ASSERT_FALSE(HOST.records[repeats].passed);
        CU_ASSERT_EQUAL(HOST.records[repeats].bits.control_bits, 3 + 1);
    }
    CU_ASSERT_EQUAL(tally_job_status(HOST.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(HOST.n_records, (size_t)repeats + 1);
    CU_ASSERT_TRUE(HOST.records[repeats].cut);
    CU_ASSERT_TRUE(repeats >= 4 && repeats <= 7);
    CU_ASSERT_EQUAL(tally_job_progress(HOST.job)->bits.downlink.messages, 0);
    job_host_fini(&HOST);
}

/* Clients whose messages did not fit send some that do. */
static void test_calm_budget__a_coarser_grid_fits(void)
{
    open_capped();
    all_decline();
    job_host_round(&HOST);
    CU_ASSERT_EQUAL_FATAL(HOST.n_records, 2);
    CU_ASSERT_TRUE(HOST.records[1].passed);
    CU_ASSERT_EQUAL(tally_job_progress(HOST.job)->bits.downlink.messages, 1);
    job_host_fini(&HOST);
}

static void test_calm_budget__messages_that_cannot_be_are_malformed(void)
{
    open_capped();
    const uint64_t cap = tally_job_open_round(HOST.job)->plan.max_bits;
    uint8_t junk[100];
    memset(junk, 0xa5, sizeof junk);
    struct tally_update update = HOST.updates[0];
    const size_t n = update.payload.size;
    update.payload_bits = cap + 1; /* longer than the cap */
    update.payload.data = junk;
    update.payload.size = (cap + 8) / 8;
    expect_malformed(&update);
    update = HOST.updates[0];
    update.payload.size = n - 1; /* bytes and bits disagree */
    expect_malformed(&update);
    update.payload.size = n;
    update.payload_bits += 8;
    expect_malformed(&update);
    update.payload_bits = 0;
    expect_malformed(&update);
    update = HOST.updates[0];
    update.payload.size = 0;
    expect_malformed(&update);
    update.payload.data = junk;
    update.payload.size = 3; /* too short for 30 coordinates, or with bits set after the end */
    update.payload_bits = 20;
    expect_malformed(&update);
    update = HOST.updates[0];
    update.clipped = 31;
    expect_malformed(&update);
    job_host_round(&HOST);
    CU_ASSERT_EQUAL(HOST.n_records, 1);
    job_host_fini(&HOST);
}

/* After each epoch the server scales the grids of the remaining epochs by 2^(k/4), depending on
 * what the clients have sent. k costs one control bit if it is 0, else a sign and |k| in unary. */
static void test_calm_budget__control_bits_name_the_factor(void)
{
    struct tally_job_spec spec = calm_job_known(30, 3);
    spec.budget = (struct tally_budget){.uplink_bits = 150, .downlink_bits = 200};
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    const double x[30] = {0};
    char schedule[TALLY_SCHEDULE_CAPACITY];
    calm_schedule(&setting, schedule);
    bool finer = false, same = false, coarser = false;
    for (uint64_t sent = 0; sent <= 150; sent++) {
        struct calm_memory *memory = malloc(calm_memory_bytes(&setting));
        CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
        calm_memory_begin(&setting, x, 0, schedule, memory);
        memory->epoch = 1;
        calm_memory_spend(&setting, memory, 0, sent);
        const double before = memory->schedule.epochs[1].uplink_resolution;
        const uint64_t bits = calm_fit_grids(&setting, memory, 0);
        const double k = 4 * log2(memory->schedule.epochs[1].uplink_resolution / before);
        CU_ASSERT_EQUAL(bits, fabs(k) < 0.5 ? 1 : 2 + (uint64_t)rint(fabs(k)));
        finer = finer || k < -0.5;
        same = same || fabs(k) < 0.5;
        coarser = coarser || k > 0.5;
        free(memory);
    }
    CU_ASSERT_TRUE(finer && same && coarser);
}

/* A job that is planned again tells clients what is left up, unless the message was as long as
 * expected: in units, rounded down, and never far above what is left. */
static void test_calm_budget__clients_are_told_what_is_left(void)
{
    struct tally_job_spec spec = calm_job_auto(30, 3);
    spec.budget = (struct tally_budget){.uplink_bits = 300, .downlink_bits = 300};
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    union tally_algorithm_params params = spec.params;
    struct tally_setting opened = setting;
    params.calm.noise = 1;
    params.calm.initial_variance = 0.1;
    opened.params = &params;
    const double x[30] = {0}, unit = 0.5 * sqrt(30), expected_length = 60;
    bool is_as_expected = false, is_more = false, is_less = false;
    for (uint64_t sent = 50; sent <= 90; sent += 2) {
        struct calm_memory *memory = malloc(calm_memory_bytes(&opened));
        CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
        calm_memory_begin(&opened, x, CALM_OPENING_SAMPLES, "", memory);
        CU_ASSERT_EQUAL(memory->told_left, 280); /* less the report */
        /* The first plan: no epochs of 6, 18, 54, ... queries */
        CU_ASSERT_TRUE(memory->schedule.epochs[0].samples >= 1);
        CU_ASSERT_TRUE(memory->schedule.epochs[1].samples != 18);
        memory->epoch = 1;
        calm_memory_spend(&opened, memory, 0, sent);
        const uint64_t bits = calm_fit_grids(&opened, memory, expected_length);
        const double left = 280 - (double)sent;
        CU_ASSERT_TRUE(bits <= CALM_MOST_INDEX_BITS);
        CU_ASSERT_TRUE(bits == CALM_MOST_INDEX_BITS ||
                       (memory->told_left <= left && memory->told_left > left - unit));
        is_as_expected = is_as_expected || bits == 1;
        is_more = is_more || memory->told_left > 280 - expected_length;
        is_less = is_less || memory->told_left < 280 - expected_length - 3 * unit;
        CU_ASSERT_TRUE(calm_memory_is_valid(&opened, memory));
        memory->told_left = NAN;
        CU_ASSERT_FALSE(calm_memory_is_valid(&opened, memory));
        free(memory);
    }
    CU_ASSERT_TRUE(is_as_expected && is_more && is_less);
}

static const struct tally_ledger *play(const struct tally_job_spec *spec)
{
    job_host_init(&HOST, spec);
    job_host_run(&HOST);
    CU_ASSERT_EQUAL(tally_job_status(HOST.job), TALLY_JOB_COMPLETED);
    return &tally_job_progress(HOST.job)->bits;
}

/* A broadcast on a grid that is too coarse would destroy x. This budget has few downlink bits, and
 * so many uplink bits that the server asks for ever finer grids. No broadcast destroys x: the
 * regret stays near or below that of clients that stay at the initial point. In an earlier version
 * it was a thousand times as large. */
static void test_calm_budget__too_few_bits_are_better_than_none(void)
{
    static const uint32_t DIMS[] = {1, 2, 5, 30};
    for (size_t i = 0; i < 4 * 8; i++) {
        const uint32_t dim = DIMS[i / 8];
        struct tally_job_spec spec = i % 2 == 0 ? calm_job_known(dim, 10) : calm_job_auto(dim, 10);
        spec.budget = (struct tally_budget){.uplink_bits = i % 4 < 2 ? 130 : 700,
                                            .downlink_bits = 25 + 10 * (int64_t)(i % 8)};
        spec.seed = (int64_t)i;
        play(&spec);
        const struct tally_round_record *first = &HOST.records[0];
        const double stays =
            first->cumulative_regret / (double)first->samples * (double)spec.horizon;
        CU_ASSERT_TRUE(tally_job_progress(HOST.job)->cumulative_regret < 4 * stays);
        job_host_fini(&HOST);
    }
}

/* If only a grid coarser than planned fits, a broadcast on it must still bring x nearer to x*; V is
 * the server's estimate of the distance. Planned grids are finer and fit, so the test changes both
 * the grid and the bits left. */
static void test_calm_budget__coarser_grids_never_make_x_worse(void)
{
    enum { BITS = 1000 };
    int passed = 0, refused = 0;
    struct tally_job_spec spec = calm_job_known(100, 10);
    spec.budget = (struct tally_budget){.uplink_bits = BITS, .downlink_bits = BITS};
    for (int64_t left = 12; left < 250; left += 10) {
        job_host_init(&HOST, &spec);
        struct calm_memory *memory = HOST.job->memory;
        const double before = memory->state.variance;
        memory->downlink_bits = BITS - left;
        memory->schedule.epochs[0].downlink_resolution = 20;
        job_host_round(&HOST);
        if (HOST.records[0].passed) {
            passed++;
            CU_ASSERT_TRUE(memory->state.variance < before);
        } else {
            refused++;
            CU_ASSERT_EQUAL(memory->state.variance, before);
        }
        job_host_fini(&HOST);
    }
    CU_ASSERT_TRUE(passed > 2);
    CU_ASSERT_TRUE(refused > 2);
}

/* The budget exceeds what a job can use. No grid gets so fine that a level does not fit. */
static void test_calm_budget__too_many_bits_are_not_spent(void)
{
    struct tally_job_spec spec = calm_job_known(30, 10);
    spec.budget = (struct tally_budget){.uplink_bits = 20000, .downlink_bits = 20000};
    const struct tally_ledger *bits = play(&spec);
    CU_ASSERT_EQUAL(bits->uplink.clipped, 0);
    CU_ASSERT_EQUAL(bits->downlink.clipped, 0);
    CU_ASSERT_TRUE(bits->downlink.payload_bits < 5000);
    job_host_fini(&HOST);
}

/* The bits of the opening round count against the budget. */
static void test_calm_budget__opening_round_needs_its_bits(void)
{
    struct tally_job_spec spec = calm_job_auto(3, 3);
    struct tally_error err = TALLY_ERROR_INIT;
    spec.budget.uplink_bits = 19;
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, &err), TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(err.field, "budget.uplink_bits");
    spec.budget = (struct tally_budget){.downlink_bits = 19};
    err = (struct tally_error)TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, &err), TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(err.field, "budget.downlink_bits");
    spec.budget = (struct tally_budget){.uplink_bits = 20, .downlink_bits = 20};
    job_host_init(&HOST, &spec);
    job_host_round(&HOST);
    CU_ASSERT_TRUE(tally_job_open_round(HOST.job)->plan.cut); /* no bits are left */
    CU_ASSERT_TRUE(tally_job_open_round(HOST.job)->evaluate); /* but clients move */
    const double at_start = tally_job_progress(HOST.job)->loss;
    job_host_round(&HOST);
    CU_ASSERT_EQUAL_FATAL(HOST.n_records, 2);
    CU_ASSERT_TRUE(HOST.records[1].loss < at_start);
    CU_ASSERT_EQUAL(HOST.records[0].bits.control_bits, 20);
    CU_ASSERT_TRUE(HOST.records[1].cut);
    job_host_fini(&HOST);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_budget__is_never_exceeded),
    TALLY_TEST(test_calm_budget__client_declines_only_under_a_cap),
    TALLY_TEST(test_calm_budget__control_bits_name_the_factor),
    TALLY_TEST(test_calm_budget__clients_are_told_what_is_left),
    TALLY_TEST(test_calm_budget__too_few_bits_are_better_than_none),
    TALLY_TEST(test_calm_budget__coarser_grids_never_make_x_worse),
    TALLY_TEST(test_calm_budget__too_many_bits_are_not_spent),
    TALLY_TEST(test_calm_budget__all_decline_and_the_talking_ends),
    TALLY_TEST(test_calm_budget__a_coarser_grid_fits),
    TALLY_TEST(test_calm_budget__messages_that_cannot_be_are_malformed),
    TALLY_TEST(test_calm_budget__opening_round_needs_its_bits),
};
TALLY_SUITE(calm_budget, TESTS);

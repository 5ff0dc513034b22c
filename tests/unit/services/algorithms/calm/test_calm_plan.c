/* The planner of CALM: its parts against the recursion, and its schedules against those found by a
 * slow random search (differential evolution over the NumPy reference). */
#include "services/algorithms/calm/calm_plan.h"

#include <math.h>
#include <string.h>

#include "codec/numeric/rng.h"
#include "services/algorithms/calm/calm_course.h"
#include "services/algorithms/calm/calm_leg.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/calm/synthetic_job.h"

static struct tally_rng random_numbers(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(20, 0), 0, 0, TALLY_RNG_NOISE);
    return rng;
}

/* A random number between `from` and `to`, uniform in the logarithm. */
static double any(struct tally_rng *rng, double from, double to)
{
    return from * pow(to / from, tally_rng_uniform(rng));
}

static struct tally_calm_constants any_job(struct tally_rng *rng)
{
    return (struct tally_calm_constants){
        .curvature = any(rng, 0.1, 3),
        .noise = any(rng, 1e-4, 3),
        .noise_growth = any(rng, 0.1, 10),
        .client_spread = any(rng, 1e-5, 0.3),
        .curvature_spread = any(rng, 1e-4, 0.1),
        .initial_variance = any(rng, 0.01, 1),
        .local_step_limit = any(rng, 0.01, 3),
        .clients = (uint32_t)any(rng, 1, 100),
        .dim = (size_t)any(rng, 2, 10000),
        .horizon = (int64_t)any(rng, 1, 3000),
    };
}

static void test_algorithms_calm_plan__legs_are_walks(void)
{
    struct tally_rng rng = random_numbers();
    for (int i = 0; i < 300; i++) {
        const struct tally_calm_constants job = any_job(&rng);
        const double variance = any(&rng, 1e-4, 1);
        struct tally_calm_walk walk;
        tally_calm_walk_begin(&walk, &job, variance);
        for (int64_t n = 0; n < job.horizon; n++) {
            tally_calm_walk_next(&walk);
        }
        const struct tally_calm_leg leg = tally_calm_leg(&job, variance, (double)job.horizon);
        const double regret = walk.sum_variance * job.clients * (double)job.dim * job.curvature / 2;
        const double noise = tally_calm_walk_message_noise(&walk);
        const double rest = 1 - walk.sum_progress / (double)job.horizon;
        const double bias = job.curvature_spread * rest * rest * variance;
        const double precision = job.horizon <= 24 ? 1e-12 : 0.02;
        CU_ASSERT_DOUBLE_EQUAL(leg.regret, regret, precision * regret);
        CU_ASSERT_DOUBLE_EQUAL(leg.noise, noise, precision * noise);
        CU_ASSERT_DOUBLE_EQUAL(leg.bias, bias, precision * (noise / job.clients + bias));
    }
}

static struct tally_calm_forecast planned(const struct tally_calm_constants *job, double up,
                                          double down)
{
    struct tally_calm_schedule schedule;
    struct tally_calm_forecast forecast;
    const struct tally_calm_state start = tally_calm_start(job);
    const struct tally_calm_budget budget = {.uplink_bits = up, .downlink_bits = down};
    tally_calm_plan(job, &start, &budget, NULL, &schedule);
    tally_calm_forecast(job, &start, &schedule, &forecast);
    CU_ASSERT_TRUE(forecast.uplink_bits <= up && forecast.downlink_bits <= down);
    CU_ASSERT_EQUAL(forecast.n, schedule.n + 1);
    return forecast;
}

/* The longest horizon of a document takes no noticeable time, and forecasts change smoothly where
 * the walk switches to strides. */
static void test_algorithms_calm_plan__long_walks(void)
{
    const int64_t n = TALLY_CALM_EXACT_QUERIES;
    struct tally_calm_walk exact, strides;
    tally_calm_walk_ahead(&exact, &LOUD, 0.05, n);
    tally_calm_walk_ahead(&strides, &LOUD, 0.05, n + 1);
    CU_ASSERT_EQUAL(strides.n, n + 1);
    CU_ASSERT_DOUBLE_EQUAL(strides.sum_variance / exact.sum_variance, 1, 1e-3);
    CU_ASSERT_DOUBLE_EQUAL(strides.sum_progress / exact.sum_progress, 1, 1e-3);
    CU_ASSERT_DOUBLE_EQUAL(strides.sum_noise / exact.sum_noise, 1, 1e-3);

    struct tally_calm_constants job = LOUD;
    job.horizon = INT32_MAX;
    const struct tally_calm_forecast forecast = planned(&job, 263, 289);
    CU_ASSERT_TRUE(forecast.epochs[forecast.n - 1].samples > TALLY_CALM_EXACT_QUERIES);
    CU_ASSERT_TRUE(forecast.regret > tally_calm_shared_regret(&job));
}

/* The regret of a leg is smooth between whole numbers of queries, and does not jump at any. */
static void test_algorithms_calm_plan__legs_are_smooth(void)
{
    double before = 0, slope_before = 0;
    for (int i = 0; i < 3200; i++) {
        const double regret = tally_calm_leg(&LOUD, 0.05, 2 + i / 8.0).regret;
        const double slope = regret - before;
        CU_ASSERT_TRUE(i == 0 || slope > 0);
        CU_ASSERT_TRUE(i < 8 || fabs(slope / slope_before - 1) < 0.02);
        before = regret;
        slope_before = slope;
    }
}

static struct tally_calm_course course_of(const struct tally_calm_constants *job, double up,
                                          double down, int n)
{
    return (struct tally_calm_course){
        .constants = job,
        .state = tally_calm_start(job),
        .pools = {.of = {0, 1}, .bits = {up, down}},
        .n = n,
    };
}

/* The gradient agrees with differences: for separate budgets, a common pool, ideal rates, and whole
 * queries. */
static void test_algorithms_calm_plan__gradients(void)
{
    struct tally_rng rng = random_numbers();
    for (int kind = 0; kind < 4; kind++) {
        struct tally_calm_course course = course_of(&LOUD, 263, 289, 4);
        course.pools.of[TALLY_CALM_DOWN] = kind != 1;
        course.is_ideal = kind == 2;
        course.is_settled = kind == 3;
        memcpy(course.samples, (int64_t[]){14, 28, 103, 321}, 4 * sizeof(int64_t));
        double x[12], gradient[12];
        for (int i = 0; i < 12; i++) {
            x[i] = tally_rng_uniform(&rng) - 0.5;
        }
        const double value = tally_calm_course_value(&course, x, gradient);
        CU_ASSERT_EQUAL(value, tally_calm_course_value(&course, x, NULL));
        for (int i = 0; i < 12; i++) {
            const double at = x[i];
            x[i] = at + 1e-4;
            const double above = tally_calm_course_value(&course, x, NULL);
            x[i] = at - 1e-4;
            const double slope = (above - tally_calm_course_value(&course, x, NULL)) / 2e-4;
            x[i] = at;
            CU_ASSERT_DOUBLE_EQUAL(gradient[i], slope, 1e-6);
        }
    }
}

/* By the exact forecast, the schedule of a settled course uses its budget and has its regret. */
static void test_algorithms_calm_plan__course_and_forecast_agree(void)
{
    struct tally_calm_course course = course_of(&LOUD, 263, 289, 4);
    course.is_settled = true;
    memcpy(course.samples, (int64_t[]){14, 28, 103, 321}, 4 * sizeof(int64_t));
    const double x[12] = {0, 0, 0, 0, 0.3, 0, 0, -0.2, 0, 0.1, 0.2, 0};
    struct tally_calm_schedule schedule;
    struct tally_calm_forecast forecast;
    tally_calm_course_schedule(&course, x, &schedule);
    tally_calm_forecast(&LOUD, &course.state, &schedule, &forecast);
    CU_ASSERT_DOUBLE_EQUAL(forecast.uplink_bits, 263, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(forecast.downlink_bits, 289, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(log(forecast.regret), tally_calm_course_value(&course, x, NULL), 1e-3);
    CU_ASSERT_TRUE(forecast.epochs[0].uplink_bits > forecast.epochs[1].uplink_bits);
    CU_ASSERT_TRUE(forecast.epochs[2].downlink_bits > forecast.epochs[1].downlink_bits);
}

/* The differential evolution counted 3 bits above the rate for each message. It found 534.1 for
 * 263 / 289 bits and 958.6 for 130 / 145. The first two rows are those budgets, converted to the
 * length of our messages. The other rows are five budgets as this planner used them before messages
 * had a trellis, whose bits lower the regret by 2 to 9 %. */
static void test_algorithms_calm_plan__paper_jobs(void)
{
    const struct tally_calm_constants quiet_job = quiet();
    const double longer = 3 - TALLY_CALM_MESSAGE_BITS;
    const struct {
        const struct tally_calm_constants *job;
        double up, down, regret;
        int n;
    } rows[] = {
        {&LOUD, 263 - 4 * longer, 289 - 4 * longer, 534.1, 4},
        {&LOUD, 130 - 2 * longer, 145 - 2 * longer, 958.7, 2},
        {&LOUD, 130, 145, 933, 2},
        {&LOUD, 263, 289, 523, 4},
        {&LOUD, 540, 550, 360.5, 8},
        {&quiet_job, 130, 145, 42, 2},
        {&quiet_job, 263, 289, 28.7, 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tally_calm_forecast forecast = planned(rows[i].job, rows[i].up, rows[i].down);
        CU_ASSERT_TRUE(forecast.regret <= 0.98 * rows[i].regret);
        CU_ASSERT_TRUE(forecast.regret >= 0.91 * rows[i].regret);
        CU_ASSERT_EQUAL(forecast.n, rows[i].n + 1);
        CU_ASSERT_TRUE(forecast.uplink_bits > rows[i].up - 0.01);
    }
}

/* No schedule nearby is better, with n_k changed by one query or bits moved between messages. */
static void test_algorithms_calm_plan__no_neighbour_is_better(void)
{
    const struct tally_calm_constants job = quiet();
    const struct tally_calm_forecast best = planned(&job, 263, 289);
    struct tally_calm_course course = course_of(&job, 263, 289, best.n - 1);
    course.is_settled = true;
    const double least = TALLY_CALM_MESSAGE_BITS + 0.25 * (double)job.dim;
    double x[3 * TALLY_CALM_MAX_EPOCHS] = {0};
    for (int k = 0; k < course.n; k++) {
        course.samples[k] = best.epochs[k].samples;
        x[course.n + k] = log(best.epochs[k].uplink_bits - least);
        x[2 * course.n + k] = log(best.epochs[k].downlink_bits - least);
    }
    const double value = tally_calm_course_value(&course, x, NULL);
    CU_ASSERT_DOUBLE_EQUAL(exp(value), best.regret, 0.01 * best.regret);
    for (int i = 0; i < 2 * 3 * course.n; i++) {
        struct tally_calm_course other = course;
        double moved[3 * TALLY_CALM_MAX_EPOCHS];
        const double side = i % 2 == 0 ? 1 : -1;
        memcpy(moved, x, sizeof moved);
        moved[i / 2] += 0.05 * side;
        if (i / 2 < course.n) {
            other.samples[i / 2] += (int64_t)side;
        }
        CU_ASSERT_TRUE(tally_calm_course_value(&other, moved, NULL) > value - 1e-6);
    }
}

/* For any job and budget, the plan never exceeds the budget, and never has more regret than without
 * bits. */
static void test_algorithms_calm_plan__any_job_keeps_its_budget(void)
{
    struct tally_rng rng = random_numbers();
    for (int i = 0; i < 40; i++) {
        const struct tally_calm_constants job = any_job(&rng);
        const struct tally_calm_state start = tally_calm_start(&job);
        const double up = any(&rng, 1, 30) * (double)job.dim;
        const struct tally_calm_forecast forecast = planned(&job, up, any(&rng, 0.5, 2) * up);
        struct tally_calm_forecast without;
        tally_calm_forecast(&job, &start, &(struct tally_calm_schedule){0}, &without);
        CU_ASSERT_TRUE(forecast.regret <= without.regret * 1.0001);
        CU_ASSERT_TRUE(forecast.epochs[forecast.n - 1].samples >= 1);
    }
}

/* With a budget below one message, or a horizon too short for an epoch, no message is planned. */
static void test_algorithms_calm_plan__no_message_fits(void)
{
    struct tally_calm_constants job = LOUD;
    CU_ASSERT_EQUAL(planned(&job, 4, 300).n, 1);
    CU_ASSERT_EQUAL(planned(&job, 300, 4).n, 1);
    CU_ASSERT_EQUAL(planned(&job, 0, 0).n, 1);
    job.horizon = 1;
    CU_ASSERT_EQUAL(planned(&job, 300, 300).n, 1);
}

static void test_algorithms_calm_plan__margins_stay_free(void)
{
    struct tally_calm_schedule schedule;
    struct tally_calm_forecast forecast;
    const struct tally_calm_state start = tally_calm_start(&LOUD);
    const struct tally_calm_budget budget = {263, 289, 10, 20};
    tally_calm_plan(&LOUD, &start, &budget, NULL, &schedule);
    tally_calm_forecast(&LOUD, &start, &schedule, &forecast);
    CU_ASSERT_DOUBLE_EQUAL(forecast.uplink_bits, 253, 0.01);
    CU_ASSERT_TRUE(forecast.downlink_bits <= 269 && forecast.downlink_bits > 268);
}

/* Equal arguments give equal bits. A search that starts from the rest of a plan finds the same
 * regret as one that starts from nothing. */
/* An epoch that follows queries at x counts them in its message and its steps, not in its regret.
 */
static void test_algorithms_calm_plan__walks_on_from_earlier_queries(void)
{
    struct tally_calm_constants job = LOUD;
    struct tally_calm_walk at_x, moved;
    job.client_spread = job.noise_growth = 0;
    job.repeats = 4;
    tally_calm_walk_begin(&at_x, &job, 0.1);
    tally_calm_walk_begin(&moved, &job, 0.1);
    for (int i = 0; i < 4; i++) { /* without growth, noise is the same everywhere */
        CU_ASSERT_EQUAL(tally_calm_walk_repeat(&at_x), tally_calm_walk_next(&moved));
    }
    CU_ASSERT_TRUE(at_x.variance == moved.variance && at_x.variance < 0.1);
    CU_ASSERT_EQUAL(tally_calm_walk_message_noise(&at_x), tally_calm_walk_message_noise(&moved));
    CU_ASSERT_TRUE(at_x.sum_variance == 0 && at_x.sum_progress == 0 && at_x.n == 4);
    double regret = 0;
    for (int i = 0; i < 50; i++) {
        regret += at_x.variance * job.clients * (double)job.dim * job.curvature / 2;
        (void)tally_calm_walk_next(&at_x);
    }
    struct tally_calm_walk ahead;
    tally_calm_walk_ahead(&ahead, &job, 0.1, 50);
    CU_ASSERT_TRUE(ahead.n == 54 && ahead.repeats == 4 && ahead.sum_noise == at_x.sum_noise &&
                   ahead.variance == at_x.variance);
    const struct tally_calm_leg leg = tally_calm_leg(&job, 0.1, 50);
    CU_ASSERT_DOUBLE_EQUAL(leg.regret / regret, 1, 0.01);
    CU_ASSERT_DOUBLE_EQUAL(leg.noise / tally_calm_walk_message_noise(&at_x), 1, 1e-9);
    /* Only the first epoch of a plan follows them. */
    const struct tally_calm_schedule schedule = {.n = 2, .epochs = {{50, 1, 1}, {60, 1, 1}}};
    const struct tally_calm_state start = tally_calm_start(&job);
    struct tally_calm_forecast with, without;
    tally_calm_forecast(&job, &start, &schedule, &with);
    job.repeats = 0;
    tally_calm_forecast(&job, &start, &schedule, &without);
    CU_ASSERT_TRUE(with.epochs[0].regret < without.epochs[0].regret);
    CU_ASSERT_TRUE(with.epochs[0].estimate_variance < without.epochs[0].estimate_variance);
    struct tally_calm_state then = {with.epochs[0].variance, with.epochs[0].estimate_variance,
                                    job.horizon - 50};
    const struct tally_calm_schedule rest = {.n = 1, .epochs = {{60, 1, 1}}};
    struct tally_calm_forecast later;
    tally_calm_forecast(&job, &then, &rest, &later);
    CU_ASSERT_EQUAL(later.epochs[0].regret, with.epochs[1].regret);
}

static void test_algorithms_calm_plan__replans(void)
{
    struct tally_calm_schedule schedule, rest, cold;
    struct tally_calm_forecast forecast, by_rest, by_cold;
    struct tally_calm_state state = tally_calm_start(&LOUD);
    struct tally_calm_budget budget = {.uplink_bits = 263, .downlink_bits = 289};
    tally_calm_plan(&LOUD, &state, &budget, NULL, &schedule);
    tally_calm_plan(&LOUD, &state, &budget, NULL, &cold);
    CU_ASSERT_EQUAL(memcmp(&schedule, &cold, sizeof cold), 0);

    tally_calm_forecast(&LOUD, &state, &schedule, &forecast);
    budget.uplink_bits -= forecast.epochs[0].uplink_bits + 6;
    budget.downlink_bits -= forecast.epochs[0].downlink_bits - 6;
    state = (struct tally_calm_state){forecast.epochs[0].variance * 1.3,
                                      forecast.epochs[0].estimate_variance * 1.3,
                                      2000 - schedule.epochs[0].samples};
    schedule.n--;
    memmove(schedule.epochs, schedule.epochs + 1, (size_t)schedule.n * sizeof schedule.epochs[0]);
    tally_calm_plan(&LOUD, &state, &budget, &schedule, &rest);
    tally_calm_plan(&LOUD, &state, &budget, NULL, &cold);
    tally_calm_forecast(&LOUD, &state, &rest, &by_rest);
    tally_calm_forecast(&LOUD, &state, &cold, &by_cold);
    CU_ASSERT_DOUBLE_EQUAL(by_rest.regret, by_cold.regret, 1e-3 * by_cold.regret);
    CU_ASSERT_TRUE(by_rest.uplink_bits <= budget.uplink_bits);
    CU_ASSERT_TRUE(by_rest.downlink_bits <= budget.downlink_bits);
}

/* Without budgets the plan stops where 1 % more bits no longer reduce the regret by 0.5 %. Doubling
 * its bits gains less than that rate, halving them loses more. */
static void test_algorithms_calm_plan__price(void)
{
    const struct tally_calm_forecast priced = planned(&LOUD, INFINITY, INFINITY);
    const double up = priced.uplink_bits, down = priced.downlink_bits;
    CU_ASSERT_TRUE(up + down > 500 && up + down < 1300);
    CU_ASSERT_TRUE(log(priced.regret / planned(&LOUD, 2 * up, 2 * down).regret) < 0.5 * log(2));
    CU_ASSERT_TRUE(log(planned(&LOUD, up / 2, down / 2).regret / priced.regret) > 0.5 * log(2));

    const struct tally_calm_forecast half = planned(&LOUD, 263, INFINITY);
    CU_ASSERT_DOUBLE_EQUAL(half.uplink_bits, 263, 0.01);
    CU_ASSERT_TRUE(half.downlink_bits > 150 && half.downlink_bits < 500);
    CU_ASSERT_TRUE(log(half.regret / planned(&LOUD, 263, 2 * half.downlink_bits).regret) <
                   0.5 * log(2));
}

/* 219.7 by the NumPy reference with s0 / M, m / M, B = 0 and no step limit. */
static void test_algorithms_calm_plan__limit_lines(void)
{
    CU_ASSERT_DOUBLE_EQUAL(tally_calm_shared_regret(&LOUD), 219.733, 0.2);
    const struct tally_calm_constants quiet_job = quiet();
    CU_ASSERT_DOUBLE_EQUAL(tally_calm_shared_regret(&quiet_job), 13.5147, 0.02);

    const struct tally_calm_budget budget = {.uplink_bits = 263, .downlink_bits = 289};
    const double ideal = tally_calm_ideal_regret(&LOUD, &budget);
    CU_ASSERT_TRUE(ideal < 0.95 * planned(&LOUD, 263, 289).regret);
    CU_ASSERT_TRUE(ideal > planned(&LOUD, 540, 550).regret);
}

/* The standard deviation is log2(e) / sqrt(2) bits per coordinate: 5.6 bits for one message of 30,
 * 11 for four. */
static void test_algorithms_calm_plan__scatter(void)
{
    CU_ASSERT_DOUBLE_EQUAL(tally_calm_scatter_bits(30, 1), 5.587, 1e-3);
    CU_ASSERT_DOUBLE_EQUAL(tally_calm_scatter_bits(30, 4), 2 * 5.587, 2e-3);
    CU_ASSERT_EQUAL(tally_calm_scatter_bits(30, 0), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_calm_plan__legs_are_walks),
    TALLY_TEST(test_algorithms_calm_plan__legs_are_smooth),
    TALLY_TEST(test_algorithms_calm_plan__long_walks),
    TALLY_TEST(test_algorithms_calm_plan__gradients),
    TALLY_TEST(test_algorithms_calm_plan__course_and_forecast_agree),
    TALLY_TEST(test_algorithms_calm_plan__paper_jobs),
    TALLY_TEST(test_algorithms_calm_plan__no_neighbour_is_better),
    TALLY_TEST(test_algorithms_calm_plan__any_job_keeps_its_budget),
    TALLY_TEST(test_algorithms_calm_plan__no_message_fits),
    TALLY_TEST(test_algorithms_calm_plan__margins_stay_free),
    TALLY_TEST(test_algorithms_calm_plan__walks_on_from_earlier_queries),
    TALLY_TEST(test_algorithms_calm_plan__replans),
    TALLY_TEST(test_algorithms_calm_plan__price),
    TALLY_TEST(test_algorithms_calm_plan__limit_lines),
    TALLY_TEST(test_algorithms_calm_plan__scatter),
};
TALLY_SUITE(algorithms_calm_plan, TESTS);

#include "services/algorithms/calm/calm_plan.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "services/algorithms/calm/calm_course.h"
#include "services/algorithms/calm/calm_leg.h"
#include "services/algorithms/calm/descent.h"

static_assert(3 * TALLY_CALM_COURSE_EPOCHS <= (int)TALLY_DESCENT_MAX_VARIABLES, "a course fits");
static_assert(TALLY_CALM_COURSE_EPOCHS <= (int)TALLY_CALM_MAX_EPOCHS, "a schedule fits");

enum { VARIABLES = 3 * TALLY_CALM_COURSE_EPOCHS, UP = TALLY_CALM_UP, DOWN = TALLY_CALM_DOWN };

/* A descent ends when two consecutive steps each gain less than a millionth of the regret. */
enum { MOST_STEPS = 200 };
#define LEAST_GAIN 1e-6
/* The number of epochs is increased until this many increases in a row bring no gain. */
enum { PATIENCE = 3 };
/* Shorter epochs are rounded by trying their neighbours (settle()). */
#define SHORT_EPOCH 30
/* The part of a budget that a plan leaves unused because of rounding in its sums. */
#define ROUNDING_BITS 1e-6
/* More bits are used while log(regret) falls by at least this much per unit of log(bits). */
#define PRICE 0.5
/* The ladder of budgets for a direction without a budget: up to this many steps of this factor. It
 * ends when LADDER_PATIENCE steps in a row, a factor of 4 in bits, do not pay their price. */
enum { LADDER_STEPS = 24, LADDER_PATIENCE = 4 };
#define LADDER_FACTOR 1.41421356237309515

/* Starting points: a first epoch of `first` queries; each later one is `growth` times as long. */
static const struct {
    double first, growth;
} STARTS[] = {{3, 1.3}, {8, 2}, {16, 3}, {40, 1.5}};
enum { N_STARTS = sizeof STARTS / sizeof STARTS[0] };

/* The best course so far. */
struct best {
    struct tally_calm_course course; /* n = 0: none, and no messages */
    double x[VARIABLES];
    double value; /* log(regret) */
};

static double descend(const struct tally_calm_course *course, double *x)
{
    const struct tally_descent descent = {
        .value = tally_calm_course_value,
        .context = course,
        .n = tally_calm_course_variables(course),
        .most_steps = MOST_STEPS,
        .least_gain = LEAST_GAIN,
    };
    return tally_descent_run(&descent, x);
}

/* The point with these samples, scaled down to half of the horizon if they exceed it, and with
 * equal bits. */
static void start_at(const struct tally_calm_course *course, const double *samples, double *ret_x)
{
    const double all = (double)course->state.samples_left;
    double sum = 0;
    for (int k = 0; k < course->n; k++) {
        sum += samples[k];
    }
    const double scale = fmin(1, all / 2 / sum);
    memset(ret_x, 0, VARIABLES * sizeof *ret_x);
    for (int k = 0; k < course->n; k++) {
        ret_x[k] = log(fmax(samples[k] * scale - 1, 0.1) / (all - sum * scale));
    }
}

static void try_from(const struct tally_calm_course *course, const double *samples,
                     struct best *best)
{
    double x[VARIABLES];
    start_at(course, samples, x);
    const double value = descend(course, x);
    if (value < best->value) {
        best->course = *course;
        best->value = value;
        memcpy(best->x, x, sizeof x);
    }
}

static void try_starts(const struct tally_calm_course *course, struct best *best)
{
    for (int i = 0; i < N_STARTS; i++) {
        double samples[TALLY_CALM_COURSE_EPOCHS];
        double n = STARTS[i].first;
        for (int k = 0; k < course->n; k++, n *= STARTS[i].growth) {
            samples[k] = n;
        }
        try_from(course, samples, best);
    }
}

/* Finds the best number of epochs, from `first` on, and the best course with it. Its numbers of
 * queries are not yet integers. */
static void search(struct tally_calm_course course, int first, struct best *best)
{
    int n_worse = 0;
    for (course.n = first; course.n <= TALLY_CALM_COURSE_EPOCHS && n_worse < PATIENCE; course.n++) {
        if (!tally_calm_course_is_possible(&course)) {
            break;
        }
        const double before = best->value;
        try_starts(&course, best);
        n_worse = best->value < before ? 0 : n_worse + 1;
    }
}

/* The same, starting from an earlier schedule, with as many epochs, one more, and one fewer. */
static void search_near(struct tally_calm_course course, const double *samples, int n,
                        struct best *best)
{
    for (course.n = n > 1 ? n - 1 : 1; course.n <= n + 1; course.n++) {
        if (course.n > TALLY_CALM_COURSE_EPOCHS || !tally_calm_course_is_possible(&course)) {
            break;
        }
        double own[TALLY_CALM_COURSE_EPOCHS];
        for (int k = 0; k < course.n; k++) {
            own[k] = samples[k < n ? k : n - 1];
        }
        try_from(&course, own, best);
    }
}

/* Continues the search from `from` with n_k fixed to these integers. */
static void try_settled(const struct best *from, const int64_t *samples, struct best *best)
{
    struct best other = *from;
    int64_t sum = 0;
    other.course.is_settled = true;
    for (int k = 0; k < other.course.n; k++) {
        other.course.samples[k] = samples[k];
        sum += samples[k];
        if (samples[k] < 1) {
            return;
        }
    }
    if (sum >= other.course.state.samples_left) {
        return;
    }
    other.value = descend(&other.course, other.x);
    if (other.value < best->value) {
        *best = other;
    }
}

/* Rounds n_k down, which always fits the horizon, and changes the short ones by single queries as
 * long as that reduces the regret. */
static void settle(struct best *best)
{
    double samples[TALLY_CALM_COURSE_EPOCHS];
    int64_t whole[TALLY_CALM_COURSE_EPOCHS], nearest[TALLY_CALM_COURSE_EPOCHS];
    tally_calm_course_samples(&best->course, best->x, samples);
    for (int k = 0; k < best->course.n; k++) {
        whole[k] = (int64_t)samples[k];
        nearest[k] = (int64_t)rint(samples[k]);
    }
    const struct best from = *best;
    best->value = INFINITY;
    try_settled(&from, whole, best);
    try_settled(&from, nearest, best);
    for (int k = 0; k < best->course.n; k++) {
        for (int side = -1; side <= 1 && samples[k] < SHORT_EPOCH; side += 2) {
            memcpy(whole, best->course.samples, sizeof whole);
            whole[k] += side;
            try_settled(best, whole, best);
        }
    }
}

/* A course without messages. */
static struct best alone(const struct tally_calm_constants *constants,
                         const struct tally_calm_state *state, struct tally_calm_pools pools,
                         bool is_ideal)
{
    struct best best = {
        .course = {.constants = constants, .state = *state, .pools = pools, .is_ideal = is_ideal},
        .value =
            log(tally_calm_leg(constants, state->variance, (double)state->samples_left).regret),
    };
    return best;
}

/* Finds the best course for the bits of the pools, near `near` if that has epochs. */
static struct best plan_for(const struct best *near, struct tally_calm_pools pools)
{
    struct best best =
        alone(near->course.constants, &near->course.state, pools, near->course.is_ideal);
    if (near->course.n > 0) {
        double samples[TALLY_CALM_COURSE_EPOCHS];
        tally_calm_course_samples(&near->course, near->x, samples);
        search_near(best.course, samples, near->course.n, &best);
    } else {
        search(best.course, 1, &best);
    }
    return best;
}

/* Chooses the bits of the pool without a budget by a ladder of growing budgets, from one bit per
 * coordinate and direction on. Returns the course of the last step that paid its price. Up to
 * LADDER_PATIENCE steps that do not pay are skipped, because bits come in whole messages: half a
 * message more gains little. */
static struct best plan_by_price(const struct best *near, struct tally_calm_pools pools, int priced)
{
    const double dim = (double)near->course.constants->dim;
    pools.bits[priced] = (dim + 2 * TALLY_CALM_MESSAGE_BITS) *
                         ((pools.of[UP] == priced) + (pools.of[DOWN] == priced));
    struct best taken = plan_for(near, pools), last = taken;
    int n_refused = 0;
    for (int i = 0; i < LADDER_STEPS && n_refused < LADDER_PATIENCE; i++) {
        pools.bits[priced] *= LADDER_FACTOR;
        struct best next = alone(near->course.constants, &near->course.state, pools, false);
        search(next.course, last.course.n > 1 ? last.course.n - 1 : 1, &next);
        n_refused++;
        if (last.value - next.value >= PRICE * log(LADDER_FACTOR)) {
            taken = next;
            n_refused = 0;
        }
        last = next;
    }
    return taken;
}

/* The pools of a budget, and the one without bits of its own: -1 = none. */
static struct tally_calm_pools pools_of(const struct tally_calm_budget *budget, int *ret_priced)
{
    const double up = budget->uplink_bits - budget->uplink_margin - ROUNDING_BITS;
    const double down = budget->downlink_bits - budget->downlink_margin - ROUNDING_BITS;
    const bool is_up_priced = isinf(budget->uplink_bits),
               is_down_priced = isinf(budget->downlink_bits);
    *ret_priced = is_up_priced ? UP : is_down_priced ? DOWN : -1;
    return (struct tally_calm_pools){.of = {UP, is_up_priced && is_down_priced ? UP : DOWN},
                                     .bits = {up, down}};
}

/* Where the search starts: near the course of an earlier schedule, or anywhere. */
static struct best near_previous(const struct tally_calm_schedule *previous, struct best near)
{
    struct tally_calm_course *course = &near.course;
    course->is_settled = true;
    for (int k = 0; previous != NULL && k < previous->n && k < TALLY_CALM_COURSE_EPOCHS; k++) {
        course->samples[course->n++] = previous->epochs[k].samples;
    }
    return near;
}

void tally_calm_plan(const struct tally_calm_constants *constants,
                     const struct tally_calm_state *state, const struct tally_calm_budget *budget,
                     const struct tally_calm_schedule *previous,
                     struct tally_calm_schedule *ret_schedule)
{
    int priced;
    const struct tally_calm_pools pools = pools_of(budget, &priced);
    const struct best near = near_previous(previous, alone(constants, state, pools, false));
    struct best best = priced < 0 ? plan_for(&near, pools) : plan_by_price(&near, pools, priced);
    *ret_schedule = (struct tally_calm_schedule){0};
    if (best.course.n > 0) {
        settle(&best);
        tally_calm_course_schedule(&best.course, best.x, ret_schedule);
    }
}

double tally_calm_scatter_bits(size_t dim, int messages)
{
    return sqrt((double)dim * messages / 2) / log(2);
}

double tally_calm_shared_regret(const struct tally_calm_constants *constants)
{
    struct tally_calm_constants shared = *constants;
    shared.noise /= constants->clients;
    shared.noise_growth /= constants->clients;
    shared.client_spread = 0;
    shared.local_step_limit = INFINITY;
    return tally_calm_leg(&shared, constants->initial_variance, (double)constants->horizon).regret;
}

double tally_calm_ideal_regret(const struct tally_calm_constants *constants,
                               const struct tally_calm_budget *budget)
{
    int priced;
    const struct tally_calm_pools pools = pools_of(budget, &priced);
    const struct tally_calm_state start = tally_calm_start(constants);
    const struct best none = alone(constants, &start, pools, true);
    assert(priced < 0);
    return exp(plan_for(&none, pools).value);
}

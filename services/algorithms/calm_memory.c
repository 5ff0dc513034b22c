/* What the server of a CALM job remembers: its estimate z, the state of the recursion, the
 * schedule, and the bits spent; and how the schedule follows a budget.
 *
 * The lengths of messages scatter around the plan of a budget. After each round the grids of the
 * remaining epochs become coarser or finer, by one factor for the uplink and one for the downlink,
 * so that the rest of the budget is used but not exceeded. Clients are told the factor of the
 * uplink. If constants are estimated and both directions have a budget, the job is planned after
 * the opening, and the rest again after each round, because the constants are known better. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_leg.h"
#include "services/algorithms/calm/calm_plan.h"

double *calm_estimate(struct calm_memory *memory)
{
    return (double *)(memory + 1);
}

uint64_t *calm_spent(const struct tally_setting *setting, struct calm_memory *memory)
{
    return (uint64_t *)(calm_estimate(memory) + setting->dim);
}

/* What a job with shifts stores of its clients, after everything else: W, and M shifts. */
bool calm_keeps_shifts(const struct tally_setting *setting)
{
    return setting->params->calm.shifts;
}

enum tally_shift_start calm_shift_start(const struct tally_setting *setting)
{
    return calm_keeps_shifts(setting) ? TALLY_SHIFT_POINT : TALLY_SHIFT_NONE;
}

double *calm_shift_error(const struct tally_setting *setting, struct calm_memory *memory)
{
    return (double *)(calm_spent(setting, memory) + setting->clients);
}

struct tally_shift *calm_shift(const struct tally_setting *setting, void *memory, uint32_t client)
{
    if (!calm_keeps_shifts(setting)) {
        return NULL;
    }
    char *first = (char *)(calm_shift_error(setting, memory) + 1);
    return (struct tally_shift *)(first + client * tally_shift_bytes(setting->dim));
}

bool calm_is_free(const struct tally_setting *setting)
{
    const struct tally_calm_params *params = &setting->params->calm;
    return isnan(params->client_spread) && isnan(params->local_step_limit) && !params->shifts;
}

bool calm_may_travel(const struct tally_setting *setting)
{
    return calm_is_free(setting) && setting->budget.uplink_bits == 0 &&
           setting->budget.downlink_bits == 0;
}

bool calm_replans(const struct tally_setting *setting)
{
    return setting->budget.uplink_bits > 0 && setting->budget.downlink_bits > 0;
}

struct tally_calm_travel *calm_travel(const struct tally_setting *setting,
                                      struct calm_memory *memory)
{
    return calm_may_travel(setting) && memory->opening_samples > 0
               ? (struct tally_calm_travel *)(calm_spent(setting, memory) + setting->clients)
               : NULL;
}

double *calm_last_mean(const struct tally_setting *setting, struct calm_memory *memory)
{
    return (double *)(calm_travel(setting, memory) + 1);
}

size_t calm_memory_bytes(const struct tally_setting *setting)
{
    const size_t vector = setting->dim * sizeof(double);
    return sizeof(struct calm_memory) + vector + setting->clients * sizeof(uint64_t) +
           (calm_may_travel(setting) ? sizeof(struct tally_calm_travel) + vector : 0) +
           (calm_keeps_shifts(setting)
                ? sizeof(double) + setting->clients * tally_shift_bytes(setting->dim)
                : 0);
}

const struct tally_calm_epoch *calm_open_epoch(const struct calm_memory *memory)
{
    const int64_t last = memory->schedule.n > 0 ? memory->schedule.n - 1 : 0;
    return &memory->schedule.epochs[memory->epoch < last ? memory->epoch : last];
}

/* Grids are up to GAIN finer while noise falls along with V: a finer message then also makes later
 * ones better. */
struct tally_calm_epoch calm_open_grids(const struct tally_setting *setting,
                                        const struct calm_memory *memory)
{
    static const double GAIN = 0.25;
    const struct tally_calm_travel *travel = calm_travel(setting, (struct calm_memory *)memory);
    struct tally_calm_epoch epoch = *calm_open_epoch(memory);
    if (calm_has_belief(memory) && travel != NULL && !travel->is_on) {
        const double far = setting->params->calm.noise_growth * memory->state.variance;
        const double factor = 1 - GAIN * far / (memory->noise + far);
        epoch.uplink_resolution *= factor;
        epoch.downlink_resolution *= factor;
    }
    return epoch;
}

double calm_step_size(const struct tally_setting *setting, const struct tally_walk_facts *facts)
{
    return facts->step_size > 0 ? facts->step_size : setting->params->calm.step_size;
}

struct tally_calm_constants calm_constants(const struct tally_setting *setting,
                                           const struct tally_walk_facts *facts)
{
    const struct tally_calm_params *params = &setting->params->calm;
    const double step_size = calm_step_size(setting, facts);
    return (struct tally_calm_constants){
        .curvature = 1 / step_size,
        .noise = facts->noise,
        .noise_growth = facts->noise_growth,
        .client_spread = facts->client_spread,
        .curvature_spread = params->curvature_spread,
        .initial_variance = facts->distance,
        .shift_error = facts->shift_error,
        .local_step_limit = isnan(params->local_step_limit) ? step_size : params->local_step_limit,
        .clients = setting->clients,
        .dim = setting->dim,
        .horizon = setting->horizon,
        .repeats = facts->repeats};
}

struct tally_walk_facts calm_facts(const struct tally_setting *setting,
                                   const struct calm_memory *memory)
{
    const struct tally_calm_travel *travel = calm_travel(setting, (struct calm_memory *)memory);
    return (struct tally_walk_facts){
        .distance = memory->state.variance,
        .client_spread = memory->client_spread,
        .noise = memory->noise,
        .noise_growth = setting->params->calm.noise_growth,
        .travel_step = travel != NULL && travel->is_on ? travel->step : 0,
        .step_size = memory->step_size,
        .shift_error = calm_keeps_shifts(setting)
                           ? *calm_shift_error(setting, (struct calm_memory *)memory)
                           : 0};
}

/* How much coarser the grids of the uplink are in a job that is judged by its final model. Later
 * rounds compensate for the errors of earlier ones, the better the more clients there are. */
static double coarser(const struct tally_setting *setting, struct calm_memory *memory,
                      double excess)
{
    static const double MOST = 1.7;
    if (setting->has_regret || calm_travel(setting, memory) == NULL) {
        return 1;
    }
    return fmax(1, fmin(MOST, fmin(pow(excess, 0.1), sqrt(0.28 * setting->clients))));
}

int64_t calm_drawn(const struct tally_setting *setting, const struct calm_memory *memory)
{
    return memory->opening_samples > 0 ? calm_draws(setting, memory->step_size > 0) : 0;
}

/* Epochs that grow by a factor of three; the first includes the draws of the opening. With more
 * coordinates, whose errors average out, grids are coarser. */
static void default_schedule(const struct tally_setting *setting, struct calm_memory *memory)
{
    enum { EPOCHS = 5, GROWTH = 3 };
    const double excess = fmax(1, (double)setting->dim / 30);
    const double least = calm_has_belief(memory) ? 1.5 : 1.3;
    const double downlink = calm_has_belief(memory) ? 1.45 : 1.6;
    const double uplink = least * pow(excess, 0.2) * coarser(setting, memory, excess);
    int64_t samples = CALM_OPENING_SAMPLES;
    memory->schedule = (struct tally_calm_schedule){.n = EPOCHS};
    for (int i = 0; i < EPOCHS; i++, samples *= GROWTH) {
        memory->schedule.epochs[i] = (struct tally_calm_epoch){
            .samples = samples - (i == 0 ? calm_drawn(setting, memory) : 0),
            .uplink_resolution = uplink,
            .downlink_resolution = downlink * pow(excess, 0.09)};
    }
}

/* The most bits that a client may still send if the client that has sent most is to stay within the
 * budget. */
uint64_t calm_bits_left(const struct tally_setting *setting, const struct calm_memory *memory)
{
    const uint64_t *spent = calm_spent(setting, (struct calm_memory *)memory);
    uint64_t most = 0;
    for (uint32_t m = 0; m < setting->clients; m++) {
        most = most > spent[m] ? most : spent[m];
    }
    return most < (uint64_t)setting->budget.uplink_bits
               ? (uint64_t)setting->budget.uplink_bits - most
               : 0;
}

/* The reserve of a plan for the scatter of message lengths, and for the control bits of the usual
 * number of epochs. */
static double reserve_up(const struct tally_setting *setting)
{
    return 2.5 * sqrt((double)setting->dim);
}

static double reserve_down(const struct tally_setting *setting, int64_t epochs)
{
    static const double USUAL_CONTROL_BITS = 4;
    return 0.5 * sqrt((double)setting->dim) + USUAL_CONTROL_BITS * (double)epochs;
}

/* The bits that a plan may spend. */
static struct tally_calm_budget planned_budget(const struct tally_setting *setting)
{
    enum { USUAL_EPOCHS = 4 };
    const double up = (double)setting->budget.uplink_bits,
                 down = (double)setting->budget.downlink_bits;
    return (struct tally_calm_budget){
        .uplink_bits = up > 0 ? up : INFINITY,
        .downlink_bits = down > 0 ? down : INFINITY,
        .uplink_margin = up > 0 ? fmin(reserve_up(setting), up / 4) : 0,
        .downlink_margin = down > 0 ? fmin(reserve_down(setting, USUAL_EPOCHS), down / 4) : 0};
}

bool calm_is_planned(const struct tally_setting *setting)
{
    return !calm_opens(setting->params) &&
           (setting->budget.uplink_bits > 0 || setting->budget.downlink_bits > 0);
}

/* B at the start: 0 until a measurement shows otherwise. */
static double given_spread(const struct tally_calm_params *params)
{
    return isnan(params->client_spread) ? 0 : params->client_spread;
}

/* W at the start, where c is the initial point: the distance of a client's own optimum. */
static double first_shift_error(const struct tally_calm_params *params)
{
    return params->shifts ? given_spread(params) + params->initial_variance : 0;
}

struct tally_calm_constants calm_known_constants(const struct tally_setting *setting)
{
    const struct tally_calm_params *params = &setting->params->calm;
    const struct tally_walk_facts facts = {.distance = params->initial_variance,
                                           .client_spread = given_spread(params),
                                           .noise = params->noise,
                                           .noise_growth = params->noise_growth,
                                           .shift_error = first_shift_error(params)};
    return calm_constants(setting, &facts);
}

/* The search takes longer for a longer horizon. Beyond this many queries a plan would only lengthen
 * its last epochs. */
static struct tally_calm_state planned_from(struct tally_calm_state state)
{
    enum { MOST_PLANNED = 1 << 17 };
    state.samples_left = state.samples_left < MOST_PLANNED ? state.samples_left : MOST_PLANNED;
    return state;
}

void calm_make_schedule(const struct tally_setting *setting,
                        struct tally_calm_schedule *ret_schedule)
{
    const struct tally_calm_constants constants = calm_known_constants(setting);
    const struct tally_calm_budget budget = planned_budget(setting);
    const struct tally_calm_state state = planned_from(tally_calm_start(&constants));
    tally_calm_plan(&constants, &state, &budget, NULL, ret_schedule);
}

void calm_forecast(const struct tally_setting *setting, const struct tally_calm_schedule *schedule,
                   struct tally_calm_forecast *ret_forecast)
{
    const struct tally_calm_constants constants = calm_known_constants(setting);
    const struct tally_calm_state start = tally_calm_start(&constants);
    tally_calm_forecast(&constants, &start, schedule, ret_forecast);
}

void calm_schedule(const struct tally_setting *setting, char ret_schedule[TALLY_SCHEDULE_CAPACITY])
{
    struct tally_calm_schedule schedule;
    ret_schedule[0] = '\0';
    if (!calm_is_planned(setting)) {
        return;
    }
    calm_make_schedule(setting, &schedule);
    int n = snprintf(ret_schedule, TALLY_SCHEDULE_CAPACITY, "%d", schedule.n);
    for (int k = 0; k < schedule.n && n < TALLY_SCHEDULE_CAPACITY; k++) {
        const struct tally_calm_epoch *epoch = &schedule.epochs[k];
        n += snprintf(ret_schedule + n, (size_t)(TALLY_SCHEDULE_CAPACITY - n), " %" PRId64 " %a %a",
                      epoch->samples, epoch->uplink_resolution, epoch->downlink_resolution);
    }
    assert(n < TALLY_SCHEDULE_CAPACITY); /* 16 epochs of at most 57 bytes each */
}

/* `least`: of the queries of the first epoch. */
static bool schedule_is_valid(const struct tally_calm_schedule *schedule, int64_t least)
{
    bool is_valid = schedule->n >= 0 && schedule->n <= TALLY_CALM_MAX_EPOCHS;
    for (int i = 0; is_valid && i < schedule->n; i++) {
        const struct tally_calm_epoch *epoch = &schedule->epochs[i];
        is_valid = epoch->samples >= (i == 0 ? least : 1) && epoch->uplink_resolution > 0 &&
                   epoch->downlink_resolution > 0;
    }
    return is_valid;
}

bool calm_read_schedule(const char *text, struct tally_calm_schedule *ret_schedule)
{
    struct tally_calm_schedule schedule = {0};
    char *end;
    const long n = strtol(text, &end, 10);
    if (end == text || n < 0 || n > TALLY_CALM_MAX_EPOCHS) {
        return false;
    }
    for (schedule.n = 0; schedule.n < n; schedule.n++) {
        struct tally_calm_epoch *epoch = &schedule.epochs[schedule.n];
        epoch->samples = strtoll(end, &end, 10);
        epoch->uplink_resolution = strtod(end, &end);
        epoch->downlink_resolution = strtod(end, &end);
    }
    if (*end != '\0' || !schedule_is_valid(&schedule, 1)) {
        return false;
    }
    *ret_schedule = schedule;
    return true;
}

double calm_mean_shift(const struct tally_server_task *task, size_t i)
{
    const struct tally_setting *setting = task->setting;
    double sum = 0;
    if (!calm_keeps_shifts(setting)) {
        return 0;
    }
    for (uint32_t m = 0; m < setting->clients; m++) {
        sum += (double)tally_shift_in(calm_shift(setting, task->memory, m), task->round,
                                      setting->dim, NULL)[i];
    }
    return sum / setting->clients - task->x[i];
}

void calm_follow_shifts(const struct tally_server_task *task, double moved)
{
    const struct tally_calm_constants constants = calm_constants(task->setting, &task->plan->facts);
    struct tally_calm_walk walk;
    tally_calm_walk_ahead(&walk, &constants, task->plan->facts.distance, task->plan->samples);
    *calm_shift_error(task->setting, task->memory) = tally_calm_shift_error(
        &constants, &walk, task->plan->grid.step, (uint32_t)task->received, moved);
}

/* The power of 2^(1/4) by which n grids of dim coordinates each must become coarser to save
 * `excess` bits. */
static int coarsening(double excess, size_t dim, int n)
{
    const double quarters = rint(4 * excess / ((double)dim * n));
    return (int)fmax(-CALM_MOST_INDEX, fmin(CALM_MOST_INDEX, quarters));
}

/* The power of 2^(1/4), at most 0, of the finest grids that are worth their bits. */
static int finest_index(const struct tally_calm_epoch *epochs, int n, bool is_up)
{
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        least = fmin(least, is_up ? epochs[i].uplink_resolution : epochs[i].downlink_resolution);
    }
    return (int)fmin(0, ceil(4 * log2(TALLY_CALM_FINEST / least)));
}

uint64_t calm_index_bits(int64_t k)
{
    return k == 0 ? 1 : 2 + (uint64_t)llabs(k);
}

/* By how much the longest of the clients' nth messages in all exceeds the last one, beyond their
 * mean length. (The mean of the largest of M normal values is about 0.72 sqrt(2 ln M).) */
static double excess_of_longest(const struct tally_setting *setting, int n)
{
    static const double SHARE = 0.72;
    return SHARE * sqrt(2 * log(setting->clients)) *
           (tally_calm_scatter_bits(setting->dim, n) -
            tally_calm_scatter_bits(setting->dim, n - 1));
}

/* Tells clients what is left up after a message of this expected length, in units of half a bit for
 * each root of d, and returns the bits of that. */
static uint64_t tell_left(const struct tally_setting *setting, struct calm_memory *memory,
                          double message_bits)
{
    const double unit = 0.5 * sqrt((double)setting->dim);
    const double expected =
        memory->told_left - message_bits - excess_of_longest(setting, (int)memory->epoch);
    const double more = ((double)calm_bits_left(setting, memory) - expected) / unit;
    const double k = fmax(-CALM_MOST_INDEX, fmin(CALM_MOST_INDEX, floor(more)));
    memory->told_left = fmax(expected + k * unit, 0);
    return calm_index_bits((int64_t)k);
}

/* The bits that a plan of `n` more epochs may spend. Each broadcast is followed by about ten
 * control bits that state what has been estimated; there may be three more than planned, as a job
 * whose V was estimated too small needs them. Half a bit for each root of d is the scatter of the
 * lengths (reserve_down()). Small budgets keep less back: the grids of the last message fit what is
 * left anyway. */
static struct tally_calm_budget budget_left(const struct tally_setting *setting,
                                            const struct calm_memory *memory, int n)
{
    enum { USUAL_CONTROL_BITS = 10, LEAST_EPOCHS = 3 };
    const double up = memory->told_left;
    const double down = fmax((double)(setting->budget.downlink_bits - memory->downlink_bits), 0);
    const double reserve = 0.5 * sqrt((double)setting->dim) +
                           (double)(USUAL_CONTROL_BITS * (n > LEAST_EPOCHS ? n : LEAST_EPOCHS));
    return (struct tally_calm_budget){.uplink_bits = up,
                                      .downlink_bits = down,
                                      .uplink_margin = fmin(reserve_up(setting), up / 4),
                                      .downlink_margin = fmin(reserve, down / 3)};
}

/* What a plan assumes. After the opening, the noise s0 + m V of a query is known, but hardly which
 * part of it is m V. A plan for too small a part ends too early and has nothing left, so the first
 * one takes the part to be near one half. */
static struct tally_walk_facts facts_to_plan(const struct tally_setting *setting,
                                             const struct calm_memory *memory)
{
    static const double MIDDLE = 0.5, TRUST = 0.2;
    struct tally_walk_facts facts = calm_facts(setting, memory);
    if (memory->epoch == 0) {
        facts.repeats = calm_drawn(setting, memory);
    }
    if (memory->epoch == 0 && calm_has_belief(memory)) {
        const double far = facts.noise_growth * facts.distance, all = facts.noise + far;
        const double part = MIDDLE + TRUST * (far / all - MIDDLE);
        facts.distance = part * all / facts.noise_growth;
        facts.noise = (1 - part) * all;
    }
    return facts;
}

/* Plans the n remaining epochs of a job that estimates constants, from the schedule so far: lengths
 * and resolutions follow from what is known now. A search from given epochs keeps their number, and
 * few bits may be better spent on fewer messages; so it starts from the first one of them, the
 * first two, and so on. (A search without a start takes ten times as long, and one with a budget in
 * only one direction even longer: the grids of such a job are only adjusted.) */
static void plan_rest(const struct tally_setting *setting, struct calm_memory *memory, int n)
{
    const struct tally_walk_facts facts = facts_to_plan(setting, memory);
    const struct tally_calm_constants constants = calm_constants(setting, &facts);
    struct tally_calm_epoch *const epochs = memory->schedule.epochs + memory->epoch;
    struct tally_calm_state state = planned_from(memory->state);
    state.estimate_variance *= facts.distance / state.variance;
    state.variance = facts.distance;
    struct tally_calm_schedule previous = {0}, rest = {0};
    double least = INFINITY;
    memcpy(previous.epochs, epochs, (size_t)n * sizeof *epochs);
    for (previous.n = 1; previous.n <= n; previous.n++) {
        struct tally_calm_schedule plan;
        struct tally_calm_forecast forecast;
        const struct tally_calm_budget left = budget_left(setting, memory, previous.n);
        tally_calm_plan(&constants, &state, &left, &previous, &plan);
        tally_calm_forecast(&constants, &state, &plan, &forecast);
        if (forecast.regret < least) {
            least = forecast.regret;
            rest = plan;
        }
    }
    if (memory->epoch == 0 && rest.n == 0) {
        return; /* the opening is too rough to end all communication */
    }
    const int most = TALLY_CALM_MAX_EPOCHS - (int)memory->epoch;
    rest.n = rest.n < most ? rest.n : most;
    memcpy(epochs, rest.epochs, (size_t)rest.n * sizeof *epochs);
    memory->schedule.n = (int)memory->epoch + rest.n;
}

/* Clients derive the factor of the downlink from the broadcasts. Only the factor of the uplink,
 * which depends on what each client has sent, is sent to them. */
uint64_t calm_fit_grids(const struct tally_setting *setting, struct calm_memory *memory,
                        double message_bits)
{
    const struct tally_budget *budget = &setting->budget;
    const int n = memory->schedule.n - (int)memory->epoch;
    if (n <= 0 || (budget->uplink_bits == 0 && budget->downlink_bits == 0)) {
        return 0;
    }
    if (memory->opening_samples > 0 && calm_replans(setting)) {
        const uint64_t bits = tell_left(setting, memory, message_bits);
        plan_rest(setting, memory, n);
        return bits;
    }
    const struct tally_walk_facts facts = calm_facts(setting, memory);
    const struct tally_calm_constants constants = calm_constants(setting, &facts);
    struct tally_calm_epoch *epochs = memory->schedule.epochs + memory->epoch;
    struct tally_calm_schedule rest = {.n = n};
    memcpy(rest.epochs, epochs, (size_t)n * sizeof *epochs);
    struct tally_calm_forecast forecast;
    tally_calm_forecast(&constants, &memory->state, &rest, &forecast);
    int up = 0, down = 0;
    if (budget->uplink_bits > 0) {
        const double left = (double)calm_bits_left(setting, memory) - reserve_up(setting);
        up = coarsening(forecast.uplink_bits - left, setting->dim, n);
    }
    if (budget->downlink_bits > 0) {
        const double left =
            (double)(budget->downlink_bits - memory->downlink_bits) - reserve_down(setting, n);
        down = coarsening(forecast.downlink_bits - left, setting->dim, n);
    }
    const int finest_up = finest_index(epochs, n, true),
              finest_down = finest_index(epochs, n, false);
    up = up > finest_up ? up : finest_up;
    down = down > finest_down ? down : finest_down;
    for (int i = 0; i < n; i++) {
        epochs[i].uplink_resolution *= exp2(up / 4.0);
        epochs[i].downlink_resolution *= exp2(down / 4.0);
    }
    return budget->uplink_bits > 0 ? calm_index_bits(up) : 0;
}

/* Charges the opening round to the budget, as if every client had answered. */
static void spend_opening(const struct tally_setting *setting, struct calm_memory *memory)
{
    const bool found_step = memory->step_size > 0;
    const uint64_t bits = calm_report_bits(setting, found_step);
    memory->downlink_bits = CALM_REPORT_BITS + (found_step ? CALM_STEP_BITS : 0);
    for (uint32_t m = 0; m < setting->clients; m++) {
        calm_spent(setting, memory)[m] = bits;
    }
}

void calm_memory_begin(const struct tally_setting *setting, const double *x,
                       int64_t opening_samples, const char *schedule, void *bytes)
{
    const struct tally_calm_params *params = &setting->params->calm;
    struct calm_memory *memory = bytes;
    memset(memory, 0, calm_memory_bytes(setting));
    memcpy(calm_estimate(memory), x, setting->dim * sizeof *x);
    memory->opening_samples = opening_samples;
    memory->step_size = params->is_found ? params->step_size : 0;
    memory->noise = params->noise;
    memory->client_spread = given_spread(params);
    memory->state = (struct tally_calm_state){params->initial_variance, params->initial_variance,
                                              setting->horizon - opening_samples};
    if (opening_samples > 0) {
        spend_opening(setting, memory);
    }
    if (calm_travel(setting, memory) != NULL) {
        const bool is_exact = setting->minibatch == 0; /* all draws are the same */
        tally_calm_travel_begin(calm_travel(setting, memory),
                                is_exact ? calm_drawn(setting, memory) : CALM_OPENING_SAMPLES);
    }
    if (params->is_even) {
        calm_belief_begin(setting, memory);
    }
    if (calm_keeps_shifts(setting)) {
        *calm_shift_error(setting, memory) = first_shift_error(params);
        for (uint32_t m = 0; m < setting->clients; m++) {
            tally_shift_begin(calm_shift(setting, memory, m), x, setting->dim);
        }
    }
    if (!calm_opens(setting->params) && !calm_read_schedule(schedule, &memory->schedule)) {
        default_schedule(setting, memory);
    }
    if (calm_has_belief(memory) && calm_travel(setting, memory) != NULL) {
        calm_travel(setting, memory)->samples =
            calm_next_length(setting, memory, calm_drawn(setting, memory));
    }
    if (opening_samples > 0 && calm_replans(setting)) {
        memory->told_left = (double)calm_bits_left(setting, memory);
        plan_rest(setting, memory, memory->schedule.n);
    }
}

static bool shifts_are_valid(const struct tally_setting *setting, struct calm_memory *memory)
{
    bool is_valid = *calm_shift_error(setting, memory) > 0;
    for (uint32_t m = 0; is_valid && m < setting->clients; m++) {
        is_valid = tally_shift_is_valid(calm_shift(setting, memory, m), setting->dim);
    }
    return is_valid;
}

static bool belief_is_valid(const struct calm_memory *memory, bool may_be)
{
    const struct calm_belief *belief = &memory->belief;
    return belief->noise >= 0 && belief->share >= 0 && belief->regret >= 0 &&
           isfinite(belief->noise) && isfinite(belief->both) && isfinite(belief->share) &&
           isfinite(belief->regret) &&
           (!calm_has_belief(memory) || (may_be && memory->step_size > 0));
}

bool calm_memory_is_valid(const struct tally_setting *setting, const void *bytes)
{
    const struct calm_memory *memory = bytes;
    const bool has_begun = memory->schedule.n > 0 || memory->epoch > 0;
    const struct tally_calm_travel *travel = calm_travel(setting, (struct calm_memory *)memory);
    const bool is_in_place = travel != NULL
                                 ? memory->schedule.n > 0 && tally_calm_travel_is_valid(travel) &&
                                       travel->epochs == memory->epoch
                                 : memory->epoch <= memory->schedule.n;
    return schedule_is_valid(&memory->schedule, memory->opening_samples > 0 ? 0 : 1) &&
           memory->epoch >= 0 && is_in_place && memory->state.samples_left >= 0 &&
           memory->state.samples_left <= setting->horizon && memory->opening_samples >= 0 &&
           memory->downlink_bits >= 0 && memory->step_size >= 0 && isfinite(memory->step_size) &&
           memory->told_left >= 0 && isfinite(memory->told_left) &&
           belief_is_valid(memory, travel != NULL || calm_replans(setting)) &&
           (!calm_keeps_shifts(setting) ||
            shifts_are_valid(setting, (struct calm_memory *)memory)) &&
           (!has_begun || (memory->state.variance > 0 && memory->state.estimate_variance > 0 &&
                           memory->noise > 0 && memory->client_spread >= 0));
}

void calm_memory_spend(const struct tally_setting *setting, void *memory, uint32_t client,
                       uint64_t bits)
{
    calm_spent(setting, memory)[client] += bits;
}

/* Once the clients have moved, a variance above the expected noise is attributed to the clients'
 * own optima. A variance below it means that the noise is smaller. */
void calm_learn(const struct tally_setting *setting, struct calm_memory *memory,
                const struct tally_calm_walk *walk, double noise)
{
    static const double NOTICEABLE = 0.1, MOST_GROWTH = 4;
    if (memory->opening_samples == 0) {
        return;
    }
    const struct tally_walk_facts facts = calm_facts(setting, memory);
    const double length = 1 / calm_step_size(setting, &facts);
    const double expected = tally_calm_walk_message_noise(walk), excess = noise - expected;
    const double one_query = noise * (double)walk->n * length * length;
    const bool is_first = memory->epoch == 0;
    if (isnan(setting->params->calm.client_spread)) {
        memory->client_spread = !is_first && excess > NOTICEABLE * expected ? excess : 0;
    }
    memory->noise = fmin(one_query, (is_first ? MOST_GROWTH : 1) * memory->noise);
}

#include "services/algorithms/calm/calm_travel.h"

#include <math.h>

/* Lengths: an averaging epoch is three times as long as the one before; a travelling one has at
 * least FIRST queries, more for d above 30, and a share of those so far. */
enum { GROWTH = 3, FIRST = 24, LEAST_DIM = 10 };
static const double SHARE = 0.15;
/* Steps: f - f* is taken to be STEP_GAIN gamma tau per coordinate, so vs is 2 STEP_GAIN gamma tau /
 * h; at most MOST_NOISE s / h^2. e is at most LONGEST / h. */
static const double STEP_GAIN = 3, MOST_NOISE = 8, LONGEST = 0.95, AVERAGING_REACH = 1.5;
/* The gap falls at most by DECAY per e-fold of time, and by LEAST_FALL per epoch. It rises at most
 * by MOST_RISE, because two means are sometimes aligned by chance, or by FIRST_RISE after the first
 * epoch. */
static const double DECAY = 0.05, LEAST_FALL = 0.3, MOST_RISE = 1.5, FIRST_RISE = 4;
/* The number of standard errors of a cosine that count as noise; the cosine, absolute and in
 * standard errors, at which the gap is held; the cosine at which travelling stops. */
static const double COSINE_ERRORS = 1.5, HOLD_COSINE = 0.5, HOLD_ERRORS = 2, STOP_COSINE = 0.25;

double tally_calm_coded(double value, double reference, int bits)
{
    static const double TINY = 1e-30;
    const double half = ldexp(1, bits - 1), base = reference > 0 ? reference : TINY;
    const double index = rint(4 * log2(fmax(value, TINY) / base));
    return base * exp2(fmax(-half, fmin(half - 1, index)) / 4);
}

void tally_calm_travel_begin(struct tally_calm_travel *travel, int64_t samples)
{
    *travel = (struct tally_calm_travel){.samples = samples};
}

/* What is derived from a sight and the preceding state. */
struct view {
    double reach, error, motion, spread_of_mean, cross;
};

static struct view view_of(const struct tally_calm_travel *travel,
                           const struct tally_calm_ground *ground,
                           const struct tally_calm_sight *sight)
{
    struct view view = {
        .reach = travel->is_on ? travel->step * (double)travel->samples
                               : AVERAGING_REACH / ground->curvature,
        .error = sight->noise + sight->rounding,
        .spread_of_mean = sight->spread / (double)sight->answers,
    };
    view.motion = fmax(sight->square - view.error / (double)sight->answers, 0);
    if (travel->epochs > 0) {
        view.cross = sqrt(sight->square * travel->square) / (view.reach * travel->reach);
    }
    return view;
}

struct tally_calm_contradiction
tally_calm_travel_contradiction(const struct tally_calm_travel *travel,
                                const struct tally_calm_ground *ground,
                                const struct tally_calm_sight *sight)
{
    static const double CURVATURE_SPREAD = 0.02; /* of problems that need no travelling */
    const double m = travel->motion, noise = travel->square - m, gain = travel->told;
    const double next = sight->spread / (double)sight->answers, rest = (1 - gain) * (1 - gain);
    const double expected = rest * m + gain * gain * noise + CURVATURE_SPREAD * m;
    const double dim = (double)ground->dim;
    const double product_error =
        sqrt((next * travel->square + noise * m + 2 * noise * noise) / dim);
    const double length_error = sqrt((2 * (next + expected) * (next + expected) +
                                      rest * rest * (2 * noise * noise + 4 * noise * m)) /
                                     dim);
    if (travel->epochs == 0 || gain == 0 || !(product_error > 0) || !(length_error > 0)) {
        return (struct tally_calm_contradiction){0};
    }
    return (struct tally_calm_contradiction){
        .direction = (sight->product - (1 - gain) * m + gain * noise) / product_error,
        .length = (sight->innovation - next - expected) / length_error,
    };
}

/* Whether the clients' means agree with each other, and are longer than V and their noise can
 * explain. V is rough, so means that are only longer than it must also contradict the curvature h
 * itself. After a small gain, that is, if V was not even twice the noise, m and N are too rough to
 * tell. */
static bool shall_start(const struct tally_calm_travel *travel,
                        const struct tally_calm_ground *ground,
                        const struct tally_calm_sight *sight, const struct view *view)
{
    static const double DIRECTION_ERRORS = 3, LENGTH_ERRORS = 6, LEAST_GAIN = 0.65;
    const double by_variance = view->motion / sight->variance;
    const double by_noise = view->motion / view->spread_of_mean;
    const double far = travel->epochs == 1 ? 1.5 : 3;
    const bool is_long = (sight->cosine > 0.7 && by_variance > 1.2 && by_noise > 4) ||
                         (sight->cosine > 0.2 && by_variance > far && by_noise > 8);
    const struct tally_calm_contradiction contradiction =
        tally_calm_travel_contradiction(travel, ground, sight);
    const bool is_contradicted =
        travel->told > LEAST_GAIN &&
        (contradiction.direction > DIRECTION_ERRORS || contradiction.length > LENGTH_ERRORS);
    return (is_long && is_contradicted) ||
           (sight->cosine > 0.8 && ground->dim >= LEAST_DIM && !ground->is_even);
}

static double gap_at_start(const struct tally_calm_travel *travel,
                           const struct tally_calm_ground *ground,
                           const struct tally_calm_sight *sight, const struct view *view)
{
    static const double LEAST_SHARE = 0.1;
    const double h = ground->curvature, s = sight->query;
    /* Noise may hide the motion, but is not common to two means. Without motion e would be 0, and
     * remain so. */
    const double common = fmax(sight->cosine, 0) * sqrt(sight->square * travel->square);
    const double m = fmax(view->motion, LEAST_SHARE * common);
    const double slope = fmax(m / (view->reach * view->reach), sight->cosine * view->cross);
    const double gap =
        fmin(2 * STEP_GAIN * slope * travel->total_reach / h, MOST_NOISE * s / (h * h));
    const double step = fmin(2 * h * m / (h * h * m + s), LONGEST / h);
    return fmin(gap, s * step / (h * (1 - step * h)));
}

/* Whether the mean still shows a common motion that its noise cannot explain. */
static bool shall_hold(const struct tally_calm_travel *travel,
                       const struct tally_calm_ground *ground, const struct tally_calm_sight *sight,
                       const struct view *view)
{
    static const double TINY = 1e-60;
    const double cosine = sight->cosine * sqrt(sight->square * travel->square) /
                          sqrt(view->motion * travel->motion + TINY);
    return cosine > HOLD_COSINE && sight->cosine > HOLD_ERRORS / sqrt((double)ground->dim) &&
           view->motion > sight->noise / (double)sight->answers;
}

static double gap_on_the_way(const struct tally_calm_travel *travel,
                             const struct tally_calm_ground *ground,
                             const struct tally_calm_sight *sight, const struct view *view)
{
    const double h = ground->curvature, before = travel->gap;
    const double slope =
        fmax(sight->cosine - COSINE_ERRORS / sqrt((double)ground->dim), 0) * view->cross;
    double gap = 2 * STEP_GAIN * slope * travel->total_reach / h;
    if (shall_hold(travel, ground, sight, view)) {
        gap = fmax(gap, before);
    }
    const double elapsed = log((double)sight->time / (double)travel->time);
    const double least = before * fmax(LEAST_FALL, pow(DECAY, elapsed));
    const double most = before * (travel->is_first ? FIRST_RISE : MOST_RISE);
    return fmin(fmin(fmax(gap, least), most), MOST_NOISE * sight->query / (h * h));
}

/* The next step size, as encoded in `bits` control bits. */
static double step_of(const struct tally_calm_ground *ground, double gap, double query,
                      double reference, int bits)
{
    const double h = ground->curvature;
    const double step = tally_calm_coded(h * gap / (h * h * gap + query), reference, bits);
    return fmin(step, LONGEST / h);
}

static int64_t next_samples(const struct tally_calm_travel *travel,
                            const struct tally_calm_ground *ground, bool is_fresh, int64_t time)
{
    const double excess = fmax(1, (double)ground->dim / 30);
    const int64_t first = llrint(FIRST * pow(excess, 0.12));
    const int64_t share = (int64_t)(SHARE * (double)time);
    if (!travel->is_on) {
        return GROWTH * travel->samples;
    }
    const int64_t twice = 2 * travel->samples < first ? 2 * travel->samples : first;
    const int64_t least = is_fresh ? first : (twice > travel->samples ? twice : travel->samples);
    return share > least ? share : least;
}

/* Whether there is nothing to decide: all epochs after the first travel. */
static bool has_to_travel(const struct tally_calm_ground *ground)
{
    return ground->is_uneven && !ground->is_round;
}

/* Starts or stops travelling. Returns whether it starts now. */
static bool change_regime(struct tally_calm_travel *travel, const struct tally_calm_ground *ground,
                          const struct tally_calm_sight *sight, const struct view *view)
{
    const bool has_to = has_to_travel(ground);
    if (!travel->is_on) {
        travel->is_on = has_to || (travel->epochs > 0 && !ground->is_round &&
                                   shall_start(travel, ground, sight, view));
        return travel->is_on;
    }
    if (travel->is_first && !has_to && sight->cosine < STOP_COSINE) {
        travel->is_on = false;
    }
    return false;
}

int tally_calm_travel_advance(struct tally_calm_travel *travel,
                              const struct tally_calm_ground *ground,
                              const struct tally_calm_sight *sight)
{
    enum { SETTLED_BITS = TALLY_CALM_TRAVEL_BITS - 1 }; /* bounds the gap, and thus the step */
    static const double LEAST_TOLD = 1.0 / 200;
    const struct view view = view_of(travel, ground, sight);
    const bool was_on = travel->is_on, is_settled = was_on && !travel->is_first;
    const int step_bits = is_settled ? SETTLED_BITS : TALLY_CALM_TRAVEL_BITS;
    int bits = travel->epochs > 0 && !is_settled && !has_to_travel(ground); /* the next regime */
    travel->total_reach += view.reach;
    const bool is_fresh = change_regime(travel, ground, sight, &view);
    if (travel->is_on) {
        travel->gap = is_fresh ? gap_at_start(travel, ground, sight, &view)
                               : gap_on_the_way(travel, ground, sight, &view);
        travel->step = step_of(ground, travel->gap, sight->query,
                               was_on ? travel->step : 1 / ground->curvature, step_bits);
        travel->told = tally_calm_coded(fmax(view.motion, view.error * LEAST_TOLD), view.error,
                                        TALLY_CALM_TRAVEL_BITS);
        bits += step_bits + TALLY_CALM_TRAVEL_BITS;
    } else {
        travel->told = sight->gain;
    }
    travel->samples = next_samples(travel, ground, is_fresh, sight->time);
    travel->is_first = is_fresh;
    travel->reach = view.reach;
    travel->square = sight->square;
    travel->motion = view.motion;
    travel->noise = sight->noise;
    travel->time = sight->time;
    travel->epochs++;
    return bits;
}

struct tally_calm_passage tally_calm_travel_message(const struct tally_calm_travel *travel,
                                                    double query)
{
    static const double TINY = 1e-30;
    const double e = travel->step, n = (double)travel->samples, ratio = e * n / travel->reach;
    if (travel->is_first) {
        const double noise = fmax(e * e * n * query / 2, TINY);
        return (struct tally_calm_passage){noise, noise + travel->told * ratio * ratio};
    }
    const double f = fmax(0.25, fmin(4, ratio)), noise = travel->noise * f;
    return (struct tally_calm_passage){noise, noise + travel->told * f * f};
}

bool tally_calm_travel_is_last(const struct tally_calm_travel *travel, int64_t left)
{
    const int64_t n = travel->samples;
    return n > left || 4 * n >= 3 * left;
}

double tally_calm_travel_step(double step, double curvature, double seen, double query)
{
    const double more = seen > query ? seen / query : 1, eh = step * curvature;
    return eh / (eh + (1 - eh) * more) / curvature;
}

bool tally_calm_travel_is_valid(const struct tally_calm_travel *travel)
{
    const double positive[] = {travel->reach, travel->noise};
    const double others[] = {travel->square, travel->motion, travel->total_reach, travel->gap,
                             travel->told};
    bool is_valid = travel->samples >= 1 && travel->epochs >= 0 && travel->time >= 0;
    for (int i = 0; i < 5; i++) {
        is_valid = is_valid && others[i] >= 0 && isfinite(others[i]);
    }
    for (int i = 0; i < 2 && travel->epochs > 0; i++) {
        is_valid = is_valid && positive[i] > 0 && isfinite(positive[i]);
    }
    return is_valid && (!travel->is_on ||
                        (travel->epochs > 0 && travel->time >= 1 && travel->step > 0 &&
                         travel->told > 0 && isfinite(travel->step) && isfinite(travel->told)));
}

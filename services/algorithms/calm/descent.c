#include "services/algorithms/calm/descent.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX = TALLY_DESCENT_MAX_VARIABLES, MOST_HALVINGS = 30 };
/* The share of the predicted gain that a step must achieve. */
#define FAIR_SHARE 1e-4
/* The farthest that a variable, which is a logarithm, moves in one step. */
#define LONGEST_MOVE 1.0

struct search {
    const struct tally_descent *task;
    double *x;
    double value;
    double gradient[MAX];
    double inverse[MAX][MAX]; /* B */
    bool is_fresh;            /* B is the identity */
};

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void forget(struct search *search)
{
    memset(search->inverse, 0, sizeof search->inverse);
    for (int i = 0; i < search->task->n; i++) {
        search->inverse[i][i] = 1;
    }
    search->is_fresh = true;
}

/* -B g, limited to LONGEST_MOVE. */
static void direction_of(const struct search *search, double *ret_direction)
{
    const int n = search->task->n;
    double longest = 0;
    for (int i = 0; i < n; i++) {
        ret_direction[i] = -dot(search->inverse[i], search->gradient, n);
        longest = fmax(longest, fabs(ret_direction[i]));
    }
    for (int i = 0; i < n && longest > LONGEST_MOVE; i++) {
        ret_direction[i] *= LONGEST_MOVE / longest;
    }
}

/* Updates B after the step s = x' - x with the change y = g' - g:
 * B += (1 + y'By / s'y) ss' / s'y - (By s' + s y'B) / s'y. */
static void correct(struct search *search, const double *s, const double *y)
{
    const int n = search->task->n;
    const double sy = dot(s, y, n);
    if (sy <= 1e-12 * sqrt(dot(s, s, n) * dot(y, y, n))) {
        return;
    }
    for (int i = 0; i < n && search->is_fresh; i++) {
        search->inverse[i][i] = sy / dot(y, y, n);
    }
    search->is_fresh = false;
    double by[MAX];
    for (int i = 0; i < n; i++) {
        by[i] = dot(search->inverse[i], y, n);
    }
    const double factor = (1 + dot(y, by, n) / sy) / sy;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            search->inverse[i][j] += factor * s[i] * s[j] - (by[i] * s[j] + s[i] * by[j]) / sy;
        }
    }
}

/* Makes one step along `direction`; false if no step length gains anything. */
static bool advance(struct search *search, const double *direction)
{
    const int n = search->task->n;
    const double slope = dot(direction, search->gradient, n);
    double x[MAX], gradient[MAX], length = 1;
    for (int tries = 0; tries < MOST_HALVINGS && slope < 0; tries++, length /= 2) {
        for (int i = 0; i < n; i++) {
            x[i] = search->x[i] + length * direction[i];
        }
        const double value = search->task->value(search->task->context, x, NULL);
        if (value <= search->value + FAIR_SHARE * length * slope) {
            search->value = search->task->value(search->task->context, x, gradient);
            double s[MAX], y[MAX];
            for (int i = 0; i < n; i++) {
                s[i] = x[i] - search->x[i];
                y[i] = gradient[i] - search->gradient[i];
            }
            correct(search, s, y);
            memcpy(search->x, x, (size_t)n * sizeof *x);
            memcpy(search->gradient, gradient, (size_t)n * sizeof *gradient);
            return true;
        }
    }
    return false;
}

double tally_descent_run(const struct tally_descent *descent, double *x)
{
    assert(descent->n >= 1 && descent->n <= MAX);
    struct search search = {.task = descent, .x = x};
    search.value = descent->value(descent->context, x, search.gradient);
    forget(&search);
    int n_small = 0;
    for (int step = 0; step < descent->most_steps && n_small < 2; step++) {
        const double before = search.value;
        double direction[MAX];
        direction_of(&search, direction);
        if (advance(&search, direction)) {
            n_small = before - search.value < descent->least_gain ? n_small + 1 : 0;
        } else if (search.is_fresh) {
            break;
        } else {
            forget(&search);
        }
    }
    return search.value;
}

/* lines: a plug-in for Tally. Least squares on points that it makes itself: labels are the sum of
 * (j + 1) times feature j, and a little noise. */
#include <stdio.h>
#include <stdlib.h>
#include <tally/plugin.h>

enum { POINTS = 500 }; /* of each client */

struct lines {
    size_t dim;
    double *rows; /* [clients][POINTS][dim + 1]: features, then the label */
};

/* In [-1, 1), the same on every machine. */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / (double)(1ull << 52) - 1;
}

static int lines_open(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                      size_t capacity)
{
    const size_t dim = (size_t)problem->dim, points = (size_t)problem->clients * POINTS;
    uint64_t state = problem->seed;
    struct lines *lines = malloc(sizeof *lines);
    double *rows = malloc(points * (dim + 1) * sizeof *rows);
    if (lines == NULL || rows == NULL) {
        snprintf(ret_why, capacity, "no memory for %zu points", points);
        free(lines);
        free(rows);
        return 1;
    }
    for (size_t i = 0; i < points; i++) {
        double *row = rows + i * (dim + 1);
        row[dim] = 0.1 * draw(&state);
        for (size_t j = 0; j < dim; j++) {
            row[j] = draw(&state);
            row[dim] += (double)(j + 1) * row[j];
        }
    }
    *lines = (struct lines){.dim = dim, .rows = rows};
    *ret_state = lines;
    return 0;
}

static void lines_close(void *state)
{
    struct lines *lines = state;
    free(lines->rows);
    free(lines);
}

/* What the line through x is off by at point i of a client; *ret_row is the point. */
static double residual(const struct lines *lines, uint32_t client, uint32_t i, const double *x,
                       const double **ret_row)
{
    const double *row = lines->rows + ((size_t)client * POINTS + i) * (lines->dim + 1);
    double sum = -row[lines->dim];
    for (size_t j = 0; j < lines->dim; j++) {
        sum += row[j] * x[j];
    }
    *ret_row = row;
    return sum;
}

static int lines_gradient(void *state, const struct tally_plugin_query *query, const double *x,
                          double *ret_gradient, uint64_t *ret_dim, char *ret_why, size_t capacity)
{
    const struct lines *lines = state;
    (void)ret_why; /* it cannot fail */
    (void)capacity;
    for (size_t j = 0; j < lines->dim; j++) {
        ret_gradient[j] = 0;
    }
    for (uint64_t n = 0; n < query->samples; n++) {
        const double *row;
        const uint32_t i = query->below(query->stream, POINTS);
        const double r = residual(lines, query->client, i, x, &row);
        for (size_t j = 0; j < lines->dim; j++) {
            ret_gradient[j] += 2 * r * row[j] / (double)query->samples;
        }
    }
    *ret_dim = lines->dim;
    return 0;
}

static int lines_loss(void *state, uint32_t client, const double *x, double *ret_loss,
                      char *ret_why, size_t capacity)
{
    const double *row;
    double sum = 0;
    (void)ret_why;
    (void)capacity;
    for (uint32_t i = 0; i < POINTS; i++) {
        const double r = residual(state, client, i, x, &row);
        sum += r * r;
    }
    *ret_loss = sum / POINTS;
    return 0;
}

const struct tally_plugin *tally_plugin(void)
{
    static const struct tally_plugin plugin = {.abi = TALLY_PLUGIN_ABI,
                                               .size = sizeof plugin,
                                               .name = "lines",
                                               .open = lines_open,
                                               .close = lines_close,
                                               .gradient = lines_gradient,
                                               .loss = lines_loss};
    return &plugin;
}

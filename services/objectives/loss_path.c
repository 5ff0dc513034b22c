#include "services/objectives/loss_path.h"

#include <stdlib.h>
#include <string.h>

/* The number of points per batch: enough for a matrix product to pay, within this memory. */
enum { MAX_BATCH_VALUES = 1 << 22, MAX_BATCH = 512 };

void tally_loss_path_fini(struct tally_loss_path *path)
{
    free(path->points);
    free(path->losses);
    free(path->steps);
}

bool tally_loss_path_init(struct tally_loss_path *path, const struct tally_objective *objective,
                          int64_t samples, int64_t every)
{
    const size_t n_points = (size_t)(samples / every + 2);
    size_t capacity = MAX_BATCH_VALUES / objective->dim;
    capacity = capacity < MAX_BATCH ? capacity : MAX_BATCH;
    capacity = capacity < n_points ? capacity : n_points;
    capacity = capacity > 0 ? capacity : 1;
    *path = (struct tally_loss_path){
        .objective = objective,
        .samples = samples,
        .every = every,
        .dim = objective->dim,
        .capacity = capacity,
        .points = malloc(capacity * objective->dim * sizeof *path->points),
        .losses = malloc(capacity * sizeof *path->losses),
        .steps = malloc(capacity * sizeof *path->steps),
        .last_step = -1,
    };
    return path->points != NULL && path->losses != NULL && path->steps != NULL;
}

/* Adds `gap` steps to the sum; `last` is the loss of the step before, `loss` that of the last. */
static void add_steps(double *sum, double last, double loss, int64_t gap)
{
    for (int64_t i = 1; i < gap; i++) {
        const double share = (double)i / (double)gap;
        *sum += last + share * (loss - last);
    }
    *sum += loss;
}

/* Adds steps last_step + 1 .. step; `loss` is that of the last one. */
static void extend(struct tally_loss_path *path, int64_t step, double loss)
{
    const int64_t gap = step - path->last_step; /* 1 for step 0 */
    add_steps(&path->sum.plain, path->last_loss, loss, gap);
    add_steps(&path->sum.scaled, TALLY_WIDE_SUM_SCALE * path->last_loss,
              TALLY_WIDE_SUM_SCALE * loss, gap);
    path->last_step = step;
    path->last_loss = loss;
}

static enum tally_status flush(struct tally_loss_path *path, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (path->n > 0) {
        status = tally_objective_losses(path->objective, path->points, path->n, path->losses, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < path->n; i++) {
        extend(path, path->steps[i], path->losses[i]);
    }
    path->n = 0;
    return status;
}

enum tally_status tally_loss_path_visit(struct tally_loss_path *path, int64_t step, const double *x,
                                        struct tally_error *err)
{
    if (step % path->every != 0 && step != path->samples - 1) {
        return TALLY_OK;
    }
    memcpy(path->points + path->n * path->dim, x, path->dim * sizeof *x);
    path->steps[path->n++] = step;
    return path->n == path->capacity ? flush(path, err) : TALLY_OK;
}

enum tally_status tally_loss_path_mean(struct tally_loss_path *path, double *ret_loss,
                                       struct tally_error *err)
{
    enum tally_status status = flush(path, err);
    *ret_loss = tally_wide_sum_mean(&path->sum, (double)path->samples);
    return status;
}

#include "services/algorithms/client_shifts.h"

#include <string.h>

#include "services/algorithms/baseline.h"

size_t tally_client_shifts_bytes(const struct tally_setting *setting)
{
    return setting->clients * tally_shift_bytes(setting->dim);
}

struct tally_shift *tally_client_shifts_of(const struct tally_setting *setting, void *memory,
                                           uint32_t client)
{
    return (struct tally_shift *)((char *)memory + client * tally_shift_bytes(setting->dim));
}

static void begin(const struct tally_setting *setting, const double *x, void *memory)
{
    for (uint32_t m = 0; m < setting->clients; m++) {
        tally_shift_begin(tally_client_shifts_of(setting, memory, m), x, setting->dim);
    }
}

void tally_client_shifts_begin_zero(const struct tally_setting *setting, const double *x,
                                    int64_t opening_samples, const char *schedule, void *memory)
{
    (void)x;
    (void)opening_samples;
    (void)schedule;
    begin(setting, NULL, memory);
}

void tally_client_shifts_begin_point(const struct tally_setting *setting, const double *x,
                                     int64_t opening_samples, const char *schedule, void *memory)
{
    (void)opening_samples;
    (void)schedule;
    begin(setting, x, memory);
}

bool tally_client_shifts_are_valid(const struct tally_setting *setting, const void *memory)
{
    for (uint32_t m = 0; m < setting->clients; m++) {
        if (!tally_shift_is_valid(tally_client_shifts_of(setting, (void *)memory, m),
                                  setting->dim)) {
            return false;
        }
    }
    return true;
}

enum tally_shift_start tally_client_shifts_zero(const struct tally_setting *setting)
{
    (void)setting;
    return TALLY_SHIFT_ZERO;
}

enum tally_shift_start tally_client_shifts_point(const struct tally_setting *setting)
{
    (void)setting;
    return TALLY_SHIFT_POINT;
}

enum tally_status tally_client_shifts_difference(const struct tally_client_task *task,
                                                 struct tally_scratch *scratch,
                                                 struct tally_error *err)
{
    const size_t dim = task->setting->dim;
    const float *shift = tally_shift_in(task->shift, task->round, dim, NULL);
    const enum tally_status status = tally_client_gradient(task, scratch, err);
    for (size_t i = 0; status == TALLY_OK && i < dim; i++) {
        scratch->vector[i] = (float)(scratch->gradient[i] - (double)shift[i]);
    }
    return status;
}

enum tally_status tally_client_shifts_mean(const struct tally_server_task *task, bool with_messages,
                                           struct tally_scratch *scratch, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const size_t dim = setting->dim;
    if (tally_scratch_widen(scratch, dim, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    double *mean = scratch->wide.reals;
    memset(mean, 0, dim * sizeof *mean);
    for (uint32_t m = 0; m < setting->clients; m++) {
        const struct tally_shift *shift = tally_client_shifts_of(setting, task->memory, m);
        const float *c =
            with_messages ? tally_shift_now(shift) : tally_shift_in(shift, task->round, dim, NULL);
        for (size_t i = 0; i < dim; i++) {
            mean[i] += (double)c[i];
        }
    }
    for (size_t i = 0; i < dim; i++) {
        mean[i] /= setting->clients;
    }
    return TALLY_OK;
}

enum tally_status tally_client_shifts_descend(const struct tally_server_task *task,
                                              struct tally_scratch *scratch,
                                              struct tally_decision *decision,
                                              struct tally_error *err)
{
    const double step_size = task->setting->params->baseline.step_size;
    double square = 0;
    for (size_t i = 0; i < task->setting->dim; i++) {
        const double gradient = scratch->wide.reals[i];
        square += gradient * gradient;
        scratch->vector[i] = (float)(task->x[i] - step_size * gradient);
    }
    decision->control_bits = 1;
    return tally_baseline_conclude(task, square, scratch, decision, err);
}

#include "services/algorithms/calm/calm_shift.h"

#include <assert.h>
#include <string.h>

/* Both vectors together are a multiple of 8 bytes. */
static_assert(sizeof(float) == 4, "float32");

size_t tally_calm_shift_bytes(size_t dim)
{
    return sizeof(struct tally_calm_shift) + 2 * dim * sizeof(float);
}

static float *before(struct tally_calm_shift *shift, size_t dim)
{
    return shift->vectors + dim;
}

void tally_calm_shift_begin(struct tally_calm_shift *shift, const double *x, size_t dim)
{
    shift->round = shift->earlier = 0;
    for (size_t i = 0; i < dim; i++) {
        shift->vectors[i] = before(shift, dim)[i] = (float)x[i];
    }
}

const float *tally_calm_shift_in(const struct tally_calm_shift *shift, uint64_t round, size_t dim,
                                 uint64_t *ret_round)
{
    const bool has_message = shift->round == round;
    if (ret_round != NULL) {
        *ret_round = has_message ? shift->earlier : shift->round;
    }
    return shift->vectors + (has_message ? dim : 0);
}

void tally_calm_shift_add(struct tally_calm_shift *shift, uint64_t round, const int64_t *message,
                          double scale, size_t dim)
{
    if (shift->round != round) {
        memcpy(before(shift, dim), shift->vectors, dim * sizeof *shift->vectors);
        shift->earlier = shift->round;
        shift->round = round;
    }
    for (size_t i = 0; i < dim; i++) {
        shift->vectors[i] = (float)((double)before(shift, dim)[i] + scale * (double)message[i]);
    }
}

bool tally_calm_shift_return(struct tally_calm_shift *shift, uint64_t round, size_t dim)
{
    if (shift->round != round && shift->earlier == round) {
        memcpy(shift->vectors, before(shift, dim), dim * sizeof *shift->vectors);
        shift->round = round;
    }
    return shift->round == round;
}

void tally_calm_shift_load(struct tally_calm_shift *shift, uint64_t round, const void *vector,
                           size_t dim)
{
    shift->round = shift->earlier = round;
    memcpy(shift->vectors, vector, dim * sizeof *shift->vectors);
    memcpy(before(shift, dim), vector, dim * sizeof *shift->vectors);
}

#include "services/algorithms/shift.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The two vectors together take a multiple of 8 bytes. */
static_assert(sizeof(float) == 4, "float32");

size_t tally_shift_bytes(size_t dim)
{
    return sizeof(struct tally_shift) + 2 * dim * sizeof(float);
}

static float *before(struct tally_shift *shift, size_t dim)
{
    return shift->vectors + dim;
}

void tally_shift_begin(struct tally_shift *shift, const double *x, size_t dim)
{
    shift->round = shift->earlier = 0;
    for (size_t i = 0; i < dim; i++) {
        shift->vectors[i] = before(shift, dim)[i] = x != NULL ? (float)x[i] : 0;
    }
}

const float *tally_shift_in(const struct tally_shift *shift, uint64_t round, size_t dim,
                            uint64_t *ret_round)
{
    const bool has_message = shift->round == round;
    if (ret_round != NULL) {
        *ret_round = has_message ? shift->earlier : shift->round;
    }
    return shift->vectors + (has_message ? dim : 0);
}

const float *tally_shift_now(const struct tally_shift *shift)
{
    return shift->vectors;
}

/* Sets `before` to the state without the message of `round`. */
static void set_apart(struct tally_shift *shift, uint64_t round, size_t dim)
{
    if (shift->round != round) {
        memcpy(before(shift, dim), shift->vectors, dim * sizeof *shift->vectors);
        shift->earlier = shift->round;
        shift->round = round;
    }
}

void tally_shift_add(struct tally_shift *shift, uint64_t round, const float *message, double gain,
                     size_t dim)
{
    set_apart(shift, round, dim);
    for (size_t i = 0; i < dim; i++) {
        shift->vectors[i] = (float)((double)before(shift, dim)[i] + gain * (double)message[i]);
    }
}

void tally_shift_add_integers(struct tally_shift *shift, uint64_t round, const int64_t *message,
                              double gain, size_t dim)
{
    set_apart(shift, round, dim);
    for (size_t i = 0; i < dim; i++) {
        shift->vectors[i] = (float)((double)before(shift, dim)[i] + gain * (double)message[i]);
    }
}

bool tally_shift_return(struct tally_shift *shift, uint64_t round, size_t dim)
{
    if (shift->round != round && shift->earlier == round) {
        memcpy(shift->vectors, before(shift, dim), dim * sizeof *shift->vectors);
        shift->round = round;
    }
    return shift->round == round;
}

void tally_shift_load(struct tally_shift *shift, uint64_t round, const void *vector, size_t dim)
{
    shift->round = shift->earlier = round;
    memcpy(shift->vectors, vector, dim * sizeof *shift->vectors);
    memcpy(before(shift, dim), vector, dim * sizeof *shift->vectors);
}

bool tally_shift_is_valid(const struct tally_shift *shift, size_t dim)
{
    for (size_t i = 0; i < 2 * dim; i++) {
        if (!isfinite(shift->vectors[i])) {
            return false;
        }
    }
    return shift->earlier <= shift->round;
}

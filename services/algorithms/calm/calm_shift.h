/* calm_shift: the point that server and client both keep for one client, its shift.
 *
 * It saves bits where the data of the clients differ.
 *
 * Idea: the message of a client predicts the client's own optimum. Where clients differ, most of
 * the prediction is the same in every epoch, and would be sent again each time. So both sides keep
 * a point c, an estimate of that optimum, and the client sends only the difference between its
 * prediction and c (the shifts of DIANA, Mishchenko et al. 2019):
 *
 *     client   sends Q = Q(x + D/n - c)      both   c <- c + gain Q
 *     server   est = mean of c over all clients + mean of the Q that came
 *
 * The coordinator keeps c with the job's state, a worker in memory while it serves the client. A
 * message may arrive too late to count, or twice. Therefore a shift also keeps c as it was before
 * its last message, and the rounds of both. Adding a message a second time changes nothing.
 *
 *     | round, earlier | now: float[dim] | before: float[dim] |
 *       5      3         with the message  without it
 *                        of round 5
 *
 * Both sides compute c from the decoded integers with the same operations, so their copies are
 * equal bit for bit. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_CALM_SHIFT_H
#define TALLY_SERVICES_ALGORITHMS_CALM_CALM_SHIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tally_calm_shift {
    uint64_t round;   /* of the last message in it; 0 = none */
    uint64_t earlier; /* of the last message in `before` */
    float vectors[];  /* now, before */
};

/* Length of a shift, a multiple of 8. */
size_t tally_calm_shift_bytes(size_t dim);

/* No message yet: c is the initial point x, double[dim]. */
void tally_calm_shift_begin(struct tally_calm_shift *shift, const double *x, size_t dim);

/* c as client and server use it in `round` > 0, float[dim]: without the message of that round.
 * ret_round, if not NULL: the round of the last message in c; 0 = none. */
const float *tally_calm_shift_in(const struct tally_calm_shift *shift, uint64_t round, size_t dim,
                                 uint64_t *ret_round);

/* Adds scale * message, int64[dim], of `round`, once. */
void tally_calm_shift_add(struct tally_calm_shift *shift, uint64_t round, const int64_t *message,
                          double scale, size_t dim);

/* Goes back to the state after the message of `round`. False if the shift never had that state, or
 * no longer has it. */
bool tally_calm_shift_return(struct tally_calm_shift *shift, uint64_t round, size_t dim);

/* Sets c to `vector`, float[dim], which need not be aligned; `round` is that of the last message in
 * it. */
void tally_calm_shift_load(struct tally_calm_shift *shift, uint64_t round, const void *vector,
                           size_t dim);

#endif

/* calm_shift: what both sides remember of one client whose data differ from the others'.
 *
 * Idea: the message of a client predicts its own optimum. Where clients differ, most of that is the
 * same in every epoch, and it would be sent anew each time. So both sides keep a point c, their
 * present knowledge of that optimum, and the client sends only what c lacks (the shifts of DIANA,
 * Mishchenko et al. 2019):
 *
 *     client   sends Q = Q(x + D/n - c)      both   c <- c + gain Q
 *     server   est = mean of c over all clients + mean of the Q that came
 *
 * c is part of the coordinator's state, and of a worker's as long as it serves the client. A
 * message may come too late to count, or twice. So a shift keeps c as it was before its last
 * message, too, and the rounds of both. Adding a message a second time changes nothing.
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

/* c as client and server use it in `round` > 0, float[dim]: without that round's own message.
 * ret_round, if not NULL: of the last message in it; 0 = none. */
const float *tally_calm_shift_in(const struct tally_calm_shift *shift, uint64_t round, size_t dim,
                                 uint64_t *ret_round);

/* Adds scale * message, int64[dim], of `round`, once. */
void tally_calm_shift_add(struct tally_calm_shift *shift, uint64_t round, const int64_t *message,
                          double scale, size_t dim);

/* Forgets a message after that of `round`. False if the shift never had that state, or no longer
 * has it. */
bool tally_calm_shift_return(struct tally_calm_shift *shift, uint64_t round, size_t dim);

/* Takes c from elsewhere: float[dim] in `vector`, which need not be aligned. */
void tally_calm_shift_load(struct tally_calm_shift *shift, uint64_t round, const void *vector,
                           size_t dim);

#endif

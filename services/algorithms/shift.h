/* shift: a vector that server and client both keep for one client.
 *
 * Methods that build on what a client has sent before need a state per client that both sides know:
 * what its messages omit (`diana`, `ef21`, and `calm` with `shifts`) or their sum (`scaffold`).
 * That state is the shift c. It starts at 0 or at the initial point, and every decoded message Q of
 * the client changes it:
 *
 *     both     c <- c + gain Q
 *
 * The gain is in the round's plan.
 *
 * The coordinator keeps c with the state of the job, and a worker keeps it in memory while it
 * serves the client. A message may arrive too late to count, or twice. A shift therefore also keeps
 * the c that preceded its last message, and the round of each version. Adding a message again
 * changes nothing.
 *
 *     | round, earlier | now: float[dim] | before: float[dim] |
 *       5      3         with the message  without it
 *                        of round 5
 *
 * Both sides compute c from the decoded message with the same operations, so their copies are equal
 * bit for bit. A client may be reassigned, and both sides may crash. A worker that lacks the
 * coordinator's state therefore receives it with its task. */
#ifndef TALLY_SERVICES_ALGORITHMS_SHIFT_H
#define TALLY_SERVICES_ALGORITHMS_SHIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tally_shift {
    uint64_t round;   /* of the last message in `now`; 0 = none */
    uint64_t earlier; /* of the last message in `before` */
    float vectors[];  /* now, before */
};

/* Where the shifts of a job begin, if it keeps shifts. */
enum tally_shift_start { TALLY_SHIFT_NONE, TALLY_SHIFT_ZERO, TALLY_SHIFT_POINT };

/* Length of a shift, a multiple of 8. */
size_t tally_shift_bytes(size_t dim);

/* No message yet: c is the initial point x, double[dim], or 0 if x is NULL. */
void tally_shift_begin(struct tally_shift *shift, const double *x, size_t dim);

/* c as client and server use it in `round` > 0, float[dim]: without the message of that round.
 * ret_round, if not NULL: the round of the last message in c; 0 = none. */
const float *tally_shift_in(const struct tally_shift *shift, uint64_t round, size_t dim,
                            uint64_t *ret_round);

/* c with all messages so far, float[dim]. */
const float *tally_shift_now(const struct tally_shift *shift);

/* Adds gain * message, float[dim], of `round`, once. */
void tally_shift_add(struct tally_shift *shift, uint64_t round, const float *message, double gain,
                     size_t dim);
/* The same for a message of integers, int64[dim]. */
void tally_shift_add_integers(struct tally_shift *shift, uint64_t round, const int64_t *message,
                              double gain, size_t dim);

/* Returns to the state after the message of `round`. False if the shift never had that state, or no
 * longer has it. */
bool tally_shift_return(struct tally_shift *shift, uint64_t round, size_t dim);

/* Sets c to `vector`, float[dim], which need not be aligned. `round` is the round of the last
 * message in `vector`. */
void tally_shift_load(struct tally_shift *shift, uint64_t round, const void *vector, size_t dim);

/* Whether stored bytes can be a shift: its values are finite and its rounds are in order. */
bool tally_shift_is_valid(const struct tally_shift *shift, size_t dim);

#endif

/* wheel: what is due when, for a hundred thousand sessions, without a walk over them in every tick.
 *
 * A timing wheel (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987) of one level:
 * a slot is a tick long, and what is due later than the wheel reaches stands in its last slot and
 * is set again from there. A node may be due later than it was set for, never earlier: whoever
 * takes it looks, and sets it again. */
#ifndef TALLY_SERVICES_COORDINATOR_WHEEL_H
#define TALLY_SERVICES_COORDINATOR_WHEEL_H

#include <stdint.h>

enum {
    WHEEL_SLOTS = 512, /* a minute, nearly: longer than any poll waits; a power of two */
    WHEEL_SLOT_MS = 100
};

struct wheel_node {
    struct wheel_node *next, **link; /* link NULL = it is in no wheel */
};

/* Zeroed, it is empty. */
struct wheel {
    struct wheel_node *slots[WHEEL_SLOTS];
    int64_t turned_to; /* number of the slot that was taken last */
};

/* Sets a node, or sets it anew. due_ms: monotonic; it may be over. */
void wheel_set(struct wheel *wheel, struct wheel_node *node, int64_t due_ms);
/* A node that is in no wheel is passed over. */
void wheel_remove(struct wheel_node *node);
/* Takes out all nodes that are due at now_ms, and some that will be soon, linked by `next`. */
struct wheel_node *wheel_take(struct wheel *wheel, int64_t now_ms);

#endif

/* session_wheel: timers of a hundred thousand sessions, without a walk over all sessions in every
 * tick.
 *
 * A timing wheel (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987) of one level.
 * A slot is one tick long. A node that is due beyond the wheel's reach goes into the last slot. The
 * due time of a node may move later without a call, so the caller of wheel_take() must check each
 * node and set it again if it is not due yet. If the due time moves earlier, wheel_set() must be
 * called. */
#ifndef TALLY_SERVICES_COORDINATOR_SESSION_WHEEL_H
#define TALLY_SERVICES_COORDINATOR_SESSION_WHEEL_H

#include <stdint.h>

enum {
    WHEEL_SLOTS = 512, /* 51 s, longer than any poll waits; a power of two */
    WHEEL_SLOT_MS = 100
};

struct wheel_node {
    struct wheel_node *next, **link; /* link is NULL if the node is in no wheel */
};

/* Zeroed, it is empty. */
struct wheel {
    struct wheel_node *slots[WHEEL_SLOTS];
    int64_t turned_to; /* number of the last slot taken */
};

/* Sets or moves a node. due_ms: monotonic; may be in the past. */
void wheel_set(struct wheel *wheel, struct wheel_node *node, int64_t due_ms);
/* Does nothing if the node is in no wheel. */
void wheel_remove(struct wheel_node *node);
/* Removes and returns all nodes that are due at now_ms, and some that are not, linked by `next`. */
struct wheel_node *wheel_take(struct wheel *wheel, int64_t now_ms);

#endif

/* session_order: a set of nodes in the order of their numbers, inside the objects that it orders.
 *
 * A treap (Seidel and Aragon, "Randomized search trees", 1996): a search tree by number and a heap
 * by priority. Every operation takes O(log n) steps in expectation if the priorities are random and
 * callers cannot choose nodes by them. Nothing is allocated, so nothing can fail. */
#ifndef TALLY_SERVICES_COORDINATOR_SESSION_ORDER_H
#define TALLY_SERVICES_COORDINATOR_SESSION_ORDER_H

#include <stdint.h>

struct ordered_node {
    struct ordered_node *below, *above; /* subtrees of lower and higher numbers */
    uint64_t number;                    /* different from all others in the set */
    uint64_t priority;                  /* random; a parent's is at least its children's */
};

/* `*root` is NULL for an empty set. Precondition: the node is in no set. */
void ordered_insert(struct ordered_node **root, struct ordered_node *node);
/* Precondition: the node is in this set. */
void ordered_remove(struct ordered_node **root, const struct ordered_node *node);
/* The node with the highest number below `number`; NULL = none. */
struct ordered_node *ordered_before(struct ordered_node *root, uint64_t number);

#endif

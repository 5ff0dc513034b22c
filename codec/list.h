/* list: an intrusive list. The members carry the links, so joining or leaving a list allocates
 * nothing, cannot fail and takes constant time. For lists whose members leave from the middle; a
 * list that only grows, and is freed as a whole, needs no more than a `next` in its members.
 *
 *     struct tally_list in the owner, struct tally_list_node in each member:
 *
 *         list.head <-> a.node <-> b.node <-> c.node <-> list.head
 *
 *     struct job { struct tally_list_node node; ... };
 *     struct tally_list jobs;
 *     tally_list_init(&jobs);
 *     tally_list_append(&jobs, &job->node);
 *     TALLY_LIST_EACH (node, &jobs) {
 *         struct job *job = TALLY_LIST_MEMBER(struct job, node, node);
 *     }
 *     tally_list_remove(&job->node);
 *
 * The list owns nothing. A node is in at most one list; a member in several lists has a node for
 * each. A zeroed node is in no list. A list must not be copied or moved once it has been
 * initialised: its members point to it. */
#ifndef TALLY_CODEC_LIST_H
#define TALLY_CODEC_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct tally_list_node {
    struct tally_list_node *previous, *next; /* NULL: in no list */
};

struct tally_list {
    struct tally_list_node head; /* the first node follows it, the last one precedes it */
};

static inline void tally_list_init(struct tally_list *list)
{
    list->head.previous = list->head.next = &list->head;
}

static inline bool tally_list_is_empty(const struct tally_list *list)
{
    return list->head.next == &list->head;
}

static inline bool tally_list_has(const struct tally_list_node *node)
{
    return node->next != NULL;
}

/* Puts a node, which is in no list, after `place`, which is the head or a member. */
static inline void tally_list_insert(struct tally_list_node *place, struct tally_list_node *node)
{
    node->previous = place;
    node->next = place->next;
    place->next->previous = node;
    place->next = node;
}

static inline void tally_list_append(struct tally_list *list, struct tally_list_node *node)
{
    tally_list_insert(list->head.previous, node);
}

static inline void tally_list_prepend(struct tally_list *list, struct tally_list_node *node)
{
    tally_list_insert(&list->head, node);
}

/* Takes a node out of its list; nothing happens if it is in none. */
static inline void tally_list_remove(struct tally_list_node *node)
{
    if (node->next != NULL) {
        node->previous->next = node->next;
        node->next->previous = node->previous;
        node->previous = node->next = NULL;
    }
}

/* The member that contains a node. */
#define TALLY_LIST_MEMBER(type, member, pointer)                                                   \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* The first member, or NULL. */
#define TALLY_LIST_FIRST(type, member, list)                                                       \
    (tally_list_is_empty(list) ? NULL : TALLY_LIST_MEMBER(type, member, (list)->head.next))

/* A loop over the nodes, in order. Its body may remove the current node, and free its member, but
 * no other node; `break` and `continue` work as in any loop. */
#define TALLY_LIST_EACH(node, list)                                                                \
    for (struct tally_list_node *node = (list)->head.next, *node##_next = node->next;              \
         node != &(list)->head; node = node##_next, node##_next = node->next)

#endif

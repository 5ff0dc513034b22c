#include "services/coordinator/session_order.h"

#include <stddef.h>

/* Splits a tree into the nodes below and above `number`. Precondition: no node has that number. */
static void split(struct ordered_node *root, uint64_t number, struct ordered_node **ret_below,
                  struct ordered_node **ret_above)
{
    while (root != NULL) {
        if (root->number < number) {
            *ret_below = root;
            ret_below = &root->above;
            root = root->above;
        } else {
            *ret_above = root;
            ret_above = &root->below;
            root = root->below;
        }
    }
    *ret_below = *ret_above = NULL;
}

/* Joins two trees; every number in `below` is lower than every number in `above`. */
static void merge(struct ordered_node *below, struct ordered_node *above,
                  struct ordered_node **ret_root)
{
    while (below != NULL && above != NULL) {
        if (below->priority >= above->priority) {
            *ret_root = below;
            ret_root = &below->above;
            below = below->above;
        } else {
            *ret_root = above;
            ret_root = &above->below;
            above = above->below;
        }
    }
    *ret_root = below != NULL ? below : above;
}

static struct ordered_node **child_towards(struct ordered_node *node, uint64_t number)
{
    return number < node->number ? &node->below : &node->above;
}

void ordered_insert(struct ordered_node **root, struct ordered_node *node)
{
    while (*root != NULL && (*root)->priority >= node->priority) {
        root = child_towards(*root, node->number);
    }
    split(*root, node->number, &node->below, &node->above);
    *root = node;
}

void ordered_remove(struct ordered_node **root, const struct ordered_node *node)
{
    while (*root != node) {
        root = child_towards(*root, node->number);
    }
    merge(node->below, node->above, root);
}

struct ordered_node *ordered_before(struct ordered_node *root, uint64_t number)
{
    struct ordered_node *best = NULL;
    while (root != NULL) {
        if (root->number < number) {
            best = root;
            root = root->above;
        } else {
            root = root->below;
        }
    }
    return best;
}

#include "services/coordinator/session_wheel.h"

#include <stddef.h>

void wheel_remove(struct wheel_node *node)
{
    if (node->link == NULL) {
        return;
    }
    *node->link = node->next;
    if (node->next != NULL) {
        node->next->link = node->link;
    }
    node->link = NULL;
}

void wheel_set(struct wheel *wheel, struct wheel_node *node, int64_t due_ms)
{
    const int64_t last = wheel->turned_to + WHEEL_SLOTS - 1;
    int64_t slot = due_ms / WHEEL_SLOT_MS;
    slot = slot < wheel->turned_to ? wheel->turned_to : slot;
    slot = slot > last ? last : slot;
    wheel_remove(node);
    struct wheel_node **first = &wheel->slots[slot % WHEEL_SLOTS];
    node->next = *first;
    node->link = first;
    if (*first != NULL) {
        (*first)->link = &node->next;
    }
    *first = node;
}

struct wheel_node *wheel_take(struct wheel *wheel, int64_t now_ms)
{
    const int64_t to = now_ms / WHEEL_SLOT_MS;
    struct wheel_node *taken = NULL;
    int64_t slot = wheel->turned_to;
    slot = slot < to - WHEEL_SLOTS + 1 ? to - WHEEL_SLOTS + 1 : slot; /* one turn is enough */
    for (; slot <= to; slot++) {
        struct wheel_node **first = &wheel->slots[slot % WHEEL_SLOTS];
        while (*first != NULL) {
            struct wheel_node *node = *first;
            wheel_remove(node);
            node->next = taken;
            taken = node;
        }
    }
    wheel->turned_to = to > wheel->turned_to ? to : wheel->turned_to;
    return taken;
}

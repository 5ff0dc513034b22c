#include "services/coordinator/session_wheel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "services/coordinator/session.h"
#include "tests/harness.h"

enum { N_NODES = 50, N_STEPS = 20000, MAX_WAIT_MS = 120000, TIMEOUT_MS = 15000 };

struct timed {
    struct wheel_node node; /* must be the first member */
    int64_t due_ms;
    bool is_set;
};

static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*random >> 33) % n;
}

/* Whether the nodes taken at now_ms include all that are due. Nodes not yet due are set again. */
static bool takes_all_due(struct wheel *wheel, struct timed *timed, int64_t now_ms)
{
    struct wheel_node *node = wheel_take(wheel, now_ms);
    while (node != NULL) {
        struct timed *one = (struct timed *)node;
        struct wheel_node *next = node->next;
        CU_ASSERT_TRUE(one->is_set);
        one->is_set = one->due_ms > now_ms;
        if (one->is_set) {
            wheel_set(wheel, node, one->due_ms);
        }
        node = next;
    }
    for (int i = 0; i < N_NODES; i++) {
        if (timed[i].is_set && timed[i].due_ms <= now_ms) {
            return false;
        }
    }
    return true;
}

/* Time advances by ticks of any length. Nodes are set, reset and removed, including beyond the
 * wheel's range and in the past. */
static void test_coordinator_wheel__nothing_is_late(void)
{
    struct wheel wheel = {0};
    struct timed timed[N_NODES] = {{.is_set = false}};
    uint64_t random = 1;
    int64_t now_ms = 1000000007;
    for (int i = 0; i < N_STEPS; i++) {
        struct timed *one = &timed[draw(&random, N_NODES)];
        const uint32_t kind = draw(&random, 8);
        if (kind == 0) {
            wheel_remove(&one->node);
            one->is_set = false;
        } else if (kind < 5) {
            one->due_ms = now_ms - 200 + draw(&random, kind == 1 ? MAX_WAIT_MS : 2000);
            one->is_set = true;
            wheel_set(&wheel, &one->node, one->due_ms);
        } else {
            now_ms += draw(&random, kind == 5 ? MAX_WAIT_MS : 300);
            CU_ASSERT_FATAL(takes_all_due(&wheel, timed, now_ms));
        }
    }
}

static struct session *join(struct session_table *table, const char *name, int64_t now_ms)
{
    const struct token_identity nobody = {{0}};
    struct tally_join_request request = {.slots = 1};
    struct tally_error err = TALLY_ERROR_INIT;
    struct session *session = NULL;
    request.name[0] = name[0];
    TALLY_ASSERT_STATUS(session_new(table,
                                    &(struct session_request){
                                        .join = &request, .identity = &nobody, .token_name = ""},
                                    &session, &err),
                        TALLY_OK, &err);
    session->last_contact_ms = now_ms;
    session_set_timer(table, session, TIMEOUT_MS);
    return session;
}

static void expect_due(struct session_table *table, int64_t now_ms, const char *names)
{
    struct session *session = session_take_due(table, now_ms, TIMEOUT_MS);
    while (session != NULL && *names != '\0') {
        struct session *next = session_of_timer(session->timer.next);
        CU_ASSERT_EQUAL(session->name[0], *names++);
        session_set_timer(table, session, TIMEOUT_MS);
        session = next;
    }
    CU_ASSERT_PTR_NULL(session);
    CU_ASSERT_EQUAL(*names, '\0');
}

/* A worker that sent something after its timer was set is not silent. A silent one stays due until
 * it is handled. The newest come first, as in the list of all sessions. */
static void test_coordinator_wheel__the_silent_are_due_newest_first(void)
{
    enum { NOW_MS = 500000 };
    struct session_table table = {0};
    const char *const names[] = {"a", "b", "c", "d", "e"};
    struct session *sessions[5];
    for (int i = 0; i < 5; i++) {
        sessions[i] = join(&table, names[i], NOW_MS);
    }
    expect_due(&table, NOW_MS + TIMEOUT_MS, "");
    sessions[1]->last_contact_ms = NOW_MS + 1000;
    expect_due(&table, NOW_MS + TIMEOUT_MS + 1, "edca");
    expect_due(&table, NOW_MS + TIMEOUT_MS + 101, "edca");
    session_free(&table, sessions[3]);
    expect_due(&table, NOW_MS + TIMEOUT_MS + 1000, "eca");
    expect_due(&table, NOW_MS + TIMEOUT_MS + 1001, "ecba");
    session_table_fini(&table);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_wheel__nothing_is_late),
    TALLY_TEST(test_coordinator_wheel__the_silent_are_due_newest_first),
};
TALLY_SUITE(coordinator_wheel, TESTS);

#include "services/coordinator/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { N_JOBS = 6, N_TOKENS = 3, CLIENTS = 12, N_NAMES = 40, N_STEPS = 6000, MAX_SLOTS_HERE = 5 };

/* Sessions and jobs without a coordinator or an engine. */
struct scene {
    struct session_table table;
    struct hosted_job *jobs[N_JOBS];
    struct token_identity tokens[N_TOKENS];
    uint64_t random;
    int n_jobs_made;
};

static uint32_t draw(struct scene *scene, uint32_t n)
{
    scene->random = scene->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(scene->random >> 33) % n;
}

static void make_job(struct scene *scene, int i)
{
    struct hosted_job *job = calloc(1, sizeof *job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    snprintf(job->row.id, sizeof job->row.id, "job-%d", scene->n_jobs_made++);
    job->row.clients = CLIENTS;
    job->row.horizon = scene->n_jobs_made;
    job->n_vacant = CLIENTS;
    tally_list_init(&job->assigned);
    job->slots = calloc(CLIENTS, sizeof *job->slots);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job->slots);
    scene->jobs[i] = job;
}

static void drop(struct scene *scene, int i)
{
    session_release_job(&scene->table, scene->jobs[i]);
    free(scene->jobs[i]->slots);
    free(scene->jobs[i]);
}

static void scene_init(struct scene *scene, uint64_t seed)
{
    *scene = (struct scene){.random = seed, .tokens = {{{1}}, {{2}}, {{3}}}};
    for (int i = 0; i < N_JOBS; i++) {
        make_job(scene, i);
    }
}

static void scene_fini(struct scene *scene)
{
    session_table_fini(&scene->table);
    for (int i = 0; i < N_JOBS; i++) {
        free(scene->jobs[i]->slots);
        free(scene->jobs[i]);
    }
}

static struct session *join(struct scene *scene, const char *name, struct hosted_job *bound_to,
                            uint32_t slots)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_join_request request = {.slots = slots};
    struct session *session = NULL;
    snprintf(request.name, sizeof request.name, "%s", name);
    snprintf(request.job_id, sizeof request.job_id, "%s", bound_to != NULL ? bound_to->row.id : "");
    const struct session_request who = {.join = &request,
                                        .bound_to = bound_to,
                                        .identity = &scene->tokens[draw(scene, N_TOKENS)],
                                        .token_name = ""};
    TALLY_ASSERT_STATUS(session_new(&scene->table, &who, &session, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(session);
    return session;
}

/* ---- Counts, compared with those of plain loops over all sessions ---- */

static bool is_counted(const struct hosted_job *job)
{
    return job->row.horizon % 2 == 0;
}

/* Whether the session may serve the job, compared by the job's id as the request named it. */
static bool serves(const struct session *session, const struct hosted_job *job)
{
    const bool may =
        session->pinned_job[0] == '\0' || strcmp(session->pinned_job, job->row.id) == 0;
    return may && session_refusal(session, job) == NULL;
}

struct plain {
    int64_t n_free, n_serving, n_assigned, n_coming;
};

static struct plain count_plainly(const struct scene *scene, const struct hosted_job *job)
{
    struct plain plain = {0};
    for (const struct session *s = scene->table.first; s != NULL; s = s->next) {
        for (uint32_t i = 0; i < s->n_assignments && s->pinned_job[0] == '\0'; i++) {
            plain.n_assigned += s->assignments[i].job == job;
            plain.n_coming += serves(s, job) && is_counted(s->assignments[i].job);
        }
        if (serves(s, job)) {
            plain.n_serving++;
            plain.n_free += session_n_free(s);
        }
    }
    return plain;
}

static int64_t count_coming(const struct scene *scene, const struct hosted_job *job)
{
    int64_t n = 0;
    for (int i = 0; i < N_JOBS; i++) {
        n += is_counted(scene->jobs[i]) ? scene->jobs[i]->supply.n_assigned : 0;
    }
    return n - session_n_refused_assigned(job, is_counted);
}

/* Whether the sessions with free slots are in the same order as in the list of all sessions. */
static bool same_order(const struct scene *scene, const struct hosted_job *job)
{
    const struct session *last = NULL;
    for (const struct session *s = scene->table.first; s != NULL; s = s->next) {
        if (!serves(s, job) || session_n_free(s) == 0) {
            continue;
        }
        if (session_next_free(&scene->table, job, last) != s) {
            return false;
        }
        last = s;
    }
    return session_next_free(&scene->table, job, last) == NULL;
}

static int64_t count_all_free(const struct scene *scene)
{
    int64_t n = 0;
    for (const struct session *s = scene->table.first; s != NULL; s = s->next) {
        n += session_n_free(s);
    }
    return n;
}

static int64_t count_of_token(const struct scene *scene, const struct token_identity *identity)
{
    int64_t n = 0;
    for (const struct session *s = scene->table.first; s != NULL; s = s->next) {
        n += access_same_identity(&s->token->identity, identity);
    }
    return n;
}

/* Checks that a search by number finds the whole list in order. */
static void expect_all_in_order(const struct scene *scene)
{
    uint64_t before = UINT64_MAX;
    for (const struct session *s = scene->table.first; s != NULL; s = s->next) {
        CU_ASSERT_PTR_EQUAL_FATAL(session_before(&scene->table, before), s);
        before = s->number;
    }
    CU_ASSERT_PTR_NULL(session_before(&scene->table, before));
}

/* Checks that the job's list contains the slots that are not vacant, each with its correct
 * place. */
static void expect_assigned(const struct hosted_job *job)
{
    int64_t n_listed = 0, n_vacant = 0;
    TALLY_LIST_EACH(node, &job->assigned)
    {
        const struct client_slot *slot =
            TALLY_LIST_MEMBER(const struct client_slot, in_assigned, node);
        const struct assignment *assigned = &slot->session->assignments[slot->place];
        CU_ASSERT_PTR_EQUAL_FATAL(assigned->job, job);
        CU_ASSERT_EQUAL_FATAL(assigned->client, slot - job->slots);
        n_listed++;
    }
    for (int m = 0; m < CLIENTS; m++) {
        n_vacant += job->slots[m].session == NULL;
    }
    CU_ASSERT_EQUAL_FATAL(job->n_vacant, n_vacant);
    CU_ASSERT_EQUAL_FATAL(n_listed, CLIENTS - n_vacant);
}

static void expect_equal_counts(const struct scene *scene)
{
    expect_all_in_order(scene);
    for (int i = 0; i < N_TOKENS; i++) {
        CU_ASSERT_EQUAL_FATAL(session_count_of(&scene->table, &scene->tokens[i]),
                              count_of_token(scene, &scene->tokens[i]));
    }
    CU_ASSERT_EQUAL_FATAL(scene->table.n_free, count_all_free(scene));
    for (int i = 0; i < N_JOBS; i++) {
        const struct hosted_job *job = scene->jobs[i];
        const struct plain plain = count_plainly(scene, job);
        CU_ASSERT_EQUAL_FATAL(session_n_free_for(&scene->table, job), plain.n_free);
        CU_ASSERT_EQUAL_FATAL(session_n_serving(&scene->table, job), plain.n_serving);
        CU_ASSERT_EQUAL_FATAL(job->supply.n_assigned, plain.n_assigned);
        CU_ASSERT_EQUAL_FATAL(count_coming(scene, job), plain.n_coming);
        CU_ASSERT_FATAL(same_order(scene, job));
        expect_assigned(job);
    }
}

/* ---- Random events ---- */

static void come_or_go(struct scene *scene)
{
    char name[16];
    snprintf(name, sizeof name, "worker-%u", draw(scene, N_NAMES));
    struct session *session = session_by_name(&scene->table, name);
    if (session != NULL) {
        CU_ASSERT_STRING_EQUAL(session->name, name);
        session_free(&scene->table, session);
        CU_ASSERT_PTR_NULL(session_by_name(&scene->table, name));
        return;
    }
    struct hosted_job *bound_to = draw(scene, 3) == 0 ? scene->jobs[draw(scene, N_JOBS)] : NULL;
    join(scene, name, bound_to, 1 + draw(scene, MAX_SLOTS_HERE));
    CU_ASSERT_PTR_NOT_NULL(session_by_name(&scene->table, name));
}

static void assign(struct scene *scene, struct hosted_job *job)
{
    struct session *session = session_next_free(&scene->table, job, NULL);
    const uint32_t client = draw(scene, CLIENTS);
    if (job->slots[client].session != NULL) {
        session_unassign(&scene->table, job, client);
    } else if (session != NULL) {
        session_assign(&scene->table, session, job, client);
    }
}

/* Gives the slot of one client to a vacant client. */
static void replace(struct scene *scene, struct hosted_job *job)
{
    const uint32_t from = draw(scene, CLIENTS), to = draw(scene, CLIENTS);
    const struct session *session = job->slots[from].session;
    if (session != NULL && job->slots[to].session == NULL) {
        session_replace_client(job, from, to);
        CU_ASSERT_PTR_EQUAL(job->slots[to].session, session);
        CU_ASSERT_PTR_NULL(job->slots[from].session);
        CU_ASSERT_FALSE(job->slots[to].absent);
    }
}

/* A random session refuses the job. The session may be pinned to another job, as that of a
 * returning worker may be. */
static void refuse(struct scene *scene, struct hosted_job *job)
{
    const struct tally_update update = {.refusal = "no"};
    uint32_t n = draw(scene, N_NAMES);
    struct session *session = scene->table.first;
    while (session != NULL && n-- > 0) {
        session = session->next;
    }
    if (session != NULL) {
        session_refuse(&scene->table, session, job, &update);
    }
}

static void step(struct scene *scene)
{
    const int i = (int)draw(scene, N_JOBS);
    switch (draw(scene, 16)) {
    case 0:
        drop(scene, i);
        make_job(scene, i);
        break;
    case 1:
    case 2:
        refuse(scene, scene->jobs[i]);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        come_or_go(scene);
        break;
    case 7:
    case 8:
        replace(scene, scene->jobs[i]);
        break;
    default:
        assign(scene, scene->jobs[i]);
    }
}

static void test_coordinator_session__counts_equal_plain_loops(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct scene scene;
        scene_init(&scene, seed);
        for (int i = 0; i < N_STEPS; i++) {
            step(&scene);
            expect_equal_counts(&scene);
        }
        scene_fini(&scene);
    }
}

/* ---- Names ---- */

/* With very similar names. */
static void test_coordinator_session__names_share_few_buckets(void)
{
    enum { N = 20000 };
    struct scene scene;
    char name[16];
    scene_init(&scene, 1);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "w%d", i);
        join(&scene, name, NULL, 1);
    }
    int longest = 0;
    for (size_t b = 0; b < scene.table.n_buckets; b++) {
        int n = 0;
        for (const struct session *s = scene.table.by_name[b]; s != NULL; s = s->next_of_name) {
            n++;
        }
        longest = n > longest ? n : longest;
    }
    CU_ASSERT(longest <= 20);
    scene_fini(&scene);
}

/* Each table hashes names with its own key, so a collision in one table tells nothing about
 * another. */
static void test_coordinator_session__the_hash_of_a_name_has_a_secret_key(void)
{
    struct scene a, b;
    scene_init(&a, 1);
    scene_init(&b, 1);
    join(&a, "w", NULL, 1);
    join(&b, "w", NULL, 1);
    CU_ASSERT_NOT_EQUAL(a.table.first->name_hash, b.table.first->name_hash);
    scene_fini(&a);
    scene_fini(&b);
}

/* ---- Silence ---- */

enum { TIMEOUT_MS = 15000, N_TICKS = 20000 };

/* Fails unless the table finds exactly those that are due by a plain loop, in the same order. */
static void expect_due(struct scene *scene, int64_t now_ms)
{
    const struct session *due = session_find_due(&scene->table, now_ms, TIMEOUT_MS);
    for (const struct session *s = scene->table.first; s != NULL; s = s->next) {
        if (session_due_ms(s, TIMEOUT_MS) <= now_ms) {
            CU_ASSERT_PTR_EQUAL_FATAL(due, s);
            due = due->next_due;
        }
    }
    CU_ASSERT_PTR_NULL_FATAL(due);
}

/* The worker joins, leaves, calls, begins a long poll or is answered. */
static void call_or_leave(struct scene *scene, int64_t now_ms)
{
    char name[16];
    snprintf(name, sizeof name, "worker-%u", draw(scene, N_NAMES));
    struct session *session = session_by_name(&scene->table, name);
    const uint32_t kind = draw(scene, 8);
    if (session == NULL) {
        session = join(scene, name, NULL, 1);
        session->last_contact_ms = now_ms;
    } else if (kind == 0) {
        session_free(&scene->table, session);
        return;
    } else if (kind < 4) {
        session->last_contact_ms = now_ms; /* later, which needs no other call */
        return;
    } else {
        const bool waits = session->poll.request != NULL;
        session->poll.request = waits ? NULL : (void *)scene; /* not used */
        session->poll.until_ms = now_ms + draw(scene, 30000);
        session->last_contact_ms = now_ms;
    }
    session_set_timer(&scene->table, session, TIMEOUT_MS);
}

static void test_coordinator_session__who_is_due_is_found_newest_first(void)
{
    struct scene scene;
    scene_init(&scene, 1);
    int64_t now_ms = 1000000007;
    for (int i = 0; i < N_TICKS; i++) {
        call_or_leave(&scene, now_ms);
        now_ms += draw(&scene, i % 100 == 0 ? 2 * TIMEOUT_MS : 500);
        expect_due(&scene, now_ms);
    }
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_session__counts_equal_plain_loops),
    TALLY_TEST(test_coordinator_session__names_share_few_buckets),
    TALLY_TEST(test_coordinator_session__the_hash_of_a_name_has_a_secret_key),
    TALLY_TEST(test_coordinator_session__who_is_due_is_found_newest_first),
};
TALLY_SUITE(coordinator_session, TESTS);

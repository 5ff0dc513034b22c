#include "services/coordinator/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { FIRST_BUCKETS = 64 };

static struct session **bucket_of(const struct session_table *table, uint64_t id)
{
    return &table->by_id[id & (table->n_buckets - 1)];
}

struct session *session_by_id(const struct session_table *table, uint64_t id)
{
    struct session *session = table->n_buckets > 0 ? *bucket_of(table, id) : NULL;
    while (session != NULL && session->id != id) {
        session = session->next_of_id;
    }
    return session;
}

static void enter_bucket(struct session_table *table, struct session *session)
{
    struct session **bucket = bucket_of(table, session->id);
    session->next_of_id = *bucket;
    *bucket = session;
}

static void leave_bucket(struct session_table *table, const struct session *session)
{
    struct session **at = bucket_of(table, session->id);
    while (*at != session) {
        at = &(*at)->next_of_id;
    }
    *at = session->next_of_id;
}

/* As many buckets as there will be sessions, at least. */
static bool reserve_bucket(struct session_table *table)
{
    if ((size_t)table->n_sessions < table->n_buckets) {
        return true;
    }
    const size_t n_buckets = table->n_buckets == 0 ? FIRST_BUCKETS : 2 * table->n_buckets;
    struct session **buckets = calloc(n_buckets, sizeof(struct session *));
    if (buckets == NULL) {
        return false;
    }
    free(table->by_id);
    table->by_id = buckets;
    table->n_buckets = n_buckets;
    for (struct session *s = table->first; s != NULL; s = s->next) {
        enter_bucket(table, s);
    }
    return true;
}

void session_table_fini(struct session_table *table)
{
    struct session *session = table->first;
    while (session != NULL) {
        struct session *next = session->next;
        session_free(table, session);
        session = next;
    }
    free(table->by_id);
}

struct session *session_by_name(const struct session_table *table, const char *name)
{
    for (struct session *s = table->first; s != NULL; s = s->next) {
        if (strcmp(s->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

/* An id that no session has. */
static bool draw_id(const struct session_table *table, uint64_t *ret_id)
{
    uint64_t id;
    do {
        if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id) {
            return false;
        }
        if (table->home != 0) {
            id = id >> 16 | (uint64_t)table->home << 48;
        }
    } while (id == 0 || session_by_id(table, id) != NULL);
    *ret_id = id;
    return true;
}

enum tally_status session_new(struct session_table *table, const struct tally_join_request *join,
                              struct session **ret_session, struct tally_error *err)
{
    struct session *session = calloc(1, sizeof *session);
    struct assignment *assignments = calloc(join->slots, sizeof *assignments);
    bool ok = session != NULL && assignments != NULL && draw_id(table, &session->id);
    if (!ok || !reserve_bucket(table)) {
        free(session);
        free(assignments);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a session of %u slots",
                          join->slots);
    }
    memcpy(session->name, join->name, sizeof session->name);
    memcpy(session->pinned_job, join->job_id, sizeof session->pinned_job);
    session->n_slots = join->slots;
    session->assignments = assignments;
    session->next = table->first;
    session->link = &table->first;
    if (table->first != NULL) {
        table->first->link = &session->next;
    }
    table->first = session;
    enter_bucket(table, session);
    table->n_sessions++;
    table->n_free += session->n_slots;
    *ret_session = session;
    return TALLY_OK;
}

/* Nobody plays the client any more. */
static void vacate(const struct session *session, const struct assignment *played)
{
    struct client_slot *slot = &played->job->slots[played->client];
    slot->session = NULL;
    slot->absent = true;
    memcpy(slot->previous, session->name, sizeof slot->previous);
    slot->previous_identity = session->identity;
    played->job->n_vacant++;
    mark_absence(played->job);
}

/* Vacates the clients that the session plays for the job. */
static void release(struct session_table *table, struct session *session,
                    const struct hosted_job *job)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment played = session->assignments[i];
        if (played.job == job) {
            vacate(session, &played);
            table->n_free++;
        } else {
            session->assignments[kept++] = played;
        }
    }
    session->n_assignments = kept;
}

static void forget_refusal(struct session *session, const struct hosted_job *job)
{
    for (struct refusal **at = &session->refusals; *at != NULL; at = &(*at)->next) {
        if ((*at)->job == job) {
            struct refusal *gone = *at;
            *at = gone->next;
            free(gone);
            return;
        }
    }
}

void session_free(struct session_table *table, struct session *session)
{
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        vacate(session, &session->assignments[i]);
    }
    while (session->refusals != NULL) {
        forget_refusal(session, session->refusals->job);
    }
    table->n_free -= session_n_free(session);
    table->n_sessions--;
    leave_bucket(table, session);
    *session->link = session->next;
    if (session->next != NULL) {
        session->next->link = session->link;
    }
    free(session->poll.message);
    free(session->assignments);
    free(session);
}

void session_assign(struct session_table *table, struct session *session, struct hosted_job *job,
                    uint32_t client)
{
    session->assignments[session->n_assignments++] =
        (struct assignment){.job = job, .client = client};
    struct client_slot *slot = &job->slots[client];
    slot->session = session;
    if (slot->absent) {
        slot->absent = false;
        mark_absence(job);
    }
    job->n_vacant--;
    table->n_free--;
}

void session_unassign(struct session_table *table, struct hosted_job *job, uint32_t client)
{
    struct session *session = job->slots[client].session;
    uint32_t i = 0;
    while (session->assignments[i].job != job || session->assignments[i].client != client) {
        i++;
    }
    vacate(session, &session->assignments[i]);
    session->n_assignments--;
    memmove(&session->assignments[i], &session->assignments[i + 1],
            (session->n_assignments - i) * sizeof *session->assignments);
    table->n_free++;
}

enum tally_status session_refuse(struct session_table *table, struct session *session,
                                 struct hosted_job *job, const struct tally_update *update,
                                 struct tally_error *err)
{
    if (session_refusal(session, job) == NULL) {
        struct refusal *refusal = calloc(1, sizeof *refusal);
        if (refusal == NULL) {
            return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a refusal");
        }
        refusal->job = job;
        refusal->tried = update->tried;
        snprintf(refusal->reason, sizeof refusal->reason, "%s", update->refusal);
        refusal->next = session->refusals;
        session->refusals = refusal;
    }
    release(table, session, job);
    return TALLY_OK;
}

const struct refusal *session_refusal(const struct session *session, const struct hosted_job *job)
{
    const struct refusal *refusal = session->refusals;
    while (refusal != NULL && refusal->job != job) {
        refusal = refusal->next;
    }
    return refusal;
}

void session_release_job(struct session_table *table, struct hosted_job *job)
{
    for (struct session *session = table->first; session != NULL; session = session->next) {
        release(table, session, job);
        forget_refusal(session, job);
    }
}

bool session_serves(const struct session *session, const struct hosted_job *job)
{
    const bool may =
        session->pinned_job[0] == '\0' || strcmp(session->pinned_job, job->row.id) == 0;
    return may && session_refusal(session, job) == NULL;
}

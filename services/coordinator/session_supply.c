#include "services/coordinator/session_supply.h"

#include <stddef.h>

#include "services/coordinator/session.h"

static struct session *session_at(struct ordered_node *node)
{
    return node != NULL ? (struct session *)((char *)node - offsetof(struct session, place)) : NULL;
}

/* Where the session is counted; NULL = nowhere, because its job was removed. */
static struct supply *supply_of(struct session_table *table, const struct session *session)
{
    if (!is_bound(session)) {
        return &table->unbound;
    }
    return session->bound_to != NULL ? &session->bound_to->supply.bound : NULL;
}

void supply_add(struct session_table *table, struct session *session)
{
    struct supply *supply = supply_of(table, session);
    table->n_free += session->n_slots;
    if (supply != NULL) {
        supply->n_sessions++;
        supply->n_free += session->n_slots;
        ordered_insert(&supply->free, &session->place);
    }
}

void supply_remove(struct session_table *table, struct session *session)
{
    struct supply *supply = supply_of(table, session);
    const uint32_t n_free = session_n_free(session);
    table->n_free -= n_free;
    if (supply != NULL) {
        supply->n_sessions--;
        supply->n_free -= n_free;
        if (n_free > 0) {
            ordered_remove(&supply->free, &session->place);
        }
    }
}

/* To be called when the assignments have changed, but the count of free slots has not. */
void supply_change_free(struct session_table *table, struct session *session, int64_t n)
{
    struct supply *supply = supply_of(table, session);
    const int64_t n_free = session_n_free(session);
    table->n_free += n;
    for (struct refusal *r = session->refusals; r != NULL; r = r->next) {
        r->job->supply.n_refused_free += session_may_serve(session, r->job) ? n : 0;
    }
    if (supply == NULL || n == 0) {
        return;
    }
    supply->n_free += n;
    if (n_free == 0) {
        ordered_remove(&supply->free, &session->place);
    } else if (n_free == n) {
        ordered_insert(&supply->free, &session->place);
    }
}

void supply_add_refusal(struct refusal *refusal)
{
    const struct session *session = refusal->session;
    struct job_supply *supply = &refusal->job->supply;
    refusal->next_of_job = supply->refusals;
    refusal->link_of_job = &supply->refusals;
    if (supply->refusals != NULL) {
        supply->refusals->link_of_job = &refusal->next_of_job;
    }
    supply->refusals = refusal;
    if (session_may_serve(session, refusal->job)) {
        supply->n_refusing++;
        supply->n_refused_free += session_n_free(session);
    }
}

void supply_remove_refusal(struct refusal *refusal)
{
    const struct session *session = refusal->session;
    struct job_supply *supply = &refusal->job->supply;
    *refusal->link_of_job = refusal->next_of_job;
    if (refusal->next_of_job != NULL) {
        refusal->next_of_job->link_of_job = refusal->link_of_job;
    }
    if (session_may_serve(session, refusal->job)) {
        supply->n_refusing--;
        supply->n_refused_free -= session_n_free(session);
    }
}

/* No bound session has a client, so all of them have free slots. */
void supply_unbind(struct hosted_job *job)
{
    struct supply *bound = &job->supply.bound;
    while (bound->free != NULL) {
        struct session *session = session_at(bound->free);
        ordered_remove(&bound->free, &session->place);
        session->bound_to = NULL;
    }
    bound->n_sessions = bound->n_free = 0;
}

int64_t supply_n_free(const struct session_table *table, const struct hosted_job *job)
{
    return table->unbound.n_free + job->supply.bound.n_free - job->supply.n_refused_free;
}

int64_t supply_n_serving(const struct session_table *table, const struct hosted_job *job)
{
    return table->unbound.n_sessions + job->supply.bound.n_sessions - job->supply.n_refusing;
}

int64_t supply_n_refused_assigned(const struct hosted_job *job,
                                  bool counts(const struct hosted_job *))
{
    int64_t n = 0;
    for (const struct refusal *r = job->supply.refusals; r != NULL; r = r->next_of_job) {
        const struct session *session = r->session;
        for (uint32_t i = 0; !is_bound(session) && i < session->n_assignments; i++) {
            n += counts(session->assignments[i].job);
        }
    }
    return n;
}

/* The candidate that joined later, among unbound sessions and those bound to the job. */
static struct session *next_of_both(const struct session_table *table, const struct hosted_job *job,
                                    uint64_t before)
{
    struct ordered_node *unbound = ordered_before(table->unbound.free, before);
    struct ordered_node *bound = ordered_before(job->supply.bound.free, before);
    const bool takes_bound = bound != NULL && (unbound == NULL || bound->number > unbound->number);
    return session_at(takes_bound ? bound : unbound);
}

struct session *supply_next_free(const struct session_table *table, const struct hosted_job *job,
                                 uint64_t before)
{
    struct session *session = next_of_both(table, job, before);
    while (session != NULL && session_refusal(session, job) != NULL) {
        session = next_of_both(table, job, session->place.number);
    }
    return session;
}

/* rest_service: workers, healthz, readyz. */
#include <string.h>

#include "services/coordinator/internal.h"
#include "services/coordinator/replicas.h"
#include "services/program/time.h"

/* Both take `value`, and free it if `ok` is false. */
static bool append_if(bool ok, struct tally_json *list, struct tally_json *value)
{
    if (!ok) {
        tally_json_free(value);
    }
    return ok && tally_json_append(list, value);
}

static struct tally_json *keep_if(bool ok, struct tally_json *value)
{
    if (!ok) {
        tally_json_free(value);
    }
    return ok ? value : NULL;
}

/* The clients that a session plays: [{"job": id, "client": number}]. */
static struct tally_json *assignments_of(const struct session *session)
{
    struct tally_json *list = tally_json_array();
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < session->n_assignments; i++) {
        struct tally_json *one = tally_json_object();
        ok = one != NULL && tally_json_set_text(one, "job", session->assignments[i].job->row.id) &&
             tally_json_set_integer(one, "client", session->assignments[i].client);
        ok = append_if(ok, list, one);
    }
    return keep_if(ok, list);
}

/* The jobs that the worker does not serve: [{"job": id, "reason": text}]. */
static struct tally_json *refusals_of(const struct session *session)
{
    struct tally_json *list = tally_json_array();
    bool ok = list != NULL;
    for (const struct refusal *r = session->refusals; ok && r != NULL; r = r->next) {
        struct tally_json *one = tally_json_object();
        ok = one != NULL && tally_json_set_text(one, "job", r->job->row.id) &&
             tally_json_set_text(one, "reason", r->reason);
        ok = append_if(ok, list, one);
    }
    return keep_if(ok, list);
}

/* Whether a worker that should have been heard of has not: it has missed a deadline, or half of the
 * time is over after which it is given up. */
static bool is_silent(const struct tally_coordinator *coordinator, const struct session *session,
                      int64_t age_ms)
{
    bool missed = false;
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment *played = &session->assignments[i];
        missed = missed || played->job->slots[played->client].absent;
    }
    return session->poll.request == NULL &&
           (missed || age_ms > coordinator->config.session_timeout_ms / 2);
}

static struct tally_json *worker_of(const struct tally_coordinator *coordinator,
                                    const struct session *session, int64_t now_ms)
{
    const int64_t age_ms = session->poll.request != NULL ? 0 : now_ms - session->last_contact_ms;
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL && tally_json_set_text(object, "name", session->name) &&
              tally_json_set_integer(object, "slots", session->n_slots) &&
              tally_json_set_integer(object, "free_slots", session_n_free(session)) &&
              tally_json_set_text(object, "state",
                                  session->poll.request != NULL ? "waiting" : "working") &&
              tally_json_set_integer(object, "joined_ms", session->joined_ms) &&
              tally_json_set_integer(object, "last_contact_age_ms", age_ms) &&
              tally_json_set_bool(object, "silent", is_silent(coordinator, session, age_ms)) &&
              (session->pinned_job[0] != '\0'
                   ? tally_json_set_text(object, "pinned_job", session->pinned_job)
                   : tally_json_set_null(object, "pinned_job")) &&
              (session->token->name[0] != '\0'
                   ? tally_json_set_text(object, "token_name", session->token->name)
                   : tally_json_set_null(object, "token_name")) &&
              tally_json_set(object, "assignments", assignments_of(session)) &&
              tally_json_set(object, "refuses", refusals_of(session));
    if (!ok) {
        tally_json_free(object);
        return NULL;
    }
    return object;
}

/* The workers whose sessions are here. NULL = out of memory. */
static struct tally_json *workers_here(const struct tally_coordinator *coordinator)
{
    const int64_t now_ms = tally_monotonic_ms();
    struct tally_json *answer = tally_json_object();
    struct tally_json *list = tally_json_array();
    bool ok = answer != NULL && list != NULL;
    for (struct session *s = coordinator->sessions.first; ok && s != NULL; s = s->next) {
        struct tally_json *worker = worker_of(coordinator, s, now_ms);
        ok = worker != NULL && tally_json_append(list, worker);
    }
    ok = ok && tally_json_set_integer(answer, "slots_free", coordinator->sessions.n_free);
    if (!ok || !tally_json_set(answer, "workers", list)) {
        if (!ok) {
            tally_json_free(list);
        }
        tally_json_free(answer);
        answer = NULL;
    }
    return answer;
}

/* Adds what another replica has said of its workers to `all`. False = out of memory. */
static bool add_workers(struct tally_json *all, const struct tally_json *said)
{
    const struct tally_json *lists[] = {tally_json_get(all, "workers"),
                                        tally_json_get(said, "workers")};
    struct tally_json *merged = tally_json_array();
    bool ok = merged != NULL;
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; ok && lists[i] != NULL && k < tally_json_size(lists[i]); k++) {
            ok = tally_json_append(merged, tally_json_copy(tally_json_at(lists[i], k)));
        }
    }
    if (!ok) {
        tally_json_free(merged);
        return false;
    }
    return tally_json_set(all, "workers", merged) &&
           tally_json_set_integer(all, "slots_free",
                                  tally_json_get_integer(all, "slots_free", 0) +
                                      tally_json_get_integer(said, "slots_free", 0));
}

/* Adds a line about a replica: whether its workers are in the list. */
static bool add_replica(struct tally_json *all, const struct tally_replica *replica, bool answered)
{
    struct tally_json *list = tally_json_array(), *one = tally_json_object();
    const struct tally_json *before = tally_json_get(all, "replicas");
    bool ok = list != NULL && one != NULL && tally_json_set_text(one, "id", replica->id) &&
              tally_json_set_text(one, "address", replica->address) &&
              tally_json_set_bool(one, "alive", replica->is_alive) &&
              tally_json_set_integer(one, "jobs", replica->jobs) &&
              tally_json_set_bool(one, "answered", answered);
    for (size_t i = 0; ok && before != NULL && i < tally_json_size(before); i++) {
        ok = tally_json_append(list, tally_json_copy(tally_json_at(before, i)));
    }
    ok = append_if(ok, list, one);
    list = keep_if(ok, list);
    return list != NULL && tally_json_set(all, "replicas", list);
}

static void collect_workers(struct tally_coordinator *coordinator, struct call *call);

/* Asks the replicas after call->asked, one at a time, until one is to be waited for; answers once
 * all have been asked. */
static enum tally_status ask_next(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    size_t n;
    const struct tally_replica *replicas = replicas_list(coordinator, &n);
    bool ok = call->collected != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        const struct tally_replica *replica = &replicas[i];
        if (replica->number <= call->asked) {
            continue;
        }
        call->asked = replica->number;
        const bool is_self = replica->number == coordinator->replica_number;
        if (!is_self && replica->is_alive) {
            call->collector = collect_workers;
            if (forward_call(coordinator, call, replica, NULL) == TALLY_OK) {
                return TALLY_OK;
            }
        }
        ok = add_replica(call->collected, replica, is_self);
    }
    struct tally_json *answer = call->collected;
    call->collected = NULL;
    if (!ok) {
        tally_json_free(answer);
        answer = NULL;
    }
    return answer_json(call, 200, answer, err);
}

/* An answer of another replica has come, or none. */
static void collect_workers(struct tally_coordinator *coordinator, struct call *call)
{
    struct tally_json *said = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    size_t n;
    const struct tally_replica *replicas = replicas_list(coordinator, &n);
    bool ok = true;
    if (call->status == 200) {
        (void)tally_json_parse((const char *)call->body.data, call->body.size, &said, NULL);
    }
    for (size_t i = 0; i < n; i++) {
        if (replicas[i].number == call->asked) {
            ok = add_replica(call->collected, &replicas[i], said != NULL);
        }
    }
    ok = ok && (said == NULL || add_workers(call->collected, said));
    tally_json_free(said);
    clear_answer(call);
    enum tally_status status =
        ok ? ask_next(coordinator, call, &err)
           : tally_fail(&err, TALLY_NO_MEMORY, NULL, "no memory for the workers");
    if (status != TALLY_OK) {
        answer_error(call, &err);
    }
    if (call->forwarded == NULL) {
        send_answer(coordinator, call);
    }
}

enum tally_status get_workers(struct tally_coordinator *coordinator, struct call *call,
                              struct tally_error *err)
{
    if (coordinator->replicas == NULL || is_forwarded(call)) {
        return answer_json(call, 200, workers_here(coordinator), err);
    }
    call->collected = workers_here(coordinator);
    return ask_next(coordinator, call, err);
}

static enum tally_status answer_state(struct call *call, const char *state, struct tally_error *err)
{
    struct tally_json *answer = tally_json_object();
    if (answer != NULL && !tally_json_set_text(answer, "status", state)) {
        tally_json_free(answer);
        answer = NULL;
    }
    return answer_json(call, 200, answer, err);
}

enum tally_status get_healthz(struct tally_coordinator *coordinator, struct call *call,
                              struct tally_error *err)
{
    (void)coordinator; /* that the loop answers is the answer */
    return answer_state(call, "ok", err);
}

enum tally_status get_readyz(struct tally_coordinator *coordinator, struct call *call,
                             struct tally_error *err)
{
    if (coordinator->draining) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (coordinator->damage.status != TALLY_OK) { /* until an operator has looked at it */
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s", coordinator->damage.message);
    }
    if (!replicas_may_serve(coordinator)) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "this coordinator has no part in the replicas: %s",
                          coordinator->store_error.message);
    }
    struct tally_store *store = coordinator->store;
    enum tally_status status = store->ops->check(store, err);
    if (status == TALLY_DATA_LOSS) {
        note_damage(coordinator, err);
        tally_error_clear(err);
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s", coordinator->damage.message);
    }
    if (status != TALLY_OK) {
        return status;
    }
    note_store(coordinator, &(struct tally_error)TALLY_ERROR_INIT); /* the check is a commit */
    return answer_state(call, "ready", err);
}

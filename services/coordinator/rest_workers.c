/* rest_workers: the list of workers, in pages. Workers are ordered by the number of their replica,
 * and within a replica newest first.
 *
 * A cursor "R-N" says where a page begins: with the sessions of replica R that are older than
 * session number N, followed by the replicas above R. Every replica contributes its part of the
 * page and its counts. The time for a page depends on its workers, not on all sessions. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/replicas.h"
#include "services/coordinator/replicas_forwarding.h"
#include "services/coordinator/rest_routes.h"
#include "services/coordinator/workers.h"

enum { MAX_PAGE = 1000, CURSOR_CAPACITY = 48 };

/* Appends `value`, or frees it if `ok` is false. */
static bool append_if(bool ok, struct tally_json *list, struct tally_json *value)
{
    value = tally_json_if_complete(value, ok);
    return value != NULL && tally_json_append(list, value);
}

/* The clients of a session: [{"job": id, "client": number}]. */
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
    return tally_json_if_complete(list, ok);
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
    return tally_json_if_complete(list, ok);
}

/* Whether the worker is overdue: it has missed a deadline, or has been silent for half of the
 * session timeout. */
static bool is_silent(const struct tally_coordinator *coordinator, const struct session *session,
                      int64_t age_ms)
{
    bool missed = false;
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment *assigned = &session->assignments[i];
        missed = missed || assigned->job->slots[assigned->client].absent;
    }
    return session->poll.request == NULL &&
           (missed || age_ms > coordinator->config.session_timeout_ms / 2);
}

/* The other worker of the name: {"address", "times", "last_age_ms"}; null if there is none. Once
 * may be the last call of a worker that has been restarted. */
static bool set_rival(struct tally_json *object, const struct session *session, int64_t now_ms)
{
    const struct rival *rival = &session->rival;
    if (!workers_session_has_rival(session) || rival->n < 2) {
        return tally_json_set_null(object, "rival");
    }
    struct tally_json *one = tally_json_object();
    const bool ok = one != NULL && tally_json_set_text(one, "address", rival->address) &&
                    tally_json_set_integer(one, "times", rival->n) &&
                    tally_json_set_integer(one, "last_age_ms", now_ms - rival->last_ms);
    return tally_json_set(object, "rival", tally_json_if_complete(one, ok));
}

static struct tally_json *worker_of(const struct tally_coordinator *coordinator,
                                    struct session *session, int64_t now_ms)
{
    struct tally_http_motion motion;
    if (session->poll.request == NULL) {
        (void)session_motion(session, now_ms, &motion);
    }
    const int64_t age_ms = session->poll.request != NULL ? 0 : now_ms - session->last_contact_ms;
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL && tally_json_set_text(object, "name", session->name) &&
              tally_json_set_text(object, "address", session->address) &&
              set_rival(object, session, now_ms) &&
              tally_json_set_integer(object, "slots", session->n_slots) &&
              tally_json_set_integer(object, "free_slots", session_n_free(session)) &&
              tally_json_set_text(object, "state",
                                  session->poll.request != NULL ? "waiting" : "working") &&
              tally_json_set_integer(object, "joined_ms", session->joined_ms) &&
              tally_json_set_integer(object, "last_contact_age_ms", age_ms) &&
              tally_json_set_bool(object, "silent", is_silent(coordinator, session, age_ms)) &&
              tally_json_set_text_or_null(object, "pinned_job", session->pinned_job) &&
              tally_json_set_text_or_null(object, "token_name", session->token->name) &&
              tally_json_set(object, "assignments", assignments_of(session)) &&
              tally_json_set(object, "refuses", refusals_of(session));
    return tally_json_if_complete(object, ok);
}

/* ---- Pages ---- */

struct page {
    int64_t limit;
    int64_t replica; /* replicas below it have been listed */
    int64_t before;  /* number of the last listed session of that replica */
};

static bool read_number(const char **text, char end, int64_t *ret_value)
{
    char *rest;
    errno = 0;
    *ret_value = strtoll(*text, &rest, 10);
    const bool ok = **text >= '0' && **text <= '9' && rest != *text && *rest == end && errno == 0;
    *text = rest + (ok && end != '\0');
    return ok;
}

static enum tally_status read_page(struct call *call, struct page *page, struct tally_error *err)
{
    const char *text = tally_http_query(call->request, "cursor"), *at = text;
    *page = (struct page){.before = INT64_MAX};
    enum tally_status status =
        call_read_query_integer(call, "limit", 1, MAX_PAGE, MAX_PAGE, &page->limit, err);
    if (status == TALLY_OK && text != NULL &&
        !(read_number(&at, '-', &page->replica) && read_number(&at, '\0', &page->before))) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "cursor",
                            "cursor %.64s is not the next_cursor of a page", text);
    }
    return status;
}

static void write_cursor(int64_t replica, int64_t before, char ret_cursor[CURSOR_CAPACITY])
{
    snprintf(ret_cursor, CURSOR_CAPACITY, "%" PRId64 "-%" PRId64, replica, before);
}

/* The first session of this replica on the page; NULL = none. */
static struct session *first_on(const struct tally_coordinator *coordinator,
                                const struct page *page)
{
    if (coordinator->view.number < page->replica) {
        return NULL;
    }
    return coordinator->view.number > page->replica
               ? coordinator->workers->sessions.first
               : session_before(&coordinator->workers->sessions, (uint64_t)page->before);
}

/* Sets the members that a page of one replica and a page of all have in common. Takes `workers`. */
static bool set_page(struct tally_json *answer, struct tally_json *workers, const char *next_cursor)
{
    bool ok = tally_json_set(answer, "workers", workers);
    return tally_json_set_text_or_null(answer, "next_cursor", next_cursor) && ok;
}

/* This replica's part of the page. cursors: an array that receives the cursor of each worker, for
 * the replica that assembles the page; taken; NULL = not needed. Returns NULL if out of memory. */
static struct tally_json *workers_here(const struct tally_coordinator *coordinator,
                                       const struct page *page, struct tally_json *cursors)
{
    const struct session_table *sessions = &coordinator->workers->sessions;
    const int64_t now_ms = tally_monotonic_ms();
    struct tally_json *answer = tally_json_object();
    struct tally_json *list = tally_json_array();
    bool ok = answer != NULL && list != NULL;
    struct session *s = first_on(coordinator, page);
    char cursor[CURSOR_CAPACITY] = "";
    for (int64_t n = 0; ok && s != NULL && n < page->limit; n++, s = s->next) {
        struct tally_json *worker = worker_of(coordinator, s, now_ms);
        write_cursor(coordinator->view.number, (int64_t)s->number, cursor);
        ok = worker != NULL && tally_json_append(list, worker) &&
             (cursors == NULL || tally_json_append(cursors, tally_json_text(cursor)));
    }
    ok = ok && tally_json_set_integer(answer, "slots_free", sessions->n_free) &&
         tally_json_set_integer(answer, "slots_total", sessions->n_slots) &&
         tally_json_set_integer(answer, "workers_total", sessions->n_sessions);
    if (!ok) {
        tally_json_free(list);
        tally_json_free(cursors);
        tally_json_free(answer);
        return NULL;
    }
    ok = set_page(answer, list, s != NULL ? cursor : "");
    ok = (cursors == NULL || tally_json_set(answer, "cursors", cursors)) && ok;
    return tally_json_if_complete(answer, ok);
}

/* Where the next page begins if this page takes n_taken workers from the response `said` of replica
 * `number`. "" if that replica has no more workers. */
static void find_next(const struct tally_json *said, int64_t number, size_t n_taken,
                      char ret_cursor[CURSOR_CAPACITY])
{
    const struct tally_json *cursors = tally_json_get(said, "cursors");
    const bool has_more = n_taken < tally_json_size(tally_json_get(said, "workers")) ||
                          tally_json_get_text(said, "next_cursor") != NULL;
    ret_cursor[0] = '\0';
    if (has_more && n_taken == 0) {
        write_cursor(number, INT64_MAX, ret_cursor);
    } else if (has_more) {
        snprintf(ret_cursor, CURSOR_CAPACITY, "%s",
                 tally_json_as_text(tally_json_at(cursors, n_taken - 1)));
    }
}

static bool add_count(struct tally_json *all, const struct tally_json *said, const char *name)
{
    return tally_json_set_integer(
        all, name, tally_json_get_integer(all, name, 0) + tally_json_get_integer(said, name, 0));
}

/* Adds the workers in a replica's response to `all`, up to the limit. Returns false if out of
 * memory. */
static bool add_workers(struct tally_json *all, const struct tally_json *said, int64_t number,
                        int64_t limit)
{
    const struct tally_json *before = tally_json_get(all, "workers");
    const struct tally_json *more = tally_json_get(said, "workers");
    const char *next = tally_json_get_text(all, "next_cursor");
    const size_t n_before = tally_json_size(before), n_more = tally_json_size(more);
    const size_t room = (size_t)limit > n_before ? (size_t)limit - n_before : 0;
    const size_t n_taken = n_more < room ? n_more : room;
    char cursor[CURSOR_CAPACITY];
    if (next != NULL) {
        snprintf(cursor, sizeof cursor, "%s", next);
    } else {
        find_next(said, number, n_taken, cursor);
    }
    struct tally_json *merged = tally_json_array();
    bool ok = merged != NULL;
    for (size_t i = 0; ok && i < n_before + n_taken; i++) {
        const struct tally_json *worker =
            i < n_before ? tally_json_at(before, i) : tally_json_at(more, i - n_before);
        ok = tally_json_append(merged, tally_json_copy(worker));
    }
    if (!ok) {
        tally_json_free(merged);
        return false;
    }
    return add_count(all, said, "slots_free") && add_count(all, said, "slots_total") &&
           add_count(all, said, "workers_total") && set_page(all, merged, cursor);
}

/* ---- All replicas ---- */

/* Adds an entry about a replica, with whether its workers are in the list. */
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
    list = tally_json_if_complete(list, ok);
    return list != NULL && tally_json_set(all, "replicas", list);
}

static bool add_own(const struct tally_coordinator *coordinator, struct tally_json *all,
                    const struct page *page)
{
    struct tally_json *cursors = tally_json_array();
    struct tally_json *said = cursors != NULL ? workers_here(coordinator, page, cursors) : NULL;
    const bool ok = said != NULL && add_workers(all, said, coordinator->view.number, page->limit);
    tally_json_free(said);
    return ok;
}

static void collect_workers(struct tally_coordinator *coordinator, struct call *call);

/* Asks the next replica after call->asked and returns to wait for its response; answers the call
 * once all have been asked. */
static enum tally_status ask_next(struct tally_coordinator *coordinator, struct call *call,
                                  const struct page *page, struct tally_error *err)
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
        const bool is_self = replica->number == coordinator->view.number;
        if (!is_self && replica->is_alive) {
            call->collector = collect_workers;
            if (forwarding_forward(coordinator, call, replica, NULL) == TALLY_OK) {
                return TALLY_OK;
            }
        }
        ok = add_replica(call->collected, replica, is_self) &&
             (!is_self || add_own(coordinator, call->collected, page));
    }
    struct tally_json *answer = call->collected;
    call->collected = NULL;
    return call_answer_json(call, 200, tally_json_if_complete(answer, ok), err);
}

/* Takes the response of another replica, or its failure, and asks the next. */
static void collect_workers(struct tally_coordinator *coordinator, struct call *call)
{
    struct tally_json *said = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    struct page page;
    size_t n;
    const struct tally_replica *replicas = replicas_list(coordinator, &n);
    bool ok =
        read_page(call, &page, NULL) == TALLY_OK; /* rest_get_workers() has already checked it */
    if (call->status == 200) {
        (void)tally_json_parse((const char *)call->body.data, call->body.size, &said, NULL);
    }
    for (size_t i = 0; i < n; i++) {
        if (replicas[i].number == call->asked) {
            ok = ok && add_replica(call->collected, &replicas[i], said != NULL);
        }
    }
    ok = ok && (said == NULL || add_workers(call->collected, said, call->asked, page.limit));
    tally_json_free(said);
    call_clear_answer(call);
    enum tally_status status =
        ok ? ask_next(coordinator, call, &page, &err)
           : tally_fail(&err, TALLY_NO_MEMORY, NULL, "no memory for the workers");
    if (status != TALLY_OK) {
        call_answer_error(call, &err);
    }
    if (call->forwarded == NULL) {
        call_send(coordinator, call);
    }
}

/* Whether this replica is in the directory. */
static bool is_listed(const struct tally_coordinator *coordinator)
{
    size_t n, i = 0;
    const struct tally_replica *replicas = replicas_list(coordinator, &n);
    while (i < n && replicas[i].number != coordinator->view.number) {
        i++;
    }
    return i < n;
}

enum tally_status rest_get_workers(struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    struct page page;
    enum tally_status status = read_page(call, &page, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (!coordinator->view.is_shared || !is_listed(coordinator)) {
        return call_answer_json(call, 200, workers_here(coordinator, &page, NULL), err);
    }
    if (forwarding_is_forwarded(call)) {
        struct tally_json *cursors = tally_json_array();
        return call_answer_json(
            call, 200, cursors != NULL ? workers_here(coordinator, &page, cursors) : NULL, err);
    }
    call->collected = tally_json_object();
    return ask_next(coordinator, call, &page, err);
}

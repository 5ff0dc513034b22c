#include "services/coordinator/session.h"
#include "services/base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "api/http/sha256.h"

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

static struct session **name_bucket_of(const struct session_table *table, uint64_t hash)
{
    return &table->by_name[hash & (table->n_buckets - 1)];
}

/* Without the key, a client cannot predict which names share a bucket. */
static uint64_t hash_of(const struct session_table *table, const char *name)
{
    uint8_t text[sizeof table->key + TALLY_WORKER_NAME_CAPACITY];
    uint8_t digest[TALLY_SHA256_BYTES];
    uint64_t hash;
    const size_t n = strnlen(name, TALLY_WORKER_NAME_CAPACITY);
    memcpy(text, table->key, sizeof table->key);
    memcpy(text + sizeof table->key, name, n);
    tally_sha256(text, sizeof table->key + n, digest);
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

struct session *session_by_name(const struct session_table *table, const char *name)
{
    if (table->n_buckets == 0) {
        return NULL;
    }
    struct session *session = *name_bucket_of(table, hash_of(table, name));
    while (session != NULL && strcmp(session->name, name) != 0) {
        session = session->next_of_name;
    }
    return session;
}

void session_note_replaced(struct session_table *table, const struct session *session,
                           const char *address)
{
    struct replaced_session *replaced = &table->replaced[table->n_replaced++ % REPLACED_SESSIONS];
    *replaced = (struct replaced_session){.id = session->id};
    memcpy(replaced->name, session->name, sizeof replaced->name);
    snprintf(replaced->by, sizeof replaced->by, "%s", address);
}

struct replaced_session *session_replaced(struct session_table *table, uint64_t id)
{
    for (size_t i = 0; id != 0 && i < REPLACED_SESSIONS; i++) {
        if (table->replaced[i].id == id) {
            return &table->replaced[i];
        }
    }
    return NULL;
}

struct session *session_before(const struct session_table *table, uint64_t number)
{
    struct session *session = table->first;
    while (session != NULL && session->number >= number) {
        session = session->next;
    }
    return session;
}

static void enter_buckets(struct session_table *table, struct session *session)
{
    struct session **bucket = bucket_of(table, session->id);
    session->next_of_id = *bucket;
    *bucket = session;
    bucket = name_bucket_of(table, session->name_hash);
    session->next_of_name = *bucket;
    *bucket = session;
}

static void leave_buckets(struct session_table *table, const struct session *session)
{
    struct session **at = bucket_of(table, session->id);
    while (*at != session) {
        at = &(*at)->next_of_id;
    }
    *at = session->next_of_id;
    at = name_bucket_of(table, session->name_hash);
    while (*at != session) {
        at = &(*at)->next_of_name;
    }
    *at = session->next_of_name;
}

/* Draws the key, together with the first buckets. */
static bool draw_key(struct session_table *table)
{
    return table->n_buckets > 0 ||
           getrandom(table->key, sizeof table->key, 0) == (ssize_t)sizeof table->key;
}

/* Ensures that the heap and the buckets have room for one more session. */
static bool reserve_place(struct session_table *table)
{
    if ((size_t)table->n_sessions < table->n_buckets) {
        return true;
    }
    const size_t n_buckets = table->n_buckets == 0 ? FIRST_BUCKETS : 2 * table->n_buckets;
    struct session **heap = realloc(table->heap, n_buckets * sizeof(struct session *));
    struct session **by_id = calloc(n_buckets, sizeof(struct session *));
    struct session **by_name = calloc(n_buckets, sizeof(struct session *));
    table->heap = heap != NULL ? heap : table->heap;
    if (heap == NULL || by_id == NULL || by_name == NULL || !draw_key(table)) {
        free(by_id);
        free(by_name);
        return false;
    }
    free(table->by_id);
    free(table->by_name);
    table->by_id = by_id;
    table->by_name = by_name;
    table->n_buckets = n_buckets;
    for (struct session *s = table->first; s != NULL; s = s->next) {
        enter_buckets(table, s);
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
    free(table->by_name);
    free(table->heap);
}

/* ---- Slots, counted for the jobs that may have them ---- */

/* Where the session is counted; NULL = nowhere, because its job was removed. */
static struct supply *supply_of(struct session_table *table, const struct session *session)
{
    if (!session_is_bound(session)) {
        return &table->unbound;
    }
    return session->bound_to != NULL ? &session->bound_to->supply.bound : NULL;
}

/* Counts n more sessions like this one, with n_free more free slots; negative: fewer. */
static void count(struct session_table *table, const struct session *session, int64_t n,
                  int64_t n_free)
{
    struct supply *supply = supply_of(table, session);
    table->n_sessions += n;
    table->n_free += n_free;
    if (supply != NULL) {
        supply->n_sessions += n;
        supply->n_free += n_free;
    }
}

/* The job is removed: sessions bound to it serve no job from now on. */
static void unbind(struct session_table *table, struct hosted_job *job)
{
    struct session *session = job->supply.bound.n_sessions > 0 ? table->first : NULL;
    for (; session != NULL; session = session->next) {
        session->bound_to = session->bound_to == job ? NULL : session->bound_to;
    }
    job->supply.bound = (struct supply){0};
}

int64_t session_n_free_for(const struct session_table *table, const struct hosted_job *job)
{
    int64_t n = table->unbound.n_free + job->supply.bound.n_free;
    for (const struct refusal *r = job->supply.refusals; r != NULL; r = r->next_of_job) {
        n -= session_may_serve(r->session, job) ? session_n_free(r->session) : 0;
    }
    return n;
}

int64_t session_n_serving(const struct session_table *table, const struct hosted_job *job)
{
    int64_t n = table->unbound.n_sessions + job->supply.bound.n_sessions;
    for (const struct refusal *r = job->supply.refusals; r != NULL; r = r->next_of_job) {
        n -= session_may_serve(r->session, job);
    }
    return n;
}

int64_t session_n_refused_assigned(const struct hosted_job *job,
                                   bool counts(const struct hosted_job *))
{
    int64_t n = 0;
    for (const struct refusal *r = job->supply.refusals; r != NULL; r = r->next_of_job) {
        const struct session *session = r->session;
        for (uint32_t i = 0; !session_is_bound(session) && i < session->n_assignments; i++) {
            n += counts(session->assignments[i].job);
        }
    }
    return n;
}

struct session *session_next_free(const struct session_table *table, const struct hosted_job *job,
                                  const struct session *after)
{
    struct session *session = after != NULL ? after->next : table->first;
    while (session != NULL && (session_n_free(session) == 0 || !session_serves(session, job))) {
        session = session->next;
    }
    return session;
}

/* ---- Tokens ---- */

static struct session_token *find_token(const struct session_table *table,
                                        const struct token_identity *identity)
{
    struct session_token *token = table->tokens;
    while (token != NULL && !access_same_identity(&token->identity, identity)) {
        token = token->next;
    }
    return token;
}

int64_t session_count_of(const struct session_table *table, const struct token_identity *identity)
{
    const struct session_token *token = find_token(table, identity);
    return token != NULL ? token->n_sessions : 0;
}

/* Counts one more session for the token. */
static struct session_token *take_token(struct session_table *table,
                                        const struct token_identity *identity, const char *name)
{
    struct session_token *token = find_token(table, identity);
    if (token == NULL) {
        token = tally_xcalloc(1, sizeof *token);
        token->identity = *identity;
        snprintf(token->name, sizeof token->name, "%s", name);
        token->next = table->tokens;
        table->tokens = token;
    }
    token->n_sessions++;
    return token;
}

static void release_token(struct session_table *table, struct session_token *token)
{
    if (token == NULL || --token->n_sessions > 0) {
        return;
    }
    struct session_token **at = &table->tokens;
    while (*at != token) {
        at = &(*at)->next;
    }
    *at = token->next;
    free(token);
}

/* ---- The heap of due times ----
 *
 * A binary heap in which each session knows its place. A call of a worker moves its due time later,
 * which changes nothing here: the heap keeps the earlier time, and is corrected once that has come.
 * So a session moves in the heap a few times a minute, however often its worker calls. */

int64_t session_due_ms(const struct session *session, int64_t timeout_ms)
{
    return session->poll.request != NULL ? session->poll.until_ms
                                         : session->last_contact_ms + timeout_ms + 1;
}

static void put_in_heap(struct session **heap, size_t place, struct session *session)
{
    heap[place] = session;
    session->place = place;
}

/* Moves the session to where it belongs among the first n of the heap. */
static void order_heap(struct session **heap, size_t n, struct session *session)
{
    size_t i = session->place;
    while (i > 0 && heap[(i - 1) / 2]->due_ms > session->due_ms) {
        put_in_heap(heap, i, heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    while (2 * i + 1 < n) {
        size_t child = 2 * i + 1;
        child += child + 1 < n && heap[child + 1]->due_ms < heap[child]->due_ms;
        if (heap[child]->due_ms >= session->due_ms) {
            break;
        }
        put_in_heap(heap, i, heap[child]);
        i = child;
    }
    put_in_heap(heap, i, session);
}

/* Exchanges the session with the last of the first n, and orders the others. */
static void move_to_end(struct session **heap, size_t n, struct session *session)
{
    struct session *last = heap[n - 1];
    put_in_heap(heap, session->place, last);
    put_in_heap(heap, n - 1, session);
    if (last != session) {
        order_heap(heap, n - 1, last);
    }
}

void session_set_timer(struct session_table *table, struct session *session, int64_t timeout_ms)
{
    const int64_t due_ms = session_due_ms(session, timeout_ms);
    if (due_ms < session->due_ms) {
        session->due_ms = due_ms;
        order_heap(table->heap, (size_t)table->n_sessions, session);
    }
}

static int compare_numbers(const void *a, const void *b)
{
    const struct session *const *left = a, *const *right = b;
    return ((*left)->number > (*right)->number) - ((*left)->number < (*right)->number);
}

struct session *session_find_due(struct session_table *table, int64_t now_ms, int64_t timeout_ms)
{
    struct session **heap = table->heap, *due = NULL;
    const size_t n_sessions = (size_t)table->n_sessions;
    size_t n = n_sessions; /* the due ones follow the first n */
    while (n > 0 && heap[0]->due_ms <= now_ms) {
        heap[0]->due_ms = session_due_ms(heap[0], timeout_ms);
        if (heap[0]->due_ms <= now_ms) {
            move_to_end(heap, n--, heap[0]);
        } else {
            order_heap(heap, n, heap[0]);
        }
    }
    if (n < n_sessions) {
        qsort(&heap[n], n_sessions - n, sizeof(struct session *), compare_numbers);
    }
    for (; n < n_sessions; n++) {
        heap[n]->next_due = due;
        due = heap[n];
        due->place = n;
        order_heap(heap, n + 1, due);
    }
    return due;
}

/* ---- Coming and going ---- */

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

static void enter_table(struct session_table *table, struct session *session)
{
    session->next = table->first;
    session->link = &table->first;
    if (table->first != NULL) {
        table->first->link = &session->next;
    }
    table->first = session;
    enter_buckets(table, session);
    put_in_heap(table->heap, (size_t)table->n_sessions, session);
    table->n_slots += session->n_slots;
    count(table, session, 1, session->n_slots);
}

enum tally_status session_new(struct session_table *table, const struct session_request *request,
                              struct session **ret_session, struct tally_error *err)
{
    const struct tally_join_request *join = request->join;
    struct session *session = tally_xcalloc(1, sizeof *session);
    struct assignment *assignments = calloc(join->slots, sizeof *assignments);
    struct session_token *token = take_token(table, request->identity, request->token_name);
    if (assignments == NULL || !draw_id(table, &session->id) || !reserve_place(table)) {
        release_token(table, token);
        free(session);
        free(assignments);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a session of %u slots",
                          join->slots);
    }
    memcpy(session->name, join->name, sizeof session->name);
    snprintf(session->address, sizeof session->address, "%s",
             request->address != NULL ? request->address : "");
    memcpy(session->pinned_job, join->job_id, sizeof session->pinned_job);
    session->starts = join->starts[0] != '\0' ? tally_xstrdup(join->starts) : NULL;
    session->bound_to = request->bound_to;
    session->token = token;
    session->n_slots = join->slots;
    session->assignments = assignments;
    session->name_hash = hash_of(table, session->name);
    session->number = table->n_joined++;
    session->due_ms = INT64_MAX; /* until session_set_timer() */
    enter_table(table, session);
    *ret_session = session;
    return TALLY_OK;
}

bool session_motion(struct session *session, int64_t now_ms, struct tally_http_motion *ret_motion)
{
    if (!tally_http_line_look(&session->line, ret_motion)) {
        *ret_motion = session->progress;
        ret_motion->quiet_ms = now_ms - session->progress_ms;
        return session->progress.n_whole > 0;
    }
    session->progress.n_whole = 0; /* the message is here, and its end will be seen here */
    const int64_t moved_ms = now_ms - ret_motion->quiet_ms;
    if (ret_motion->has_moved && moved_ms > session->last_contact_ms) {
        session->last_contact_ms = moved_ms;
    }
    return true;
}

/* ---- Clients ---- */

/* Puts a vacant client into a place of session->assignments. */
static void put_client(struct session *session, uint32_t place, struct hosted_job *job,
                       uint32_t client)
{
    struct client_slot *slot = &job->slots[client];
    session->assignments[place] = (struct assignment){.job = job, .client = client};
    slot->session = session;
    slot->place = place;
    slot->has_shift = false;
    tally_list_append(&job->assigned, &slot->in_assigned);
    if (slot->absent) {
        slot->absent = false;
        hosted_job_mark_absence(job);
    }
}

static void take_client(struct client_slot *slot)
{
    const struct session *session = slot->session;
    memcpy(slot->previous, session->name, sizeof slot->previous);
    slot->previous_identity = session->token->identity;
    slot->session = NULL;
    tally_list_remove(&slot->in_assigned);
}

/* Takes the client away from its worker. */
static void vacate(const struct session *session, const struct assignment *assigned)
{
    struct client_slot *slot = &assigned->job->slots[assigned->client];
    take_client(slot);
    slot->absent = true;
    assigned->job->n_vacant++;
    assigned->job->supply.n_assigned -= !session_is_bound(session);
    hosted_job_mark_absence(assigned->job);
}

/* Vacates the session's clients of the job. */
static void release(struct session_table *table, struct session *session,
                    const struct hosted_job *job)
{
    const uint32_t n_before = session->n_assignments;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment assigned = session->assignments[i];
        if (assigned.job == job) {
            vacate(session, &assigned);
        } else {
            assigned.job->slots[assigned.client].place = kept;
            session->assignments[kept++] = assigned;
        }
    }
    session->n_assignments = kept;
    count(table, session, 0, n_before - kept);
}

void session_accept(struct session *session, const struct hosted_job *job)
{
    for (struct refusal **at = &session->refusals; *at != NULL; at = &(*at)->next) {
        if ((*at)->job == job) {
            struct refusal *gone = *at;
            *gone->link_of_job = gone->next_of_job;
            if (gone->next_of_job != NULL) {
                gone->next_of_job->link_of_job = gone->link_of_job;
            }
            *at = gone->next;
            session->n_refusals--;
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
        session_accept(session, session->refusals->job);
    }
    tally_http_line_detach(&session->line);
    leave_buckets(table, session);
    move_to_end(table->heap, (size_t)table->n_sessions, session);
    table->n_slots -= session->n_slots;
    count(table, session, -1, -(int64_t)session_n_free(session));
    release_token(table, session->token);
    *session->link = session->next;
    if (session->next != NULL) {
        session->next->link = session->link;
    }
    free(session->poll.message);
    tally_buffer_fini(&session->poll.parts);
    free(session->assignments);
    free(session->starts);
    free(session);
}

void session_assign(struct session_table *table, struct session *session, struct hosted_job *job,
                    uint32_t client)
{
    put_client(session, session->n_assignments++, job, client);
    job->n_vacant--;
    job->supply.n_assigned += !session_is_bound(session);
    count(table, session, 0, -1);
}

void session_replace_client(struct hosted_job *job, uint32_t from, uint32_t to)
{
    struct client_slot *slot = &job->slots[from];
    struct session *session = slot->session;
    take_client(slot);
    put_client(session, slot->place, job, to);
}

void session_unassign(struct session_table *table, struct hosted_job *job, uint32_t client)
{
    struct session *session = job->slots[client].session;
    const uint32_t place = job->slots[client].place;
    vacate(session, &session->assignments[place]);
    session->n_assignments--;
    for (uint32_t i = place; i < session->n_assignments; i++) {
        session->assignments[i] = session->assignments[i + 1];
        session->assignments[i].job->slots[session->assignments[i].client].place = i;
    }
    count(table, session, 0, 1);
}

void session_refuse(struct session_table *table, struct session *session, struct hosted_job *job,
                    const struct tally_update *update)
{
    if (session_refusal(session, job) == NULL) {
        struct refusal *refusal = tally_xcalloc(1, sizeof *refusal);
        refusal->session = session;
        refusal->job = job;
        refusal->tried = update->tried;
        snprintf(refusal->reason, sizeof refusal->reason, "%s", update->refusal);
        refusal->next = session->refusals;
        session->refusals = refusal;
        session->n_refusals++;
        refusal->next_of_job = job->supply.refusals;
        refusal->link_of_job = &job->supply.refusals;
        if (refusal->next_of_job != NULL) {
            refusal->next_of_job->link_of_job = &refusal->next_of_job;
        }
        job->supply.refusals = refusal;
    }
    release(table, session, job);
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
    for (int64_t m = 0; job->slots != NULL && m < job->row.clients; m++) {
        if (job->slots[m].session != NULL) {
            release(table, job->slots[m].session, job);
        }
    }
    while (job->supply.refusals != NULL) {
        session_accept(job->supply.refusals->session, job);
    }
    unbind(table, job);
}

bool session_serves(const struct session *session, const struct hosted_job *job)
{
    return session_may_serve(session, job) && session_refusal(session, job) == NULL;
}

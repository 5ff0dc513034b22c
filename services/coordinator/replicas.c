#include "services/coordinator/replicas.h"
#include "services/base/alloc.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/replicas_forwarding.h"
#include "services/coordinator/replicas_placement.h"
#include "services/coordinator/workers.h"

struct replicas {
    const struct tally_store_leases *leases;
    struct tally_replica self;  /* id and address; number 0 = has not joined */
    struct placement directory; /* of the last heartbeat that succeeded */
    struct placement next;      /* being read */
    size_t capacity, next_capacity;
    struct job_rows taken; /* jobs that are ours and not loaded yet */
    bool is_down;          /* stepped down, or not up yet */
    bool has_left;
    struct replica_counts counts;
    int64_t next_beat_ms;
    int64_t neediest_key;   /* of the job that most needs workers of other replicas ... */
    int64_t n_beats_needed; /* ... and for how many heartbeats it has been the same */
    int64_t stuck_key;      /* of the oldest job here that is stuck; 0 = none */
    int64_t n_beats_stuck;  /* heartbeats for which it has been stuck */
};

/* Ends the sessions of the job's workers, and of those bound to it: they join again and are sent to
 * its leader. */
static void send_away_workers(struct tally_coordinator *coordinator, const struct hosted_job *job);
/* After each heartbeat: moves queued jobs, stuck jobs and idle workers where they fit better. */
static void give_away(struct tally_coordinator *coordinator, int64_t now_ms);

enum { BEATS_PER_LEASE = 6 /* several, so that some may be late or lost without harm */ };

void replicas_new(struct tally_coordinator *coordinator)
{
    if (coordinator->store->leases == NULL) {
        return;
    }
    struct replicas *replicas = tally_xcalloc(1, sizeof *replicas);
    const struct tally_coordinator_config *config = &coordinator->config;
    replicas->leases = coordinator->store->leases;
    snprintf(replicas->self.id, sizeof replicas->self.id, "%s", config->replica_id);
    snprintf(replicas->self.address, sizeof replicas->self.address, "%s", config->replica_address);
    replicas->is_down = true;
    coordinator->replicas = replicas;
    coordinator->view.is_shared = true;
}

void replicas_free(struct replicas *replicas)
{
    if (replicas != NULL) {
        free(replicas->directory.replicas);
        free(replicas->next.replicas);
        free(replicas->taken.rows);
        free(replicas);
    }
}

/* ---- The directory ---- */

const struct tally_replica *replicas_find(const struct tally_coordinator *coordinator,
                                          int64_t number)
{
    const struct replicas *replicas = coordinator->replicas;
    for (size_t i = 0; replicas != NULL && i < replicas->directory.n; i++) {
        const struct tally_replica *replica = &replicas->directory.replicas[i];
        if (replica->number == number && replica->is_alive && number != replicas->self.number) {
            return replica;
        }
    }
    return NULL;
}

const struct tally_replica *replicas_list(const struct tally_coordinator *coordinator,
                                          size_t *ret_n)
{
    const struct replicas *replicas = coordinator->replicas;
    *ret_n = replicas != NULL ? replicas->directory.n : 0;
    return replicas != NULL ? replicas->directory.replicas : NULL;
}

void replicas_count(const struct tally_coordinator *coordinator, int64_t *ret_alive,
                    int64_t *ret_dead)
{
    const struct replicas *replicas = coordinator->replicas;
    *ret_alive = *ret_dead = 0;
    for (size_t i = 0; replicas != NULL && i < replicas->directory.n; i++) {
        ++*(replicas->directory.replicas[i].is_alive ? ret_alive : ret_dead);
    }
}

/* Sums one number of the other replicas. */
static int64_t sum_others(const struct tally_coordinator *coordinator, size_t offset)
{
    const struct replicas *replicas = coordinator->replicas;
    int64_t sum = 0;
    for (size_t i = 0; replicas != NULL && i < replicas->directory.n; i++) {
        const struct tally_replica *replica = &replicas->directory.replicas[i];
        if (replica->is_alive && replica->number != replicas->self.number) {
            sum += *(const int64_t *)((const char *)replica + offset);
        }
    }
    return sum;
}

/* Updates what the lower modules see of the directory. */
static void refresh_view(struct tally_coordinator *coordinator)
{
    const struct replicas *replicas = coordinator->replicas;
    struct replica_view *view = &coordinator->view;
    view->n_jobs = sum_others(coordinator, offsetof(struct tally_replica, jobs));
    view->n_free_slots = sum_others(coordinator, offsetof(struct tally_replica, free_slots));
    view->held_back_key = placement_held_back_key(&replicas->directory);
}

const struct replica_counts *replicas_counts(const struct tally_coordinator *coordinator)
{
    return coordinator->view.is_shared ? &coordinator->replicas->counts : NULL;
}

const struct tally_replica *replicas_home(struct tally_coordinator *coordinator, int64_t slots)
{
    struct replicas *replicas = coordinator->replicas;
    struct tally_replica *home =
        replicas != NULL ? placement_home(&replicas->directory, slots) : NULL;
    if (home != NULL) { /* until the next heartbeat counts it */
        home->wants_slots -= slots;
        home->slots += slots;
        refresh_view(coordinator);
    }
    return home;
}

static enum tally_status add_replica(void *context, const struct tally_replica *replica,
                                     struct tally_error *err)
{
    (void)err;
    struct replicas *replicas = context;
    if (replicas->next.n == replicas->next_capacity) {
        const size_t capacity = 2 * replicas->next_capacity + 8;
        replicas->next.replicas =
            tally_xrealloc(replicas->next.replicas, capacity, sizeof *replica);
        replicas->next_capacity = capacity;
    }
    replicas->next.replicas[replicas->next.n++] = *replica;
    return TALLY_OK;
}

/* Makes the directory that was read the current one, and stops waiting for replicas that died. */
static void turn_directory(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    const struct placement old = replicas->directory;
    const size_t old_capacity = replicas->capacity;
    replicas->directory = replicas->next;
    replicas->directory.self = replicas->self.number;
    replicas->capacity = replicas->next_capacity;
    for (size_t i = 0; i < old.n; i++) {
        const struct tally_replica *replica = &old.replicas[i];
        if (replica->is_alive && replica->number != replicas->self.number &&
            replicas_find(coordinator, replica->number) == NULL) {
            tally_log(TALLY_LOG_WARN, tally_log_event("replica left or died"),
                      tally_log_text("replica", replica->id),
                      tally_log_text("address", replica->address),
                      tally_log_integer("jobs", replica->jobs));
            forwarding_abort_all(coordinator, replica->number);
        }
    }
    for (size_t i = 0; i < replicas->directory.n; i++) {
        const struct tally_replica *replica = &replicas->directory.replicas[i];
        bool was_there = replica->number == replicas->self.number || !replica->is_alive;
        for (size_t k = 0; k < old.n && !was_there; k++) {
            was_there = old.replicas[k].number == replica->number && old.replicas[k].is_alive;
        }
        if (!was_there) {
            tally_log(TALLY_LOG_INFO, tally_log_event("replica appeared"),
                      tally_log_text("replica", replica->id),
                      tally_log_text("address", replica->address));
        }
    }
    replicas->next = old; /* its memory is reused */
    replicas->next_capacity = old_capacity;
    refresh_view(coordinator);
}

/* ---- Leases ---- */

static void step_down(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    replicas->is_down = true;
    coordinator->view.serves_until_ms = 0;
    replicas->counts.step_downs++;
    tally_log(TALLY_LOG_WARN, tally_log_event("stepping down: other replicas may lead our jobs"),
              tally_log_integer("jobs", coordinator->jobs->n),
              tally_log_text("store", coordinator->transaction->error.message));
    workers_mark_all_ready(coordinator); /* their polls are refused */
}

/* Steps down if no heartbeat has succeeded for a lease. */
static void check_lease(struct tally_coordinator *coordinator)
{
    if (!coordinator->replicas->is_down && !may_serve(&coordinator->view, tally_monotonic_ms())) {
        step_down(coordinator);
    }
}

bool replicas_still_leads(struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    const struct replicas *replicas = coordinator->replicas;
    struct tally_job_leader leader;
    if (replicas == NULL) {
        return true;
    }
    return replicas->leases->leader_of(coordinator->store, job->row.id, &leader, NULL) ==
               TALLY_OK &&
           leader.has_leader && leader.replica.number == replicas->self.number;
}

static void send_away_workers(struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    struct session *session = coordinator->workers->sessions.first;
    while (session != NULL) {
        struct session *next = session->next;
        bool serves = strcmp(session->pinned_job, job->row.id) == 0;
        for (uint32_t i = 0; i < session->n_assignments; i++) {
            serves = serves || session->assignments[i].job == job;
        }
        if (serves) {
            workers_end_session(coordinator, session);
        }
        session = next;
    }
}

/* Drops the jobs that another replica leads, according to the store object. */
static void drop_lost_jobs(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    struct hosted_job **at = &coordinator->jobs->first;
    while (*at != NULL) {
        struct hosted_job *job = *at;
        if (replicas->leases->holds(coordinator->store, job->row.key)) {
            at = &job->next;
            continue;
        }
        tally_log(TALLY_LOG_WARN, tally_log_event("job lost: another replica leads it"),
                  tally_log_text("job", job->row.id),
                  tally_log_integer("round", job->row.progress.round));
        replicas->counts.jobs_lost++;
        send_away_workers(coordinator, job);
        jobs_remove(coordinator, at);
    }
}

/* Describes this replica to the others. */
static void describe_self(const struct tally_coordinator *coordinator, struct tally_replica *self)
{
    self->jobs = coordinator->jobs->n;
    self->free_slots = coordinator->workers->sessions.n_free;
    self->slots = workers_count_moving_slots(coordinator);
    workers_find_lacking_job(coordinator,
                             sum_others(coordinator, offsetof(struct tally_replica, slots)),
                             coordinator->view.n_free_slots, &self->wants_key, &self->wants_slots);
}

static bool join(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    struct tally_error err = TALLY_ERROR_INIT;
    int64_t number;
    if (replicas->self.number != 0) {
        return true;
    }
    if (replicas->leases->join(coordinator->store, &replicas->self, coordinator->config.lease_ms,
                               &number, &err) != TALLY_OK) {
        transaction_note_store(coordinator->transaction, &err);
        tally_log(TALLY_LOG_ERROR, tally_log_event("cannot join the replicas"),
                  tally_log_problem(&err));
        return false;
    }
    replicas->self.number = number;
    coordinator->view.number = number;
    coordinator->workers->sessions.home = number;
    tally_log(TALLY_LOG_INFO, tally_log_event("joined the replicas"),
              tally_log_text("replica", replicas->self.id),
              tally_log_text("address", replicas->self.address),
              tally_log_integer("number", number));
    return true;
}

/* Renews our lease and reads the directory. False if the store failed. */
static bool renew(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    struct tally_error err = TALLY_ERROR_INIT;
    const int64_t began_ms = tally_monotonic_ms();
    check_lease(coordinator);
    describe_self(coordinator, &replicas->self);
    replicas->next.n = 0;
    const enum tally_status status =
        replicas->leases->renew(coordinator->store, &replicas->self, add_replica, replicas, &err);
    transaction_note_store(coordinator->transaction, &err);
    if (status != TALLY_OK) {
        replicas->counts.failed_heartbeats++;
        /* While the store is unavailable, warns until we step down. Another process with our name
         * is always an error. */
        tally_log(status == TALLY_FAILED_PRECONDITION ? TALLY_LOG_ERROR
                  : replicas->is_down                 ? TALLY_LOG_DEBUG
                                                      : TALLY_LOG_WARN,
                  tally_log_event("heartbeat failed"), tally_log_problem(&err));
        return false;
    }
    coordinator->view.serves_until_ms = began_ms + coordinator->config.lease_ms;
    const int64_t next_beat_ms = began_ms + coordinator->config.lease_ms / BEATS_PER_LEASE;
    if (replicas->next_beat_ms > next_beat_ms) { /* delayed by failed heartbeats */
        replicas->next_beat_ms = next_beat_ms;
    }
    turn_directory(coordinator);
    coordinator->jobs->match_due |= coordinator->view.has_held_back;
    coordinator->view.has_held_back = false;
    drop_lost_jobs(coordinator);
    if (replicas->is_down) {
        replicas->is_down = false;
        coordinator->jobs->match_due = true;
        tally_log(TALLY_LOG_INFO, tally_log_event("stepping up"),
                  tally_log_integer("jobs", coordinator->jobs->n),
                  tally_log_integer("replicas", (int64_t)replicas->directory.n));
    }
    return true;
}

void replicas_recount(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    if (replicas != NULL && replicas->self.number != 0 && !replicas->has_left) {
        (void)renew(coordinator);
    }
}

/* ---- Taking over ---- */

/* Loads a job that this replica leads now. False = must be tried again. Reads its row again: after
 * an earlier failure, another replica may have led the job and given it back. */
static bool load_taken(struct tally_coordinator *coordinator, struct tally_store_job *row)
{
    struct replicas *replicas = coordinator->replicas;
    struct tally_error err = TALLY_ERROR_INIT;
    struct hosted_job *hosted = jobs_find(coordinator, row->id);
    if (!replicas->leases->holds(coordinator->store, row->key)) {
        return true; /* another replica leads it already */
    }
    if (hosted != NULL) { /* another replica led it for a while */
        hosted->needs_reload = coordinator->jobs->reload_due = true;
        hosted_job_mark_active(hosted);
        return true;
    }
    enum tally_status status =
        coordinator->store->ops->job_get(coordinator->store, row->id, row, &err);
    if (status == TALLY_OK && tally_job_status_is_terminal(row->status)) {
        return true; /* another replica has led it to its end */
    }
    if (status == TALLY_OK) {
        status = jobs_load(coordinator, row, "job taken over", &err);
    }
    if (status != TALLY_OK) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("job cannot be taken over yet"),
                  tally_log_text("job", row->id), tally_log_problem(&err));
        return false;
    }
    hosted = jobs_find(coordinator, row->id);
    if (hosted != NULL) {
        replicas->counts.jobs_taken++;
    }
    return true;
}

static void take_over(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status =
        replicas->leases->take(coordinator->store, jobs_collect_row, &replicas->taken, &err);
    if (status != TALLY_OK) {
        transaction_note_store(coordinator->transaction, &err);
        tally_log(TALLY_LOG_WARN, tally_log_event("cannot look for jobs to take over"),
                  tally_log_problem(&err));
    }
    size_t n_left = 0;
    for (size_t i = 0; i < replicas->taken.n; i++) {
        struct tally_store_job *row = &replicas->taken.rows[i];
        if (n_left > 0 || !load_taken(coordinator, row)) {
            replicas->taken.rows[n_left++] = *row;
        }
    }
    replicas->taken.n = n_left;
}

/* ---- The heartbeat ---- */

/* Delays the next heartbeat after a failed one. A store that does not respond must not take all of
 * the loop's time, and heartbeats must resume soon once the store is back. */
static void pause_beats(struct tally_coordinator *coordinator, int64_t began_ms)
{
    const int64_t lease_ms = coordinator->config.lease_ms;
    const int64_t after_ms = tally_monotonic_ms(), took_ms = after_ms - began_ms;
    coordinator->replicas->next_beat_ms =
        after_ms + lease_ms / BEATS_PER_LEASE + (2 * took_ms < lease_ms ? 2 * took_ms : lease_ms);
}

void replicas_step(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct replicas *replicas = coordinator->replicas;
    if (replicas == NULL || replicas->has_left) {
        return;
    }
    check_lease(coordinator);
    if (now_ms < replicas->next_beat_ms) {
        return;
    }
    replicas->next_beat_ms = now_ms + coordinator->config.lease_ms / BEATS_PER_LEASE;
    const bool alive = join(coordinator) && renew(coordinator);
    if (alive && !coordinator->draining) {
        take_over(coordinator);
        give_away(coordinator, now_ms);
        refresh_view(coordinator);
    }
    if (!alive) {
        pause_beats(coordinator, now_ms);
    }
}

void replicas_leave(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    struct tally_error err = TALLY_ERROR_INIT;
    if (replicas == NULL || replicas->has_left || replicas->self.number == 0) {
        return;
    }
    replicas->has_left = true;
    coordinator->view.serves_until_ms = 0;
    if (replicas->leases->leave(coordinator->store, &err) != TALLY_OK) {
        tally_log(TALLY_LOG_WARN, tally_log_event("leases not released; they will expire"),
                  tally_log_problem(&err));
    }
    tally_log(TALLY_LOG_INFO, tally_log_event("left the replicas"),
              tally_log_integer("jobs", coordinator->jobs->n));
    while (coordinator->jobs->first != NULL) {
        jobs_remove(coordinator, &coordinator->jobs->first);
    }
}

/* ---- Moves queued jobs, stuck jobs and idle workers to replicas where they help more
 * (replicas_placement.h). */

enum {
    PATIENCE_BEATS = 6,      /* how long workers must be wanted before we give more */
    STUCK_BEATS = 24,        /* how long a job must lack workers before it moves */
    SETTLE_MS = 10000,       /* how long an arrived job stays here before it is given away */
    CHEAP_PREPARE_MS = 2000, /* if f(x*) took longer, it is not solved again elsewhere */
    MAX_GIVEN_JOBS = 64,     /* per heartbeat: each is a commit */
    MAX_GIVEN_WORKERS = 512  /* per heartbeat: each joins again */
};

/* Gives a job away and logs `event`, the reason; false on failure. */
static bool give_job(struct tally_coordinator *coordinator, struct hosted_job **at,
                     struct tally_replica *taker, struct tally_log_pair event)
{
    struct replicas *replicas = coordinator->replicas;
    struct hosted_job *job = *at;
    struct tally_error err = TALLY_ERROR_INIT;
    if (replicas->leases->give(coordinator->store, job->row.key, taker->number, &err) != TALLY_OK) {
        tally_log(TALLY_LOG_WARN, tally_log_event("job not given to another replica"),
                  tally_log_text("job", job->row.id), tally_log_problem(&err));
        return false; /* the next heartbeat shows which replica leads it */
    }
    tally_log(TALLY_LOG_INFO, event, tally_log_text("job", job->row.id),
              tally_log_text("replica", taker->id), tally_log_integer("clients", job->row.clients));
    replicas->counts.jobs_given++;
    taker->jobs++;
    send_away_workers(coordinator, job);
    jobs_remove(coordinator, at);
    return true;
}

static bool may_be_given(const struct hosted_job *job, int64_t now_ms)
{
    const int64_t solving_ms = job->prepared                ? job->prepare_took_ms
                               : job->prepare_began_ms == 0 ? 0
                                                            : now_ms - job->prepare_began_ms;
    return job->row.status == TALLY_JOB_QUEUED &&
           tally_job_status(job->engine) == TALLY_JOB_QUEUED && !job->needs_reload &&
           job->prepare_error.status == TALLY_OK && solving_ms <= CHEAP_PREPARE_MS &&
           (job->arrived_ms == 0 || now_ms - job->arrived_ms >= SETTLE_MS);
}

/* Gives queued jobs for which the slots here do not suffice to a replica with enough. */
static void give_jobs(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct replicas *replicas = coordinator->replicas;
    int64_t n_free = coordinator->workers->sessions.n_free;
    int n_given = 0;
    struct hosted_job **at = &coordinator->jobs->first;
    while (*at != NULL && n_given < MAX_GIVEN_JOBS) {
        struct hosted_job *job = *at;
        const int64_t clients = job->row.clients;
        const bool is_queued = tally_job_status(job->engine) == TALLY_JOB_QUEUED;
        if (is_queued && n_free >= clients &&
            workers_count_free_slots(coordinator, job) >= clients) {
            n_free -= clients; /* it starts here as soon as f(x*) is known */
        } else if (is_queued && may_be_given(job, now_ms)) {
            struct tally_replica *taker =
                placement_taker(&replicas->directory, job->row.key, clients);
            if (taker != NULL) {
                if (!give_job(coordinator, at, taker,
                              tally_log_event("job given to a replica with free slots"))) {
                    return;
                }
                taker->free_slots -= clients;
                n_given++;
                continue;
            }
        }
        at = &job->next;
    }
}

/* The lowest live replica that leads jobs and has a lower number than this one; NULL = none. The
 * directory is in order of numbers. */
static struct tally_replica *find_lower_leader(const struct replicas *replicas)
{
    for (size_t i = 0; i < replicas->directory.n; i++) {
        struct tally_replica *replica = &replicas->directory.replicas[i];
        if (replica->number < replicas->self.number && replica->is_alive && replica->jobs > 0) {
            return replica;
        }
    }
    return NULL;
}

/* Jobs at different replicas may each lack clients forever, although together their workers are
 * enough for one of them. So a job that stays stuck moves to the lowest replica that leads jobs,
 * and its workers follow it. There the oldest stuck job borrows the slots of the others
 * (workers_matching.h). */
static void gather_stuck_jobs(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    struct hosted_job **at = &coordinator->jobs->first;
    while (*at != NULL && (tally_job_status((*at)->engine) != TALLY_JOB_RUNNING ||
                           (*at)->needs_reload || !hosted_job_is_stuck(*at))) {
        at = &(*at)->next;
    }
    const int64_t key = *at != NULL ? (*at)->row.key : 0;
    replicas->n_beats_stuck = key == replicas->stuck_key ? replicas->n_beats_stuck + 1 : 0;
    replicas->stuck_key = key;
    struct tally_replica *taker = find_lower_leader(replicas);
    if (key != 0 && taker != NULL && replicas->n_beats_stuck >= STUCK_BEATS) {
        replicas->n_beats_stuck = 0;
        (void)give_job(coordinator, at, taker,
                       tally_log_event("job given to a replica that may lack workers as well"));
    }
}

/* Counts for how many heartbeats the same job has most needed workers of other replicas. */
static int64_t count_patience(struct replicas *replicas)
{
    const struct tally_replica *neediest = placement_neediest(&replicas->directory, 0);
    const int64_t key = neediest != NULL ? neediest->wants_key : 0;
    replicas->n_beats_needed = key == replicas->neediest_key ? replicas->n_beats_needed + 1 : 0;
    replicas->neediest_key = key;
    return replicas->n_beats_needed;
}

/* Sends idle workers to where they are needed: they join again, and replicas_home() tells them
 * where. */
static void give_workers(struct tally_coordinator *coordinator)
{
    struct replicas *replicas = coordinator->replicas;
    const bool alone = count_patience(replicas) >= PATIENCE_BEATS;
    const int64_t share =
        placement_share(&replicas->directory, workers_find_next_to_start(coordinator), alone);
    struct session *idle[MAX_GIVEN_WORKERS];
    int64_t slots[MAX_GIVEN_WORKERS];
    bool picked[MAX_GIVEN_WORKERS];
    size_t n = 0;
    for (struct session *s = coordinator->workers->sessions.first;
         share > 0 && s != NULL && n < MAX_GIVEN_WORKERS; s = s->next) {
        if (s->n_assignments == 0 && s->pinned_job[0] == '\0') {
            slots[n] = s->n_slots;
            idle[n++] = s;
        }
    }
    placement_pick(slots, n, share, picked);
    for (size_t i = 0; i < n; i++) {
        if (picked[i]) {
            tally_log(TALLY_LOG_INFO, tally_log_event("worker sent to another replica"),
                      tally_log_text("worker", idle[i]->name),
                      tally_log_integer("slots", idle[i]->n_slots));
            replicas->counts.workers_given++;
            workers_end_session(coordinator, idle[i]);
        }
    }
}

static void give_away(struct tally_coordinator *coordinator, int64_t now_ms)
{
    give_jobs(coordinator, now_ms);
    gather_stuck_jobs(coordinator);
    give_workers(coordinator);
}

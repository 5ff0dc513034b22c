/* replicas_giving: moves queued jobs, stuck jobs and idle workers to replicas where they help more
 * (replicas_placement.h). */
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/replicas_internal.h"
#include "services/coordinator/rooms.h"
#include "services/coordinator/workers.h"
#include "services/coordinator/workers_assignment.h"

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
    remove_job(coordinator, at);
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
        if (is_queued && n_free >= clients && count_free_slots(coordinator, job) >= clients) {
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
        placement_share(&replicas->directory, find_next_to_start(coordinator), alone);
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
            end_session(coordinator, idle[i]);
        }
    }
}

void give_away(struct tally_coordinator *coordinator, int64_t now_ms)
{
    give_jobs(coordinator, now_ms);
    gather_stuck_jobs(coordinator);
    give_workers(coordinator);
}

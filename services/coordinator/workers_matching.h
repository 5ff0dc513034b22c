/* workers_matching: which queued job starts, which waits for slots, and which stuck job gets the
 * slots of the others. Pure: counts in, a decision out.
 *
 * Vacant clients of started jobs are filled first, oldest job first. If that leaves several of them
 * short, the oldest that can be filled gets the others' slots (match_can_borrow): jobs that started
 * when there were more workers may each lack slots forever, although their slots together are
 * enough for one of them. Then queued jobs start in order of age as soon as there are slots for the
 * clients of a round (match_queued): without cohorts, for all clients of the job. If the workers
 * that are present could fill a queued job once the progressing jobs have ended, younger jobs may
 * not take slots that it needs. This does not hold for a job that they could not fill because there
 * are too few workers, or because a paused or stuck job keeps them. Memory follows the same rule.
 *
 *     slots       free 3, of progressing jobs 5, of a paused job 8
 *     job 1       16 clients    MATCH_PASS: 3 + 5 slots will never be enough
 *     job 2        8 clients    MATCH_WAIT: 3 + 5 will be
 *     job 3        2 clients    not examined: it would take slots from job 2 */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_MATCHING_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_MATCHING_H

#include <stdbool.h>
#include <stdint.h>

/* A queued job. */
struct match_job {
    bool is_prepared;      /* it lacks only slots and memory to start */
    bool is_unsolved;      /* its f(x*) must be solved, and solving has not begun */
    bool has_memory;       /* for its next step: solving or starting */
    bool will_have_memory; /* once the jobs that progress have ended */
    int64_t needed;        /* slots, to start */
    int64_t n_free;        /* slots that it could have now */
    int64_t n_coming;      /* n_free, and the slots of jobs that progress */
};

enum match {
    MATCH_START,
    MATCH_PASS, /* younger jobs may start */
    MATCH_WAIT  /* no younger job overtakes it */
};

/* Whether the job needs slots or memory now, that is, does not wait only for its f(x*). */
bool match_is_candidate(const struct match_job *job);
/* Precondition: match_is_candidate(). */
enum match match_queued(const struct match_job *job);

/* How many slots other replicas should send for a queued job: what it needs to start at once if the
 * others have that many free, else what it will still lack once the progressing jobs here have
 * ended. 0 or less = none. */
int64_t match_lacking(const struct match_job *job, int64_t n_free_elsewhere);

/* Whether a stuck job that lacks n_lacking slots can be filled from the other stuck jobs.
 * n_elsewhere: clients of those jobs at unbound workers; n_refused: how many of them are at workers
 * that refuse the job. */
bool match_can_borrow(int64_t n_lacking, int64_t n_elsewhere, int64_t n_refused);

#endif

/* jobs_live: the jobs that this coordinator has loaded: queued, running and paused ones, oldest
 * first, and those that have just ended. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_LIVE_H
#define TALLY_SERVICES_COORDINATOR_JOBS_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "services/coordinator/hosted_job.h"
#include "services/coordinator/jobs_ended.h"
#include "services/coordinator/jobs_memory.h"
#include "storage/store.h"

enum { JOB_BUCKETS = 1024 }; /* of ids; a power of two */

struct call;
struct preparer;
struct tally_coordinator;

/* What the modules above do when a job changes. All are required. */
struct jobs_ops {
    void (*added)(struct tally_coordinator *coordinator, struct hosted_job *job);
    /* It leaves the list and will be freed: nothing may point to it any more. */
    void (*removing)(struct tally_coordinator *coordinator, struct hosted_job *job);
    /* Its workers may have a task, or nothing to wait for any more. */
    void (*ready)(struct tally_coordinator *coordinator, struct hosted_job *job);
    /* It has ended: the last chance to count its bytes. */
    void (*ending)(struct tally_coordinator *coordinator, struct hosted_job *job);
    /* It has ended, in the store as well. */
    void (*ended)(struct tally_coordinator *coordinator, const struct tally_store_job *row);
    /* An ended job is deleted, by the open transaction or an earlier one: drops everything kept
     * about the job outside the store. */
    void (*deleted)(struct tally_coordinator *coordinator, const struct tally_store_job *row);
    /* Whether the store says that this replica leads the job. */
    bool (*leads)(struct tally_coordinator *coordinator, const struct hosted_job *job);
    /* Runs the handler of a call again that has been held. */
    void (*run_again)(struct tally_coordinator *coordinator, struct call *call);
};

/* Progress of jobs_delete_expired() (jobs_lifecycle.h). */
struct retention {
    int64_t before_key; /* 0 = starts again with the newest job */
    int64_t n_kept;     /* ended jobs that it has passed */
    int64_t now_ms;     /* Unix time without the clock's latest jump forward; 0 = not yet known */
    int64_t ahead_ms;   /* by how much that is ahead of the monotonic clock */
    int64_t jumped_ms;  /* monotonic; when the jump was noticed; 0 = there was none */
};

struct live_jobs {
    const struct jobs_ops *ops;
    struct hosted_job *first, **last; /* oldest first */
    struct hosted_job *by_id[JOB_BUCKETS];
    int64_t n;
    int64_t n_removed; /* jobs that have left the live ones */
    struct job_marks marks;
    struct ended_jobs ended; /* receipts */
    struct retention retention;
    struct preparer *preparer;
    struct jobs_memory_use memory; /* as of the last start of jobs */
    struct hosted_job *unsolved;   /* no older job waits for f(x*) to be solved; NULL = none does */
    struct tally_list prepared;    /* jobs prepared in this turn; they may start */
    bool has_unprepared;           /* jobs that cannot be prepared have not failed yet */
    int64_t next_deadline_ms;      /* Unix time; no job's own deadline is earlier */
    bool lacks_memory;             /* some queued job waited for memory when last looked at */
    bool match_due;                /* sessions or jobs came or went: look for jobs to start */
    bool match_failed;             /* a start was not stored: look again in a second */
    bool reload_due;               /* some jobs must be reloaded, while no transaction is open */
};

/* Sets coordinator->jobs. Errors: NO_MEMORY (also: no thread can be started). */
enum tally_status live_jobs_new(struct tally_coordinator *coordinator, const struct jobs_ops *ops,
                                struct tally_error *err);
/* NULL is allowed. */
void live_jobs_free(struct live_jobs *jobs);

struct hosted_job *jobs_find(const struct tally_coordinator *coordinator, const char *id);
/* Notes the job's own deadline, if it has one. */
void jobs_note_deadline(struct live_jobs *jobs, const struct hosted_job *job);
/* Adds a loaded job to the live ones. */
void jobs_add(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Takes the jobs that merely wait in the queue out of the active ones. */
void jobs_prune_active(struct live_jobs *jobs);
/* Takes a job out of the list and frees it; the store keeps it. */
void jobs_remove(struct tally_coordinator *coordinator, struct hosted_job **at);

/* ---- Reading the store ---- */

/* Rows of jobs, collected in a walk; free(rows). */
struct job_rows {
    struct tally_store_job *rows;
    size_t n, capacity;
};
enum tally_status jobs_collect_row(void *rows, const struct tally_store_job *row,
                                   struct tally_error *err);
/* Loads all live jobs of a store that only this process uses. Errors: STORE, NO_MEMORY. */
enum tally_status jobs_load_all(struct tally_coordinator *coordinator, struct tally_error *err);
/* Loads a live job and adds it, or ends it if it is damaged. `event` is for the log. No transaction
 * may be open. Errors: STORE, NO_MEMORY. */
enum tally_status jobs_load(struct tally_coordinator *coordinator, struct tally_store_job *row,
                            const char *event, struct tally_error *err);
/* Reads the row of a job, live or not. Errors: NOT_FOUND, STORE. */
enum tally_status jobs_read_row(struct tally_coordinator *coordinator, const char *id,
                                struct tally_store_job *ret_row, struct tally_error *err);
/* As jobs_read_row(), and appends the job's document. Errors: NOT_FOUND, STORE. */
enum tally_status jobs_read(struct tally_coordinator *coordinator, const char *id,
                            struct tally_store_job *ret_row, struct tally_buffer *document,
                            struct tally_error *err);
/* Whether the job is live and led by another replica. Errors: NOT_FOUND, STORE. */
enum tally_status jobs_is_live_elsewhere(struct tally_coordinator *coordinator, const char *job_id,
                                         bool *ret_is_elsewhere, struct tally_error *err);
/* As transaction_check(), for a write of one job. Such a write may have read a damaged row of the
 * job, and would find it again for ever: with DATA_LOSS the job ends when it is reloaded. */
enum tally_status jobs_check_write(struct tally_coordinator *coordinator, struct hosted_job *job,
                                   enum tally_status status, const struct tally_error *err);
/* Ends a job that cannot be loaded; `row` is as stored. No transaction may be open. */
enum tally_status jobs_end_damaged_row(struct tally_store *store, struct tally_store_job *row,
                                       const struct tally_error *why, struct tally_error *err);

#endif

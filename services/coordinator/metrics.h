/* metrics: the response to GET /metrics, for Prometheus.
 *
 * This module only reads: one thread, plain numbers, no locks. The numbers of the process
 * (requests, updates, commits, workers) are counted where they happen, in struct call_counts,
 * transaction_counts, worker_counts and replica_counts, and begin at zero with the process. The
 * numbers of a job (regret, bits, rounds) come from its row as stored. They are never ahead of a
 * commit, so they never decrease and are the same after a restart. /metrics is a read, so it runs
 * after the step's commit; a job whose commit failed is left out until it has been reloaded.
 *
 * Cardinality is bounded: routes are those of the table, statuses those we send, and at most
 * METRICS_MAX_JOBS jobs have series of their own: first running and paused ones, then those that
 * ended less than `--metrics-keep-s` ago, then queued ones; among equals the newest.
 *
 * If several coordinators share a store, each shows the jobs that it leads and, until it restarts,
 * those that ended in it. So a job is in the /metrics of one of them, and sums over all of them
 * count nothing twice. */
#ifndef TALLY_SERVICES_COORDINATOR_METRICS_H
#define TALLY_SERVICES_COORDINATOR_METRICS_H

#include <stdint.h>

#include "services/coordinator/calls.h"
#include "services/coordinator/metrics_exposition.h"
#include "storage/store.h"

struct tally_coordinator;

/* Limits of the jobs with series and of the ended jobs that are remembered. Beyond the latter, the
 * jobs that ended first are forgotten early. */
enum { METRICS_MAX_JOBS = 200, METRICS_MAX_ENDED = 1000 };

/* A job that is no longer live. Its last counters are read from the store when they are first
 * needed: by then they are committed. */
struct ended_row {
    bool is_loaded; /* the whole row has been read; else only id, status and finished_ms */
    struct tally_store_job row;
};

struct metrics {
    int64_t started_ms; /* Unix time */
    uint64_t jobs_ended[TALLY_N_JOB_STATUS];
    uint64_t failed_reads;   /* of rows of ended jobs */
    struct ended_row *ended; /* ring, oldest first */
    int first_ended, n_ended;
    int next_checked; /* the next one to look up in a shared store: another replica may delete it */
};

/* Sets coordinator->metrics. If no other process uses the store, also reads from it which jobs
 * ended recently. Errors: STORE. */
enum tally_status metrics_new(struct tally_coordinator *coordinator, struct tally_error *err);
/* NULL is allowed. */
void metrics_free(struct metrics *metrics);
/* To be called when a job has reached its last status, in the store as well. */
void metrics_end_job(struct metrics *metrics, const struct tally_store_job *row);

/* Drops the series of a deleted job. */
void metrics_forget_job(struct metrics *metrics, int64_t key);

handler_fn rest_get_metrics;

#endif

/* worker: joins a coordinator, polls for tasks, computes its clients' messages and posts them.
 *
 * It survives the coordinator: it retries lost connections with growing pauses, joins again after a
 * lost session, and repeats a message whose outcome is unknown with the same bytes. */
#ifndef TALLY_SERVICES_WORKER_WORKER_H
#define TALLY_SERVICES_WORKER_WORKER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/ledger.h"
#include "services/plugins/plugin_set.h"

/* How a worker is asked to stop, and how it sleeps until then. A worker does not handle the signals
 * of its process. */
struct worker_stop {
    const volatile sig_atomic_t *flag; /* not 0: stop; checked often, from the worker's thread */
    bool (*wait)(void *context, int timeout_ms); /* sleeps; true, at once, when asked to stop */
    void *context;
};

struct worker_config {
    const char *coordinator_url;
    const char *token; /* bearer token; NULL = none */
    const char
        *token_file;    /* the token's file, read again when the token is refused; NULL = none */
    const char *tls_ca; /* file of trusted authorities; NULL = the system's */
    const char *name;
    uint32_t slots;
    const char *job_id;                     /* the only job to serve; NULL = any */
    const char *data_dir;                   /* where the files of job documents are */
    const struct tally_plugin_set *plugins; /* NULL = none */
    const char *environment; /* as tally_environment_json(), as text; NULL = that of this process */
    uint32_t wait_ms;        /* of a poll for work, or less if the coordinator says so */
    bool exit_when_idle;
    int64_t give_up_after_ms; /* without a coordinator, or without a task; 0 = never */
    struct worker_stop stop;
};

/* The worker's own counts, to be compared with the coordinator's. */
struct worker_totals {
    struct tally_bits uplink; /* acknowledged messages */
    uint64_t rounds;          /* tasks done */
    uint64_t wire_out_bytes, wire_in_bytes;
};

/* Works until it is asked to stop, then finishes what it is posting and leaves; or until job_id has
 * ended; or until there is nothing to do, with exit_when_idle. Errors: those that a retry cannot
 * fix: INVALID_ARGUMENT, UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND (there is no job job_id),
 * FAILED_PRECONDITION (this worker cannot serve job_id), DATA_LOSS (wrong points, or bits
 * that the coordinator counts differently), NO_MEMORY; and DEADLINE once give_up_after_ms have
 * passed. Several workers may run in one process, each in a thread of its own. */
enum tally_status worker_run(const struct worker_config *config, struct worker_totals *ret_totals,
                             struct tally_error *err);

#endif

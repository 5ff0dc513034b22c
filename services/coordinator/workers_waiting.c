/* workers_waiting: what a job waits for, in words that say what to do about it. */
#include "services/coordinator/workers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"

enum { NAMES_IN_TEXT = 3 };

/* Appends to the human-readable text as much as fits. */
__attribute__((format(printf, 2, 3))) static void add_text(struct tally_waiting *waiting,
                                                           const char *format, ...)
{
    const size_t at = strlen(waiting->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(waiting->text + at, sizeof waiting->text - at, format, arguments);
    va_end(arguments);
}

/* Names the newest worker that has refused the job, with its reason, and counts the others. If
 * there is none and no worker here can serve the job, names the last one that lacked the plug-in.
 */
static void add_refusals(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                         const char *before, const char *after, struct tally_waiting *waiting)
{
    int64_t n = 0;
    const struct refusal *newest = job->supply.refusals;
    for (const struct refusal *r = newest; r != NULL; r = r->next_of_job) {
        newest = r->session->number > newest->session->number ? r : newest;
        n++;
    }
    if (n == 1) {
        add_text(waiting, "%sworker %s cannot serve it: %s%s", before, newest->session->name,
                 newest->reason, after);
    } else if (n > 1) {
        add_text(waiting, "%sworker %s cannot serve it: %s; nor can %lld other%s%s", before,
                 newest->session->name, newest->reason, (long long)n - 1, n > 2 ? "s" : "", after);
    } else if (job->absence.worker[0] != '\0' && !workers_can_be_served(coordinator, job)) {
        add_text(waiting, "%sworker %s could not serve it: %s%s", before, job->absence.worker,
                 job->absence.reason, after);
    }
}

static void wait_for_workers(const struct tally_coordinator *coordinator,
                             const struct hosted_job *job, struct tally_waiting *waiting)
{
    const int64_t n_free = workers_count_free_slots(coordinator, job);
    const int64_t needed = hosted_job_n_lacking(job);
    waiting->what = TALLY_WAITS_FOR_WORKERS;
    add_refusals(coordinator, job, "", "; ", waiting);
    if (workers_lacks_start(job)) {
        const struct session *session = workers_find_start(coordinator, job);
        if (session != NULL) {
            add_text(waiting, "waits for the initial point of worker %s; ", session->name);
        } else {
            add_text(waiting, "waits for a worker that offers an initial point (plug-in %s); ",
                     job->spec.objective.plugin.name);
        }
    }
    if (job->start_read_ms != 0) {
        add_text(waiting, "waits for file %s to be read; ", job->spec.initial_point.file);
    }
    add_text(waiting, "waits for %lld client%s, %lld slot%s free", (long long)needed,
             needed == 1 ? "" : "s", (long long)n_free, n_free == 1 ? " is" : "s are");
    if (coordinator->view.is_shared) {
        add_text(waiting, " at this coordinator, %lld at others",
                 (long long)coordinator->view.n_free_slots);
    }
    if (n_free >= needed) {
        add_text(waiting, ", but %s",
                 coordinator->draining ? "the coordinator is shutting down"
                                       : "an older job goes first");
    }
}

/* Adds a name unless it is listed already. */
static void add_worker(struct tally_waiting *waiting, const char *name)
{
    for (int i = 0; i < waiting->n_workers; i++) {
        if (strcmp(waiting->workers[i], name) == 0) {
            return;
        }
    }
    if (name[0] != '\0' && waiting->n_workers < TALLY_WAITING_WORKERS) {
        snprintf(waiting->workers[waiting->n_workers++], sizeof waiting->workers[0], "%s", name);
    }
}

/* " (worker-3, worker-17, ...)" */
static void add_names(struct tally_waiting *waiting)
{
    for (int i = 0; i < waiting->n_workers && i <= NAMES_IN_TEXT; i++) {
        add_text(waiting, "%s%s", i == 0 ? " (" : ", ",
                 i < NAMES_IN_TEXT ? waiting->workers[i] : "...");
    }
    add_text(waiting, "%s", waiting->n_workers > 0 ? ")" : "");
}

static void add_vacant(int64_t n_vacant, struct tally_waiting *waiting)
{
    if (n_vacant > 0 && n_vacant < waiting->n_clients) {
        add_text(waiting, "; %lld of them have no worker", (long long)n_vacant);
    } else if (n_vacant > 0) {
        add_text(waiting, "; %s no worker", n_vacant == 1 ? "it has" : "they have");
    }
}

/* How far a message between the session and this coordinator has got, if one takes a while. If
 * nothing has moved for long, the link may be broken. The worker may also have read the message,
 * and says nothing while it computes. Workers speak four times per session timeout while bytes
 * move. */
static void add_motion(const struct tally_coordinator *coordinator, struct session *session,
                       uint32_t client, int64_t now_ms, struct tally_waiting *waiting)
{
    struct tally_http_motion motion;
    if (session->poll.request != NULL || !session_motion(session, now_ms, &motion) ||
        motion.quiet_ms > coordinator->config.session_timeout_ms / 2) {
        return;
    }
    if (session->n_assignments == 1) {
        add_text(waiting, "; client %u", client);
    } else {
        add_text(waiting, "; worker %s", session->name);
    }
    add_text(waiting, motion.is_upload ? " is sending" : " is receiving");
    if (motion.n_whole > 0) {
        const double share = (double)motion.n / (double)motion.n_whole;
        add_text(waiting, ", %d %%", (int)(share < 0.99 ? 100 * share : 99));
    }
    if (!motion.is_upload && session->sent.n > 1) {
        add_text(waiting, ", attempt %lld", (long long)session->sent.n);
    }
}

/* Does so for the first few workers whose clients the round waits for. */
static void add_motions(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                        int64_t now_ms, struct tally_waiting *waiting)
{
    const struct session *seen[NAMES_IN_TEXT];
    int n_seen = 0;
    uint32_t n_cohort;
    const uint32_t *cohort = tally_job_cohort(job->engine, &n_cohort);
    for (uint32_t i = 0; i < n_cohort && n_seen < NAMES_IN_TEXT; i++) {
        struct session *session = job->slots[cohort[i]].session;
        bool is_seen = session == NULL || !tally_job_awaits(job->engine, cohort[i]);
        for (int j = 0; j < n_seen; j++) {
            is_seen = is_seen || seen[j] == session;
        }
        if (!is_seen) {
            seen[n_seen++] = session;
            add_motion(coordinator, session, cohort[i], now_ms, waiting);
        }
    }
}

/* Returns false if the round waits for no client. A refusal explains why clients have no worker, so
 * it comes first. */
static bool wait_for_clients(const struct tally_coordinator *coordinator,
                             const struct hosted_job *job, int64_t now_ms,
                             struct tally_waiting *waiting)
{
    const struct tally_job_round *round = tally_job_open_round(job->engine);
    int64_t n_vacant = 0, n_setbacks = 0;
    waiting->what = TALLY_WAITS_FOR_CLIENTS;
    uint32_t n_cohort;
    const uint32_t *cohort = tally_job_cohort(job->engine, &n_cohort);
    for (uint32_t i = 0; i < n_cohort; i++) {
        if (tally_job_awaits(job->engine, cohort[i])) {
            const struct client_slot *slot = &job->slots[cohort[i]];
            waiting->n_clients++;
            n_vacant += slot->session == NULL;
            n_setbacks += tally_job_n_setbacks(job->engine, cohort[i]);
            add_worker(waiting, slot->session != NULL ? slot->session->name : slot->previous);
        }
    }
    if (waiting->n_clients == 0) {
        return false;
    }
    tally_job_list_awaited(job->engine, waiting->clients);
    if (n_vacant > 0) {
        add_refusals(coordinator, job, "", "; ", waiting);
    }
    add_text(waiting, "waits for client%s %s", waiting->n_clients == 1 ? "" : "s",
             waiting->clients);
    add_names(waiting);
    if (tally_job_round_only_evaluates(round)) {
        add_text(waiting, " to evaluate the last model");
    } else if (round->surveys) {
        add_text(waiting, " to survey their points: %lld of %lld have", (long long)round->received,
                 (long long)job->row.clients);
    } else {
        add_text(waiting, ": round %lld has %lld of %lld answers", (long long)round->round,
                 (long long)round->received, (long long)tally_job_spec_answers(&job->spec));
    }
    if (n_setbacks > 0) {
        add_text(waiting, ", after a failure: %s", tally_job_progress(job->engine)->setback);
    }
    if (job->spec.policy == TALLY_POLICY_DROP && !round->surveys &&
        round->received < job->spec.quorum) {
        add_text(waiting, ", the quorum is %lld", (long long)job->spec.quorum);
    }
    if (round->overdue) {
        add_text(waiting, ", its deadline of %lld ms has passed",
                 (long long)job->spec.round_deadline_ms);
    }
    add_vacant(n_vacant, waiting);
    add_motions(coordinator, job, now_ms, waiting);
    if (n_vacant == 0) {
        add_refusals(coordinator, job, "; ", "", waiting);
    }
    return true;
}

static bool wait_for_store(const struct tally_coordinator *coordinator,
                           struct tally_waiting *waiting)
{
    waiting->what = TALLY_WAITS_FOR_STORE;
    if (coordinator->transaction->error.status != TALLY_OK) {
        waiting->since_ms = coordinator->transaction->failed_ms;
        add_text(waiting, "waits for the store, which cannot be written: %s",
                 coordinator->transaction->error.message);
    } else {
        add_text(waiting, "waits to be read back from the store");
    }
    return true;
}

/* A running job. */
static bool wait_in_round(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                          int64_t now_ms, struct tally_waiting *waiting)
{
    const int64_t open_ms = now_ms - job->round_opened_ms;
    if (coordinator->transaction->error.status !=
        TALLY_OK) { /* not even updates that have arrived can be accepted */
        return wait_for_store(coordinator, waiting);
    }
    const bool is_stalled =
        open_ms >= WAITING_AFTER_MS || job->deadline_noted ||
        (job->absence.worker[0] != '\0' && !workers_can_be_served(coordinator, job));
    return is_stalled && wait_for_clients(coordinator, job, now_ms, waiting);
}

/* A queued job that needs memory to solve f(x*) or to start, or a job that lacks the memory to be
 * read back from the store. */
static void wait_for_memory(const struct jobs_memory_use *use, const struct hosted_job *job,
                            struct tally_waiting *waiting)
{
    const int64_t needed = job->lacks_memory ? job->started_bytes : jobs_memory_needed(job);
    const int64_t n_free = use->limit - use->held;
    waiting->what = TALLY_WAITS_FOR_MEMORY;
    add_text(waiting, "waits for memory: it needs %lld bytes%s", (long long)needed,
             job->lacks_memory ? " to be read back from the store, and the system refused them"
             : job->prepared   ? ""
                               : " to solve f(x*)");
    if (!job->lacks_memory) {
        add_text(waiting, ", and %lld of %lld (--max-job-bytes) are free",
                 (long long)(n_free > 0 ? n_free : 0), (long long)use->limit);
    }
}

/* A queued job that needs more than the limit, which was lowered after its submission. */
static void wait_for_limit(const struct tally_error *too_large, struct tally_waiting *waiting)
{
    waiting->what = TALLY_WAITS_FOR_MEMORY;
    add_text(waiting,
             "waits for memory: %s (%s); it starts once the coordinator is restarted with a higher "
             "limit",
             too_large->message, too_large->field);
}

/* What a queued job waits for: f(x*), memory, or workers. */
static void wait_to_start(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                          struct tally_waiting *waiting)
{
    const struct jobs_memory_use *use = &coordinator->jobs->memory;
    const bool is_unsolved = jobs_memory_is_unsolved(job);
    struct tally_error too_large = TALLY_ERROR_INIT;
    if (jobs_memory_check(coordinator, &job->spec, &too_large) != TALLY_OK) {
        wait_for_limit(&too_large, waiting);
    } else if ((job->prepared || is_unsolved) && !jobs_memory_is_free(use, job)) {
        wait_for_memory(use, job, waiting);
    } else if (!job->prepared) {
        waiting->what = TALLY_WAITS_FOR_REFERENCE;
        add_text(waiting, is_unsolved ? "waits for f(x*), which will be computed"
                                      : "waits for f(x*), which is being computed");
    } else {
        wait_for_workers(coordinator, job, waiting);
    }
}

bool workers_job_waiting(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                         int64_t now_ms, struct tally_waiting *ret_waiting)
{
    struct tally_waiting *waiting = ret_waiting;
    memset(waiting, 0, sizeof *waiting);
    waiting->since_ms = job->waits_since_ms;
    bool waits = true;
    const bool is_to_fail = job->row.status == TALLY_JOB_QUEUED && /* failure not stored yet */
                            job->prepare_error.status != TALLY_OK;
    if (job->lacks_memory) {
        wait_for_memory(&coordinator->jobs->memory, job, waiting);
    } else if (job->needs_reload || is_to_fail) {
        wait_for_store(coordinator, waiting);
    } else if (job->row.status == TALLY_JOB_PAUSED) {
        waiting->what = TALLY_WAITS_FOR_RESUME;
        add_text(waiting, "is paused and waits to be resumed");
    } else if (job->row.status == TALLY_JOB_RUNNING) {
        waits = wait_in_round(coordinator, job, now_ms, waiting);
    } else if (job->row.status != TALLY_JOB_QUEUED) {
        waits = false;
    } else {
        wait_to_start(coordinator, job, waiting);
    }
    waiting->text[tally_utf8_valid_prefix(waiting->text, strlen(waiting->text))] = '\0';
    return waits;
}

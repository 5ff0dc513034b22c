/* workers_initial: asks a worker for the point from which a job of initial_point `first` starts.
 *
 * A job that could start, but for its point, has one session asked: of those whose workers offer a
 * start for the job's plug-in, the one that joined first, if possible one without clients. The
 * session's poll gets a task that `wants_start`; the point comes as an update of round 0. It stays
 * in memory until the job starts, which is at once, and is stored with the start. If the session
 * ends, or its worker refuses the job, the next one is asked. A session is asked again with every
 * poll until it answers, because the response to its last poll may be lost. */
#include "services/coordinator/workers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/session.h"

bool workers_lacks_start(const struct hosted_job *job)
{
    return job->spec.initial_point.type == TALLY_INITIAL_FIRST && job->start == NULL &&
           tally_job_status(job->engine) == TALLY_JOB_QUEUED;
}

/* Whether the worker offers a start for the job's plug-in. */
static bool offers(const struct session *session, const struct hosted_job *job)
{
    const char *name = job->spec.objective.plugin.name;
    const size_t n = strlen(name);
    const char *at = session->starts;
    while (at != NULL && (strncmp(at, name, n) != 0 || (at[n] != ' ' && at[n] != '\0'))) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at != NULL;
}

struct session *workers_find_start(const struct tally_coordinator *coordinator,
                                   const struct hosted_job *job)
{
    struct session *found = session_by_id(&coordinator->workers->sessions, job->asked_session);
    if (found != NULL && session_serves(found, job)) {
        return found;
    }
    found = NULL;
    for (struct session *s = coordinator->workers->sessions.first; s != NULL; s = s->next) {
        const bool is_better = found == NULL || found->n_assignments > 0 || s->n_assignments == 0;
        found = is_better && offers(s, job) && session_serves(s, job) ? s : found;
    }
    return found;
}

bool workers_ask_start(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct session *session = workers_find_start(coordinator, job);
    if (session == NULL) {
        return false;
    }
    job->asked_session = session->id;
    memcpy(session->asked_job, job->row.id, sizeof session->asked_job);
    workers_mark_ready(coordinator, session);
    return session->n_assignments == 0;
}

struct hosted_job *workers_find_question(struct tally_coordinator *coordinator,
                                         struct session *session)
{
    struct hosted_job *job =
        session->asked_job[0] != '\0' ? jobs_find(coordinator, session->asked_job) : NULL;
    if (job == NULL || job->asked_session != session->id || !workers_lacks_start(job) ||
        !session_serves(session, job)) {
        session->asked_job[0] = '\0';
        return NULL;
    }
    return job->needs_reload ? NULL : job;
}

void workers_make_question(const struct hosted_job *job, struct tally_poll_response *ret_response)
{
    memset(ret_response, 0, sizeof *ret_response);
    ret_response->kind = TALLY_POLL_TASK;
    struct tally_task *task = &ret_response->task;
    memcpy(task->job_id, job->row.id, sizeof task->job_id);
    task->job_document = (struct tally_bytes){job->document.data, job->document.size};
    task->wants_start = true;
}

bool workers_is_asked(const struct session *session, const struct hosted_job *job, uint32_t round)
{
    return round == 0 && job->asked_session == session->id;
}

/* Reads float32 values into a new double[dim]. */
static enum tally_status read_start(const struct tally_update *update, size_t dim, double **ret_x,
                                    struct tally_error *err)
{
    if (update->payload.size != dim * sizeof(float) ||
        update->payload_bits != 8 * (uint64_t)update->payload.size) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "an initial point of %zu bytes and %llu bits, not %zu float32",
                          update->payload.size, (unsigned long long)update->payload_bits, dim);
    }
    double *x = malloc(dim * sizeof *x);
    if (x == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point of dim %zu", dim);
    }
    for (size_t i = 0; i < dim; i++) {
        float value;
        memcpy(&value, update->payload.data + i * sizeof value, sizeof value);
        if (!isfinite(value)) {
            free(x);
            return tally_fail(err, TALLY_MALFORMED, "payload",
                              "coordinate %zu of the initial point is %s", i,
                              isnan(value) ? "NaN" : "infinite");
        }
        x[i] = (double)value;
    }
    *ret_x = x;
    return TALLY_OK;
}

enum tally_status workers_take_start(struct tally_coordinator *coordinator, struct session *session,
                                     struct hosted_job *job, const struct tally_update *update,
                                     bool *ret_is_repeated, struct tally_error *err)
{
    *ret_is_repeated = !workers_lacks_start(job);
    if (*ret_is_repeated) { /* the response to it was lost */
        return TALLY_OK;
    }
    enum tally_status status = read_start(update, (size_t)job->row.dim, &job->start, err);
    if (status == TALLY_OK) {
        session->asked_job[0] = '\0';
        job->recovery_bits += update->payload_bits;
        coordinator->jobs->match_due = true;
        tally_log(TALLY_LOG_INFO, tally_log_event("worker offered the initial point"),
                  tally_log_text("worker", session->name), tally_log_text("job", job->row.id));
    }
    return status;
}

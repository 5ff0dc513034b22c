/* job_stragglers: clients that do not answer, and how the job's policy treats them. */
#include "services/job/job_engine.h"

void tally_job_set_absent(struct tally_job *job, uint32_t client, bool absent,
                          struct tally_job_outcome *ret_outcome)
{
    *ret_outcome = (struct tally_job_outcome){0};
    if (job_is_open(job)) {
        job_clients_set_absent(&job->clients, client, absent, job->open.round);
        job_check_invariants(job);
        job_close_if_complete(job, ret_outcome);
    }
}

static void fail_without_quorum(struct tally_job *job)
{
    char missing[TALLY_MISSING_CAPACITY];
    tally_job_list_missing(job, missing);
    TALLY_REASON_WRITE(job->reason, QUORUM_MISSED, (long long)job->open.round,
                       (long long)job->open.received, (long long)tally_job_spec_answers(&job->spec),
                       (long long)job->spec.round_deadline_ms, (long long)job->spec.quorum,
                       missing);
    job_move(job, TALLY_EVENT_FAIL, NULL);
}

enum tally_status tally_job_overdue(struct tally_job *job, struct tally_job_outcome *ret_outcome,
                                    struct tally_error *err)
{
    *ret_outcome = (struct tally_job_outcome){0};
    if (job->status != TALLY_JOB_RUNNING) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "the job is %s",
                          tally_job_status_name(job->status));
    }
    if (job->open.surveys) { /* which needs all clients */
        return TALLY_OK;
    }
    job->open.overdue = true;
    if (job->spec.policy == TALLY_POLICY_WAIT) {
        return TALLY_OK;
    }
    if (tally_job_round_only_evaluates(&job->open)) {
        job_close_if_complete(job, ret_outcome);
        return TALLY_OK;
    }
    if (job->spec.policy == TALLY_POLICY_FAIL && job->open.received < job->spec.quorum) {
        fail_without_quorum(job);
        return TALLY_OK;
    }
    for (uint32_t i = 0; i < job->clients.cohort.n; i++) {
        const uint32_t client = job->clients.cohort.drawn[i];
        if (!tally_job_has_received(job, client)) {
            job_clients_set_absent(&job->clients, client, true, job->open.round);
        }
    }
    job_close_if_complete(job, ret_outcome);
    return TALLY_OK;
}

bool tally_job_asks(const struct tally_job *job, uint32_t client)
{
    return tally_job_is_drawn(job, client) && !tally_job_has_received(job, client) &&
           (job->clients.n_awaited == 0 || !job_clients_sits_out(&job->clients, client));
}

int tally_job_n_setbacks(const struct tally_job *job, uint32_t client)
{
    return tally_job_is_drawn(job, client) ? job_clients_n_setbacks(&job->clients, client) : 0;
}

enum tally_status tally_job_take_setback(struct tally_job *job, uint32_t client, const char *why,
                                         struct tally_job_outcome *ret_outcome,
                                         struct tally_error *err)
{
    *ret_outcome = (struct tally_job_outcome){0};
    if (client >= job->clients.n) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "client", "client %u outside [0, %u]", client,
                          job->clients.n - 1);
    }
    if (!job_is_open(job) || !tally_job_is_drawn(job, client) ||
        tally_job_has_received(job, client)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "client",
                          "client %u has nothing to compute in round %lld", client,
                          (long long)job->open.round);
    }
    job_note_setback(job, why);
    const bool drops = job->spec.policy == TALLY_POLICY_DROP && !job->open.surveys;
    if (job_clients_set_back(&job->clients, client, drops) > TALLY_RETRIES_MOST) {
        TALLY_REASON_WRITE(job->reason, CLIENT_FAILED, client, (unsigned)job->open.round, why);
        job_move(job, TALLY_EVENT_FAIL, NULL);
        return TALLY_OK;
    }
    job_check_invariants(job);
    job_close_if_complete(job, ret_outcome);
    return TALLY_OK;
}

bool tally_job_has_received(const struct tally_job *job, uint32_t client)
{
    return job_clients_has_answered(&job->clients, client, job->open.round);
}

bool tally_job_is_absent(const struct tally_job *job, uint32_t client)
{
    return job_has_started(job) && job->clients.all[client].absent;
}

void tally_job_list_missing(const struct tally_job *job, char ret_text[TALLY_MISSING_CAPACITY])
{
    job_clients_list(&job->clients, job->open.round, false, ret_text);
}

static bool skips_absent(const struct tally_job *job)
{
    return job->spec.policy == TALLY_POLICY_DROP && !job->open.surveys;
}

bool tally_job_awaits(const struct tally_job *job, uint32_t client)
{
    return job_clients_lacks(&job->clients, client, job->open.round, skips_absent(job));
}

void tally_job_list_awaited(const struct tally_job *job, char ret_text[TALLY_MISSING_CAPACITY])
{
    job_clients_list(&job->clients, job->open.round, skips_absent(job), ret_text);
}

#include "services/job/local.h"

#include "services/job/replica.h"

enum tally_status tally_local_reference(const struct tally_job_spec *spec,
                                        const struct tally_objective *objective, double *ret_f_star,
                                        struct tally_error *err)
{
    if (spec->reference.type == TALLY_REFERENCE_VALUE) {
        *ret_f_star = spec->reference.value;
        return TALLY_OK;
    }
    return tally_objective_minimum(objective, ret_f_star, NULL, err);
}

/* Brings the replica to the engine's point. */
static enum tally_status follow(const struct tally_job *job, struct tally_replica *replica,
                                struct tally_error *err)
{
    int64_t iterate = tally_job_progress(job)->iterate;
    if (tally_replica_iterate(replica) == iterate) {
        return TALLY_OK;
    }
    struct tally_message_view view = tally_message_view(tally_job_broadcast(job, iterate));
    enum tally_status status = tally_replica_apply(replica, iterate, &view, err);
    if (status == TALLY_OK &&
        tally_replica_checksum(replica) != tally_job_progress(job)->x_checksum) {
        status = tally_fail(err, TALLY_INTERNAL, NULL, "server and client disagree about x");
    }
    return status;
}

/* One round: every client computes and sends. */
static enum tally_status run_round(struct tally_job *job, struct tally_replica *replica,
                                   struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    const struct tally_job_round round = *tally_job_open_round(job);
    const uint32_t clients = (uint32_t)tally_job_get_spec(job)->clients;
    enum tally_status status = follow(job, replica, err);
    for (uint32_t m = 0; status == TALLY_OK && m < clients; m++) {
        struct tally_job_update update;
        struct tally_bits bits;
        status = tally_replica_compute(replica, &round, m, &update, &bits, err);
        if (status == TALLY_OK) {
            status = tally_job_receive(job, &update, ret_outcome, err);
        }
    }
    return status;
}

static enum tally_status run_rounds(struct tally_job *job, struct tally_replica *replica,
                                    tally_local_round_fn *each, void *context,
                                    struct tally_error *err)
{
    while (tally_job_status(job) == TALLY_JOB_RUNNING) {
        struct tally_job_outcome outcome = {0};
        enum tally_status status = run_round(job, replica, &outcome, err);
        if (status == TALLY_NOT_FINITE) {
            /* As in the service, where a worker that reports this fails the job. */
            tally_job_fail(job, err != NULL ? err->message : "the iterates diverged", NULL);
            tally_error_clear(err);
            return TALLY_OK;
        }
        if (status != TALLY_OK) {
            return status;
        }
        for (int i = 0; each != NULL && i < outcome.n_records; i++) {
            if (!each(context, job, &outcome.records[i])) {
                return tally_fail(err, TALLY_CANCELLED, NULL, "stopped at time step %lld",
                                  (long long)tally_job_progress(job)->time_step);
            }
        }
    }
    return TALLY_OK;
}

enum tally_status tally_local_run(const struct tally_job_spec *spec, tally_local_round_fn *each,
                                  void *context, struct tally_job **ret_job,
                                  struct tally_error *err)
{
    struct tally_objective *objective = NULL;
    struct tally_replica *replica = NULL;
    struct tally_job *job = NULL;
    double f_star;
    enum tally_status status =
        tally_objective_new(&spec->objective, (uint32_t)spec->clients,
                            tally_job_spec_setting(spec).key, &objective, err);
    if (status == TALLY_OK) {
        status = tally_local_reference(spec, objective, &f_star, err);
    }
    if (status == TALLY_OK) {
        status = tally_replica_new(spec, objective, &replica, err);
    }
    if (status == TALLY_OK) {
        status = tally_job_new(spec, &job, err);
    }
    if (status == TALLY_OK) {
        status = tally_job_start(job, f_star, err);
    }
    if (status == TALLY_OK) {
        status = run_rounds(job, replica, each, context, err);
    }
    if (status == TALLY_OK) {
        *ret_job = job;
        job = NULL;
    }
    tally_job_free(job);
    tally_replica_free(replica);
    tally_objective_free(objective);
    return status;
}

/* job_in_store: a running job "j" in a store, with its engine and a model copy for its clients. */
#ifndef TALLY_TESTS_UNIT_SERVICES_COORDINATOR_JOB_IN_STORE_H
#define TALLY_TESTS_UNIT_SERVICES_COORDINATOR_JOB_IN_STORE_H

#include <stdbool.h>

#include "services/coordinator/hosted_job.h"
#include "services/job/model_copy.h"

struct job_in_store {
    struct tally_store *store;
    struct hosted_job *job;
    struct tally_objective *objective;
    struct tally_model_copy *model;
    struct tally_error err;
    struct tally_update last; /* the model owns its payload until the next update */
};

/* A job of one client whose point is so long that rounds store only changes of the state. */
struct tally_job_spec job_in_store_spec(void);

/* Inserts the job and starts its engine; only the row is stored so far. Takes ownership of `store`
 * (NULL = a new store in memory). job: NULL = job_in_store_spec(). */
void job_in_store_init(struct job_in_store *host, struct tally_store *store,
                       const struct tally_job_spec *job);
void job_in_store_fini(struct job_in_store *host);

/* Loads the job from the store; the caller frees it. */
struct hosted_job *job_in_store_load(struct job_in_store *host);
/* Computes the client's update for the open round and passes it to the engine. */
void job_in_store_receive(struct job_in_store *host, uint32_t client,
                          struct tally_job_outcome *ret_outcome);
/* Runs a round and leaves its writes in an open transaction. Returns whether a broadcast closed the
 * round. */
bool job_in_store_write_round(struct job_in_store *host);

#endif

/* provenance: with which programs and data a job was run, as stored with it.
 *
 * The rows stand among the updates, under TALLY_STORE_PROVENANCE_ROUND. Each is written once, in
 * the transaction of the round from which it holds: for the coordinator that starts the job, and
 * for one that is another program, or runs on another machine, than the last before it, in the
 * first round that it closes. So an upgrade in the middle of a job shows. */
#ifndef TALLY_SERVICES_COORDINATOR_PROVENANCE_H
#define TALLY_SERVICES_COORDINATOR_PROVENANCE_H

#include "services/coordinator/hosted_job.h"

enum {
    PROVENANCE_MOST_COORDINATORS = 16, /* later ones are not recorded */
};

/* Records this coordinator, unless the last one recorded is the same; in an open transaction, with
 * what round `round` has changed. */
enum tally_status provenance_put(struct tally_store *store, struct hosted_job *job,
                                 const char *environment, int64_t round, struct tally_error *err);

/* Adds the member `provenance` to the detail of a job with this document: null if nothing is
 * recorded. Errors: those of the store, NO_MEMORY. */
enum tally_status provenance_add(struct tally_store *store, const struct tally_store_job *row,
                                 const struct tally_buffer *document, struct tally_json *detail,
                                 struct tally_error *err);

#endif

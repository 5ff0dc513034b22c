/* provenance: with which programs and data a job was run, as stored with it.
 *
 * The rows stand among the updates, under TALLY_STORE_PROVENANCE_ROUND. Those of coordinators come
 * first. Each is written once, in the transaction of the round from which it holds: for the
 * coordinator that starts the job, and for one that is another program, or runs on another machine,
 * than the last before it, in the first round that it closes. So an upgrade in the middle of a job
 * shows.
 *
 * Then come the origins of updates: what workers have said of themselves. Workers that say the same
 * share a row.
 *
 * A job that was imported (jobs_import.h) has the rows that it had where it ran, and one more,
 * about the import. */
#ifndef TALLY_SERVICES_COORDINATOR_PROVENANCE_H
#define TALLY_SERVICES_COORDINATOR_PROVENANCE_H

#include "services/coordinator/hosted_job.h"

enum {
    PROVENANCE_MOST_COORDINATORS = 16, /* later ones are not recorded */
    PROVENANCE_MOST_ORIGINS = 64,      /* nor are later ones of these */
    PROVENANCE_IMPORT = PROVENANCE_MOST_COORDINATORS + PROVENANCE_MOST_ORIGINS, /* the row of it */
    PROVENANCE_MOST_ROWS
};

/* Records this coordinator, unless the last one recorded is the same; in an open transaction, with
 * what round `round` has changed. */
enum tally_status provenance_put(struct tally_store *store, struct hosted_job *job,
                                 const char *environment, int64_t round, struct tally_error *err);

/* Reads the origin of a worker's updates, a JSON object. Unknown members are dropped, and what is
 * no text becomes null. *ret_text is what provenance_put_origin() is to record; empty: it is
 * recorded, or no more are. Errors: INVALID_ARGUMENT (field `origin`), those of the store,
 * NO_MEMORY. */
enum tally_status provenance_read_origin(struct tally_store *store, struct hosted_job *job,
                                         const char *origin, struct tally_buffer *ret_text,
                                         struct tally_error *err);
/* In an open transaction. Errors: those of the store, NO_MEMORY. */
enum tally_status provenance_put_origin(struct tally_store *store, struct hosted_job *job,
                                        const struct tally_buffer *text, struct tally_error *err);

/* Forgets what is known of the store's rows; it is read again when it is needed. */
void provenance_forget(struct known_origins *origins);

/* Adds the member `provenance` to the detail of a job with this document: null if nothing is
 * recorded; and `imported`, if it was. Errors: those of the store, NO_MEMORY. */
enum tally_status provenance_add(struct tally_store *store, const struct tally_store_job *row,
                                 const struct tally_buffer *document, struct tally_json *detail,
                                 struct tally_error *err);

/* ---- The provenance of an imported job. */

struct provenance_rows {
    struct tally_buffer texts[PROVENANCE_MOST_ROWS]; /* empty = there is no such row */
};
/* Reads the members `provenance` and, unless it is NULL, `imported` of a detail. Call fini also
 * after an error. Errors: INVALID_ARGUMENT, with the field (it is not what provenance_add() makes
 * for this document), NO_MEMORY. */
enum tally_status provenance_rows_read(const struct tally_json *provenance,
                                       const struct tally_json *imported, const void *document,
                                       size_t n_document, struct provenance_rows *ret_rows,
                                       struct tally_error *err);
void provenance_rows_fini(struct provenance_rows *rows);
/* In an open transaction. Errors: those of the store. */
enum tally_status provenance_rows_put(struct tally_store *store, int64_t job_key,
                                      const struct provenance_rows *rows, struct tally_error *err);

#endif

/* import: filling an empty store with the jobs of another one, for `tally migrate` (migrate.h).
 *
 * Meant for a store that several processes can reach. From begin() until end() it is marked: no
 * coordinator opens it, so that half of a store is never served. A process that is killed in
 * between leaves the mark, and the next begin() goes on. One process fills it at a time: it has the
 * right from begin() on for as long as its connection stands, and a second one waits for a moment
 * and is refused. Without the connection a migration has ended: it is not made again, and all that
 * follows fails.
 *
 * Jobs are inserted with the keys that they had, rounds, states and updates by the ordinary slots;
 * no job is led by anybody until a coordinator takes it. */
#ifndef TALLY_STORAGE_IMPORT_H
#define TALLY_STORAGE_IMPORT_H

#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"

struct tally_store;
struct tally_store_job;

enum tally_import_start {
    TALLY_IMPORT_BEGUN,    /* it was empty, and is marked now */
    TALLY_IMPORT_RESUMED,  /* it was marked, for the same source */
    TALLY_IMPORT_OCCUPIED, /* it has jobs and no mark: nothing was changed */
};

struct tally_store_import {
    /* `source` is a checksum of all that is to be copied. In a transaction of its own.
     * Errors: FAILED_PRECONDITION (it is marked for another source, a coordinator uses it, or
     * another process fills it). */
    enum tally_status (*begin)(struct tally_store *store, uint64_t source,
                               enum tally_import_start *ret_start, struct tally_error *err);
    /* As job_insert, but job->key becomes the key. Needs an open transaction. */
    enum tally_status (*job_insert)(struct tally_store *store, const struct tally_store_job *job,
                                    const char *document, size_t n_document,
                                    const char *idempotency_key, uint64_t request_digest,
                                    struct tally_error *err);
    /* Takes the mark away: the store is a whole one, and the next job gets the key after the
     * largest. In a transaction of its own. */
    enum tally_status (*end)(struct tally_store *store, struct tally_error *err);
};

#endif

/* backend: what one kind of store offers, for the table in backends.c.
 *
 * This header is for writers of backends. Programs include backends.h, which finds the
 * backend of a URI and calls these slots. A backend receives the location: the URI without its
 * scheme. A slot is NULL if this kind of store does not have the operation. */
#ifndef TALLY_STORAGE_BACKEND_H
#define TALLY_STORAGE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"

struct tally_store;
struct tally_store_options;

/* Called now and then with the current stage and its progress in some unit; total 0 = not known. If
 * it returns false, the work stops and returns CANCELLED. */
struct tally_store_progress {
    bool (*tell)(void *context, const char *what, int64_t done, int64_t total);
    void *context;
};

struct tally_store_report {
    int schema_version; /* of the database; 0 = not known to be ours */
    int64_t n_bytes;    /* of the database, log included */
    int64_t n_jobs, n_live_jobs, n_rounds, n_updates, n_models;
    int64_t n_client_rows; /* of n_updates: those that are no updates (store.h) */
};

struct tally_store_backend {
    const char *scheme; /* of its URIs, "sqlite:" */
    const char *form;   /* of its URIs, for messages: "sqlite:PATH" */
    /* A URI with one of these prefixes, such as "postgresql://", is itself a location. The list
     * ends with NULL; NULL = an empty list. */
    const char *const *whole_uris;
    /* The reason that such a store has no file, for an operator who asks for one; NULL = nothing to
     * explain. */
    const char *why_no_file;
    bool can_be_migrated; /* can be opened `exclusive` */
    bool can_be_filled;   /* can be opened `filling` */

    /* Required; tally_store_open() in backends.h. */
    enum tally_status (*open)(const char *location, const struct tally_store_options *options,
                              struct tally_store **ret_store, struct tally_error *err);
    /* tally_store_label(). NULL: the whole URI may be shown. */
    enum tally_status (*label)(const char *location, struct tally_buffer *out);
    /* tally_store_verify(). */
    enum tally_status (*verify)(const char *location, const struct tally_store_progress *progress,
                                struct tally_store_report *ret_report, struct tally_error *err);
    /* tally_store_backup(), tally_store_restore() and tally_store_owner(): all or none of them.
     * With them the location is the path of a file. */
    enum tally_status (*backup)(const char *location, const char *path, bool replace,
                                const struct tally_store_progress *progress,
                                struct tally_error *err);
    enum tally_status (*restore)(const char *location, const char *path, bool replace,
                                 const struct tally_store_progress *progress,
                                 struct tally_error *err);
    enum tally_status (*owner)(const char *location, int64_t *ret_process, struct tally_error *err);
};

#endif

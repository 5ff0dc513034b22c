#include "storage/store.h"

#include <string.h>

/* The part of `uri` after `scheme`, or NULL if it has another scheme. */
static const char *after_scheme(const char *uri, const char *scheme)
{
    size_t n = strlen(scheme);
    return strncmp(uri, scheme, n) == 0 ? uri + n : NULL;
}

/* What libpq is given: the whole of a URL of its own, or what follows "postgres:"; else NULL. */
static const char *conninfo_of(const char *uri)
{
    const char *rest = after_scheme(uri, "postgres:");
    return after_scheme(uri, "postgres://") != NULL || after_scheme(uri, "postgresql://") != NULL
               ? uri
               : rest;
}

enum tally_status tally_store_label(const char *uri, struct tally_buffer *out)
{
    const char *conninfo = conninfo_of(uri);
    if (conninfo != NULL) {
        return tally_store_postgres_label(conninfo, out);
    }
    /* A URL of a scheme that is not ours may hold a password too. */
    const char *authority = after_scheme(uri, "sqlite:") == NULL ? strstr(uri, "://") : NULL;
    enum tally_status status =
        tally_buffer_append(out, uri, authority != NULL ? (size_t)(authority - uri) : strlen(uri));
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
}

/* No backend has this URI. */
static enum tally_status fail_scheme(const char *uri, struct tally_error *err)
{
    struct tally_buffer label = {0};
    bool is_there = tally_store_label(uri, &label) == TALLY_OK;
    enum tally_status status =
        tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                   "store \"%s\" is neither \"sqlite:PATH\", \"postgres:CONNINFO\" nor \"memory:\"",
                   is_there ? (const char *)label.data : "");
    tally_buffer_fini(&label);
    return status;
}

enum tally_status tally_store_open(const char *uri, const struct tally_store_options *options,
                                   struct tally_store **ret_store, struct tally_error *err)
{
    const char *path = after_scheme(uri, "sqlite:");
    if (path != NULL) {
        return tally_store_sqlite_open(path, options, ret_store, err);
    }
    const char *conninfo = conninfo_of(uri);
    if (conninfo != NULL) {
        return tally_store_postgres_open(conninfo, options, ret_store, err);
    }
    const char *rest = after_scheme(uri, "memory:");
    if (rest != NULL && rest[0] == '\0') {
        return tally_store_memory_open(ret_store, err);
    }
    if (rest != NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "store \"%s\": nothing may follow \"memory:\"", uri);
    }
    return fail_scheme(uri, err);
}

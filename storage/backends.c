#include "storage/backends.h"

#include <stdio.h>
#include <string.h>

#include "storage/postgres/postgres.h"
#include "storage/sqlite/sqlite.h"

/* Every kind of store. To add one, add its folder and a row here. */
static const struct tally_store_backend *const BACKENDS[] = {
    &TALLY_SQLITE_BACKEND,
    &TALLY_POSTGRES_BACKEND,
    &TALLY_MEMORY_BACKEND,
};
enum { N_BACKENDS = sizeof BACKENDS / sizeof BACKENDS[0] };

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

const struct tally_store_backend *tally_store_backend_of(const char *uri, const char **ret_location)
{
    for (int i = 0; i < N_BACKENDS; i++) {
        const char *const *whole = BACKENDS[i]->whole_uris;
        while (whole != NULL && *whole != NULL && !starts_with(uri, *whole)) {
            whole++;
        }
        const bool is_whole = whole != NULL && *whole != NULL;
        if (is_whole || starts_with(uri, BACKENDS[i]->scheme)) {
            *ret_location = is_whole ? uri : uri + strlen(BACKENDS[i]->scheme);
            return BACKENDS[i];
        }
    }
    return NULL;
}

enum tally_status tally_store_label(const char *uri, struct tally_buffer *out)
{
    const char *location = NULL;
    const struct tally_store_backend *backend = tally_store_backend_of(uri, &location);
    if (backend != NULL && backend->label != NULL) {
        return backend->label(location, out);
    }
    /* A URL with an unknown scheme may contain a password as well. */
    const char *authority = backend == NULL ? strstr(uri, "://") : NULL;
    enum tally_status status =
        tally_buffer_append(out, uri, authority != NULL ? (size_t)(authority - uri) : strlen(uri));
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
}

/* Reports INVALID_ARGUMENT: "store "LABEL" PROBLEM". */
static enum tally_status fail_uri(const char *uri, const char *problem, struct tally_error *err)
{
    struct tally_buffer label = {0};
    const bool has_label = tally_store_label(uri, &label) == TALLY_OK;
    enum tally_status status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "store \"%s\" %s",
                                          has_label ? (const char *)label.data : "", problem);
    tally_buffer_fini(&label);
    return status;
}

enum tally_status tally_store_open(const char *uri, const struct tally_store_options *options,
                                   struct tally_store **ret_store, struct tally_error *err)
{
    const char *location = NULL;
    const struct tally_store_backend *backend = tally_store_backend_of(uri, &location);
    if (backend != NULL) {
        return backend->open(location, options, ret_store, err);
    }
    char forms[128] = "";
    size_t n = 0;
    for (int i = 0; i < N_BACKENDS && n < sizeof forms; i++) {
        n += (size_t)snprintf(forms + n, sizeof forms - n, "%s\"%s\"",
                              i > 0 ? ", " : "is not one of ", BACKENDS[i]->form);
    }
    return fail_uri(uri, forms, err);
}

/* Finds the backend of `uri`, whose stores must be files, and the path of this one. */
static enum tally_status find_file(const char *uri, const struct tally_store_backend **ret_backend,
                                   const char **ret_path, struct tally_error *err)
{
    const char *location = NULL;
    const struct tally_store_backend *backend = tally_store_backend_of(uri, &location);
    if (backend != NULL && backend->why_no_file != NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%s", backend->why_no_file);
    }
    if (backend == NULL || backend->backup == NULL || location[0] == '\0') {
        return fail_uri(uri, "has no file; \"sqlite:PATH\" has one", err);
    }
    *ret_backend = backend;
    *ret_path = location;
    return TALLY_OK;
}

enum tally_status tally_store_path(const char *uri, const char **ret_path, struct tally_error *err)
{
    const struct tally_store_backend *backend = NULL;
    return find_file(uri, &backend, ret_path, err);
}

enum tally_status tally_store_verify(const char *uri, const struct tally_store_progress *progress,
                                     struct tally_store_report *ret_report, struct tally_error *err)
{
    const char *location = NULL;
    const struct tally_store_backend *backend = tally_store_backend_of(uri, &location);
    enum tally_status status = TALLY_OK;
    if (backend == NULL || backend->verify == NULL || location[0] == '\0') {
        status = find_file(uri, &backend, &location, err);
    }
    return status == TALLY_OK ? backend->verify(location, progress, ret_report, err) : status;
}

enum tally_status tally_store_backup(const char *uri, const char *path, bool replace,
                                     const struct tally_store_progress *progress,
                                     struct tally_error *err)
{
    const struct tally_store_backend *backend = NULL;
    const char *from = NULL;
    enum tally_status status = find_file(uri, &backend, &from, err);
    return status == TALLY_OK ? backend->backup(from, path, replace, progress, err) : status;
}

enum tally_status tally_store_restore(const char *uri, const char *path, bool replace,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err)
{
    const struct tally_store_backend *backend = NULL;
    const char *to = NULL;
    enum tally_status status = find_file(uri, &backend, &to, err);
    return status == TALLY_OK ? backend->restore(to, path, replace, progress, err) : status;
}

enum tally_status tally_store_owner(const char *uri, int64_t *ret_process, struct tally_error *err)
{
    const struct tally_store_backend *backend = NULL;
    const char *path = NULL;
    enum tally_status status = find_file(uri, &backend, &path, err);
    return status == TALLY_OK ? backend->owner(path, ret_process, err) : status;
}

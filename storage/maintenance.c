#include "storage/maintenance.h"

#include <string.h>

#include "storage/postgres/postgres_maintenance.h"
#include "storage/sqlite/sqlite_maintenance.h"
#include "storage/store.h"

/* What follows "postgres:", NULL for another kind of store. */
static const char *conninfo_of(const char *uri)
{
    static const char SCHEME[] = "postgres:";
    return strncmp(uri, SCHEME, sizeof SCHEME - 1) == 0 ? uri + sizeof SCHEME - 1 : NULL;
}

enum tally_status tally_store_path(const char *uri, const char **ret_path, struct tally_error *err)
{
    static const char SCHEME[] = "sqlite:";
    if (conninfo_of(uri) != NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "a PostgreSQL database has no file of ours; use PostgreSQL's own tools, "
                          "pg_dump and pg_restore");
    }
    if (strncmp(uri, SCHEME, sizeof SCHEME - 1) != 0 || uri[sizeof SCHEME - 1] == '\0') {
        struct tally_buffer label = {0};
        bool is_there = tally_store_label(uri, &label) == TALLY_OK;
        enum tally_status status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                                              "store \"%s\" has no file; \"sqlite:PATH\" has one",
                                              is_there ? (const char *)label.data : "");
        tally_buffer_fini(&label);
        return status;
    }
    *ret_path = uri + sizeof SCHEME - 1;
    return TALLY_OK;
}

enum tally_status tally_store_verify(const char *uri, const struct tally_store_progress *progress,
                                     struct tally_store_report *ret_report, struct tally_error *err)
{
    const char *conninfo = conninfo_of(uri);
    if (conninfo != NULL) {
        return tally_postgres_verify(conninfo, progress, ret_report, err);
    }
    const char *path = NULL;
    enum tally_status status = tally_store_path(uri, &path, err);
    return status == TALLY_OK ? tally_sqlite_verify(path, progress, ret_report, err) : status;
}

enum tally_status tally_store_backup(const char *uri, const char *path, bool replace,
                                     const struct tally_store_progress *progress,
                                     struct tally_error *err)
{
    const char *from = NULL;
    enum tally_status status = tally_store_path(uri, &from, err);
    return status == TALLY_OK ? tally_sqlite_backup(from, path, replace, progress, err) : status;
}

enum tally_status tally_store_restore(const char *uri, const char *path, bool replace,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err)
{
    const char *to = NULL;
    enum tally_status status = tally_store_path(uri, &to, err);
    return status == TALLY_OK ? tally_sqlite_restore(to, path, replace, progress, err) : status;
}

enum tally_status tally_store_owner(const char *uri, int64_t *ret_process, struct tally_error *err)
{
    const char *path = NULL;
    enum tally_status status = tally_store_path(uri, &path, err);
    return status == TALLY_OK ? tally_sqlite_owner(path, ret_process, err) : status;
}

/* sqlite_maintenance: maintenance.h for the SQLite backend; paths instead of URIs. */
#ifndef TALLY_STORAGE_SQLITE_SQLITE_MAINTENANCE_H
#define TALLY_STORAGE_SQLITE_SQLITE_MAINTENANCE_H

#include "storage/maintenance.h"

enum tally_status tally_sqlite_verify(const char *path, const struct tally_store_progress *progress,
                                      struct tally_store_report *ret_report,
                                      struct tally_error *err);
enum tally_status tally_sqlite_backup(const char *from, const char *to, bool replace,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err);
enum tally_status tally_sqlite_restore(const char *to, const char *from, bool replace,
                                       const struct tally_store_progress *progress,
                                       struct tally_error *err);
enum tally_status tally_sqlite_owner(const char *path, int64_t *ret_process,
                                     struct tally_error *err);

#endif

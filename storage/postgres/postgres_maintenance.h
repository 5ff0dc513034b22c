/* postgres_maintenance: maintenance.h for the PostgreSQL backend; what follows "postgres:" instead
 * of URIs. */
#ifndef TALLY_STORAGE_POSTGRES_POSTGRES_MAINTENANCE_H
#define TALLY_STORAGE_POSTGRES_POSTGRES_MAINTENANCE_H

#include "storage/maintenance.h"

enum tally_status tally_postgres_verify(const char *conninfo,
                                        const struct tally_store_progress *progress,
                                        struct tally_store_report *ret_report,
                                        struct tally_error *err);

#endif

/* postgres: the store of several coordinators, a PostgreSQL database ("postgres:CONNINFO").
 *
 * CONNINFO is whatever libpq takes, a URL or "host=... dbname=...". It may contain a password, so
 * no message quotes it. */
#ifndef TALLY_STORAGE_POSTGRES_POSTGRES_H
#define TALLY_STORAGE_POSTGRES_POSTGRES_H

#include "storage/backend.h"

extern const struct tally_store_backend TALLY_POSTGRES_BACKEND;

#endif

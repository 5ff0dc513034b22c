/* sqlite: the default store, one file ("sqlite:PATH"), and the same in memory ("memory:"). */
#ifndef TALLY_STORAGE_SQLITE_SQLITE_H
#define TALLY_STORAGE_SQLITE_SQLITE_H

#include "storage/backend.h"

extern const struct tally_store_backend TALLY_SQLITE_BACKEND;
extern const struct tally_store_backend TALLY_MEMORY_BACKEND;

#endif

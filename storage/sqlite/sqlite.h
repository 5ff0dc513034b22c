/* sqlite: the default store, one file ("sqlite:PATH"). */
#ifndef TALLY_STORAGE_SQLITE_SQLITE_H
#define TALLY_STORAGE_SQLITE_SQLITE_H

#include "storage/backend.h"

extern const struct tally_store_backend TALLY_SQLITE_BACKEND;

#endif

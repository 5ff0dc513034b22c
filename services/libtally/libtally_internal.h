/* libtally_internal: what the files of libtally share. */
#ifndef TALLY_SERVICES_LIBTALLY_LIBTALLY_INTERNAL_H
#define TALLY_SERVICES_LIBTALLY_LIBTALLY_INTERNAL_H

#include "codec/error.h"
#include "services/libtally/tally.h"

/* The code of a status; unless it is OK, fills *failure, which may be NULL, with the error. */
enum tally_code tally_failure_of(enum tally_status status, const struct tally_error *err,
                                 struct tally_failure *failure);

#endif

/* rest_imports: POST /v1/jobs/import: a bundle becomes a job (jobs_import.h). A thread reads the
 * bundle; meanwhile the call is held, and its handler then runs again and stores the job. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_IMPORTS_H
#define TALLY_SERVICES_COORDINATOR_REST_IMPORTS_H

#include "services/coordinator/calls.h"

struct imports;

/* In progress or waiting: each holds a copy of its bundle, and what was read from it. */
enum { MAX_IMPORTS = 4 };

struct imports *imports_new(void);
/* Frees all imports and the calls that they hold. NULL is allowed. */
void imports_free(struct tally_coordinator *coordinator);
/* To be called in every turn of the loop: runs the calls of bundles that were read again. */
void imports_serve(struct tally_coordinator *coordinator);

#endif

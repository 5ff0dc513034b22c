/* environment: what a program is and where it runs, so that a result can be told from one made
 * elsewhere. */
#ifndef TALLY_SERVICES_BASE_ENVIRONMENT_H
#define TALLY_SERVICES_BASE_ENVIRONMENT_H

#include "api/json/json.h"

/* {"version", "commit", "compiler", "libraries": {"openblas", "libc"},
 *  "machine": {"processor", "system"}}: texts, or null for what is not known; `commit` is null in a
 * program that was built outside a repository, and ends with "-dirty" if files differed from it.
 * `blas`: as tally_objective_describe_blas() gives it. The same whenever it is called on one
 * machine. NULL = out of memory. */
struct tally_json *tally_environment_json(const char *blas);

/* The provenance of a job: {"document_sha256", "coordinators"}. document: its text, as
 * GET /v1/jobs/{id}/document sends it. The list is taken, also on failure. NULL = out of memory. */
struct tally_json *tally_provenance_json(const void *document, size_t n_document,
                                         struct tally_json *coordinators);

#endif

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

/* The provenance of a job: {"document_sha256", "coordinators", "workers"}. document: its text, as
 * GET /v1/jobs/{id}/document sends it. The lists are taken, also on failure. NULL = out of
 * memory. */
struct tally_json *tally_provenance_json(const void *document, size_t n_document,
                                         struct tally_json *coordinators,
                                         struct tally_json *workers);

enum { TALLY_DIGEST_TEXT_CAPACITY = 65, TALLY_CODE_NAME_CAPACITY = 65 };

/* The code that computes the updates of a job, where that is not this program. */
struct tally_user_code {
    char name[TALLY_CODE_NAME_CAPACITY];     /* "" = this program computes them */
    char sha256[TALLY_DIGEST_TEXT_CAPACITY]; /* hexadecimal; "" = not known */
};

/* An entry of `workers`: `environment`, which is taken, also on failure, with a digest of the data
 * (0 = not known) and the code. NULL = out of memory. */
struct tally_json *tally_origin_json(struct tally_json *environment, uint64_t data,
                                     const struct tally_user_code *code);

/* The SHA-256 digest of a file of at most 256 MiB, in hexadecimal digits; "" if it cannot be
 * read. */
void tally_file_digest(const char *path, char ret_text[TALLY_DIGEST_TEXT_CAPACITY]);

#endif

/* document: the job document as JSON, to and from struct tally_job_spec. */
#ifndef TALLY_SERVICES_JOB_DOCUMENT_H
#define TALLY_SERVICES_JOB_DOCUMENT_H

#include <stddef.h>

#include "api/json/json.h"
#include "codec/error.h"
#include "services/job/job_spec.h"

/* Reads and validates n bytes of JSON: at most 1 MiB, 1,000 members and 16 levels. Errors:
 * MALFORMED (not JSON), INVALID_ARGUMENT and OUT_OF_RANGE with the path of the field in err->field
 * and its limits in the message, NO_MEMORY. */
enum tally_status tally_document_parse(const char *text, size_t n, struct tally_job_spec *ret_spec,
                                       struct tally_error *err);

/* Limits on the size and depth of a document. */
extern const struct tally_json_limits TALLY_DOCUMENT_LIMITS;
/* Top-level keys that are objects, NULL-terminated; the other keys are TALLY_JOB_FIELDS. */
extern const char *const TALLY_DOCUMENT_PARTS[];
/* Reads and completes a document over the defaults in *spec, without the rules of
 * tally_job_spec_validate(). Errors as tally_document_parse(); then *spec is partly written. */
enum tally_status tally_document_read(const struct tally_json *document,
                                      struct tally_job_spec *spec, struct tally_error *err);

/* Whether the member that a path such as "objective.data.file" names is a text, given the types of
 * the document's objects. */
bool tally_document_is_text(const struct tally_json *document, const char *path);

/* The complete document of a spec, defaults written out, so that a stored job does not change its
 * meaning when a later version changes a default. NULL if out of memory. */
struct tally_json *tally_document_of(const struct tally_job_spec *spec);

#endif

/* preview: what can be said of a job before it exists, from its document alone: the response to a
 * dry run.
 *
 *     {"document", "warnings", "expected_bits", "memory_bytes", "solving_bytes", "not_checked"}
 *
 * `document` is complete: every default is written out. `expected_bits` is
 * {"uplink_per_client", "downlink", "is_exact"}: what a baseline sends, to the bit, or the budget
 * of `calm`, an upper bound; a direction without a bound is null. It is null for `ceal`, and for
 * `calm` without a budget, whose bits depend on the run. Memory is that of footprint.h, which
 * --max-job-bytes limits. `not_checked` lists what only preparing the job can tell: it needs the
 * data. */
#ifndef TALLY_SERVICES_DOCUMENT_PREVIEW_H
#define TALLY_SERVICES_DOCUMENT_PREVIEW_H

#include "api/json/json.h"
#include "services/job/spec.h"

/* Of a valid spec. NULL = out of memory. */
struct tally_json *tally_document_preview(const struct tally_job_spec *spec);

#endif

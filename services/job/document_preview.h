/* document_preview: the response to a dry run: the facts about a job that follow from its document
 * alone.
 *
 *     {"document", "warnings", "expected_bits", "planned", "memory_bytes", "solving_bytes",
 *      "not_checked"}
 *
 * `document` is complete: every default is written out. `expected_bits` is {"uplink_per_client",
 * "downlink", "is_exact"}: exact for a baseline. For `calm` it is the budget, an upper bound; a
 * direction without a budget is null. For `ceal`, and for `calm` without a budget, `expected_bits`
 * is null, because the bits depend on the run. `planned` is as in document_planned.h, or null for a
 * job without a plan. Both numbers of bytes are estimates of job_footprint.h; --max-job-bytes
 * limits them. `not_checked` lists the checks that need the data and therefore run only when the
 * job is prepared. */
#ifndef TALLY_SERVICES_JOB_DOCUMENT_PREVIEW_H
#define TALLY_SERVICES_JOB_DOCUMENT_PREVIEW_H

#include "api/json/json.h"
#include "services/job/document_planned.h"
#include "services/job/job_spec.h"

/* Makes the preview of a valid spec. `planned` is its plan, or NULL if it has none. NULL = out of
 * memory. */
struct tally_json *tally_document_preview(const struct tally_job_spec *spec,
                                          const struct tally_planned *planned);

#endif

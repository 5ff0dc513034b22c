/* document: the job document as JSON, to and from struct tally_job_spec. */
#ifndef TALLY_SERVICES_JOB_DOCUMENT_H
#define TALLY_SERVICES_JOB_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "api/json/json.h"
#include "codec/error.h"
#include "services/algorithms/calm/calm_model.h"
#include "services/base/labels.h"
#include "services/job/job_spec.h"
#include "services/job/step_suggestion.h"

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

/* Whether the objective is of type `training`, which decides what members the algorithm has. */
bool tally_document_trains(const struct tally_json *document);

/* Keys of an algorithm's object that are not among its fields; NULL-terminated. */
const char *const *tally_document_algorithm_parts(const struct tally_algorithm *algorithm);

/* Whether models of the job are evaluated, as its document says. */
bool tally_document_evaluates(const struct tally_json *document);

/* Whether the member that a path such as "objective.data.file" names is a text, given the types of
 * the document's objects. */
bool tally_document_is_text(const struct tally_json *document, const char *path);

/* The complete document of a spec, defaults written out, so that a stored job does not change its
 * meaning when a later version changes a default. NULL if out of memory. */
struct tally_json *tally_document_of(const struct tally_job_spec *spec);

/* ---- The member `labels` of a job document. */

/* Checks that the object `labels` has at most TALLY_LABELS_MOST members. Errors: OUT_OF_RANGE. */
enum tally_status tally_document_count_labels(const struct tally_json *labels,
                                              struct tally_error *err);
/* Reads member `key` of `labels`. Errors: INVALID_ARGUMENT (not a key; a value that is not text, or
 * has control characters), OUT_OF_RANGE (a value that is too long), with field `key`. */
enum tally_status tally_document_read_label(const struct tally_json *labels, const char *key,
                                            struct tally_label *ret_label, struct tally_error *err);
/* Sets the member `labels` of `object`; adds no member if there are none. False = out of memory. */
bool tally_document_set_labels(struct tally_json *object, const char *labels);

/* ---- The predicted regret and bits of a CALM job's schedule, as JSON: the member
 * `planned` of a job's detail, and the plans of `tally plan`.
 *
 *     {"regret", "uplink_bits", "downlink_bits",
 *      "epochs": [{"samples", "uplink_resolution", "downlink_resolution", "uplink_bits",
 *                  "downlink_bits", "regret", "variance"}]}
 *
 * The sums over the job come first, then each epoch. Units are those of tally_calm_forecast
 * (services/algorithms/calm/calm_model.h). The last epoch sends nothing: its resolutions are null,
 * its bits 0. Bits are payload only, without control bits and without the part of a budget that a
 * plan leaves free. */

struct tally_planned {
    struct tally_calm_schedule schedule;
    struct tally_calm_forecast forecast;
};

/* Whether the job is planned before it starts. */
bool tally_planned_is_due(const struct tally_job_spec *spec);
/* Computes the forecast of a schedule. The job must be a CALM job with nothing to estimate. */
void tally_planned_make(const struct tally_setting *setting,
                        const struct tally_calm_schedule *schedule,
                        struct tally_planned *ret_planned);
/* Computes the forecast of a stored plan, as text (job_local.h). False if the text is not a
 * plan, or if the job has a member so large or small that the forecast is not finite. */
bool tally_planned_read(const struct tally_job_spec *spec, const char *schedule,
                        struct tally_planned *ret_planned);

/* Sets the members above in `object`. False = out of memory. */
bool tally_planned_add(struct tally_json *object, const struct tally_planned *planned);
/* Sets the member `planned` of `object` to an object with the members above, or to null if
 * `planned` is NULL. False = out of memory. */
bool tally_planned_set(struct tally_json *object, const struct tally_planned *planned);

/* ---- The response to a dry run: the facts about a job that follow from its document, and from its
 * data if they are here.
 *
 *     {"document", "warnings", "expected_bits", "planned", "suggested_step_size", "memory_bytes",
 *      "solving_bytes", "not_checked"}
 *
 * `document` is complete: every default is written out. `expected_bits` is {"uplink_per_client",
 * "downlink", "is_exact"}: exact for a baseline. For `calm` it is the budget, an upper bound; a
 * direction without a budget is null. For `ceal`, and for `calm` without a budget, `expected_bits`
 * is null, because the bits depend on the run. `planned` is as above, or null for a
 * job without a plan. Both numbers of bytes are estimates of job_footprint.h; --max-job-bytes
 * limits them. `suggested_step_size` is null without a suggestion (step_suggestion.h).
 * `not_checked` lists the checks that run only when the job is prepared. Making a suggestion reads
 * the data. So without one the list has the checks of the data files and of the step size, the
 * latter with the reason why there is no suggestion. */

/* Makes the preview of a valid spec. `planned` is its plan, or NULL if it has none; `suggestion`
 * may be NULL. NULL = out of memory. */
struct tally_json *tally_document_preview(const struct tally_job_spec *spec,
                                          const struct tally_planned *planned,
                                          const struct tally_suggestion *suggestion);

#endif

/* document_planned: the predicted regret and bits of a CALM job's schedule, as JSON: the member
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
#ifndef TALLY_SERVICES_JOB_DOCUMENT_PLANNED_H
#define TALLY_SERVICES_JOB_DOCUMENT_PLANNED_H

#include <stdbool.h>

#include "api/json/json.h"
#include "services/algorithms/calm/calm_model.h"
#include "services/job/job_spec.h"

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
/* Computes the forecast of a stored plan, as text (job/job_local.h). False if the text is not a
 * plan, or if the job has a member so large or small that the forecast is not finite. */
bool tally_planned_read(const struct tally_job_spec *spec, const char *schedule,
                        struct tally_planned *ret_planned);

/* Sets the members above in `object`. False = out of memory. */
bool tally_planned_add(struct tally_json *object, const struct tally_planned *planned);
/* Sets the member `planned` of `object` to an object with the members above, or to null if
 * `planned` is NULL. False = out of memory. */
bool tally_planned_set(struct tally_json *object, const struct tally_planned *planned);

#endif

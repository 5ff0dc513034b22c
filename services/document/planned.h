/* planned: what a CALM job expects of the schedule that it was planned as, as JSON: `planned` of a
 * job's detail, and the plans of `tally plan`.
 *
 *     {"regret", "uplink_bits", "downlink_bits",
 *      "epochs": [{"samples", "uplink_resolution", "downlink_resolution", "uplink_bits",
 *                  "downlink_bits", "regret", "variance"}]}
 *
 * Sums of the whole job, and each epoch of its own; services/algorithms/calm/calm_model.h has the
 * units. The last epoch sends nothing: its resolutions are null, its bits 0. Bits are payload
 * alone: the control bits of a budget are not in it, and the reserves of a budget stay free. */
#ifndef TALLY_SERVICES_DOCUMENT_PLANNED_H
#define TALLY_SERVICES_DOCUMENT_PLANNED_H

#include <stdbool.h>

#include "api/json/json.h"
#include "services/algorithms/calm/calm_model.h"
#include "services/job/spec.h"

struct tally_planned {
    struct tally_calm_schedule schedule;
    struct tally_calm_forecast forecast;
};

/* What the job expects of a schedule; the job must be of CALM, with nothing to estimate. */
void tally_planned_make(const struct tally_setting *setting,
                        const struct tally_calm_schedule *schedule,
                        struct tally_planned *ret_planned);
/* The same of the text that the job was planned as (job/local.h); false if it is none. */
bool tally_planned_read(const struct tally_job_spec *spec, const char *schedule,
                        struct tally_planned *ret_planned);

/* Sets the members above in `object`. False = out of memory. */
bool tally_planned_add(struct tally_json *object, const struct tally_planned *planned);

#endif

/* rest_plans: dry runs of jobs that are planned before they start, or for which a step size can be
 * suggested. A plan takes up to two seconds of processor time (services/job/job_local.h), a
 * suggestion about one (services/job/step_suggestion.h), so both are made in the background
 * (background.h), one at a time, while the request waits. Below, a plan may be either. A plan whose
 * client has disconnected is not begun. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_PLANS_H
#define TALLY_SERVICES_COORDINATOR_REST_PLANS_H

#include <stdbool.h>

#include "codec/error.h"
#include "services/job/job_spec.h"

struct call;
struct plans;
struct tally_coordinator;

enum { MAX_PLANS = 16 }; /* in progress or waiting */

struct plans *plans_new(void);
/* Frees the calls that wait. To be called before the modules whose objects they hold are freed. A
 * plan in progress keeps its memory and its wake_fd, which must stay open, until it returns. */
void plans_free(struct tally_coordinator *coordinator);

/* Takes the call and responds to it later with the preview of the spec, `planned` included. False:
 * the job can have neither, MAX_PLANS are in progress, or there is no memory or thread; the caller
 * keeps the call and responds without a plan. */
bool plans_take(struct tally_coordinator *coordinator, struct call *call,
                const struct tally_job_spec *spec);
/* Sends the plans that are ready. To be called once per turn. */
void plans_serve(struct tally_coordinator *coordinator);

#endif

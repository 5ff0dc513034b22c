/* forecast: what the recursion of CALM (calm_model.h) predicts for a job before it runs.
 *
 * The prediction is for the schedule that the job starts with. While the job runs, its grids become
 * coarser or finer to use up the budget, which the prediction ignores. */
#ifndef TALLY_SERVICES_EXPERIMENT_FORECAST_H
#define TALLY_SERVICES_EXPERIMENT_FORECAST_H

#include "services/job/job_spec.h"

/* The cumulative regret R(T) predicted for a valid spec. NaN for other algorithms, and for CALM
 * without a budget or with constants to estimate. */
double tally_forecast_regret(const struct tally_job_spec *spec);

/* The limit lines of a CALM job that has a budget both ways and knows its constants; see
 * calm_plan.h. */
struct tally_forecast_limits {
    double shared_regret; /* if clients shared every query at no cost */
    double ideal_regret;  /* if the budget's bits were coded at the rates of information theory */
};
struct tally_forecast_limits tally_forecast_limits_of(const struct tally_job_spec *spec);

#endif

#include "services/experiment/forecast.h"

#include <math.h>

#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_plan.h"

double tally_forecast_regret(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    if (tally_job_spec_algorithm(spec) != &TALLY_CALM || !calm_is_planned(&setting)) {
        return NAN;
    }
    struct tally_calm_schedule schedule;
    struct tally_calm_forecast forecast;
    calm_make_schedule(&setting, &schedule);
    calm_forecast(&setting, &schedule, &forecast);
    return forecast.regret;
}

struct tally_forecast_limits tally_forecast_limits_of(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    const struct tally_calm_constants constants = calm_known_constants(&setting);
    const struct tally_calm_budget budget = {.uplink_bits = (double)spec->budget.uplink_bits,
                                             .downlink_bits = (double)spec->budget.downlink_bits};
    return (struct tally_forecast_limits){.shared_regret = tally_calm_shared_regret(&constants),
                                          .ideal_regret =
                                              tally_calm_ideal_regret(&constants, &budget)};
}

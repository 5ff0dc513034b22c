/* local_run: a whole job in one process, with data made from its spec. */
#ifndef TALLY_TESTS_UNIT_SERVICES_LOCAL_RUN_H
#define TALLY_TESTS_UNIT_SERVICES_LOCAL_RUN_H

#include "services/job/job_local.h"

/* Like tally_local_run_on(); `each` may be NULL. *ret_job is NULL on failure. */
static inline enum tally_status local_run(const struct tally_job_spec *spec,
                                          tally_local_round_fn *each, void *context,
                                          struct tally_job **ret_job, struct tally_error *err)
{
    const struct tally_local_observer observer = {.context = context, .on_round = each};
    struct tally_objective *objective = NULL;
    double f_star = 0;
    *ret_job = NULL;
    enum tally_status status =
        tally_objective_new(&spec->objective, (uint32_t)spec->clients,
                            tally_job_spec_setting(spec).key, ".", &objective, err);
    if (status == TALLY_OK) {
        status = tally_local_reference(spec, objective, &f_star, err);
    }
    if (status == TALLY_OK) {
        status = tally_local_run_on(spec, objective, f_star, &observer, ret_job, err);
    }
    tally_objective_free(objective);
    return status;
}

#endif

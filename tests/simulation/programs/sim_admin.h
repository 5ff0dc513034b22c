/* sim_admin: the people who submit jobs and look after them, one process for each job. */
#ifndef TALLY_TESTS_SIMULATION_PROGRAMS_SIM_ADMIN_H
#define TALLY_TESTS_SIMULATION_PROGRAMS_SIM_ADMIN_H

#include "tests/simulation/checks/sim_job.h"

struct sim_admin_config {
    int64_t submit_after_us; /* mean, from the start */
    int64_t look_us;         /* mean time between two looks at the job */
    int pauses, cancels;     /* of 1000 looks: how many ask for it */
};

void sim_admins_begin(const struct sim_job *jobs, int n_jobs,
                      const struct sim_admin_config *config);
void sim_admins_end(void);
/* From now on administrators only look, and resume paused jobs. */
void sim_admins_calm(void);

#endif

#include "tests/unit/services/job/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &job_advice_suite, &job_baselines_suite,    &job_broadcasts_suite, &job_domain_suite,
    &job_engine_suite, &job_footprint_suite,    &job_horizon_suite,    &job_lifecycle_suite,
    &job_local_suite,  &job_no_reference_suite, &job_opening_suite,    &job_replica_suite,
    &job_saving_suite, &job_spec_suite,         &job_stragglers_suite, NULL,
};

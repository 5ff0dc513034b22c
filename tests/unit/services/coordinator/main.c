#include "tests/unit/services/coordinator/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &coordinator_exposition_suite,   &coordinator_hosted_job_suite,
    &coordinator_listen_scope_suite, &coordinator_origin_policy_suite,
    &coordinator_placement_suite,    &coordinator_replicas_suite,
    &coordinator_thinning_suite,     &coordinator_stored_state_suite,
    &coordinator_supply_suite,       &coordinator_token_set_suite,
    &coordinator_wheel_suite,        NULL,
};

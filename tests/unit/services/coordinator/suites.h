/* suites: all of tally-test-coordinator. */
#ifndef TALLY_TESTS_UNIT_SERVICES_COORDINATOR_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_COORDINATOR_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite coordinator_exposition_suite;
extern const struct tally_suite coordinator_hosted_job_suite;
extern const struct tally_suite coordinator_listen_scope_suite;
extern const struct tally_suite coordinator_origin_policy_suite;
extern const struct tally_suite coordinator_placement_suite;
extern const struct tally_suite coordinator_replicas_suite;
extern const struct tally_suite coordinator_thinning_suite;
extern const struct tally_suite coordinator_stored_state_suite;
extern const struct tally_suite coordinator_supply_suite;
extern const struct tally_suite coordinator_token_set_suite;
extern const struct tally_suite coordinator_wheel_suite;

#endif

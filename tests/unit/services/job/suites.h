/* suites: all of tally-test-job. */
#ifndef TALLY_TESTS_UNIT_SERVICES_JOB_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_JOB_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite job_advice_suite;
extern const struct tally_suite job_baselines_suite;
extern const struct tally_suite job_broadcasts_suite;
extern const struct tally_suite job_domain_suite;
extern const struct tally_suite job_engine_suite;
extern const struct tally_suite job_footprint_suite;
extern const struct tally_suite job_horizon_suite;
extern const struct tally_suite job_lifecycle_suite;
extern const struct tally_suite job_local_suite;
extern const struct tally_suite job_no_reference_suite;
extern const struct tally_suite job_opening_suite;
extern const struct tally_suite job_replica_suite;
extern const struct tally_suite job_saving_suite;
extern const struct tally_suite job_spec_suite;
extern const struct tally_suite job_stragglers_suite;

#endif

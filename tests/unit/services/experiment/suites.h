/* suites: all of tally-test-experiment, one per module of services/experiment. */
#ifndef TALLY_TESTS_UNIT_SERVICES_EXPERIMENT_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_EXPERIMENT_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite experiment_presets_suite;
extern const struct tally_suite experiment_seeds_suite;
extern const struct tally_suite experiment_entropy_suite;
extern const struct tally_suite experiment_run_suite;
extern const struct tally_suite experiment_pool_suite;
extern const struct tally_suite experiment_runner_suite;
extern const struct tally_suite experiment_summary_suite;
extern const struct tally_suite experiment_search_suite;
extern const struct tally_suite experiment_campaign_suite;
extern const struct tally_suite experiment_report_suite;
extern const struct tally_suite experiment_plot_suite;
extern const struct tally_suite experiment_frontier_suite;

#endif

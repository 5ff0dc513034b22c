#include "tests/unit/services/experiment/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &experiment_presets_suite,
    &experiment_seeds_suite,
    &experiment_entropy_suite,
    &experiment_run_suite,
    &experiment_pool_suite,
    &experiment_runner_suite,
    &experiment_summary_suite,
    &experiment_search_suite,
    &experiment_campaign_suite,
    &experiment_report_suite,
    &experiment_plot_suite,
    &experiment_frontier_suite,
    NULL,
};

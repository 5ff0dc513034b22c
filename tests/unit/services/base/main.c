#include "tests/unit/services/base/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &program_child_environment_suite,
    &program_log_suite,
    &program_machine_memory_suite,
    &program_nearest_name_suite,
    &program_options_suite,
    &program_options_help_suite,
    &program_process_guard_suite,
    &program_progress_bar_suite,
    &program_signals_suite,
    &program_time_suite,
    &program_token_file_suite,
    &program_utf8_suite,
    NULL,
};

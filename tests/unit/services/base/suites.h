/* suites: all of tally-test-program, one per module of services/base. */
#ifndef TALLY_TESTS_UNIT_SERVICES_PROGRAM_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_PROGRAM_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite program_child_environment_suite;
extern const struct tally_suite program_log_suite;
extern const struct tally_suite program_machine_memory_suite;
extern const struct tally_suite program_nearest_name_suite;
extern const struct tally_suite program_options_suite;
extern const struct tally_suite program_options_help_suite;
extern const struct tally_suite program_progress_bar_suite;
extern const struct tally_suite program_process_guard_suite;
extern const struct tally_suite program_signals_suite;
extern const struct tally_suite program_time_suite;
extern const struct tally_suite program_token_file_suite;
extern const struct tally_suite program_utf8_suite;

#endif

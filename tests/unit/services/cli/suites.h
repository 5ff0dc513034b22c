/* suites: all of tally-test-cli, one per pure module of services/cli; the program itself is tested
 * by tests/integration/test_cli.py. */
#ifndef TALLY_TESTS_UNIT_SERVICES_CLI_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_CLI_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite cli_doctor_suite;
extern const struct tally_suite cli_job_path_suite;
extern const struct tally_suite cli_job_watch_suite;
extern const struct tally_suite cli_latencies_suite;
extern const struct tally_suite cli_out_folder_suite;
extern const struct tally_suite cli_reproduce_table_suite;
extern const struct tally_suite cli_result_table_suite;
extern const struct tally_suite cli_text_table_suite;
extern const struct tally_suite cli_whole_file_suite;

#endif

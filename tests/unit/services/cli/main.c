#include "tests/unit/services/cli/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &cli_doctor_suite,       &cli_job_path_suite,
    &cli_job_watch_suite,    &cli_latencies_suite,
    &cli_out_folder_suite,   &cli_reproduce_table_suite,
    &cli_result_table_suite, &cli_text_table_suite,
    &cli_whole_file_suite,   NULL,
};

/* job_rounds: the round records of a job at the coordinator, page by page, and the values in a
 * record, by name, for programs that draw curves. */
#ifndef TALLY_SERVICES_CLI_JOB_ROUNDS_H
#define TALLY_SERVICES_CLI_JOB_ROUNDS_H

#include "services/cli/cli.h"

/* Its error needs no message: it is reported with the title of its status. */
typedef enum tally_status tally_record_fn(void *context, const struct tally_json *record);

/* Passes on the records of cli->job after round `after`, in the order of rounds. Errors: those of
 * tally_job_get_json() and of `each`; MALFORMED. */
enum tally_status tally_job_rounds_read(struct tally_cli *cli, int64_t after, tally_record_fn *each,
                                        void *context, struct tally_error *err);

/* ---- The values of a record. */

enum { TALLY_ROUND_N_BITS = 6, TALLY_ROUND_NAME_CAPACITY = 64 };

/* The bits of all rounds so far; zeroed before the first. */
struct tally_round_sums {
    int64_t bits[TALLY_ROUND_N_BITS];
};

typedef enum tally_status tally_round_value_fn(void *context, const char *name, double value);

/* Adds the record's bits to *sums and calls `each` for the values after the round that are known
 * and finite:
 *
 *   loss, cumulative_regret, time_step
 *   bits/uplink_formula, bits/uplink_payload, bits/downlink_formula, bits/downlink_payload,
 *   bits/control, bits/telemetry             sums over the rounds
 *   metrics/NAME, metrics_min/NAME, metrics_max/NAME    mean and extremes over the clients
 *
 * No name is the folder of another. Errors: those of `each`, the first of which ends it. */
enum tally_status tally_round_values(const struct tally_json *record, struct tally_round_sums *sums,
                                     tally_round_value_fn *each, void *context);

/* ---- Runs: what other programs call a job. */

enum { TALLY_RUN_NAME_CAPACITY = 160 };
/* "NAME-ID" as the name of a file, of letters, digits, '.', '_' and '-', with '_' for any other
 * byte; ID alone if the job has no name. */
void tally_run_name(const struct tally_json *detail, char ret_name[TALLY_RUN_NAME_CAPACITY]);

#endif

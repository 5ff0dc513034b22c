/* logistic_report: the results of tally_logistic_run() as a table, JSON, CSV and a gnuplot script.
 * Errors of all functions: NO_MEMORY. */
#ifndef TALLY_SERVICES_EXPERIMENT_LOGISTIC_REPORT_H
#define TALLY_SERVICES_EXPERIMENT_LOGISTIC_REPORT_H

#include "api/json/json.h"
#include "codec/buffer.h"
#include "services/experiment/logistic.h"

/* One table per set: the bits up that each gap took. */
enum tally_status tally_logistic_table(const struct tally_logistic *logistic,
                                       struct tally_buffer *out);

/* {"experiment", "seed", "clients", "sets": [{"name", "dim", "smoothness", "strong_convexity",
 *  "start_gap"}], "rows": [{"set", "gradients", "algorithm", "step_size", "at_edge", "final_gap",
 *  "prices": [{"gap", "step_size", "uplink_bits", "downlink_bits"}]}]}: the row's step_size,
 * at_edge and final_gap are those of the best curve; prices of gaps that were not reached are
 * missing. NULL when memory ran out. */
struct tally_json *tally_logistic_json(const struct tally_logistic *logistic);

/* The best curve of every row: set, gradients, algorithm, step_size, round, uplink_bits,
 * downlink_bits, gap; two blank lines between two curves, which separate them for gnuplot's
 * `index`. */
enum tally_status tally_logistic_curves_csv(const struct tally_logistic *logistic,
                                            struct tally_buffer *out);

/* Draws logistic-curves.csv: logistic.svg and logistic.png, a panel for each set and kind of
 * gradient. */
enum tally_status tally_logistic_script(const struct tally_logistic *logistic,
                                        struct tally_buffer *out);

#endif

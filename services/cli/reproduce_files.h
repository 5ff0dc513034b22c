/* reproduce_files: the files that `tally reproduce --out DIR` writes.
 *
 *   rows.csv curves.csv grids.csv result.json   the numbers
 *   regret.gnuplot bits.gnuplot                 draw regret and bits as .svg and .png
 *   jobs/NAME.json                              every row as a job document for its first seed
 *
 * For --frontier: frontier.csv and frontier.json, from which tests/bench/frontier.py makes a table
 * and a picture.
 *
 * For logistic: logistic.json, logistic-curves.csv, logistic.gnuplot, which draws logistic.svg and
 * logistic.png, and jobs/NAME.json, every row at its best step size. */
#ifndef TALLY_SERVICES_CLI_REPRODUCE_FILES_H
#define TALLY_SERVICES_CLI_REPRODUCE_FILES_H

#include "services/experiment/campaign.h"
#include "services/experiment/frontier.h"
#include "services/experiment/logistic.h"

/* Writes into a folder that exists. Draws if gnuplot is installed; otherwise prints a note on
 * stderr. Errors: INVALID_ARGUMENT (the folder, a script that gnuplot rejects), UNAVAILABLE,
 * NO_MEMORY. */
enum tally_status tally_reproduce_files_write(const struct tally_campaign *campaign,
                                              const char *folder, struct tally_error *err);
enum tally_status tally_reproduce_files_write_frontier(const struct tally_frontier *frontier,
                                                       const char *folder, struct tally_error *err);
enum tally_status tally_reproduce_files_write_logistic(const struct tally_logistic *logistic,
                                                       const char *folder, struct tally_error *err);

#endif

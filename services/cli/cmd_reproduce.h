/* cmd_reproduce: what `tally reproduce` prints and writes. */
#ifndef TALLY_SERVICES_CLI_CMD_REPRODUCE_H
#define TALLY_SERVICES_CLI_CMD_REPRODUCE_H

#include "codec/buffer.h"
#include "services/experiment/frontier.h"
#include "services/experiment/logistic.h"
#include "services/experiment/reproduction.h"

/* ---- The files that `tally reproduce --out DIR` writes.
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

/* ---- The results of `tally reproduce` as tables. */

/* Appends what was run, then one line per row: regret, bits of each kind, the paper's bits, ratio.
 * Errors: NO_MEMORY. */
enum tally_status tally_reproduce_table_render(const struct tally_reproduction *table,
                                               struct tally_buffer *out);
/* Appends the grids that were searched, one line of step sizes and regrets per algorithm, and a
 * note if the best step size was at an edge. Errors: NO_MEMORY. */
enum tally_status tally_reproduce_grids_render(const struct tally_sweep *sweep,
                                               struct tally_buffer *out);

#endif

/* plot: the pictures of an experiment of [1], as data files and gnuplot scripts that draw them.
 *
 *   curves.csv, regret.gnuplot  ->  regret.svg, regret.png   Figure 1 of [1]: mean regret over
 *                                                            time, bands of one standard deviation
 *   rows.csv, bits.gnuplot      ->  bits.svg, bits.png       regret against bits
 *
 * The plots show each baseline at its best known step size, the best row of compressed FedAvg, and
 * the presets of CEAL and CALM. The data files hold every row. A script refers to rows by their
 * number in the data files and draws twice (svg and png). It lists lower layers first: bands before
 * lines, the hollow marks of entropy-coded bits before the filled ones of the bits that count
 * (run.h).
 *
 * Colours are those of Okabe and Ito and, for CALM, of Paul Tol, which colour-blind readers can
 * tell apart. Dashes and the shapes of marks repeat the distinction. */
#ifndef TALLY_SERVICES_EXPERIMENT_PLOT_H
#define TALLY_SERVICES_EXPERIMENT_PLOT_H

#include "codec/buffer.h"
#include "services/experiment/reproduction.h"

/* Whether a row is drawn: it has not diverged, and is a preset of CEAL or CALM, or a baseline at
 * its best step size, of which compressed FedAvg is one. */
bool tally_plot_shows(const struct tally_reproduction *table, size_t row);

/* Column 1 is the time step, followed by mean and standard deviation of each row. A field is empty
 * if a run had diverged by then. Errors: NO_MEMORY. */
enum tally_status tally_plot_curves_csv(const struct tally_reproduction *table,
                                        struct tally_buffer *out);
enum tally_status tally_plot_regret_script(const struct tally_reproduction *table,
                                           struct tally_buffer *out);
enum tally_status tally_plot_bits_script(const struct tally_reproduction *table,
                                         struct tally_buffer *out);

#endif

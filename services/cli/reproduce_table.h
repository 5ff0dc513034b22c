/* reproduce_table: the results of `tally reproduce` as tables. */
#ifndef TALLY_SERVICES_CLI_REPRODUCE_TABLE_H
#define TALLY_SERVICES_CLI_REPRODUCE_TABLE_H

#include "codec/buffer.h"
#include "services/experiment/campaign.h"

/* Appends what was run, then one line per row: regret, bits of each kind, the paper's bits, ratio.
 * Errors: NO_MEMORY. */
enum tally_status tally_reproduce_table_render(const struct tally_campaign *campaign,
                                               struct tally_buffer *out);
/* Appends the grids that were searched, one line of step sizes and regrets per algorithm, and a
 * note if the best step size was at an edge. Errors: NO_MEMORY. */
enum tally_status tally_reproduce_grids_render(const struct tally_campaign *campaign,
                                               struct tally_buffer *out);

#endif

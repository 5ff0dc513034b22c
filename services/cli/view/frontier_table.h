/* frontier_table: what `tally reproduce synthetic --frontier` found, for people: who wins where. */
#ifndef TALLY_SERVICES_CLI_VIEW_FRONTIER_TABLE_H
#define TALLY_SERVICES_CLI_VIEW_FRONTIER_TABLE_H

#include "codec/base/buffer.h"
#include "services/experiment/frontier.h"

/* Appends, per reading and radius, the least regret of every algorithm, and of CEAL within the
 * paper's bits, within 650 each way, and at any price. Errors: NO_MEMORY. */
enum tally_status tally_frontier_table_render(const struct tally_frontier *frontier,
                                              struct tally_buffer *out);

#endif

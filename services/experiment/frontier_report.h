/* frontier_report: the points of the frontier as CSV and as JSON. tests/bench/frontier.py makes the
 * table and the plot from them. */
#ifndef TALLY_SERVICES_EXPERIMENT_FRONTIER_REPORT_H
#define TALLY_SERVICES_EXPERIMENT_FRONTIER_REPORT_H

#include "api/json/json.h"
#include "codec/buffer.h"
#include "services/experiment/frontier.h"

/* One line per point, with a header line. Errors: NO_MEMORY. */
enum tally_status tally_frontier_csv(const struct tally_frontier *frontier,
                                     struct tally_buffer *out);

/* {"experiment": "synthetic", "seeds": [...], "points": [{"reading", "radius", "algorithm",
 *  "parameters", "regret", "uplink", "downlink", "on_front"}],
 *  "limits": [{"reading", "radius", "uplink_bits", "downlink_bits", "ideal_regret",
 *  "shared_regret"}]}. Only points on a front are included. A point of CALM also has "budget" if
 * it ran with one. NULL when memory ran out. */
struct tally_json *tally_frontier_json(const struct tally_frontier *frontier);

#endif

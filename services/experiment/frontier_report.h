/* frontier_report: the map of the frontier as CSV, JSON and a gnuplot script. */
#ifndef TALLY_SERVICES_EXPERIMENT_FRONTIER_REPORT_H
#define TALLY_SERVICES_EXPERIMENT_FRONTIER_REPORT_H

#include "api/json/json.h"
#include "codec/base/buffer.h"
#include "services/experiment/frontier.h"

/* One line per point, with a header line. Errors: NO_MEMORY. */
enum tally_status tally_frontier_csv(const struct tally_frontier *frontier,
                                     struct tally_buffer *out);

/* {"experiment": "synthetic", "seeds": [...], "points": [{"reading", "radius", "algorithm",
 *  "parameters", "regret", "uplink", "downlink", "on_front"}]}: the points on a front alone. NULL
 * when memory ran out. */
struct tally_json *tally_frontier_json(const struct tally_frontier *frontier);

/* Draws frontier.csv: one panel per reading and radius, CEAL's points and everybody's front.
 * Errors: NO_MEMORY. */
enum tally_status tally_frontier_script(const struct tally_frontier *frontier,
                                        struct tally_buffer *out);

#endif

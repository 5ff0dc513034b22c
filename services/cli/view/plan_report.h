/* plan_report: what `tally plan` finds, as JSON and as people read it.
 *
 *     regret alone    3676  no message at all
 *     regret shared  219.8  every query shared at no cost
 *
 *     bits up  bits down  regret  / shared  ideal rates  queries between messages
 *       130.0      145.0   932.6      4.24        777.9  49 208 | 1743
 *       263.0      289.0   522.4      2.38        456.8  15 37 111 346 | 1491
 *
 * `ideal rates`: the regret of the same budget if messages were coded at the rates of information
 * theory (services/algorithms/calm/calm_plan.h). A single plan has its epochs below. */
#ifndef TALLY_SERVICES_CLI_VIEW_PLAN_REPORT_H
#define TALLY_SERVICES_CLI_VIEW_PLAN_REPORT_H

#include "api/json/json.h"
#include "services/algorithms/calm/calm_plan.h"

/* Plans for n budgets:
 *
 *     {"clients", "dim", "horizon", "alone_regret", "shared_regret",
 *      "plans": [{"budget": {"uplink_bits", "downlink_bits"}, "regret", "uplink_bits",
 *                 "downlink_bits", "ideal_regret",
 *                 "epochs": [{"samples", "uplink_resolution", "downlink_resolution", "uplink_bits",
 *                             "downlink_bits", "regret", "variance"}]}]}
 *
 * A direction without a budget has null there, and then `ideal_regret` is null. The last epoch
 * sends nothing: its resolutions are null. NULL when memory ran out. */
struct tally_json *tally_plan_report_make(const struct tally_calm_constants *constants,
                                          const struct tally_calm_budget *budgets, int n);

/* Appends the report as text. Errors: NO_MEMORY. */
enum tally_status tally_plan_report_render(const struct tally_json *report,
                                           struct tally_buffer *out);

#endif

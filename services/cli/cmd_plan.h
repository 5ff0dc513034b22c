/* cmd_plan: what `tally plan` prints. */
#ifndef TALLY_SERVICES_CLI_CMD_PLAN_H
#define TALLY_SERVICES_CLI_CMD_PLAN_H

#include "api/json/json.h"
#include "services/algorithms/algorithm.h"

/* ---- The results of `tally plan`, as JSON and as a table.
 *
 *     regret alone    3676  no message at all
 *     regret shared  219.8  every query shared at no cost
 *
 *     bits up  bits down  regret  / shared  ideal rates  queries between messages
 *       116.3      126.3    1078      4.90        777.9  54 190 | 1756
 *       249.3      270.3   546.0      2.48        456.8  16 38 110 334 | 1502
 *
 * `ideal rates`: the regret of the same budget if messages were coded at the rates of information
 * theory (services/algorithms/calm/calm_plan.h). The epochs of a single plan follow below it. */

/* Plans a job for n budgets, each as the job itself would, with the same reserves:
 *
 *     {"clients", "dim", "horizon", "alone_regret", "shared_regret",
 *      "plans": [{"budget": {"uplink_bits", "downlink_bits"}, "ideal_regret", and the members of
 *                 services/job/document.h}]}
 *
 * A direction without a budget is null, and then so is `ideal_regret`. Without any budget the plan
 * is for the price of bits, and not what such a job does. `setting` is that of a CALM job with
 * nothing to estimate; its own budget is ignored. NULL if out of memory. */
struct tally_json *tally_plan_report_make(const struct tally_setting *setting,
                                          const struct tally_budget *budgets, int n);

/* Appends the report as text. Errors: NO_MEMORY. */
enum tally_status tally_plan_report_render(const struct tally_json *report,
                                           struct tally_buffer *out);

#endif

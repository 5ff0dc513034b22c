/* campaign_report: the results of a campaign, as JSON and as CSV. */
#ifndef TALLY_SERVICES_EXPERIMENT_CAMPAIGN_REPORT_H
#define TALLY_SERVICES_EXPERIMENT_CAMPAIGN_REPORT_H

#include "api/json/json.h"
#include "codec/buffer.h"
#include "services/experiment/campaign.h"

/* {"experiment", "seeds": [...], "rows": [{"algorithm", "preset", "step_size", "tuned",
 *  "regret": {"mean", "std"}, "planned_regret", "uplink": {"formula", "payload", "control",
 *  "entropy_payload"}, "downlink": same, "paper": {"uplink", "downlink"}}]}: bits per client up and
 * per broadcast down, means over runs; entropy_payload is an estimate; null stands for the regret
 * of runs that diverged, and for a regret that is not planned. NULL when memory ran out. */
struct tally_json *tally_report_json(const struct tally_campaign *campaign);

/* Returns `json` if it is complete. Otherwise frees it and returns NULL. */
struct tally_json *tally_report_checked(struct tally_json *json, bool is_whole);
/* Parts that the frontier's JSON shares. NULL when memory ran out. */
struct tally_json *tally_report_seeds(int64_t first, size_t n);
struct tally_json *tally_report_bits(const struct tally_run_bits *bits);
struct tally_json *tally_report_regret(const struct tally_summary *regret);

/* The same rows as CSV with a header line, and the grids. Errors: NO_MEMORY. */
enum tally_status tally_report_rows_csv(const struct tally_campaign *campaign,
                                        struct tally_buffer *out);
enum tally_status tally_report_grids_csv(const struct tally_campaign *campaign,
                                         struct tally_buffer *out);

#endif

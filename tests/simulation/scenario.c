#include "tests/simulation/scenario.h"

#include <stdio.h>

#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/programs/sim_prepare.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_http.h"
#include "tests/simulation/world/sim_random.h"

/* With a limit of 0 workers post each update by itself; a small one makes them split what they
 * post. Not drawn, so that a seed runs the same with each. */
static uint32_t most_batch_bytes(uint64_t seed, const struct scenario_options *options)
{
    static const uint32_t sizes[] = {0, 300 /* two or three updates */, UINT32_MAX, UINT32_MAX};
    return options->has_single_updates ? 0 : sizes[seed % (sizeof sizes / sizeof sizes[0])];
}

void scenario_run(const struct scenario_kind *kind, uint64_t seed,
                  const struct scenario_options *options, struct scenario_result *ret_result)
{
    sim_random_begin(seed);
    sim_clock_begin();
    sim_log_begin(options->is_verbose);
    sim_http_limit_batches(most_batch_bytes(seed, options));
    kind->begin();
    uint64_t n_events = 0;
    while (sim_violated() == NULL && !invariants_all_ended() && sim_now_us() < kind->end_us() &&
           sim_step()) {
        n_events++;
    }
    if (sim_violated() == NULL) {
        invariants_check_end();
    }
    sim_note("scenario", "%s", sim_violated() != NULL ? sim_violated() : "all jobs have ended");
    const char *violation = sim_violated();
    *ret_result = (struct scenario_result){
        .ok = violation == NULL, .digest = sim_log_digest(), .n_events = n_events};
    snprintf(ret_result->violation, sizeof ret_result->violation, "%s",
             violation != NULL ? violation : "");
    kind->end();
    sim_prepare_end();
}

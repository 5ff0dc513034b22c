#include "tests/simulation/scenario.h"

#include <stdio.h>

#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/programs/sim_prepare.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_random.h"

void scenario_run(const struct scenario_kind *kind, uint64_t seed, bool verbose,
                  struct scenario_result *ret_result)
{
    sim_random_begin(seed);
    sim_clock_begin();
    sim_log_begin(verbose);
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

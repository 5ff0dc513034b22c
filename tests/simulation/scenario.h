/* scenario: one seed, from the draw of everything to the verdict. */
#ifndef TALLY_TESTS_SIMULATION_SCENARIO_H
#define TALLY_TESTS_SIMULATION_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

struct scenario_result {
    bool ok;
    char violation[512]; /* if not ok */
    uint64_t digest;     /* of the event log */
    uint64_t n_events;
};

void scenario_run(uint64_t seed, bool verbose, struct scenario_result *ret_result);

#endif

/* scenario: runs one seed, from drawing everything to the verdict. */
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

/* A kind of scenario: its processes and its misfortunes. Seeds of different kinds are unrelated. */
struct scenario_kind {
    void (*begin)(void); /* draws and starts everything */
    void (*end)(void);
    int64_t (*end_us)(void); /* when every job must have ended */
};
extern const struct scenario_kind SCENARIO_ONE_COORDINATOR;
extern const struct scenario_kind SCENARIO_REPLICAS; /* several coordinators on one database */

struct scenario_options {
    bool is_verbose;
    bool has_single_updates; /* workers post each update by itself; else only in some seeds */
};

void scenario_run(const struct scenario_kind *kind, uint64_t seed,
                  const struct scenario_options *options, struct scenario_result *ret_result);

#endif

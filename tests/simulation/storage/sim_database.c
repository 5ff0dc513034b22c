#include "tests/simulation/storage/sim_database.h"

#include "services/base/time.h"
#include "tests/simulation/storage/memory.h"
#include "tests/simulation/world/sim.h"

static struct {
    struct tally_memory_database *it;
    struct tally_store *observer;
    struct sim_clocks clocks;
    int64_t down_until_us;
    uint64_t n_changes;
} database;

static int64_t now_ms(void *context)
{
    (void)context;
    return sim_database_now_ms();
}

int64_t sim_database_now_ms(void)
{
    const struct sim_clocks *callers = sim_clock_look_at(&database.clocks);
    const int64_t ms = tally_realtime_ms();
    sim_clock_look_at(callers);
    return ms;
}

void sim_database_begin(const struct sim_clocks *clocks)
{
    const struct tally_memory_clock clock = {.now_ms = now_ms};
    database.clocks = *clocks;
    database.down_until_us = 0;
    database.n_changes = 0;
    SIM_REQUIRE(tally_memory_database_new(&clock, &database.it, NULL) == TALLY_OK, "no database");
    database.observer = sim_database_open();
}

void sim_database_end(void)
{
    database.observer->ops->close(database.observer);
    tally_memory_database_free(database.it);
    database.it = NULL;
}

struct tally_store *sim_database_open(void)
{
    struct tally_store *store = NULL;
    SIM_REQUIRE(tally_memory_database_open(database.it, &store, NULL) == TALLY_OK, "no connection");
    return store;
}

struct tally_store *sim_database_observe(void)
{
    return database.observer;
}

uint64_t sim_database_n_changes(void)
{
    return database.n_changes;
}

void sim_database_note_change(void)
{
    database.n_changes++;
}

void sim_database_crash(int64_t us)
{
    sim_note("database", "killed, back in %.3f s", (double)us / 1e6);
    database.down_until_us = sim_now_us() + us;
    tally_memory_database_restart(database.it);
}

bool sim_database_is_up(void)
{
    return sim_now_us() >= database.down_until_us;
}

void sim_database_jump_clock(int64_t ms)
{
    sim_note("database", "its clock jumps by %lld ms", (long long)ms);
    database.clocks.realtime_ms += ms;
}

#include "services/worker/worker_patience.h"

#include "services/base/time.h"

void patience_init(struct patience *patience, int64_t limit_ms)
{
    *patience = (struct patience){.limit_ms = limit_ms};
    patience_worked(patience);
}

void patience_worked(struct patience *patience)
{
    if (patience->limit_ms > 0) {
        patience->idle_since_ms = tally_monotonic_ms();
    }
}

void patience_reached(struct patience *patience)
{
    patience->away_since_ms = 0;
}

void patience_missed(struct patience *patience)
{
    if (patience->limit_ms > 0 && patience->away_since_ms == 0) {
        patience->away_since_ms = tally_monotonic_ms();
    }
}

/* Takes the timer that runs out first: the coordinator may have been away since before the last
 * update was computed. */
static int64_t since_ms(const struct patience *patience)
{
    const int64_t idle_ms = patience->idle_since_ms, away_ms = patience->away_since_ms;
    return away_ms != 0 && away_ms < idle_ms ? away_ms : idle_ms;
}

int64_t patience_left_ms(const struct patience *patience)
{
    if (patience->limit_ms == 0) {
        return INT64_MAX;
    }
    const int64_t left_ms = since_ms(patience) + patience->limit_ms - tally_monotonic_ms();
    return left_ms > 0 ? left_ms : 0;
}

enum tally_status patience_check(const struct patience *patience, const char *url,
                                 struct tally_error *err)
{
    if (patience_left_ms(patience) > 0) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_DEADLINE, "give-up-after", "%s %s for %lld s",
                      patience->away_since_ms != 0 ? "no coordinator at" : "no work at", url,
                      (long long)patience->limit_ms / 1000);
}

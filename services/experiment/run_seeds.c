#include "services/experiment/run_seeds.h"

#include <stdbool.h>

static const int64_t MAX_SEED = 9007199254740991; /* as in a job document */

/* Reads the digits at *at and advances past them. Returns false if there are none. A value above
 * MAX_SEED stays above it. */
static bool read_number(const char **at, int64_t *ret_value)
{
    const char *start = *at;
    int64_t value = 0;
    while (**at >= '0' && **at <= '9') {
        value = value > MAX_SEED ? value : 10 * value + (**at - '0');
        (*at)++;
    }
    *ret_value = value;
    return *at > start;
}

enum tally_status tally_seeds_parse(const char *text, int64_t *ret_first, size_t *ret_n,
                                    struct tally_error *err)
{
    const char *at = text;
    int64_t first = 0, last = 0;
    bool ok = read_number(&at, &first);
    last = first;
    if (ok && *at == '-') {
        at++;
        ok = read_number(&at, &last);
    }
    if (!ok || *at != '\0') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "seeds",
                          "\"%.60s\" is not a range like 1-10", text);
    }
    if (first > MAX_SEED || last > MAX_SEED) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "seeds", "a seed of %.60s is outside [0, %lld]",
                          text, (long long)MAX_SEED);
    }
    const int64_t n = last - first + 1;
    if (n < 1 || n > TALLY_MAX_SEEDS) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "seeds", "%.60s has %lld seeds, outside [1, %d]",
                          text, (long long)n, TALLY_MAX_SEEDS);
    }
    *ret_first = first;
    *ret_n = (size_t)n;
    return TALLY_OK;
}

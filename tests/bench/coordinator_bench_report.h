/* coordinator_bench_report: `tests/bench/run coordinator`, a sweep over numbers of clients and
 * dimensions, with its tables and JSON. */
#ifndef TALLY_TESTS_BENCH_COORDINATOR_BENCH_REPORT_H
#define TALLY_TESTS_BENCH_COORDINATOR_BENCH_REPORT_H

#include "services/base/options.h"
#include "services/base/progress_bar.h"
#include "tests/bench/coordinator_bench.h"

enum { TALLY_SWEEP_MAX_LIST = 16 };

/* A point is a number of clients and a dimension. */
struct tally_coordinator_sweep {
    struct tally_coordinator_bench bench; /* of the current point */
    int64_t clients[TALLY_SWEEP_MAX_LIST], dims[TALLY_SWEEP_MAX_LIST];
    size_t n_clients, n_dims;
    /* progress */
    size_t n_points, point;
    int64_t begin_ms;
    struct tally_progress_painter painter;
};

/* Reads the options of `tests/bench/run coordinator` into a zeroed sweep. Errors: INVALID_ARGUMENT,
 * OUT_OF_RANGE. */
enum tally_status tally_coordinator_sweep_read(const struct tally_options *options,
                                               struct tally_coordinator_sweep *sweep,
                                               struct tally_error *err);
/* Measures all points, with a progress bar on stderr, and appends the result as text or as JSON
 * with a newline. Errors: those of tally_coordinator_bench_run(). */
enum tally_status tally_coordinator_sweep_run(struct tally_coordinator_sweep *sweep, bool as_json,
                                              struct tally_buffer *out, struct tally_error *err);

#endif

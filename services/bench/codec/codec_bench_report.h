/* codec_bench_report: the two tables of `tally bench codec`, or its JSON. */
#ifndef TALLY_SERVICES_BENCH_CODEC_CODEC_BENCH_REPORT_H
#define TALLY_SERVICES_BENCH_CODEC_CODEC_BENCH_REPORT_H

#include <stdbool.h>

#include "codec/base/buffer.h"
#include "codec/base/error.h"

/* Measures vectors of dim >= 64 coordinates for about `seconds` of CPU time, and appends the result
 * as text or as JSON with a newline. Errors: those of tally_bench_run(). */
enum tally_status tally_codec_bench_report(size_t dim, double seconds, bool as_json,
                                           struct tally_buffer *out, struct tally_error *err);

#endif

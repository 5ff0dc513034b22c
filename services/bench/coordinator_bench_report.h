/* coordinator_bench_report: `tally bench coordinator`: its options, its table and its JSON. */
#ifndef TALLY_SERVICES_BENCH_COORDINATOR_BENCH_REPORT_H
#define TALLY_SERVICES_BENCH_COORDINATOR_BENCH_REPORT_H

#include "services/base/options/options.h"

/* Measures what the options of `tally bench` ask for and prints it. Returns an exit code. */
int tally_coordinator_bench_report(const struct tally_options *options);

#endif

/* footprint: how much memory a job needs, estimated from its spec alone.
 *
 * A started job with d coordinates and M clients, in bytes, where the point takes P = 8 d:
 *
 *     x                         8 d
 *     sums of the open round    8 d
 *     scratch                   8 d    a float and a level per coordinate
 *     broadcasts kept           8 d    together no longer than the point (job.h), or 64 KiB
 *     the next broadcast        4 d    a float per coordinate; the levels of `ceal` are shorter
 *     the open round's task     8 d    which carries broadcasts as long as the point at most
 *     its state, to be stored   8 d
 *     clients                 352 M    in the engine, their slots, and in the state
 *     the rest             128 KiB     spec, document, row
 *
 * so 52 d + 352 M + 192 KiB. Vectors that an algorithm does not touch count all the same: the
 * estimate is to be above what the process holds. Not in it, since they are bounded for the whole
 * process: updates that wait for a commit (services/coordinator/pending.c, 40 MiB), request bodies
 * and answers under way (--max-held-bytes); and what the store keeps, if it is in memory.
 *
 * Solving f(x*) takes the data, N points of n numbers, and some vectors:
 *
 *     synthetic_linear          8 N n + 16 N
 *     idx, of a given number    N n + 16 N
 *     matrix                   16 d^2
 *     vectors                  80 d    eight of the solver, the solution, and one of the data
 *     a Hessian                24 d^2  where d <= 1024
 *
 * Files whose size the document does not tell count for nothing: they are the operator's. */
#ifndef TALLY_SERVICES_JOB_FOOTPRINT_H
#define TALLY_SERVICES_JOB_FOOTPRINT_H

#include <stdint.h>

#include "services/job/spec.h"

/* What a host may keep of each client beside the engine, bytes. */
enum { TALLY_FOOTPRINT_ENGINE_CLIENT = 96, TALLY_FOOTPRINT_SLOT = 224 };

/* Bytes of a started job; of a valid spec below 2^40. */
int64_t tally_footprint_started(const struct tally_job_spec *spec);

/* Bytes while f(x*) is solved; 0 if it is given or not asked for. */
int64_t tally_footprint_solving(const struct tally_job_spec *spec);

/* Path of the member of the document that the larger part of these bytes comes from. */
const char *tally_footprint_started_field(const struct tally_job_spec *spec);
const char *tally_footprint_solving_field(const struct tally_job_spec *spec);

#endif

/* job_footprint: how much memory a job needs, estimated from its spec alone.
 *
 * A started job with d coordinates and M clients, in bytes:
 *
 *     x                         8 d
 *     sums of the open round    8 d
 *     scratch                   8 d    a float and a level per coordinate
 *     broadcasts kept           8 d    at most the point's size (job.h), or 64 KiB
 *     the next broadcast        4 d    a float per coordinate; the levels of `ceal` are shorter
 *     the open round's task     8 d    carries broadcasts of at most the point's size
 *     its state, to be stored   8 d
 *     clients                 352 M    in the engine, their slots, and in the state
 *     the rest             128 KiB     spec, document, row
 *
 * so 52 d + 352 M + 192 KiB, with the 64 KiB of broadcasts. With weights a sum has two words: 60 d,
 * not 52 d. `keep.best` adds 8 d. If the algorithm has a memory (algorithm.h), it counts twice,
 * because the state has a copy, and a scratch vector adds 8 d. With a cohort of C < M clients the
 * state has the receipts of 16 rounds, and 320 M + 552 C replaces 352 M. With `stop.seconds`,
 * weighted evaluations by all clients add 40 M. Vectors that an algorithm does not use count too,
 * so the estimate is an upper bound. It excludes what is limited for the whole process: updates
 * that wait for a commit (services/coordinator/loop_pending.c, 40 MiB), and unfinished request
 * bodies and responses (--max-held-bytes). It also excludes the data of an in-memory store.
 *
 * Solving f(x*) takes the data, N points of n numbers, and some vectors:
 *
 *     synthetic_linear          8 N n + 16 N
 *     idx, of a given number    N n + 16 N
 *     matrix                   16 d^2
 *     vectors                  80 d    eight of the solver, the solution, and one of the data
 *     a Hessian                24 d^2  where d <= 1024
 *
 * Data files whose size is not in the document count as 0: the operator has chosen them. */
#ifndef TALLY_SERVICES_JOB_JOB_FOOTPRINT_H
#define TALLY_SERVICES_JOB_JOB_FOOTPRINT_H

#include <stdint.h>

#include "services/job/job_spec.h"

/* Bytes per client: in the engine, and in the host's client slot. */
enum { TALLY_FOOTPRINT_ENGINE_CLIENT = 96, TALLY_FOOTPRINT_SLOT = 224 };

/* Bytes of a started job; below 2^44 for a valid spec. */
int64_t tally_footprint_started(const struct tally_job_spec *spec);

/* Bytes of its saved state. */
int64_t tally_footprint_state(const struct tally_job_spec *spec);

/* Bytes for solving f(x*); 0 if it is given or not needed. */
int64_t tally_footprint_solving(const struct tally_job_spec *spec);

/* Bytes that the payload of an update has at least, in some rounds of the job. Exact for messages
 * of fixed length, which all baselines but ef21 with top_k send. 0 if a budget limits messages, or
 * if their length depends on the data alone, as with `entropy`. */
int64_t tally_footprint_update(const struct tally_job_spec *spec);
const char *tally_footprint_update_field(const struct tally_job_spec *spec);

/* Path of the document's member that most of these bytes depend on. */
const char *tally_footprint_started_field(const struct tally_job_spec *spec);
const char *tally_footprint_solving_field(const struct tally_job_spec *spec);

#endif

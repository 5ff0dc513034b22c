/* sim: what all parts of the simulation share: the event log and its digest, violations, memory. */
#ifndef TALLY_TESTS_SIMULATION_WORLD_SIM_H
#define TALLY_TESTS_SIMULATION_WORLD_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocate memory; the program ends if there is none. */
void *sim_new(size_t n); /* zeroed */
void *sim_grow(void *old, size_t n);
void *sim_copy(const void *bytes, size_t n); /* followed by a NUL */

/* The event log (sim_log.c). A line is "who: what"; all lines go into the digest, and to standard
 * output when verbose. */
void sim_log_begin(bool verbose);
void sim_note(const char *who, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t sim_log_digest(void);

/* Reports that an invariant does not hold. The first violation of a seed is kept and ends it. */
void sim_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Text of the violation; NULL = none so far. */
const char *sim_violated(void);

/* The simulation itself is wrong: ends the program with exit status 3, never taken for a violation.
 */
#define SIM_REQUIRE(condition, what)                                                               \
    ((condition) ? (void)0 : sim_broken(__FILE__, __LINE__, (what)))
void sim_broken(const char *file, int line, const char *what) __attribute__((noreturn));

#endif

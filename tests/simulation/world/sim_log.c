/* sim_log: the event log. Stands in for services/base/log.h, so that it also has what coordinators
 * and workers log. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/base/log.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/programs/sim_worker.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"

static struct {
    bool verbose;
    uint64_t digest;
    bool is_violated;
    char violation[512];
} log_now;

void *sim_new(size_t n)
{
    void *memory = calloc(1, n > 0 ? n : 1);
    SIM_REQUIRE(memory != NULL, "out of memory");
    return memory;
}

void *sim_grow(void *old, size_t n)
{
    void *memory = realloc(old, n > 0 ? n : 1);
    SIM_REQUIRE(memory != NULL, "out of memory");
    return memory;
}

void *sim_copy(const void *bytes, size_t n)
{
    char *copy = sim_new(n + 1);
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    return copy;
}

void sim_broken(const char *file, int line, const char *what)
{
    fprintf(stderr, "the simulation itself is wrong: %s:%d: %s\n", file, line, what);
    exit(3);
}

void sim_log_begin(bool verbose)
{
    log_now.verbose = verbose;
    log_now.digest = TALLY_CHECKSUM_SEED;
    log_now.is_violated = false;
}

uint64_t sim_log_digest(void)
{
    return log_now.digest;
}

static void add_line(const char *who, const char *text, size_t n)
{
    const int64_t now_us = sim_now_us();
    log_now.digest = tally_checksum64_more(log_now.digest, &now_us, sizeof now_us);
    log_now.digest = tally_checksum64_more(log_now.digest, text, n);
    if (log_now.verbose) {
        printf("%11.6f  %-12s %s\n", (double)now_us / 1e6, who, text);
    }
}

void sim_note(const char *who, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_line(who, text, strlen(text));
}

void sim_violation(const char *format, ...)
{
    if (log_now.is_violated) {
        return;
    }
    log_now.is_violated = true;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(log_now.violation, sizeof log_now.violation, format, arguments);
    va_end(arguments);
    sim_note("VIOLATION", "%s", log_now.violation);
}

const char *sim_violated(void)
{
    return log_now.is_violated ? log_now.violation : NULL;
}

/* The programs' own log. */

bool tally_log_is_on(enum tally_log_level level)
{
    return level >= TALLY_LOG_INFO;
}

static void append_pair(char *text, size_t capacity, const struct tally_log_pair *pair)
{
    const size_t n = strlen(text);
    char *at = text + n;
    const size_t left = capacity - n;
    switch (pair->kind) {
    case TALLY_LOG_KIND_TEXT:
        snprintf(at, left, " %s=%s", pair->key, pair->value.text != NULL ? pair->value.text : "");
        break;
    case TALLY_LOG_KIND_INTEGER:
        snprintf(at, left, " %s=%" PRId64, pair->key, pair->value.integer);
        break;
    case TALLY_LOG_KIND_UNSIGNED:
        snprintf(at, left, " %s=%" PRIu64, pair->key, pair->value.natural);
        break;
    case TALLY_LOG_KIND_REAL:
        snprintf(at, left, " %s=%g", pair->key, pair->value.real);
        break;
    }
}

void tally_log_write(enum tally_log_level level, const struct tally_log_pair *pairs, size_t n_pairs)
{
    if (!tally_log_is_on(level) || n_pairs == 0) {
        return;
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", pairs[0].value.text);
    for (size_t i = 1; i < n_pairs; i++) {
        append_pair(text, sizeof text, &pairs[i]);
    }
    const char *worker = sim_worker_speaking();
    const struct sim_replica *replica = sim_replica_self();
    if (replica != NULL && sim_replica_is_killed(replica)) {
        return;
    }
    const char *coordinator = replica != NULL ? sim_replica_name(replica) : "coordinator";
    add_line(worker != NULL ? worker : coordinator, text, strlen(text));
    if (worker != NULL) {
        sim_worker_said(pairs[0].value.text, text);
    } else {
        invariants_see_coordinator_log(pairs[0].value.text);
    }
}

/* tally-simulation: runs seeds; tests/simulation/README.md.
 *
 *   tally-simulation [--replicas] [--single-updates] --seeds A-B [--twice] [--expect-violation]
 *   tally-simulation [--replicas] [--single-updates] --seed N [--verbose]
 *
 * With --replicas the seeds are those of several coordinators on one database. With
 * --single-updates no coordinator takes several updates in one request.
 * Exit status: 0 all hold, 1 a violation (its seed is printed), 2 usage, 3 the simulation itself is
 * wrong, by a signal if the program fails. --expect-violation swaps 0 and 1, for mutants. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/simulation/scenario.h"
#include "tests/simulation/storage/sim_vfs.h"
#include "tests/simulation/world/sim_fiber.h"

/* A seed in which the program itself fails (an assertion of the product, a crash, a loop without
 * end) is reported like a violation, and the failure then takes its course. */
static char failing_seed[160];
enum { HANG_CPU_S = 100 }; /* a seed takes milliseconds, with sanitizers a hundred times that */
static const int FAILURES[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGVTALRM};
enum { N_FAILURES = sizeof FAILURES / sizeof FAILURES[0] };
static struct sigaction before[N_FAILURES];

static void tell_seed(int number)
{
    const ssize_t n = write(STDOUT_FILENO, failing_seed, strlen(failing_seed));
    (void)n;
    for (size_t i = 0; i < N_FAILURES; i++) {
        if (FAILURES[i] == number) {
            (void)sigaction(number, &before[i], NULL); /* what failed fails again after this */
        }
    }
    if (number == SIGVTALRM) {
        (void)raise(number);
    }
}

static void watch_failures(void)
{
    const struct sigaction action = {.sa_handler = tell_seed};
    for (size_t i = 0; i < N_FAILURES; i++) {
        (void)sigaction(FAILURES[i], &action, &before[i]);
    }
}

struct arguments {
    uint64_t first, last;
    struct scenario_options options;
    bool twice, expect_violation, is_replicas;
};

/* Options of the command that replays a seed. */
static const char *kind_options(const struct arguments *arguments)
{
    static const char *const texts[] = {"", " --single-updates", " --replicas",
                                        " --replicas --single-updates"};
    return texts[2 * arguments->is_replicas + arguments->options.has_single_updates];
}

static void watch_seed(uint64_t seed, const struct arguments *arguments)
{
    snprintf(failing_seed, sizeof failing_seed,
             "seed %" PRIu64 ": the program fails\n"
             "replay: tests/simulation/run%s --seed %" PRIu64 " --verbose\n",
             seed, kind_options(arguments), seed);
    const struct itimerval limit = {.it_value = {.tv_sec = HANG_CPU_S}};
    (void)setitimer(ITIMER_VIRTUAL, &limit, NULL);
}

static bool read_number(const char **text, uint64_t *ret_value)
{
    char *rest;
    errno = 0;
    *ret_value = strtoull(*text, &rest, 10);
    const bool ok = rest != *text && errno == 0;
    *text = rest;
    return ok;
}

static bool read_range(const char *text, struct arguments *arguments)
{
    return read_number(&text, &arguments->first) && *text++ == '-' &&
           read_number(&text, &arguments->last) && *text == '\0' &&
           arguments->first <= arguments->last;
}

static bool read_seed(const char *text, struct arguments *arguments)
{
    const bool ok = read_number(&text, &arguments->first) && *text == '\0';
    arguments->last = arguments->first;
    return ok;
}

static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    bool has_seeds = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if ((strcmp(argv[i], "--seeds") == 0 && read_range(value, arguments)) ||
            (strcmp(argv[i], "--seed") == 0 && read_seed(value, arguments))) {
            has_seeds = true;
            i++;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            arguments->options.is_verbose = true;
        } else if (strcmp(argv[i], "--replicas") == 0) {
            arguments->is_replicas = true;
        } else if (strcmp(argv[i], "--single-updates") == 0) {
            arguments->options.has_single_updates = true;
        } else if (strcmp(argv[i], "--twice") == 0) {
            arguments->twice = true;
        } else if (strcmp(argv[i], "--expect-violation") == 0) {
            arguments->expect_violation = true;
        } else {
            return false;
        }
    }
    return has_seeds;
}

/* True if the seed holds and, if it is run twice, runs the same way again. */
static bool run_seed(uint64_t seed, const struct arguments *arguments)
{
    const struct scenario_kind *kind =
        arguments->is_replicas ? &SCENARIO_REPLICAS : &SCENARIO_ONE_COORDINATOR;
    struct scenario_result result, again;
    watch_seed(seed, arguments);
    scenario_run(kind, seed, &arguments->options, &result);
    if (!result.ok) {
        printf("seed %" PRIu64 ": %s\n", seed, result.violation);
        if (!arguments->expect_violation) {
            printf("replay: tests/simulation/run%s --seed %" PRIu64 " --verbose\n",
                   kind_options(arguments), seed);
        }
        return false;
    }
    if (arguments->twice) {
        const struct scenario_options silent = {.has_single_updates =
                                                    arguments->options.has_single_updates};
        scenario_run(kind, seed, &silent, &again);
        if (again.digest != result.digest || again.n_events != result.n_events) {
            printf("seed %" PRIu64 ": the second run differs from the first\n", seed);
            return false;
        }
    }
    if (arguments->first == arguments->last) {
        printf("seed %" PRIu64 ": holds, %" PRIu64 " events, digest %016" PRIx64 "\n", seed,
               result.n_events, result.digest);
    }
    return true;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    if (!read_arguments(argc, argv, &arguments)) {
        fprintf(stderr,
                "usage: tally-simulation [--replicas] [--single-updates] --seeds A-B [--twice] "
                "[--expect-violation]\n"
                "       tally-simulation [--replicas] [--single-updates] --seed N "
                "[--verbose]\n");
        return 2;
    }
    watch_failures();
    sim_vfs_install();
    uint64_t seed = arguments.first;
    bool holds = true;
    while (holds && seed <= arguments.last) {
        holds = run_seed(seed++, &arguments);
    }
    sim_fiber_end();
    if (arguments.expect_violation && holds) {
        printf("no violation in seeds %" PRIu64 "-%" PRIu64 "\n", arguments.first, arguments.last);
    }
    return holds != arguments.expect_violation ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Compares instances in a child process with those in this process. moody.so fails on demand. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/objectives/objective.h"
#include "services/plugins/plugin_set.h"
#include "tests/harness.h"

enum { DIM = 5, CLIENTS = 3 };

static const struct tally_plugin_limits LIMITS = {
    .timeout_ms = 60000, .cancel_fd = -1, .program = TEST_HOST};

static struct tally_job_spec moody_job(void)
{
    struct tally_job_spec spec = tally_job_spec_default();
    spec.objective.type = TALLY_PLUGIN;
    spec.objective.plugin = (struct tally_plugin_spec){.name = "moody", .dim = DIM};
    spec.reference.type = TALLY_REFERENCE_NONE;
    spec.clients = CLIENTS;
    return spec;
}

static struct tally_objective *make(struct tally_plugin_set *set,
                                    const struct tally_plugin_limits *limits)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *objective = NULL;
    const struct tally_job_spec spec = moody_job();
    TALLY_ASSERT_STATUS(tally_plugin_set_load_list(set, TEST_PLUGINS "/moody.so", limits, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_plugin_set_objective(set, &spec, "4711",
                                                   &(const struct tally_data_source){.dir = "."},
                                                   &objective, &err),
                        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(objective);
    return objective;
}

static enum tally_status query(const struct tally_objective *objective, uint32_t round,
                               struct tally_rng *rng, double ret_gradient[DIM],
                               struct tally_error *err)
{
    const double x[DIM] = {1, 2, 3, -0.0, 1e-300};
    *err = (struct tally_error)TALLY_ERROR_INIT;
    if (round > 0) {
        tally_rng_init(rng, tally_rng_key(1, 0), 2, round, TALLY_RNG_SAMPLING);
    }
    return tally_objective_local_gradient(objective, 2, x, 1, rng, ret_gradient, err);
}

static int count_descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

static bool has_children(void)
{
    return waitpid(-1, NULL, WNOHANG) != -1; /* ECHILD: not even a zombie */
}

static void test_plugins_process__a_child_gives_the_same_bytes(void)
{
    struct tally_plugin_set here = {0}, there = {0};
    struct tally_objective *mine = make(&here, NULL), *childs = make(&there, &LIMITS);
    struct tally_rng my_rng, childs_rng;
    struct tally_error err;
    double expected[DIM], got[DIM];
    for (uint32_t round = 1; round <= 20; round++) {
        for (int step = 0; step < 3; step++) { /* later steps continue the stream */
            const uint32_t start = step == 0 ? round : 0;
            TALLY_ASSERT_STATUS(query(mine, start, &my_rng, expected, &err), TALLY_OK, &err);
            TALLY_ASSERT_STATUS(query(childs, start, &childs_rng, got, &err), TALLY_OK, &err);
            CU_ASSERT_EQUAL(memcmp(expected, got, sizeof got), 0);
            CU_ASSERT_EQUAL(memcmp(&my_rng, &childs_rng, sizeof my_rng), 0);
        }
        double a = 0, b = 1;
        CU_ASSERT_EQUAL(tally_objective_local_loss(mine, round % CLIENTS, got, &a, &err), TALLY_OK);
        CU_ASSERT_EQUAL(tally_objective_local_loss(childs, round % CLIENTS, got, &b, &err),
                        TALLY_OK);
        CU_ASSERT_EQUAL(a, b);
    }
    tally_objective_free(mine);
    tally_objective_free(childs);
    tally_plugin_set_fini(&here);
    tally_plugin_set_fini(&there);
    CU_ASSERT_FALSE(has_children());
}

/* Checks that the end of a child is reported, that a later call fails with the same error, and that
 * no process remains. */
static void expect_end(const char *mood, const struct tally_plugin_limits *limits,
                       const char *beginning)
{
    struct tally_plugin_set set = {0};
    struct tally_rng rng;
    struct tally_error err;
    double g[DIM];
    const int before = count_descriptors();
    setenv("MOODY", mood, 1);
    struct tally_objective *objective = make(&set, limits);
    TALLY_ASSERT_STATUS(query(objective, 1, &rng, g, &err), TALLY_OK, &err);
    for (int i = 0; i < 2; i++) {
        TALLY_ASSERT_STATUS(query(objective, 2, &rng, g, &err), TALLY_FAILED_PRECONDITION, &err);
        err.message[strlen(beginning)] = '\0';
        TALLY_ASSERT_TEXT(err.message, beginning);
    }
    CU_ASSERT_FALSE(has_children());
    tally_objective_free(objective);
    tally_plugin_set_fini(&set);
    unsetenv("MOODY");
    CU_ASSERT_EQUAL(count_descriptors(), before);
}

#define IN_ROUND "plug-in moody: gradient of client 2 in round 2: "

static void test_plugins_process__the_end_of_a_child_is_a_failed_answer(void)
{
    struct tally_plugin_limits hasty = LIMITS;
    hasty.timeout_ms = 5000;
    expect_end("gradient abort 2", &LIMITS, IN_ROUND "killed by signal 6 (Aborted)");
    expect_end("gradient exit 2", &LIMITS, IN_ROUND "its process exited with status 3");
    expect_end("gradient close 2", &LIMITS, IN_ROUND "its process closed the connection");
    expect_end("gradient garbage 2", &LIMITS, IN_ROUND "its process sent an invalid reply");
    expect_end("gradient grandchild 2", &LIMITS, IN_ROUND "killed by signal 9 (Killed)");
    expect_end("gradient hang 2", &hasty,
               IN_ROUND "no answer after 5000 ms; its process was killed");
}

/* The process of a plug-in that only returns errors is kept. */
static void test_plugins_process__a_failed_answer_is_no_end(void)
{
    struct tally_plugin_set set = {0};
    struct tally_rng rng;
    struct tally_error err;
    double g[DIM];
    setenv("MOODY", "gradient fail 2", 1);
    struct tally_objective *objective = make(&set, &LIMITS);
    unsetenv("MOODY");
    for (int i = 0; i < 2; i++) {
        TALLY_ASSERT_STATUS(query(objective, 2, &rng, g, &err), TALLY_FAILED_PRECONDITION, &err);
        TALLY_ASSERT_TEXT(err.message, IN_ROUND "the moon is full");
        TALLY_ASSERT_STATUS(query(objective, 1, &rng, g, &err), TALLY_OK, &err);
    }
    tally_objective_free(objective);
    tally_plugin_set_fini(&set);
}

static void test_plugins_process__calls_are_given_up_when_told(void)
{
    struct tally_plugin_set set = {0};
    struct tally_rng rng;
    struct tally_error err;
    double g[DIM];
    int ends[2];
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    struct tally_plugin_limits limits = LIMITS;
    limits.cancel_fd = ends[0];
    setenv("MOODY", "gradient hang 2", 1);
    struct tally_objective *objective = make(&set, &limits);
    unsetenv("MOODY");
    TALLY_ASSERT_STATUS(query(objective, 1, &rng, g, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(write(ends[1], "!", 1), 1);
    TALLY_ASSERT_STATUS(query(objective, 2, &rng, g, &err), TALLY_CANCELLED, &err);
    CU_ASSERT_FALSE(has_children());
    tally_objective_free(objective);
    tally_plugin_set_fini(&set);
    close(ends[0]);
    close(ends[1]);
}

static void expect_not_isolated(const char *path, const char *mood,
                                const struct tally_plugin_limits *limits, const char *message)
{
    struct tally_plugin_set set = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    setenv("MOODY", mood, 1);
    TALLY_ASSERT_STATUS(tally_plugin_set_isolate(&set, path, limits, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    CU_ASSERT_PTR_NULL(set.first);
    CU_ASSERT_FALSE(has_children());
    unsetenv("MOODY");
}

static void test_plugins_process__what_cannot_be_loaded_says_why(void)
{
    struct tally_plugin_limits limits = LIMITS;
    expect_not_isolated("none.so", "", &limits, "none.so: No such file or directory");
    expect_not_isolated(TEST_PLUGINS "/silent.so", "", &limits,
                        TEST_PLUGINS "/silent.so: it exports no function tally_plugin()");
    expect_not_isolated(TEST_PLUGINS "/moody.so", "load exit 0", &limits,
                        TEST_PLUGINS "/moody.so: its process exited with status 3");
    limits.program = "/no/such/program";
    expect_not_isolated(TEST_PLUGINS "/moody.so", "", &limits,
                        TEST_PLUGINS "/moody.so: its process could not be started");
    limits.program = "/bin/true"; /* an unrelated program */
    expect_not_isolated(TEST_PLUGINS "/moody.so", "", &limits,
                        TEST_PLUGINS "/moody.so: its process exited with status 0");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_plugins_process__a_child_gives_the_same_bytes),
    TALLY_TEST(test_plugins_process__the_end_of_a_child_is_a_failed_answer),
    TALLY_TEST(test_plugins_process__a_failed_answer_is_no_end),
    TALLY_TEST(test_plugins_process__calls_are_given_up_when_told),
    TALLY_TEST(test_plugins_process__what_cannot_be_loaded_says_why),
};
TALLY_SUITE(plugins_process, TESTS);

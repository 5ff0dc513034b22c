#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "services/libtally/tally.h"
#include "services/objectives/plugin.h"
#include "tests/harness.h"

static struct tally_worker_config config_new(void)
{
    struct tally_worker_config config;
    tally_worker_config_init(&config, sizeof config);
    return config;
}

static void expect_refused(const struct tally_worker_config *config, enum tally_code code,
                           const char *field)
{
    struct tally_worker *worker = NULL;
    struct tally_failure failure = {.code = 0};
    CU_ASSERT_EQUAL(tally_worker_new(config, &worker, &failure), code);
    TALLY_ASSERT_TEXT(failure.field, field);
    CU_ASSERT_PTR_NULL(worker);
}

static void test_libtally_worker__defaults(void)
{
    const struct tally_worker_config config = config_new();
    CU_ASSERT_EQUAL(config.size, sizeof config);
    TALLY_ASSERT_TEXT(config.coordinator, "http://127.0.0.1:8080");
    TALLY_ASSERT_TEXT(config.data_dir, "data");
    CU_ASSERT_EQUAL(config.clients, 1);
    CU_ASSERT_EQUAL(config.wait_ms, 10000);
    CU_ASSERT_PTR_NULL(config.plugin);
}

static void test_libtally_worker__limits(void)
{
    struct tally_worker_config config = config_new();
    char text[128];
    memset(text, 'x', sizeof text);
    text[65] = '\0';
    config.clients = 0;
    expect_refused(&config, TALLY_CODE_OUT_OF_RANGE, "clients");
    config.clients = 8193;
    expect_refused(&config, TALLY_CODE_OUT_OF_RANGE, "clients");
    config = config_new();
    config.wait_ms = 30001;
    expect_refused(&config, TALLY_CODE_OUT_OF_RANGE, "wait_ms");
    config = config_new();
    config.name = text;
    expect_refused(&config, TALLY_CODE_OUT_OF_RANGE, "name");
    config.name = "";
    expect_refused(&config, TALLY_CODE_OUT_OF_RANGE, "name");
    config = config_new();
    config.job = text;
    expect_refused(&config, TALLY_CODE_OUT_OF_RANGE, "job");
    config = config_new();
    config.token = "a b";
    expect_refused(&config, TALLY_CODE_INVALID_ARGUMENT, "token");
    config.token_file = "/nonexistent";
    expect_refused(&config, TALLY_CODE_INVALID_ARGUMENT, "token_file");
    config = config_new();
    config.coordinator = "tcp://127.0.0.1";
    expect_refused(&config, TALLY_CODE_INVALID_ARGUMENT, "coordinator");
    config.coordinator = NULL;
    expect_refused(&config, TALLY_CODE_INVALID_ARGUMENT, "coordinator");
}

/* Programs compiled with a newer header, or that do not set the size. */
static void test_libtally_worker__sizes_of_other_versions(void)
{
    struct {
        struct tally_worker_config config;
        uint64_t newer;
    } larger;
    struct tally_worker *worker = NULL;
    tally_worker_config_init(&larger.config, sizeof larger);
    CU_ASSERT_EQUAL(larger.newer, 0);
    CU_ASSERT_EQUAL(tally_worker_new(&larger.config, &worker, NULL), TALLY_CODE_OK);
    tally_worker_free(worker);
    larger.newer = 1;
    expect_refused(&larger.config, TALLY_CODE_INVALID_ARGUMENT, "size");
    struct tally_worker_config config = config_new();
    config.size = 0;
    expect_refused(&config, TALLY_CODE_INVALID_ARGUMENT, "size");
}

static void test_libtally_worker__a_plug_in_is_checked(void)
{
    struct tally_worker_config config = config_new();
    struct tally_plugin plugin = {.abi = TALLY_PLUGIN_ABI + 1, .size = sizeof plugin, .name = "p"};
    struct tally_worker *worker = NULL;
    config.plugin = &plugin;
    CU_ASSERT_EQUAL(tally_worker_new(&config, &worker, NULL), TALLY_CODE_INVALID_ARGUMENT);
    CU_ASSERT_PTR_NULL(worker);
}

static void *run(void *worker)
{
    struct tally_worker_totals totals = {.rounds = 1};
    CU_ASSERT_EQUAL(tally_worker_run(worker, &totals, NULL), TALLY_CODE_OK);
    CU_ASSERT_EQUAL(totals.rounds, 0);
    return NULL;
}

static void count_line(void *context, int level, const char *line)
{
    static const char expected[] = "event=\"coordinator not reachable, retrying\"";
    CU_ASSERT_EQUAL(level, TALLY_LOG_LEVEL_WARN);
    CU_ASSERT_EQUAL(pthread_kill(pthread_self(), SIGPIPE), 0); /* as a write inside may raise it */
    CU_ASSERT_EQUAL(strncmp(line, expected, sizeof expected - 1), 0);
    CU_ASSERT_PTR_NULL(strchr(line, '\n'));
    __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST);
}

/* Nothing listens on port 1: both workers retry until they are stopped, each with its own log. */
static void test_libtally_worker__two_are_stopped_apart(void)
{
    struct tally_worker *workers[2];
    pthread_t threads[2];
    int lines[2] = {0, 0};
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    for (int i = 0; i < 2; i++) {
        struct tally_worker_config config = config_new();
        config.coordinator = "http://127.0.0.1:1";
        config.log = count_line;
        config.log_context = &lines[i];
        CU_ASSERT_EQUAL_FATAL(tally_worker_new(&config, &workers[i], NULL), TALLY_CODE_OK);
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, run, workers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        while (__atomic_load_n(&lines[i], __ATOMIC_SEQ_CST) == 0) {
            sched_yield();
        }
        tally_worker_stop(workers[i]);
        pthread_join(threads[i], NULL);
        CU_ASSERT_EQUAL(lines[i], 1);
        tally_worker_free(workers[i]);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    CU_ASSERT_EQUAL(sigismember(&before, SIGPIPE), sigismember(&after, SIGPIPE));
    tally_worker_free(NULL);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_libtally_worker__defaults),
    TALLY_TEST(test_libtally_worker__limits),
    TALLY_TEST(test_libtally_worker__sizes_of_other_versions),
    TALLY_TEST(test_libtally_worker__a_plug_in_is_checked),
    TALLY_TEST(test_libtally_worker__two_are_stopped_apart),
};
TALLY_SUITE(libtally_worker, TESTS);

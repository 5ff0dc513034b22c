#include "services/objectives/plugin_instance.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/plugins/stub_plugin.h"

static void expect_unusable(const struct tally_plugin *plugin, const char *message)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_plugin_check(plugin, &err),
                        message == NULL ? TALLY_OK : TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, message == NULL ? "" : message);
}

static void test_plugins_instance__tables_are_checked(void)
{
    struct tally_plugin plugin = STUB_PLUGIN;
    expect_unusable(&plugin, NULL);
    plugin.size += 8; /* a later version with more members */
    expect_unusable(&plugin, NULL);
    plugin.loss = NULL;
    expect_unusable(&plugin, NULL);
    plugin.open = NULL;
    expect_unusable(&plugin, "plug-in stub has no function \"open\"");
    plugin.open = STUB_PLUGIN.open;
    plugin.close = NULL;
    expect_unusable(&plugin, "plug-in stub has no function \"close\"");
    plugin.close = STUB_PLUGIN.close;
    plugin.gradient = NULL;
    expect_unusable(&plugin, "plug-in stub has no function \"gradient\"");
    plugin.name = "a/b";
    expect_unusable(&plugin, "its name is not 1 to 64 of a-z 0-9 - _");
    plugin.name = NULL;
    expect_unusable(&plugin, "its name is not 1 to 64 of a-z 0-9 - _");
    const size_t first_size = offsetof(struct tally_plugin, metrics);
    plugin.size = first_size - 1;
    char message[160];
    snprintf(message, sizeof message,
             "its table says that it has %zu bytes, not %zu or more; set size to sizeof(struct "
             "tally_plugin)",
             first_size - 1, first_size);
    expect_unusable(&plugin, message);
    plugin.abi = 9; /* no other member may be read */
    plugin.name = (const char *)1;
    expect_unusable(&plugin,
                    "it is made for version 9 of the plug-in ABI, this is version 1; rebuild "
                    "it with this version's plugin.h");
    expect_unusable(NULL, "tally_plugin() returns NULL");
}

static int give_metrics(void *state, uint32_t client, uint32_t round, const double *x,
                        struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                        size_t capacity)
{
    snprintf(ret_why, capacity, "it was told to fail");
    ret_metrics[0] = (struct tally_plugin_metric){"first", x[0] + client};
    ret_metrics[1] = (struct tally_plugin_metric){"round", round};
    *ret_n = round == 99 ? 17 : 2;
    return state == &stub ? stub.code : -1;
}

/* The table of a plug-in built with an older plugin.h ends before the function; the memory after it
 * is not read. */
static void test_plugins_instance__metrics_are_optional(void)
{
    struct tally_plugin plugin = STUB_PLUGIN;
    const struct tally_plugin_problem problem = stub_problem();
    struct tally_plugin_instance *instance = NULL;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    struct tally_error err = TALLY_ERROR_INIT;
    const double x[STUB_DIM] = {0.25};
    size_t n = 0;
    stub = (struct stub){.code = 0};
    CU_ASSERT_FALSE(tally_plugin_has_metrics(&plugin));
    plugin.metrics = give_metrics;
    plugin.size = offsetof(struct tally_plugin, metrics);
    expect_unusable(&plugin, NULL);
    CU_ASSERT_FALSE(tally_plugin_has_metrics(&plugin));
    plugin.size = sizeof plugin;
    CU_ASSERT_TRUE(tally_plugin_has_metrics(&plugin));
    CU_ASSERT_EQUAL(tally_plugin_instance_open(&plugin, &problem, &instance, &err), TALLY_OK);
    CU_ASSERT_TRUE(instance->has_metrics);
    CU_ASSERT_EQUAL(instance->ops->metrics(instance, 1, 7, x, metrics, &n, &err), TALLY_OK);
    CU_ASSERT_EQUAL(n, 2);
    TALLY_ASSERT_TEXT(metrics[0].name, "first");
    CU_ASSERT_EQUAL(metrics[0].value, 1.25);
    CU_ASSERT_EQUAL(metrics[1].value, 7);
    CU_ASSERT_EQUAL(instance->ops->metrics(instance, 1, 99, x, metrics, &n, &err),
                    TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(err.message, "17 metrics, at most 16");
    stub.code = 3;
    err = (struct tally_error)TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(instance->ops->metrics(instance, 1, 7, x, metrics, &n, &err),
                    TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(err.message, "it was told to fail");
    stub.code = 0;
    tally_plugin_instance_free(instance);
}

static void test_plugins_instance__names(void)
{
    char longest[66];
    memset(longest, 'z', 65);
    longest[65] = '\0';
    CU_ASSERT_FALSE(tally_plugin_is_name(longest));
    longest[64] = '\0';
    CU_ASSERT_TRUE(tally_plugin_is_name(longest));
    CU_ASSERT_TRUE(tally_plugin_is_name("my_lasso-2"));
    CU_ASSERT_FALSE(tally_plugin_is_name(""));
    CU_ASSERT_FALSE(tally_plugin_is_name("Lasso"));
    CU_ASSERT_FALSE(tally_plugin_is_name("a b"));
}

static void test_plugins_instance__problem_and_query_arrive(void)
{
    stub = (struct stub){0};
    struct tally_plugin_problem problem = stub_problem();
    problem.run = 9;
    struct tally_plugin_instance *instance = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_plugin_instance_open(&STUB_PLUGIN, &problem, &instance, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_TEXT(instance->name, "stub");
    CU_ASSERT_TRUE(instance->has_loss);
    CU_ASSERT_EQUAL(memcmp(&stub.problem, &problem, sizeof problem), 0);
    TALLY_ASSERT_TEXT(stub.options, "shallow");
    TALLY_ASSERT_TEXT(stub.data_dir, "here");
    struct tally_rng rng, twin;
    tally_rng_init(&rng, tally_rng_key(5, 0), 1, 77, TALLY_RNG_SAMPLING);
    twin = rng;
    const double x[STUB_DIM] = {1, 2, 3};
    double g[STUB_DIM];
    TALLY_ASSERT_STATUS(instance->ops->gradient(instance, 1, 8, &rng, x, g, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(g[0] == 1 && g[1] == 3 && g[2] == 5);
    CU_ASSERT_EQUAL(stub.query.size, sizeof stub.query);
    CU_ASSERT_EQUAL(stub.query.client, 1);
    CU_ASSERT_EQUAL(stub.query.round, 77);
    CU_ASSERT_EQUAL(stub.query.samples, 8);
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(stub.draws[i], tally_rng_below(&twin, 1000));
    }
    CU_ASSERT_EQUAL(tally_rng_u32(&rng), tally_rng_u32(&twin)); /* the next query continues */
    CU_ASSERT_EQUAL(stub.query.below(&rng, 0), 0);              /* out of range: no crash */
    tally_plugin_instance_free(instance);
    CU_ASSERT_EQUAL(stub.n_opened, 1);
    CU_ASSERT_EQUAL(stub.n_closed, 1);
    tally_plugin_instance_free(NULL);
}

static void expect_not_opened(const char *message)
{
    struct tally_plugin_problem problem = stub_problem();
    struct tally_plugin_instance *instance = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_plugin_instance_open(&STUB_PLUGIN, &problem, &instance, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    CU_ASSERT_PTR_NULL(instance);
}

static void test_plugins_instance__what_does_not_open_is_not_closed(void)
{
    stub = (struct stub){.code = -4, .why = "no data"};
    expect_not_opened("no data");
    stub.why = NULL;
    expect_not_opened("it returned -4 without a reason");
    stub.why = "a\nb\xff";
    expect_not_opened("a b?");
    CU_ASSERT_EQUAL(stub.n_closed, 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_plugins_instance__tables_are_checked),
    TALLY_TEST(test_plugins_instance__metrics_are_optional),
    TALLY_TEST(test_plugins_instance__names),
    TALLY_TEST(test_plugins_instance__problem_and_query_arrive),
    TALLY_TEST(test_plugins_instance__what_does_not_open_is_not_closed),
};
TALLY_SUITE(plugins_instance, TESTS);

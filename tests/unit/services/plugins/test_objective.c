#include "services/objectives/plugin_objective.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "services/objectives/known_losses.h"
#include "tests/harness.h"
#include "tests/unit/services/plugins/stub_plugin.h"

static struct tally_plugin table;

static enum tally_status open_table(const struct tally_plugin *plugin, struct tally_objective *own,
                                    struct tally_objective **ret, struct tally_error *err)
{
    const struct tally_plugin_problem problem = stub_problem();
    struct tally_plugin_instance *instance = NULL;
    enum tally_status status = tally_plugin_check(plugin, err);
    if (status == TALLY_OK) {
        status = tally_plugin_instance_open(plugin, &problem, &instance, err);
    }
    return status == TALLY_OK ? tally_plugin_objective_of(instance, &problem, false, own, ret, err)
                              : status;
}

static struct tally_objective *make(bool has_loss, struct tally_objective *own)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    stub = (struct stub){0};
    table = STUB_PLUGIN;
    table.loss = has_loss ? STUB_PLUGIN.loss : NULL;
    TALLY_ASSERT_STATUS(open_table(&table, own, &objective, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(objective);
    return objective;
}

static enum tally_status query(const struct tally_objective *objective, const double *x,
                               double ret_gradient[STUB_DIM], struct tally_error *err)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(5, 0), 1, 12, TALLY_RNG_SAMPLING);
    *err = (struct tally_error)TALLY_ERROR_INIT;
    return tally_objective_local_gradient(objective, 1, x, 4, &rng, ret_gradient, err);
}

static const double X[STUB_DIM] = {1, 2, 3};

static void expect_failure(const struct tally_objective *objective, const char *message)
{
    struct tally_error err;
    double g[STUB_DIM];
    TALLY_ASSERT_STATUS(query(objective, X, g, &err), TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.message, message);
}

#define IN_ROUND "plug-in stub: gradient of client 1 in round 12: "

static void test_plugins_objective__good_answers_pass(void)
{
    struct tally_objective *objective = make(true, NULL);
    struct tally_error err;
    double g[STUB_DIM], loss = 0, losses[2];
    const double points[2 * STUB_DIM] = {1, 2, 3, 4, 5, 6};
    CU_ASSERT_EQUAL(objective->dim, STUB_DIM);
    CU_ASSERT_EQUAL(objective->clients, 2);
    TALLY_ASSERT_STATUS(query(objective, X, g, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(g[0] == 1 && g[1] == 3 && g[2] == 5);
    stub.change[1] = -FLT_MAX; /* the largest that a message can carry */
    TALLY_ASSERT_STATUS(query(objective, X, g, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(tally_objective_has_loss(objective));
    TALLY_ASSERT_STATUS(tally_objective_local_loss(objective, 1, X, &loss, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(loss, 2);
    TALLY_ASSERT_STATUS(tally_objective_losses(objective, points, 2, losses, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(losses[0], 1.5); /* the mean over both clients */
    CU_ASSERT_EQUAL(losses[1], 4.5);
    const double elsewhere[STUB_DIM] = {7};
    stub.loss = DBL_MAX; /* a penalty, say; the sum over both clients is infinite */
    TALLY_ASSERT_STATUS(tally_objective_losses(objective, elsewhere, 1, losses, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL(losses[0], DBL_MAX);
    tally_objective_free(objective);
    CU_ASSERT_EQUAL(stub.n_closed, 1);
}

/* Also within one call. After more points than the tables hold, the last ones are still known, the
 * first are not. */
static void test_plugins_objective__a_loss_is_computed_once_for_a_point(void)
{
    enum { N = 3 * KNOWN_LOSSES_MOST };
    struct tally_objective *objective = make(true, NULL);
    struct tally_error err = TALLY_ERROR_INIT;
    double losses[3], points[3 * STUB_DIM] = {1, 2, 3, 1, 2, 3.5, 1, 2, 3};
    for (int i = 0; i < 2; i++) {
        TALLY_ASSERT_STATUS(tally_objective_losses(objective, points, 3, losses, &err), TALLY_OK,
                            &err);
        CU_ASSERT_EQUAL(stub.n_losses, 2 * 2); /* points, clients */
        CU_ASSERT_TRUE(losses[0] == 1.5 && losses[1] == 1.5 && losses[2] == 1.5);
    }
    for (int i = 0; i < N; i++) {
        points[0] = i;
        tally_objective_losses(objective, points, 1, losses, NULL);
        CU_ASSERT_EQUAL(losses[0], i + 0.5);
    }
    CU_ASSERT_EQUAL(stub.n_losses, 2 * (N + 1)); /* 1, 2, 3 was known */
    for (int i = N - 1; i >= N - KNOWN_LOSSES_MOST; i--) {
        points[0] = i;
        tally_objective_losses(objective, points, 1, losses, NULL);
        CU_ASSERT_EQUAL(losses[0], i + 0.5);
    }
    CU_ASSERT_EQUAL(stub.n_losses, 2 * (N + 1));
    points[0] = 0;
    tally_objective_losses(objective, points, 1, losses, NULL);
    CU_ASSERT_EQUAL(stub.n_losses, 2 * (N + 2));
    CU_ASSERT_EQUAL(losses[0], 0.5);
    tally_objective_free(objective);
}

static void test_plugins_objective__wrong_gradients_are_its_fault(void)
{
    struct tally_objective *objective = make(true, NULL);
    stub.change[2] = NAN;
    expect_failure(objective, IN_ROUND "coordinate 2 is NaN");
    stub.change[1] = -INFINITY; /* the error names the first one */
    expect_failure(objective, IN_ROUND "coordinate 1 is -inf, beyond what float can hold");
    stub.change[0] = 4e38;
    expect_failure(objective, IN_ROUND "coordinate 0 is 4e+38, beyond what float can hold");
    stub = (struct stub){.left_out = 1};
    expect_failure(objective, IN_ROUND "coordinate 2 is NaN");
    stub = (struct stub){.dim = 2};
    expect_failure(objective, IN_ROUND "it wrote 2 coordinates, the job has dim 3");
    stub = (struct stub){.dim = UINT64_MAX};
    expect_failure(objective,
                   IN_ROUND "it wrote 18446744073709551615 coordinates, the job has dim 3");
    stub = (struct stub){.code = 1, .why = "the dog ate it"};
    expect_failure(objective, IN_ROUND "the dog ate it");
    stub = (struct stub){.code = 1};
    expect_failure(objective, IN_ROUND "it returned 1 without a reason");
    tally_objective_free(objective);
}

static void test_plugins_objective__wrong_losses_are_its_fault(void)
{
    struct tally_objective *objective = make(true, NULL);
    static const struct {
        struct stub stub;
        const char *message;
    } rows[] = {{{.loss = NAN}, "plug-in stub: loss of client 1: it is NaN"},
                {{.loss = -INFINITY}, "plug-in stub: loss of client 1: it is infinite"},
                {{.code = 3, .why = "lost"}, "plug-in stub: loss of client 1: lost"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        double loss = 7;
        stub = rows[i].stub;
        TALLY_ASSERT_STATUS(tally_objective_local_loss(objective, 1, X, &loss, &err),
                            TALLY_FAILED_PRECONDITION, &err);
        TALLY_ASSERT_TEXT(err.message, rows[i].message);
        CU_ASSERT_EQUAL(loss, 7);
        tally_error_clear(&err);
        TALLY_ASSERT_STATUS(tally_objective_losses(objective, X, 1, &loss, &err),
                            TALLY_FAILED_PRECONDITION, &err);
    }
    tally_objective_free(objective);
}

/* Divergence is caused by the steps, so the plug-in is neither called nor blamed. */
static void test_plugins_objective__is_not_asked_at_a_point_that_is_none(void)
{
    struct tally_objective *objective = make(true, NULL);
    const double x[STUB_DIM] = {1, INFINITY, 3};
    struct tally_error err;
    double g[STUB_DIM], loss;
    TALLY_ASSERT_STATUS(query(objective, x, g, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(isnan(g[0]) && isnan(g[1]) && isnan(g[2]));
    CU_ASSERT_EQUAL(stub.n_gradients, 0);
    TALLY_ASSERT_STATUS(tally_objective_local_loss(objective, 0, x, &loss, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(isnan(loss));
    tally_objective_free(objective);
}

static void test_plugins_objective__without_a_loss_there_is_no_regret(void)
{
    struct tally_objective *objective = make(false, NULL);
    struct tally_error err = TALLY_ERROR_INIT;
    double loss;
    CU_ASSERT_FALSE(tally_objective_has_loss(objective));
    TALLY_ASSERT_STATUS(tally_objective_local_loss(objective, 0, X, &loss, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.message, "plug-in stub: loss of client 0: it has no function \"loss\"");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &loss, NULL, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.field, "reference");
    tally_objective_free(objective);
}

/* A plug-in that replaces another objective uses that objective's functions in place of those it
 * lacks. */
static void test_plugins_objective__losses_may_be_those_of_the_document(void)
{
    struct tally_objective_spec spec = tally_objective_spec_default();
    spec.data.synthetic_linear.dim = STUB_DIM;
    spec.data.synthetic_linear.points = 20;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *own = NULL, *twin = NULL;
    const struct tally_rng_key key = tally_rng_key(5, 0);
    TALLY_ASSERT_STATUS(tally_objective_new(&spec, 2, key, ".", &own, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_objective_new(&spec, 2, key, ".", &twin, &err), TALLY_OK, &err);
    struct tally_objective *objective = make(false, own);
    double got = 0, expected = 1, g[STUB_DIM];
    CU_ASSERT_TRUE(tally_objective_has_loss(objective));
    TALLY_ASSERT_STATUS(tally_objective_local_loss(objective, 1, X, &got, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_objective_local_loss(twin, 1, X, &expected, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(got, expected);
    TALLY_ASSERT_STATUS(tally_objective_losses(objective, X, 1, &got, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_objective_losses(twin, X, 1, &expected, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(got, expected);
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &got, NULL, &err), TALLY_OK,
                        &err);
    TALLY_ASSERT_STATUS(tally_objective_minimum(twin, NULL, NULL, &expected, NULL, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL(got, expected);
    TALLY_ASSERT_STATUS(query(objective, X, g, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(g[0] == 1 && g[1] == 3 && g[2] == 5); /* the plug-in's gradient */
    tally_objective_free(objective);
    tally_objective_free(twin);
}

static void test_plugins_objective__open_fails_with_the_plug_ins_words(void)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    stub = (struct stub){.code = 1, .why = "no such file"};
    TALLY_ASSERT_STATUS(open_table(&STUB_PLUGIN, NULL, &objective, &err), TALLY_FAILED_PRECONDITION,
                        &err);
    TALLY_ASSERT_TEXT(err.message, "no such file");
    CU_ASSERT_PTR_NULL(objective);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_plugins_objective__good_answers_pass),
    TALLY_TEST(test_plugins_objective__a_loss_is_computed_once_for_a_point),
    TALLY_TEST(test_plugins_objective__wrong_gradients_are_its_fault),
    TALLY_TEST(test_plugins_objective__wrong_losses_are_its_fault),
    TALLY_TEST(test_plugins_objective__is_not_asked_at_a_point_that_is_none),
    TALLY_TEST(test_plugins_objective__without_a_loss_there_is_no_regret),
    TALLY_TEST(test_plugins_objective__losses_may_be_those_of_the_document),
    TALLY_TEST(test_plugins_objective__open_fails_with_the_plug_ins_words),
};
TALLY_SUITE(plugins_objective, TESTS);

#include "services/objectives/objective.h"

#include "tests/harness.h"

static void expect(int64_t dim, int64_t points, int64_t clients, const char *message)
{
    struct tally_objective_spec spec = tally_objective_spec_default();
    spec.data.synthetic_linear.dim = dim;
    spec.data.synthetic_linear.points = points;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_spec_validate(&spec, clients, &err),
                        message == NULL ? TALLY_OK : TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, message == NULL ? "" : "objective.data.points");
    TALLY_ASSERT_TEXT(err.message, message == NULL ? "" : message);
}

static void test_objectives_objective__points_must_do_for_all_clients(void)
{
    expect(30, 10, 10, NULL);
    expect(30, 9, 10, "9 points cannot be split over 10 clients");
}

static void test_objectives_objective__data_must_fit_in_memory(void)
{
    expect(1, 1 << 27, 1, NULL);
    expect(1, (1 << 27) + 1, 1, "134217729 points of 1 values are more than 134217728 values");
    expect(2, 1 << 26, 1, NULL);
    expect(2, (1 << 26) + 1, 1, "67108865 points of 2 values are more than 134217728 values");
    expect(10000000, 13, 1, NULL);
    expect(10000000, 14, 1, "14 points of 10000000 values are more than 134217728 values");
}

static void test_objectives_objective__default_is_the_loud_reading(void)
{
    struct tally_objective_spec spec = tally_objective_spec_default();
    CU_ASSERT_EQUAL(spec.data.synthetic_linear.frobenius_norm, 100);
    CU_ASSERT_EQUAL(spec.data.synthetic_linear.noise_std, 1);
    spec.data.synthetic_linear.dim = 30;
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec), 30);
    TALLY_ASSERT_TEXT(TALLY_OBJECTIVE_NAMES[spec.type], "least_squares");
    TALLY_ASSERT_TEXT(TALLY_DATA_NAMES[spec.data.type], "synthetic_linear");
}

/* The table of names agrees with the kinds, and choosing a type sets its defaults. */
static void test_objectives_objective__table_and_files_agree(void)
{
    int n = 0;
    for (; TALLY_OBJECTIVE_KINDS[n] != NULL; n++) {
        struct tally_objective_spec spec = tally_objective_spec_default();
        spec.parameters[0] = spec.parameters[1] = spec.l2 = -1;
        tally_objective_spec_choose(&spec, n);
        TALLY_ASSERT_TEXT(TALLY_OBJECTIVE_NAMES[n], TALLY_OBJECTIVE_KINDS[n]->name);
        CU_ASSERT_EQUAL(spec.type, n);
        CU_ASSERT_EQUAL(spec.l2, TALLY_OBJECTIVE_KINDS[n]->l2);
        for (int p = 0; p < TALLY_LOSS_PARAMETERS; p++) {
            CU_ASSERT_EQUAL(spec.parameters[p], TALLY_OBJECTIVE_KINDS[n]->parameters[p]);
        }
        CU_ASSERT_EQUAL(TALLY_OBJECTIVE_KINDS[n]->make == NULL,
                        n == TALLY_PLUGIN || n == TALLY_TRAINING);
    }
    CU_ASSERT_PTR_NULL(TALLY_OBJECTIVE_NAMES[n]);
    CU_ASSERT_EQUAL(TALLY_OBJECTIVE_KINDS[TALLY_SOFTMAX_REGRESSION]->l2, 0.5);
    CU_ASSERT_EQUAL(TALLY_OBJECTIVE_KINDS[TALLY_HUBER_REGRESSION]->parameters[0], 1.345);
    TALLY_ASSERT_TEXT(TALLY_DATA_KINDS[TALLY_DATA_NPZ].name, TALLY_DATA_NAMES[TALLY_DATA_NPZ]);
}

static void test_objectives_objective__free_takes_null(void)
{
    tally_objective_free(NULL);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_objective__points_must_do_for_all_clients),
    TALLY_TEST(test_objectives_objective__data_must_fit_in_memory),
    TALLY_TEST(test_objectives_objective__default_is_the_loud_reading),
    TALLY_TEST(test_objectives_objective__table_and_files_agree),
    TALLY_TEST(test_objectives_objective__free_takes_null),
};
TALLY_SUITE(objectives_objective, TESTS);

#include "services/job/job_footprint.h"

#include <string.h>

#include "tests/harness.h"

enum { FIXED = 192 << 10, PER_CLIENT = 352 };

static struct tally_job_spec drawn(int64_t dim, int64_t points, int64_t clients)
{
    struct tally_job_spec spec = tally_job_spec_default();
    spec.objective.data.synthetic_linear.dim = dim;
    spec.objective.data.synthetic_linear.points = points;
    spec.clients = clients;
    return spec;
}

static void test_job_footprint__of_a_started_job(void)
{
    struct tally_job_spec spec = drawn(1000000, 2, 2);
    CU_ASSERT_EQUAL(tally_footprint_started(&spec), 52000000 + 2 * PER_CLIENT + FIXED);
    TALLY_ASSERT_TEXT(tally_footprint_started_field(&spec), "objective.data.dim");
    spec = drawn(10, 100000, 100000);
    CU_ASSERT_EQUAL(tally_footprint_started(&spec), 520 + 100000 * PER_CLIENT + FIXED);
    TALLY_ASSERT_TEXT(tally_footprint_started_field(&spec), "clients");
    spec.objective.type = TALLY_PLUGIN;
    spec.objective.plugin.dim = TALLY_MAX_DIM;
    TALLY_ASSERT_TEXT(tally_footprint_started_field(&spec), "objective.dim");
}

/* m and v, their copies in the state, and one scratch vector. */
static void test_job_footprint__of_server_optimizers(void)
{
    static const int64_t vectors[] = {0, 1, 2, 2};
    struct tally_job_spec spec = drawn(1000000, 2, 2);
    while (tally_job_spec_algorithm(&spec) != &TALLY_FEDAVG) {
        spec.algorithm++;
    }
    spec.params = TALLY_FEDAVG.defaults();
    const int64_t without = tally_footprint_started(&spec);
    for (int type = 0; type < 4; type++) {
        spec.params.baseline.server_optimizer.type = type;
        spec.params.baseline.server_optimizer.step_size = 1;
        CU_ASSERT_EQUAL(tally_footprint_started(&spec) - without,
                        vectors[type] > 0 ? (2 * vectors[type] + 1) * 8000000 : 0);
    }
}

/* A shift consists of two vectors of floats and two round numbers. */
static void test_job_footprint__of_states_of_clients(void)
{
    struct tally_job_spec spec = drawn(1000000, 200, 100);
    CU_ASSERT_EQUAL(tally_footprint_state(&spec), 8000000 + 32 * 100);
    const int64_t without = tally_footprint_started(&spec);
    while (tally_job_spec_algorithm(&spec) != &TALLY_EF21) {
        spec.algorithm++;
    }
    const int64_t shifts = 100 * (8000000 + 16);
    CU_ASSERT_EQUAL(tally_footprint_state(&spec), 8000000 + 32 * 100 + shifts);
    CU_ASSERT_EQUAL(tally_footprint_started(&spec) - without, 2 * shifts + 8000000);
}

static void set_algorithm(struct tally_job_spec *spec, const struct tally_algorithm *algorithm)
{
    spec->algorithm = 0;
    while (tally_job_spec_algorithm(spec) != algorithm) {
        spec->algorithm++;
    }
    spec->params = algorithm->defaults();
}

static void test_job_footprint__of_an_update(void)
{
    struct tally_job_spec spec = drawn(1000, 2, 2);
    set_algorithm(&spec, &TALLY_FEDAVG);
    CU_ASSERT_EQUAL(tally_footprint_update(&spec), 4000);
    TALLY_ASSERT_TEXT(tally_footprint_update_field(&spec), "objective.data.dim");
    set_algorithm(&spec, &TALLY_EF21);
    spec.params.baseline.k = 10;
    CU_ASSERT_EQUAL(tally_footprint_update(&spec), 40); /* without the indices */
    TALLY_ASSERT_TEXT(tally_footprint_update_field(&spec), "algorithm.k");
    set_algorithm(&spec, &TALLY_CEAL);
    spec.encoding = TALLY_ENCODING_INDEX_UNARY;
    CU_ASSERT_EQUAL(tally_footprint_update(&spec), 125);
    spec.encoding = TALLY_ENCODING_INDEX_ENTROPY;
    CU_ASSERT_EQUAL(tally_footprint_update(&spec), 0);
    set_algorithm(&spec, &TALLY_CALM);
    CU_ASSERT_EQUAL(tally_footprint_update(&spec), 0);
}

static void test_job_footprint__of_solving(void)
{
    struct tally_job_spec spec = drawn(2000, 5000, 2);
    CU_ASSERT_EQUAL(tally_footprint_solving(&spec), 5000 * (8 * 2000 + 16) + 80 * 2000);
    TALLY_ASSERT_TEXT(tally_footprint_solving_field(&spec), "objective.data.points");
    spec = drawn(1024, 10, 2); /* the largest dim that gets a Hessian */
    CU_ASSERT_EQUAL(tally_footprint_solving(&spec),
                    10 * (8 * 1024 + 16) + 80 * 1024 + 24 * 1024 * 1024);
    TALLY_ASSERT_TEXT(tally_footprint_solving_field(&spec), "objective.data.dim");
    spec.objective.data.type = TALLY_DATA_MATRIX;
    spec.objective.data.matrix.dim = 8192;
    CU_ASSERT_EQUAL(tally_footprint_solving(&spec), INT64_C(16) * 8192 * 8192 + 80 * 8192);
    TALLY_ASSERT_TEXT(tally_footprint_solving_field(&spec), "objective.data.dim");
    spec.objective.data.type = TALLY_DATA_IDX;
    spec.objective.data.idx.features = 784;
    spec.objective.data.idx.classes = 10;
    spec.objective.data.idx.points_per_class = 5000;
    CU_ASSERT_EQUAL(tally_footprint_solving(&spec), 50000 * (784 + 16) + 80 * 784 + 24 * 784 * 784);
    TALLY_ASSERT_TEXT(tally_footprint_solving_field(&spec), "objective.data.points_per_class");
}

static void test_job_footprint__what_is_not_solved_takes_nothing(void)
{
    struct tally_job_spec spec = drawn(1000, 100000, 2);
    spec.reference.type = TALLY_REFERENCE_NONE;
    CU_ASSERT_EQUAL(tally_footprint_solving(&spec), 0);
    spec.reference.type = TALLY_REFERENCE_VALUE;
    CU_ASSERT_EQUAL(tally_footprint_solving(&spec), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_footprint__of_a_started_job),
    TALLY_TEST(test_job_footprint__of_server_optimizers),
    TALLY_TEST(test_job_footprint__of_states_of_clients),
    TALLY_TEST(test_job_footprint__of_an_update),
    TALLY_TEST(test_job_footprint__of_solving),
    TALLY_TEST(test_job_footprint__what_is_not_solved_takes_nothing),
};
TALLY_SUITE(job_footprint, TESTS);

/* The metrics of built-in objectives: accuracy on a client's own points, and on held-out points. */
#include <math.h>
#include <string.h>

#include "services/objectives/objective.h"
#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"

enum { CLIENTS = 2 };

static const double L2 = 0.25;

/* With x = 1 a point is classified as 1 if its only feature is above 0. */
static const double X[] = {1};

static void write_files(struct idx_files *files)
{
    idx_files_init(files);
    data_files_text(files, "train.csv", "a,label\n1,1\n2,1\n-1,1\n3,0\n-2,0\n-3,0\n0,0\n4,0\n");
    data_files_text(files, "test.csv", "a,label\n1,1\n-1,1\n-2,1\n-5,0\n5,1\n");
    data_files_text(files, "test-0.csv", "a,label\n1,1\n2,0\n");
    data_files_text(files, "test-1.csv", "a,label\n1,1\n2,1\n-3,0\n");
    data_files_text(files, "wide.csv", "a,b,label\n1,1,1\n");
    data_files_text(files, "labels.csv", "a,label\n1,7\n");
}

static struct tally_objective_spec spec_of(const char *test_file)
{
    struct tally_objective_spec spec = {
        .type = TALLY_LOGISTIC_REGRESSION,
        .l2 = L2,
        .data = {.type = TALLY_DATA_CSV,
                 .sharding = TALLY_SHARDING_CONTIGUOUS,
                 .table = {.file = "train.csv", .label = "label", .features = 1}}};
    strcpy(spec.data.table.test_file, test_file);
    return spec;
}

static struct tally_objective *make(const struct tally_objective_spec *spec,
                                    const struct idx_files *files)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_objective_new(spec, CLIENTS, tally_rng_key(1, 0), files->folder, &objective, &err),
        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(objective);
    return objective;
}

static size_t metrics_of(const struct tally_objective *objective, uint32_t client, const double *x,
                         struct tally_metric *ret_metrics)
{
    size_t n = 99;
    CU_ASSERT_EQUAL(tally_objective_metrics(objective, client, 1, x, true, ret_metrics, &n, NULL),
                    TALLY_OK);
    return n;
}

static void expect(const struct tally_metric *metric, const char *name, double value)
{
    TALLY_ASSERT_TEXT(metric->name, name);
    CU_ASSERT_DOUBLE_EQUAL(metric->value, value, 1e-15);
}

static double loss_of(double margin)
{
    return log1p(exp(-margin));
}

static void test_report__nothing_unless_it_is_asked_for(void)
{
    struct idx_files files;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    write_files(&files);
    const struct tally_objective_spec spec = spec_of("");
    struct tally_objective *objective = make(&spec, &files);
    CU_ASSERT_EQUAL(metrics_of(objective, 0, X, metrics), 0);
    CU_ASSERT_PTR_NULL(objective->report);
    tally_objective_free(objective);
    idx_files_fini(&files);
}

static void test_report__accuracy_is_of_the_clients_own_points(void)
{
    struct idx_files files;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    write_files(&files);
    struct tally_objective_spec spec = spec_of("");
    spec.accuracy = true;
    struct tally_objective *objective = make(&spec, &files);
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, X, metrics), 1); /* right: 1, 2; wrong: -1, 3 */
    expect(&metrics[0], "accuracy", 0.5);
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 1, X, metrics), 1); /* 0 is classified as 0 */
    expect(&metrics[0], "accuracy", 0.75);
    size_t n = 99; /* a round at the same point as before */
    CU_ASSERT_EQUAL(tally_objective_metrics(objective, 0, 2, X, false, metrics, &n, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(n, 0);
    tally_objective_free(objective);
    idx_files_fini(&files);
}

static void test_report__held_out_points_are_client_0s(void)
{
    struct idx_files files;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    write_files(&files);
    struct tally_objective_spec spec = spec_of("test.csv");
    struct tally_objective *objective = make(&spec, &files);
    const double expected =
        (loss_of(1) + loss_of(-1) + loss_of(-2) + loss_of(5) + loss_of(5)) / 5 + L2;
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, X, metrics), 2);
    expect(&metrics[0], "test_accuracy", 0.6);
    expect(&metrics[1], "test_loss", expected);
    CU_ASSERT_EQUAL(metrics_of(objective, 1, X, metrics), 0);
    /* A loss that is not finite is omitted; the accuracy is still reported. */
    const double far[] = {1e308};
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, far, metrics), 1);
    expect(&metrics[0], "test_accuracy", 0.6);
    tally_objective_free(objective);
    spec.accuracy = true;
    objective = make(&spec, &files);
    CU_ASSERT_EQUAL(metrics_of(objective, 0, X, metrics), 3);
    CU_ASSERT_EQUAL(metrics_of(objective, 1, X, metrics), 1);
    tally_objective_free(objective);
    /* Regression has no classes. */
    spec = spec_of("test.csv");
    spec.type = TALLY_LEAST_SQUARES;
    spec.l2 = 0;
    objective = make(&spec, &files);
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, X, metrics), 1);
    expect(&metrics[0], "test_loss", (0 + 4 + 9 + 25 + 16) / 5.0);
    tally_objective_free(objective);
    idx_files_fini(&files);
}

static void test_report__clients_with_files_of_their_own_have_held_out_points_too(void)
{
    struct idx_files files;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    write_files(&files);
    struct tally_objective_spec spec = spec_of("test-{client}.csv");
    spec.data.sharding = TALLY_SHARDING_LOCAL;
    struct tally_objective *objective = make(&spec, &files);
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, X, metrics), 2);
    expect(&metrics[0], "test_accuracy", 0.5);
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 1, X, metrics), 2);
    expect(&metrics[0], "test_accuracy", 1);
    expect(&metrics[1], "test_loss", (loss_of(1) + loss_of(2) + loss_of(3)) / 3 + L2);
    tally_objective_free(objective);
    idx_files_fini(&files);
}

/* The columns of the held-out points are those of the training data, in any order. */
static void test_report__held_out_columns_are_matched_by_name(void)
{
    struct idx_files files;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    const double x[] = {1, 10};
    idx_files_init(&files);
    data_files_text(&files, "train.csv", "a,b,label\n1,2,0\n3,4,0\n5,6,0\n7,8,0\n");
    data_files_text(&files, "test.csv", "label,b,a\n0,2,1\n");
    struct tally_objective_spec spec = spec_of("test.csv");
    spec.type = TALLY_LEAST_SQUARES;
    spec.l2 = 0;
    spec.data.table.features = 2;
    struct tally_objective *objective = make(&spec, &files);
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, x, metrics), 1);
    expect(&metrics[0], "test_loss", 21 * 21);
    const uint32_t columns = objective->columns;
    CU_ASSERT_TRUE(columns > 0 && columns < 1 << 28);
    tally_objective_free(objective);
    /* The order of the training data is what workers compare. */
    data_files_text(&files, "train.csv", "b,label,a\n2,0,1\n4,0,3\n6,0,5\n8,0,7\n");
    objective = make(&spec, &files);
    CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, x, metrics), 1);
    expect(&metrics[0], "test_loss", 12 * 12);
    CU_ASSERT_NOT_EQUAL(objective->columns, columns);
    tally_objective_free(objective);
    idx_files_fini(&files);
}

static void expect_refusal(const struct idx_files *files, const char *test_file, const char *said)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_objective_spec spec = spec_of(test_file);
    CU_ASSERT_EQUAL(
        tally_objective_new(&spec, CLIENTS, tally_rng_key(1, 0), files->folder, &objective, &err),
        TALLY_INVALID_ARGUMENT);
    CU_ASSERT_PTR_NULL(objective);
    TALLY_ASSERT_TEXT(err.field, "objective.data.test_file");
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "held-out points (test_file): "));
    if (strstr(err.message, said) == NULL) {
        TALLY_ASSERT_TEXT(err.message, said);
    }
}

static void test_report__errors_name_the_held_out_points(void)
{
    struct idx_files files;
    write_files(&files);
    expect_refusal(&files, "nowhere.csv", "nowhere.csv");
    expect_refusal(&files, "wide.csv", "wide.csv");
    expect_refusal(&files, "labels.csv", "labels.csv:2");
    data_files_text(&files, "other.csv", "b,label\n1,1\n");
    expect_refusal(
        &files, "other.csv",
        "other.csv:1: the columns are not those of train.csv: only this file has b, only "
        "that has a");
    /* A process that only solves does not load the held-out points. */
    struct tally_objective_spec spec = spec_of("nowhere.csv");
    spec.accuracy = true;
    tally_objective_spec_drop_report(&spec);
    struct tally_objective *objective = make(&spec, &files);
    CU_ASSERT_PTR_NULL(objective->report);
    tally_objective_free(objective);
    idx_files_fini(&files);
}

/* Image i of class c is bright at pixel c, but every fifth image is bright at the next pixel. */
static void write_images(const struct idx_files *files, const char *images, const char *labels,
                         uint32_t n)
{
    static uint8_t bytes[IDX_MAX_BYTES];
    uint8_t pixels[3 * 30] = {0}, classes[30];
    for (uint32_t i = 0; i < n; i++) {
        classes[i] = (uint8_t)(i % 3);
        pixels[3 * i + (i + (i % 5 == 0)) % 3] = 255;
    }
    idx_files_write(files, images, bytes, idx_images(n, 1, 3, pixels, bytes));
    idx_files_write(files, labels, bytes, idx_labels(n, classes, bytes));
}

/* Both forms of softmax regression: BLAS with points_per_class, otherwise point by point. */
static void test_report__images(void)
{
    struct idx_files files;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    idx_files_init(&files);
    write_images(&files, "images", "labels", 30);
    write_images(&files, "test-images", "test-labels", 10);
    const double w[] = {-1, 0, 0, 0, -1, 0, 0, 0, -1}; /* logits are negated */
    for (int per_class = 0; per_class <= 10; per_class += 10) {
        const struct tally_objective_spec spec = {.type = TALLY_SOFTMAX_REGRESSION,
                                                  .accuracy = true,
                                                  .data = {.type = TALLY_DATA_IDX,
                                                           .idx = {.images = "images",
                                                                   .labels = "labels",
                                                                   .test_images = "test-images",
                                                                   .test_labels = "test-labels",
                                                                   .features = 3,
                                                                   .classes = 3,
                                                                   .points_per_class = per_class}}};
        struct tally_objective *objective = make(&spec, &files);
        CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, w, metrics), 3);
        const double first = metrics[0].value;
        expect(&metrics[1], "test_accuracy", 0.8);
        expect(&metrics[2], "test_loss", log(exp(1) + 2) - 0.8);
        CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 1, w, metrics), 1);
        expect(&metrics[0], "accuracy", 1.6 - first); /* 0.8 over all points */
        /* Ties go to the first class. */
        const double zero[9] = {0};
        CU_ASSERT_EQUAL_FATAL(metrics_of(objective, 0, zero, metrics), 3);
        expect(&metrics[1], "test_accuracy", 0.4);
        expect(&metrics[2], "test_loss", log(3));
        tally_objective_free(objective);
    }
    idx_files_fini(&files);
}

/* The loss computed with the accuracy equals the loss that clients report, bit for bit. */
static void test_report__loss_is_the_local_loss(void)
{
    struct idx_files files;
    struct tally_evaluation evaluation;
    write_files(&files);
    const struct tally_objective_spec spec = spec_of("");
    struct tally_objective *objective = make(&spec, &files);
    for (uint32_t client = 0; client < CLIENTS; client++) {
        double loss = NAN;
        CU_ASSERT_EQUAL(objective->ops->evaluate(objective, client, X, &evaluation, NULL),
                        TALLY_OK);
        CU_ASSERT_EQUAL(tally_objective_local_loss(objective, client, X, &loss, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(evaluation.loss, loss);
    }
    tally_objective_free(objective);
    idx_files_fini(&files);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_report__nothing_unless_it_is_asked_for),
    TALLY_TEST(test_report__accuracy_is_of_the_clients_own_points),
    TALLY_TEST(test_report__held_out_points_are_client_0s),
    TALLY_TEST(test_report__clients_with_files_of_their_own_have_held_out_points_too),
    TALLY_TEST(test_report__held_out_columns_are_matched_by_name),
    TALLY_TEST(test_report__errors_name_the_held_out_points),
    TALLY_TEST(test_report__images),
    TALLY_TEST(test_report__loss_is_the_local_loss),
};
TALLY_SUITE(objectives_report, TESTS);

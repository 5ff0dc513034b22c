#include "services/document/document.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

/* Every member of a `ceal` job, written out. */
static const char EXAMPLE[] =
    "{\"name\": \"synthetic-ceal\", \"algorithm\": {\"type\": \"ceal\", \"step_size\": 2.0, "
    "\"sigma\": 4.47, \"delta\": 0.1, \"gamma0\": 2.0, \"phi0\": 2.0,\n"
    "  \"sample_scale\": 0.1, \"log_factor\": false, \"first_stage\": 3, \"gradient_bound\": "
    "1.0},\n"
    " \"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\", "
    "\"dim\": 30, \"points\": 2000, \"frobenius_norm\": 100, \"noise_std\": 1}},\n"
    " \"clients\": 10, \"horizon\": 2000, \"minibatch\": 1, \"seed\": 1, \"encoding\": \"unary\",\n"
    " \"initial_point\": {\"type\": \"random_sphere\", \"radius\": 1.0}, \"reference\": {\"type\": "
    "\"solve\"}, \"quorum\": 10, \"round_deadline_ms\": 30000}";

/* Only what has no default. */
static const char SHORTEST[] =
    "{\"algorithm\": {\"type\": \"ceal\", \"step_size\": 2, \"sigma\": 4},"
    " \"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\","
    " \"dim\": 30, \"points\": 2000}}, \"clients\": 10, \"horizon\": 2000}";

/* A document of every other algorithm, on the other kind of data. */
static const char IMAGES[] =
    "{\"algorithm\": {\"type\": \"fedcom\", \"step_size\": 0.0005, \"local_steps\": 50, "
    "\"levels\": 5, \"server_step_size\": 10},"
    " \"objective\": {\"type\": \"softmax_regression\", \"l2\": 0.25, \"data\": {\"type\": "
    "\"idx\", "
    "\"images\": \"train-images-idx3-ubyte\", \"labels\": \"train-labels-idx1-ubyte\", "
    "\"features\": 784, \"classes\": 10, \"points_per_class\": 5000}},"
    " \"clients\": 10, \"horizon\": 1000, \"minibatch\": 25, \"evaluate_every\": 7}";

/* `text` with its only occurrence of `find` replaced. */
static void edit(const char *text, const char *find, const char *replace, char ret_text[4000])
{
    const char *at = strstr(text, find);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    CU_ASSERT_PTR_NULL_FATAL(strstr(at + 1, find));
    snprintf(ret_text, 4000, "%.*s%s%s", (int)(at - text), text, replace, at + strlen(find));
}

/* Also where both are NaN. */
static bool same_real(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void expect_round_trip(const char *text);

static enum tally_status parse(const char *text, struct tally_job_spec *spec,
                               struct tally_error *err)
{
    *err = (struct tally_error)TALLY_ERROR_INIT;
    return tally_document_parse(text, strlen(text), spec, err);
}

static void test_document_document__example_of_the_architecture_parses(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(EXAMPLE, &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(spec.name, "synthetic-ceal");
    CU_ASSERT_EQUAL(spec.algorithm, 0);
    CU_ASSERT_EQUAL(spec.params.ceal.step_size, 2);
    CU_ASSERT_EQUAL(spec.params.ceal.sigma, 4.47);
    CU_ASSERT_EQUAL(spec.params.ceal.delta, 0.1);
    CU_ASSERT_EQUAL(spec.params.ceal.gamma0, 2);
    CU_ASSERT_EQUAL(spec.params.ceal.phi0, 2);
    CU_ASSERT_EQUAL(spec.params.ceal.sample_scale, 0.1);
    CU_ASSERT_FALSE(spec.params.ceal.log_factor);
    CU_ASSERT_EQUAL(spec.params.ceal.first_stage, 3);
    CU_ASSERT_EQUAL(spec.params.ceal.gradient_bound, 1);
    CU_ASSERT_EQUAL(spec.objective.type, 0);
    CU_ASSERT_EQUAL(spec.objective.data.type, 0);
    CU_ASSERT_EQUAL(spec.objective.data.synthetic_linear.dim, 30);
    CU_ASSERT_EQUAL(spec.objective.data.synthetic_linear.points, 2000);
    CU_ASSERT_EQUAL(spec.objective.data.synthetic_linear.frobenius_norm, 100);
    CU_ASSERT_EQUAL(spec.objective.data.synthetic_linear.noise_std, 1);
    CU_ASSERT_EQUAL(spec.clients, 10);
    CU_ASSERT_EQUAL(spec.horizon, 2000);
    CU_ASSERT_EQUAL(spec.minibatch, 1);
    CU_ASSERT_EQUAL(spec.seed, 1);
    CU_ASSERT_EQUAL(spec.run, 0);
    CU_ASSERT_EQUAL(spec.encoding, 0);
    CU_ASSERT_EQUAL(spec.initial_point.type, TALLY_INITIAL_RANDOM_SPHERE);
    CU_ASSERT_EQUAL(spec.initial_point.radius, 1);
    CU_ASSERT_EQUAL(spec.reference.type, TALLY_REFERENCE_SOLVE);
    CU_ASSERT_EQUAL(spec.quorum, 10);
    CU_ASSERT_EQUAL(spec.round_deadline_ms, 30000);
}

static void test_document_document__what_is_left_out_has_its_default(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(SHORTEST, &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(spec.name, "");
    CU_ASSERT_EQUAL(spec.params.ceal.sample_scale, 40);
    CU_ASSERT_TRUE(spec.params.ceal.log_factor);
    CU_ASSERT_EQUAL(spec.params.ceal.first_stage, 1);
    CU_ASSERT_EQUAL(spec.objective.data.synthetic_linear.frobenius_norm, 100);
    CU_ASSERT_EQUAL(spec.objective.data.synthetic_linear.noise_std, 1);
    CU_ASSERT_EQUAL(spec.minibatch, 1);
    CU_ASSERT_EQUAL(spec.evaluate_every, 1);
    CU_ASSERT_EQUAL(spec.seed, 0);
    CU_ASSERT_EQUAL(spec.initial_point.type, TALLY_INITIAL_ZEROS);
    CU_ASSERT_EQUAL(spec.domain.type, TALLY_DOMAIN_WHOLE);
    CU_ASSERT_EQUAL(spec.reference.type, TALLY_REFERENCE_SOLVE);
    CU_ASSERT_EQUAL(spec.quorum, 10); /* all clients */
    CU_ASSERT_EQUAL(spec.round_deadline_ms, 30000);
}

/* Who leaves sigma to the job needs a step size alone. */
static void test_document_document__auto_has_defaults_of_its_own(void)
{
    static const struct {
        const char *members;
        double sigma, bound, scale, phi0; /* NaN: auto */
        bool log_factor;
        int64_t first_stage;
    } rows[] = {
        {"\"sigma\": \"auto\"", NAN, NAN, 0.06, 2, false, 4},
        {"\"sigma\": \"auto\", \"gradient_bound\": 1", NAN, 1, 0.06, 2, false, 4},
        {"\"sigma\": 4, \"gradient_bound\": \"auto\"", 4, NAN, 0.06, 2, false, 4},
        {"\"sigma\": \"auto\", \"sample_scale\": 40, \"log_factor\": true, \"first_stage\": 1, "
         "\"phi0\": 0.5",
         NAN, NAN, 40, 0.5, true, 1},
        {"\"sigma\": 4", 4, 1, 40, 1, true, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_job_spec spec;
        struct tally_error err;
        char text[4000];
        edit(SHORTEST, "\"sigma\": 4", rows[i].members, text);
        TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OK, &err);
        const struct tally_ceal_params *params = &spec.params.ceal;
        CU_ASSERT_TRUE(same_real(params->sigma, rows[i].sigma));
        CU_ASSERT_TRUE(same_real(params->gradient_bound, rows[i].bound));
        CU_ASSERT_EQUAL(params->sample_scale, rows[i].scale);
        CU_ASSERT_EQUAL(params->phi0, rows[i].phi0);
        CU_ASSERT_EQUAL(params->log_factor, rows[i].log_factor);
        CU_ASSERT_EQUAL(params->first_stage, rows[i].first_stage);
        CU_ASSERT_EQUAL(params->gamma0, 1);
        CU_ASSERT_EQUAL(params->delta, 0.1);
        expect_round_trip(text);
    }
}

static void test_document_document__images_and_baselines_parse(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    char text[4000];
    TALLY_ASSERT_STATUS(parse(IMAGES, &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(tally_job_spec_algorithm(&spec)->name, "fedcom");
    CU_ASSERT_EQUAL(spec.params.baseline.step_size, 0.0005);
    CU_ASSERT_EQUAL(spec.params.baseline.local_steps, 50);
    CU_ASSERT_EQUAL(spec.params.baseline.levels, 5);
    CU_ASSERT_EQUAL(spec.params.baseline.server_step_size, 10);
    CU_ASSERT_EQUAL(spec.objective.type, TALLY_SOFTMAX_REGRESSION);
    CU_ASSERT_EQUAL(spec.objective.l2, 0.25);
    CU_ASSERT_EQUAL(spec.objective.data.type, TALLY_DATA_IDX);
    TALLY_ASSERT_TEXT(spec.objective.data.idx.images, "train-images-idx3-ubyte");
    TALLY_ASSERT_TEXT(spec.objective.data.idx.labels, "train-labels-idx1-ubyte");
    CU_ASSERT_EQUAL(spec.objective.data.idx.features, 784);
    CU_ASSERT_EQUAL(spec.objective.data.idx.classes, 10);
    CU_ASSERT_EQUAL(spec.objective.data.idx.points_per_class, 5000);
    CU_ASSERT_EQUAL(spec.minibatch, 25);
    CU_ASSERT_EQUAL(spec.evaluate_every, 7);
    TALLY_ASSERT_TEXT(TALLY_ENCODINGS[spec.encoding]->name, "entropy"); /* where none is named */
    CU_ASSERT_EQUAL(tally_job_spec_setting(&spec).dim, 7840);
    CU_ASSERT_EQUAL(tally_job_spec_setting(&spec).evaluate_every, 7);
    edit(IMAGES, ", \"server_step_size\": 10", "", text);
    TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(spec.params.baseline.server_step_size, 1);
    edit(IMAGES, "\"l2\": 0.25, ", "", text);
    TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(spec.objective.l2, 0.5);
}

struct refusal {
    const char *find, *replace;
    enum tally_status status;
    const char *field;
};

/* One edit of a text each: what is refused, as what, and which field is named. */
static void expect_refusals(const char *text, const struct refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char edited[4000];
        struct tally_job_spec spec = {.seed = 4711};
        struct tally_error err;
        edit(text, rows[i].find, rows[i].replace, edited);
        TALLY_ASSERT_STATUS(parse(edited, &spec, &err), rows[i].status, &err);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
        CU_ASSERT_NOT_EQUAL(err.message[0], '\0');
        CU_ASSERT_EQUAL(spec.seed, 4711); /* written only on success */
        if (err.status != rows[i].status || strcmp(err.field, rows[i].field) != 0) {
            printf("\n    in row %zu: %s -> %s", i, rows[i].find, rows[i].replace);
        }
    }
}

static void test_document_document__errors_name_the_field(void)
{
    static const struct refusal rows[] = {
        /* Top level. */
        {"\"name\": \"synthetic-ceal\"", "\"name\": 7", TALLY_INVALID_ARGUMENT, "name"},
        {"synthetic-ceal", "tab\\there", TALLY_INVALID_ARGUMENT, "name"},
        {"\"name\": \"synthetic-ceal\"", "\"title\": \"x\"", TALLY_INVALID_ARGUMENT, "title"},
        {"\"clients\": 10", "\"clients\": 0", TALLY_OUT_OF_RANGE, "clients"},
        {"\"clients\": 10", "\"clients\": -1", TALLY_OUT_OF_RANGE, "clients"},
        {"\"clients\": 10", "\"clients\": 100001", TALLY_OUT_OF_RANGE, "clients"},
        {"\"clients\": 10", "\"clients\": 10.0", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"clients\": 10", "\"clients\": \"10\"", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"clients\": 10", "\"clients\": null", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"clients\": 10, ", "", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"horizon\": 2000, ", "", TALLY_INVALID_ARGUMENT, "horizon"},
        {"\"horizon\": 2000", "\"horizon\": 0", TALLY_OUT_OF_RANGE, "horizon"},
        {"\"horizon\": 2000", "\"horizon\": 2147483648", TALLY_OUT_OF_RANGE, "horizon"},
        {"\"minibatch\": 1", "\"minibatch\": 0", TALLY_OUT_OF_RANGE, "minibatch"},
        {"\"seed\": 1", "\"seed\": -1", TALLY_OUT_OF_RANGE, "seed"},
        {"\"seed\": 1", "\"seed\": 9007199254740992", TALLY_OUT_OF_RANGE, "seed"},
        {"\"unary\"", "\"morse\"", TALLY_INVALID_ARGUMENT, "encoding"},
        {"\"unary\"", "1", TALLY_INVALID_ARGUMENT, "encoding"},
        {"\"quorum\": 10", "\"quorum\": 11", TALLY_INVALID_ARGUMENT, "quorum"},
        {"\"quorum\": 10", "\"quorum\": 0", TALLY_OUT_OF_RANGE, "quorum"},
        {"\"quorum\": 10", "\"policy\": \"vote\"", TALLY_INVALID_ARGUMENT, "policy"},
        {"\"quorum\": 10", "\"policy\": 1", TALLY_INVALID_ARGUMENT, "policy"},
        {"30000}", "0, \"policy\": \"drop\"}", TALLY_INVALID_ARGUMENT, "round_deadline_ms"},
        {"30000}", "0, \"policy\": \"fail\"}", TALLY_INVALID_ARGUMENT, "round_deadline_ms"},
        {"30000}", "0, \"job_deadline_ms\": -1}", TALLY_OUT_OF_RANGE, "job_deadline_ms"},
        {"30000}", "0, \"job_deadline_ms\": 31622400001}", TALLY_OUT_OF_RANGE, "job_deadline_ms"},
        {"30000}", "-1}", TALLY_OUT_OF_RANGE, "round_deadline_ms"},
        {"30000}", "86400001}", TALLY_OUT_OF_RANGE, "round_deadline_ms"},
        /* Algorithm. */
        {"\"algorithm\"", "\"algorithms\"", TALLY_INVALID_ARGUMENT, "algorithms"},
        {"\"type\": \"ceal\", ", "", TALLY_INVALID_ARGUMENT, "algorithm.type"},
        {"\"type\": \"ceal\"", "\"type\": \"seal\"", TALLY_INVALID_ARGUMENT, "algorithm.type"},
        {"\"type\": \"ceal\"", "\"type\": 0", TALLY_INVALID_ARGUMENT, "algorithm.type"},
        {"\"type\": \"ceal\"", "\"type\": null", TALLY_INVALID_ARGUMENT, "algorithm.type"},
        {"\"step_size\": 2.0, ", "", TALLY_INVALID_ARGUMENT, "algorithm.step_size"},
        {"\"step_size\": 2.0", "\"step_size\": 0", TALLY_OUT_OF_RANGE, "algorithm.step_size"},
        {"\"step_size\": 2.0", "\"step_size\": -2", TALLY_OUT_OF_RANGE, "algorithm.step_size"},
        {"\"step_size\": 2.0", "\"step_size\": 1e10", TALLY_OUT_OF_RANGE, "algorithm.step_size"},
        {"\"step_size\": 2.0", "\"step_size\": \"2\"", TALLY_INVALID_ARGUMENT,
         "algorithm.step_size"},
        {"\"step_size\": 2.0", "\"step_size\": true", TALLY_INVALID_ARGUMENT,
         "algorithm.step_size"},
        {"\"step_size\"", "\"stepsize\"", TALLY_INVALID_ARGUMENT, "algorithm.stepsize"},
        {"\"sigma\": 4.47, ", "", TALLY_INVALID_ARGUMENT, "algorithm.sigma"},
        {"4.47", "0", TALLY_OUT_OF_RANGE, "algorithm.sigma"},
        {"\"delta\": 0.1", "\"delta\": 1", TALLY_OUT_OF_RANGE, "algorithm.delta"},
        {"\"delta\": 0.1", "\"delta\": 0.0", TALLY_OUT_OF_RANGE, "algorithm.delta"},
        {"\"gamma0\": 2.0", "\"gamma0\": 0", TALLY_OUT_OF_RANGE, "algorithm.gamma0"},
        {"\"phi0\": 2.0", "\"phi0\": 1e7", TALLY_OUT_OF_RANGE, "algorithm.phi0"},
        {"\"sample_scale\": 0.1", "\"sample_scale\": 0", TALLY_OUT_OF_RANGE,
         "algorithm.sample_scale"},
        {"\"log_factor\": false", "\"log_factor\": 0", TALLY_INVALID_ARGUMENT,
         "algorithm.log_factor"},
        {"\"first_stage\": 3", "\"first_stage\": 0", TALLY_OUT_OF_RANGE, "algorithm.first_stage"},
        {"\"first_stage\": 3", "\"first_stage\": 61", TALLY_OUT_OF_RANGE, "algorithm.first_stage"},
        {"\"first_stage\": 3", "\"first_stage\": 3.5", TALLY_INVALID_ARGUMENT,
         "algorithm.first_stage"},
        {"\"gradient_bound\": 1.0", "\"gradient_bound\": 0", TALLY_OUT_OF_RANGE,
         "algorithm.gradient_bound"},
        {"\"gradient_bound\": 1.0", "\"levels\": 3", TALLY_INVALID_ARGUMENT, "algorithm.levels"},
        {"\"gamma0\": 2.0", "\"gamma0\": 1e-9", TALLY_OUT_OF_RANGE, "algorithm"}, /* no grid */
        /* Objective and data. */
        {"\"objective\"", "\"objectives\"", TALLY_INVALID_ARGUMENT, "objectives"},
        {"least_squares", "logistic", TALLY_INVALID_ARGUMENT, "objective.type"},
        {"\"type\": \"least_squares\", ", "", TALLY_INVALID_ARGUMENT, "objective.type"},
        {"\"type\": \"least_squares\"", "\"type\": \"least_squares\", \"mu\": 1",
         TALLY_INVALID_ARGUMENT, "objective.mu"},
        {"\"data\"", "\"dataset\"", TALLY_INVALID_ARGUMENT, "objective.dataset"},
        {"synthetic_linear", "mnist", TALLY_INVALID_ARGUMENT, "objective.data.type"},
        {"\"type\": \"synthetic_linear\", ", "", TALLY_INVALID_ARGUMENT, "objective.data.type"},
        {"\"dim\": 30, ", "", TALLY_INVALID_ARGUMENT, "objective.data.dim"},
        {"\"dim\": 30", "\"dim\": 0", TALLY_OUT_OF_RANGE, "objective.data.dim"},
        {"\"dim\": 30", "\"dim\": 10000001", TALLY_OUT_OF_RANGE, "objective.data.dim"},
        {"\"dim\": 30", "\"dim\": 100000", TALLY_INVALID_ARGUMENT, "objective.data.points"},
        {"\"points\": 2000", "\"points\": 0", TALLY_OUT_OF_RANGE, "objective.data.points"},
        {"\"points\": 2000", "\"points\": 9", TALLY_INVALID_ARGUMENT, "objective.data.points"},
        {"\"points\": 2000, ", "", TALLY_INVALID_ARGUMENT, "objective.data.points"},
        {"\"frobenius_norm\": 100", "\"frobenius_norm\": 0", TALLY_OUT_OF_RANGE,
         "objective.data.frobenius_norm"},
        {"\"noise_std\": 1", "\"noise_std\": -1", TALLY_OUT_OF_RANGE, "objective.data.noise_std"},
        {"\"noise_std\"", "\"noise\"", TALLY_INVALID_ARGUMENT, "objective.data.noise"},
        {"4.47", "\"automatic\"", TALLY_INVALID_ARGUMENT, "algorithm.sigma"},
        {"2.0, \"sigma\"", "\"auto\", \"sigma\"", TALLY_INVALID_ARGUMENT, "algorithm.step_size"},
        {"\"gradient_bound\": 1.0", "\"gradient_bound\": \"none\"", TALLY_INVALID_ARGUMENT,
         "algorithm.gradient_bound"},
        /* Initial point and reference. */
        {"random_sphere", "anywhere", TALLY_INVALID_ARGUMENT, "initial_point.type"},
        {"\"type\": \"random_sphere\", ", "", TALLY_INVALID_ARGUMENT, "initial_point.type"},
        {"\"radius\": 1.0", "\"radius\": -1", TALLY_OUT_OF_RANGE, "initial_point.radius"},
        {"\"radius\": 1.0", "\"radius\": 1, \"x\": 0", TALLY_INVALID_ARGUMENT, "initial_point.x"},
        {"{\"type\": \"random_sphere\", \"radius\": 1.0}", "[0]", TALLY_INVALID_ARGUMENT,
         "initial_point"},
        {"\"reference\"", "\"domain\": {\"type\": \"cone\"}, \"reference\"", TALLY_INVALID_ARGUMENT,
         "domain.type"},
        {"\"reference\"", "\"domain\": {\"type\": \"ball\"}, \"reference\"", TALLY_INVALID_ARGUMENT,
         "domain.radius"},
        {"\"reference\"", "\"domain\": {\"type\": \"ball\", \"radius\": 0}, \"reference\"",
         TALLY_OUT_OF_RANGE, "domain.radius"},
        {"\"reference\"",
         "\"domain\": {\"type\": \"ball\", \"radius\": 1, \"lower\": 0}, \"reference\"",
         TALLY_INVALID_ARGUMENT, "domain.lower"},
        {"\"reference\"", "\"domain\": {\"type\": \"box\", \"lower\": 0}, \"reference\"",
         TALLY_INVALID_ARGUMENT, "domain.upper"},
        {"\"reference\"",
         "\"domain\": {\"type\": \"box\", \"lower\": 1, \"upper\": 0}, \"reference\"",
         TALLY_INVALID_ARGUMENT, "domain.upper"},
        {"\"reference\"", "\"domain\": 1, \"reference\"", TALLY_INVALID_ARGUMENT, "domain"},
        {"\"solve\"", "\"none\", \"value\": 1", TALLY_INVALID_ARGUMENT, "reference.value"},
        {"\"solve\"", "\"guess\"", TALLY_INVALID_ARGUMENT, "reference.type"},
        {"\"solve\"", "\"value\"", TALLY_INVALID_ARGUMENT, "reference.value"},
        {"\"solve\"", "\"solve\", \"value\": 1", TALLY_INVALID_ARGUMENT, "reference.value"},
        {"\"solve\"", "\"value\", \"value\": \"1\"", TALLY_INVALID_ARGUMENT, "reference.value"},
        {"{\"type\": \"solve\"}", "null", TALLY_INVALID_ARGUMENT, "reference"},
        {"{\"type\": \"solve\"}", "{}", TALLY_INVALID_ARGUMENT, "reference.type"},
    };
    expect_refusals(EXAMPLE, rows, sizeof rows / sizeof rows[0]);
}

static void test_document_document__errors_of_images_name_the_field(void)
{
    enum tally_status invalid = TALLY_INVALID_ARGUMENT, range = TALLY_OUT_OF_RANGE;
    const struct refusal rows[] = {
        {"\"evaluate_every\": 7", "\"evaluate_every\": 0", range, "evaluate_every"},
        {"\"evaluate_every\": 7", "\"evaluate_every\": 2147483648", range, "evaluate_every"},
        {"\"evaluate_every\": 7", "\"evaluate_every\": 0.5", invalid, "evaluate_every"},
        /* Algorithm. */
        {"\"local_steps\": 50", "\"local_steps\": 0", range, "algorithm.local_steps"},
        {"\"local_steps\": 50", "\"local_steps\": 2147483648", range, "algorithm.local_steps"},
        {"\"levels\": 5", "\"levels\": 0", range, "algorithm.levels"},
        {"\"levels\": 5", "\"levels\": 32768", range, "algorithm.levels"},
        {"\"levels\": 5", "\"levels\": 5.5", invalid, "algorithm.levels"},
        {"\"server_step_size\": 10", "\"server_step_size\": 0", range,
         "algorithm.server_step_size"},
        {"0.0005", "0", range, "algorithm.step_size"},
        /* Objective and data: each kind has its own. */
        {"\"l2\": 0.25", "\"l2\": -0.25", range, "objective.l2"},
        {"\"l2\": 0.25", "\"mu\": 0.25", invalid, "objective.mu"},
        {"\"softmax_regression\", \"l2\": 0.25", "\"quadratic\", \"l2\": 0.25", invalid,
         "objective.l2"},
        {"\"softmax_regression\", \"l2\": 0.25", "\"quadratic\"", invalid, "objective.data.type"},
        {"\"type\": \"idx\"", "\"type\": \"synthetic_linear\"", invalid, "objective.data.images"},
        {"\"type\": \"idx\", ", "", invalid, "objective.data.type"},
        {"\"images\": \"train-images-idx3-ubyte\", ", "", invalid, "objective.data.images"},
        {"\"labels\": \"train-labels-idx1-ubyte\", ", "", invalid, "objective.data.labels"},
        {"\"features\": 784, ", "", invalid, "objective.data.features"},
        {"\"classes\": 10, ", "", invalid, "objective.data.classes"},
        {"\"features\": 784", "\"features\": 0", range, "objective.data.features"},
        {"\"features\": 784", "\"features\": 1000001", range, "objective.data.features"},
        {"\"features\": 784", "\"dim\": 784", invalid, "objective.data.dim"},
        {"\"classes\": 10", "\"classes\": 1", range, "objective.data.classes"},
        {"\"classes\": 10", "\"classes\": 257", range, "objective.data.classes"},
        {"\"points_per_class\": 5000", "\"points_per_class\": -1", range,
         "objective.data.points_per_class"},
        {"\"points_per_class\": 5000", "\"points_per_class\": 10000001", range,
         "objective.data.points_per_class"},
        {"\"train-images-idx3-ubyte\"", "7", invalid, "objective.data.images"},
        {"train-images-idx3-ubyte", "a\\nb", invalid, "objective.data.images"},
        /* What only several fields together tell: too few points, too many bytes, too large a dim.
         */
        {"\"classes\": 10, \"points_per_class\": 5000", "\"classes\": 3, \"points_per_class\": 3",
         invalid, "objective.data.points_per_class"},
        {"\"points_per_class\": 5000", "\"points_per_class\": 136957", invalid,
         "objective.data.points_per_class"},
        {"\"features\": 784, \"classes\": 10, \"points_per_class\": 5000",
         "\"features\": 1000000, \"classes\": 11, \"points_per_class\": 1", invalid,
         "objective.data.features"},
    };
    expect_refusals(IMAGES, rows, sizeof rows / sizeof rows[0]);
    const struct refusal synthetic[] = {
        {"least_squares", "softmax_regression", invalid, "objective.data.type"},
        {"\"type\": \"synthetic_linear\"", "\"type\": \"idx\"", invalid, "objective.data.dim"},
        {"\"least_squares\"", "\"least_squares\", \"threshold\": 1", invalid,
         "objective.threshold"},
    };
    expect_refusals(EXAMPLE, synthetic, sizeof synthetic / sizeof synthetic[0]);
}

/* Each type has its fields and no other's. */
static void test_document_document__algorithms_take_their_own_fields_alone(void)
{
    static const char *const fields[] = {"step_size",        "local_steps", "levels",
                                         "server_step_size", "sigma",       "delta",
                                         "gamma0",           "phi0",        "sample_scale",
                                         "log_factor",       "first_stage", "gradient_bound"};
    static const char *const values[] = {"0.1", "5", "3", "2",    "1.5", "0.2",
                                         "1",   "2", "1", "true", "2",   "1"};
    enum { N_FIELDS = sizeof fields / sizeof fields[0] };
    /* o = optional, r = required, - = unknown; in the order of `fields`. */
    static const char *const known[] = {"r---rooooooo", "rr----------", "rr----------",
                                        "rrr---------", "rrro--------"};
    for (size_t a = 0; a < 5; a++) {
        for (size_t special = 0; special < N_FIELDS; special++) {
            /* All the type's fields; the special one left out or added. */
            const bool is_known = known[a][special] != '-';
            char algorithm[1000], text[4000], field[100];
            int n = snprintf(algorithm, sizeof algorithm, "{\"type\": \"%s\"",
                             TALLY_ALGORITHM_NAMES[a]);
            for (size_t f = 0; f < N_FIELDS; f++) {
                if ((known[a][f] != '-') != (f == special)) {
                    n += snprintf(algorithm + n, sizeof algorithm - (size_t)n, ", \"%s\": %s",
                                  fields[f], values[f]);
                }
            }
            snprintf(algorithm + n, sizeof algorithm - (size_t)n, "}");
            edit(SHORTEST, "{\"type\": \"ceal\", \"step_size\": 2, \"sigma\": 4}", algorithm, text);
            snprintf(field, sizeof field, "algorithm.%s", fields[special]);
            const bool fine = is_known && known[a][special] == 'o';
            struct tally_job_spec spec;
            struct tally_error err;
            TALLY_ASSERT_STATUS(parse(text, &spec, &err), fine ? TALLY_OK : TALLY_INVALID_ARGUMENT,
                                &err);
            TALLY_ASSERT_TEXT(err.field, fine ? "" : field);
        }
    }
}

/* Whole documents that are not even objects with an algorithm. */
static void test_document_document__other_texts_are_refused(void)
{
    static const struct {
        const char *text;
        enum tally_status status;
        const char *field;
    } rows[] = {
        {"", TALLY_MALFORMED, ""},
        {"{", TALLY_MALFORMED, ""},
        {"{} x", TALLY_MALFORMED, ""},
        {"{\"seed\": 1, \"seed\": 2}", TALLY_MALFORMED, ""},
        {"{\"seed\": NaN}", TALLY_MALFORMED, ""},
        {"{\"name\": \"\xff\"}", TALLY_MALFORMED, ""},
        {"[]", TALLY_INVALID_ARGUMENT, ""},
        {"null", TALLY_INVALID_ARGUMENT, ""},
        {"7", TALLY_INVALID_ARGUMENT, ""},
        {"{}", TALLY_INVALID_ARGUMENT, "clients"},
        {"{\"clients\": 1, \"horizon\": 1}", TALLY_INVALID_ARGUMENT, "algorithm"},
        {"{\"clients\": 1, \"horizon\": 1, \"algorithm\": []}", TALLY_INVALID_ARGUMENT,
         "algorithm"},
        {"{\"clients\": 1, \"horizon\": 1, \"algorithm\": null}", TALLY_INVALID_ARGUMENT,
         "algorithm"},
        {"{\"clients\": 1, \"horizon\": 1, \"algorithm\": {}}", TALLY_INVALID_ARGUMENT,
         "algorithm.type"},
        {"{\"clients\": 1, \"horizon\": 1, \"algorithm\": {\"type\": \"ceal\", \"step_size\": 1, "
         "\"sigma\": 1}}",
         TALLY_INVALID_ARGUMENT, "objective"},
        {"{\"clients\": 1, \"horizon\": 1, \"algorithm\": {\"type\": \"ceal\", \"step_size\": 1, "
         "\"sigma\": 1}, \"objective\": \"x\"}",
         TALLY_INVALID_ARGUMENT, "objective"},
        {"{\"clients\": 1, \"horizon\": 1, \"algorithm\": {\"type\": \"ceal\", \"step_size\": 1, "
         "\"sigma\": 1}, \"objective\": {\"type\": \"least_squares\"}}",
         TALLY_INVALID_ARGUMENT, "objective.data"},
        {"{\"clients\": 1, \"horizon\": 1, \"algorithm\": {\"type\": \"ceal\", \"step_size\": 1, "
         "\"sigma\": 1}, \"objective\": {\"type\": \"least_squares\", \"data\": 5}}",
         TALLY_INVALID_ARGUMENT, "objective.data"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_job_spec spec;
        struct tally_error err;
        TALLY_ASSERT_STATUS(parse(rows[i].text, &spec, &err), rows[i].status, &err);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
    }
}

static void test_document_document__messages_name_value_and_limit(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    char text[4000];
    edit(EXAMPLE, "\"clients\": 10", "\"clients\": 0", text);
    parse(text, &spec, &err);
    TALLY_ASSERT_TEXT(err.message, "clients 0 outside [1, 100000]");
    edit(EXAMPLE, "\"step_size\": 2.0", "\"step_size\": -2.5", text);
    parse(text, &spec, &err);
    TALLY_ASSERT_TEXT(err.message, "step_size -2.5 outside (0, 1e+09]");
    edit(EXAMPLE, "\"quorum\": 10", "\"quorum\": 11", text);
    parse(text, &spec, &err);
    TALLY_ASSERT_TEXT(err.message, "quorum 11 is above clients 10");
}

/* What a quorum or a policy alone mean. */
static void test_document_document__quorum_and_policy_complete_each_other(void)
{
    static const struct {
        const char *text;
        int policy;
        int64_t quorum;
    } rows[] = {
        {"\"quorum\": 10", TALLY_POLICY_WAIT, 10},
        {"\"quorum\": 9", TALLY_POLICY_DROP, 9},
        {"\"policy\": \"wait\"", TALLY_POLICY_WAIT, 10},
        {"\"policy\": \"drop\"", TALLY_POLICY_DROP, 1},
        {"\"policy\": \"fail\"", TALLY_POLICY_FAIL, 10},
        {"\"policy\": \"wait\", \"quorum\": 9", TALLY_POLICY_WAIT, 9},
        {"\"policy\": \"drop\", \"quorum\": 10", TALLY_POLICY_DROP, 10},
        {"\"policy\": \"fail\", \"quorum\": 9", TALLY_POLICY_FAIL, 9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_job_spec spec;
        struct tally_error err;
        char text[4000];
        edit(EXAMPLE, "\"quorum\": 10", rows[i].text, text);
        TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OK, &err);
        CU_ASSERT_EQUAL(spec.policy, rows[i].policy);
        CU_ASSERT_EQUAL(spec.quorum, rows[i].quorum);
    }
}

/* Limits themselves are allowed. */
static void test_document_document__ends_of_the_ranges_are_inside(void)
{
    static const char *const edits[][2] = {
        {"\"seed\": 1", "\"seed\": 9007199254740991"},
        {"\"seed\": 1", "\"seed\": 0"},
        {"\"horizon\": 2000", "\"horizon\": 2147483647"},
        {"\"horizon\": 2000", "\"horizon\": 1"},
        {"\"minibatch\": 1", "\"minibatch\": 1000000"},
        {"\"noise_std\": 1", "\"noise_std\": 0"},
        {"\"radius\": 1.0", "\"radius\": 0"},
        {"30000}", "0}"},
        {"30000}", "1, \"policy\": \"drop\", \"job_deadline_ms\": 31622400000}"},
        {"\"points\": 2000", "\"points\": 10"},
        {"\"delta\": 0.1", "\"delta\": 0.999999999"},
        {"\"step_size\": 2.0", "\"step_size\": 2"},
        {"\"solve\"", "\"value\", \"value\": -1e300"},
        {", \"quorum\": 10", ""},
        {"synthetic-ceal", "\xc3\xa9t\xc3\xa9"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        struct tally_job_spec spec;
        struct tally_error err;
        char text[4000];
        edit(EXAMPLE, edits[i][0], edits[i][1], text);
        TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OK, &err);
    }
}

static void test_document_document__name_has_128_bytes(void)
{
    char name[131], text[4000];
    struct tally_job_spec spec;
    struct tally_error err;
    memset(name, 'n', sizeof name);
    name[128] = '\0';
    edit(EXAMPLE, "synthetic-ceal", name, text);
    TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(spec.name, name);
    name[128] = 'n';
    name[129] = '\0';
    edit(EXAMPLE, "synthetic-ceal", name, text);
    TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OUT_OF_RANGE, &err);
    TALLY_ASSERT_TEXT(err.field, "name");
}

static void expect_same_spec(const struct tally_job_spec *a, const struct tally_job_spec *b)
{
    TALLY_ASSERT_TEXT(a->name, b->name);
    CU_ASSERT_EQUAL(a->algorithm, b->algorithm);
    const struct tally_ceal_params *p = &a->params.ceal, *q = &b->params.ceal;
    const struct tally_baseline_params *r = &a->params.baseline, *s = &b->params.baseline;
    CU_ASSERT_TRUE(a->algorithm == 0 ||
                   (r->step_size == s->step_size && r->local_steps == s->local_steps &&
                    r->levels == s->levels && r->server_step_size == s->server_step_size));
    CU_ASSERT_TRUE(a->algorithm != 0 ||
                   (p->step_size == q->step_size && same_real(p->sigma, q->sigma) &&
                    p->delta == q->delta && p->gamma0 == q->gamma0 && p->phi0 == q->phi0 &&
                    p->sample_scale == q->sample_scale && p->log_factor == q->log_factor &&
                    p->first_stage == q->first_stage &&
                    same_real(p->gradient_bound, q->gradient_bound)));
    CU_ASSERT_TRUE(a->objective.type == b->objective.type &&
                   a->objective.data.type == b->objective.data.type);
    const struct tally_synthetic_linear *d = &a->objective.data.synthetic_linear,
                                        *e = &b->objective.data.synthetic_linear;
    CU_ASSERT_TRUE(d->dim == e->dim && d->points == e->points &&
                   d->frobenius_norm == e->frobenius_norm && d->noise_std == e->noise_std);
    const struct tally_idx_data *g = &a->objective.data.idx, *h = &b->objective.data.idx;
    TALLY_ASSERT_TEXT(g->images, h->images);
    TALLY_ASSERT_TEXT(g->labels, h->labels);
    CU_ASSERT_TRUE(a->objective.l2 == b->objective.l2 && g->features == h->features &&
                   g->classes == h->classes && g->points_per_class == h->points_per_class &&
                   a->evaluate_every == b->evaluate_every);
    CU_ASSERT_TRUE(a->clients == b->clients && a->horizon == b->horizon &&
                   a->minibatch == b->minibatch && a->seed == b->seed && a->run == b->run &&
                   a->encoding == b->encoding && a->quorum == b->quorum && a->policy == b->policy &&
                   a->job_deadline_ms == b->job_deadline_ms &&
                   a->round_deadline_ms == b->round_deadline_ms);
    CU_ASSERT_TRUE(a->initial_point.type == b->initial_point.type &&
                   a->initial_point.radius == b->initial_point.radius &&
                   a->domain.type == b->domain.type && a->domain.radius == b->domain.radius &&
                   a->domain.lower == b->domain.lower && a->domain.upper == b->domain.upper &&
                   a->reference.type == b->reference.type &&
                   a->reference.value == b->reference.value);
}

/* The stored document means the same as the one that was sent, and is complete: writing it again
 * gives the same text. */
static void expect_round_trip(const char *text)
{
    struct tally_job_spec spec, again;
    struct tally_error err;
    struct tally_buffer first = {0}, second = {0};
    TALLY_ASSERT_STATUS(parse(text, &spec, &err), TALLY_OK, &err);
    struct tally_json *document = tally_document_of(&spec);
    CU_ASSERT_PTR_NOT_NULL_FATAL(document);
    CU_ASSERT_EQUAL(tally_json_dump(document, 0, &first), TALLY_OK);
    tally_json_free(document);
    TALLY_ASSERT_STATUS(tally_document_parse((const char *)first.data, first.size, &again, &err),
                        TALLY_OK, &err);
    expect_same_spec(&again, &spec);
    document = tally_document_of(&again);
    CU_ASSERT_EQUAL(tally_json_dump(document, 0, &second), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(first.size, second.size);
    CU_ASSERT_EQUAL(memcmp(first.data, second.data, first.size), 0);
    tally_json_free(document);
    tally_buffer_fini(&first);
    tally_buffer_fini(&second);
}

static void test_document_document__written_document_reads_back(void)
{
    char text[4000];
    expect_round_trip(EXAMPLE);
    expect_round_trip(SHORTEST);
    edit(EXAMPLE, "\"solve\"", "\"value\", \"value\": 0.1234567890123456789", text);
    expect_round_trip(text);
    edit(EXAMPLE, "\"solve\"", "\"none\"", text);
    expect_round_trip(text);
    edit(EXAMPLE, "\"reference\"",
         "\"domain\": {\"type\": \"ball\", \"radius\": 0.3}, \"reference\"", text);
    expect_round_trip(text);
    edit(EXAMPLE, "\"reference\"",
         "\"domain\": {\"type\": \"box\", \"lower\": -0.1, \"upper\": 1e100}, \"reference\"", text);
    expect_round_trip(text);
    edit(EXAMPLE, "4.47", "4.4699999999999997513", text);
    expect_round_trip(text);
    edit(EXAMPLE, "\"delta\": 0.1", "\"delta\": 1e-300", text);
    expect_round_trip(text);
    edit(EXAMPLE, "\"seed\": 1", "\"seed\": 9007199254740991", text);
    expect_round_trip(text);
    edit(EXAMPLE, "{\"type\": \"random_sphere\", \"radius\": 1.0}", "{\"type\": \"zeros\"}", text);
    expect_round_trip(text);
    static const char *const algorithms[] = {
        "\"minibatch_sgd\", \"step_size\": 0.1, \"local_steps\": 50",
        "\"fedavg\", \"step_size\": 1e-300, \"local_steps\": 2147483647",
        "\"fedpaq\", \"step_size\": 0.1, \"local_steps\": 1, \"levels\": 32767",
        "\"fedcom\", \"step_size\": 0.1, \"local_steps\": 1, \"levels\": 1",
        ("\"fedcom\", \"step_size\": 0.1, \"local_steps\": 1, \"levels\": 1, "
         "\"server_step_size\": 0.3"),
        "\"ceal\", \"step_size\": 0.1, \"sigma\": 1",
    };
    expect_round_trip(IMAGES);
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++) {
        edit(IMAGES,
             "\"fedcom\", \"step_size\": 0.0005, \"local_steps\": 50, \"levels\": 5, "
             "\"server_step_size\": 10",
             algorithms[a], text);
        expect_round_trip(text);
        edit(SHORTEST, "\"ceal\", \"step_size\": 2, \"sigma\": 4", algorithms[a], text);
        expect_round_trip(text);
    }
    edit(IMAGES, "0.25", "0", text);
    expect_round_trip(text);
    edit(EXAMPLE, "synthetic-ceal", "quote \\\" backslash \\\\ \xc3\xa9", text);
    expect_round_trip(text);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_document__example_of_the_architecture_parses),
    TALLY_TEST(test_document_document__what_is_left_out_has_its_default),
    TALLY_TEST(test_document_document__auto_has_defaults_of_its_own),
    TALLY_TEST(test_document_document__images_and_baselines_parse),
    TALLY_TEST(test_document_document__errors_name_the_field),
    TALLY_TEST(test_document_document__errors_of_images_name_the_field),
    TALLY_TEST(test_document_document__algorithms_take_their_own_fields_alone),
    TALLY_TEST(test_document_document__other_texts_are_refused),
    TALLY_TEST(test_document_document__messages_name_value_and_limit),
    TALLY_TEST(test_document_document__quorum_and_policy_complete_each_other),
    TALLY_TEST(test_document_document__ends_of_the_ranges_are_inside),
    TALLY_TEST(test_document_document__name_has_128_bytes),
    TALLY_TEST(test_document_document__written_document_reads_back),
};
TALLY_SUITE(document_document, TESTS);

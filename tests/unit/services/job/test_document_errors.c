/* Refused job documents: the error names the field, the value and the limit. */
#include "services/job/document.h"

#include <stdio.h>
#include <string.h>

#include "services/job/document_faults.h"
#include "tests/harness.h"
#include "tests/unit/services/job/documents.h"

struct refusal {
    const char *find, *replace;
    enum tally_status status;
    const char *field;
};

/* Checks that the list of faults is neither empty nor too long and that its first fault is the
 * error of tally_document_parse(). */
static void expect_faults(const char *text, const struct tally_error *first)
{
    struct tally_json *faults = tally_document_faults(text, strlen(text));
    CU_ASSERT_PTR_NOT_NULL_FATAL(faults);
    const size_t n = tally_json_size(faults);
    CU_ASSERT_TRUE(n >= 1 && n <= TALLY_MAX_FAULTS);
    const struct tally_json *fault = tally_json_at(faults, 0);
    if (fault != NULL) {
        const char *detail = tally_json_get_text(fault, "detail");
        TALLY_ASSERT_TEXT(tally_json_get_text(fault, "field"), first->field);
        CU_ASSERT_TRUE(detail != NULL &&
                       strncmp(detail, first->message, strlen(first->message)) == 0);
        const bool is_range = first->status == TALLY_OUT_OF_RANGE;
        CU_ASSERT_EQUAL(strcmp(tally_json_get_text(fault, "code"), "out_of_range") == 0, is_range);
    }
    tally_json_free(faults);
}

/* Each row is one edit of the text, the expected status, and the field that the error names. */
static void expect_refusals(const char *text, const struct refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char edited[4000];
        struct tally_job_spec spec = {.seed = 4711};
        struct tally_error err;
        document_edit(text, rows[i].find, rows[i].replace, edited);
        TALLY_ASSERT_STATUS(document_parse(edited, &spec, &err), rows[i].status, &err);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
        CU_ASSERT_NOT_EQUAL(err.message[0], '\0');
        CU_ASSERT_EQUAL(spec.seed, 4711); /* written only on success */
        if (err.status != TALLY_MALFORMED) {
            expect_faults(edited, &err);
        }
        if (err.status != rows[i].status || strcmp(err.field, rows[i].field) != 0) {
            printf("\n    in row %zu: %s -> %s", i, rows[i].find, rows[i].replace);
        }
    }
}

static void test_document_errors__errors_name_the_field(void)
{
    static const struct refusal rows[] = {
        /* Top level. */
        {"\"name\": \"synthetic-ceal\"", "\"name\": 7", TALLY_INVALID_ARGUMENT, "name"},
        {"synthetic-ceal", "tab\\there", TALLY_INVALID_ARGUMENT, "name"},
        {"\"name\": \"synthetic-ceal\"", "\"title\": \"x\"", TALLY_INVALID_ARGUMENT, "title"},
        {"\"clients\": 10", "\"clients\": 0", TALLY_OUT_OF_RANGE, "clients"},
        {"\"clients\": 10", "\"clients\": -1", TALLY_OUT_OF_RANGE, "clients"},
        {"\"clients\": 10", "\"clients\": 100001", TALLY_OUT_OF_RANGE, "clients"},
        {"\"clients\": 10", "\"clients\": 10.5", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"clients\": 10", "\"clients\": \"10\"", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"clients\": 10", "\"clients\": null", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"clients\": 10, ", "", TALLY_INVALID_ARGUMENT, "clients"},
        {"\"horizon\": 2000, ", "", TALLY_INVALID_ARGUMENT, "horizon"},
        {"\"horizon\": 2000", "\"horizon\": 0", TALLY_OUT_OF_RANGE, "horizon"},
        {"\"horizon\": 2000", "\"horizon\": 2147483648", TALLY_OUT_OF_RANGE, "horizon"},
        {"\"minibatch\": 1", "\"minibatch\": -1", TALLY_OUT_OF_RANGE, "minibatch"},
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
    expect_refusals(DOCUMENT_EXAMPLE, rows, sizeof rows / sizeof rows[0]);
}

static void test_document_errors__errors_of_images_name_the_field(void)
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
        {"\"fedcom\"", "\"fedcom\", \"step_decay\": 0.1", invalid, "algorithm.step_decay"},
        {"\"fedcom\", \"step_size\": 0.0005, \"local_steps\": 50, \"levels\": 5, "
         "\"server_step_size\": 10",
         "\"fedavg\", \"step_size\": 1, \"local_steps\": 5, \"step_decay\": -0.1", range,
         "algorithm.step_decay"},
        {"\"fedcom\", \"step_size\": 0.0005, \"local_steps\": 50, \"levels\": 5, "
         "\"server_step_size\": 10",
         "\"fedavg\", \"step_size\": 1, \"local_steps\": 5, \"local_steps_growth\": 1000.1", range,
         "algorithm.local_steps_growth"},
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
        /* Errors of several fields together: too few points, too many bytes, dim too large. */
        {"\"classes\": 10, \"points_per_class\": 5000", "\"classes\": 3, \"points_per_class\": 3",
         invalid, "objective.data.points_per_class"},
        {"\"points_per_class\": 5000", "\"points_per_class\": 136957", invalid,
         "objective.data.points_per_class"},
        {"\"features\": 784, \"classes\": 10, \"points_per_class\": 5000",
         "\"features\": 1000000, \"classes\": 11, \"points_per_class\": 1", invalid,
         "objective.data.features"},
    };
    expect_refusals(DOCUMENT_IMAGES, rows, sizeof rows / sizeof rows[0]);
    const struct refusal synthetic[] = {
        {"least_squares", "softmax_regression", invalid, "objective.data.type"},
        {"\"type\": \"synthetic_linear\"", "\"type\": \"idx\"", invalid, "objective.data.dim"},
        {"\"least_squares\"", "\"least_squares\", \"threshold\": 1", invalid,
         "objective.threshold"},
    };
    expect_refusals(DOCUMENT_EXAMPLE, synthetic, sizeof synthetic / sizeof synthetic[0]);
}

/* Each algorithm accepts only its own fields. */
static void test_document_errors__algorithms_take_their_own_fields_alone(void)
{
    static const char *const fields[] = {
        "step_size",   "local_steps",    "levels",     "server_step_size",  "sigma",
        "delta",       "gamma0",         "phi0",       "sample_scale",      "log_factor",
        "first_stage", "gradient_bound", "step_decay", "local_steps_growth"};
    static const char *const values[] = {"0.1", "5", "3",    "2", "1.5", "0.2", "1",
                                         "2",   "1", "true", "2", "1",   "0.5", "1000"};
    enum { N_FIELDS = sizeof fields / sizeof fields[0] };
    /* o = optional, r = required, - = unknown; in the order of `fields`. */
    static const char *const known[] = {"r---rooooooo--", "rr------------", "rr----------oo",
                                        "rrr---------oo", "rrro----------"};
    for (size_t a = 0; a < 5; a++) {
        for (size_t special = 0; special < N_FIELDS; special++) {
            /* All fields of the algorithm, with the special one omitted or added. */
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
            document_edit(DOCUMENT_SHORTEST, "{\"type\": \"ceal\", \"step_size\": 2, \"sigma\": 4}",
                          algorithm, text);
            snprintf(field, sizeof field, "algorithm.%s", fields[special]);
            const bool fine = is_known && known[a][special] == 'o';
            struct tally_job_spec spec;
            struct tally_error err;
            TALLY_ASSERT_STATUS(document_parse(text, &spec, &err),
                                fine ? TALLY_OK : TALLY_INVALID_ARGUMENT, &err);
            TALLY_ASSERT_TEXT(err.field, fine ? "" : field);
        }
    }
}

/* Documents that are invalid JSON, not an object, or lack a required member. */
static void test_document_errors__other_texts_are_refused(void)
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
        TALLY_ASSERT_STATUS(document_parse(rows[i].text, &spec, &err), rows[i].status, &err);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
    }
}

static void test_document_errors__messages_name_value_and_limit(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    char text[4000];
    document_edit(DOCUMENT_EXAMPLE, "\"clients\": 10", "\"clients\": 0", text);
    document_parse(text, &spec, &err);
    TALLY_ASSERT_TEXT(err.message, "clients 0 outside [1, 100000]");
    document_edit(DOCUMENT_EXAMPLE, "\"step_size\": 2.0", "\"step_size\": -2.5", text);
    document_parse(text, &spec, &err);
    TALLY_ASSERT_TEXT(err.message, "step_size -2.5 outside (0, 1e+09]");
    document_edit(DOCUMENT_EXAMPLE, "\"quorum\": 10", "\"quorum\": 11", text);
    document_parse(text, &spec, &err);
    TALLY_ASSERT_TEXT(err.message, "quorum 11 is above clients 10");
}

/* If an algorithm needs every message, the error names a member that the document contains. */
static void test_document_errors__a_policy_is_not_refused_for_the_default_quorum(void)
{
    static const struct {
        const char *members, *field, *message;
    } rows[] = {
        {"\"policy\": \"drop\"", "policy",
         "policy drop closes rounds without all clients; algorithm scaffold needs the message of "
         "every client in every round"},
        {"\"quorum\": 1", "quorum",
         "quorum 1 is below clients 3; algorithm scaffold needs the message of every client in "
         "every round"},
        {"\"over_selection\": 1", "over_selection",
         "over_selection needs a cohort below clients 3"},
        {"\"policy\": \"drop\", \"quorum\": 3", "", ""},
        {"\"policy\": \"fail\"", "", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_job_spec spec;
        struct tally_error err = TALLY_ERROR_INIT;
        char text[4000];
        snprintf(text, sizeof text,
                 "{\"name\": \"s\", \"clients\": 3, \"horizon\": 10, %s, \"algorithm\": {\"type\": "
                 "\"scaffold\", \"step_size\": 0.1, \"local_steps\": 2}, \"objective\": {\"type\": "
                 "\"least_squares\", \"data\": {\"type\": \"synthetic_linear\", \"dim\": 2, "
                 "\"points\": 9}}}",
                 rows[i].members);
        const enum tally_status status = document_parse(text, &spec, &err);
        CU_ASSERT_EQUAL(status, rows[i].field[0] == '\0' ? TALLY_OK : TALLY_INVALID_ARGUMENT);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
        TALLY_ASSERT_TEXT(err.message, rows[i].message);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_errors__errors_name_the_field),
    TALLY_TEST(test_document_errors__errors_of_images_name_the_field),
    TALLY_TEST(test_document_errors__algorithms_take_their_own_fields_alone),
    TALLY_TEST(test_document_errors__other_texts_are_refused),
    TALLY_TEST(test_document_errors__messages_name_value_and_limit),
    TALLY_TEST(test_document_errors__a_policy_is_not_refused_for_the_default_quorum),
};
TALLY_SUITE(document_errors, TESTS);

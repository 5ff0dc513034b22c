#include "services/document/document.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/services/document/suites.h"

/* ARCHITECTURE.md section 4, word for word. */
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

/* `text` with its only occurrence of `find` replaced. */
static void edit(const char *text, const char *find, const char *replace, char ret_text[4000])
{
    const char *at = strstr(text, find);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    CU_ASSERT_PTR_NULL_FATAL(strstr(at + 1, find));
    snprintf(ret_text, 4000, "%.*s%s%s", (int)(at - text), text, replace, at + strlen(find));
}

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
    CU_ASSERT_EQUAL(spec.seed, 0);
    CU_ASSERT_EQUAL(spec.initial_point.type, TALLY_INITIAL_ZEROS);
    CU_ASSERT_EQUAL(spec.reference.type, TALLY_REFERENCE_SOLVE);
    CU_ASSERT_EQUAL(spec.quorum, 10); /* all clients */
    CU_ASSERT_EQUAL(spec.round_deadline_ms, 30000);
}

/* One edit of the example each: what is refused, as what, and which field is named. */
static void test_document_document__errors_name_the_field(void)
{
    static const struct {
        const char *find, *replace;
        enum tally_status status;
        const char *field;
    } rows[] = {
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
        {"\"quorum\": 10", "\"quorum\": 9", TALLY_INVALID_ARGUMENT, "quorum"},
        {"\"quorum\": 10", "\"quorum\": 11", TALLY_INVALID_ARGUMENT, "quorum"},
        {"\"quorum\": 10", "\"quorum\": 0", TALLY_OUT_OF_RANGE, "quorum"},
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
        /* Initial point and reference. */
        {"random_sphere", "anywhere", TALLY_INVALID_ARGUMENT, "initial_point.type"},
        {"\"type\": \"random_sphere\", ", "", TALLY_INVALID_ARGUMENT, "initial_point.type"},
        {"\"radius\": 1.0", "\"radius\": -1", TALLY_OUT_OF_RANGE, "initial_point.radius"},
        {"\"radius\": 1.0", "\"radius\": 1, \"x\": 0", TALLY_INVALID_ARGUMENT, "initial_point.x"},
        {"{\"type\": \"random_sphere\", \"radius\": 1.0}", "[0]", TALLY_INVALID_ARGUMENT,
         "initial_point"},
        {"\"solve\"", "\"guess\"", TALLY_INVALID_ARGUMENT, "reference.type"},
        {"\"solve\"", "\"value\"", TALLY_INVALID_ARGUMENT, "reference.value"},
        {"\"solve\"", "\"solve\", \"value\": 1", TALLY_INVALID_ARGUMENT, "reference.value"},
        {"\"solve\"", "\"value\", \"value\": \"1\"", TALLY_INVALID_ARGUMENT, "reference.value"},
        {"{\"type\": \"solve\"}", "null", TALLY_INVALID_ARGUMENT, "reference"},
        {"{\"type\": \"solve\"}", "{}", TALLY_INVALID_ARGUMENT, "reference.type"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[4000];
        struct tally_job_spec spec = {.seed = 4711};
        struct tally_error err;
        edit(EXAMPLE, rows[i].find, rows[i].replace, text);
        TALLY_ASSERT_STATUS(parse(text, &spec, &err), rows[i].status, &err);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
        CU_ASSERT_NOT_EQUAL(err.message[0], '\0');
        CU_ASSERT_EQUAL(spec.seed, 4711); /* written only on success */
        if (err.status != rows[i].status || strcmp(err.field, rows[i].field) != 0) {
            printf("\n    in row %zu: %s -> %s", i, rows[i].find, rows[i].replace);
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
    edit(EXAMPLE, "\"quorum\": 10", "\"quorum\": 9", text);
    parse(text, &spec, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "quorum 9 differs from clients 10"));
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
    CU_ASSERT_TRUE(p->step_size == q->step_size && p->sigma == q->sigma && p->delta == q->delta &&
                   p->gamma0 == q->gamma0 && p->phi0 == q->phi0 &&
                   p->sample_scale == q->sample_scale && p->log_factor == q->log_factor &&
                   p->first_stage == q->first_stage && p->gradient_bound == q->gradient_bound);
    CU_ASSERT_TRUE(a->objective.type == b->objective.type &&
                   a->objective.data.type == b->objective.data.type);
    const struct tally_synthetic_linear *d = &a->objective.data.synthetic_linear,
                                        *e = &b->objective.data.synthetic_linear;
    CU_ASSERT_TRUE(d->dim == e->dim && d->points == e->points &&
                   d->frobenius_norm == e->frobenius_norm && d->noise_std == e->noise_std);
    CU_ASSERT_TRUE(a->clients == b->clients && a->horizon == b->horizon &&
                   a->minibatch == b->minibatch && a->seed == b->seed && a->run == b->run &&
                   a->encoding == b->encoding && a->quorum == b->quorum &&
                   a->round_deadline_ms == b->round_deadline_ms);
    CU_ASSERT_TRUE(a->initial_point.type == b->initial_point.type &&
                   a->initial_point.radius == b->initial_point.radius &&
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
    edit(EXAMPLE, "4.47", "4.4699999999999997513", text);
    expect_round_trip(text);
    edit(EXAMPLE, "\"delta\": 0.1", "\"delta\": 1e-300", text);
    expect_round_trip(text);
    edit(EXAMPLE, "\"seed\": 1", "\"seed\": 9007199254740991", text);
    expect_round_trip(text);
    edit(EXAMPLE, "{\"type\": \"random_sphere\", \"radius\": 1.0}", "{\"type\": \"zeros\"}", text);
    expect_round_trip(text);
    edit(EXAMPLE, "synthetic-ceal", "quote \\\" backslash \\\\ \xc3\xa9", text);
    expect_round_trip(text);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_document__example_of_the_architecture_parses),
    TALLY_TEST(test_document_document__what_is_left_out_has_its_default),
    TALLY_TEST(test_document_document__errors_name_the_field),
    TALLY_TEST(test_document_document__other_texts_are_refused),
    TALLY_TEST(test_document_document__messages_name_value_and_limit),
    TALLY_TEST(test_document_document__ends_of_the_ranges_are_inside),
    TALLY_TEST(test_document_document__name_has_128_bytes),
    TALLY_TEST(test_document_document__written_document_reads_back),
};
TALLY_SUITE(document_document_suite, "document_document", TESTS);

/* Job documents: members, defaults, range limits, and documents written and read back. */
#include "services/job/document.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/documents.h"

/* Whether a equals b; two NaNs are equal. */
static bool same_real(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void expect_round_trip(const char *text);

static void test_document_document__example_of_the_architecture_parses(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(document_parse(DOCUMENT_EXAMPLE, &spec, &err), TALLY_OK, &err);
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
    TALLY_ASSERT_STATUS(document_parse(DOCUMENT_SHORTEST, &spec, &err), TALLY_OK, &err);
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

/* With sigma "auto" only a step size is required. */
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
        document_edit(DOCUMENT_SHORTEST, "\"sigma\": 4", rows[i].members, text);
        TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
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
    TALLY_ASSERT_STATUS(document_parse(DOCUMENT_IMAGES, &spec, &err), TALLY_OK, &err);
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
    TALLY_ASSERT_TEXT(TALLY_ENCODINGS[spec.encoding]->name, "entropy"); /* the default */
    CU_ASSERT_EQUAL(tally_job_spec_setting(&spec).dim, 7840);
    CU_ASSERT_EQUAL(tally_job_spec_setting(&spec).evaluate_every, 7);
    document_edit(DOCUMENT_IMAGES, ", \"server_step_size\": 10", "", text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(spec.params.baseline.server_step_size, 1);
    document_edit(DOCUMENT_IMAGES, "\"l2\": 0.25, ", "", text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(spec.objective.l2, 0.5);
}

/* A quorum or a policy alone implies the other. */
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
        document_edit(DOCUMENT_EXAMPLE, "\"quorum\": 10", rows[i].text, text);
        TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
        CU_ASSERT_EQUAL(spec.policy, rows[i].policy);
        CU_ASSERT_EQUAL(spec.quorum, rows[i].quorum);
    }
}

/* The limits themselves are permitted. */
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
        document_edit(DOCUMENT_EXAMPLE, edits[i][0], edits[i][1], text);
        TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
    }
}

static void test_document_document__name_has_128_bytes(void)
{
    char name[131], text[4000];
    struct tally_job_spec spec;
    struct tally_error err;
    memset(name, 'n', sizeof name);
    name[128] = '\0';
    document_edit(DOCUMENT_EXAMPLE, "synthetic-ceal", name, text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(spec.name, name);
    name[128] = 'n';
    name[129] = '\0';
    document_edit(DOCUMENT_EXAMPLE, "synthetic-ceal", name, text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OUT_OF_RANGE, &err);
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
                    r->levels == s->levels && r->server_step_size == s->server_step_size &&
                    r->step_decay == s->step_decay &&
                    r->local_steps_growth == s->local_steps_growth));
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

/* Checks that the stored document means the same as the one that was sent and is complete: writing
 * it again gives the same text. */
static void expect_round_trip(const char *text)
{
    struct tally_job_spec spec, again;
    struct tally_error err;
    struct tally_buffer first = {0}, second = {0};
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
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
    expect_round_trip(DOCUMENT_EXAMPLE);
    expect_round_trip(DOCUMENT_SHORTEST);
    document_edit(DOCUMENT_EXAMPLE, "\"solve\"", "\"value\", \"value\": 0.1234567890123456789",
                  text);
    expect_round_trip(text);
    document_edit(DOCUMENT_EXAMPLE, "\"solve\"", "\"none\"", text);
    expect_round_trip(text);
    document_edit(DOCUMENT_EXAMPLE, "\"reference\"",
                  "\"domain\": {\"type\": \"ball\", \"radius\": 0.3}, \"reference\"", text);
    expect_round_trip(text);
    document_edit(
        DOCUMENT_EXAMPLE, "\"reference\"",
        "\"domain\": {\"type\": \"box\", \"lower\": -0.1, \"upper\": 1e100}, \"reference\"", text);
    expect_round_trip(text);
    document_edit(DOCUMENT_EXAMPLE, "4.47", "4.4699999999999997513", text);
    expect_round_trip(text);
    document_edit(DOCUMENT_EXAMPLE, "\"delta\": 0.1", "\"delta\": 1e-300", text);
    expect_round_trip(text);
    document_edit(DOCUMENT_EXAMPLE, "\"seed\": 1", "\"seed\": 9007199254740991", text);
    expect_round_trip(text);
    document_edit(DOCUMENT_EXAMPLE, "{\"type\": \"random_sphere\", \"radius\": 1.0}",
                  "{\"type\": \"zeros\"}", text);
    expect_round_trip(text);
    static const char *const algorithms[] = {
        "\"minibatch_sgd\", \"step_size\": 0.1, \"local_steps\": 50",
        "\"fedavg\", \"step_size\": 1e-300, \"local_steps\": 2147483647",
        "\"fedpaq\", \"step_size\": 0.1, \"local_steps\": 1, \"levels\": 32767",
        "\"fedcom\", \"step_size\": 0.1, \"local_steps\": 1, \"levels\": 1",
        ("\"fedcom\", \"step_size\": 0.1, \"local_steps\": 1, \"levels\": 1, "
         "\"server_step_size\": 0.3"),
        "\"fedavg\", \"step_size\": 0.1, \"local_steps\": 5, \"step_decay\": 1e-9",
        ("\"fedpaq\", \"step_size\": 0.1, \"local_steps\": 5, \"levels\": 3, "
         "\"step_decay\": 0.5, \"local_steps_growth\": 1000"),
        "\"ceal\", \"step_size\": 0.1, \"sigma\": 1",
        "\"fedprox\", \"step_size\": 0.1, \"local_steps\": 5, \"mu\": 0",
        "\"diana\", \"step_size\": 0.1, \"local_steps\": 5, \"levels\": 1",
        "\"diana\", \"step_size\": 0.1, \"local_steps\": 5, \"levels\": 3, \"alpha\": 1",
        ("\"scaffold\", \"step_size\": 0.1, \"local_steps\": 5, "
         "\"server_step_size\": 0.5"),
        "\"ef21\", \"step_size\": 0.1, \"local_steps\": 5, \"k\": 1",
        "\"ef21\", \"step_size\": 0.1, \"local_steps\": 5, \"k\": 2, \"compressor\": \"rand_k\"",
        ("\"fedavg\", \"step_size\": 0.1, \"local_steps\": 5, "
         "\"server_optimizer\": {\"type\": \"sgd\", \"step_size\": 0.5}"),
        ("\"fedcom\", \"step_size\": 0.1, \"local_steps\": 5, \"levels\": 3, "
         "\"server_optimizer\": {\"type\": \"fedavgm\", \"step_size\": 1e9, \"beta1\": 0}"),
        ("\"fedprox\", \"step_size\": 0.1, \"local_steps\": 5, \"mu\": 0.5, "
         "\"server_optimizer\": {\"type\": \"fedyogi\", \"step_size\": 0.1, \"tau\": 1e-9}"),
    };
    expect_round_trip(DOCUMENT_IMAGES);
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++) {
        document_edit(DOCUMENT_IMAGES,
                      "\"fedcom\", \"step_size\": 0.0005, \"local_steps\": 50, \"levels\": 5, "
                      "\"server_step_size\": 10",
                      algorithms[a], text);
        expect_round_trip(text);
        document_edit(DOCUMENT_SHORTEST, "\"ceal\", \"step_size\": 2, \"sigma\": 4", algorithms[a],
                      text);
        expect_round_trip(text);
    }
    document_edit(DOCUMENT_IMAGES, "0.25", "0", text);
    expect_round_trip(text);
    document_edit(DOCUMENT_EXAMPLE, "synthetic-ceal", "quote \\\" backslash \\\\ \xc3\xa9", text);
    expect_round_trip(text);
}

/* Default values are not written, because workers of earlier releases refuse unknown members. */
static void test_document_document__constant_steps_and_rounds_are_not_written(void)
{
    static const char *const schedules[][2] = {
        {"", ""},
        {", \"step_decay\": 0, \"local_steps_growth\": 0", ""},
        {", \"step_decay\": 0.5", "\"step_decay\": 0.5"},
        {", \"local_steps_growth\": 2", "\"local_steps_growth\": 2.0"}};
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        char algorithm[200], text[4000];
        struct tally_job_spec spec;
        struct tally_error err;
        struct tally_buffer written = {0};
        snprintf(algorithm, sizeof algorithm, "\"fedavg\", \"step_size\": 1, \"local_steps\": 5%s",
                 schedules[i][0]);
        document_edit(DOCUMENT_SHORTEST, "\"ceal\", \"step_size\": 2, \"sigma\": 4", algorithm,
                      text);
        TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
        struct tally_json *json = tally_document_of(&spec);
        TALLY_ASSERT_STATUS(tally_json_dump(tally_json_get(json, "algorithm"), 0, &written),
                            TALLY_OK, NULL);
        tally_buffer_append(&written, "", 1);
        snprintf(algorithm, sizeof algorithm,
                 "{\"type\": \"fedavg\", \"step_size\": 1.0, \"local_steps\": 5%s%s}",
                 schedules[i][1][0] != '\0' ? ", " : "", schedules[i][1]);
        TALLY_ASSERT_TEXT((const char *)written.data, algorithm);
        tally_json_free(json);
        tally_buffer_fini(&written);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_document__example_of_the_architecture_parses),
    TALLY_TEST(test_document_document__what_is_left_out_has_its_default),
    TALLY_TEST(test_document_document__auto_has_defaults_of_its_own),
    TALLY_TEST(test_document_document__images_and_baselines_parse),
    TALLY_TEST(test_document_document__quorum_and_policy_complete_each_other),
    TALLY_TEST(test_document_document__ends_of_the_ranges_are_inside),
    TALLY_TEST(test_document_document__name_has_128_bytes),
    TALLY_TEST(test_document_document__written_document_reads_back),
    TALLY_TEST(test_document_document__constant_steps_and_rounds_are_not_written),
};
TALLY_SUITE(document_document, TESTS);

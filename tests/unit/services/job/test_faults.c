/* The list of all faults of a document, with codes, suggestions and choices; and the preview of a
 * valid document. */
#include "services/job/document_faults.h"

#include <stdio.h>
#include <string.h>

#include "services/job/document.h"
#include "services/job/job_footprint.h"
#include "tests/harness.h"
#include "tests/unit/services/job/documents.h"

static struct tally_json *faults_of(const char *text)
{
    struct tally_json *faults = tally_document_faults(text, strlen(text));
    CU_ASSERT_PTR_NOT_NULL_FATAL(faults);
    return faults;
}

static void expect_fault(const struct tally_json *faults, size_t at, const char *field,
                         const char *code, const char *suggestion)
{
    const struct tally_json *fault = tally_json_at(faults, at);
    CU_ASSERT_PTR_NOT_NULL_FATAL(fault);
    TALLY_ASSERT_TEXT(tally_json_get_text(fault, "field"), field);
    TALLY_ASSERT_TEXT(tally_json_get_text(fault, "code"), code);
    const char *found = tally_json_get_text(fault, "suggestion");
    CU_ASSERT_EQUAL(found != NULL, suggestion != NULL);
    if (found != NULL && suggestion != NULL) {
        const char *detail = tally_json_get_text(fault, "detail");
        TALLY_ASSERT_TEXT(found, suggestion);
        CU_ASSERT_PTR_NOT_NULL(strstr(detail, "did you mean "));
    }
}

static const char WRONG[] =
    "{\"clints\": 3, \"clients\": 0, \"horizon\": 10.5, \"encoding\": \"unari\","
    "\"name\": \"a\\tb\", \"algorithm\": {\"type\": \"ceal\", \"stepsize\": 1, \"sigma\": \"big\","
    "\"delta\": 0.1, \"gradient_bound\": -1}, \"objective\": {\"type\": \"least_square\"},"
    "\"domain\": 3, \"reference\": {\"type\": \"solve\", \"valu\": 1}}";

static void test_document_faults__all_are_listed_in_order(void)
{
    struct tally_json *faults = faults_of(WRONG);
    static const char *const rows[][3] = {
        {"clints", "unknown_member", "clients"},
        {"name", "not_allowed", NULL},
        {"clients", "out_of_range", NULL},
        {"horizon", "wrong_type", NULL},
        {"encoding", "not_allowed", "unary"},
        {"algorithm.stepsize", "unknown_member", "step_size"},
        {"algorithm.step_size", "missing", NULL},
        {"algorithm.sigma", "wrong_type", NULL},
        {"algorithm.gradient_bound", "out_of_range", NULL},
        {"objective.type", "not_allowed", "least_squares"},
        {"objective.data", "missing", NULL}, /* of the suggested type */
        {"domain", "wrong_type", NULL},
        {"reference.valu", "unknown_member", "value"},
    };
    const size_t n = sizeof rows / sizeof rows[0];
    CU_ASSERT_EQUAL(tally_json_size(faults), n);
    for (size_t i = 0; i < n; i++) {
        expect_fault(faults, i, rows[i][0], rows[i][1], rows[i][2]);
    }
    const struct tally_json *choices = tally_json_get(tally_json_at(faults, 4), "choices");
    TALLY_ASSERT_TEXT(tally_json_as_text(tally_json_at(choices, 1)), "entropy");
    CU_ASSERT_EQUAL(tally_json_size(choices), 3);
    for (size_t i = 0; i < n; i++) {
        const bool has_auto = tally_json_get(tally_json_at(faults, i), "auto") != NULL;
        CU_ASSERT_EQUAL(has_auto, i == 7 || i == 8);
    }
    tally_json_free(faults);
}

static void expect_optimizer_fault(const char *algorithm, const char *path, const char *code,
                                   const char *suggestion, const char *detail)
{
    char text[4000];
    snprintf(
        text, sizeof text,
        "{\"clients\": 2, \"horizon\": 20, \"algorithm\": {%s}, \"objective\": {\"type\": "
        "\"least_squares\", \"data\": {\"type\": \"synthetic_linear\", \"dim\": 3, \"points\": "
        "20}}}",
        algorithm);
    struct tally_json *faults = faults_of(text);
    CU_ASSERT_EQUAL(tally_json_size(faults), 1);
    expect_fault(faults, 0, path, code, suggestion);
    const struct tally_json *fault = tally_json_at(faults, 0);
    TALLY_ASSERT_TEXT(tally_json_as_text(tally_json_get(fault, "detail")), detail);
    tally_json_free(faults);
    struct tally_job_spec spec;
    struct tally_error err;
    CU_ASSERT_NOT_EQUAL(document_parse(text, &spec, &err), TALLY_OK);
    TALLY_ASSERT_TEXT(err.field, path);
}

/* The list of faults and the parser both name the member. */
static void test_document_faults__server_optimizers_are_looked_into(void)
{
#define FEDAVG "\"type\": \"fedavg\", \"step_size\": 1, \"local_steps\": 2, \"server_optimizer\": "
    expect_optimizer_fault(FEDAVG "3", "algorithm.server_optimizer", "wrong_type", NULL,
                           "server_optimizer must be an object");
    expect_optimizer_fault(FEDAVG "{\"step_size\": 1}", "algorithm.server_optimizer.type",
                           "missing", NULL, "type is missing");
    expect_optimizer_fault(
        FEDAVG "{\"type\": \"fedadm\", \"step_size\": 1}", "algorithm.server_optimizer.type",
        "not_allowed", "fedadam",
        "type \"fedadm\" is not one of sgd, fedavgm, fedadam, fedyogi; did you mean fedadam?");
    expect_optimizer_fault(FEDAVG "{\"type\": \"fedadam\"}", "algorithm.server_optimizer.step_size",
                           "missing", NULL, "step_size is missing");
    expect_optimizer_fault(FEDAVG "{\"type\": \"fedyogi\", \"step_size\": 1, \"beta2\": 1}",
                           "algorithm.server_optimizer.beta2", "out_of_range", NULL,
                           "beta2 1 outside [0, 0.999999]");
    expect_optimizer_fault(FEDAVG "{\"type\": \"fedadam\", \"step_size\": 1, \"tau\": 0}",
                           "algorithm.server_optimizer.tau", "out_of_range", NULL,
                           "tau 0 outside (0, 1e+09]");
    expect_optimizer_fault(FEDAVG "{\"type\": \"fedavgm\", \"step_size\": 0}",
                           "algorithm.server_optimizer.step_size", "out_of_range", NULL,
                           "step_size 0 outside (0, 1e+09]");
    expect_optimizer_fault(FEDAVG "{\"type\": \"sgd\", \"step_size\": 1, \"beta1\": 0.5}",
                           "algorithm.server_optimizer.beta1", "unknown_member", NULL,
                           "unknown key \"beta1\"");
    expect_optimizer_fault("\"type\": \"minibatch_sgd\", \"step_size\": 1, \"local_steps\": 2, "
                           "\"server_optimizer\": {\"type\": \"sgd\", \"step_size\": 1}",
                           "algorithm.server_optimizer", "unknown_member", NULL,
                           "unknown key \"server_optimizer\"");
    expect_optimizer_fault(
        "\"type\": \"fedprox\", \"step_size\": 1, \"local_steps\": 2, \"mu\": -1", "algorithm.mu",
        "out_of_range", NULL, "mu -1 outside [0, 1e+09]");
#undef FEDAVG
    expect_optimizer_fault("\"type\": \"ef21\", \"step_size\": 1, \"local_steps\": 2, \"k\": 0",
                           "algorithm.k", "out_of_range", NULL, "k 0 outside [1, 10000000]");
}

static void test_document_faults__rules_between_valid_members_are_all_looked_at(void)
{
    char one[4000], two[4000];
    document_edit(DOCUMENT_EXAMPLE, "\"quorum\": 10", "\"quorum\": 11, \"policy\": \"drop\"", one);
    document_edit(one, "\"round_deadline_ms\": 30000", "\"round_deadline_ms\": 0", two);
    struct tally_json *faults = faults_of(two);
    CU_ASSERT_EQUAL(tally_json_size(faults), 2);
    expect_fault(faults, 0, "quorum", "conflict", NULL);
    expect_fault(faults, 1, "round_deadline_ms", "conflict", NULL);
    tally_json_free(faults);
}

static void test_document_faults__are_none_of_a_valid_document(void)
{
    struct tally_json *faults = faults_of(DOCUMENT_EXAMPLE);
    CU_ASSERT_EQUAL(tally_json_size(faults), 0);
    tally_json_free(faults);
    CU_ASSERT_PTR_NULL(tally_document_faults("{", 1));
    CU_ASSERT_PTR_NULL(tally_document_faults("[]", 2));
}

static void test_document_faults__are_limited(void)
{
    char text[4000] = "{";
    size_t used = 1;
    for (int i = 0; i < 100; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s\"k%d\": 1", i > 0 ? "," : "", i);
    }
    snprintf(text + used, sizeof text - used, "}");
    struct tally_json *faults = faults_of(text);
    CU_ASSERT_EQUAL(tally_json_size(faults), TALLY_MAX_FAULTS);
    tally_json_free(faults);
}

static struct tally_json *preview_of(const char *text)
{
    struct tally_job_spec spec;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_document_parse(text, strlen(text), &spec, &err), TALLY_OK, &err);
    struct tally_json *preview = tally_document_preview(&spec, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(preview);
    CU_ASSERT_EQUAL(tally_json_get_integer(preview, "memory_bytes", -1),
                    tally_footprint_started(&spec));
    return preview;
}

#define BASELINE(policy, steps)                                                                    \
    "{\"clients\": 10, \"horizon\": 2050, " policy "\"algorithm\": {\"type\": \"fedpaq\","         \
    "\"step_size\": 0.1, \"local_steps\": " steps ", \"levels\": 3}, \"objective\": {\"type\":"    \
    "\"least_squares\", \"data\": {\"type\": \"synthetic_linear\", \"dim\": 30, \"points\": "      \
    "100}}}"

static void test_document_preview__counts_a_baselines_bits(void)
{
    struct tally_json *preview = preview_of(BASELINE("", "100"));
    const struct tally_json *bits = tally_json_get(preview, "expected_bits");
    /* Table I of [1]: 20 messages. The horizon cuts off the last 50 queries, which send nothing. */
    CU_ASSERT_EQUAL(tally_json_get_integer(bits, "uplink_per_client", -1), 2440);
    CU_ASSERT_EQUAL(tally_json_get_integer(bits, "downlink", -1), 19200);
    const struct tally_json *document = tally_json_get(preview, "document");
    CU_ASSERT_EQUAL(tally_json_get_integer(document, "quorum", -1), 10); /* the default */
    tally_json_free(preview);
}

static void test_document_preview__knows_what_is_a_bound_and_what_is_not_known(void)
{
    struct tally_json *preview = preview_of(BASELINE("\"quorum\": 5, ", "100"));
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_json_dump(tally_json_get(preview, "expected_bits"), 0, &text),
                        TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)text.data, "false"));
    tally_buffer_fini(&text);
    tally_json_free(preview);
    preview = preview_of(DOCUMENT_EXAMPLE);
    CU_ASSERT_FALSE(tally_json_is_object(tally_json_get(preview, "expected_bits")));
    tally_json_free(preview);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_faults__all_are_listed_in_order),
    TALLY_TEST(test_document_faults__server_optimizers_are_looked_into),
    TALLY_TEST(test_document_faults__rules_between_valid_members_are_all_looked_at),
    TALLY_TEST(test_document_faults__are_none_of_a_valid_document),
    TALLY_TEST(test_document_faults__are_limited),
    TALLY_TEST(test_document_preview__counts_a_baselines_bits),
    TALLY_TEST(test_document_preview__knows_what_is_a_bound_and_what_is_not_known),
};
TALLY_SUITE(document_faults, TESTS);

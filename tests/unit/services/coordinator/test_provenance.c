#include "services/coordinator/provenance.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/coordinator/job_in_store.h"

static void put(struct job_in_store *host, const char *environment, int64_t round)
{
    const struct tally_store_ops *ops = host->store->ops;
    TALLY_ASSERT_STATUS(ops->begin(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(provenance_put(host->store, host->job, environment, round, &host->err),
                        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(ops->commit(host->store, &host->err), TALLY_OK, &host->err);
}

/* As a coordinator that has been started anew puts it. */
static void put_anew(struct job_in_store *host, const char *environment, int64_t round)
{
    host->job->provenance_is_current = false;
    put(host, environment, round);
}

/* "ROUND VERSION DATA;" of each coordinator. */
static void expect_coordinators(struct job_in_store *host, const char *expected)
{
    const struct tally_buffer document = {.data = (uint8_t *)"{}", .size = 2};
    struct tally_json *detail = tally_json_object();
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(provenance_add(host->store, &host->job->row, &document, detail, &host->err),
                        TALLY_OK, &host->err);
    const struct tally_json *provenance = tally_json_get(detail, "provenance");
    const struct tally_json *list = tally_json_get(provenance, "coordinators");
    for (size_t i = 0; i < tally_json_size(list); i++) {
        const struct tally_json *each = tally_json_at(list, i);
        const char *data = tally_json_get_text(each, "data");
        tally_buffer_printf(&text, "%lld %s %s;",
                            (long long)tally_json_get_integer(each, "from_round", -1),
                            tally_json_get_text(each, "version"), data != NULL ? data : "-");
    }
    tally_buffer_append(&text, "", 1);
    TALLY_ASSERT_TEXT((const char *)text.data, expected);
    if (expected[0] != '\0') { /* of "{}" */
        TALLY_ASSERT_TEXT(tally_json_get_text(provenance, "document_sha256"),
                          "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }
    tally_buffer_fini(&text);
    tally_json_free(detail);
}

static void test_coordinator_provenance__an_upgrade_shows(void)
{
    struct job_in_store host;
    job_in_store_init(&host, NULL, NULL);
    expect_coordinators(&host, "");
    host.job->data_digest = 0xabc;
    put(&host, "{\"version\": \"1\"}", 1);
    put(&host, "{\"version\": \"1\"}", 2);
    put_anew(&host, "{\"version\": \"1\"}", 3);
    expect_coordinators(&host, "1 1 0000000000000abc;");
    host.job->data_digest = 0; /* a running job is not prepared again */
    put_anew(&host, "{\"version\": \"2\"}", 4);
    put_anew(&host, "{\"version\": \"1\"}", 9);
    expect_coordinators(&host, "1 1 0000000000000abc;4 2 -;9 1 -;");
    put_anew(&host, NULL, 10); /* records nothing */
    expect_coordinators(&host, "1 1 0000000000000abc;4 2 -;9 1 -;");
    job_in_store_fini(&host);
}

static void test_coordinator_provenance__takes_so_many(void)
{
    struct job_in_store host;
    job_in_store_init(&host, NULL, NULL);
    for (int i = 0; i < PROVENANCE_MOST_COORDINATORS + 2; i++) {
        put_anew(&host, i % 2 == 0 ? "{\"version\": \"a\"}" : "{\"version\": \"b\"}", i + 1);
    }
    struct tally_json *detail = tally_json_object();
    const struct tally_buffer document = {.data = (uint8_t *)"{}", .size = 2};
    TALLY_ASSERT_STATUS(provenance_add(host.store, &host.job->row, &document, detail, &host.err),
                        TALLY_OK, &host.err);
    CU_ASSERT_EQUAL(
        tally_json_size(tally_json_get(tally_json_get(detail, "provenance"), "coordinators")),
        PROVENANCE_MOST_COORDINATORS);
    tally_json_free(detail);
    job_in_store_fini(&host);
}

/* ---- Origins. */

/* Whether it was new. */
static bool describe(struct job_in_store *host, const char *origin)
{
    const struct tally_store_ops *ops = host->store->ops;
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(provenance_read_origin(host->store, host->job, origin, &text, &host->err),
                        TALLY_OK, &host->err);
    const bool is_new = text.size > 0;
    if (is_new) {
        TALLY_ASSERT_STATUS(ops->begin(host->store, &host->err), TALLY_OK, &host->err);
        TALLY_ASSERT_STATUS(provenance_put_origin(host->store, host->job, &text, &host->err),
                            TALLY_OK, &host->err);
        TALLY_ASSERT_STATUS(ops->commit(host->store, &host->err), TALLY_OK, &host->err);
    }
    tally_buffer_fini(&text);
    return is_new;
}

/* The list, as one line of JSON. */
static void expect_workers(struct job_in_store *host, const char *expected)
{
    const struct tally_buffer document = {.data = (uint8_t *)"{}", .size = 2};
    struct tally_json *detail = tally_json_object();
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(provenance_add(host->store, &host->job->row, &document, detail, &host->err),
                        TALLY_OK, &host->err);
    tally_json_dump(tally_json_get(tally_json_get(detail, "provenance"), "workers"), 0, &text);
    tally_buffer_append(&text, "", 1);
    TALLY_ASSERT_TEXT((const char *)text.data, expected);
    tally_buffer_fini(&text);
    tally_json_free(detail);
}

#define ORIGIN(version, code)                                                                      \
    "{\"version\": " version ", \"commit\": null, \"compiler\": null, \"libraries\": null, "       \
    "\"machine\": {\"processor\": \"p\", \"system\": null}, \"data\": null, \"code\": " code       \
    ", \"from_round\": 1}"

static void test_coordinator_provenance__workers_that_say_the_same_share_a_row(void)
{
    static const char FIRST[] = "{\"version\": \"1\", \"machine\": {\"processor\": \"p\"}}";
    struct job_in_store host;
    job_in_store_init(&host, NULL, NULL);
    put(&host, "{\"version\": \"c\"}", 1);
    expect_workers(&host, "[]");
    CU_ASSERT_TRUE(describe(&host, FIRST));
    CU_ASSERT_FALSE(describe(&host, FIRST));
    /* Another order of members, unknown ones, and what is no text. */
    CU_ASSERT_FALSE(describe(&host,
                             "{\"x\": {\"y\": 1}, \"machine\": {\"z\": 1, \"processor\": \"p\"}, "
                             "\"version\": \"1\", \"commit\": 5, \"code\": \"text\"}"));
    CU_ASSERT_TRUE(describe(&host, "{\"version\": 2, \"machine\": {\"processor\": \"p\"}, "
                                   "\"code\": {\"name\": \"f\", \"sha256\": \"00\"}}"));
    expect_workers(&host, "[" ORIGIN("\"1\"", "null") ", " ORIGIN(
                              "null", "{\"name\": \"f\", \"sha256\": \"00\"}") "]");
    /* The coordinators are as they were, and a restart reads what is known. */
    put_anew(&host, "{\"version\": \"c\"}", 2);
    expect_coordinators(&host, "1 c -;");
    provenance_forget(&host.job->origins);
    CU_ASSERT_FALSE(describe(&host, FIRST));
    put_anew(&host, "{\"version\": \"d\"}", 3);
    expect_coordinators(&host, "1 c -;3 d -;");
    job_in_store_fini(&host);
}

static void test_coordinator_provenance__takes_so_many_origins(void)
{
    struct job_in_store host;
    char origin[64];
    job_in_store_init(&host, NULL, NULL);
    for (int i = 0; i < PROVENANCE_MOST_ORIGINS + 2; i++) {
        snprintf(origin, sizeof origin, "{\"version\": \"%d\"}", i);
        CU_ASSERT_EQUAL(describe(&host, origin), i < PROVENANCE_MOST_ORIGINS);
        if (i % 20 == 0) {
            provenance_forget(&host.job->origins);
        }
    }
    job_in_store_fini(&host);
}

static void test_coordinator_provenance__an_origin_is_an_object(void)
{
    static const char *const ORIGINS[] = {"",         "{",     "[]",
                                          "\"text\"", "{} {}", "{\"a\": 1, \"a\": 2}"};
    struct job_in_store host;
    struct tally_buffer text = {0};
    job_in_store_init(&host, NULL, NULL);
    for (size_t i = 0; i < sizeof ORIGINS / sizeof *ORIGINS; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(provenance_read_origin(host.store, host.job, ORIGINS[i], &text, &err),
                        TALLY_INVALID_ARGUMENT);
        TALLY_ASSERT_TEXT(err.field, "origin");
    }
    tally_buffer_fini(&text);
    job_in_store_fini(&host);
}

static enum tally_status read_row(const char *body, size_t n, struct tally_error *err)
{
    struct job_in_store host;
    job_in_store_init(&host, NULL, NULL);
    const struct tally_store_ops *ops = host.store->ops;
    const struct tally_store_update row = {
        .round = TALLY_STORE_PROVENANCE_ROUND, .body = (const uint8_t *)body, .n_body = n};
    const struct tally_buffer document = {.data = (uint8_t *)"{}", .size = 2};
    struct tally_json *detail = tally_json_object();
    TALLY_ASSERT_STATUS(ops->begin(host.store, err), TALLY_OK, err);
    TALLY_ASSERT_STATUS(ops->update_insert(host.store, host.job->row.key, &row, err), TALLY_OK,
                        err);
    TALLY_ASSERT_STATUS(ops->commit(host.store, err), TALLY_OK, err);
    const enum tally_status status =
        provenance_add(host.store, &host.job->row, &document, detail, err);
    tally_json_free(detail);
    job_in_store_fini(&host);
    return status;
}

static void test_coordinator_provenance__damage_is_told(void)
{
    static const char *const BODIES[] = {"", "1", "1 0", "x 0 {}", "1 0 ", "1 0 {", "1 0 []"};
    for (size_t i = 0; i < sizeof BODIES / sizeof *BODIES; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(read_row(BODIES[i], strlen(BODIES[i]), &err), TALLY_DATA_LOSS);
        TALLY_ASSERT_TEXT(err.message, "stored provenance 0 cannot be read");
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_provenance__an_upgrade_shows),
    TALLY_TEST(test_coordinator_provenance__takes_so_many),
    TALLY_TEST(test_coordinator_provenance__workers_that_say_the_same_share_a_row),
    TALLY_TEST(test_coordinator_provenance__takes_so_many_origins),
    TALLY_TEST(test_coordinator_provenance__an_origin_is_an_object),
    TALLY_TEST(test_coordinator_provenance__damage_is_told),
};
TALLY_SUITE(coordinator_provenance, TESTS);

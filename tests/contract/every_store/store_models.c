/* Contract of kept models. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/digest.h"
#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

enum { MAX_MODELS = 8 };

struct model_walk {
    struct tally_store_model models[MAX_MODELS];
    int n;
};

static enum tally_status collect_model(void *context, const struct tally_store_model *model,
                                       struct tally_error *err)
{
    struct model_walk *walk = context;
    (void)err;
    if (walk->n < MAX_MODELS) {
        walk->models[walk->n++] = *model;
    }
    return TALLY_OK;
}

static struct tally_store_model sample_model(int64_t slot, double value, const char *bytes)
{
    return (struct tally_store_model){.slot = slot,
                                      .round = slot + 1,
                                      .iterate = slot + 2,
                                      .value = value,
                                      .x_checksum = UINT64_MAX - (uint64_t)slot,
                                      .n_bytes = (int64_t)strlen(bytes)};
}

static void expect_put(struct store_fixture *f, int64_t key, int64_t slot, double value,
                       const char *bytes)
{
    const struct tally_store_model model = sample_model(slot, value, bytes);
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->model_put(f->store, key, &model, bytes, &f->err), TALLY_OK,
                        &f->err);
}

static void expect_bytes(struct store_fixture *f, int64_t key, int64_t slot, const char *expected)
{
    struct tally_buffer bytes = {0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(tally_buffer_append_text(&bytes, "before "), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(f->ops->model_get(f->store, key, slot, &bytes, &f->err), TALLY_OK, &f->err);
    TALLY_ASSERT_STATUS(tally_buffer_append(&bytes, "", 1), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(strncmp((const char *)bytes.data, "before ", 7), 0);
    TALLY_ASSERT_TEXT((const char *)bytes.data + 7, expected);
    tally_buffer_fini(&bytes);
}

/* Checks the list: slots ascending, each with the values of sample_model(). NaN = no value. */
static void expect_list(struct store_fixture *f, int64_t key, int n, const int64_t *slots,
                        const double *values, const char *const *bytes)
{
    struct model_walk walk = {.n = 0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->model_list(f->store, key, collect_model, &walk, &f->err), TALLY_OK,
                        &f->err);
    CU_ASSERT_EQUAL_FATAL(walk.n, n);
    for (int i = 0; i < n; i++) {
        const struct tally_store_model expected = sample_model(slots[i], values[i], bytes[i]);
        const struct tally_store_model *model = &walk.models[i];
        CU_ASSERT_EQUAL(model->slot, expected.slot);
        CU_ASSERT_EQUAL(model->round, expected.round);
        CU_ASSERT_EQUAL(model->iterate, expected.iterate);
        CU_ASSERT_EQUAL(model->x_checksum, expected.x_checksum);
        CU_ASSERT_EQUAL(model->n_bytes, expected.n_bytes);
        CU_ASSERT_TRUE(isnan(expected.value) ? isnan(model->value)
                                             : model->value == expected.value);
        expect_bytes(f, key, slots[i], bytes[i]);
    }
}

void test_store__models_are_read_back_by_slot(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    const int64_t other = expect_job(&f, "b", TALLY_JOB_RUNNING);
    expect_list(&f, key, 0, NULL, NULL, NULL);
    expect_begin(&f);
    expect_put(&f, key, 20, NAN, "twenty");
    expect_put(&f, key, 3, NAN, "");
    expect_put(&f, key, TALLY_STORE_BEST_MODEL, -0.25, "best");
    expect_put(&f, other, 3, 1, "of another job");
    const int64_t slots[] = {TALLY_STORE_BEST_MODEL, 3, 20};
    const double values[] = {-0.25, NAN, NAN};
    const char *const bytes[] = {"best", "", "twenty"};
    expect_list(&f, key, 3, slots, values, bytes); /* the transaction sees its writes */
    expect_commit(&f);
    expect_list(&f, key, 3, slots, values, bytes);
    store_fixture_close(&f);
}

void test_store__a_model_replaces_the_one_in_its_slot(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    const int64_t slots[] = {TALLY_STORE_BEST_MODEL, 7};
    const double values[] = {0.5, NAN};
    const char *const bytes[] = {"second, and longer", "seven"};
    expect_begin(&f);
    expect_put(&f, key, 7, NAN, "seven");
    expect_put(&f, key, TALLY_STORE_BEST_MODEL, 0.25, "first");
    expect_commit(&f);
    expect_begin(&f);
    expect_put(&f, key, TALLY_STORE_BEST_MODEL, 0.5, "second, and longer");
    expect_commit(&f);
    expect_list(&f, key, 2, slots, values, bytes);
    expect_begin(&f); /* twice in one transaction, which is rolled back */
    expect_put(&f, key, TALLY_STORE_BEST_MODEL, 0.75, "third");
    expect_put(&f, key, TALLY_STORE_BEST_MODEL, 0.875, "fourth");
    expect_put(&f, key, 8, NAN, "eight");
    f.ops->rollback(f.store);
    expect_list(&f, key, 2, slots, values, bytes);
    store_fixture_close(&f);
}

void test_store__models_of_unknown_jobs_and_slots(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    const struct tally_store_model model = sample_model(1, 0, "x");
    struct tally_buffer bytes = {0};
    TALLY_ASSERT_STATUS(f.ops->model_get(f.store, key, 1, &bytes, NULL), TALLY_NOT_FOUND, NULL);
    expect_list(&f, key + 1, 0, NULL, NULL, NULL);
    expect_begin(&f);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->model_put(f.store, key + 1, &model, "x", &f.err)),
                        TALLY_NOT_FOUND, &f.err);
    tally_error_clear(&f.err);
    expect_put(&f, key, 1, 0.5, "x"); /* the transaction continues */
    expect_commit(&f);
    expect_bytes(&f, key, 1, "x");
    tally_buffer_fini(&bytes);
    store_fixture_close(&f);
}

void test_store__models_go_with_their_job(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_COMPLETED);
    const int64_t other = expect_job(&f, "b", TALLY_JOB_COMPLETED);
    struct tally_buffer bytes = {0};
    expect_begin(&f);
    expect_put(&f, key, 1, 0.5, "one");
    expect_put(&f, other, 1, 0.5, "other");
    expect_commit(&f);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->job_delete(f.store, key, &f.err)), TALLY_OK, &f.err);
    expect_commit(&f);
    expect_list(&f, key, 0, NULL, NULL, NULL);
    TALLY_ASSERT_STATUS(f.ops->model_get(f.store, key, 1, &bytes, NULL), TALLY_NOT_FOUND, NULL);
    expect_bytes(&f, other, 1, "other");
    tally_buffer_fini(&bytes);
    store_fixture_close(&f);
}

void test_store__a_large_model_is_exact(void)
{
    enum { N_BYTES = 20 * 1000 * 1000 };
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    uint8_t *pattern = pattern_new(N_BYTES);
    struct tally_store_model model = sample_model(4, NAN, "");
    model.n_bytes = N_BYTES;
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->model_put(f.store, key, &model, pattern, &f.err), TALLY_OK, &f.err);
    expect_commit(&f);
    struct tally_buffer bytes = {0};
    TALLY_ASSERT_STATUS(f.ops->model_get(f.store, key, 4, &bytes, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL_FATAL(bytes.size, N_BYTES);
    CU_ASSERT_EQUAL(memcmp(bytes.data, pattern, N_BYTES), 0);
    tally_buffer_fini(&bytes);
    free(pattern);
    store_fixture_close(&f);
}

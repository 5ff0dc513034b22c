/* Errors of opening a file that is not a sound database of Tally. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/backends.h"
#include "tests/contract/store_tests.h"
#include "tests/contract/support/child.h"
#include "tests/contract/support/files.h"
#include "tests/contract/support/store_fixture.h"

/* Offsets in the first page, https://sqlite.org/fileformat2.html section 1.3; big-endian. */
enum { HEADER_USER_VERSION = 60, HEADER_APPLICATION_ID = 68 };

/* Checks that opening fails with `status` and a message that has the path and `text`. */
static void expect_refused(struct store_fixture *f, enum tally_status status, const char *text)
{
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_store_open(f->uri, NULL, &store, &err), status, &err);
    CU_ASSERT_PTR_NULL(store);
    CU_ASSERT_EQUAL(err.status, status);
    bool has_both = strstr(err.message, f->path) != NULL && strstr(err.message, text) != NULL;
    if (!has_both) {
        printf("\n    message without \"%s\": %s", text, err.message);
    }
    CU_ASSERT(has_both);
    if (store != NULL) {
        store->ops->close(store);
    }
}

enum { MODEL_BYTES = 9000 };

/* Makes a closed database with a paused job, its state, 30 updates, 30 records and a model. */
static void make_database(struct store_fixture *f)
{
    store_fixture_open(f);
    int64_t key = expect_job(f, "a", TALLY_JOB_PAUSED);
    expect_begin(f);
    f->ops->state_put(f->store, key, "state", 5, NULL);
    f->ops->state_append(f->store, key, 1, "first change", 12, NULL);
    f->ops->state_append(f->store, key, 2, "second change", 13, NULL);
    for (int i = 1; i <= 30; i++) {
        struct tally_round_record record = sample_record(i, i);
        f->ops->round_insert(f->store, key, &record, NULL);
        expect_update(f, key, 1, (uint32_t)i, "a body of some length to fill a page or two");
    }
    uint8_t *point = pattern_new(MODEL_BYTES); /* it fills the last pages of the file */
    const struct tally_store_model model = {.slot = 5, .round = 5, .n_bytes = MODEL_BYTES};
    f->ops->model_put(f->store, key, &model, point, NULL);
    free(point);
    expect_commit(f);
    f->ops->close(f->store);
    f->store = NULL;
}

void test_store_sqlite_file__header_says_whose_it_is(void)
{
    struct store_fixture f;
    make_database(&f);
    size_t n = 0;
    uint8_t *file = file_read(f.path, &n);
    CU_ASSERT_EQUAL(memcmp(file + HEADER_APPLICATION_ID, "Taly", 4), 0);
    CU_ASSERT_EQUAL(memcmp(file + HEADER_USER_VERSION, "\0\0\0\xb", 4), 0);
    free(file);
    store_fixture_close(&f);
}

static void expect_version_refused(struct store_fixture *f, const char *version,
                                   enum tally_status status, const char *text)
{
    size_t n_before = 0;
    size_t n_after = 0;
    file_patch(f->path, HEADER_USER_VERSION, version, 4);
    uint8_t *before = file_read(f->path, &n_before);
    expect_refused(f, status, text);
    const struct tally_store_options options = {.read_only = true};
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_store_open(f->uri, &options, &store, &err), status, &err);
    CU_ASSERT_PTR_NULL(store);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, text));
    uint8_t *after = file_read(f->path, &n_after);
    CU_ASSERT(n_before == n_after && memcmp(before, after, n_before) == 0);
    free(before);
    free(after);
}

void test_store_sqlite_file__other_schema_version_is_refused_untouched(void)
{
    struct store_fixture f;
    make_database(&f);
    expect_version_refused(&f, "\0\0\0\x63", TALLY_FAILED_PRECONDITION,
                           "schema version 99, newer than 11");
    expect_version_refused(
        &f, "\0\0\0\x7", TALLY_FAILED_PRECONDITION,
        "schema version 7, not 11; the last release that reads it is Tally 0.15.0");
    expect_version_refused(&f, "\0\0\0\x8", TALLY_FAILED_PRECONDITION,
                           "schema version 8, not 11: it was made between two releases");
    expect_version_refused(&f, "\0\0\0\x9", TALLY_FAILED_PRECONDITION,
                           "schema version 9, not 11: it was made between two releases");
    expect_version_refused(&f, "\0\0\0\x1", TALLY_FAILED_PRECONDITION, "is Tally 0.15.0");
    expect_version_refused(&f, "\0\0\0\0", TALLY_DATA_LOSS,
                           "schema version 0, which no release has made");
    expect_version_refused(&f, "\xff\xff\xff\xff", TALLY_DATA_LOSS,
                           "schema version -1, which no release has made");
    file_patch(f.path, HEADER_USER_VERSION, "\0\0\0\xb", 4);
    store_fixture_reopen(&f);
    store_fixture_close(&f);
}

void test_store_sqlite_file__database_of_another_program_is_refused_untouched(void)
{
    struct store_fixture f;
    make_database(&f);
    file_patch(f.path, HEADER_APPLICATION_ID, "\0\0\0\0", 4);
    size_t n_before = 0;
    size_t n_after = 0;
    uint8_t *before = file_read(f.path, &n_before);
    expect_refused(&f, TALLY_DATA_LOSS, "belongs to another program (application_id 0x00000000");
    uint8_t *after = file_read(f.path, &n_after);
    CU_ASSERT(n_before == n_after && memcmp(before, after, n_before) == 0);
    free(before);
    free(after);
    store_fixture_close(&f);
}

void test_store_sqlite_file__missing_table_or_column_is_data_loss(void)
{
    struct store_fixture f;
    make_database(&f);
    file_replace(f.path, "recovery_bits", "rec0very_bits");
    expect_refused(&f, TALLY_DATA_LOSS, "recovery_bits");
    store_fixture_close(&f);
}

void test_store_sqlite_file__file_that_is_no_database_is_refused(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    uint8_t *noise = pattern_new(10000);
    file_write(f.path, noise, 10000);
    expect_refused(&f, TALLY_DATA_LOSS, "file is not a database");
    file_write(f.path, "hello\n", 6);
    expect_refused(&f, TALLY_DATA_LOSS, "file is not a database");
    free(noise);
    store_fixture_close(&f);
}

void test_store_sqlite_file__truncated_file_is_refused(void)
{
    struct store_fixture f;
    make_database(&f);
    size_t n = 0;
    uint8_t *whole = file_read(f.path, &n);
    for (size_t kept = 2; kept < n; kept += 509) { /* SQLite treats 0 and 1 byte as empty */
        file_write(f.path, whole, kept);
        expect_refused(&f, TALLY_DATA_LOSS, "");
    }
    file_write(f.path, whole, n - 1);
    expect_refused(&f, TALLY_DATA_LOSS, "is truncated: ");
    free(whole);
    store_fixture_close(&f);
}

/* Everything that was read, as one text. */
struct reading {
    struct tally_buffer text;
};

static enum tally_status read_job_row(void *context, const struct tally_store_job *job,
                                      struct tally_error *err)
{
    (void)err;
    struct reading *reading = context;
    const struct tally_store_job row = *job;
    return tally_buffer_printf(
        &reading->text, "%s %s %s %d %s %lld %lld %lld %a %a %llu %llu %llu\n", row.id, row.name,
        row.algorithm, (int)row.status, row.reason, (long long)row.created_ms,
        (long long)row.clients, (long long)row.progress.round, row.progress.cumulative_regret,
        row.progress.f_star, (unsigned long long)row.progress.x_checksum,
        (unsigned long long)row.progress.bits.uplink.payload_bits,
        (unsigned long long)row.wire_out_bytes);
}

static enum tally_status read_update_row(void *context, const struct tally_store_update *update,
                                         struct tally_error *err)
{
    (void)err;
    struct reading *reading = context;
    enum tally_status status =
        tally_buffer_printf(&reading->text, "%lld %u ", (long long)update->round, update->client);
    return status == TALLY_OK ? tally_buffer_append(&reading->text, update->body, update->n_body)
                              : status;
}

static enum tally_status read_round_row(void *context, const struct tally_round_record *record,
                                        struct tally_error *err)
{
    (void)err;
    struct reading *reading = context;
    return tally_buffer_printf(&reading->text, "%lld %lld %a %d %a %llu %llu %s\n",
                               (long long)record->round, (long long)record->received, record->norm,
                               record->passed, record->loss,
                               (unsigned long long)record->bits.uplink.payload_bits,
                               (unsigned long long)record->bits.telemetry_bits, record->missing);
}

static enum tally_status read_model_row(void *context, const struct tally_store_model *model,
                                        struct tally_error *err)
{
    (void)err;
    struct reading *reading = context;
    return tally_buffer_printf(&reading->text, "%lld %lld %lld %a %llx %lld\n",
                               (long long)model->slot, (long long)model->round,
                               (long long)model->iterate, model->value,
                               (unsigned long long)model->x_checksum, (long long)model->n_bytes);
}

/* Reads everything; returns the first status that is not OK. */
static enum tally_status read_all(struct tally_store *store, struct reading *reading)
{
    struct tally_store_job job;
    uint64_t digest = 0;
    struct tally_buffer *text = &reading->text;
    enum tally_status status[] = {
        store->ops->job_list(store, -1, INT64_MAX, 40, read_job_row, reading, NULL),
        store->ops->job_list_live(store, read_job_row, reading, NULL),
        store->ops->job_get(store, "a", &job, NULL),
        store->ops->job_by_idempotency_key(store, "once", &job, &digest, NULL),
        store->ops->document_get(store, 1, text, NULL),
        store->ops->state_get(store, 1, text, NULL),
        store->ops->update_list(store, 1, 1, read_update_row, reading, NULL),
        store->ops->round_list(store, 1, 0, 40, read_round_row, reading, NULL),
        store->ops->model_list(store, 1, read_model_row, reading, NULL),
        store->ops->model_get(store, 1, 5, text, NULL),
    };
    for (size_t i = 0; i < sizeof status / sizeof status[0]; i++) {
        if (status[i] != TALLY_OK) {
            return status[i];
        }
    }
    return tally_buffer_printf(text, " %s %llu", job.id, (unsigned long long)digest);
}

/* xorshift64*, so that the damage is reproducible. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* The outcome for one damaged database. */
enum outcome { REFUSED, READ_REFUSED, UNAFFECTED, CHANGED };

/* Opens and reads the database; `whole` is the text of the undamaged one. */
static enum outcome try_database(const struct store_fixture *f, const struct tally_buffer *whole)
{
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = tally_store_open(f->uri, NULL, &store, &err);
    enum outcome outcome = REFUSED;
    if (store != NULL) {
        struct reading reading = {.text = {.size = 0}};
        status = read_all(store, &reading);
        outcome = status != TALLY_OK ? READ_REFUSED
                  : reading.text.size == whole->size &&
                          memcmp(reading.text.data, whole->data, whole->size) == 0
                      ? UNAFFECTED
                      : CHANGED;
        tally_buffer_fini(&reading.text);
        store->ops->close(store);
    } else if (strstr(err.message, f->path) == NULL) {
        printf("\n    message without path: %s", err.message);
        CU_FAIL("message without path");
    }
    bool is_expected = status == TALLY_OK || status == TALLY_DATA_LOSS;
    if (!is_expected) {
        TALLY_ASSERT_STATUS(status, TALLY_DATA_LOSS, &err);
    }
    return outcome;
}

/* Makes a closed database with two jobs, one of which has data in every table, and reads it. */
static uint8_t *make_whole(struct store_fixture *f, size_t *ret_n, struct reading *ret_reading)
{
    make_database(f);
    store_fixture_reopen(f);
    struct tally_store_job job = sample_job("b", 2);
    expect_begin(f);
    TALLY_ASSERT_STATUS(
        f->ops->job_insert(f->store, &job, "{\"b\":1}", 7, "once", 77, &job.key, NULL), TALLY_OK,
        NULL);
    expect_commit(f);
    *ret_reading = (struct reading){.text = {.size = 0}};
    TALLY_ASSERT_STATUS(read_all(f->store, ret_reading), TALLY_OK, NULL);
    f->ops->close(f->store);
    f->store = NULL;
    return file_read(f->path, ret_n);
}

void test_store_sqlite_file__flipped_bit_is_found_or_harmless(void)
{
    struct store_fixture f;
    struct reading whole;
    size_t n = 0;
    uint8_t *file = make_whole(&f, &n, &whole);
    uint64_t random = 1;
    int n_outcome[CHANGED + 1] = {0};
    for (int trial = 0; trial < 3000; trial++) {
        const uint64_t bit = next_random(&random) % (8 * n);
        file[bit / 8] ^= (uint8_t)(1U << bit % 8);
        file_write(f.path, file, n);
        file[bit / 8] ^= (uint8_t)(1U << bit % 8);
        enum outcome outcome = try_database(&f, &whole.text);
        n_outcome[outcome]++;
        if (outcome == CHANGED) {
            printf("\n    bit %llu changes what is read", (unsigned long long)bit);
        }
    }
    CU_ASSERT_EQUAL(n_outcome[CHANGED], 0);
    CU_ASSERT(n_outcome[REFUSED] > 50);
    CU_ASSERT(n_outcome[READ_REFUSED] > 50);
    CU_ASSERT(n_outcome[UNAFFECTED] > 50); /* free space */
    tally_buffer_fini(&whole.text);
    free(file);
    store_fixture_close(&f);
}

void test_store_sqlite_file__random_damage_is_an_error_or_harmless(void)
{
    struct store_fixture f;
    struct reading whole;
    size_t n = 0;
    uint8_t *file = make_whole(&f, &n, &whole);
    uint8_t *damaged = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(damaged);
    uint64_t random = 1;
    int n_outcome[CHANGED + 1] = {0};
    for (int trial = 0; trial < 400; trial++) {
        memcpy(damaged, file, n);
        for (int i = 0; i < 1 + trial % 64; i++) {
            damaged[100 + next_random(&random) % (n - 100)] = (uint8_t)next_random(&random);
        }
        file_write(f.path, damaged, n);
        n_outcome[try_database(&f, &whole.text)]++;
    }
    CU_ASSERT_EQUAL(n_outcome[CHANGED], 0);
    CU_ASSERT(n_outcome[REFUSED] > 100);
    free(damaged);
    tally_buffer_fini(&whole.text);
    free(file);
    store_fixture_close(&f);
}

void test_store_sqlite_file__unknown_status_is_data_loss(void)
{
    struct store_fixture f;
    make_database(&f);
    file_replace(f.path, "paused", "molten");
    store_fixture_reopen(&f);
    struct tally_store_job job = sample_job("x", 1);
    struct job_walk walk = {.n = 0};
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_DATA_LOSS, &f.err);
    TALLY_ASSERT_TEXT(job.id, "x");
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "jobs, job_key 1"));
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, f.path));
    TALLY_ASSERT_STATUS(f.ops->job_list(f.store, -1, INT64_MAX, 9, collect_job, &walk, NULL),
                        TALLY_DATA_LOSS, NULL);
    TALLY_ASSERT_STATUS(f.ops->job_list_live(f.store, collect_job, &walk, NULL), TALLY_DATA_LOSS,
                        NULL);
    CU_ASSERT_EQUAL(walk.n, 0);
    store_fixture_close(&f);
}

/* The errors for a store in which a change appended to a state was damaged. */
void test_store_sqlite_file__damaged_change_of_a_state_is_named(void)
{
    static const char PLACE[] = "job_state_changes, job_key 1, round 2";
    struct store_fixture f;
    struct tally_store_report report;
    struct tally_buffer state = {0};
    make_database(&f);
    TALLY_ASSERT_STATUS(tally_store_verify(f.uri, NULL, &report, &f.err), TALLY_OK, &f.err);
    file_replace(f.path, "second change", "second chance");
    TALLY_ASSERT_STATUS(tally_store_verify(f.uri, NULL, &report, &f.err), TALLY_DATA_LOSS, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, PLACE));
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "damaged rows in all: 1"));
    tally_error_clear(&f.err);
    store_fixture_reopen(&f);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, 1, &state, &f.err), TALLY_DATA_LOSS, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, PLACE));
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, f.path));
    tally_error_clear(&f.err);
    expect_begin(&f);
    f.ops->state_put(f.store, 1, "whole", 5, NULL); /* which drops the damaged change */
    expect_commit(&f);
    state.size = 0;
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, 1, &state, &f.err), TALLY_OK, &f.err);
    CU_ASSERT(state.size == 5 && memcmp(state.data, "whole", 5) == 0);
    TALLY_ASSERT_STATUS(tally_store_verify(f.uri, NULL, &report, &f.err), TALLY_OK, &f.err);
    tally_buffer_fini(&state);
    store_fixture_close(&f);
}

/* A reader writes nothing, whether it is rejected at once or in the write. */
void test_store_sqlite_file__reader_appends_nothing(void)
{
    struct store_fixture f;
    struct tally_store *reader = NULL;
    struct tally_buffer before = {0};
    struct tally_buffer after = {0};
    const struct tally_store_options options = {.read_only = true};
    make_database(&f);
    store_fixture_reopen(&f);
    describe_store(&f, &before);
    TALLY_ASSERT_STATUS(tally_store_open(f.uri, &options, &reader, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(reader);
    bool has_written = reader->ops->begin(reader, NULL) == TALLY_OK &&
                       reader->ops->state_append(reader, 1, 9, "x", 1, NULL) == TALLY_OK;
    CU_ASSERT(!has_written);
    reader->ops->rollback(reader);
    reader->ops->close(reader);
    describe_store(&f, &after);
    TALLY_ASSERT_TEXT((char *)after.data, (char *)before.data);
    tally_buffer_fini(&before);
    tally_buffer_fini(&after);
    store_fixture_close(&f);
}

void test_store_sqlite_file__directory_is_refused(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    CU_ASSERT_EQUAL(mkdir(f.path, 0755), 0);
    expect_refused(&f, TALLY_STORE, "Is a directory");
    store_fixture_close(&f);
}

void test_store_sqlite_file__missing_folder_is_refused(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    snprintf(f.path, sizeof f.path, "%s/missing/tally.db", f.folder);
    snprintf(f.uri, sizeof f.uri, "sqlite:%s", f.path);
    expect_refused(&f, TALLY_STORE, "No such file or directory");
    store_fixture_close(&f);
}

/* Runs as user nobody, because root may write anything. */
static int open_read_only(void *context)
{
    const struct store_fixture *f = context;
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    int n_wrong = child_require(geteuid() != 0 || seteuid(65534) == 0, "can become nobody");
    n_wrong += child_require(tally_store_open(f->uri, NULL, &store, &err) == TALLY_STORE,
                             "a read-only file is a STORE error");
    n_wrong += child_require(strstr(err.message, f->path) != NULL, err.message);
    return n_wrong + child_require(strstr(err.message, "read-only") != NULL, err.message);
}

void test_store_sqlite_file__read_only_file_is_refused(void)
{
    struct store_fixture f;
    make_database(&f);
    CU_ASSERT_EQUAL(chmod(f.folder, 0777), 0);
    CU_ASSERT_EQUAL(chmod(f.path, 0444), 0);
    CU_ASSERT_EQUAL(child_run(open_read_only, &f), 0);
    store_fixture_close(&f);
}

/* Runs as user nobody, in another user's folder. */
static int open_in_locked_folder(void *context)
{
    const struct store_fixture *f = context;
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    int n_wrong = child_require(geteuid() != 0 || seteuid(65534) == 0, "can become nobody");
    n_wrong += child_require(tally_store_open(f->uri, NULL, &store, &err) == TALLY_STORE,
                             "a folder without write permission is a STORE error");
    return n_wrong + child_require(strstr(err.message, "Permission denied") != NULL, err.message);
}

void test_store_sqlite_file__read_only_folder_is_refused(void)
{
    struct store_fixture f;
    make_database(&f);
    CU_ASSERT_EQUAL(chmod(f.path, 0666), 0);
    CU_ASSERT_EQUAL(chmod(f.folder, 0555), 0);
    CU_ASSERT_EQUAL(child_run(open_in_locked_folder, &f), 0);
    CU_ASSERT_EQUAL(chmod(f.folder, 0755), 0);
    store_fixture_close(&f);
}

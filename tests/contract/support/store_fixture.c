#include "tests/contract/support/store_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/leases.h"
#include "tests/contract/support/raw_postgres.h"
#include "tests/simulation/storage/memory.h"

/* The clock of all reference databases. */
static int64_t memory_now_ms;

static int64_t read_memory_clock(void *context)
{
    (void)context;
    return memory_now_ms;
}

void store_fixture_init(struct store_fixture *fixture)
{
    *fixture = (struct store_fixture){.err = TALLY_ERROR_INIT};
    const char *suite = CU_get_current_suite()->pName;
    if (strncmp(suite, "store_reference", strlen("store_reference")) == 0) {
        const struct tally_memory_clock clock = {read_memory_clock, NULL};
        CU_ASSERT_EQUAL_FATAL(tally_memory_database_new(&clock, &fixture->database, NULL),
                              TALLY_OK);
        return;
    }
    if (strcmp(suite, "store_memory") == 0) {
        strcpy(fixture->uri, "memory:");
        return;
    }
    if (strncmp(suite, "store_postgres", strlen("store_postgres")) == 0) {
        raw_make_schema(fixture->schema, sizeof fixture->schema);
        /* A busy machine may need longer than a store waits for a connection by default. */
        snprintf(fixture->uri, sizeof fixture->uri,
                 "postgres:%s options='-c search_path=%s' application_name=%s connect_timeout=60",
                 getenv("TALLY_POSTGRES"), fixture->schema, fixture->schema);
        return;
    }
    strcpy(fixture->folder, "/tmp/tally-store-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(fixture->folder));
    snprintf(fixture->path, sizeof fixture->path, "%s/tally.db", fixture->folder);
    snprintf(fixture->uri, sizeof fixture->uri, "sqlite:%s", fixture->path);
}

static void open_store(struct store_fixture *fixture)
{
    enum tally_status status =
        fixture->database != NULL
            ? tally_memory_database_open(fixture->database, &fixture->store, &fixture->err)
            : tally_store_open(fixture->uri, NULL, &fixture->store, &fixture->err);
    TALLY_ASSERT_STATUS(status, TALLY_OK, &fixture->err);
    CU_ASSERT_EQUAL_FATAL(status, TALLY_OK);
    fixture->ops = fixture->store->ops;
}

/* Makes the store one of two replicas; the other one has an open transaction. */
static void open_neighbour(struct store_fixture *fixture)
{
    enum { LEASE_MS = 60000 };
    struct tally_replica self = {.id = "a"};
    struct tally_replica other = {.id = "b"};
    int64_t number = 0;
    CU_ASSERT_EQUAL_FATAL(tally_memory_database_open(fixture->database, &fixture->beside, NULL),
                          TALLY_OK);
    fixture->store->leases->join(fixture->store, &self, LEASE_MS, &number, NULL);
    fixture->beside->leases->join(fixture->beside, &other, LEASE_MS, &number, NULL);
    CU_ASSERT_EQUAL(number, 2);
    CU_ASSERT_EQUAL(fixture->beside->ops->begin(fixture->beside, NULL), TALLY_OK);
}

void store_fixture_open(struct store_fixture *fixture)
{
    store_fixture_init(fixture);
    open_store(fixture);
    if (strcmp(CU_get_current_suite()->pName, "store_reference") == 0) {
        open_neighbour(fixture);
    }
}

void store_fixture_open_beside(struct store_fixture *fixture, const struct store_fixture *first)
{
    *fixture = (struct store_fixture){.err = TALLY_ERROR_INIT};
    snprintf(fixture->uri, sizeof fixture->uri, "%s", first->uri);
    fixture->database = first->database;
    fixture->is_beside = true;
    open_store(fixture);
}

static void close_store(struct store_fixture *fixture)
{
    if (fixture->store != NULL) {
        fixture->ops->close(fixture->store);
        fixture->store = NULL;
    }
}

void store_fixture_reopen(struct store_fixture *fixture)
{
    close_store(fixture);
    open_store(fixture);
}

static void remove_folder(const char *folder)
{
    DIR *entries = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(entries);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        char path[64 + sizeof entry->d_name];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            remove(path);
        }
    }
    closedir(entries);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

void store_fixture_close(struct store_fixture *fixture)
{
    close_store(fixture);
    if (fixture->beside != NULL) {
        fixture->beside->ops->close(fixture->beside);
    }
    if (!fixture->is_beside) {
        tally_memory_database_free(fixture->database);
    }
    if (fixture->folder[0] != '\0') {
        remove_folder(fixture->folder);
    }
    if (fixture->schema[0] != '\0') {
        raw_drop_schema(fixture->schema);
    }
}

void store_fixture_pass_time(const struct store_fixture *fixture, int64_t ms)
{
    if (fixture->database != NULL) {
        memory_now_ms += ms;
        return;
    }
    raw_ask(fixture->schema,
            "UPDATE replicas SET expires_at = expires_at - interval '%lld ms', backend_pid = NULL;"
            "UPDATE lease_clock SET renewed_at = renewed_at - interval '%lld ms'",
            (long long)ms, (long long)ms);
}

void store_fixture_end_connections(const struct store_fixture *fixture)
{
    if (fixture->database != NULL) {
        tally_memory_database_restart(fixture->database);
    } else {
        raw_end_connections(fixture->schema);
    }
}

void expect_connection(struct store_fixture *fixture)
{
    enum { MAX_CALLS = 3000, PAUSE_US = 10000 };
    enum tally_status status = TALLY_STORE;
    for (int i = 0; i < MAX_CALLS && status == TALLY_STORE; i++) {
        tally_error_clear(&fixture->err);
        status = fixture->ops->check(fixture->store, &fixture->err);
        if (status != TALLY_OK) {
            usleep(PAUSE_US);
        }
    }
    TALLY_ASSERT_STATUS(status, TALLY_OK, &fixture->err);
}

enum tally_status flushed(struct store_fixture *fixture, enum tally_status status)
{
    return status == TALLY_OK ? fixture->ops->flush(fixture->store, &fixture->err) : status;
}

void expect_begin(struct store_fixture *fixture)
{
    tally_error_clear(&fixture->err);
    TALLY_ASSERT_STATUS(fixture->ops->begin(fixture->store, &fixture->err), TALLY_OK,
                        &fixture->err);
}

void expect_commit(struct store_fixture *fixture)
{
    tally_error_clear(&fixture->err);
    TALLY_ASSERT_STATUS(fixture->ops->commit(fixture->store, &fixture->err), TALLY_OK,
                        &fixture->err);
}

int64_t expect_job_insert(struct store_fixture *fixture, const struct tally_store_job *job)
{
    int64_t key = -1;
    tally_error_clear(&fixture->err);
    TALLY_ASSERT_STATUS(
        fixture->ops->job_insert(fixture->store, job, "{}", 2, NULL, 0, &key, &fixture->err),
        TALLY_OK, &fixture->err);
    return key;
}

int64_t expect_job(struct store_fixture *fixture, const char *id, enum tally_job_status status)
{
    struct tally_store_job job = sample_job(id, 1);
    job.status = status;
    expect_begin(fixture);
    int64_t key = expect_job_insert(fixture, &job);
    expect_commit(fixture);
    return key;
}

void expect_update(struct store_fixture *fixture, int64_t job_key, int64_t round, uint32_t client,
                   const char *body)
{
    struct tally_store_update update = {round, client, (const uint8_t *)body, strlen(body)};
    tally_error_clear(&fixture->err);
    TALLY_ASSERT_STATUS(
        fixture->ops->update_insert(fixture->store, job_key, &update, &fixture->err), TALLY_OK,
        &fixture->err);
}

static struct tally_ledger sample_ledger(uint64_t base)
{
    return (struct tally_ledger){
        .uplink = {base + 1, base + 2, base + 3, base + 4},
        .downlink = {base + 5, base + 6, base + 7, base + 8},
        .delivered_payload_bits = base + 9,
        .control_bits = base + 10,
        .telemetry_bits = base + 11,
    };
}

struct tally_store_job sample_job(const char *id, int salt)
{
    int64_t base = 1000 * (int64_t)salt;
    struct tally_store_job job = {
        .status = TALLY_JOB_RUNNING,
        .created_ms = base + 101,
        .started_ms = base + 102,
        .finished_ms = base + 103,
        .clients = base + 104,
        .dim = base + 105,
        .horizon = base + 106,
        .progress =
            {
                .round = base + 201,
                .time_step = base + 202,
                .iterate = base + 203,
                .stage = base + 204,
                .cumulative_regret = (double)base + 0.1,
                .f_star = (double)base + 0.2,
                .has_f_star = salt % 2 == 1,
                .loss = (double)base + 0.3,
                .has_loss = salt % 2 == 0,
                .x_checksum = (uint64_t)base + 205,
                .estimates = {.sigma = (double)base + 0.4, .gradient_bound = (double)base + 0.5},
                .bits = sample_ledger((uint64_t)base + 300),
                .best = {(double)base + 0.8, base + 206, base + 207},
                .patience = {(double)base + 0.9, base + 208, base + 209},
                .stopped = {.value = (double)base + 0.95, .round = base + 210},
            },
        .curvature = {.smoothness = (double)base + 0.6, .strong_convexity = (double)base + 0.7},
        .recovery_bits = (uint64_t)base + 401,
        .wire_in_bytes = (uint64_t)base + 402,
        .wire_out_bytes = (uint64_t)base + 403,
    };
    snprintf(job.id, sizeof job.id, "%s", id);
    snprintf(job.name, sizeof job.name, "name %d", salt);
    snprintf(job.algorithm, sizeof job.algorithm, "algorithm %d", salt);
    snprintf(job.labels, sizeof job.labels, "run=%d\nteam=\n", salt);
    snprintf(job.reason, sizeof job.reason, "reason %d", salt);
    snprintf(job.schedule, sizeof job.schedule, "1 %d 0x1p+0 0x1p+0", salt);
    snprintf(job.progress.metrics, sizeof job.progress.metrics, "seconds %d -1 0.25;", salt);
    snprintf(job.progress.setback, sizeof job.progress.setback, "client %d: out of data", salt);
    snprintf(job.progress.stopped.rule, sizeof job.progress.stopped.rule, "rule %d", salt);
    return job;
}

struct tally_round_record sample_record(int64_t round, int salt)
{
    int64_t base = 1000 * (int64_t)salt;
    struct tally_round_record record = {
        .round = round,
        .time_step = base + 1,
        .iterate = base + 2,
        .stage = base + 3,
        .samples = base + 4,
        .received = base + 5,
        .norm = (double)base + 0.1,
        .passed = salt % 2 == 1,
        .cut = salt % 2 == 0,
        .loss = (double)base + 0.2,
        .cumulative_regret = (double)base + 0.3,
        .bits = sample_ledger((uint64_t)base + 100),
        .closed_ms = base + 6,
    };
    snprintf(record.missing, sizeof record.missing, "%d 17-20", salt);
    snprintf(record.metrics, sizeof record.metrics, "accuracy 0.5 -0 %d;", salt);
    return record;
}

/* Compares bits, so that -0.0 differs from 0.0. */
static void expect_same_real(double actual, double expected)
{
    CU_ASSERT_EQUAL(memcmp(&actual, &expected, sizeof actual), 0);
}

static void expect_same_bits(const struct tally_bits *actual, const struct tally_bits *expected)
{
    CU_ASSERT_EQUAL(actual->formula_bits, expected->formula_bits);
    CU_ASSERT_EQUAL(actual->payload_bits, expected->payload_bits);
    CU_ASSERT_EQUAL(actual->messages, expected->messages);
    CU_ASSERT_EQUAL(actual->clipped, expected->clipped);
}

static void expect_same_ledger(const struct tally_ledger *actual,
                               const struct tally_ledger *expected)
{
    expect_same_bits(&actual->uplink, &expected->uplink);
    expect_same_bits(&actual->downlink, &expected->downlink);
    CU_ASSERT_EQUAL(actual->delivered_payload_bits, expected->delivered_payload_bits);
    CU_ASSERT_EQUAL(actual->control_bits, expected->control_bits);
    CU_ASSERT_EQUAL(actual->telemetry_bits, expected->telemetry_bits);
}

void expect_same_job(const struct tally_store_job *actual, const struct tally_store_job *expected)
{
    CU_ASSERT_EQUAL(actual->key, expected->key);
    TALLY_ASSERT_TEXT(actual->id, expected->id);
    TALLY_ASSERT_TEXT(actual->name, expected->name);
    TALLY_ASSERT_TEXT(actual->algorithm, expected->algorithm);
    TALLY_ASSERT_TEXT(actual->labels, expected->labels);
    CU_ASSERT_EQUAL(actual->status, expected->status);
    TALLY_ASSERT_TEXT(actual->reason, expected->reason);
    CU_ASSERT_EQUAL(actual->created_ms, expected->created_ms);
    CU_ASSERT_EQUAL(actual->started_ms, expected->started_ms);
    CU_ASSERT_EQUAL(actual->finished_ms, expected->finished_ms);
    CU_ASSERT_EQUAL(actual->clients, expected->clients);
    CU_ASSERT_EQUAL(actual->dim, expected->dim);
    CU_ASSERT_EQUAL(actual->horizon, expected->horizon);
    const struct tally_progress *a = &actual->progress;
    const struct tally_progress *e = &expected->progress;
    CU_ASSERT_EQUAL(a->round, e->round);
    CU_ASSERT_EQUAL(a->time_step, e->time_step);
    CU_ASSERT_EQUAL(a->iterate, e->iterate);
    CU_ASSERT_EQUAL(a->stage, e->stage);
    expect_same_real(a->cumulative_regret, e->cumulative_regret);
    expect_same_real(a->f_star, e->f_star);
    CU_ASSERT_EQUAL(a->has_f_star, e->has_f_star);
    expect_same_real(a->loss, e->loss);
    CU_ASSERT_EQUAL(a->has_loss, e->has_loss);
    CU_ASSERT_EQUAL(a->x_checksum, e->x_checksum);
    TALLY_ASSERT_TEXT(a->setback, e->setback);
    expect_same_real(a->estimates.sigma, e->estimates.sigma);
    expect_same_real(a->estimates.gradient_bound, e->estimates.gradient_bound);
    expect_same_ledger(&a->bits, &e->bits);
    expect_same_real(a->best.value, e->best.value);
    CU_ASSERT_EQUAL(a->best.round, e->best.round);
    CU_ASSERT_EQUAL(a->best.iterate, e->best.iterate);
    expect_same_real(a->patience.best, e->patience.best);
    CU_ASSERT_EQUAL(a->patience.round, e->patience.round);
    CU_ASSERT_EQUAL(a->patience.n_stale, e->patience.n_stale);
    TALLY_ASSERT_TEXT(a->stopped.rule, e->stopped.rule);
    expect_same_real(a->stopped.value, e->stopped.value);
    CU_ASSERT_EQUAL(a->stopped.round, e->stopped.round);
    TALLY_ASSERT_TEXT(a->metrics, e->metrics);
    expect_same_real(actual->curvature.smoothness, expected->curvature.smoothness);
    expect_same_real(actual->curvature.strong_convexity, expected->curvature.strong_convexity);
    TALLY_ASSERT_TEXT(actual->schedule, expected->schedule);
    CU_ASSERT_EQUAL(actual->recovery_bits, expected->recovery_bits);
    CU_ASSERT_EQUAL(actual->wire_in_bytes, expected->wire_in_bytes);
    CU_ASSERT_EQUAL(actual->wire_out_bytes, expected->wire_out_bytes);
}

void expect_same_record(const struct tally_round_record *actual,
                        const struct tally_round_record *expected)
{
    CU_ASSERT_EQUAL(actual->round, expected->round);
    CU_ASSERT_EQUAL(actual->time_step, expected->time_step);
    CU_ASSERT_EQUAL(actual->iterate, expected->iterate);
    CU_ASSERT_EQUAL(actual->stage, expected->stage);
    CU_ASSERT_EQUAL(actual->samples, expected->samples);
    CU_ASSERT_EQUAL(actual->received, expected->received);
    TALLY_ASSERT_TEXT(actual->missing, expected->missing);
    TALLY_ASSERT_TEXT(actual->metrics, expected->metrics);
    expect_same_real(actual->norm, expected->norm);
    CU_ASSERT_EQUAL(actual->passed, expected->passed);
    CU_ASSERT_EQUAL(actual->cut, expected->cut);
    expect_same_real(actual->loss, expected->loss);
    expect_same_real(actual->cumulative_regret, expected->cumulative_regret);
    expect_same_ledger(&actual->bits, &expected->bits);
    CU_ASSERT_EQUAL(actual->closed_ms, expected->closed_ms);
}

uint8_t *pattern_new(size_t n)
{
    uint8_t *bytes = malloc(n + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(i * i / 7 + i);
    }
    return bytes;
}

enum tally_status collect_job(void *context, const struct tally_store_job *job,
                              struct tally_error *err)
{
    struct job_walk *walk = context;
    if (walk->n < COLLECT_CAPACITY) {
        walk->jobs[walk->n] = *job;
    }
    walk->n++;
    return walk->n == walk->stop_at ? tally_fail(err, TALLY_CANCELLED, NULL, "enough") : TALLY_OK;
}

enum tally_status collect_update(void *context, const struct tally_store_update *update,
                                 struct tally_error *err)
{
    struct update_walk *walk = context;
    CU_ASSERT_PTR_NOT_NULL(update->body);
    if (walk->n < COLLECT_CAPACITY) {
        size_t capacity = sizeof walk->bodies[0];
        size_t n = update->n_body < capacity ? update->n_body : capacity - 1;
        memcpy(walk->bodies[walk->n], update->body, n);
        walk->bodies[walk->n][n] = '\0';
        walk->updates[walk->n] = *update;
        walk->updates[walk->n].body = NULL;
    }
    walk->n++;
    return walk->n == walk->stop_at ? tally_fail(err, TALLY_CANCELLED, NULL, "enough") : TALLY_OK;
}

enum tally_status collect_record(void *context, const struct tally_round_record *record,
                                 struct tally_error *err)
{
    struct record_walk *walk = context;
    if (walk->n < COLLECT_CAPACITY) {
        walk->records[walk->n] = *record;
    }
    walk->n++;
    return walk->n == walk->stop_at ? tally_fail(err, TALLY_CANCELLED, NULL, "enough") : TALLY_OK;
}

const char *collected_ids(const struct job_walk *walk)
{
    static char text[COLLECT_CAPACITY * TALLY_JOB_ID_CAPACITY];
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < walk->n && i < COLLECT_CAPACITY; i++) {
        n +=
            (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? "," : "", walk->jobs[i].id);
    }
    return text;
}

static void describe_job(struct store_fixture *fixture, const struct tally_store_job *job,
                         struct tally_buffer *out)
{
    tally_buffer_printf(out, "%lld %s %s %s %lld %a %llu: ", (long long)job->key, job->id,
                        tally_job_status_name(job->status), job->reason,
                        (long long)job->progress.round, job->progress.cumulative_regret,
                        (unsigned long long)job->progress.bits.uplink.payload_bits);
    fixture->ops->document_get(fixture->store, job->key, out, NULL);
    tally_buffer_append_text(out, " state ");
    if (fixture->ops->state_get(fixture->store, job->key, out, NULL) == TALLY_NOT_FOUND) {
        tally_buffer_append_text(out, "none");
    }
    for (int64_t round = 0; round < 10; round++) {
        struct update_walk walk = {.n = 0};
        fixture->ops->update_list(fixture->store, job->key, round, collect_update, &walk, NULL);
        for (int i = 0; i < walk.n; i++) {
            tally_buffer_printf(out, " update %lld/%u=%s", (long long)round, walk.updates[i].client,
                                walk.bodies[i]);
        }
    }
    struct record_walk records = {.n = 0};
    fixture->ops->round_list(fixture->store, job->key, 0, 100, collect_record, &records, NULL);
    for (int i = 0; i < records.n; i++) {
        tally_buffer_printf(out, " record %lld=%a", (long long)records.records[i].round,
                            records.records[i].norm);
    }
    tally_buffer_append_text(out, "\n");
}

void describe_store(struct store_fixture *fixture, struct tally_buffer *out)
{
    struct job_walk walk = {.n = 0};
    TALLY_ASSERT_STATUS(fixture->ops->job_list(fixture->store, -1, INT64_MAX, 100, collect_job,
                                               &walk, &fixture->err),
                        TALLY_OK, &fixture->err);
    for (int i = 0; i < walk.n; i++) {
        describe_job(fixture, &walk.jobs[i], out);
    }
    tally_buffer_append(out, "", 1);
}

enum tally_status write_transaction(struct store_fixture *f, int64_t key, int64_t round)
{
    struct tally_store_update update = {round, 0, (const uint8_t *)"body", 4};
    tally_error_clear(&f->err);
    enum tally_status status = f->ops->begin(f->store, &f->err);
    if (status != TALLY_OK) {
        return status;
    }
    for (; update.client < 3 && status == TALLY_OK; update.client++) {
        status = f->ops->update_insert(f->store, key, &update, &f->err);
    }
    if (status == TALLY_OK) {
        status = f->ops->state_put(f->store, key, &round, sizeof round, &f->err);
    }
    if (status == TALLY_OK) {
        status = f->ops->state_append(f->store, key, round, "change", 6, &f->err);
    }
    return status == TALLY_OK ? f->ops->commit(f->store, &f->err)
                              : (f->ops->rollback(f->store), status);
}

void expect_state_text(struct store_fixture *f, int64_t key, const char *text)
{
    struct tally_buffer out = {0};
    tally_buffer_append_text(&out, "[");
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->state_get(f->store, key, &out, &f->err), TALLY_OK, &f->err);
    tally_buffer_append(&out, "", 1);
    CU_ASSERT_EQUAL(out.data[0], '[');
    TALLY_ASSERT_TEXT((const char *)out.data + 1, text);
    tally_buffer_fini(&out);
}

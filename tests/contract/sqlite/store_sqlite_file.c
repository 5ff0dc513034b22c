/* What the SQLite file keeps after closing and kill -9, and which processes may open it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/child.h"
#include "tests/contract/support/files.h"
#include "tests/contract/support/store_fixture.h"

static int n_updates(struct store_fixture *f, int64_t job_key, int64_t round)
{
    struct update_walk walk = {.n = 0};
    TALLY_ASSERT_STATUS(
        f->ops->update_list(f->store, job_key, round, collect_update, &walk, &f->err), TALLY_OK,
        &f->err);
    return walk.n;
}

/* Context of the children. */
struct crash {
    const char *uri;
    struct tally_store_options options;
    bool commits_last;  /* commits the transaction of update 1 */
    int n_transactions; /* of commit_transactions(); 0 = unlimited */
};

static struct tally_store *open_in_child(const struct crash *crash)
{
    struct tally_store *store = NULL;
    if (tally_store_open(crash->uri, &crash->options, &store, NULL) != TALLY_OK) {
        _exit(3);
    }
    return store;
}

/* In a child: adds job "a" in a transaction of its own. */
static int64_t add_job(struct tally_store *store)
{
    struct tally_store_job job = sample_job("a", 1);
    int64_t key = 0;
    if (store->ops->begin(store, NULL) != TALLY_OK ||
        store->ops->job_insert(store, &job, "{}", 2, NULL, 0, &key, NULL) != TALLY_OK ||
        store->ops->commit(store, NULL) != TALLY_OK) {
        _exit(3);
    }
    return key;
}

static void commit_or_not(void *context, int reports)
{
    const struct crash *crash = context;
    struct tally_store *store = open_in_child(crash);
    int64_t key = add_job(store);
    store->ops->begin(store, NULL);
    struct tally_store_update update = {1, 1, (const uint8_t *)"body", 4};
    enum tally_status status = store->ops->update_insert(store, key, &update, NULL);
    if (status == TALLY_OK && crash->commits_last) {
        status = store->ops->commit(store, NULL);
    }
    child_report(reports, (int)status);
}

static void expect_after_kill(bool commits_last, bool power_loss_safe)
{
    struct store_fixture f;
    store_fixture_init(&f);
    struct crash crash = {f.uri, {.power_loss_safe = power_loss_safe}, commits_last, 0};
    struct child child = child_start(commit_or_not, &crash);
    CU_ASSERT_EQUAL(child_next(&child), TALLY_OK);
    child_kill(&child, 0);
    store_fixture_reopen(&f);
    struct tally_store_job job;
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(n_updates(&f, job.key, 1), commits_last ? 1 : 0);
    store_fixture_close(&f);
}

void test_store_sqlite_file__kill_after_commit_loses_nothing(void)
{
    expect_after_kill(true, false);
    expect_after_kill(true, true);
}

void test_store_sqlite_file__kill_before_commit_leaves_nothing(void)
{
    expect_after_kill(false, false);
    expect_after_kill(false, true);
}

/* Commits two updates per transaction and reports each transaction. */
static void commit_transactions(void *context, int reports)
{
    const struct crash *crash = context;
    struct tally_store *store = open_in_child(context);
    int64_t key = add_job(store);
    static const uint8_t BODY[3000];
    for (int n = 1; crash->n_transactions == 0 || n <= crash->n_transactions; n++) {
        store->ops->begin(store, NULL);
        for (uint32_t client = 0; client < 2; client++) {
            struct tally_store_update update = {n, client, BODY, sizeof BODY};
            if (store->ops->update_insert(store, key, &update, NULL) != TALLY_OK) {
                _exit(3);
            }
        }
        if (store->ops->commit(store, NULL) != TALLY_OK) {
            _exit(3);
        }
        child_report(reports, n);
    }
}

/* Returns n such that transactions 1 to n are complete, and checks that there is nothing after
 * them. */
static int count_whole_transactions(struct store_fixture *f)
{
    struct tally_store_job job;
    TALLY_ASSERT_STATUS(f->ops->job_get(f->store, "a", &job, &f->err), TALLY_OK, &f->err);
    int n = 0;
    int found = 2;
    while (found == 2) {
        found = n_updates(f, job.key, n + 1);
        n += found == 2 ? 1 : 0;
    }
    CU_ASSERT_EQUAL(found, 0);
    for (int past = 2; past < 5; past++) {
        CU_ASSERT_EQUAL(n_updates(f, job.key, n + past), 0);
    }
    return n;
}

void test_store_sqlite_file__kill_at_any_instant_loses_nothing_acknowledged(void)
{
    for (int trial = 0; trial < 12; trial++) {
        struct store_fixture f;
        store_fixture_init(&f);
        struct crash crash = {f.uri, {.power_loss_safe = false}, true, 0};
        struct child child = child_start(commit_transactions, &crash);
        int last = 0;
        while (last >= 0 && last < 1 + 31 * trial) { /* past several checkpoints of the log */
            last = child_next(&child);
        }
        usleep((useconds_t)(37 * trial));
        last = child_kill(&child, last);
        CU_ASSERT(last > 0);
        store_fixture_reopen(&f);
        int n = count_whole_transactions(&f);
        CU_ASSERT(n == last || n == last + 1); /* killed after a commit, before its report */
        store_fixture_close(&f);
    }
}

void test_store_sqlite_file__torn_log_gives_a_prefix_of_the_commits(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    struct crash crash = {
        f.uri, {.power_loss_safe = false}, true, 20}; /* few enough that nothing left the log */
    struct child child = child_start(commit_transactions, &crash);
    int n_committed = 0;
    while (n_committed >= 0 && n_committed < 20) {
        n_committed = child_next(&child);
    }
    CU_ASSERT_EQUAL_FATAL(n_committed, 20);
    child_kill(&child, 0);
    char log_path[112];
    snprintf(log_path, sizeof log_path, "%s-wal", f.path);
    size_t n_file = 0;
    size_t n_log = 0;
    uint8_t *file = file_read(f.path, &n_file);
    uint8_t *log = file_read(log_path, &n_log);
    int before = 20;
    for (size_t cut = 0; cut < n_log / 2; cut += 10007) {
        file_write(f.path, file, n_file);
        file_write(log_path, log, n_log - cut);
        store_fixture_reopen(&f);
        int n = count_whole_transactions(&f);
        CU_ASSERT(cut == 0 ? n == 20 : n <= before);
        before = n;
        f.ops->close(f.store);
        f.store = NULL;
    }
    CU_ASSERT(before > 0 && before < 20);
    free(file);
    free(log);
    store_fixture_close(&f);
}

/* Checks that opening fails because the store is in use. */
static void expect_in_use(struct store_fixture *f, const char *uri)
{
    struct tally_store *second = NULL;
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(tally_store_open(uri, NULL, &second, &f->err), TALLY_STORE, &f->err);
    CU_ASSERT_PTR_NULL(second);
    CU_ASSERT_PTR_NOT_NULL(strstr(f->err.message, "in use by another process"));
    CU_ASSERT_PTR_NOT_NULL(strstr(f->err.message, f->folder));
    tally_error_clear(&f->err);
}

void test_store_sqlite_file__second_opener_is_refused(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    char link_path[80];
    char link_uri[96];
    snprintf(link_path, sizeof link_path, "%s/link.db", f.folder);
    snprintf(link_uri, sizeof link_uri, "sqlite:%s", link_path);
    CU_ASSERT_EQUAL(symlink(f.path, link_path), 0);
    expect_in_use(&f, f.uri);
    expect_in_use(&f, link_uri);
    expect_job(&f, "a", TALLY_JOB_QUEUED); /* the first opener is not affected */
    store_fixture_reopen(&f);
    store_fixture_close(&f);
}

/* Context of open_elsewhere(), which opens the store `uri` in another process and expects an error
 * with `words`. */
struct opening {
    const char *uri, *words; /* `words` NULL = expects success */
};

static int open_elsewhere(void *context)
{
    const struct opening *opening = context;
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = tally_store_open(opening->uri, NULL, &store, &err);
    if (store != NULL) {
        store->ops->close(store);
    }
    if (opening->words == NULL) {
        return child_require(status == TALLY_OK, err.message);
    }
    return child_require(status == TALLY_STORE, "refused") +
           child_require(strstr(err.message, opening->words) != NULL, err.message);
}

static void expect_elsewhere(const char *uri, const char *words)
{
    struct opening opening = {uri, words};
    CU_ASSERT_EQUAL(child_run(open_elsewhere, &opening), 0);
}

static void expect_lock_lost(struct store_fixture *f)
{
    TALLY_ASSERT_STATUS(f->ops->begin(f->store, &f->err), TALLY_STORE, &f->err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f->err.message, "lock file"));
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->check(f->store, &f->err), TALLY_STORE, &f->err);
    tally_error_clear(&f->err);
}

void test_store_sqlite_file__without_its_lock_file_nothing_is_written(void)
{
    char lock_path[112];
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    snprintf(lock_path, sizeof lock_path, "%s-lock", f.path);
    CU_ASSERT_EQUAL(unlink(lock_path), 0);
    expect_elsewhere(f.uri, "in use by another process");
    CU_ASSERT_NOT_EQUAL(access(lock_path, F_OK), 0); /* the rejected process has left none */
    expect_lock_lost(&f);
    file_write(lock_path, (const uint8_t *)"1", 1); /* as if from another process */
    expect_lock_lost(&f);
    expect_elsewhere(f.uri, "in use by another process");
    file_write(lock_path, (const uint8_t *)"1", 1);
    f.ops->close(f.store);
    f.store = NULL;
    CU_ASSERT_EQUAL(access(lock_path, F_OK), 0); /* it belongs to another process, so it stays */
    expect_elsewhere(f.uri, NULL);
    store_fixture_reopen(&f);
    store_fixture_close(&f);
}

void test_store_sqlite_file__hard_links_are_no_second_database(void)
{
    char link_path[80];
    char link_uri[96];
    struct store_fixture f;
    store_fixture_open(&f);
    snprintf(link_path, sizeof link_path, "%s/link.db", f.folder);
    snprintf(link_uri, sizeof link_uri, "sqlite:%s", link_path);
    CU_ASSERT_EQUAL(link(f.path, link_path), 0);
    expect_elsewhere(link_uri, "in use by another process");
    expect_job(&f, "a", TALLY_JOB_QUEUED); /* the first opener is not affected */
    f.ops->close(f.store);
    f.store = NULL;
    expect_elsewhere(link_uri, "has 2 names (hard links)");
    expect_elsewhere(f.uri, "has 2 names (hard links)");
    CU_ASSERT_EQUAL(unlink(link_path), 0);
    store_fixture_reopen(&f);
    store_fixture_close(&f);
}

/* Reports 1 for every commit, and 2 for the first that fails. */
static void commit_while_allowed(void *context, int reports)
{
    struct tally_store *store = open_in_child(context);
    struct tally_error err = TALLY_ERROR_INIT;
    while (store->ops->begin(store, &err) == TALLY_OK &&
           store->ops->commit(store, &err) == TALLY_OK) {
        child_report(reports, 1);
        usleep(100); /* else the pipe is full before it is read */
    }
    child_report(reports, 2);
}

/* Whenever the lock file is removed, the running process stops committing, and no other can start
 * before it has ended. */
void test_store_sqlite_file__never_two_that_commit(void)
{
    enum { MAX_REPORTS = 20000 }; /* a pipe may hold 16,384 earlier ones */
    char lock_path[112];
    struct store_fixture f;
    store_fixture_init(&f);
    snprintf(lock_path, sizeof lock_path, "%s-lock", f.path);
    for (int i = 0; i < 10; i++) {
        struct crash crash = {f.uri, {.power_loss_safe = false}, false, 0};
        struct child child = child_start(commit_while_allowed, &crash);
        for (int n = 0; n <= i; n++) {
            CU_ASSERT_EQUAL(child_next(&child), 1);
        }
        CU_ASSERT_EQUAL(unlink(lock_path), 0);
        expect_elsewhere(f.uri, "in use by another process");
        int report = 1;
        for (int n = 0; report == 1 && n < MAX_REPORTS; n++) {
            report = child_next(&child);
        }
        CU_ASSERT_EQUAL(report, 2);
        expect_elsewhere(f.uri, "in use by another process"); /* it has not ended yet */
        child_kill(&child, 0);
        expect_elsewhere(f.uri, NULL);
    }
    store_fixture_close(&f);
}

static void hold_store(void *context, int reports)
{
    open_in_child(context);
    child_report(reports, 1);
}

void test_store_sqlite_file__killing_the_owner_frees_the_file(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    struct crash crash = {f.uri, {.power_loss_safe = false}, false, 0};
    struct child child = child_start(hold_store, &crash);
    CU_ASSERT_EQUAL(child_next(&child), 1);
    char owner[32];
    snprintf(owner, sizeof owner, "process %d ", (int)child.pid);
    struct tally_store *second = NULL;
    TALLY_ASSERT_STATUS(tally_store_open(f.uri, NULL, &second, &f.err), TALLY_STORE, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, owner));
    tally_error_clear(&f.err);
    child_kill(&child, 0);
    store_fixture_reopen(&f);
    store_fixture_close(&f);
}

void test_store_sqlite_file__close_leaves_only_the_database(void)
{
    static const char *const SUFFIXES[] = {"-wal", "-shm", "-lock", "-journal"};
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    f.ops->close(f.store);
    f.store = NULL;
    CU_ASSERT_EQUAL(access(f.path, F_OK), 0);
    for (int i = 0; i < 4; i++) {
        char path[112];
        snprintf(path, sizeof path, "%s%s", f.path, SUFFIXES[i]);
        CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
    }
    store_fixture_close(&f);
}

/* Commits states of n bytes; returns the size of the log after them, in bytes. */
static int64_t log_after_states(size_t n, int n_commits)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    uint8_t *state = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(state);
    for (int i = 0; i < n_commits; i++) {
        memset(state, i, n);
        expect_begin(&f);
        TALLY_ASSERT_STATUS(f.ops->state_put(f.store, key, state, n, &f.err), TALLY_OK, &f.err);
        expect_commit(&f);
    }
    free(state);
    char path[112];
    struct stat log = {.st_size = -1};
    snprintf(path, sizeof path, "%s-wal", f.path);
    CU_ASSERT_EQUAL(stat(path, &log), 0);
    store_fixture_close(&f);
    return log.st_size;
}

/* The log is copied into the file once it has both 250 pages and the pages of eight commits, or 64
 * MiB. So it never has more than that plus one commit. */
void test_store_sqlite_file__log_stays_small(void)
{
    enum {
        FRAME_BYTES = 16384 + 24,
        SOME = 8
    }; /* size of a page in the log; other pages that a commit may write */
    CU_ASSERT(log_after_states(100, 3000) <= (int64_t)(250 + SOME) * FRAME_BYTES);
    const int64_t n_medium = (1 << 20) / 16000; /* pages of a commit, at most */
    const int64_t medium = log_after_states(1 << 20, 30);
    CU_ASSERT(medium <= (9 * n_medium + SOME) * FRAME_BYTES);
    CU_ASSERT(medium >= 8 * (1 << 20)); /* after several commits, not after each */
    const int64_t n_large = (12 << 20) / 16000;
    CU_ASSERT(log_after_states(12 << 20, 7) <= (4096 + n_large + SOME) * FRAME_BYTES);
}

/* Names that SQLite would interpret in another way. */
static int open_odd_names(void *context)
{
    static const char *const NAMES[] = {":memory:", "file:x.db?mode=memory", "?", "it's.db", "a b"};
    int n_wrong = child_require(chdir(context) == 0, "folder is there");
    for (int i = 0; i < 5; i++) {
        char uri[64];
        struct tally_store *store = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        snprintf(uri, sizeof uri, "sqlite:%s", NAMES[i]);
        tally_store_open(uri, NULL, &store, &err);
        n_wrong += child_require(store != NULL, err.message);
        if (store != NULL) {
            store->ops->close(store);
        }
        n_wrong += child_require(access(NAMES[i], F_OK) == 0, NAMES[i]);
    }
    return n_wrong;
}

void test_store_sqlite_file__any_relative_name_is_a_file(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    CU_ASSERT_EQUAL(child_run(open_odd_names, f.folder), 0);
    store_fixture_close(&f);
}

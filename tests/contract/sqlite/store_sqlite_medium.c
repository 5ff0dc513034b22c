/* What happens if the storage of an open SQLite store fails: a full disk, a failing fsync(), a
 * removed file. The children limit or break only their own system calls. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "storage/sqlite/sqlite.h"
#include "tests/contract/store_tests.h"
#include "tests/contract/support/child.h"
#include "tests/contract/support/files.h"
#include "tests/contract/support/store_fixture.h"

/* Limits files to n bytes; growing them further fails with EFBIG. */
static void limit_files(size_t n)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {0};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = n;
    setrlimit(RLIMIT_FSIZE, &limit);
}

/* Makes two system calls of this process fail with `error`. False if seccomp is forbidden. */
static bool break_calls(unsigned first, unsigned second, unsigned error)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {5, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* For children: opens a store and adds job "a" with key 1. */
static struct tally_store *open_with_job(const char *uri, bool power_loss_safe)
{
    struct tally_store_options options = {.power_loss_safe = power_loss_safe};
    struct tally_store *store = NULL;
    struct tally_store_job job = sample_job("a", 1);
    int64_t key = 0;
    if (tally_store_open(uri, &options, &store, NULL) != TALLY_OK ||
        store->ops->begin(store, NULL) != TALLY_OK ||
        store->ops->job_insert(store, &job, "{}", 2, NULL, 0, &key, NULL) != TALLY_OK ||
        store->ops->commit(store, NULL) != TALLY_OK || key != 1) {
        _exit(99);
    }
    return store;
}

static enum tally_status insert(struct tally_store *store, int64_t round, size_t n,
                                struct tally_error *err)
{
    uint8_t *body = calloc(1, n);
    struct tally_store_update update = {round, 1, body, n};
    enum tally_status status = store->ops->update_insert(store, 1, &update, err);
    free(body);
    return status;
}

static enum tally_status count(void *context, const struct tally_store_update *update,
                               struct tally_error *err)
{
    (void)update;
    (void)err;
    (*(int *)context)++;
    return TALLY_OK;
}

/* Counts the updates of the rounds 1 to 9; -1 if they cannot be read. */
static int n_updates(struct tally_store *store)
{
    int n = 0;
    for (int64_t round = 1; round < 10; round++) {
        if (store->ops->update_list(store, 1, round, count, &n, NULL) != TALLY_OK) {
            return -1;
        }
    }
    return n;
}

/* Checks that the store still works: commits one more update, after which there are `n`. */
static int require_recovered(struct tally_store *store, int64_t round, int n)
{
    int n_wrong = child_require(store->ops->begin(store, NULL) == TALLY_OK, "begin works again");
    n_wrong += child_require(insert(store, round, 10, NULL) == TALLY_OK, "write works again");
    n_wrong += child_require(store->ops->commit(store, NULL) == TALLY_OK, "commit works again");
    return n_wrong + child_require(n_updates(store) == n, "just the committed updates are there");
}

static int fill_in_a_write(void *context)
{
    struct tally_store *store = open_with_job(context, false);
    struct tally_error err = TALLY_ERROR_INIT;
    int n_wrong = require_recovered(store, 1, 1);
    limit_files(4 << 20);
    store->ops->begin(store, NULL);
    n_wrong += child_require(insert(store, 2, 10, NULL) == TALLY_OK, "a small write fits");
    n_wrong += child_require(insert(store, 3, 24 << 20, &err) == TALLY_STORE, "24 MB are too much");
    n_wrong += child_require(strstr(err.message, "tally.db") != NULL, err.message);
    n_wrong +=
        child_require(insert(store, 4, 10, NULL) == TALLY_STORE, "the transaction is broken");
    store->ops->rollback(store);
    n_wrong += child_require(n_updates(store) == 1, "rollback undid all");
    store->ops->begin(store, NULL);
    insert(store, 3, 24 << 20, NULL);
    n_wrong += child_require(store->ops->commit(store, NULL) == TALLY_STORE, "commit fails too");
    store->ops->rollback(store);
    n_wrong += child_require(n_updates(store) == 1, "failed commit left nothing");
    n_wrong += require_recovered(store, 5, 2);
    store->ops->close(store);
    return n_wrong;
}

static int fill_in_commit(void *context)
{
    struct tally_store *store = open_with_job(context, false);
    struct tally_error err = TALLY_ERROR_INIT;
    limit_files(1 << 20);
    store->ops->begin(store, NULL);
    int n_wrong = child_require(insert(store, 1, 2400 << 10, NULL) == TALLY_OK,
                                "what fits the cache is not yet written");
    n_wrong += child_require(store->ops->commit(store, &err) == TALLY_STORE, "commit fails");
    n_wrong += child_require(strstr(err.message, "tally.db") != NULL, err.message);
    n_wrong += child_require(n_updates(store) == 0, "failed commit rolled back");
    n_wrong += require_recovered(store, 2, 1);
    limit_files(4096);
    n_wrong += child_require(store->ops->check(store, NULL) == TALLY_STORE, "check notices");
    limit_files(100 << 20);
    n_wrong += child_require(store->ops->check(store, NULL) == TALLY_OK, "check recovers");
    n_wrong += require_recovered(store, 3, 2);
    store->ops->close(store);
    return n_wrong;
}

static int open_on_full_disk(void *context)
{
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    limit_files(0);
    int n_wrong = child_require(tally_store_open(context, NULL, &store, &err) == TALLY_STORE,
                                "a database cannot be made");
    return n_wrong + child_require(strstr(err.message, "tally.db") != NULL, err.message);
}

/* Runs the body in a child, and checks that the file then has `n` updates. */
static void expect_child(int (*body)(void *context), int n)
{
    struct store_fixture f;
    store_fixture_init(&f);
    CU_ASSERT_EQUAL(child_run(body, f.uri), 0);
    store_fixture_reopen(&f);
    CU_ASSERT_EQUAL(n_updates(f.store), n);
    store_fixture_close(&f);
}

void test_store_sqlite_file__full_disk_in_a_write_rolls_back(void)
{
    expect_child(fill_in_a_write, 2);
}

void test_store_sqlite_file__full_disk_in_commit_rolls_back(void)
{
    expect_child(fill_in_commit, 2);
}

void test_store_sqlite_file__full_disk_in_open_is_an_error(void)
{
    expect_child(open_on_full_disk, 0);
}

static int write_without_space(void *context)
{
    struct tally_store *store = open_with_job(context, false);
    struct tally_error err = TALLY_ERROR_INIT;
    int n_wrong = require_recovered(store, 1, 1);
    if (!break_calls(SYS_pwrite64, SYS_write, ENOSPC)) {
        return 77;
    }
    store->ops->begin(store, NULL);
    insert(store, 2, 10, NULL);
    n_wrong += store->ops->commit(store, &err) == TALLY_STORE ? 0 : 1;
    n_wrong += strstr(err.message, "disk is full") != NULL ? 0 : 1;
    n_wrong += n_updates(store) == 1 ? 0 : 1;
    return n_wrong;
}

/* Context of commit_without_fsync(), which commits once with every fsync() failing. */
struct sync_case {
    const char *uri;
    bool power_loss_safe;
};

static int commit_without_fsync(void *context)
{
    const struct sync_case *sync = context;
    struct tally_store *store = open_with_job(sync->uri, sync->power_loss_safe);
    if (!break_calls(SYS_fsync, SYS_fdatasync, EIO)) {
        return 77;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    store->ops->begin(store, NULL);
    int n_wrong = child_require(insert(store, 1, 10, NULL) == TALLY_OK, "write works");
    enum tally_status status = store->ops->commit(store, &err);
    if (sync->power_loss_safe) {
        n_wrong += child_require(status == TALLY_STORE, "commit waits for the medium");
        n_wrong += child_require(strstr(err.message, "disk I/O error") != NULL, err.message);
        n_wrong += child_require(n_updates(store) == 0, "failed commit rolled back");
    } else {
        n_wrong += child_require(status == TALLY_OK, "commit does not wait for the medium");
    }
    return n_wrong;
}

/* Whether the child could break its system calls; prints a line if not. */
static bool was_run(int code)
{
    if (code == 77) {
        printf("\n    skipped: seccomp is forbidden here");
        return false;
    }
    CU_ASSERT_EQUAL(code, 0);
    return true;
}

void test_store_sqlite_file__no_space_left_is_said(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    if (was_run(child_run(write_without_space, f.uri))) {
        store_fixture_reopen(&f);
        CU_ASSERT_EQUAL(n_updates(f.store), 1);
    }
    store_fixture_close(&f);
}

/* The child of a failed commit ends without closing, so a trace in the log would reappear. */
void test_store_sqlite_file__only_power_loss_safe_commits_wait_for_the_medium(void)
{
    for (int safe = 0; safe < 2; safe++) {
        struct store_fixture f;
        store_fixture_init(&f);
        struct sync_case sync = {f.uri, safe == 1};
        if (was_run(child_run(commit_without_fsync, &sync))) {
            store_fixture_reopen(&f);
            CU_ASSERT_EQUAL(n_updates(f.store), safe == 1 ? 0 : 1);
        }
        store_fixture_close(&f);
    }
}

/* Nothing is written to a log that has been removed, and its commits are in the file. */
void test_store_sqlite_file__removed_log_loses_nothing(void)
{
    struct store_fixture f;
    char name[sizeof f.path + 8];
    size_t n = 0;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_update(&f, key, 1, 0, "body");
    expect_commit(&f);
    snprintf(name, sizeof name, "%s-wal", f.path);
    CU_ASSERT_EQUAL(unlink(name), 0);
    TALLY_ASSERT_STATUS(f.ops->check(f.store, &f.err), TALLY_STORE, &f.err);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(f.ops->begin(f.store, &f.err), TALLY_STORE, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "log of database"));
    /* The state that a process killed now would leave. */
    uint8_t *bytes = file_read(f.path, &n);
    snprintf(name, sizeof name, "%s.copy", f.path);
    file_write(name, bytes, n);
    free(bytes);
    struct tally_store *copy = NULL;
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(TALLY_SQLITE_BACKEND.open(name, NULL, &copy, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    CU_ASSERT_EQUAL(n_updates(copy), 1);
    copy->ops->close(copy);
    tally_error_clear(&f.err);
    store_fixture_close(&f);
}

void test_store_sqlite_file__check_notices_a_removed_file(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    CU_ASSERT_EQUAL(unlink(f.path), 0);
    TALLY_ASSERT_STATUS(f.ops->check(f.store, &f.err), TALLY_STORE, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, f.path));
    store_fixture_close(&f);
}

/* Copies a file and returns its bytes; the caller frees. */
static uint8_t *copy_file(const char *from, const char *to, size_t *ret_n)
{
    uint8_t *bytes = file_read(from, ret_n);
    file_write(to, bytes, *ret_n);
    return bytes;
}

static void expect_bytes(const char *path, const uint8_t *bytes, size_t n)
{
    size_t n_now = 0;
    uint8_t *now = file_read(path, &n_now);
    CU_ASSERT_EQUAL_FATAL(n_now, n);
    CU_ASSERT_EQUAL(memcmp(now, bytes, n), 0);
    free(now);
}

/* As after kill -9: the log has content that the file lacks, and reading changes neither. */
void test_store_sqlite_file__exclusive_reader_changes_nothing(void)
{
    struct store_fixture f;
    char path[sizeof f.path + 16], log[sizeof f.path + 16], copy[sizeof f.path + 16];
    size_t n_file = 0, n_log = 0;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_RUNNING);
    snprintf(path, sizeof path, "%s-wal", f.path);
    snprintf(copy, sizeof copy, "%s.copy", f.path);
    snprintf(log, sizeof log, "%s.copy-wal", f.path);
    uint8_t *log_bytes = copy_file(path, log, &n_log);
    uint8_t *file_bytes = copy_file(f.path, copy, &n_file);
    CU_ASSERT(n_log > 0);
    const struct tally_store_options options = {.read_only = true, .exclusive = true};
    struct tally_store *reader = NULL;
    struct tally_store *other = NULL;
    TALLY_ASSERT_STATUS(TALLY_SQLITE_BACKEND.open(copy, &options, &reader, &f.err), TALLY_OK,
                        &f.err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(reader);
    struct tally_store_job job;
    TALLY_ASSERT_STATUS(reader->ops->job_get(reader, "a", &job, &f.err), TALLY_OK, &f.err);
    TALLY_ASSERT_STATUS(TALLY_SQLITE_BACKEND.open(copy, NULL, &other, NULL), TALLY_STORE, NULL);
    TALLY_ASSERT_STATUS(TALLY_SQLITE_BACKEND.open(copy, &options, &other, NULL), TALLY_STORE, NULL);
    reader->ops->close(reader);
    expect_bytes(copy, file_bytes, n_file);
    expect_bytes(log, log_bytes, n_log);
    TALLY_ASSERT_STATUS(TALLY_SQLITE_BACKEND.open(f.path, &options, &other, NULL), TALLY_STORE,
                        NULL);
    CU_ASSERT_PTR_NULL(other);
    free(file_bytes);
    free(log_bytes);
    store_fixture_close(&f);
}

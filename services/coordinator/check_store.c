#include "services/coordinator/check_store.h"
#include "services/base/alloc.h"

#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/progress_bar.h"
#include "services/coordinator/hosted_job.h"
#include "storage/backends.h"

/* Results so far. */
struct check {
    struct tally_store *store;
    int n_failed;
};

__attribute__((format(printf, 3, 4))) static void say(struct check *check, bool ok,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    check->n_failed += !ok;
    printf("%-5s ", ok ? "ok" : "FAIL");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

/* Checks that this is the record of the next round: a job's records have no gaps. */
static enum tally_status expect_round(void *context, const struct tally_round_record *record,
                                      struct tally_error *err)
{
    int64_t *next = context;
    if (record->round != *next) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "the record of round %lld is missing",
                          (long long)*next);
    }
    ++*next;
    return TALLY_OK;
}

static enum tally_status check_rounds(struct tally_store *store, const struct tally_store_job *row,
                                      struct tally_error *err)
{
    int64_t next = 1;
    enum tally_status status =
        store->ops->round_list(store, row->key, 0, INT64_MAX, expect_round, &next, err);
    if (status == TALLY_OK && next != row->progress.round + 1) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL, "%lld round records, not %lld",
                            (long long)(next - 1), (long long)row->progress.round);
    }
    return status;
}

/* Also loads ended jobs, because their models can be requested. */
static enum tally_status check_job(void *context, const struct tally_store_job *row,
                                   struct tally_error *err)
{
    (void)err; /* a damaged job must not prevent the check of the others */
    struct check *check = context;
    struct tally_error why = TALLY_ERROR_INIT;
    struct hosted_job *job = NULL;
    enum tally_status status = hosted_job_load(check->store, row, &job, &why);
    if (status == TALLY_OK) {
        status = check_rounds(check->store, row, &why);
    }
    const char *name = tally_job_status_name(row->status);
    if (status != TALLY_OK) {
        say(check, false, "job %s (%s): %s", row->id, name, why.message);
    } else if (!tally_job_status_is_terminal(row->status)) {
        say(check, true, "job %s (%s): round %lld, %lld updates of the open one", row->id, name,
            (long long)row->progress.round, (long long)tally_job_open_round(job->engine)->received);
    }
    hosted_job_free(job);
    return TALLY_OK;
}

static void check_jobs(struct check *check, const char *uri)
{
    const struct tally_store_options options = {.read_only = true};
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = tally_store_open(uri, &options, &check->store, &err);
    if (status == TALLY_OK) {
        struct tally_store *store = check->store;
        status = store->ops->job_list(store, -1, INT64_MAX, INT64_MAX, check_job, check, &err);
        store->ops->close(store);
    }
    if (status != TALLY_OK) {
        say(check, false, "%s", err.message);
    }
}

/* Whether a start can create the store's file. */
static bool can_make_file(const char *path)
{
    char *copy = tally_xstrdup(path);
    const bool can_make = access(dirname(copy), W_OK | X_OK) == 0;
    free(copy);
    return can_make;
}

static void check_missing(struct check *check, const char *uri, const char *label)
{
    const char *path = NULL;
    const bool can_make = tally_store_path(uri, &path, NULL) != TALLY_OK || can_make_file(path);
    say(check, can_make, "store %s: %s", label,
        can_make ? "does not exist yet; the coordinator creates it when it starts"
                 : "does not exist, and its folder is not writable");
}

static void check_database(struct check *check, const char *uri, const char *label)
{
    struct tally_store_bar progress;
    struct tally_store_report report;
    struct tally_error err = TALLY_ERROR_INIT;
    tally_store_bar_init(&progress);
    enum tally_status status = tally_store_verify(uri, &progress.base, &report, &err);
    tally_store_bar_end(&progress);
    if (status == TALLY_NOT_FOUND) {
        check_missing(check, uri, label);
        return;
    }
    if (status != TALLY_OK) {
        const char *path = NULL;
        say(check, false, "%s%s", err.message,
            status != TALLY_FAILED_PRECONDITION && tally_store_path(uri, &path, NULL) == TALLY_OK
                ? "; restore a backup (tally restore), or see deploy/README.md, \"Operations\""
                : "");
    } else {
        say(check, true,
            "store %s: schema version %d, %lld bytes, %lld jobs (%lld live), %lld rounds, "
            "%lld updates of open rounds",
            label, report.schema_version, (long long)report.n_bytes, (long long)report.n_jobs,
            (long long)report.n_live_jobs, (long long)report.n_rounds,
            (long long)(report.n_updates - report.n_client_rows));
    }
    if ((status == TALLY_OK || status == TALLY_DATA_LOSS) && report.schema_version > 0) {
        check_jobs(check, uri);
    }
}

int coordinator_check(const char *uri)
{
    struct check check = {0};
    say(&check, true, "options, token files");
    if (strcmp(uri, "memory:") == 0) {
        say(&check, true, "store memory: keeps nothing, so there is nothing to check");
    } else {
        struct tally_buffer label = {0};
        const bool has_label = tally_store_label(uri, &label) == TALLY_OK;
        check_database(&check, uri, has_label ? (const char *)label.data : "");
        tally_buffer_fini(&label);
    }
    return check.n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

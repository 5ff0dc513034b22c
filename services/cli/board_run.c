#include "services/cli/board_run.h"
#include "services/base/alloc.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "services/cli/event_file.h"
#include "services/cli/out_folder.h"

struct tally_board_run {
    struct tally_cli *cli;
    struct tally_event_file *file;
    char path[PATH_MAX];
    int64_t round;                /* the last one that was taken */
    struct tally_round_sums sums; /* up to it */
};

/* While the job's rounds are read. */
struct reading {
    struct tally_board_run *run;
    struct tally_json *latest; /* not taken yet; NULL = none */
    struct tally_error *err;
};

static double seconds(const struct tally_json *object, const char *key)
{
    return (double)tally_json_get_integer(object, key, 0) / 1000;
}

static enum tally_status add_value(void *file, const char *name, double value)
{
    return tally_event_scalar(file, name, value);
}

static enum tally_status pass_over(void *file, const char *name, double value)
{
    (void)file;
    (void)name;
    (void)value;
    return TALLY_OK;
}

/* Adds a round, unless the file has it: then it only counts. */
static enum tally_status take(struct tally_board_run *run, const struct tally_json *record,
                              struct tally_error *err)
{
    const int64_t round = tally_json_get_integer(record, "round", 0);
    enum tally_status status;
    if (round <= run->round) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "round %" PRId64 " follows round %" PRId64,
                          round, run->round);
    }
    if (round <= tally_event_file_last_step(run->file)) {
        status = tally_round_values(record, &run->sums, pass_over, NULL);
    } else {
        status = tally_event_begin(run->file, seconds(record, "closed_ms"), round, err);
        if (status == TALLY_OK) {
            status = tally_round_values(record, &run->sums, add_value, run->file);
        }
    }
    run->round = status == TALLY_OK ? round : run->round;
    return status;
}

static enum tally_status take_previous(void *context, const struct tally_json *record)
{
    struct reading *reading = context;
    if (reading->latest != NULL) {
        const enum tally_status status = take(reading->run, reading->latest, reading->err);
        tally_json_free(reading->latest);
        reading->latest = NULL;
        if (status != TALLY_OK) {
            return status;
        }
    }
    reading->latest = tally_json_copy(record);
    return reading->latest != NULL ? TALLY_OK : TALLY_NO_MEMORY;
}

enum tally_status tally_board_run_follow(struct tally_board_run *run, bool is_ended,
                                         struct tally_error *err)
{
    struct reading reading = {run, NULL, err};
    enum tally_status status =
        tally_job_rounds_read(run->cli, run->round, take_previous, &reading, err);
    if (status == TALLY_OK && is_ended && reading.latest != NULL) {
        status = take(run, reading.latest, err);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "%s", tally_status_info(status)->title);
        }
    }
    tally_json_free(reading.latest);
    /* What was read before an error counts: it will not be read again. */
    const enum tally_status written =
        tally_event_file_flush(run->file, status == TALLY_OK ? err : NULL);
    return status == TALLY_OK ? written : status;
}

/* The document as a block of Markdown: indented lines are shown as they are. */
static enum tally_status add_document(struct tally_board_run *run, const struct tally_json *detail,
                                      struct tally_error *err)
{
    struct tally_json *document = NULL;
    struct tally_buffer text = {0}, block = {0};
    enum tally_status status =
        tally_job_get_json(&run->cli->rest, run->cli->job, "/document", &document, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_json_dump(document, 2, &text);
    status = status == TALLY_OK ? tally_buffer_append_text(&block, "    ") : status;
    for (size_t i = 0; status == TALLY_OK && i < text.size; i++) {
        status = tally_buffer_append(&block, text.data + i, 1);
        if (status == TALLY_OK && text.data[i] == '\n') {
            status = tally_buffer_append_text(&block, "    ");
        }
    }
    status = status == TALLY_OK ? tally_buffer_append(&block, "", 1) : status;
    if (status == TALLY_OK) {
        status = tally_event_begin(run->file, seconds(detail, "created_ms"), 0, err);
    }
    if (status == TALLY_OK) {
        status = tally_event_text(run->file, "document", (const char *)block.data);
    }
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "%s", tally_status_info(status)->title);
    }
    tally_json_free(document);
    tally_buffer_fini(&text);
    tally_buffer_fini(&block);
    return status == TALLY_OK ? tally_event_file_flush(run->file, err) : status;
}

enum tally_status tally_board_run_open(struct tally_cli *cli, const char *folder,
                                       const struct tally_json *detail,
                                       struct tally_board_run **ret_run, struct tally_error *err)
{
    char name[TALLY_RUN_NAME_CAPACITY], of_run[PATH_MAX];
    struct tally_board_run *run = tally_xcalloc(1, sizeof *run);
    run->cli = cli;
    tally_run_name(detail, name);
    const int n = snprintf(of_run, sizeof of_run, "%s/%s", folder, name);
    const int n_path =
        snprintf(run->path, sizeof run->path, "%.3800s/events.out.tfevents.%.0f.tally", of_run,
                 seconds(detail, "created_ms"));
    enum tally_status status = TALLY_OK;
    if (n < 0 || n > 3800 || n_path < 0 || (size_t)n_path >= sizeof run->path) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: path too long", folder);
    }
    status = status == TALLY_OK ? tally_folder_make(folder, NULL, err) : status;
    status = status == TALLY_OK ? tally_folder_make(of_run, NULL, err) : status;
    if (status == TALLY_OK) {
        status = tally_event_file_open(run->path, seconds(detail, "created_ms"), &run->file, err);
    }
    if (status == TALLY_OK && tally_event_file_last_step(run->file) < 0) {
        status = add_document(run, detail, err);
    }
    if (status != TALLY_OK) {
        tally_board_run_close(run);
        return status;
    }
    *ret_run = run;
    return TALLY_OK;
}

void tally_board_run_close(struct tally_board_run *run)
{
    if (run != NULL) {
        tally_event_file_close(run->file);
        free(run);
    }
}

const char *tally_board_run_path(const struct tally_board_run *run)
{
    return run->path;
}

int64_t tally_board_run_last_round(const struct tally_board_run *run)
{
    const int64_t step = tally_event_file_last_step(run->file);
    return step > 0 ? step : 0;
}

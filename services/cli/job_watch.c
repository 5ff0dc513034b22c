#include "services/cli/job_watch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codec/record.h"
#include "codec/utf8.h"
#include "services/base/outage.h"
#include "services/base/progress_bar.h"
#include "services/base/signals.h"
#include "services/base/text.h"
#include "services/base/time.h"
#include "services/cli/board_run.h"
#include "services/cli/commands.h"
#include "services/cli/result_table.h"

/* A restarting coordinator is back within a second; one that is down for long is polled rarely. */
enum { FIRST_BACKOFF_MS = 250, LAST_BACKOFF_MS = 5000 };
/* How long one poll may take before the coordinator counts as unreachable. */
enum { POLL_TIMEOUT_MS = 30000 };
/* Regret, loss and 16 metrics. */
enum { QUALITY_TEXT_CAPACITY = 896 };

enum tally_status tally_job_watch_read_options(const struct tally_options *options,
                                               struct tally_job_watch *ret_watch,
                                               struct tally_error *err)
{
    int64_t timeout_s = 0;
    tally_options_integer(options, "timeout", 0, 10000000, &timeout_s, err);
    tally_options_integer(options, "interval-ms", 10, 3600000, &ret_watch->interval_ms, err);
    ret_watch->timeout_ms = timeout_s * 1000;
    return err->status;
}

static const char *status_of(const struct tally_json *detail)
{
    const char *status = tally_json_get_text(detail, "status");
    return status != NULL ? status : "";
}

static void waiting_text(const struct tally_json *waiting, int64_t now_ms,
                         char ret_text[TALLY_WATCH_TEXT_CAPACITY])
{
    const int64_t waited_ms = now_ms - tally_json_get_integer(waiting, "since_ms", now_ms);
    const char *text = tally_json_get_text(waiting, "text");
    snprintf(ret_text, TALLY_WATCH_TEXT_CAPACITY, "since %" PRId64 " s: %s",
             waited_ms > 0 ? waited_ms / 1000 : 0, text != NULL ? text : "");
    ret_text[tally_utf8_valid_prefix(ret_text, strlen(ret_text))] = '\0';
}

/* Appends the means of the metrics: "  accuracy 0.91  seconds 2.5". */
static void append_metrics(const struct tally_json *metrics, char text[QUALITY_TEXT_CAPACITY])
{
    const char *name;
    size_t length = strlen(text);
    for (size_t i = 0; (name = tally_json_key(metrics, i)) != NULL; i++) {
        const double mean = tally_json_get_real(tally_json_get(metrics, name), "mean", NAN);
        const int n =
            snprintf(text + length, QUALITY_TEXT_CAPACITY - length, "  %.32s %.6g", name, mean);
        if (n < 0 || length + (size_t)n >= QUALITY_TEXT_CAPACITY) {
            text[length] = '\0'; /* the other names have no room */
            return;
        }
        length += (size_t)n;
    }
}

/* "regret 412.3  loss 0.43  accuracy 0.91", as far as they are known. */
static void quality_text(const struct tally_json *detail, char ret_text[QUALITY_TEXT_CAPACITY])
{
    const double regret = tally_json_get_real(detail, "cumulative_regret", NAN);
    const double loss = tally_json_get_real(detail, "loss", NAN);
    char regret_text[32] = "", loss_text[32] = "";
    if (!isnan(regret)) {
        snprintf(regret_text, sizeof regret_text, "regret %.1f", regret);
    } else if (isnan(loss)) {
        snprintf(regret_text, sizeof regret_text, "regret unknown");
    }
    if (!isnan(loss)) {
        snprintf(loss_text, sizeof loss_text, "%sloss %.6g", isnan(regret) ? "" : "  ", loss);
    }
    snprintf(ret_text, QUALITY_TEXT_CAPACITY, "%s%s", regret_text, loss_text);
    append_metrics(tally_json_get(detail, "metrics"), ret_text);
}

void tally_job_watch_text(const struct tally_json *detail, int64_t now_ms,
                          char ret_text[TALLY_WATCH_TEXT_CAPACITY])
{
    const struct tally_json *waiting = tally_json_get(detail, "waiting");
    if (tally_json_get_text(waiting, "text") != NULL) {
        waiting_text(waiting, now_ms, ret_text);
        return;
    }
    const struct tally_json *bits = tally_json_get(detail, "bits");
    const char *status = status_of(detail);
    bool running = strcmp(status, "running") == 0;
    char quality[QUALITY_TEXT_CAPACITY];
    quality_text(detail, quality);
    snprintf(
        ret_text, TALLY_WATCH_TEXT_CAPACITY,
        "%.20s%stime step %" PRId64 "/%" PRId64 "  round %" PRId64 "  %s  up %" PRId64
        " bit  down %" PRId64 " bit",
        running ? "" : status, running ? "" : "  ", tally_json_get_integer(detail, "time_step", 0),
        tally_json_get_integer(detail, "horizon", 0), tally_json_get_integer(detail, "round", 0),
        quality, tally_json_get_integer(tally_json_get(bits, "uplink"), "formula", 0),
        tally_json_get_integer(tally_json_get(bits, "downlink"), "formula", 0));
}

void tally_job_watch_mark(const struct tally_json *detail, char ret_text[TALLY_WATCH_TEXT_CAPACITY])
{
    const struct tally_json *waiting = tally_json_get(detail, "waiting");
    const char *text = tally_json_get_text(waiting, "text");
    snprintf(ret_text, TALLY_WATCH_TEXT_CAPACITY,
             "%.20s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s", status_of(detail),
             tally_json_get_integer(detail, "time_step", 0),
             tally_json_get_integer(detail, "round", 0),
             tally_json_get_integer(detail, "iterate", 0),
             tally_json_get_integer(waiting, "since_ms", 0), text != NULL ? text : "");
}

double tally_job_watch_fraction(const struct tally_json *detail)
{
    double horizon = tally_json_get_real(detail, "horizon", 0);
    double time_step = tally_json_get_real(detail, "time_step", 0);
    if (strcmp(status_of(detail), tally_job_status_name(TALLY_JOB_COMPLETED)) == 0) {
        return 1;
    }
    return horizon > 0 ? time_step / horizon : 0;
}

int64_t tally_job_watch_backoff_ms(int64_t last_ms)
{
    int64_t next = last_ms == 0 ? FIRST_BACKOFF_MS : 2 * last_ms;
    return next < LAST_BACKOFF_MS ? next : LAST_BACKOFF_MS;
}

/* One run of the command. */
struct follower {
    struct tally_cli *cli;
    const struct tally_job_watch *watch;
    char id[TALLY_JOB_WORD_CAPACITY];
    int64_t started_ms;
    int64_t deadline_ms; /* INT64_MAX = none */
    int64_t backoff_ms;  /* 0 while the coordinator responds */
    struct tally_outage outage;
    bool is_json; /* prints details on stdout, the table on stderr */
    struct tally_progress_painter painter;
    double first_fraction; /* NaN before the first response */
    char mark[TALLY_WATCH_TEXT_CAPACITY];
    struct tally_board_run *board; /* NULL = not open */
    int64_t board_round;           /* of the detail with which it was written; -1 = none yet */
};

/* Moves regret, loss and metrics to the front: if there is no room for all fields, the others are
 * left out. */
static void put_quality_first(const struct tally_json *detail, char text[TALLY_WATCH_TEXT_CAPACITY])
{
    char quality[QUALITY_TEXT_CAPACITY], rest[TALLY_WATCH_TEXT_CAPACITY];
    quality_text(detail, quality);
    const char *at = strstr(text, quality);
    if (at != NULL) {
        snprintf(rest, sizeof rest, "%.*s%s", (int)(at - text), text,
                 at + strlen(quality) + strspn(at + strlen(quality), " "));
        snprintf(text, TALLY_WATCH_TEXT_CAPACITY, "%s  %.*s", quality,
                 TALLY_WATCH_TEXT_CAPACITY - QUALITY_TEXT_CAPACITY - 3, rest);
    }
}

static void paint(struct follower *follower, const struct tally_json *detail)
{
    char text[TALLY_WATCH_TEXT_CAPACITY];
    tally_job_watch_text(detail, tally_realtime_ms(), text);
    put_quality_first(detail, text);
    double fraction = tally_job_watch_fraction(detail);
    int64_t now_ms = tally_monotonic_ms();
    if (isnan(follower->first_fraction)) {
        follower->first_fraction = fraction;
    }
    const struct tally_progress_bar bar = {
        .fraction = fraction,
        .elapsed_ms = now_ms - follower->started_ms,
        .start = follower->first_fraction,
        .text = text,
    };
    tally_progress_paint(&follower->painter, &bar, now_ms);
}

/* Prints one line, for when stdout is not a terminal: "running  time step 1200/2000 ...". */
static int print_line(const struct tally_json *detail)
{
    char text[TALLY_WATCH_TEXT_CAPACITY];
    struct tally_buffer line = {0};
    const char *status = status_of(detail);
    tally_job_watch_text(detail, tally_realtime_ms(), text);
    tally_utf8_sanitize_line(text);
    const bool has_status = strncmp(text, status, strlen(status)) == 0;
    return tally_cli_print(tally_buffer_printf(&line, "%.20s%s%s\n", has_status ? "" : status,
                                               has_status ? "" : "  ", text),
                           &line);
}

/* Shows progress. Returns an exit code, because stdout may be closed. */
static int tell(struct follower *follower, const struct tally_json *detail)
{
    if (follower->painter.is_terminal) {
        paint(follower, detail);
        return TALLY_EXIT_OK;
    }
    char mark[TALLY_WATCH_TEXT_CAPACITY];
    tally_job_watch_mark(detail, mark);
    if (strcmp(mark, follower->mark) == 0) {
        return TALLY_EXIT_OK;
    }
    memcpy(follower->mark, mark, sizeof mark);
    return follower->is_json ? tally_cli_print_json(detail, 0) : print_line(detail);
}

static int finish(struct follower *follower, const struct tally_json *detail,
                  enum tally_job_status job_status)
{
    tally_progress_clear(&follower->painter);
    struct tally_buffer text = {0};
    enum tally_status status =
        tally_result_table_fit(detail, tally_terminal_columns(STDOUT_FILENO), &text);
    int exit_code = TALLY_EXIT_OK;
    if (status != TALLY_OK || !follower->is_json) {
        exit_code = tally_cli_print(status, &text);
    } else {
        (void)fwrite(text.data, 1, text.size, stderr);
        tally_buffer_fini(&text);
    }
    return job_status == TALLY_JOB_COMPLETED ? exit_code : TALLY_EXIT_FAILED;
}

/* Reports an outage, and what else it is due to later. */
static void note_away(struct follower *follower, const struct tally_error *err)
{
    tally_progress_clear(&follower->painter);
    if (tally_outage_is_news(&follower->outage, err, tally_monotonic_ms())) {
        fprintf(stderr, "tally: the coordinator is not reachable, retrying: %s\n", err->message);
    }
    follower->backoff_ms = tally_job_watch_backoff_ms(follower->backoff_ms);
}

static void note_back(struct follower *follower)
{
    if (follower->backoff_ms != 0) {
        tally_progress_clear(&follower->painter);
        fprintf(stderr, "tally: the coordinator is reachable again\n");
        follower->backoff_ms = 0;
        follower->outage = (struct tally_outage){0};
    }
}

static int64_t time_left_ms(const struct follower *follower)
{
    return follower->deadline_ms - tally_monotonic_ms();
}

static enum tally_status poll_job(struct follower *follower, struct tally_json **ret_detail,
                                  struct tally_error *err)
{
    int64_t left_ms = time_left_ms(follower);
    struct tally_http_exchange exchange = {
        .method = "GET",
        .accept = "application/json",
        .timeout_ms = left_ms < 1                 ? 1
                      : left_ms < POLL_TIMEOUT_MS ? (long)left_ms
                                                  : POLL_TIMEOUT_MS,
    };
    return tally_job_call_json(&follower->cli->rest, follower->id, "", &exchange, ret_detail, err);
}

/* Only the watch was interrupted, not the job. */
static int leave_running(struct follower *follower)
{
    tally_progress_clear(&follower->painter);
    fprintf(stderr, "tally: job %s continues; stop it with: tally cancel %s\n", follower->id,
            follower->id);
    return 128 + *tally_signals_stop();
}

/* Writes the rounds that have closed since the last time to the folder for TensorBoard. */
static enum tally_status write_board(struct follower *follower, const struct tally_json *detail,
                                     bool is_ended, struct tally_error *err)
{
    const int64_t round = tally_json_get_integer(detail, "round", 0);
    enum tally_status status = TALLY_OK;
    if (follower->watch->board_folder == NULL || (round == follower->board_round && !is_ended)) {
        return TALLY_OK;
    }
    if (follower->board == NULL) {
        snprintf(follower->cli->job, sizeof follower->cli->job, "%s", follower->id);
        status = tally_board_run_open(follower->cli, follower->watch->board_folder, detail,
                                      &follower->board, err);
    }
    if (status == TALLY_OK) {
        status = tally_board_run_follow(follower->board, is_ended, err);
    }
    follower->board_round = status == TALLY_OK ? round : -1;
    return status;
}

/* Reports what failed. True: waiting does not help, and the watch ends with *ret_exit_code. */
static bool fails_for_good(struct follower *follower, const struct tally_error *err,
                           int *ret_exit_code)
{
    if (tally_status_info(err->status)->retryable) {
        note_away(follower, err);
        return false;
    }
    tally_progress_clear(&follower->painter);
    *ret_exit_code = *tally_signals_stop() != 0 ? leave_running(follower) : tally_cli_report(err);
    return true;
}

/* Polls once. True: the watch ends with *ret_exit_code. */
static bool step(struct follower *follower, int *ret_exit_code)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_json *detail = NULL;
    if (poll_job(follower, &detail, &err) != TALLY_OK) {
        return fails_for_good(follower, &err, ret_exit_code);
    }
    enum tally_job_status job_status = TALLY_JOB_QUEUED;
    const bool is_ended = tally_job_status_of_name(status_of(detail), &job_status) &&
                          tally_job_status_is_terminal(job_status);
    if (write_board(follower, detail, is_ended, &err) != TALLY_OK) {
        tally_json_free(detail);
        return fails_for_good(follower, &err, ret_exit_code);
    }
    note_back(follower);
    *ret_exit_code = tell(follower, detail);
    bool over = *ret_exit_code != TALLY_EXIT_OK;
    if (!over && is_ended) {
        *ret_exit_code = finish(follower, detail, job_status);
        over = true;
    }
    tally_json_free(detail);
    return over;
}

static int64_t pause_ms(const struct follower *follower)
{
    int64_t wanted =
        follower->backoff_ms != 0 ? follower->backoff_ms : follower->watch->interval_ms;
    int64_t left = time_left_ms(follower);
    return wanted < left ? wanted : left;
}

static int follow(struct follower *follower)
{
    int exit_code = TALLY_EXIT_OK;
    while (!step(follower, &exit_code)) {
        if (time_left_ms(follower) <= 0) {
            tally_progress_clear(&follower->painter);
            fprintf(stderr, "tally: job %s did not end within %" PRId64 " s\n", follower->id,
                    follower->watch->timeout_ms / 1000);
            return TALLY_EXIT_TIMEOUT;
        }
        if (tally_signals_wait((int)pause_ms(follower))) {
            return leave_running(follower);
        }
    }
    return exit_code;
}

int tally_job_watch_run(struct tally_cli *cli, const struct tally_job_watch *watch)
{
    int64_t now_ms = tally_monotonic_ms();
    struct follower follower = {
        .cli = cli,
        .watch = watch,
        .started_ms = now_ms,
        .deadline_ms = watch->timeout_ms > 0 ? now_ms + watch->timeout_ms : INT64_MAX,
        .first_fraction = NAN,
        .board_round = -1,
    };
    snprintf(follower.id, sizeof follower.id, "%s", watch->job_id);
    follower.is_json = tally_options_bool(cli->options, "json");
    tally_progress_painter_init(&follower.painter, STDOUT_FILENO);
    follower.painter.is_terminal = follower.painter.is_terminal && !follower.is_json;
    const int exit_code = follow(&follower);
    tally_board_run_close(follower.board);
    return exit_code;
}

/* ---- Tally watch ID: follows a job until it ends. */

const struct tally_option TALLY_CLI_WATCH_OPTIONS[] = {
    {"json", NULL, NULL,
     "print the job's detail, one line of JSON, whenever the job has progressed", NULL},
    {"timeout", "SECONDS", "0", "give up after this long with exit code 3; 0 = never", NULL},
    {"interval-ms", "MS", "500", "pause between two polls", NULL},
    {"tensorboard", "DIR", NULL,
     "also write loss, regret, bits and metrics to an event file in DIR/NAME-ID, round by round, "
     "as "
     "tally export --to tensorboard does; a later watch continues the file",
     NULL},
    {0},
};

int tally_cli_watch(struct tally_cli *cli)
{
    struct tally_job_watch watch = {.job_id = cli->job};
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_job_watch_read_options(cli->options, &watch, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    watch.board_folder = tally_options_text(cli->options, "tensorboard");
    return tally_job_watch_run(cli, &watch);
}

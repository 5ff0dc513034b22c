#include "services/coordinator/rest_lists.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool job_filter_passes(const struct job_filter *filter, const struct tally_store_job *row)
{
    bool passes = filter->name == NULL || strcmp(filter->name, row->name) == 0;
    for (size_t i = 0; passes && i < filter->n_labels; i++) {
        passes = tally_labels_match(row->labels, &filter->labels[i]);
    }
    return passes;
}

bool job_filter_is_selective(const struct job_filter *filter)
{
    return filter->name != NULL || filter->n_labels > 0;
}

typedef double number_fn(const struct tally_store_job *row);
typedef const char *text_fn(const struct tally_store_job *row);

static double created(const struct tally_store_job *row)
{
    return (double)row->key; /* the order of submission, whatever the clock showed */
}

static double status_number(const struct tally_store_job *row)
{
    return (double)row->status; /* queued, running, paused, completed, failed, cancelled */
}

static double time_step(const struct tally_store_job *row)
{
    return (double)row->progress.time_step;
}

static double progress(const struct tally_store_job *row)
{
    return (double)row->progress.time_step / (double)row->horizon;
}

static double round_number(const struct tally_store_job *row)
{
    return (double)row->progress.round;
}

static double regret(const struct tally_store_job *row)
{
    return row->progress.cumulative_regret;
}

static double loss(const struct tally_store_job *row)
{
    return tally_progress_loss(&row->progress);
}

static double uplink_bits(const struct tally_store_job *row)
{
    return (double)row->progress.bits.uplink.payload_bits;
}

static double uplink_bits_per_client(const struct tally_store_job *row)
{
    return uplink_bits(row) / (double)row->clients;
}

static double downlink_bits(const struct tally_store_job *row)
{
    return (double)row->progress.bits.downlink.payload_bits;
}

static const char *id(const struct tally_store_job *row)
{
    return row->id;
}

static const char *name(const struct tally_store_job *row)
{
    return row->name;
}

static const char *algorithm(const struct tally_store_job *row)
{
    return row->algorithm;
}

/* The mean of a metric; NaN if the job has none of this name. */
static double metric(const struct tally_store_job *row, const char *wanted)
{
    const char *at = row->progress.metrics;
    struct tally_metric_summary summary;
    while (tally_metrics_next(&at, &summary)) {
        if (strcmp(summary.name, wanted) == 0) {
            return summary.mean;
        }
    }
    return NAN;
}

static const struct {
    const char *name;
    number_fn *number; /* NULL = a column of texts, or that of metrics */
    text_fn *text;
} COLUMNS[] = {
    {"created", created, NULL},
    {"id", NULL, id},
    {"name", NULL, name},
    {"algorithm", NULL, algorithm},
    {"status", status_number, NULL},
    {"time_step", time_step, NULL},
    {"progress", progress, NULL},
    {"round", round_number, NULL},
    {"regret", regret, NULL},
    {"loss", loss, NULL},
    {"uplink_bits", uplink_bits, NULL},
    {"uplink_bits_per_client", uplink_bits_per_client, NULL},
    {"downlink_bits", downlink_bits, NULL},
    {"metric:", NULL, NULL}, /* and the metric's name */
};
enum { N_COLUMNS = sizeof COLUMNS / sizeof COLUMNS[0], METRIC_COLUMN = N_COLUMNS - 1 };
enum { ORDER_CAPACITY = 16 + TALLY_METRIC_NAME_CAPACITY }; /* of "-metric:accuracy" */

static bool is_number(const struct job_order *order)
{
    return COLUMNS[order->column].text == NULL;
}

const struct job_order JOB_ORDER_DEFAULT = {.column = 0, .descending = true};

bool job_order_is_default(const struct job_order *order)
{
    return order->column == JOB_ORDER_DEFAULT.column &&
           order->descending == JOB_ORDER_DEFAULT.descending;
}

/* "-regret" */
static void write_name(const struct job_order *order, char ret_name[ORDER_CAPACITY])
{
    snprintf(ret_name, ORDER_CAPACITY, "%s%s%s", order->descending ? "-" : "",
             COLUMNS[order->column].name, order->metric);
}

enum tally_status job_order_parse(const char *text, struct job_order *ret_order,
                                  struct tally_error *err)
{
    const bool descending = text[0] == '-';
    const char *wanted = text + (descending ? 1 : 0);
    for (int i = 0; i < METRIC_COLUMN; i++) {
        if (strcmp(wanted, COLUMNS[i].name) == 0) {
            *ret_order = (struct job_order){.column = i, .descending = descending};
            return TALLY_OK;
        }
    }
    const size_t n_prefix = strlen(COLUMNS[METRIC_COLUMN].name);
    if (strncmp(wanted, COLUMNS[METRIC_COLUMN].name, n_prefix) == 0 &&
        tally_metric_is_name(wanted + n_prefix)) {
        *ret_order = (struct job_order){.column = METRIC_COLUMN, .descending = descending};
        snprintf(ret_order->metric, sizeof ret_order->metric, "%s", wanted + n_prefix);
        return TALLY_OK;
    }
    char list[256] = "";
    for (int i = 0; i < N_COLUMNS; i++) {
        const size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "", COLUMNS[i].name);
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, "sort",
                      "\"%.50s\" is not one of %sNAME, with - in front for descending", text, list);
}

void job_order_place(const struct job_order *order, const struct tally_store_job *row,
                     struct job_place *ret_place)
{
    ret_place->key = row->key;
    ret_place->number = order->column == METRIC_COLUMN ? metric(row, order->metric)
                        : is_number(order)             ? COLUMNS[order->column].number(row)
                                                       : 0;
    snprintf(ret_place->text, sizeof ret_place->text, "%s",
             is_number(order) ? "" : COLUMNS[order->column].text(row));
}

static int compare_reals(double a, double b)
{
    return (a > b) - (a < b);
}

int job_order_compare(const struct job_order *order, const struct job_place *a,
                      const struct job_place *b)
{
    if (isnan(a->number) != isnan(b->number)) {
        return isnan(a->number) ? 1 : -1;
    }
    const int texts = strcmp(a->text, b->text);
    const int ascending = texts != 0 ? texts : compare_reals(a->number, b->number);
    if (ascending != 0) {
        return (ascending > 0) == order->descending ? -1 : 1;
    }
    return (a->key < b->key) - (a->key > b->key);
}

void job_order_write_cursor(const struct job_order *order, const struct job_place *place,
                            char ret_cursor[JOB_CURSOR_CAPACITY])
{
    char name_of_order[ORDER_CAPACITY];
    write_name(order, name_of_order);
    int n = snprintf(ret_cursor, JOB_CURSOR_CAPACITY, "%s.%" PRId64 ".", name_of_order, place->key);
    if (is_number(order)) {
        uint64_t bits;
        memcpy(&bits, &place->number, sizeof bits);
        snprintf(ret_cursor + n, (size_t)(JOB_CURSOR_CAPACITY - n), "%016" PRIx64, bits);
        return;
    }
    for (const char *at = place->text; *at != '\0'; at++, n += 2) {
        snprintf(ret_cursor + n, (size_t)(JOB_CURSOR_CAPACITY - n), "%02x", (unsigned char)*at);
    }
}

static enum tally_status refuse(const char *cursor, struct tally_error *err)
{
    return tally_fail(err, TALLY_INVALID_ARGUMENT, "cursor", "\"%.60s\" is not a cursor", cursor);
}

/* The value of two hexadecimal digits; 0 if they are not digits. */
static int hex_byte(const char *at)
{
    char digits[3] = {at[0], at[1], '\0'};
    return strspn(digits, "0123456789abcdef") == 2 ? (int)strtol(digits, NULL, 16) : 0;
}

static bool read_text(const char *hex, char ret_text[TALLY_JOB_NAME_CAPACITY])
{
    const size_t n = strlen(hex) / 2;
    if (strlen(hex) % 2 != 0 || n >= TALLY_JOB_NAME_CAPACITY) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const int byte = hex_byte(hex + 2 * i);
        if (byte == 0) {
            return false;
        }
        ret_text[i] = (char)byte;
    }
    ret_text[n] = '\0';
    return true;
}

static bool read_number(const char *hex, double *ret_number)
{
    if (strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16) {
        return false;
    }
    const uint64_t bits = strtoull(hex, NULL, 16);
    memcpy(ret_number, &bits, sizeof bits);
    return true;
}

/* Fails unless `order` is the part of `cursor` before the first '.', n bytes. */
static enum tally_status check_order(const struct job_order *order, const char *cursor, size_t n,
                                     struct tally_error *err)
{
    char wanted[ORDER_CAPACITY];
    write_name(order, wanted);
    if (strlen(wanted) == n && memcmp(cursor, wanted, n) == 0) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, "cursor",
                      "the cursor \"%.50s\" is not for order %s: start again at the first page",
                      cursor, wanted);
}

enum tally_status job_order_check_default_cursor(const char *cursor, struct tally_error *err)
{
    const size_t n = strcspn(cursor, ".");
    return cursor[n] == '.' ? check_order(&JOB_ORDER_DEFAULT, cursor, n, err) : TALLY_OK;
}

enum tally_status job_order_read_cursor(const struct job_order *order, const char *cursor,
                                        struct job_place *ret_place, struct tally_error *err)
{
    struct job_place place = {.key = 0};
    enum tally_status status = check_order(order, cursor, strcspn(cursor, "."), err);
    if (status != TALLY_OK) {
        return status;
    }
    const char *key = cursor + strcspn(cursor, ".");
    key += key[0] == '.';
    char *end;
    errno = 0;
    place.key = strtoll(key, &end, 10);
    const bool is_key = strchr("123456789", key[0]) != NULL && errno == 0 && end[0] == '.';
    if (key[0] == '\0' || !is_key ||
        !(is_number(order) ? read_number(end + 1, &place.number)
                           : read_text(end + 1, place.text))) {
        return refuse(cursor, err);
    }
    *ret_place = place;
    return TALLY_OK;
}

/* Rows of one step: half a millisecond. */
enum { ROWS_AT_ONCE = 64 };

void sorted_page_fini(struct sorted_page *page)
{
    tally_buffer_fini(&page->places);
}

static enum tally_status examine(void *context, const struct tally_store_job *row,
                                 struct tally_error *err)
{
    struct sorted_page *page = context;
    struct job_place place;
    page->n_examined++;
    page->last_key = row->key;
    if (page->n_examined > JOBS_EXAMINED) {
        return tally_fail(
            err, TALLY_OUT_OF_RANGE, "sort",
            "there are more than %d jobs to sort: ask for those of one status, or for "
            "the order -created, which has no limit",
            JOBS_EXAMINED);
    }
    if (!job_filter_passes(page->filter, row)) {
        return TALLY_OK;
    }
    job_order_place(&page->order, row, &place);
    if (page->has_after && job_order_compare(&page->order, &place, &page->after) <= 0) {
        return TALLY_OK;
    }
    const enum tally_status status = tally_buffer_append(&page->places, &place, sizeof place);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for the list");
}

static int compare(const void *a, const void *b, void *order)
{
    return job_order_compare(order, a, b);
}

/* Sorts the places so far, and drops those behind the page. */
static void keep_first(struct sorted_page *page)
{
    const size_t n = page->places.size / sizeof(struct job_place);
    if (n > 0) {
        qsort_r(page->places.data, n, sizeof(struct job_place), compare, &page->order);
    }
    if (n > (size_t)page->limit) {
        page->has_more = true;
        page->places.size = (size_t)page->limit * sizeof(struct job_place);
    }
}

enum tally_status sorted_page_read(struct sorted_page *page, struct tally_store *store,
                                   bool *ret_is_done, struct tally_error *err)
{
    const int64_t before_key = page->n_examined > 0 ? page->last_key : INT64_MAX;
    const int64_t n_before = page->n_examined;
    const enum tally_status status = store->ops->job_list(store, page->filter->status, before_key,
                                                          ROWS_AT_ONCE, examine, page, err);
    const bool is_done = page->n_examined - n_before < ROWS_AT_ONCE;
    const size_t n = page->places.size / sizeof(struct job_place);
    if (status == TALLY_OK && (is_done || n > 2 * (size_t)page->limit + ROWS_AT_ONCE)) {
        keep_first(page); /* all sorts together cost no more than one of all places would */
    }
    *ret_is_done = is_done;
    return status;
}

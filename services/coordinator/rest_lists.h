/* rest_lists: which jobs a list has, and in which order. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_LISTS_H
#define TALLY_SERVICES_COORDINATOR_REST_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "services/base/labels.h"
#include "storage/store.h"

/* ---- Which jobs a list contains. Pure. */

/* Conditions, all of which must hold. */
struct job_filter {
    int status;       /* enum tally_job_status; -1 = any */
    const char *name; /* exactly; NULL = any; borrowed */
    struct tally_label_filter labels[TALLY_LABELS_MOST];
    size_t n_labels;
};

/* Whether a row that the store has already selected by its status meets the other conditions. */
bool job_filter_passes(const struct job_filter *filter, const struct tally_store_job *row);
/* Whether the filter has conditions besides the status. */
bool job_filter_is_selective(const struct job_filter *filter);

/* ---- The orders of a list of jobs, and the cursors between its pages. Pure.
 *
 * `sort=name` is ascending and `sort=-name` descending; `sort=metric:accuracy` is by the mean of a
 * metric in the last round that has it. Jobs with the same value stand newest first
 * in both. A number that is unknown, such as the regret of a job without f(x*), stands last in
 * both.
 *
 * A cursor consists of the order, and the key and the value of the last job of its page:
 *
 *     -regret.17.4059000000000000     sort, key, bits of the double 100.0
 *     name.17.747269616c              sort, key, bytes of "trial"
 *
 * The next page has the jobs that now stand behind that place, whether or not the last job still
 * exists. A job whose value changes between two requests may be on both pages, or on neither. */

struct job_order {
    int column; /* index into the table of columns */
    bool descending;
    char metric[TALLY_METRIC_NAME_CAPACITY]; /* whose mean is the column; "" = no metric */
};

/* The order of job_list: newest first. */
extern const struct job_order JOB_ORDER_DEFAULT;
bool job_order_is_default(const struct job_order *order);

/* The place of a job in an order. */
struct job_place {
    int64_t key;
    double number;                      /* of a column of numbers; NaN = unknown */
    char text[TALLY_JOB_NAME_CAPACITY]; /* of a column of texts */
};

enum { JOB_CURSOR_CAPACITY = 32 + 20 + 2 * TALLY_JOB_NAME_CAPACITY };

/* Errors: INVALID_ARGUMENT, with field "sort". */
enum tally_status job_order_parse(const char *text, struct job_order *ret_order,
                                  struct tally_error *err);
void job_order_place(const struct job_order *order, const struct tally_store_job *row,
                     struct job_place *ret_place);
/* Negative if a stands before b, positive if behind; 0 only for the same job. */
int job_order_compare(const struct job_order *order, const struct job_place *a,
                      const struct job_place *b);

void job_order_write_cursor(const struct job_order *order, const struct job_place *place,
                            char ret_cursor[JOB_CURSOR_CAPACITY]);
/* Errors: INVALID_ARGUMENT (not a cursor, or one of a different order), with field "cursor". */
enum tally_status job_order_read_cursor(const struct job_order *order, const char *cursor,
                                        struct job_place *ret_place, struct tally_error *err);
/* Fails if `cursor` is of a different order than JOB_ORDER_DEFAULT, whose cursors are keys. Errors:
 * as above. */
enum tally_status job_order_check_default_cursor(const char *cursor, struct tally_error *err);

/* ---- A page of a list in a different order than that of the store.
 *
 * The store gives jobs newest first. For any other order, all rows that pass the filter are
 * examined, without reading documents, and the places of the first ones are kept. Their number is
 * limited, so that a request takes some ten milliseconds however many jobs there are; the rows are
 * examined in steps, between which the loop does other work. */

/* Rows that one request examines. */
enum { JOBS_EXAMINED = 10000 };

/* begin: zeroed, with the members up to `limit`. */
struct sorted_page {
    const struct job_filter *filter; /* borrowed */
    struct job_order order;
    bool has_after; /* only jobs behind `after` */
    struct job_place after;
    int64_t limit;              /* of places */
    struct tally_buffer places; /* struct job_place, once all rows have been examined: in order */
    bool has_more;              /* more jobs follow */
    int64_t n_examined, last_key;
};

void sorted_page_fini(struct sorted_page *page);
/* Examines some more rows; *ret_is_done = there are no others. Errors: OUT_OF_RANGE (more than
 * JOBS_EXAMINED jobs have the status of the filter), with field "sort"; those of job_list;
 * NO_MEMORY. */
enum tally_status sorted_page_read(struct sorted_page *page, struct tally_store *store,
                                   bool *ret_is_done, struct tally_error *err);

#endif

/* rest_jobs: /v1/jobs, /v1/jobs/{id} and what can be done with a job. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/base/alloc.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_initial.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/provenance.h"
#include "services/coordinator/rest_lists.h"
#include "services/coordinator/rest_plans.h"
#include "services/coordinator/rest_routes.h"
#include "services/coordinator/rest_surveys.h"
#include "services/coordinator/workers.h"
#include "services/job/document.h"
#include "services/job/document_faults.h"

enum { DEFAULT_PAGE = 50, MAX_PAGE = 1000, MAX_IDEMPOTENCY_KEY = 128 };

/* What the job waits for; NULL = nothing, or it is not live. */
static const struct tally_waiting *waiting_of(const struct tally_coordinator *coordinator,
                                              const struct hosted_job *job,
                                              struct tally_waiting *waiting)
{
    return job != NULL && workers_job_waiting(coordinator, job, tally_monotonic_ms(), waiting)
               ? waiting
               : NULL;
}

/* The detail of a stored row, with what the job waits for if it is live. */
static struct tally_json *detail_of(const struct tally_coordinator *coordinator,
                                    const struct tally_store_job *row,
                                    const struct tally_buffer *document)
{
    struct tally_waiting waiting;
    const struct hosted_job *job = jobs_find(coordinator, row->id);
    return hosted_job_detail(row, document, job != NULL ? &job->spec : NULL,
                             waiting_of(coordinator, job, &waiting));
}

static enum tally_status answer_detail(const struct tally_coordinator *coordinator,
                                       struct call *call, int status,
                                       const struct tally_store_job *row,
                                       const struct tally_buffer *document, struct tally_error *err)
{
    return call_answer_json(call, status, detail_of(coordinator, row, document), err);
}

static enum tally_status answer_created(struct call *call, const struct tally_store_job *row,
                                        struct tally_json *detail, struct tally_error *err)
{
    snprintf(call->location, sizeof call->location, "/v1/jobs/%s", row->id);
    return call_answer_json(call, 201, detail, err);
}

/* Responds with the job that an earlier request with the same key created. NOT_FOUND if there is
 * none. */
static enum tally_status answer_repeated(struct tally_coordinator *coordinator, struct call *call,
                                         const char *key, uint64_t digest, struct tally_error *err)
{
    struct tally_store_job row;
    uint64_t first_digest;
    enum tally_status status = coordinator->store->ops->job_by_idempotency_key(
        coordinator->store, key, &row, &first_digest, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (digest != first_digest) {
        return tally_fail(err, TALLY_ALREADY_EXISTS, "Idempotency-Key",
                          "the key was used for another document, job %s", row.id);
    }
    struct tally_buffer document = {0};
    status = jobs_read(coordinator, row.id, &row, &document, err);
    if (status == TALLY_OK) {
        status = answer_created(call, &row, detail_of(coordinator, &row, &document), err);
    }
    tally_buffer_fini(&document);
    return status;
}

static enum tally_status read_idempotency_key(struct call *call, const char **ret_key,
                                              struct tally_error *err)
{
    const char *key = tally_http_header(call->request, "Idempotency-Key");
    if (key != NULL && (key[0] == '\0' || strlen(key) > MAX_IDEMPOTENCY_KEY)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "Idempotency-Key",
                          "length %zu outside [1, %d]", strlen(key), MAX_IDEMPOTENCY_KEY);
    }
    *ret_key = key;
    return TALLY_OK;
}

/* The list with one fault; NULL = out of memory. */
static struct tally_json *only_fault(const struct tally_error *err)
{
    struct tally_json *faults = tally_json_array();
    return tally_json_if_complete(faults, faults != NULL &&
                                              tally_document_add_fault(faults, "conflict", err));
}

/* Reads the document, which it completes, checks that this coordinator accepts the job, and
 * completes the checksum of its initial point. If it does not, call->errors has all faults. If
 * call->is_held afterwards, the handler will run again. Errors: those of surveys_complete(),
 * tally_document_parse(), jobs_check_new() and jobs_initial_check(). */
static enum tally_status read_new_job(struct tally_coordinator *coordinator, struct call *call,
                                      const char *body, size_t n_body,
                                      struct tally_job_spec *ret_spec, struct tally_error *err)
{
    const char *text;
    size_t n;
    enum tally_status status = surveys_complete(coordinator, call, body, n_body, &text, &n, err);
    if (status != TALLY_OK || call->is_held) {
        call->errors = status == TALLY_INVALID_ARGUMENT ? only_fault(err) : NULL;
        return status;
    }
    status = tally_document_parse(text, n, ret_spec, err);
    if (status == TALLY_INVALID_ARGUMENT || status == TALLY_OUT_OF_RANGE) {
        call->errors = tally_document_faults(text, n);
    }
    if (status == TALLY_OK) {
        status = jobs_check_new(coordinator, ret_spec, err);
        if (status == TALLY_INVALID_ARGUMENT || status == TALLY_OUT_OF_RANGE) {
            call->errors = jobs_new_faults(coordinator, ret_spec);
        }
    }
    if (status == TALLY_OK) {
        status = jobs_initial_check(coordinator, call, ret_spec, err);
        if (status == TALLY_INVALID_ARGUMENT) {
            call->errors = only_fault(err);
        }
    }
    return status;
}

static enum tally_status answer_preview(struct tally_coordinator *coordinator, struct call *call,
                                        const char *body, size_t n_body, struct tally_error *err)
{
    struct tally_job_spec spec;
    const enum tally_status status = read_new_job(coordinator, call, body, n_body, &spec, err);
    if (status != TALLY_OK || call->is_held || plans_take(coordinator, call, &spec)) {
        return status;
    }
    const struct tally_suggestion none =
        tally_suggestion_none(&spec, "too many dry runs are in progress");
    return call_answer_json(call, 200, tally_document_preview(&spec, NULL, &none), err);
}

/* Responds if another replica was faster with the same idempotency key, or if the same random id
 * was drawn twice. */
static enum tally_status answer_other(struct tally_coordinator *coordinator, struct call *call,
                                      const char *key, uint64_t digest, struct tally_error *err)
{
    tally_error_clear(err);
    enum tally_status status =
        key != NULL ? answer_repeated(coordinator, call, key, digest, err) : TALLY_NOT_FOUND;
    if (status == TALLY_NOT_FOUND) {
        tally_error_clear(err);
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the job's id is taken: try again");
    }
    return status;
}

static enum tally_status submit(struct tally_coordinator *coordinator, struct call *call,
                                const char *body, size_t n_body, struct tally_error *err)
{
    const char *key = NULL;
    struct tally_job_spec spec;
    struct hosted_job *job = NULL;
    enum tally_status status = read_idempotency_key(call, &key, err);
    const uint64_t digest = status == TALLY_OK ? tally_checksum64(body, n_body) : 0;
    if (status == TALLY_OK && key != NULL) {
        status = answer_repeated(coordinator, call, key, digest, err);
        if (status != TALLY_NOT_FOUND) {
            return status;
        }
        tally_error_clear(err);
        status = TALLY_OK;
    }
    if (status == TALLY_OK) {
        status = read_new_job(coordinator, call, body, n_body, &spec, err);
    }
    if (call->is_held) {
        return status;
    }
    if (status == TALLY_OK) {
        status = jobs_create(coordinator, &spec, key, digest, &job, err);
    }
    if (status == TALLY_ALREADY_EXISTS) {
        return answer_other(coordinator, call, key, digest, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_waiting waiting;
    return answer_created(call, &job->row,
                          hosted_job_new_detail(job, waiting_of(coordinator, job, &waiting)), err);
}

enum tally_status rest_post_job(struct tally_coordinator *coordinator, struct call *call,
                                struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    int64_t is_dry = 0;
    enum tally_status status = call_read_body(call, "application/json", &body, &n_body, err);
    if (status == TALLY_OK) {
        status = call_read_query_integer(call, "dry_run", 0, 1, 0, &is_dry, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    return (is_dry == 1 ? answer_preview : submit)(coordinator, call, (const char *)body, n_body,
                                                   err);
}

enum tally_status rest_get_job(struct tally_coordinator *coordinator, struct call *call,
                               struct tally_error *err)
{
    struct tally_store_job row;
    struct tally_buffer document = {0};
    struct tally_json *detail = NULL;
    enum tally_status status = jobs_read(coordinator, call->params[0], &row, &document, err);
    if (status == TALLY_OK) {
        detail = detail_of(coordinator, &row, &document);
        if (detail != NULL) {
            status = provenance_add(coordinator->store, &row, &document, detail, err);
        }
    }
    if (status == TALLY_OK) {
        status = call_answer_json(call, 200, detail, err);
    } else {
        tally_json_free(detail);
    }
    tally_buffer_fini(&document);
    return status;
}

enum tally_status rest_get_document(struct tally_coordinator *coordinator, struct call *call,
                                    struct tally_error *err)
{
    struct tally_store_job row;
    const enum tally_status status =
        jobs_read(coordinator, call->params[0], &row, &call->body, err);
    return status == TALLY_OK ? call_answer_bytes(call, status, "application/json", err) : status;
}

/* In one piece of a list. A detail takes 50 to 300 us, a row that the filter drops 10. */
enum { PIECE_DETAILS = 4, PIECE_ROWS = 32 };

/* A page of the list while it is made. */
struct page {
    struct response_pieces pieces; /* must be first */
    struct tally_coordinator *coordinator;
    struct tally_buffer *body; /* of its call */
    int64_t n, limit;
    int64_t last_key;         /* of the row examined last; INT64_MAX = none yet */
    bool more;                /* more rows follow the page */
    struct job_filter filter; /* jobs that do not pass it are left out */
    struct job_order order;
    int64_t n_examined;
    int n_rows, n_details;     /* in this piece */
    struct sorted_page sorted; /* in an order other than that of the store */
    bool is_sorted;            /* its places are known */
    size_t n_placed;           /* of them, so far */
};

static void free_page(struct response_pieces *pieces)
{
    struct page *page = (struct page *)pieces;
    sorted_page_fini(&page->sorted);
    free(page);
}

/* Replaces a document that can no longer be read by what the job's row shows. One damaged job must
 * not hide the others from a list. */
static enum tally_status replace_document(struct tally_coordinator *coordinator,
                                          const struct tally_store_job *row,
                                          struct tally_buffer *document, struct tally_error *err)
{
    transaction_note_damage(coordinator->transaction, err);
    tally_error_clear(err);
    struct tally_json *object = tally_json_object();
    struct tally_json *algorithm = tally_json_object();
    bool ok = object != NULL && algorithm != NULL &&
              tally_json_set_text(algorithm, "type", row->algorithm) &&
              tally_json_set_text(object, "name", row->name) &&
              tally_document_set_labels(object, row->labels) &&
              tally_json_set_integer(object, "clients", row->clients) &&
              tally_json_set_integer(object, "horizon", row->horizon);
    if (ok) {
        ok = tally_json_set(object, "algorithm", algorithm);
    } else {
        tally_json_free(algorithm);
    }
    document->size = 0;
    ok = ok && tally_json_dump(object, 0, document) == TALLY_OK;
    tally_json_free(object);
    return ok ? TALLY_OK : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the list");
}

static enum tally_status append_detail(struct page *page, const struct tally_store_job *row,
                                       struct tally_error *err)
{
    struct tally_store *store = page->coordinator->store;
    struct tally_buffer document = {0};
    enum tally_status status = store->ops->document_get(store, row->key, &document, err);
    if (status == TALLY_DATA_LOSS && err != NULL) {
        status = replace_document(page->coordinator, row, &document, err);
    }
    if (status == TALLY_NOT_FOUND) { /* another replica has deleted the job since */
        tally_error_clear(err);
        status = TALLY_OK;
    } else if (status == TALLY_OK) {
        struct tally_json *detail = detail_of(page->coordinator, row, &document);
        status = call_append_element(page->body, page->n++ == 0, detail);
        tally_json_free(detail);
        page->n_details++;
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the list");
        }
    }
    tally_buffer_fini(&document);
    return status;
}

/* CANCELLED: the piece or the page is full. */
static enum tally_status add_to_page(void *context, const struct tally_store_job *row,
                                     struct tally_error *err)
{
    struct page *page = context;
    page->more = page->n == page->limit || page->n_examined == JOBS_EXAMINED;
    if (page->more || page->n_details == PIECE_DETAILS) {
        return TALLY_CANCELLED;
    }
    page->n_rows++;
    page->n_examined++;
    page->last_key = row->key;
    return job_filter_passes(&page->filter, row) ? append_detail(page, row, err) : TALLY_OK;
}

/* Adds the next jobs to a page in the order of the store. It ends when it is full or enough rows
 * have been examined; one row more then shows that there is a next page. */
static enum tally_status list_newest(struct page *page, bool *ret_is_done, struct tally_error *err)
{
    struct tally_store *store = page->coordinator->store;
    const int wanted = job_filter_is_selective(&page->filter) ? PIECE_ROWS : PIECE_DETAILS;
    page->n_rows = page->n_details = 0;
    enum tally_status status = store->ops->job_list(store, page->filter.status, page->last_key,
                                                    wanted, add_to_page, page, err);
    *ret_is_done = page->more || (status == TALLY_OK && page->n_rows < wanted);
    return status == TALLY_CANCELLED ? TALLY_OK : status;
}

static enum tally_status read_name(struct call *call, const char **ret_name,
                                   struct tally_error *err)
{
    const char *name = tally_http_query(call->request, "name");
    const size_t n = name != NULL ? strlen(name) : 1;
    if (n < 1 || n >= TALLY_JOB_NAME_CAPACITY) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "name", "length %zu outside [1, %d]", n,
                          TALLY_JOB_NAME_CAPACITY - 1);
    }
    *ret_name = name;
    return TALLY_OK;
}

static enum tally_status read_labels(struct call *call, struct job_filter *filter,
                                     struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    const char *text;
    for (size_t i = 0;
         status == TALLY_OK && (text = tally_http_query_at(call->request, "label", i)) != NULL;
         i++) {
        if (i == TALLY_LABELS_MOST) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "label", "more than %d labels",
                              TALLY_LABELS_MOST);
        }
        status = tally_label_filter_parse(text, &filter->labels[filter->n_labels++], err);
    }
    return status;
}

static enum tally_status read_filter(struct call *call, struct job_filter *ret_filter,
                                     struct tally_error *err)
{
    const char *name = tally_http_query(call->request, "status");
    enum tally_job_status wanted = TALLY_JOB_QUEUED;
    if (name != NULL && !tally_job_status_of_name(name, &wanted)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "status", "%.32s is not a job status", name);
    }
    ret_filter->status = name != NULL ? (int)wanted : -1;
    const enum tally_status status = read_name(call, &ret_filter->name, err);
    return status == TALLY_OK ? read_labels(call, ret_filter, err) : status;
}

static enum tally_status read_order(struct call *call, struct job_order *ret_order,
                                    struct tally_error *err)
{
    const char *text = tally_http_query(call->request, "sort");
    *ret_order = JOB_ORDER_DEFAULT;
    return text != NULL ? job_order_parse(text, ret_order, err) : TALLY_OK;
}

/* Adds the job at a place, which another replica may have deleted meanwhile. */
static enum tally_status add_placed(void *context, const struct tally_store_job *row,
                                    struct tally_error *err)
{
    struct page *page = context;
    return row->key == page->last_key ? append_detail(page, row, err) : TALLY_OK;
}

/* Adds the next jobs to a page in any other order, once its places are known. */
static enum tally_status list_sorted(struct page *page, bool *ret_is_done, struct tally_error *err)
{
    struct tally_store *store = page->coordinator->store;
    const size_t n = page->sorted.places.size / sizeof(struct job_place);
    enum tally_status status = TALLY_OK;
    *ret_is_done = false;
    if (!page->is_sorted) {
        return sorted_page_read(&page->sorted, store, &page->is_sorted, err);
    }
    for (int i = 0; status == TALLY_OK && i < PIECE_DETAILS && page->n_placed < n; i++) {
        struct job_place place;
        memcpy(&place, page->sorted.places.data + page->n_placed++ * sizeof place, sizeof place);
        page->last_key = place.key;
        status = store->ops->job_list(store, -1, place.key + 1, 1, add_placed, page, err);
    }
    *ret_is_done = page->n_placed == n;
    page->more = page->sorted.has_more;
    return status;
}

static void write_cursor(const struct page *page, char ret_cursor[JOB_CURSOR_CAPACITY])
{
    if (job_order_is_default(&page->order)) {
        snprintf(ret_cursor, JOB_CURSOR_CAPACITY, "%" PRId64, page->last_key);
        return;
    }
    struct job_place last;
    memcpy(&last, page->sorted.places.data + page->sorted.places.size - sizeof last, sizeof last);
    job_order_write_cursor(&page->order, &last, ret_cursor);
}

static enum tally_status end_page(const struct page *page, struct call *call,
                                  struct tally_error *err)
{
    char cursor[JOB_CURSOR_CAPACITY];
    enum tally_status status = call_end_list(&call->body, page->n == 0);
    if (status == TALLY_OK && page->more) { /* cursors need no escapes */
        write_cursor(page, cursor);
        status = tally_buffer_printf(&call->body, "  \"next_cursor\": \"%s\"\n}\n", cursor);
    } else if (status == TALLY_OK) {
        status = tally_buffer_append_text(&call->body, "  \"next_cursor\": null\n}\n");
    }
    return call_answer_bytes(call, status, "application/json", err);
}

static enum tally_status write_page(struct call *call, struct tally_error *err)
{
    struct page *page = (struct page *)call->pieces;
    bool is_done;
    const enum tally_status status =
        (job_order_is_default(&page->order) ? list_newest : list_sorted)(page, &is_done, err);
    return status == TALLY_OK && is_done ? end_page(page, call, err) : status;
}

/* Reads the cursor of the page's order, if the request has one. */
static enum tally_status read_cursor(struct call *call, struct page *page, struct tally_error *err)
{
    const char *cursor = tally_http_query(call->request, "cursor");
    if (!job_order_is_default(&page->order)) {
        page->sorted.has_after = cursor != NULL;
        return cursor != NULL
                   ? job_order_read_cursor(&page->order, cursor, &page->sorted.after, err)
                   : TALLY_OK;
    }
    const enum tally_status status =
        cursor != NULL ? job_order_check_default_cursor(cursor, err) : TALLY_OK;
    return status == TALLY_OK ? call_read_query_integer(call, "cursor", 1, INT64_MAX, INT64_MAX,
                                                        &page->last_key, err)
                              : status;
}

enum tally_status rest_list_jobs(struct tally_coordinator *coordinator, struct call *call,
                                 struct tally_error *err)
{
    struct page *page = tally_xcalloc(1, sizeof *page);
    page->pieces = (struct response_pieces){write_page, free_page, 0};
    page->coordinator = coordinator;
    page->body = &call->body;
    call->pieces = &page->pieces;
    enum tally_status status = read_filter(call, &page->filter, err);
    if (status == TALLY_OK) {
        status = read_order(call, &page->order, err);
    }
    if (status == TALLY_OK) {
        status =
            call_read_query_integer(call, "limit", 1, MAX_PAGE, DEFAULT_PAGE, &page->limit, err);
    }
    if (status == TALLY_OK) {
        status = read_cursor(call, page, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    page->sorted.filter = &page->filter;
    page->sorted.order = page->order;
    page->sorted.limit = page->limit;
    status = tally_buffer_append_text(&call->body, "{\n  \"jobs\": [");
    return status == TALLY_OK ? write_page(call, err)
                              : tally_fail(err, status, NULL, "no memory for the list");
}

static enum tally_status fail_taken_over(const char *id, struct tally_error *err)
{
    return tally_fail(err, TALLY_UNAVAILABLE, NULL, "job %s is being taken over by a coordinator",
                      id);
}

/* cancel, pause and resume: an event of the engine, and the new detail as the response. */
static enum tally_status change(struct tally_coordinator *coordinator, struct call *call,
                                change_fn *event, const char *verb, struct tally_error *err)
{
    struct hosted_job *job = jobs_find(coordinator, call->params[0]);
    if (job == NULL) {
        struct tally_store_job row;
        enum tally_status found = jobs_read_row(coordinator, call->params[0], &row, err);
        if (found == TALLY_OK && !tally_job_status_is_terminal(row.status)) {
            return fail_taken_over(row.id, err);
        }
        return found != TALLY_OK
                   ? found
                   : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "cannot %s a job that is %s",
                                verb, tally_job_status_name(row.status));
    }
    enum tally_status status = jobs_change(coordinator, job, event, err);
    return status == TALLY_OK
               ? answer_detail(coordinator, call, 200, &job->row, &job->document, err)
               : status;
}

enum tally_status rest_cancel_job(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    return change(coordinator, call, tally_job_cancel, "cancel", err);
}

enum tally_status rest_pause_job(struct tally_coordinator *coordinator, struct call *call,
                                 struct tally_error *err)
{
    return change(coordinator, call, tally_job_pause, "pause", err);
}

enum tally_status rest_resume_job(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    return change(coordinator, call, tally_job_resume, "resume", err);
}

static enum tally_status fail_not_ended(const struct hosted_job *job, struct tally_error *err)
{
    return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                      "job %s is %s: cancel it first, or delete it with force=1 (tally delete "
                      "--force)",
                      job->row.id, tally_job_status_name(job->row.status));
}

static enum tally_status delete_stored(struct tally_coordinator *coordinator, const char *id,
                                       struct tally_error *err)
{
    struct tally_store_job row;
    enum tally_status status = jobs_read_row(coordinator, id, &row, err);
    if (status == TALLY_OK && !tally_job_status_is_terminal(row.status)) {
        return fail_taken_over(row.id, err);
    }
    return status == TALLY_OK ? jobs_delete_ended(coordinator, &row, err) : status;
}

enum tally_status rest_delete_job(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    int64_t is_forced = 0;
    struct hosted_job *job = jobs_find(coordinator, call->params[0]);
    enum tally_status status = call_read_query_integer(call, "force", 0, 1, 0, &is_forced, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (job != NULL && job->is_deleted) {
        return tally_fail(err, TALLY_NOT_FOUND, "id", "there is no job %s", call->params[0]);
    }
    if (job == NULL) {
        status = delete_stored(coordinator, call->params[0], err);
    } else if (is_forced == 0 && !tally_job_status_is_terminal(job->row.status)) {
        status = fail_not_ended(job, err);
    } else {
        status = jobs_delete_live(coordinator, job, err);
    }
    if (status == TALLY_OK) {
        call->answered = true;
        call->status = 204;
    }
    return status;
}

/* results: what a job has produced: round records, metrics and traffic of single clients, and the
 * model. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/worker/worker_messages.h"
#include "codec/numeric/checksum.h"
#include "services/coordinator/base/rooms.h"
#include "services/coordinator/jobs/live_jobs.h"
#include "services/coordinator/rest/handlers.h"
#include "services/coordinator/turn/transaction.h"
#include "services/document/detail.h"

enum { DEFAULT_PAGE = 1000, MAX_PAGE = 10000 };

/* Rounds in one piece of a response; with 16 metrics, a round takes up to 80 us. */
enum { PIECE_ROUNDS = 8 };

/* Rounds of one response, as JSON or as CSV: those that were closed when it began. */
struct rounds_pieces {
    struct response_pieces pieces; /* must be first */
    struct tally_coordinator *coordinator;
    struct tally_store_job row; /* row.progress.metrics: names that have columns in the CSV */
    bool is_csv;
    int64_t n, limit;
    int64_t last_round; /* so far */
};

static void free_rounds(struct response_pieces *pieces)
{
    free(pieces);
}

static enum tally_status add_round(void *context, const struct tally_round_record *record,
                                   struct tally_error *err)
{
    struct call *call = context;
    struct rounds_pieces *rounds = (struct rounds_pieces *)call->pieces;
    enum tally_status status = TALLY_OK;
    if (rounds->is_csv) {
        status = tally_detail_round_csv(record, rounds->row.progress.metrics, &call->body);
    } else {
        struct tally_json *object = tally_detail_round(record);
        status = append_element(&call->body, rounds->n == 0, object);
        tally_json_free(object);
    }
    rounds->n++;
    rounds->last_round = record->round;
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for rounds");
}

/* Fails because the store has no round after the last one: the job was deleted meanwhile. */
static enum tally_status fail_missing(const struct rounds_pieces *rounds, struct tally_error *err)
{
    struct tally_store_job row;
    const enum tally_status status = read_row(rounds->coordinator, rounds->row.id, &row, err);
    return status == TALLY_OK
               ? tally_fail(err, TALLY_DATA_LOSS, NULL, "no round after %lld of %lld",
                            (long long)rounds->last_round, (long long)rounds->row.progress.round)
               : status;
}

static enum tally_status end_rounds(struct call *call, const struct rounds_pieces *rounds,
                                    bool is_last, struct tally_error *err)
{
    if (rounds->is_csv) {
        return answer_bytes(call, TALLY_OK, "text/csv; charset=utf-8", err);
    }
    enum tally_status status = end_list(&call->body, rounds->n == 0);
    if (status == TALLY_OK && is_last) {
        status = tally_buffer_append_text(&call->body, "  \"next_after\": null\n}\n");
    } else if (status == TALLY_OK) {
        status = tally_buffer_printf(&call->body, "  \"next_after\": %" PRId64 "\n}\n",
                                     rounds->last_round);
    }
    return answer_bytes(call, status, "application/json", err);
}

static enum tally_status write_rounds(struct call *call, struct tally_error *err)
{
    struct rounds_pieces *rounds = (struct rounds_pieces *)call->pieces;
    struct tally_store *store = rounds->coordinator->store;
    const size_t most_bytes = rounds->coordinator->config.max_held_bytes;
    const int64_t n_before = rounds->n, lacking = rounds->row.progress.round - rounds->last_round;
    int64_t n = rounds->limit - rounds->n < lacking ? rounds->limit - rounds->n : lacking;
    n = n < PIECE_ROUNDS ? n : PIECE_ROUNDS;
    if (n <= 0) {
        return end_rounds(call, rounds, lacking <= 0, err);
    }
    enum tally_status status =
        store->ops->round_list(store, rounds->row.key, rounds->last_round, n, add_round, call, err);
    if (status == TALLY_OK && rounds->n == n_before) {
        return fail_missing(rounds, err);
    }
    if (status == TALLY_OK && most_bytes > 0 && call->body.size > most_bytes) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "after",
                          "the rounds up to %lld take more than %zu bytes (--max-held-bytes): ask "
                          "for pages of /v1/jobs/%s/rounds",
                          (long long)rounds->row.progress.round, most_bytes, rounds->row.id);
    }
    return status;
}

static enum tally_status begin_rounds(struct tally_coordinator *coordinator, struct call *call,
                                      bool is_csv, struct tally_error *err)
{
    struct rounds_pieces *rounds = calloc(1, sizeof *rounds);
    if (rounds == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for rounds");
    }
    rounds->pieces = (struct response_pieces){write_rounds, free_rounds, 0};
    rounds->coordinator = coordinator;
    rounds->is_csv = is_csv;
    rounds->limit = INT64_MAX;
    call->pieces = &rounds->pieces;
    enum tally_status status = read_row(coordinator, call->params[0], &rounds->row, err);
    if (status == TALLY_OK) {
        status = read_query_integer(call, "after", 0, INT64_MAX, 0, &rounds->last_round, err);
    }
    if (status == TALLY_OK && !is_csv) {
        status = read_query_integer(call, "limit", 1, MAX_PAGE, DEFAULT_PAGE, &rounds->limit, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = is_csv ? tally_detail_round_csv_header(rounds->row.progress.metrics, &call->body)
                    : tally_buffer_append_text(&call->body, "{\n  \"rounds\": [");
    return status == TALLY_OK ? write_rounds(call, err)
                              : tally_fail(err, status, NULL, "no memory for rounds");
}

enum tally_status get_rounds(struct tally_coordinator *coordinator, struct call *call,
                             struct tally_error *err)
{
    return begin_rounds(coordinator, call, false, err);
}

enum tally_status get_rounds_csv(struct tally_coordinator *coordinator, struct call *call,
                                 struct tally_error *err)
{
    return begin_rounds(coordinator, call, true, err);
}

/* Metrics of single clients: those of the last closed round that has any. */

/* Clients of one response. */
struct clients_page {
    struct tally_json *list;
    int64_t round;          /* 0 = no client has reported anything */
    int64_t first, limit;   /* clients below `first` are left out */
    int64_t n, next_client; /* -1 = there are no more */
};

static enum tally_status read_page(struct call *call, struct clients_page *page,
                                   struct tally_error *err)
{
    enum tally_status status =
        read_query_integer(call, "first", 0, INT64_MAX, 0, &page->first, err);
    return status == TALLY_OK
               ? read_query_integer(call, "limit", 1, MAX_PAGE, DEFAULT_PAGE, &page->limit, err)
               : status;
}

static bool append_client(struct tally_json *list, const struct tally_update *update)
{
    struct tally_json *metrics = tally_json_object(), *object = tally_json_object();
    bool ok = true;
    for (size_t i = 0; ok && i < update->n_metrics; i++) {
        ok = tally_json_set_real(metrics, update->metrics[i].name, update->metrics[i].value);
    }
    ok = tally_json_set_integer(object, "client", update->client) && ok;
    ok = tally_json_set(object, "metrics", metrics) && ok;
    object = tally_json_if_complete(object, ok);
    return object != NULL && tally_json_append(list, object);
}

static enum tally_status add_update(struct clients_page *page, const struct tally_update *update,
                                    struct tally_error *err)
{
    if (update->client < page->first || page->next_client >= 0) {
        return TALLY_OK;
    }
    if (page->n == page->limit) {
        page->next_client = update->client;
        return TALLY_OK;
    }
    page->n++;
    return append_client(page->list, update)
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' metrics");
}

/* One block of clients, as stored (jobs/hosted_job.h). */
static enum tally_status add_block(void *context, const struct tally_store_update *stored,
                                   struct tally_error *err)
{
    struct clients_page *page = context;
    struct tally_updates block;
    struct tally_update update;
    enum tally_status status = tally_updates_decode(stored->body, stored->n_body, &block, err);
    for (size_t i = 0; status == TALLY_OK && i < block.n_updates; i++) {
        page->round = block.round;
        status = tally_updates_next(&block, &update, err);
        if (status == TALLY_OK) {
            status = add_update(page, &update, err);
        }
    }
    return status == TALLY_OK || status == TALLY_NO_MEMORY ? status : TALLY_DATA_LOSS;
}

static struct tally_json *answer_of(const struct clients_page *page)
{
    struct tally_json *answer = tally_json_object();
    bool ok = page->round > 0 ? tally_json_set_integer(answer, "round", page->round)
                              : tally_json_set_null(answer, "round");
    ok = tally_json_set(answer, "clients", page->list) && ok;
    ok = (page->next_client >= 0 ? tally_json_set_integer(answer, "next_client", page->next_client)
                                 : tally_json_set_null(answer, "next_client")) &&
         ok;
    return tally_json_if_complete(answer, ok);
}

enum tally_status get_client_metrics(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct tally_store_job row;
    struct clients_page page = {.next_client = -1};
    enum tally_status status = read_row(coordinator, call->params[0], &row, err);
    if (status == TALLY_OK) {
        status = read_page(call, &page, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    page.list = tally_json_array();
    status =
        store->ops->update_list(store, row.key, TALLY_STORE_METRICS_ROUND, add_block, &page, err);
    struct tally_json *answer = answer_of(&page); /* owns the list in any case */
    if (status == TALLY_OK) {
        return answer_json(call, 200, answer, err);
    }
    tally_json_free(answer);
    return status;
}

/* Traffic of single clients: those that have any. */

static bool has_traffic(const struct client_traffic *client)
{
    return client->updates > 0 || client->payload_bits > 0 || client->wire_bytes[TRAFFIC_IN] > 0 ||
           client->wire_bytes[TRAFFIC_OUT] > 0;
}

/* Subtracts a client's bytes from the job's; gives 0 if the client's are newer than the job's. */
static void take_from(uint64_t *rest, uint64_t bytes)
{
    *rest = *rest > bytes ? *rest - bytes : 0;
}

static struct tally_json *wire_bytes_of(uint64_t in, uint64_t out)
{
    struct tally_json *object = tally_json_object();
    const bool ok =
        tally_json_set_unsigned(object, "in", in) && tally_json_set_unsigned(object, "out", out);
    return tally_json_if_complete(object, ok);
}

static bool append_traffic(struct tally_json *list, uint32_t client,
                           const struct client_traffic *traffic)
{
    struct tally_json *object = tally_json_object();
    const uint64_t *bytes = traffic->wire_bytes;
    const bool ok =
        tally_json_set_integer(object, "client", client) &&
        tally_json_set_unsigned(object, "updates", traffic->updates) &&
        tally_json_set_unsigned(object, "payload_bits", traffic->payload_bits) &&
        tally_json_set(object, "wire_bytes", wire_bytes_of(bytes[TRAFFIC_IN], bytes[TRAFFIC_OUT]));
    object = tally_json_if_complete(object, ok);
    return object != NULL && tally_json_append(list, object);
}

/* Makes the page, with the job's bytes that belong to no client. `in` and `out`: the job's bytes.
 */
static struct tally_json *traffic_answer(const struct client_traffic *clients, int64_t n,
                                         uint64_t in, uint64_t out, struct clients_page *page)
{
    struct tally_json *answer = tally_json_object();
    bool ok = true;
    page->list = tally_json_array();
    for (int64_t m = 0; m < n; m++) {
        const uint64_t *bytes = clients[m].wire_bytes;
        take_from(&in, bytes[TRAFFIC_IN]);
        take_from(&out, bytes[TRAFFIC_OUT]);
        if (m < page->first || !has_traffic(&clients[m])) {
            continue;
        }
        if (page->n < page->limit) {
            page->n++;
            ok = append_traffic(page->list, (uint32_t)m, &clients[m]) && ok;
        } else if (page->next_client < 0) {
            page->next_client = m;
        }
    }
    ok = tally_json_set(answer, "clients", page->list) && ok;
    ok = (page->next_client >= 0 ? tally_json_set_integer(answer, "next_client", page->next_client)
                                 : tally_json_set_null(answer, "next_client")) &&
         ok;
    ok = tally_json_set(answer, "other_wire_bytes", wire_bytes_of(in, out)) && ok;
    return tally_json_if_complete(answer, ok);
}

enum tally_status get_client_traffic(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_error *err)
{
    struct tally_store_job row;
    struct clients_page page = {.next_client = -1};
    const struct hosted_job *job = find_job(coordinator, call->params[0]);
    struct client_traffic *stored = NULL;
    enum tally_status status = read_page(call, &page, err);
    if (status == TALLY_OK && job != NULL && job->traffic != NULL) {
        return answer_json(call, 200,
                           traffic_answer(job->traffic, job->row.clients, job->wire_in_bytes,
                                          job->wire_out_bytes, &page),
                           err);
    }
    if (status == TALLY_OK) {
        status = read_row(coordinator, call->params[0], &row, err);
    }
    if (status == TALLY_OK) {
        stored = calloc((size_t)row.clients, sizeof *stored);
        status = stored != NULL
                     ? traffic_get(coordinator->store, &row, stored, err)
                     : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' traffic");
    }
    if (status == TALLY_OK) { /* read again: the job's leader may have written both meanwhile */
        status = read_row(coordinator, call->params[0], &row, err);
    }
    if (status == TALLY_OK) {
        status = answer_json(
            call, 200,
            traffic_answer(stored, row.clients, row.wire_in_bytes, row.wire_out_bytes, &page), err);
    }
    free(stored);
    return status;
}

/* Finds the job, or loads it with its engine, since only the engine can read the point from the
 * state. */
static enum tally_status with_engine(struct tally_coordinator *coordinator, const char *id,
                                     struct hosted_job **ret_job, bool *ret_owned,
                                     struct tally_error *err)
{
    *ret_owned = false;
    *ret_job = find_job(coordinator, id);
    if (*ret_job != NULL) {
        return TALLY_OK;
    }
    struct tally_store_job row;
    enum tally_status status = read_row(coordinator, id, &row, err);
    if (status == TALLY_OK && !tally_job_status_is_terminal(row.status)) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "job %s is being taken over by a coordinator", id);
    }
    if (status == TALLY_OK) {
        status = hosted_job_load(coordinator->store, &row, ret_job, err);
        *ret_owned = status == TALLY_OK;
    }
    return status;
}

/* Writing a number as JSON takes most of a microsecond, so a model of a million numbers would block
 * the loop, and the renewal of leases, for a second. The text is therefore made in pieces. It is
 * made from a copy of the point, because the job continues meanwhile. */
enum { MAX_JSON_DIM = 1000000, PIECE_DIM = 4096 };

struct model_pieces {
    struct response_pieces pieces; /* must be first */
    double *x;                     /* double[dim] */
    size_t dim, n_written;
};

static void free_model(struct response_pieces *pieces)
{
    struct model_pieces *model = (struct model_pieces *)pieces;
    free(model->x);
    free(model);
}

static enum tally_status write_model(struct call *call, struct tally_error *err)
{
    struct model_pieces *model = (struct model_pieces *)call->pieces;
    enum tally_status status = TALLY_OK;
    for (int i = 0; status == TALLY_OK && i < PIECE_DIM && model->n_written < model->dim; i++) {
        status =
            tally_buffer_append_text(&call->body, model->n_written == 0 ? "\n    " : ",\n    ");
        if (status == TALLY_OK) {
            status = tally_json_dump_real(model->x[model->n_written++], &call->body);
        }
    }
    if (status == TALLY_OK && model->n_written < model->dim) {
        return TALLY_OK;
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&call->body, "\n  ]\n}\n");
    }
    return answer_bytes(call, status, "application/json", err);
}

/* The text up to and including the "[" before the point. */
static enum tally_status begin_model(const struct hosted_job *job, const double *x, size_t dim,
                                     struct tally_buffer *out)
{
    const struct tally_progress *progress = tally_job_progress(job->engine);
    char checksum[17];
    tally_detail_checksum(progress->x_checksum != 0 ? progress->x_checksum
                                                    : tally_checksum64(x, dim * sizeof *x),
                          checksum);
    struct tally_json *model = tally_json_object();
    const bool ok = tally_json_set_text(model, "job_id", job->row.id) &&
                    tally_json_set_integer(model, "iterate", progress->iterate) &&
                    tally_json_set_text(model, "x_checksum", checksum) &&
                    tally_json_set(model, "x", tally_json_array());
    const enum tally_status status = ok ? tally_json_dump(model, 2, out) : TALLY_NO_MEMORY;
    tally_json_free(model);
    if (status == TALLY_OK) {
        out->size -= strlen("]\n}");
    }
    return status;
}

static enum tally_status model_json(const struct hosted_job *job, const double *x, size_t dim,
                                    struct call *call, struct tally_error *err)
{
    struct model_pieces *model = calloc(1, sizeof *model);
    double *copy = malloc(dim * sizeof *copy);
    if (model == NULL || copy == NULL || begin_model(job, x, dim, &call->body) != TALLY_OK) {
        free(model);
        free(copy);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the model");
    }
    memcpy(copy, x, dim * sizeof *copy);
    *model = (struct model_pieces){
        .pieces = {write_model, free_model, dim * sizeof *copy}, .x = copy, .dim = dim};
    call->pieces = &model->pieces;
    return write_model(call, err);
}

/* Responds with the job's point; for a job that has not started, makes the initial one. */
static enum tally_status answer_model(const struct hosted_job *job, bool npy, struct call *call,
                                      struct tally_error *err)
{
    if (!npy && job->row.dim > MAX_JSON_DIM) {
        return tally_fail(err, TALLY_NOT_ACCEPTABLE, "Accept",
                          "a model of %lld coordinates is available only as application/x-npy; "
                          "application/json has at most %d",
                          (long long)job->row.dim, (int)MAX_JSON_DIM);
    }
    size_t dim;
    double *initial = NULL;
    const double *x = tally_job_point(job->engine, &dim);
    if (x == NULL) {
        enum tally_status status = tally_job_make_initial_point(&job->spec, &initial, err);
        if (status != TALLY_OK) {
            return status;
        }
        x = initial;
    }
    enum tally_status status =
        npy ? answer_bytes(call, tally_detail_npy(x, dim, &call->body), "application/x-npy", err)
            : model_json(job, x, dim, call, err);
    free(initial);
    return status;
}

enum tally_status get_model(struct tally_coordinator *coordinator, struct call *call,
                            struct tally_error *err)
{
    const char *accept = tally_http_header(call->request, "Accept");
    const bool any = accept == NULL || accepts(accept, "*/*") || accepts(accept, "application/*");
    const bool npy = accept != NULL && accepts(accept, "application/x-npy");
    if (!any && !npy && !accepts(accept, "application/json")) {
        return tally_fail(err, TALLY_NOT_ACCEPTABLE, "Accept",
                          "a model is application/json or application/x-npy");
    }
    struct hosted_job *job;
    bool owned;
    enum tally_status status = with_engine(coordinator, call->params[0], &job, &owned, err);
    if (status == TALLY_OK) {
        status = answer_model(job, npy, call, err);
        if (owned) {
            hosted_job_free(job);
        }
    }
    return status;
}

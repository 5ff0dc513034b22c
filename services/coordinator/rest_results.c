/* rest_results: what a job has produced: round records, metrics and traffic of single clients, and
 * the models. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/worker/worker_messages.h"
#include "codec/numeric/checksum.h"
#include "services/base/alloc.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/jobs_models.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/rest_routes.h"
#include "services/job/job_detail.h"

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
        status = call_append_element(&call->body, rounds->n == 0, object);
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
    const enum tally_status status = jobs_read_row(rounds->coordinator, rounds->row.id, &row, err);
    return status == TALLY_OK
               ? tally_fail(err, TALLY_DATA_LOSS, NULL, "no round after %lld of %lld",
                            (long long)rounds->last_round, (long long)rounds->row.progress.round)
               : status;
}

static enum tally_status end_rounds(struct call *call, const struct rounds_pieces *rounds,
                                    bool is_last, struct tally_error *err)
{
    if (rounds->is_csv) {
        return call_answer_bytes(call, TALLY_OK, "text/csv; charset=utf-8", err);
    }
    enum tally_status status = call_end_list(&call->body, rounds->n == 0);
    if (status == TALLY_OK && is_last) {
        status = tally_buffer_append_text(&call->body, "  \"next_after\": null\n}\n");
    } else if (status == TALLY_OK) {
        status = tally_buffer_printf(&call->body, "  \"next_after\": %" PRId64 "\n}\n",
                                     rounds->last_round);
    }
    return call_answer_bytes(call, status, "application/json", err);
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
    struct rounds_pieces *rounds = tally_xcalloc(1, sizeof *rounds);
    rounds->pieces = (struct response_pieces){write_rounds, free_rounds, 0};
    rounds->coordinator = coordinator;
    rounds->is_csv = is_csv;
    rounds->limit = INT64_MAX;
    call->pieces = &rounds->pieces;
    enum tally_status status = jobs_read_row(coordinator, call->params[0], &rounds->row, err);
    if (status == TALLY_OK) {
        status = call_read_query_integer(call, "after", 0, INT64_MAX, 0, &rounds->last_round, err);
    }
    if (status == TALLY_OK && !is_csv) {
        status =
            call_read_query_integer(call, "limit", 1, MAX_PAGE, DEFAULT_PAGE, &rounds->limit, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = is_csv ? tally_detail_round_csv_header(rounds->row.progress.metrics, &call->body)
                    : tally_buffer_append_text(&call->body, "{\n  \"rounds\": [");
    return status == TALLY_OK ? write_rounds(call, err)
                              : tally_fail(err, status, NULL, "no memory for rounds");
}

enum tally_status rest_get_rounds(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    return begin_rounds(coordinator, call, false, err);
}

enum tally_status rest_get_rounds_csv(struct tally_coordinator *coordinator, struct call *call,
                                      struct tally_error *err)
{
    return begin_rounds(coordinator, call, true, err);
}

/* Clients of one response, in pieces. */

/* Work of one piece, and of a client that the response has. With 16 metrics, such a client takes
 * 100 us, one that is left out 4. */
enum { PIECE_WORK = 128, CLIENT_WORK = 16 };

struct clients_page {
    int64_t first, limit;   /* clients below `first` are left out */
    int64_t n, next_client; /* -1 = there are no more */
};

static enum tally_status read_page(struct call *call, struct clients_page *page,
                                   struct tally_error *err)
{
    enum tally_status status =
        call_read_query_integer(call, "first", 0, INT64_MAX, 0, &page->first, err);
    page->n = 0;
    page->next_client = -1;
    return status == TALLY_OK ? call_read_query_integer(call, "limit", 1, MAX_PAGE, DEFAULT_PAGE,
                                                        &page->limit, err)
                              : status;
}

/* Takes `object`. */
static enum tally_status add_client(struct call *call, struct clients_page *page,
                                    struct tally_json *object)
{
    const enum tally_status status = call_append_element(&call->body, page->n++ == 0, object);
    tally_json_free(object);
    return status;
}

/* Ends the list of clients. `end` follows the next client. */
static enum tally_status end_clients(struct call *call, const struct clients_page *page,
                                     const char *end, struct tally_error *err)
{
    enum tally_status status = call_end_list(&call->body, page->n == 0);
    if (status == TALLY_OK && page->next_client < 0) {
        status = tally_buffer_append_text(&call->body, "  \"next_client\": null");
    } else if (status == TALLY_OK) {
        status = tally_buffer_printf(&call->body, "  \"next_client\": %" PRId64, page->next_client);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&call->body, end);
    }
    return call_answer_bytes(call, status, "application/json", err);
}

/* Metrics of single clients: those of the last closed round that has any. */

/* A response while it is made, from a copy of the blocks (hosted_job.h), because the next
 * round that closes replaces them. */
struct metrics_pieces {
    struct response_pieces pieces; /* must be first */
    struct clients_page page;
    struct tally_buffer blocks; /* each after its length, a size_t */
    int64_t n_after;            /* clients of the blocks that only have clients above page.first */
    size_t n_read;              /* bytes of the blocks */
    struct tally_update_request block; /* the last one read */
    size_t n_left;                     /* of its clients */
};

static void free_metrics(struct response_pieces *pieces)
{
    struct metrics_pieces *made = (struct metrics_pieces *)pieces;
    tally_buffer_fini(&made->blocks);
    free(made);
}

/* Whether the block has only clients above `first`. */
static enum tally_status is_after(struct tally_update_request block, int64_t first,
                                  bool *ret_is_after, struct tally_error *err)
{
    struct tally_update update;
    enum tally_status status = tally_update_request_next(&block, &update, err);
    *ret_is_after = status == TALLY_OK && update.client > first;
    return status;
}

/* Keeps a block. Drops those before it if it shows that the page begins behind them, because
 * clients ascend. CANCELLED: the page ends before this block. */
static enum tally_status keep_block(void *context, const struct tally_store_update *stored,
                                    struct tally_error *err)
{
    struct metrics_pieces *made = context;
    struct tally_update_request block;
    bool comes_after = false;
    enum tally_status status =
        tally_update_request_decode(stored->body, stored->n_body, &block, err);
    if (status == TALLY_OK) {
        status = is_after(block, made->page.first, &comes_after, err);
    }
    if (status != TALLY_OK) {
        return TALLY_DATA_LOSS;
    }
    if (!comes_after) {
        made->blocks.size = 0;
    } else if (made->n_after > made->page.limit) {
        return TALLY_CANCELLED;
    } else {
        made->n_after += (int64_t)block.n_updates;
    }
    status = tally_buffer_append(&made->blocks, &stored->n_body, sizeof stored->n_body);
    if (status == TALLY_OK) {
        status = tally_buffer_append(&made->blocks, stored->body, stored->n_body);
    }
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "no memory for the clients' metrics");
}

/* Reads the header of the next block. There must be one. */
static enum tally_status begin_block(struct metrics_pieces *made, struct tally_error *err)
{
    size_t n;
    const uint8_t *at = made->blocks.data + made->n_read;
    memcpy(&n, at, sizeof n);
    made->n_read += sizeof n + n;
    enum tally_status status = tally_update_request_decode(at + sizeof n, n, &made->block, err);
    made->n_left = status == TALLY_OK ? made->block.n_updates : 0;
    return status;
}

static struct tally_json *metrics_of(const struct tally_update *update)
{
    struct tally_json *metrics = tally_json_object(), *object = tally_json_object();
    bool ok = true;
    for (size_t i = 0; ok && i < update->n_metrics; i++) {
        ok = tally_json_set_real(metrics, update->metrics[i].name, update->metrics[i].value);
    }
    ok = tally_json_set_integer(object, "client", update->client) && ok;
    ok = tally_json_set(object, "metrics", metrics) && ok;
    return tally_json_if_complete(object, ok);
}

/* Reads the next client of the block. */
static enum tally_status take_client(struct call *call, struct metrics_pieces *made, int *work,
                                     struct tally_error *err)
{
    struct clients_page *page = &made->page;
    struct tally_update update;
    if (tally_update_request_next(&made->block, &update, err) != TALLY_OK) {
        return TALLY_DATA_LOSS;
    }
    made->n_left--;
    *work += 1;
    if (update.client < page->first) {
        return TALLY_OK;
    }
    if (page->n == page->limit) {
        page->next_client = update.client;
        return TALLY_OK;
    }
    *work += CLIENT_WORK;
    const enum tally_status status = add_client(call, page, metrics_of(&update));
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "no memory for the clients' metrics");
}

static enum tally_status write_metrics(struct call *call, struct tally_error *err)
{
    struct metrics_pieces *made = (struct metrics_pieces *)call->pieces;
    enum tally_status status = TALLY_OK;
    for (int work = 0; status == TALLY_OK && work < PIECE_WORK && made->page.next_client < 0;) {
        if (made->n_left > 0) {
            status = take_client(call, made, &work, err);
        } else if (made->n_read < made->blocks.size) {
            status = begin_block(made, err);
        } else {
            break;
        }
    }
    const bool is_over = made->n_left == 0 && made->n_read == made->blocks.size;
    if (status != TALLY_OK || (!is_over && made->page.next_client < 0)) {
        return status;
    }
    return end_clients(call, &made->page, "\n}\n", err);
}

enum tally_status rest_get_client_metrics(struct tally_coordinator *coordinator, struct call *call,
                                          struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct tally_store_job row;
    struct metrics_pieces *made = tally_xcalloc(1, sizeof *made);
    made->pieces = (struct response_pieces){write_metrics, free_metrics, 0};
    call->pieces = &made->pieces;
    enum tally_status status = jobs_read_row(coordinator, call->params[0], &row, err);
    if (status == TALLY_OK) {
        status = read_page(call, &made->page, err);
    }
    if (status == TALLY_OK) {
        status = store->ops->update_list(store, row.key, TALLY_STORE_METRICS_ROUND, keep_block,
                                         made, err);
        status = status == TALLY_CANCELLED ? TALLY_OK : status;
    }
    if (status == TALLY_OK && made->blocks.size > 0) {
        status = begin_block(made, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    made->pieces.n_bytes = made->blocks.capacity;
    status = made->blocks.size > 0
                 ? tally_buffer_printf(&call->body, "{\n  \"round\": %" PRIu32, made->block.round)
                 : tally_buffer_append_text(&call->body, "{\n  \"round\": null");
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&call->body, ",\n  \"clients\": [");
    }
    return status == TALLY_OK ? write_metrics(call, err)
                              : tally_fail(err, status, NULL, "no memory for the clients' metrics");
}

/* Traffic of single clients: those that have any. */

/* A response while it is made, from a copy of the page, because the job continues meanwhile. */
struct traffic_pieces {
    struct response_pieces pieces; /* must be first */
    struct clients_page page;
    struct page_client {
        uint32_t client;
        struct client_traffic traffic;
    } * clients;       /* [page.limit] */
    int64_t n_clients; /* page.n of them are written */
    uint64_t in, out;  /* the job's bytes that belong to no client */
};

static void free_traffic(struct response_pieces *pieces)
{
    struct traffic_pieces *made = (struct traffic_pieces *)pieces;
    free(made->clients);
    free(made);
}

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

static struct tally_json *traffic_of(const struct page_client *client)
{
    struct tally_json *object = tally_json_object();
    const uint64_t *bytes = client->traffic.wire_bytes;
    const bool ok =
        tally_json_set_integer(object, "client", client->client) &&
        tally_json_set_unsigned(object, "updates", client->traffic.updates) &&
        tally_json_set_unsigned(object, "payload_bits", client->traffic.payload_bits) &&
        tally_json_set(object, "wire_bytes", wire_bytes_of(bytes[TRAFFIC_IN], bytes[TRAFFIC_OUT]));
    return tally_json_if_complete(object, ok);
}

static enum tally_status write_traffic(struct call *call, struct tally_error *err)
{
    struct traffic_pieces *made = (struct traffic_pieces *)call->pieces;
    struct clients_page *page = &made->page;
    enum tally_status status = TALLY_OK;
    for (int work = 0; status == TALLY_OK && work < PIECE_WORK && page->n < made->n_clients;
         work++) {
        status = add_client(call, page, traffic_of(&made->clients[page->n]));
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for the clients' traffic");
    }
    if (page->n < made->n_clients) {
        return TALLY_OK;
    }
    char end[128];
    snprintf(end, sizeof end,
             ",\n  \"other_wire_bytes\": {\"in\": %" PRIu64 ", \"out\": %" PRIu64 "}\n}\n",
             made->in, made->out);
    return end_clients(call, page, end, err);
}

/* Takes the page out of the traffic of n clients. `in` and `out`: the job's bytes. */
static enum tally_status begin_traffic(struct call *call, const struct client_traffic *clients,
                                       int64_t n, uint64_t in, uint64_t out,
                                       struct tally_error *err)
{
    struct traffic_pieces *made = (struct traffic_pieces *)call->pieces;
    struct clients_page *page = &made->page;
    const size_t n_bytes = (size_t)(page->limit < n ? page->limit : n) * sizeof *made->clients;
    made->clients = malloc(n_bytes);
    if (made->clients == NULL ||
        tally_buffer_append_text(&call->body, "{\n  \"clients\": [") != TALLY_OK) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' traffic");
    }
    made->pieces.n_bytes = n_bytes;
    for (int64_t m = 0; m < n; m++) {
        take_from(&in, clients[m].wire_bytes[TRAFFIC_IN]);
        take_from(&out, clients[m].wire_bytes[TRAFFIC_OUT]);
        if (m < page->first || page->next_client >= 0 || !has_traffic(&clients[m])) {
            continue;
        }
        if (made->n_clients < page->limit) {
            made->clients[made->n_clients++] = (struct page_client){(uint32_t)m, clients[m]};
        } else {
            page->next_client = m;
        }
    }
    made->in = in;
    made->out = out;
    return write_traffic(call, err);
}

static enum tally_status begin_stored_traffic(struct tally_coordinator *coordinator,
                                              struct call *call, struct tally_error *err)
{
    struct tally_store_job row;
    struct client_traffic *stored = NULL;
    enum tally_status status = jobs_read_row(coordinator, call->params[0], &row, err);
    if (status == TALLY_OK) {
        stored = calloc((size_t)row.clients, sizeof *stored);
        status = stored != NULL
                     ? traffic_get(coordinator->store, &row, stored, err)
                     : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' traffic");
    }
    if (status == TALLY_OK) { /* read again: the job's leader may have written both meanwhile */
        status = jobs_read_row(coordinator, call->params[0], &row, err);
    }
    if (status == TALLY_OK) {
        status =
            begin_traffic(call, stored, row.clients, row.wire_in_bytes, row.wire_out_bytes, err);
    }
    free(stored);
    return status;
}

enum tally_status rest_get_client_traffic(struct tally_coordinator *coordinator, struct call *call,
                                          struct tally_error *err)
{
    struct traffic_pieces *made = tally_xcalloc(1, sizeof *made);
    made->pieces = (struct response_pieces){write_traffic, free_traffic, 0};
    call->pieces = &made->pieces;
    enum tally_status status = read_page(call, &made->page, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct hosted_job *job = jobs_find(coordinator, call->params[0]);
    return job != NULL && job->traffic != NULL
               ? begin_traffic(call, job->traffic, job->row.clients, job->wire_in_bytes,
                               job->wire_out_bytes, err)
               : begin_stored_traffic(coordinator, call, err);
}

/* Writing a number as JSON takes most of a microsecond, so a model of a million numbers would block
 * the loop, and the renewal of leases, for a second. The text is therefore made in pieces. It is
 * made from a copy of the point, because the job continues meanwhile. */
enum { MAX_JSON_DIM = 1000000, PIECE_DIM = 4096 };

struct model_pieces {
    struct response_pieces pieces; /* must be first */
    double *x;                     /* double[dim] */
    size_t dim, n_written;
    size_t row; /* the numbers of a row, which is an array of its own; 0 = there are no rows */
};

/* What comes before the next number. */
static const char *separator_of(const struct model_pieces *model)
{
    const bool is_first = model->n_written == 0;
    if (model->row == 0) {
        return is_first ? "\n    " : ",\n    ";
    }
    return is_first ? "\n    [" : model->n_written % model->row == 0 ? "],\n    [" : ", ";
}

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
        status = tally_buffer_append_text(&call->body, separator_of(model));
        if (status == TALLY_OK) {
            status = tally_json_dump_real(model->x[model->n_written++], &call->body);
        }
    }
    if (status == TALLY_OK && model->n_written < model->dim) {
        return TALLY_OK;
    }
    if (status == TALLY_OK) {
        status =
            tally_buffer_append_text(&call->body, model->row > 0 ? "]\n  ]\n}\n" : "\n  ]\n}\n");
    }
    return call_answer_bytes(call, status, "application/json", err);
}

/* A point with what is told about it. */
struct shown_model {
    const char *job_id;
    int64_t round, iterate;
    uint64_t checksum;
    const double *x; /* double[dim] */
    size_t dim;
};

/* The text up to and including the "[" before the point. */
static enum tally_status begin_model(const struct shown_model *shown, struct tally_buffer *out)
{
    char checksum[17];
    tally_detail_checksum(shown->checksum, checksum);
    struct tally_json *model = tally_json_object();
    const bool ok = tally_json_set_text(model, "job_id", shown->job_id) &&
                    tally_json_set_integer(model, "round", shown->round) &&
                    tally_json_set_integer(model, "iterate", shown->iterate) &&
                    tally_json_set_text(model, "x_checksum", checksum) &&
                    tally_json_set(model, "x", tally_json_array());
    const enum tally_status status = ok ? tally_json_dump(model, 2, out) : TALLY_NO_MEMORY;
    tally_json_free(model);
    if (status == TALLY_OK) {
        out->size -= strlen("]\n}");
    }
    return status;
}

/* Writes n numbers after the text that begins the response, from a copy; `row` as in
 * model_pieces. */
static enum tally_status write_numbers(const double *x, size_t n, size_t row, struct call *call,
                                       struct tally_error *err)
{
    const size_t n_bytes = n * sizeof *x;
    struct model_pieces *model = calloc(1, sizeof *model);
    double *copy = malloc(n_bytes);
    if (model == NULL || copy == NULL) {
        free(model);
        free(copy);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu numbers", n);
    }
    memcpy(copy, x, n_bytes);
    *model = (struct model_pieces){
        .pieces = {write_model, free_model, n_bytes}, .x = copy, .dim = n, .row = row};
    call->pieces = &model->pieces;
    return write_model(call, err);
}

static enum tally_status model_json(const struct shown_model *shown, struct call *call,
                                    struct tally_error *err)
{
    return begin_model(shown, &call->body) == TALLY_OK
               ? write_numbers(shown->x, shown->dim, 0, call, err)
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the model");
}

static enum tally_status answer_shown(const struct shown_model *shown, bool npy, struct call *call,
                                      struct tally_error *err)
{
    return npy ? call_answer_bytes(call, tally_detail_npy(shown->x, shown->dim, &call->body),
                                   "application/x-npy", err)
               : model_json(shown, call, err);
}

static enum tally_status check_format(bool npy, int64_t dim, struct tally_error *err)
{
    return npy || dim <= MAX_JSON_DIM
               ? TALLY_OK
               : tally_fail(err, TALLY_NOT_ACCEPTABLE, "Accept",
                            "a model of %lld coordinates is available only as application/x-npy; "
                            "application/json has at most %d",
                            (long long)dim, (int)MAX_JSON_DIM);
}

/* Responds with the job's point; for a job that has not started, makes the initial one. */
static enum tally_status answer_model(const struct hosted_job *job, bool npy, struct call *call,
                                      struct tally_error *err)
{
    enum tally_status status = check_format(npy, job->row.dim, err);
    if (status != TALLY_OK) {
        return status;
    }
    size_t dim;
    double *initial = NULL;
    const double *x = tally_job_point(job->engine, &dim);
    if (x == NULL) {
        status = tally_job_make_initial_point(&job->spec, &initial, err);
        if (status != TALLY_OK) {
            return status;
        }
        x = initial;
    }
    const struct tally_progress *progress = tally_job_progress(job->engine);
    const struct shown_model shown = {.job_id = job->row.id,
                                      .round = progress->round,
                                      .iterate = progress->iterate,
                                      .checksum = progress->x_checksum != 0
                                                      ? progress->x_checksum
                                                      : tally_checksum64(x, dim * sizeof *x),
                                      .x = x,
                                      .dim = dim};
    status = answer_shown(&shown, npy, call, err);
    free(initial);
    return status;
}

/* Responds with a kept model. */
static enum tally_status answer_kept(struct tally_coordinator *coordinator,
                                     const struct tally_store_job *row,
                                     const struct tally_store_model *model, bool npy,
                                     struct call *call, struct tally_error *err)
{
    struct tally_buffer x = {0};
    enum tally_status status = check_format(npy, row->dim, err);
    if (status == TALLY_OK) {
        status = jobs_load_model(coordinator, row, model, &x, err);
    }
    if (status == TALLY_OK) {
        const struct shown_model shown = {.job_id = row->id,
                                          .round = model->round,
                                          .iterate = model->iterate,
                                          .checksum = model->x_checksum,
                                          .x = (const double *)(const void *)x.data,
                                          .dim = (size_t)row->dim};
        status = answer_shown(&shown, npy, call, err);
    }
    tally_buffer_fini(&x);
    return status;
}

/* The memory of a long response is new to the process, and the kernel provides it page by page,
 * which takes ten times as long as copying the point. So the pages are touched piece by piece
 * before the point is copied at once. */
enum { MANY_DIM = 100000, PIECE_BYTES = 128 << 10 };

struct npy_pieces {
    struct response_pieces pieces; /* must be first */
    struct tally_coordinator *coordinator;
    size_t n_bytes; /* of the response, about */
};

static void free_npy(struct response_pieces *pieces)
{
    free(pieces);
}

static enum tally_status answer_point(struct tally_coordinator *coordinator, struct call *call,
                                      bool npy, struct tally_error *err)
{
    struct hosted_job *job;
    bool owned;
    enum tally_status status = jobs_with_engine(coordinator, call->params[0], &job, &owned, err);
    if (status == TALLY_OK) {
        status = answer_model(job, npy, call, err);
        if (owned) {
            hosted_job_free(job);
        }
    }
    return status;
}

static enum tally_status write_npy(struct call *call, struct tally_error *err)
{
    const struct npy_pieces *npy = (const struct npy_pieces *)call->pieces;
    struct tally_buffer *body = &call->body;
    if (body->size < npy->n_bytes) {
        const size_t n = npy->n_bytes - body->size;
        memset(body->data + body->size, 0, n < PIECE_BYTES ? n : PIECE_BYTES);
        body->size += n < PIECE_BYTES ? n : PIECE_BYTES;
        return TALLY_OK;
    }
    body->size = 0;
    return answer_point(npy->coordinator, call, true, err); /* the job may have ended meanwhile */
}

static enum tally_status begin_npy(struct tally_coordinator *coordinator, struct call *call,
                                   int64_t dim, struct tally_error *err)
{
    struct npy_pieces *npy = calloc(1, sizeof *npy);
    const size_t n_bytes = (size_t)dim * sizeof(double) + TALLY_NPY_HEADER_BYTES;
    if (npy == NULL || tally_buffer_reserve(&call->body, n_bytes) != TALLY_OK) {
        free(npy);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the model");
    }
    *npy = (struct npy_pieces){{write_npy, free_npy, 0}, coordinator, n_bytes};
    call->pieces = &npy->pieces;
    return TALLY_OK;
}

/* Whether the response is to be a NumPy file, or JSON. Errors: NOT_ACCEPTABLE. */
static enum tally_status read_format(const struct call *call, const char *what, bool *ret_npy,
                                     struct tally_error *err)
{
    const char *accept = tally_http_header(call->request, "Accept");
    const bool any =
        accept == NULL || call_accepts(accept, "*/*") || call_accepts(accept, "application/*");
    *ret_npy = accept != NULL && call_accepts(accept, "application/x-npy");
    return any || *ret_npy || call_accepts(accept, "application/json")
               ? TALLY_OK
               : tally_fail(err, TALLY_NOT_ACCEPTABLE, "Accept",
                            "a %s is application/json or application/x-npy", what);
}

/* Responds with the scaling of the job's features. */
static enum tally_status answer_scaling(const struct hosted_job *job, bool npy, struct call *call,
                                        struct tally_error *err)
{
    size_t n_bytes;
    const double *numbers = tally_job_scaling(job->engine, &n_bytes);
    const size_t n = n_bytes / sizeof *numbers, features = n / 3;
    if (numbers == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL,
                          tally_job_spec_is_surveyed(&job->spec)
                              ? "job %s has no scaling: its survey has not closed, or it was "
                                "imported"
                              : "job %s has no scaling: it begins with no survey",
                          job->row.id);
    }
    if (npy) {
        return call_answer_bytes(call, tally_detail_npy(numbers, n, &call->body),
                                 "application/x-npy", err);
    }
    if (n > MAX_JSON_DIM) {
        return tally_fail(err, TALLY_NOT_ACCEPTABLE, "Accept",
                          "a scaling of %zu features is available only as application/x-npy; "
                          "application/json has at most %d",
                          features, (int)MAX_JSON_DIM / 3);
    }
    return tally_buffer_printf(&call->body,
                               "{\n  \"job_id\": \"%s\",\n  \"features\": %zu,\n  "
                               "\"scaling\": [",
                               job->row.id, features) == TALLY_OK
               ? write_numbers(numbers, n, features, call, err)
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the scaling");
}

enum tally_status rest_get_scaling(struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    struct hosted_job *job;
    bool owned, npy;
    enum tally_status status = read_format(call, "scaling", &npy, err);
    if (status == TALLY_OK) {
        status = jobs_with_engine(coordinator, call->params[0], &job, &owned, err);
    }
    if (status == TALLY_OK) {
        status = answer_scaling(job, npy, call, err);
        if (owned) {
            hosted_job_free(job);
        }
    }
    return status;
}

enum tally_status rest_get_model(struct tally_coordinator *coordinator, struct call *call,
                                 struct tally_error *err)
{
    bool npy;
    if (read_format(call, "model", &npy, err) != TALLY_OK) {
        return TALLY_NOT_ACCEPTABLE;
    }
    struct model_which which;
    struct tally_store_job row;
    struct tally_store_model kept;
    bool is_last = true;
    enum tally_status status =
        jobs_read_which(tally_http_query(call->request, "which"), &which, err);
    if (status == TALLY_OK && which.choice != MODEL_LAST) {
        status = jobs_read_row(coordinator, call->params[0], &row, err);
        if (status == TALLY_OK) {
            status = jobs_find_model(coordinator, &row, &which, &is_last, &kept, err);
        }
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (!is_last) {
        return answer_kept(coordinator, &row, &kept, npy, call, err);
    }
    const struct hosted_job *job = jobs_find(coordinator, call->params[0]);
    return npy && job != NULL && job->row.dim >= MANY_DIM
               ? begin_npy(coordinator, call, job->row.dim, err)
               : answer_point(coordinator, call, npy, err);
}

/* Appends an element of the list of models. Ids need no escapes; NaN = there is no value. */
static enum tally_status append_model(struct tally_buffer *out, const char *which,
                                      const struct tally_store_model *model, const char *metric)
{
    char checksum[17];
    tally_detail_checksum(model->x_checksum, checksum);
    enum tally_status status =
        tally_buffer_printf(out,
                            "\n    {\"which\": \"%s\", \"round\": %" PRId64
                            ", \"iterate\": %" PRId64 ", \"bytes\": %" PRId64 ", \"x_checksum\": ",
                            which, model->round, model->iterate, model->n_bytes);
    if (status == TALLY_OK) {
        status = model->x_checksum != 0 ? tally_buffer_printf(out, "\"%s\"", checksum)
                                        : tally_buffer_append_text(out, "null");
    }
    if (status == TALLY_OK && metric != NULL) {
        status = tally_buffer_printf(out, ", \"metric\": \"%s\", \"value\": %.17g", metric,
                                     model->value);
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "}") : status;
}

struct listed_models {
    struct tally_buffer *out;
    const char *metric; /* of keep.best */
};

static enum tally_status add_model(void *context, const struct tally_store_model *model,
                                   struct tally_error *err)
{
    const struct listed_models *listed = context;
    const bool is_best = model->slot == TALLY_STORE_BEST_MODEL;
    char round[24];
    snprintf(round, sizeof round, "%" PRId64, model->slot);
    enum tally_status status =
        append_model(listed->out, is_best ? "best" : round, model, is_best ? listed->metric : NULL);
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(listed->out, ",");
    }
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for the models");
}

/* The name of the metric of keep.best, from the stored document. */
static enum tally_status read_best_metric(struct tally_coordinator *coordinator,
                                          const struct tally_store_job *row,
                                          char ret_name[TALLY_METRIC_NAME_CAPACITY],
                                          struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct tally_buffer text = {0};
    struct tally_json *document = NULL;
    enum tally_status status = store->ops->document_get(store, row->key, &text, err);
    if (status == TALLY_OK) {
        status = tally_json_parse((const char *)text.data, text.size, &document, err);
    }
    const char *name = tally_json_get_text(tally_json_get(document, "keep"), "best");
    snprintf(ret_name, TALLY_METRIC_NAME_CAPACITY, "%s",
             name != NULL && tally_metric_is_name(name) ? name : "");
    tally_json_free(document);
    tally_buffer_fini(&text);
    return status;
}

/* The best model, those kept every so many rounds, ascending, and the last one. */
enum tally_status rest_list_models(struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct tally_store_job row;
    char metric[TALLY_METRIC_NAME_CAPACITY];
    struct listed_models listed = {&call->body, metric};
    enum tally_status status = jobs_read_row(coordinator, call->params[0], &row, err);
    if (status == TALLY_OK) {
        status = read_best_metric(coordinator, &row, metric, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_buffer_append_text(&call->body, "{\n  \"models\": [");
    if (status == TALLY_OK) {
        status = store->ops->model_list(store, row.key, add_model, &listed, err);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for the models");
    }
    const struct tally_store_model last = {.round = row.progress.round,
                                           .iterate = row.progress.iterate,
                                           .x_checksum = row.progress.x_checksum,
                                           .n_bytes = row.dim * (int64_t)sizeof(double)};
    status = append_model(&call->body, "last", &last, NULL);
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&call->body, "\n  ]\n}\n");
    }
    return call_answer_bytes(call, status, "application/json", err);
}

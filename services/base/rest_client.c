#include "services/base/rest_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/client/http_foreign.h"
#include "api/json/problem.h"

/* Enough for a model or all rounds of a long job; a faulty server cannot exhaust the memory. */
static const size_t MAX_BODY_BYTES = (size_t)1 << 30;

enum tally_status tally_rest_client_init(struct tally_rest_client *client,
                                         const struct tally_http_client_config *config,
                                         struct tally_error *err)
{
    *client = (struct tally_rest_client){.body = {.limit = MAX_BODY_BYTES},
                                         .url = config->base_url,
                                         .has_token = config->bearer_token != NULL};
    return tally_http_client_new(config, &client->http, err);
}

void tally_rest_client_fini(struct tally_rest_client *client)
{
    tally_http_client_free(client->http);
    tally_buffer_fini(&client->body);
}

/* Adds a hint to the error. */
static enum tally_status fail_unreached(const struct tally_rest_client *client,
                                        const struct tally_error *why, struct tally_error *err)
{
    if (strcmp(why->field, "coordinator") != 0) {
        return tally_fail(err, why->status, NULL, "%s", why->message);
    }
    const char *reason = strstr(why->message, ": "); /* the reason follows the request */
    return tally_fail(err, why->status, NULL,
                      "no coordinator at %s (%s): start one with tally-coordinator, or set "
                      "TALLY_COORDINATOR or --coordinator",
                      client->url, reason != NULL ? reason + 2 : why->message);
}

static enum tally_status fail_refused(const struct tally_rest_client *client,
                                      const struct tally_error *problem, struct tally_error *err)
{
    const bool lacks_token = problem->status == TALLY_UNAUTHENTICATED && !client->has_token;
    return tally_fail(err, problem->status, problem->field, "%s%s", problem->message,
                      lacks_token ? "; a token is needed: --token-file FILE, or TALLY_TOKEN" : "");
}

/* Fails with a response of another program than a coordinator, of which `answer` is what there is
 * to say. */
static enum tally_status fail_foreign(const struct tally_rest_client *client,
                                      const struct tally_http_exchange *exchange,
                                      const struct tally_error *answer, struct tally_error *err)
{
    struct tally_error problem = TALLY_ERROR_INIT;
    (void)http_fail_foreign(client->url, exchange, answer, &problem);
    problem.field[0] = '\0';
    return fail_refused(client, &problem, err);
}

/* A coordinator responds with the type that was asked for. Other servers respond with a page. */
static bool is_foreign_type(const struct tally_http_exchange *exchange)
{
    static const char PAGE[] = "text/html";
    const char *accept = exchange->accept, *type = exchange->response_type;
    return accept != NULL ? strncasecmp(type, accept, strlen(accept)) != 0
                          : strncasecmp(type, PAGE, sizeof PAGE - 1) == 0;
}

enum tally_status tally_rest_call(struct tally_rest_client *client,
                                  struct tally_http_exchange *exchange, struct tally_error *err)
{
    client->body.size = 0;
    struct tally_error problem = TALLY_ERROR_INIT;
    enum tally_status status = tally_http_perform(client->http, exchange, &client->body, &problem);
    if (status != TALLY_OK) {
        return fail_unreached(client, &problem, err);
    }
    if (exchange->status < 200 || exchange->status > 299) {
        return tally_problem_decode(exchange->status, (const char *)client->body.data,
                                    client->body.size, &problem)
                   ? fail_refused(client, &problem, err)
                   : fail_foreign(client, exchange, &problem, err);
    }
    if (is_foreign_type(exchange)) {
        tally_fail(&problem, TALLY_INTERNAL, NULL, "HTTP status %d", exchange->status);
        return fail_foreign(client, exchange, &problem, err);
    }
    return TALLY_OK;
}

enum tally_status tally_rest_call_json(struct tally_rest_client *client,
                                       struct tally_http_exchange *exchange,
                                       struct tally_json **ret_value, struct tally_error *err)
{
    enum tally_status status = tally_rest_call(client, exchange, err);
    if (status == TALLY_OK) {
        status =
            tally_json_parse((const char *)client->body.data, client->body.size, ret_value, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "response to %s %.80s", exchange->method, exchange->path);
        }
    }
    return status;
}

enum tally_status tally_rest_get_json(struct tally_rest_client *client, const char *path,
                                      struct tally_json **ret_value, struct tally_error *err)
{
    struct tally_http_exchange exchange = {
        .method = "GET", .path = path, .accept = "application/json"};
    return tally_rest_call_json(client, &exchange, ret_value, err);
}

enum { MAX_ID_BYTES = 64, ENCODED_BYTES = 3 };

static bool is_plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
}

/* Encodes as much as fits, NUL-terminated; returns how many bytes of `text` it encoded. */
static size_t encode(const char *text, char *ret_text, size_t capacity)
{
    size_t i = 0, n = 0;
    for (; text[i] != '\0' && n + ENCODED_BYTES < capacity; i++) {
        if (is_plain(text[i])) {
            ret_text[n++] = text[i];
        } else {
            n += (size_t)snprintf(ret_text + n, capacity - n, "%%%02X", (unsigned char)text[i]);
        }
    }
    ret_text[n] = '\0';
    return i;
}

void tally_job_path(const char *id, const char *rest, char ret_path[TALLY_JOB_PATH_CAPACITY])
{
    char encoded[MAX_ID_BYTES * ENCODED_BYTES + ENCODED_BYTES + 1];
    encode(id, encoded, sizeof encoded);
    snprintf(ret_path, TALLY_JOB_PATH_CAPACITY, "/v1/jobs/%s%s", encoded, rest);
}

bool tally_query_value(const char *text, char ret_text[TALLY_QUERY_VALUE_CAPACITY])
{
    return encode(text, ret_text, TALLY_QUERY_VALUE_CAPACITY) == strlen(text);
}

/* Ids have 12 digits. A page of 1,000 jobs has a few megabytes. */
enum { ID_DIGITS = 12, PAGE_JOBS = 1000 };

static const char LATEST[] = "latest";

static bool is_beginning(const char *name)
{
    const size_t n = strlen(name);
    return n > 0 && n < ID_DIGITS && strspn(name, "0123456789abcdef") == n;
}

/* The jobs found so far whose ids have the prefix. */
struct search {
    const char *beginning;
    int n_found;
    char found[2][TALLY_JOB_WORD_CAPACITY]; /* the first two */
};

static void look_at(struct search *search, const struct tally_json *jobs)
{
    for (size_t i = 0; i < tally_json_size(jobs); i++) {
        const char *id = tally_json_get_text(tally_json_at(jobs, i), "id");
        if (id == NULL || strncmp(id, search->beginning, strlen(search->beginning)) != 0) {
            continue;
        }
        if (search->n_found < 2) {
            snprintf(search->found[search->n_found], TALLY_JOB_WORD_CAPACITY, "%s", id);
        }
        search->n_found++;
    }
}

/* Searches one page and advances the cursor to the next; "" at the end. */
static enum tally_status search_page(struct tally_rest_client *client, struct search *search,
                                     int limit, char cursor[TALLY_QUERY_VALUE_CAPACITY],
                                     struct tally_error *err)
{
    char path[TALLY_QUERY_VALUE_CAPACITY + 64];
    struct tally_json *page = NULL;
    snprintf(path, sizeof path, "/v1/jobs?limit=%d%s%s", limit, cursor[0] != '\0' ? "&cursor=" : "",
             cursor);
    enum tally_status status = tally_rest_get_json(client, path, &page, err);
    if (status == TALLY_OK) {
        const struct tally_json *jobs = tally_json_get(page, "jobs");
        const char *next = tally_json_get_text(page, "next_cursor");
        look_at(search, jobs);
        cursor[0] = '\0';
        if (next != NULL && tally_json_size(jobs) > 0 && !tally_query_value(next, cursor)) {
            status = tally_fail(err, TALLY_MALFORMED, NULL, "next_cursor is too long");
        }
    }
    tally_json_free(page);
    return status;
}

static enum tally_status find_latest(struct tally_rest_client *client,
                                     char name[TALLY_JOB_WORD_CAPACITY], struct tally_error *err)
{
    struct search search = {.beginning = ""};
    char cursor[TALLY_QUERY_VALUE_CAPACITY] = "";
    enum tally_status status = search_page(client, &search, 1, cursor, err);
    if (status == TALLY_OK && search.n_found == 0) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL,
                          "there is no job yet: submit one with tally submit FILE");
    }
    if (status == TALLY_OK) {
        memcpy(name, search.found[0], sizeof search.found[0]);
    }
    return status;
}

/* `why` is the error for the name taken as an id; it is returned if no id has this prefix. */
static enum tally_status find_beginning(struct tally_rest_client *client,
                                        char name[TALLY_JOB_WORD_CAPACITY],
                                        const struct tally_error *why, struct tally_error *err)
{
    struct search search = {.beginning = name};
    char cursor[TALLY_QUERY_VALUE_CAPACITY] = "";
    enum tally_status status;
    do {
        status = search_page(client, &search, PAGE_JOBS, cursor, err);
    } while (status == TALLY_OK && cursor[0] != '\0' && search.n_found < 2);
    if (status != TALLY_OK) {
        return status;
    }
    if (search.n_found == 0) {
        return tally_fail(err, why->status, why->field, "%s", why->message);
    }
    if (search.n_found > 1) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "several job ids begin with %s, such as %s and %s: type more of the id",
                          name, search.found[0], search.found[1]);
    }
    memcpy(name, search.found[0], sizeof search.found[0]);
    return TALLY_OK;
}

static enum tally_status call_once(struct tally_rest_client *client, const char *name,
                                   const char *rest, struct tally_http_exchange *exchange,
                                   struct tally_error *err)
{
    char path[TALLY_JOB_PATH_CAPACITY];
    tally_job_path(name, rest, path);
    exchange->path = path;
    const enum tally_status status = tally_rest_call(client, exchange, err);
    exchange->path = "";
    return status;
}

enum tally_status tally_job_call(struct tally_rest_client *client,
                                 char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                 struct tally_http_exchange *exchange, struct tally_error *err)
{
    if (strcmp(name, LATEST) == 0) {
        const enum tally_status status = find_latest(client, name, err);
        if (status != TALLY_OK) {
            return status;
        }
    }
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = call_once(client, name, rest, exchange, &why);
    if (status == TALLY_NOT_FOUND && is_beginning(name)) {
        status = find_beginning(client, name, &why, err);
        return status == TALLY_OK ? call_once(client, name, rest, exchange, err) : status;
    }
    return status == TALLY_OK ? status : tally_fail(err, status, why.field, "%s", why.message);
}

enum tally_status tally_job_call_json(struct tally_rest_client *client,
                                      char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                      struct tally_http_exchange *exchange,
                                      struct tally_json **ret_value, struct tally_error *err)
{
    enum tally_status status = tally_job_call(client, name, rest, exchange, err);
    if (status == TALLY_OK) {
        status =
            tally_json_parse((const char *)client->body.data, client->body.size, ret_value, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "response to %s %.80s", exchange->method, name);
        }
    }
    return status;
}

enum tally_status tally_job_get_json(struct tally_rest_client *client,
                                     char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                     struct tally_json **ret_value, struct tally_error *err)
{
    struct tally_http_exchange exchange = {.method = "GET", .accept = "application/json"};
    return tally_job_call_json(client, name, rest, &exchange, ret_value, err);
}

enum { TIMEOUT_MS = 3000 }; /* the images' HEALTHCHECK waits 5 s */

int tally_health_print(const struct tally_http_client_config *config, const char *program)
{
    struct tally_rest_client client = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_http_exchange exchange = {
        .method = "GET", .path = "/readyz", .timeout_ms = TIMEOUT_MS};
    enum tally_status status = tally_rest_client_init(&client, config, &err);
    if (status == TALLY_OK) {
        status = tally_rest_call(&client, &exchange, &err);
    }
    tally_rest_client_fini(&client);
    if (status != TALLY_OK) {
        fprintf(stderr, "%s: %s\n", program, err.message);
        return EXIT_FAILURE;
    }
    puts("ready");
    return EXIT_SUCCESS;
}

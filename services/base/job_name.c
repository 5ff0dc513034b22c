#include "services/base/job_name.h"

#include <stdio.h>
#include <string.h>

#include "services/base/job_path.h"

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

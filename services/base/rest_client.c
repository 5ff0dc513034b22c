#include "services/base/rest_client.h"

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

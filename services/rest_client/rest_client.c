#include "services/rest_client/rest_client.h"

#include "api/json/problem.h"

/* A model, or all rounds of a long job, fit; a faulty server cannot exhaust the memory. */
static const size_t MAX_BODY_BYTES = (size_t)1 << 30;

enum tally_status tally_rest_client_init(struct tally_rest_client *client,
                                         const struct tally_http_client_config *config,
                                         struct tally_error *err)
{
    *client = (struct tally_rest_client){.body = {.limit = MAX_BODY_BYTES}};
    return tally_http_client_new(config, &client->http, err);
}

void tally_rest_client_fini(struct tally_rest_client *client)
{
    tally_http_client_free(client->http);
    tally_buffer_fini(&client->body);
}

enum tally_status tally_rest_call(struct tally_rest_client *client,
                                  struct tally_http_exchange *exchange, struct tally_error *err)
{
    client->body.size = 0;
    enum tally_status status = tally_http_perform(client->http, exchange, &client->body, err);
    if (status == TALLY_OK && (exchange->status < 200 || exchange->status > 299)) {
        struct tally_error problem = TALLY_ERROR_INIT;
        tally_problem_decode(exchange->status, (const char *)client->body.data, client->body.size,
                             &problem);
        return tally_fail(err, problem.status, problem.field, "%s", problem.message);
    }
    return status;
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

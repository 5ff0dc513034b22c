/* Stands in for api/client/http_client.h and services/base/signals.h below the real worker. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/client/http_client.h"
#include "api/json/problem.h"
#include "services/base/signals.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/programs/sim_worker.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_process.h"

struct tally_http_client {
    bool can_be_cancelled;
    long silence_ms; /* 0 = no limit of its own */
};

enum tally_status tally_http_client_new(const struct tally_http_client_config *config,
                                        struct tally_http_client **ret_client,
                                        struct tally_error *err)
{
    (void)err;
    *ret_client = sim_new(sizeof **ret_client);
    (*ret_client)->can_be_cancelled = config->cancel != NULL;
    return TALLY_OK;
}

void tally_http_client_free(struct tally_http_client *client)
{
    free(client);
}

void tally_http_client_set_silence(struct tally_http_client *client, long silence_ms)
{
    client->silence_ms = silence_ms; /* 0, if there is one coordinator */
}

void tally_http_client_wire_bytes(const struct tally_http_client *client, uint64_t *ret_out,
                                  uint64_t *ret_in)
{
    (void)client;
    *ret_out = 0;
    *ret_in = 0;
}

/* Turns a response into the result of tally_connect_call. */
static enum tally_status read_answer(const char *method, const uint8_t *body, size_t n_body,
                                     struct sim_answer *answer, struct tally_buffer *out,
                                     struct tally_error *err)
{
    if (answer->http_status == 200) {
        return tally_buffer_append(out, answer->body.data, answer->body.size);
    }
    struct tally_error problem = TALLY_ERROR_INIT;
    tally_problem_decode(answer->http_status,
                         answer->body.data != NULL ? (const char *)answer->body.data : "",
                         answer->body.size, &problem);
    sim_note(sim_worker_speaking(), "%s: %s: %s", method, tally_status_info(problem.status)->name,
             problem.message);
    invariants_see_refusal(sim_worker_speaking(), method, body, n_body, &problem);
    return tally_fail(err, problem.status, problem.field, "%s", problem.message);
}

enum tally_status tally_connect_call(struct tally_http_client *client, const char *method,
                                     const uint8_t *body, size_t n_body, long timeout_ms,
                                     struct tally_buffer *out, struct tally_error *err)
{
    struct sim_process *process = sim_process_self();
    char path[128];
    snprintf(path, sizeof path, "/tally.v1.WorkerService/%s", method);
    const struct sim_message message = {.method = "POST",
                                        .path = path,
                                        .content_type = "application/proto",
                                        .body = body,
                                        .n_body = n_body};
    sim_worker_think();
    if (!process->is_killed) {
        invariants_see_post(process->peer.name, method, body, n_body);
    }
    struct sim_answer answer = {0};
    const bool is_limited = client->silence_ms > 0 && client->silence_ms < timeout_ms;
    enum tally_status status = sim_process_call(
        &message, is_limited ? client->silence_ms : timeout_ms, client->can_be_cancelled, &answer);
    if (client->silence_ms > 0 && status == TALLY_OK && answer.http_status >= 502 &&
        answer.http_status <= 504) {
        process->peer.connected_to = 0; /* the next exchange may reach another coordinator */
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "%s", tally_status_info(status)->title);
    }
    status = read_answer(method, body, n_body, &answer, out, err);
    tally_buffer_fini(&answer.body);
    return status;
}

const volatile sig_atomic_t *tally_signals_stop(void)
{
    return &sim_process_self()->stop;
}

bool tally_signals_wait(int timeout_ms)
{
    struct sim_process *process = sim_process_self();
    if (process->stop == 0) {
        sim_process_sleep((int64_t)timeout_ms * 1000);
    }
    return process->stop != 0;
}

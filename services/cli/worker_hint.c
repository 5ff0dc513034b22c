#include "services/cli/worker_hint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "codec/record.h"
#include "services/job/job_spec.h"

static bool is_live(const struct tally_json *detail)
{
    const char *name = tally_json_get_text(detail, "status");
    enum tally_job_status status;
    return name != NULL && tally_job_status_of_name(name, &status) &&
           !tally_job_status_is_terminal(status);
}

static bool needs_plugin(const struct tally_json *detail)
{
    const char *type = tally_json_get_text(tally_json_get(detail, "objective"), "type");
    return type != NULL && strcmp(type, "plugin") == 0;
}

/* Prints an option of the worker if this command was given the same option, from any source. */
static void print_option(const struct tally_options *options, const char *name)
{
    if (tally_options_is_given(options, name)) {
        fprintf(stderr, " --%s %s", name, tally_options_text(options, name));
    }
}

static void print_command(const struct tally_cli *cli, const struct tally_json *detail,
                          int64_t n_clients)
{
    fprintf(stderr, "  tally-worker");
    print_option(cli->options, "coordinator");
    print_option(cli->options, "tls-ca");
    fprintf(stderr, " --clients %" PRId64,
            n_clients < TALLY_MAX_SLOTS ? n_clients : (int64_t)TALLY_MAX_SLOTS);
    fprintf(stderr, "%s%s\n", needs_plugin(detail) ? " --plugin FILE" : "",
            cli->rest.has_token ? " --token-file FILE" : "");
}

int64_t tally_slots_needed(const struct tally_json *detail)
{
    const struct tally_json *data = tally_json_get(tally_json_get(detail, "objective"), "data");
    const char *sharding = tally_json_get_text(data, "sharding");
    const bool is_local =
        sharding != NULL && strcmp(sharding, TALLY_SHARDING_NAMES[TALLY_SHARDING_LOCAL]) == 0;
    const struct tally_job_spec spec = {
        .objective.data.sharding = is_local ? TALLY_SHARDING_LOCAL : TALLY_SHARDING_IID,
        .clients = tally_json_get_integer(detail, "clients", 0),
        .cohort = tally_json_get_real(detail, "cohort", 0),
        .over_selection = fmax(tally_json_get_real(detail, "over_selection", 0), 0)};
    return spec.clients < 1 || spec.clients > UINT32_MAX ? spec.clients
                                                         : tally_job_spec_slots(&spec);
}

void tally_worker_hint(struct tally_cli *cli, const struct tally_json *detail)
{
    struct tally_json *workers = NULL;
    const int64_t n_clients = tally_slots_needed(detail);
    if (!is_live(detail) ||
        tally_rest_get_json(&cli->rest, "/v1/workers?limit=1", &workers, NULL) != TALLY_OK) {
        return;
    }
    const int64_t n_workers = tally_json_get_integer(workers, "workers_total", -1);
    const int64_t n_slots = tally_json_get_integer(workers, "slots_total", n_clients);
    if (n_workers == 0) {
        fprintf(stderr,
                "no worker is connected, and the job needs %" PRId64 " client%s; start a worker:\n",
                n_clients, n_clients == 1 ? "" : "s");
        print_command(cli, detail, n_clients);
    } else if (n_workers > 0 && n_slots < n_clients) {
        fprintf(stderr,
                "the workers here have %" PRId64 " slot%s, and the job needs %" PRId64
                " clients; start another worker:\n",
                n_slots, n_slots == 1 ? "" : "s", n_clients);
        print_command(cli, detail, n_clients - n_slots);
    }
    tally_json_free(workers);
}

/* tally doctor: checks an installation. Gathers facts, judges them, prints the findings. */
#include "services/cli/cmd_doctor.h"
#include "services/base/alloc.h"

#include <dirent.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "services/base/progress_bar.h"
#include "services/base/time.h"
#include "services/base/whole_file.h"
#include "services/cli/cmd_submit.h"
#include "services/cli/commands.h"
#include "services/objectives/data/load_data.h"
#include "storage/backends.h"

/* Longer than any healthy response takes, shorter than a user's patience. */
enum { TIMEOUT_MS = 5000 };

const struct tally_option TALLY_CLI_DOCTOR_OPTIONS[] = {
    {"ready", NULL, NULL, "only ask whether the coordinator is ready; needs no token", NULL},
    {"store", "URI", NULL, "also check this store, on the machine that has it", NULL},
    {"data-dir", "DIR", NULL, "folder to check for the data files of live jobs", NULL},
    {"json", NULL, NULL, "print the findings as JSON", NULL},
    {0},
};

/* Sends a GET request. If the status is 200, the body is in cli->rest.body. */
static void ask(struct tally_cli *cli, const char *path, struct tally_http_exchange *exchange,
                struct doctor_answer *ret_answer)
{
    *exchange =
        (struct tally_http_exchange){.method = "GET", .path = path, .timeout_ms = TIMEOUT_MS};
    ret_answer->was_asked = true;
    const enum tally_status status = tally_rest_call(&cli->rest, exchange, &ret_answer->error);
    const bool is_page = status != TALLY_OK && exchange->status == 200;
    ret_answer->status = is_page ? 0 : exchange->status; /* no coordinator has answered */
}

static struct tally_json *ask_json(struct tally_cli *cli, const char *path,
                                   struct doctor_answer *ret_answer)
{
    struct tally_http_exchange exchange;
    struct tally_json *value = NULL;
    ask(cli, path, &exchange, ret_answer);
    if (ret_answer->status == 200 &&
        tally_json_parse((const char *)cli->rest.body.data, cli->rest.body.size, &value,
                         &ret_answer->error) != TALLY_OK) {
        ret_answer->status = -1;
    }
    return value;
}

/* RFC 9110: "Sat, 21 Nov 2026 10:00:00 GMT", whole seconds. */
static void read_clock(const char *date, struct doctor_facts *facts)
{
    struct tm parts = {0};
    if (date[0] != '\0' && strptime(date, "%a, %d %b %Y %H:%M:%S", &parts) != NULL) {
        facts->clock_ahead_ms = (int64_t)timegm(&parts) * 1000 - tally_realtime_ms();
        facts->has_clock = true;
    }
}

/* Reads the coordinator's clock, and its version and its shared tokens from its metrics. */
static void gather_metrics(struct tally_cli *cli, struct doctor_facts *facts)
{
    static const char LABEL[] = "tally_build_info{version=\"";
    static const char SHARED[] = "\ntally_shared_tokens ";
    struct tally_http_exchange exchange;
    struct doctor_answer answer = {0};
    ask(cli, "/metrics", &exchange, &answer);
    read_clock(exchange.date, facts);
    if (answer.status != 200 || tally_buffer_append(&cli->rest.body, "", 1) != TALLY_OK) {
        return;
    }
    const char *at = strstr((const char *)cli->rest.body.data, LABEL);
    if (at != NULL) {
        at += sizeof LABEL - 1;
        snprintf(facts->version, sizeof facts->version, "%.*s", (int)strcspn(at, "\""), at);
    }
    at = strstr((const char *)cli->rest.body.data, SHARED);
    if (at != NULL) {
        facts->n_shared_tokens = strtoll(at + sizeof SHARED - 1, NULL, 10);
    }
}

static void gather_rival(const struct tally_json *worker, struct doctor_facts *facts)
{
    const char *other = tally_json_get_text(tally_json_get(worker, "rival"), "address");
    const char *name = tally_json_get_text(worker, "name");
    const char *address = tally_json_get_text(worker, "address");
    if (other != NULL && name != NULL && address != NULL && facts->n_rivals++ == 0) {
        snprintf(facts->rivals, sizeof facts->rivals, "%s at %s and at %s", name, address, other);
    }
}

static void gather_workers(struct tally_cli *cli, struct doctor_facts *facts)
{
    struct tally_json *answer = ask_json(cli, "/v1/workers", &facts->workers);
    const struct tally_json *workers = tally_json_get(answer, "workers");
    for (size_t i = 0; i < tally_json_size(workers); i++) {
        gather_rival(tally_json_at(workers, i), facts);
    }
    facts->n_workers = tally_json_get_integer(answer, "workers_total", 0);
    facts->n_slots = tally_json_get_integer(answer, "slots_total", 0);
    facts->n_free_slots = tally_json_get_integer(answer, "slots_free", 0);
    tally_json_free(answer);
}

/* The data of a job document, if they are files. */
static bool read_data_spec(const struct tally_json *data, struct tally_data_spec *ret_spec)
{
    static const char *const others[] = {"type", NULL};
    const char *type = tally_json_get_text(data, "type");
    struct tally_data_spec spec = {.type = 0};
    while (type != NULL && TALLY_DATA_NAMES[spec.type] != NULL &&
           strcmp(TALLY_DATA_NAMES[spec.type], type) != 0) {
        spec.type++;
    }
    const bool has_files =
        type != NULL &&
        (spec.type == TALLY_DATA_IDX || (spec.type < TALLY_N_DATA_TYPES &&
                                         (1U << spec.type & (unsigned)TALLY_DATA_SET_TABLES) != 0));
    if (!has_files) {
        return false;
    }
    const struct tally_data_kind *kind = &TALLY_DATA_KINDS[spec.type];
    *ret_spec = spec;
    return tally_json_read_fields(data, kind->fields, kind->n_fields, others, ret_spec, NULL) ==
           TALLY_OK;
}

/* Reads a job's data files as its workers do, except for the objective's checks of labels. */
static void check_data(const struct tally_json *job, const char *folder, struct doctor_facts *facts)
{
    const struct tally_json *data = tally_json_get(tally_json_get(job, "objective"), "data");
    const struct tally_data_source source = {.dir = folder};
    struct tally_data_spec spec;
    if (!read_data_spec(data, &spec)) {
        return;
    }
    facts->n_data_jobs++;
    if (folder == NULL) {
        return;
    }
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_dataset_load(&spec, TALLY_LABELS_REAL, 1, (struct tally_rng_key){0}, &source,
                           &dataset, &err) == TALLY_OK) {
        tally_dataset_free(dataset);
    } else if (facts->n_data_missing++ == 0) {
        snprintf(facts->data_error, sizeof facts->data_error, "%s", err.message);
    }
}

static void look_at_job(const struct tally_json *job, const char *folder,
                        struct doctor_facts *facts)
{
    const char *status = tally_json_get_text(job, "status");
    const char *waits = tally_json_get_text(tally_json_get(job, "waiting"), "text");
    const int64_t clients = tally_slots_needed(job);
    if (status == NULL) {
        return;
    }
    if (strcmp(status, "queued") == 0) {
        facts->n_queued++;
        facts->most_clients = clients > facts->most_clients ? clients : facts->most_clients;
    }
    if (waits != NULL && facts->n_waiting++ == 0) {
        const char *id = tally_json_get_text(job, "id");
        snprintf(facts->waiting, sizeof facts->waiting, "%s: %s", id != NULL ? id : "?", waits);
    }
    check_data(job, folder, facts);
}

static void gather_jobs(struct tally_cli *cli, struct doctor_facts *facts)
{
    static const char *const PATHS[] = {"/v1/jobs?limit=1000&status=queued",
                                        "/v1/jobs?limit=1000&status=running"};
    const char *folder = tally_options_text(cli->options, "data-dir");
    for (int i = 0; i < 2; i++) {
        struct tally_json *answer = ask_json(cli, PATHS[i], &facts->jobs);
        const struct tally_json *jobs = tally_json_get(answer, "jobs");
        for (size_t k = 0; k < tally_json_size(jobs); k++) {
            look_at_job(tally_json_at(jobs, k), folder, facts);
        }
        tally_json_free(answer);
    }
}

/* Returns whether the coordinator answers. */
static bool gather_ready(struct tally_cli *cli, struct doctor_facts *facts)
{
    struct tally_http_exchange exchange;
    ask(cli, "/healthz", &exchange, &facts->health);
    if (facts->health.status != 200) {
        return false;
    }
    ask(cli, "/readyz", &exchange, &facts->ready);
    return true;
}

static void gather_rest(struct tally_cli *cli, struct doctor_facts *facts)
{
    gather_metrics(cli, facts);
    gather_jobs(cli, facts);
    gather_workers(cli, facts);
}

/* The owner's open descriptors and their limit; only its user and root can see them. */
static void gather_descriptors(struct doctor_facts *facts)
{
    static const char LIMIT[] = "Max open files";
    char path[64], limits[4096];
    snprintf(path, sizeof path, "/proc/%lld/fd", (long long)facts->owner);
    DIR *entries = opendir(path);
    if (entries == NULL) {
        return;
    }
    facts->n_descriptors = -2; /* "." and ".." */
    while (readdir(entries) != NULL) {
        facts->n_descriptors++;
    }
    closedir(entries);
    snprintf(path, sizeof path, "/proc/%lld/limits", (long long)facts->owner);
    tally_file_peek(path, limits, sizeof limits);
    const char *at = strstr(limits, LIMIT);
    if (at != NULL) {
        facts->descriptor_limit = strtoll(at + sizeof LIMIT - 1, NULL, 10); /* the soft one */
    }
}

/* Gathers facts about the store's file: the process that has it open, and its folder. */
static void gather_file(const char *uri, const char *path, struct doctor_facts *facts)
{
    facts->has_file = true;
    tally_store_owner(uri, &facts->owner, NULL);
    if (facts->owner > 0) {
        gather_descriptors(facts);
    }
    char *copy = tally_xstrdup(path);
    const char *folder = dirname(copy);
    struct statvfs disk;
    facts->can_write_folder = access(folder, W_OK | X_OK) == 0;
    if (statvfs(folder, &disk) == 0) {
        facts->n_free_bytes = (int64_t)(disk.f_bavail * disk.f_frsize);
    }
    free(copy);
}

static void gather_store(const char *uri, struct doctor_facts *facts)
{
    const char *path = NULL;
    struct tally_store_bar bar;
    tally_store_bar_init(&bar);
    tally_store_verify(uri, &bar.base, &facts->report, &facts->store_error);
    tally_store_bar_end(&bar);
    if (tally_store_path(uri, &path, NULL) == TALLY_OK) {
        gather_file(uri, path, facts);
    }
}

static bool add_json(struct tally_json *list, const char *name,
                     const struct doctor_finding *finding)
{
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL && tally_json_set_text(object, "check", name) &&
              tally_json_set_text(
                  object, "level",
                  finding->level == DOCTOR_FAIL ? "fail" : doctor_level_name(finding->level)) &&
              tally_json_set_text(object, "text", finding->text) &&
              tally_json_set_text_or_null(object, "advice", finding->advice);
    object = tally_json_if_complete(object, ok);
    return object != NULL && tally_json_append(list, object);
}

/* Judges all facts; returns an exit code. */
static int report(const struct doctor_facts *facts, bool as_json)
{
    struct tally_buffer text = {0};
    struct tally_json *list = tally_json_array();
    enum tally_status status = list != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    bool failed = false;
    for (const struct doctor_check *check = DOCTOR_CHECKS; check->name != NULL; check++) {
        struct doctor_finding finding = {.level = DOCTOR_SKIPPED};
        check->judge(facts, &finding);
        if (finding.level == DOCTOR_SKIPPED || status != TALLY_OK) {
            continue;
        }
        failed = failed || finding.level == DOCTOR_FAIL;
        status = add_json(list, check->name, &finding) ? TALLY_OK : TALLY_NO_MEMORY;
        if (status == TALLY_OK) {
            status =
                tally_buffer_printf(&text, "%-4s  %-13s %s\n", doctor_level_name(finding.level),
                                    check->name, finding.text);
        }
        if (status == TALLY_OK && finding.advice[0] != '\0') {
            status = tally_buffer_printf(&text, "%21s%s\n", "-> ", finding.advice);
        }
    }
    int exit_code;
    if (as_json) {
        tally_buffer_fini(&text);
        exit_code = tally_cli_print_json(status == TALLY_OK ? list : NULL, 2);
    } else {
        exit_code = tally_cli_print(status, &text);
    }
    tally_json_free(list);
    return exit_code != TALLY_EXIT_OK ? exit_code : failed ? TALLY_EXIT_FAILED : TALLY_EXIT_OK;
}

int tally_cli_doctor(struct tally_cli *cli)
{
    struct doctor_facts facts = {
        .coordinator = tally_options_text(cli->options, "coordinator"),
        .has_token = tally_options_text(cli->options, "token-file") != NULL,
        .own_version = TALLY_VERSION,
        .has_data_dir = tally_options_text(cli->options, "data-dir") != NULL,
        .n_free_bytes = -1,
        .n_descriptors = -1,
        .descriptor_limit = -1,
    };
    struct tally_buffer label = {0};
    const bool is_brief = tally_options_bool(cli->options, "ready");
    const char *uri = is_brief ? NULL : tally_options_text(cli->options, "store");
    if (gather_ready(cli, &facts) && !is_brief) {
        gather_rest(cli, &facts);
    }
    if (uri != NULL) {
        facts.store =
            tally_store_label(uri, &label) == TALLY_OK ? (const char *)label.data : "the store";
        gather_store(uri, &facts);
    }
    const int exit_code = report(&facts, tally_options_bool(cli->options, "json"));
    tally_buffer_fini(&label);
    return exit_code;
}

/* Two clocks that NTP synchronizes are far closer. Beyond this difference, timestamps of logs
 * become hard to compare. */
static const int64_t MAX_CLOCK_MS = 5000;
/* Twice the usual size of the write-ahead log after a burst. */
static const int64_t MIN_FREE_BYTES = INT64_C(128) << 20;

static void find(struct doctor_finding *finding, enum doctor_level level, const char *advice,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

static void find(struct doctor_finding *finding, enum doctor_level level, const char *advice,
                 const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    finding->level = level;
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
    snprintf(finding->advice, sizeof finding->advice, "%s", advice != NULL ? advice : "");
}

/* Advice for a connection that failed with this message. */
static const char *advice_on_connection(const char *message)
{
    static const struct {
        const char *words, *advice;
    } ADVICE[] = {
        {"resolve", "the host name is unknown here: check its spelling and the DNS"},
        {"refused", "nothing listens on this port: start tally-coordinator, and compare the URL "
                    "with its --listen"},
        {"onnect to server", "nothing responds on this port: start tally-coordinator, and compare "
                             "the URL with its --listen"},
        {"certificate", "the certificate is not trusted: give its CA with --tls-ca, or use the "
                        "host name that it names"},
        {"SSL", "one side speaks TLS and the other does not: check http:// and https://"},
        {"TLS", "one side speaks TLS and the other does not: check http:// and https://"},
        {"timed out", "the address does not respond: check the address and firewalls"},
        {"timeout", "the address does not respond: check the address and firewalls"},
    };
    for (size_t i = 0; i < sizeof ADVICE / sizeof ADVICE[0]; i++) {
        if (strcasestr(message, ADVICE[i].words) != NULL) {
            return ADVICE[i].advice;
        }
    }
    return "check the URL, and the network between here and there";
}

static void judge_coordinator(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    const struct doctor_answer *health = &facts->health;
    if (health->status == 0) {
        find(finding, DOCTOR_FAIL, advice_on_connection(health->error.message), "%s: %s",
             facts->coordinator, health->error.message);
    } else if (health->status != 200) {
        find(finding, DOCTOR_FAIL, "another program listens on this port, or a proxy is in between",
             "%s answers /healthz with %d", facts->coordinator, health->status);
    } else {
        find(finding, DOCTOR_OK, NULL, "%s answers", facts->coordinator);
    }
}

static void judge_ready(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->ready.status == 200) {
        find(finding, DOCTOR_OK, NULL, "ready");
    } else if (facts->ready.status != 0) {
        find(finding, DOCTOR_FAIL, "until it is, updates are refused and workers retry",
             "not ready: %s", facts->ready.error.message);
    }
}

static void judge_version(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->version[0] == '\0') {
        return;
    }
    if (strcmp(facts->version, facts->own_version) == 0) {
        find(finding, DOCTOR_OK, NULL, "coordinator and this program are %s", facts->version);
    } else {
        find(finding, DOCTOR_WARN, "install the same version everywhere",
             "the coordinator is %s, this program %s", facts->version, facts->own_version);
    }
}

static void judge_clock(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (!facts->has_clock) {
        return;
    }
    const int64_t ahead_ms = facts->clock_ahead_ms;
    const bool is_far = ahead_ms > MAX_CLOCK_MS || ahead_ms < -MAX_CLOCK_MS;
    const int64_t s = (ahead_ms < 0 ? -ahead_ms : ahead_ms) / 1000;
    if (is_far) {
        find(finding, DOCTOR_WARN,
             "synchronise both clocks with NTP; jobs do not depend on it, timestamps in logs do",
             "the coordinator's clock is %" PRId64 " s %s ours", s,
             ahead_ms > 0 ? "ahead of" : "behind");
    } else {
        find(finding, DOCTOR_OK, NULL, "both clocks agree within %" PRId64 " s",
             MAX_CLOCK_MS / 1000);
    }
}

static void judge_token(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    switch (facts->jobs.status) {
    case 0:
        break;
    case 401:
        find(finding, DOCTOR_FAIL,
             facts->has_token ? "compare the file with the coordinator's --admin-token-file"
                              : "give the admin token with --token-file",
             facts->has_token ? "the coordinator does not accept the token"
                              : "the coordinator requires a token");
        break;
    case 403:
        find(finding, DOCTOR_FAIL, "this needs the admin token",
             "this token's role does not permit this request");
        break;
    case 200:
        find(finding, DOCTOR_OK, NULL,
             facts->has_token ? "the token is accepted" : "no token is needed");
        break;
    default:
        find(finding, DOCTOR_FAIL, NULL, "the list of jobs cannot be read: %s",
             facts->jobs.error.message);
        break;
    }
}

static void judge_shared_tokens(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->n_shared_tokens > 0) {
        find(finding, DOCTOR_WARN,
             "give each role tokens of its own; tally-coordinator --check names the lines",
             "%" PRId64 " tokens of the coordinator are in two token files",
             facts->n_shared_tokens);
    }
}

static void judge_workers(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->workers.status != 200) {
        return;
    }
    if (facts->n_workers == 0) {
        find(finding, facts->n_queued > 0 ? DOCTOR_FAIL : DOCTOR_WARN,
             "start tally-worker --coordinator URL; its log says why it cannot join",
             "no worker has joined, %" PRId64 " jobs are queued", facts->n_queued);
    } else if (facts->most_clients > facts->n_slots) {
        find(finding, DOCTOR_FAIL, "start more workers, or some with more --clients",
             "a queued job needs %" PRId64 " clients, %" PRId64 " workers have %" PRId64 " in all",
             facts->most_clients, facts->n_workers, facts->n_slots);
    } else {
        find(finding, DOCTOR_OK, NULL,
             "%" PRId64 " workers with %" PRId64 " clients, %" PRId64 " free; %" PRId64
             " jobs queued",
             facts->n_workers, facts->n_slots, facts->n_free_slots, facts->n_queued);
    }
}

static void judge_names(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->n_rivals > 0) {
        find(finding, DOCTOR_FAIL, "give each worker a --name of its own",
             "%" PRId64 " names belong to two workers that replace each other: %s", facts->n_rivals,
             facts->rivals);
    }
}

static void judge_waiting(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->jobs.status != 200) {
        return;
    }
    if (facts->n_waiting > 0) {
        find(finding, DOCTOR_WARN,
             "look at those workers; \"policy\" of a job says how long it waits",
             "%" PRId64 " jobs are waiting: %s", facts->n_waiting, facts->waiting);
    } else {
        find(finding, DOCTOR_OK, NULL, "no job is waiting");
    }
}

static void judge_data(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->jobs.status != 200 || facts->n_data_jobs == 0) {
        return;
    }
    if (!facts->has_data_dir) {
        find(finding, DOCTOR_WARN, "give --data-dir to check them",
             "%" PRId64 " live jobs need data files", facts->n_data_jobs);
    } else if (facts->n_data_missing > 0) {
        find(finding, DOCTOR_FAIL, "coordinator and workers each need them in their --data-dir",
             "%s", facts->data_error);
    } else {
        find(finding, DOCTOR_OK, NULL, "the data files of %" PRId64 " live jobs are valid",
             facts->n_data_jobs);
    }
}

static void judge_store(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->store == NULL) {
        return;
    }
    const struct tally_store_report *report = &facts->report;
    switch ((int)facts->store_error.status) {
    case TALLY_OK:
        find(finding, DOCTOR_OK, NULL,
             "%s is sound: schema version %d, %" PRId64 " jobs, %" PRId64 " bytes", facts->store,
             report->schema_version, report->n_jobs, report->n_bytes);
        break;
    case TALLY_NOT_FOUND:
        find(finding, DOCTOR_WARN,
             "the coordinator's start creates it; or this is not the coordinator's --store", "%s",
             facts->store_error.message);
        break;
    case TALLY_DATA_LOSS:
        find(finding, DOCTOR_FAIL,
             facts->has_file ? "restore a backup with tally restore"
                             : "restore a backup of the database",
             "%s", facts->store_error.message);
        break;
    case TALLY_FAILED_PRECONDITION: /* of another release; the message says which */
        find(finding, DOCTOR_FAIL, "deploy/README.md, \"Upgrade\", says what to do", "%s",
             facts->store_error.message);
        break;
    default:
        find(finding, DOCTOR_FAIL,
             "check that this is the coordinator's --store and that you may read it", "%s",
             facts->store_error.message);
        break;
    }
}

static void judge_owner(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->store == NULL || !facts->has_file) {
        return;
    }
    if (facts->owner != 0) {
        find(finding, DOCTOR_OK, NULL, "a coordinator has the store open (process %" PRId64 ")",
             facts->owner);
    } else if (facts->health.status == 200) {
        find(finding, DOCTOR_WARN, "the coordinator at this URL uses another --store",
             "no process has this store open");
    } else {
        find(finding, DOCTOR_WARN, "start tally-coordinator", "no process has this store open");
    }
}

static void judge_disk(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->store == NULL || facts->n_free_bytes < 0) {
        return;
    }
    if (!facts->can_write_folder) {
        find(finding, DOCTOR_FAIL, "the coordinator's user must be able to write there",
             "the store's folder cannot be written");
    } else if (facts->n_free_bytes < MIN_FREE_BYTES) {
        find(finding, facts->n_free_bytes == 0 ? DOCTOR_FAIL : DOCTOR_WARN,
             "free space: with a full disk the coordinator accepts nothing",
             "%" PRId64 " MiB are free where the store is", facts->n_free_bytes >> 20);
    } else {
        find(finding, DOCTOR_OK, NULL, "%" PRId64 " MiB are free where the store is",
             facts->n_free_bytes >> 20);
    }
}

static void judge_descriptors(const struct doctor_facts *facts, struct doctor_finding *finding)
{
    if (facts->n_descriptors < 0 || facts->descriptor_limit <= 0) {
        return;
    }
    const bool is_near = facts->n_descriptors > facts->descriptor_limit / 10 * 8;
    find(finding, is_near ? DOCTOR_WARN : DOCTOR_OK,
         is_near ? "raise the limit (ulimit -n, LimitNOFILE=); it also bounds --max-connections"
                 : NULL,
         "the coordinator has %" PRId64 " of %" PRId64 " file descriptors open",
         facts->n_descriptors, facts->descriptor_limit);
}

const struct doctor_check DOCTOR_CHECKS[] = {
    {"coordinator", judge_coordinator},
    {"ready", judge_ready},
    {"version", judge_version},
    {"clock", judge_clock},
    {"token", judge_token},
    {"shared tokens", judge_shared_tokens},
    {"workers", judge_workers},
    {"worker names", judge_names},
    {"waiting", judge_waiting},
    {"data files", judge_data},
    {"store", judge_store},
    {"store in use", judge_owner},
    {"disk", judge_disk},
    {"descriptors", judge_descriptors},
    {NULL, NULL},
};

const char *doctor_level_name(enum doctor_level level)
{
    static const char *const NAMES[] = {"skipped", "ok", "warn", "FAIL"};
    return NAMES[level];
}

#include "services/cli/doctor_checks.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
        if (report->schema_version < report->newest_schema_version) {
            find(finding, DOCTOR_WARN, "the next start upgrades it and keeps a copy",
                 "%s is sound, of schema version %d", facts->store, report->schema_version);
        } else {
            find(finding, DOCTOR_OK, NULL,
                 "%s is sound: schema version %d, %" PRId64 " jobs, %" PRId64 " bytes",
                 facts->store, report->schema_version, report->n_jobs, report->n_bytes);
        }
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

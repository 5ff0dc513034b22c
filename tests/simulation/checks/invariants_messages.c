/* What messages must say: acknowledgements, tasks and details agree with the store, workers send
 * what the fault-free run or the replay sends, and no honest update is refused. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/json/json.h"
#include "api/worker/worker_messages.h"
#include "tests/simulation/checks/invariants_job.h"
#include "tests/simulation/checks/lease_invariants.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"

/* Whether the update is what the client, drawn for that round, sends: as expected or first seen. */
static bool is_message(const struct invariants_job *watch, const struct tally_update *update)
{
    uint64_t *sent = invariants_at_update(watch, watch->sent, update->round, update->client);
    if (sent != NULL && *sent == 0 && update->round > watch->dropped_in_round) {
        *sent = sim_update_digest(update);
    }
    return sent != NULL && *sent == sim_update_digest(update) &&
           sim_job_draws(watch->job, update->round, update->client);
}

/* An answer in the round of the last evaluation, which stop.seconds may begin at any time. */
static bool is_evaluation(const struct invariants_job *watch, const struct tally_update *update)
{
    return watch->job->spec.stop.seconds > 0 && tally_job_spec_evaluates(&watch->job->spec) &&
           update->payload.size == 0 && update->payload_bits == 0;
}

/* A training that failed this time, after which the client is asked again. */
static bool is_failure(const struct invariants_job *watch, const struct tally_update *update)
{
    return watch->job->spec.objective.type == TALLY_TRAINING && update->may_retry &&
           update->failure[0] != '\0';
}

/* The point from which a job is to start. */
static bool is_start(const struct invariants_job *watch, const struct tally_update *update)
{
    return watch->job->spec.initial_point.type == TALLY_INITIAL_FIRST && update->round == 0;
}

/* A client's survey of its points. */
static bool is_survey(const struct invariants_job *watch, const struct tally_update *update)
{
    const struct sim_job *job = watch->job;
    return job->scaling != 0 && update->round == 1 && update->client < job->spec.clients &&
           job->surveys[update->client] == sim_update_digest(update);
}

static bool is_post(const char *method)
{
    return strcmp(method, "PostUpdate") == 0;
}

/* The updates of a PostUpdate, one after the other. */
struct posted {
    struct tally_update_request message;
    size_t n_left;
    struct tally_update update; /* the one that was read last */
};

/* False: it does not decode. */
static bool posted_begin(const uint8_t *body, size_t n_body, struct posted *ret_posted)
{
    *ret_posted = (struct posted){.n_left = 0};
    const bool ok =
        tally_update_request_decode(body, n_body, &ret_posted->message, NULL) == TALLY_OK;
    ret_posted->n_left = ok ? ret_posted->message.n_updates : 0;
    return ok;
}

/* Reads the next one; false after the last one, and for junk. */
static bool posted_next(struct posted *posted)
{
    if (posted->n_left == 0) {
        return false;
    }
    posted->n_left--;
    const bool ok = tally_update_request_next(&posted->message, &posted->update, NULL) == TALLY_OK;
    if (!ok) {
        sim_violation("an update does not decode");
    }
    return ok;
}

static void see_acknowledged(const struct sim_peer *peer, const char *job_id,
                             const struct tally_update *update)
{
    struct invariants_job *watch = invariants_job(job_id);
    if (watch == NULL) {
        if (!seen.has_gone_back) {
            sim_violation("%s: an update of unknown job %s is acknowledged", peer->name, job_id);
        }
        return;
    }
    if (is_failure(watch, update) || is_start(watch, update)) {
        return; /* nothing is stored */
    }
    if (is_survey(watch, update)) {
        sim_note("coordinator", "acknowledges %s survey of client %u", watch->job->name,
                 update->client);
        watch->surveyed[update->client] = sim_update_digest(update);
        seen.is_stale = true;
        return;
    }
    if (!is_message(watch, update) && !is_evaluation(watch, update)) {
        sim_violation("%s: an update of %s, round %u, client %u is acknowledged that is not the "
                      "client's",
                      peer->name, watch->job->name, update->round, update->client);
        return;
    }
    sim_note("coordinator", "acknowledges %s round %u client %u", watch->job->name, update->round,
             update->client);
    if (!invariants_is_stopped(watch) || is_evaluation(watch, update)) { /* else it is withdrawn */
        *invariants_at_update(watch, watch->acknowledged, update->round, update->client) =
            sim_update_digest(update);
    }
    seen.is_stale = true; /* check after this turn, whether it wrote or not */
}

static void see_task(const struct sim_peer *peer, const struct tally_task *task)
{
    const struct invariants_job *watch = invariants_job(task->job_id);
    if (watch == NULL) {
        sim_violation("%s: a task of job %s, which is not stored", peer->name, task->job_id);
        return;
    }
    sim_note("coordinator",
             "task for %s: %s round %u iterate %llu, %zu clients, %zu broadcasts%s%s", peer->name,
             watch->job->name, task->round, (unsigned long long)task->iterate, task->n_clients,
             task->n_broadcasts, task->snapshot.size > 0 ? ", snapshot" : "",
             task->job_document.size > 0 ? ", document" : "");
    const bool is_past = seen.source.is_shared && !invariants_is_current(watch);
    if (task->wants_start) {
        const bool may = watch->job->spec.initial_point.type == TALLY_INITIAL_FIRST &&
                         watch->row.status == TALLY_JOB_QUEUED;
        if (!seen.is_stale && !is_past && !may) {
            sim_violation("%s: a worker is asked for a start of a job that is %s", peer->name,
                          tally_job_status_name(watch->row.status));
        }
        return;
    }
    if (!seen.is_stale && (is_past ? task->round > watch->row.progress.round + 1
                                   : task->round != watch->row.progress.round + 1)) {
        sim_violation("%s: a task of round %u while round %" PRId64 " is open in the store",
                      watch->job->name, task->round, watch->row.progress.round + 1);
    }
    if (!seen.is_stale && !is_past && watch->row.status != TALLY_JOB_RUNNING) {
        sim_violation("%s: a task although the job is %s", watch->job->name,
                      tally_job_status_name(watch->row.status));
    }
    if (task->scaling_digest != (task->wants_survey ? 0 : watch->job->scaling)) {
        sim_violation("%s: a task names another scaling than the expected one", watch->job->name);
    }
    if (task->wants_survey && (watch->job->scaling == 0 || task->round != 1)) {
        sim_violation("%s: a task of round %u wants a survey", watch->job->name, task->round);
    }
    if (task->wants_survey && watch->has_scaling && !seen.is_stale && !is_past) {
        sim_violation("%s: a second survey", watch->job->name);
    }
    for (size_t i = 0; !task->wants_survey && i < task->n_clients; i++) {
        if (!sim_job_draws(watch->job, task->round, task->clients[i])) {
            sim_violation("%s: a task of round %u for client %u, which is not in its cohort",
                          watch->job->name, task->round, task->clients[i]);
        }
    }
    if (!invariants_is_point(watch, (int64_t)task->iterate, task->x_checksum)) {
        sim_violation("%s: a task tells another checksum than the expected one", watch->job->name);
    }
}

static void see_poll_answer(const struct sim_peer *peer, const uint8_t *body, size_t n_body)
{
    static struct tally_poll_response response; /* large */
    if (tally_poll_response_decode(body, n_body, &response, NULL) != TALLY_OK) {
        sim_violation("%s: the answer to a poll does not decode", peer->name);
        return;
    }
    if (response.kind == TALLY_POLL_TASK) {
        see_task(peer, &response.task);
    }
    tally_poll_response_fini(&response);
}

/* An honest update is refused only if its round or its point is not the open one. */
static void check_refusal(const char *worker, const char *job_id, enum tally_status status,
                          const char *message)
{
    /* The worker may post an update from a lost history. If its round has closed in the current
     * history, the coordinator compares it with the client's update there. So it does, if the job
     * has ended, with an update of the round that stop.seconds withdrew. */
    const struct invariants_job *watch = invariants_job(job_id);
    const bool may_differ =
        watch != NULL && (watch->has_two_histories || invariants_is_stopped(watch));
    if ((status == TALLY_ALREADY_EXISTS && !may_differ) || status == TALLY_INVALID_ARGUMENT ||
        status == TALLY_INTERNAL || status == TALLY_DATA_LOSS) {
        sim_violation("%s: an honest update is refused: %s", worker, message);
    }
}

/* The response to updates may include the response to a poll. */
static void see_next(const struct sim_peer *peer, const struct tally_bytes *next)
{
    invariants_check(); /* what this turn has committed */
    see_poll_answer(peer, next->data, next->size);
}

static void see_update_answer(const struct sim_peer *peer, const struct sim_message *message,
                              const uint8_t *body, size_t n_body)
{
    struct posted posted;
    struct tally_update_response response;
    if (!posted_begin(message->body, message->n_body, &posted)) {
        sim_violation("%s: junk is acknowledged", peer->name);
        return;
    }
    const char *job_id = posted.message.job_id;
    if (tally_update_response_decode(body, n_body, &response, NULL) != TALLY_OK ||
        (response.n_results != 0 &&
         (response.n_results != posted.n_left || response.n_results == 1))) {
        sim_violation("%s: the answer to updates does not decode, or has other results",
                      peer->name);
        return;
    }
    if (response.has_next) {
        see_next(peer, &response.next);
    }
    while (posted_next(&posted)) {
        struct tally_update_result result = {.code = ""};
        if (response.n_results > 0 &&
            tally_update_response_next(&response, &result, NULL) != TALLY_OK) {
            sim_violation("%s: the result of an update does not decode", peer->name);
        } else if (result.code[0] == '\0') {
            see_acknowledged(peer, job_id, &posted.update);
        } else {
            sim_note("coordinator", "refuses round %u client %u: %s", posted.update.round,
                     posted.update.client, result.message);
            check_refusal(peer->name, job_id, tally_status_of_connect_code(result.code),
                          result.message);
            if (response.has_next) {
                sim_violation("%s: a task comes with a refused update", peer->name);
            }
        }
    }
}

/* After one second in a round the coordinator says what it waits for. The second restarts when the
 * job has said something else, such as an outage of the store: a job that lost a write is reloaded,
 * a second or two later if that read fails, and its round then gives the workers 1.5 s to return.
 * With several coordinators such an outage may end unseen, and a call may last 3 s. */
enum { SAYS_IT_AFTER_US = 5000000, SAYS_IT_AFTER_SHARED_US = 10000000 };

/* A job that is stalled for a while says what it waits for; one that has ended waits for
 * nothing. */
static void check_waiting(struct invariants_job *watch, const struct tally_json *waiting)
{
    const char *text = tally_json_is_object(waiting) ? tally_json_get_text(waiting, "text") : NULL;
    const bool says = text != NULL && text[0] != '\0';
    snprintf(watch->waiting, sizeof watch->waiting, "%s", says ? text : "");
    const bool has_ended = tally_job_status_is_terminal(watch->row.status);
    const struct sim_replica *replica = sim_replica_self();
    const bool serves = replica == NULL || seen.serves[sim_replica_index(replica)];
    const int64_t after_us = seen.source.is_shared ? SAYS_IT_AFTER_SHARED_US : SAYS_IT_AFTER_US;
    if (says) {
        watch->said_us = sim_now_us();
    }
    const int64_t silent_since_us =
        watch->moved_us > watch->said_us ? watch->moved_us : watch->said_us;
    const bool must_say =
        sim_now_us() > silent_since_us + after_us && serves && invariants_is_current(watch);
    if (!seen.is_stale && !(seen.source.is_shared && has_ended) &&
        (has_ended ? says : !says && must_say)) {
        sim_violation("%s: %s in round %" PRId64 ", and says that it waits for \"%s\"",
                      watch->job->name, tally_job_status_name(watch->row.status),
                      watch->row.progress.round + 1, says ? text : "");
    }
}

/* The detail of a job says what the store holds. */
static void see_detail(const uint8_t *body, size_t n_body)
{
    struct tally_json *detail;
    if (tally_json_parse((const char *)body, n_body, &detail, NULL) != TALLY_OK) {
        sim_violation("the detail of a job is no JSON");
        return;
    }
    const char *id = tally_json_get_text(detail, "id");
    struct invariants_job *watch = id != NULL ? invariants_job(id) : NULL;
    const struct tally_json *bits = tally_json_get(detail, "bits");
    const struct tally_json *uplink = bits != NULL ? tally_json_get(bits, "uplink") : NULL;
    if (watch == NULL || uplink == NULL) {
        sim_violation("the detail of job %s is incomplete, or it is not stored", id);
    } else {
        const struct tally_store_job *row = &watch->row;
        const int64_t round = tally_json_get_integer(detail, "round", -1);
        const int64_t payload_bits = tally_json_get_integer(uplink, "payload", -1);
        const bool same =
            seen.is_stale ||
            (round == row->progress.round &&
             tally_json_get_integer(detail, "time_step", -1) == row->progress.time_step &&
             payload_bits == (int64_t)row->progress.bits.uplink.payload_bits &&
             strcmp(tally_json_get_text(detail, "status"), tally_job_status_name(row->status)) ==
                 0);
        const bool was_so = seen.source.is_shared && !invariants_is_current(watch) && round >= 0 &&
                            round <= watch->n_records && payload_bits == watch->payload_bits[round];
        if (!same && !was_so) {
            sim_violation("%s: its detail says %s, round %" PRId64 ", %" PRId64
                          " payload bits; the store holds %s, round %" PRId64 ", %" PRIu64 " bits",
                          watch->job->name, tally_json_get_text(detail, "status"), round,
                          payload_bits, tally_job_status_name(row->status), row->progress.round,
                          row->progress.bits.uplink.payload_bits);
        }
        check_waiting(watch, tally_json_get(detail, "waiting"));
    }
    tally_json_free(detail);
}

void invariants_see_answer(const struct sim_peer *peer, const struct sim_message *message,
                           int64_t age_us, int status, const uint8_t *body, size_t n_body)
{
    seen.age_us = age_us;
    if (status >= 300) {
        return;
    }
    if (seen.source.is_shared) {
        invariants_check(); /* what others have committed */
    }
    const char *method = strrchr(message->path, '/') + 1;
    if (is_post(method)) {
        see_update_answer(peer, message, body, n_body);
    } else if (strcmp(method, "PollTask") == 0) {
        invariants_check(); /* what this turn has committed */
        see_poll_answer(peer, body, n_body);
    } else if (strcmp(message->method, "GET") == 0) {
        invariants_check();
        see_detail(body, n_body);
    }
}

/* A client cannot continue where the replay cannot, and nowhere else. */
static void check_failure(const struct invariants_job *watch, const char *worker,
                          const struct tally_update *update)
{
    const uint64_t *failing =
        invariants_at_update(watch, watch->failing, update->round, update->client);
    if ((failing == NULL || *failing == 0) && !seen.is_stale && !seen.has_gone_back) {
        sim_violation("%s: %s says that client %u cannot go on in round %u: %s", watch->job->name,
                      worker, update->client, update->round, update->failure);
    }
}

static void check_post(const char *worker, const char *job_id, const struct tally_update *update)
{
    const struct invariants_job *watch = invariants_job(job_id);
    sim_note(worker, "posts %s round %u client %u", watch != NULL ? watch->job->name : job_id,
             update->round, update->client);
    if (watch != NULL &&
        (is_failure(watch, update) || is_start(watch, update) || is_survey(watch, update))) {
        return;
    }
    /* A worker may still post from a history that is lost, in which other clients were missing. */
    if (watch != NULL && !watch->has_two_histories && !is_message(watch, update) &&
        !is_evaluation(watch, update)) {
        sim_violation("%s: %s posts for round %u, client %u what the client does not send: %s",
                      watch->job->name, worker, update->round, update->client, update->failure);
    }
    if (watch != NULL && update->failure[0] != '\0') {
        check_failure(watch, worker, update);
    }
}

void invariants_see_post(const char *worker, const char *method, const uint8_t *body, size_t n_body)
{
    struct posted posted;
    if (!is_post(method)) {
        return;
    }
    if (!posted_begin(body, n_body, &posted)) {
        sim_violation("%s posts junk", worker);
        return;
    }
    while (posted_next(&posted)) {
        check_post(worker, posted.message.job_id, &posted.update);
    }
}

void invariants_see_refusal(const char *worker, const char *method, const uint8_t *body,
                            size_t n_body, const struct tally_error *why)
{
    struct posted posted;
    if (is_post(method) && posted_begin(body, n_body, &posted)) {
        check_refusal(worker, posted.message.job_id, why->status, why->message);
    }
}

void invariants_see_worker_log(const char *worker, const char *event, const char *text)
{
    static const char *const NEVER[] = {"point lost, fetching it again", "job refused"};
    for (size_t i = 0; i < sizeof NEVER / sizeof NEVER[0]; i++) {
        if (strcmp(event, NEVER[i]) == 0 && !seen.has_gone_back) {
            sim_violation("%s: %s", worker, text);
        }
    }
}

void invariants_see_worker_end(const char *worker, const struct tally_error *why)
{
    if (!seen.has_gone_back) {
        sim_violation("%s gives up: %s", worker, why->message);
    }
}

#include "services/worker/worker_undeliverable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"

/* Three attempts in the first minute, six in an hour from then on. An attempt may be a long body
 * that is sent in vain. */
enum { FIRST_PAUSE_MS = 10000, MAX_PAUSE_MS = 600000 };

struct undeliverable {
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    char reason[TALLY_FAILURE_CAPACITY];
    enum { SUSPECTED, NEW, TOLD, TRYING } state;
    bool is_temporary; /* the answer to the last attempt */
    int64_t pause_ms;  /* 0 = the job has only been suspected */
    int64_t due_ms;    /* monotonic; of the next attempt */
    struct undeliverable *next;
};

void undeliverables_fini(struct undeliverables *list)
{
    while (list->first != NULL) {
        undeliverables_remove(list, list->first->job_id);
    }
}

static struct undeliverable *find(const struct undeliverables *list, const char *job_id)
{
    struct undeliverable *job = list->first;
    while (job != NULL && strcmp(job->job_id, job_id) != 0) {
        job = job->next;
    }
    return job;
}

int64_t undeliverables_add(struct undeliverables *list, const char *job_id, bool is_temporary,
                           const char *reason)
{
    struct undeliverable *job = find(list, job_id);
    const bool is_first = job == NULL;
    if (job == NULL) {
        job = calloc(1, sizeof *job);
        if (job == NULL) {
            return 0;
        }
        snprintf(job->job_id, sizeof job->job_id, "%s", job_id);
        job->next = list->first;
        list->first = job;
    }
    snprintf(job->reason, sizeof job->reason, "%s", reason);
    job->is_temporary = is_temporary;
    if (is_first && is_temporary) {
        job->state = SUSPECTED;
        return 0;
    }
    job->state = NEW;
    job->pause_ms = job->pause_ms == 0 ? FIRST_PAUSE_MS : 2 * job->pause_ms;
    job->pause_ms = job->pause_ms < MAX_PAUSE_MS ? job->pause_ms : MAX_PAUSE_MS;
    job->due_ms = tally_monotonic_ms() + job->pause_ms;
    return job->pause_ms;
}

void undeliverables_remove(struct undeliverables *list, const char *job_id)
{
    for (struct undeliverable **at = &list->first; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->job_id, job_id) == 0) {
            struct undeliverable *gone = *at;
            *at = gone->next;
            list->asked = list->asked == gone ? NULL : list->asked;
            free(gone);
            return;
        }
    }
}

void undeliverables_forget_temporary(struct undeliverables *list)
{
    struct undeliverable *job = list->first;
    while (job != NULL) {
        struct undeliverable *next = job->next;
        if (job->is_temporary && (job->state == NEW || job->pause_ms == 0)) {
            undeliverables_remove(list, job->job_id);
        }
        job = next;
    }
}

bool undeliverables_has_new(const struct undeliverables *list, const char *job_id)
{
    const struct undeliverable *job = find(list, job_id);
    return job != NULL && (job->state == NEW || job->state == SUSPECTED);
}

bool undeliverables_repeat(struct undeliverables *list, const char *job_id)
{
    struct undeliverable *job = find(list, job_id);
    if (job == NULL || job->state == TRYING) {
        return false;
    }
    job->state = NEW;
    return true;
}

/* The first job of which there is something to say. */
static struct undeliverable *find_unsaid(const struct undeliverables *list, int64_t now_ms)
{
    struct undeliverable *job = list->first;
    while (job != NULL && !(job->state == NEW || (job->state == TOLD && job->due_ms <= now_ms))) {
        job = job->next;
    }
    return job;
}

void undeliverables_ask(struct undeliverables *list, struct tally_poll_request *request)
{
    const int64_t now_ms = tally_monotonic_ms();
    struct undeliverable *asked = list->asked = find_unsaid(list, now_ms);
    if (asked != NULL) {
        memcpy(request->undeliverable.job_id, asked->job_id, sizeof asked->job_id);
        snprintf(request->undeliverable.reason, sizeof request->undeliverable.reason, "%s",
                 asked->state == NEW ? asked->reason : "");
    }
    for (const struct undeliverable *job = list->first; job != NULL; job = job->next) {
        const int64_t left_ms = job->due_ms > now_ms ? job->due_ms - now_ms : 0;
        if (job->state != TRYING && job->state != SUSPECTED && left_ms < request->wait_ms) {
            request->wait_ms = (uint32_t)left_ms;
        }
    }
}

void undeliverables_answered(struct undeliverables *list)
{
    if (list->asked != NULL) {
        list->asked->state = list->asked->state == NEW ? TOLD : TRYING;
        list->asked = NULL;
    }
    for (struct undeliverable *job = list->first; job != NULL; job = job->next) {
        job->state = job->state == SUSPECTED ? TRYING : job->state;
    }
}

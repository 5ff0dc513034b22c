#include "tests/simulation/programs/sim_admin.h"

#include <stdio.h>
#include <string.h>

#include "api/json/json.h"
#include "storage/store.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_process.h"
#include "tests/simulation/world/sim_random.h"

enum { TIMEOUT_MS = 5000, RETRY_US = 300000 };

struct admin {
    struct sim_process process;
    const struct sim_job *job;
    char id[TALLY_JOB_ID_CAPACITY]; /* of the job; "" = not submitted */
    enum tally_job_status status;   /* at the last look */
};

static struct {
    struct sim_admin_config config;
    struct admin admins[SIM_MAX_JOBS];
    int n;
    bool is_calm;
} all;

/* Sends a request, and reads id and status of the job from the response. Returns the HTTP status, 0
 * if no response came. */
static int ask(struct admin *admin, const struct sim_message *message)
{
    struct sim_answer answer = {0};
    if (sim_process_call(message, TIMEOUT_MS, true, &answer) != TALLY_OK) {
        return 0;
    }
    struct tally_json *detail = NULL;
    if (answer.http_status < 300 && tally_json_parse((const char *)answer.body.data,
                                                     answer.body.size, &detail, NULL) == TALLY_OK) {
        const char *id = tally_json_get_text(detail, "id");
        const char *status = tally_json_get_text(detail, "status");
        snprintf(admin->id, sizeof admin->id, "%s", id != NULL ? id : "");
        if (status == NULL || !tally_job_status_of_name(status, &admin->status)) {
            sim_violation("%s: its detail has no status", admin->job->name);
        }
        tally_json_free(detail);
    }
    tally_buffer_fini(&answer.body);
    return answer.http_status;
}

/* Posts the document under its key until it is accepted. */
static void submit(struct admin *admin)
{
    const struct sim_message message = {.method = "POST",
                                        .path = "/v1/jobs",
                                        .content_type = "application/json",
                                        .idempotency_key = admin->job->idempotency_key,
                                        .body = admin->job->document.data,
                                        .n_body = admin->job->document.size};
    int status = 0;
    while (status != 201 && !admin->process.is_killed) {
        status = ask(admin, &message);
        sim_note(admin->process.peer.name, "submits %s: %d %s", admin->job->name, status,
                 admin->id);
        if (status != 201) {
            if (status >= 400 && status < 500) {
                sim_violation("%s: its submission is refused with %d", admin->job->name, status);
            }
            sim_process_sleep(sim_around(RETRY_US));
        }
    }
}

static int act(struct admin *admin, const char *verb)
{
    char path[96];
    snprintf(path, sizeof path, "/v1/jobs/%s%s%s", admin->id, verb[0] != '\0' ? "/" : "", verb);
    const struct sim_message message = {
        .method = verb[0] != '\0' ? "POST" : "GET", .path = path, .body = (const uint8_t *)""};
    const int status = ask(admin, &message);
    sim_note(admin->process.peer.name, "%s %s: %d", verb[0] != '\0' ? verb : "looks at",
             admin->job->name, status);
    return status;
}

/* Looks at the job, and perhaps asks for something. */
static void look(struct admin *admin)
{
    if (act(admin, "") == 404) { /* a power cut undid it */
        submit(admin);
    }
    if (admin->status == TALLY_JOB_PAUSED && (all.is_calm || sim_chance(500))) {
        act(admin, "resume");
    } else if (!all.is_calm && sim_chance(all.config.pauses)) {
        act(admin, "pause");
    } else if (!all.is_calm && sim_chance(all.config.cancels)) {
        invariants_allow_cancel(admin->job);
        act(admin, "cancel");
    } else if (!all.is_calm && sim_chance(20)) {
        submit(admin); /* again: the same job comes back */
    }
}

static void run(void *context)
{
    struct admin *admin = context;
    sim_process_sleep(sim_around(all.config.submit_after_us));
    submit(admin);
    int64_t look_us = all.config.look_us;
    while (!admin->process.is_killed) { /* also when it has ended: a power cut may undo that */
        sim_process_sleep(sim_around(look_us));
        look_us += look_us / 8; /* looks get rarer as the wait gets longer */
        look(admin);
    }
}

void sim_admins_begin(const struct sim_job *jobs, int n_jobs, const struct sim_admin_config *config)
{
    memset(&all, 0, sizeof all);
    all.config = *config;
    all.n = n_jobs;
    for (int i = 0; i < n_jobs; i++) {
        struct admin *admin = &all.admins[i];
        admin->job = &jobs[i];
        admin->process.peer.place = SIM_FIRST_ADMIN_PLACE + i;
        snprintf(admin->process.peer.name, sizeof admin->process.peer.name, "admin-%d", i);
        sim_process_start(&admin->process, run, NULL, admin);
    }
}

void sim_admins_end(void)
{
    for (int i = 0; i < all.n; i++) {
        sim_process_kill(&all.admins[i].process, true);
    }
}

void sim_admins_calm(void)
{
    all.is_calm = true;
}

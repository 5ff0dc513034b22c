#include "tests/simulation/checks/sim_replay.h"

#include <stdlib.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "services/job/model_copy.h"
#include "tests/simulation/world/sim.h"

/* What a client does in the open round. */
struct answer {
    struct tally_update update;
    struct tally_buffer payload; /* of `update` */
    bool diverges;               /* there is no update */
};

struct sim_replay {
    const struct sim_job *job;
    struct tally_objective *objective;
    struct tally_model_copy *model;
    struct tally_job *engine;
    struct answer *answers; /* [clients] */
    struct tally_job_outcome outcome;
    int n_taken; /* records of `outcome` already returned */
};

static bool is_running(const struct sim_replay *replay)
{
    return tally_job_status(replay->engine) == TALLY_JOB_RUNNING;
}

static void follow_broadcast(struct sim_replay *replay)
{
    const int64_t iterate = tally_job_progress(replay->engine)->iterate;
    if (tally_model_copy_iterate(replay->model) != iterate) {
        const struct tally_message_view view =
            tally_message_view(tally_job_broadcast(replay->engine, iterate));
        SIM_REQUIRE(tally_model_copy_apply(replay->model, iterate, &view, NULL) == TALLY_OK,
                    "broadcast of a replay");
    }
}

static void compute(struct sim_replay *replay, uint32_t client)
{
    struct answer *answer = &replay->answers[client];
    struct tally_bits bits;
    int64_t counted; /* last round whose message counted: the client's shift has no others */
    SIM_REQUIRE(tally_job_shift(replay->engine, client, &counted) == NULL ||
                    tally_model_copy_set_shift(replay->model, client, counted, NULL, 0, NULL) ==
                        TALLY_OK,
                "shift of a replay");
    const enum tally_status status = tally_model_copy_compute(
        replay->model, tally_job_open_round(replay->engine), client, &answer->update, &bits, NULL);
    answer->diverges = status == TALLY_NOT_FINITE;
    SIM_REQUIRE(status == TALLY_OK || answer->diverges, "update of a replay");
    answer->payload.size = 0;
    if (answer->diverges) {
        answer->update = (struct tally_update){.client = client};
        return;
    }
    SIM_REQUIRE(tally_buffer_append(&answer->payload, answer->update.payload.data,
                                    answer->update.payload.size) == TALLY_OK,
                "no memory");
    answer->update.payload.data = answer->payload.data;
}

static void open_round(struct sim_replay *replay)
{
    if (!is_running(replay)) {
        return;
    }
    follow_broadcast(replay);
    for (uint32_t m = 0; m < replay->job->spec.clients; m++) {
        struct tally_job_outcome none;
        tally_job_set_absent(replay->engine, m, false, &none); /* closes no round */
        replay->answers[m].diverges = false;
        if (tally_job_is_drawn(replay->engine, m)) {
            compute(replay, m);
        }
    }
}

struct sim_replay *sim_replay_new(const struct sim_job *job)
{
    struct sim_replay *replay = sim_new(sizeof *replay);
    const struct tally_job_spec *spec = &job->spec;
    replay->job = job;
    replay->answers = sim_new((size_t)spec->clients * sizeof *replay->answers);
    SIM_REQUIRE(sim_job_start(job, &replay->objective, &replay->model, &replay->engine) == TALLY_OK,
                "replay of a job");
    sim_job_survey(spec, replay->engine, replay->model, NULL);
    open_round(replay);
    return replay;
}

void sim_replay_free(struct sim_replay *replay)
{
    if (replay == NULL) {
        return;
    }
    for (int64_t m = 0; m < replay->job->spec.clients; m++) {
        tally_buffer_fini(&replay->answers[m].payload);
    }
    free(replay->answers);
    tally_job_free(replay->engine);
    tally_model_copy_free(replay->model);
    tally_objective_free(replay->objective);
    free(replay);
}

/* Gives the engine the open round's updates except the missing ones. */
static void close_round(struct sim_replay *replay, const char *missing)
{
    bool is_closed = false;
    replay->outcome = (struct tally_job_outcome){0};
    for (uint32_t m = 0; m < replay->job->spec.clients && !is_closed; m++) {
        const struct answer *answer = &replay->answers[m];
        if (!tally_job_is_drawn(replay->engine, m) || answer->diverges ||
            sim_is_listed(missing, m)) {
            continue;
        }
        SIM_REQUIRE(tally_job_receive(replay->engine, &answer->update, &replay->outcome, NULL) ==
                        TALLY_OK,
                    "update of a replay");
        is_closed = replay->outcome.n_records > 0 || !is_running(replay);
    }
    if (!is_closed) {
        SIM_REQUIRE(tally_job_overdue(replay->engine, &replay->outcome, NULL) == TALLY_OK,
                    "deadline of a replay");
    }
}

const struct tally_round_record *sim_replay_round(struct sim_replay *replay,
                                                  const struct tally_round_record *record)
{
    if (replay->n_taken == replay->outcome.n_records) {
        replay->n_taken = 0;
        if (!is_running(replay)) {
            return NULL;
        }
        close_round(replay, record->missing);
        if (replay->outcome.n_records == 0) {
            return NULL;
        }
        open_round(replay);
    }
    return &replay->outcome.records[replay->n_taken++];
}

int64_t sim_replay_open_round(const struct sim_replay *replay)
{
    return is_running(replay) ? tally_job_open_round(replay->engine)->round : 0;
}

uint64_t sim_replay_checksum(const struct sim_replay *replay, int64_t *ret_iterate)
{
    const struct tally_progress *progress = tally_job_progress(replay->engine);
    *ret_iterate = progress->iterate;
    return progress->x_checksum;
}

bool sim_replay_draws(const struct sim_replay *replay, uint32_t client)
{
    return is_running(replay) && tally_job_is_drawn(replay->engine, client);
}

uint64_t sim_replay_update(const struct sim_replay *replay, uint32_t client)
{
    return sim_update_digest(&replay->answers[client].update);
}

bool sim_replay_diverges(const struct sim_replay *replay, uint32_t client)
{
    return is_running(replay) && replay->answers[client].diverges;
}

bool sim_replay_fails(const struct sim_replay *replay)
{
    bool fails = tally_job_status(replay->engine) == TALLY_JOB_FAILED;
    for (uint32_t m = 0; m < replay->job->spec.clients && !fails; m++) {
        fails = sim_replay_diverges(replay, m);
    }
    return fails;
}

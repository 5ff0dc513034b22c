#include "tests/unit/services/job/job_host.h"

#include <stdlib.h>
#include <string.h>

#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"

struct tally_job_spec job_host_spec(void)
{
    struct tally_job_spec spec = tally_job_spec_default();
    spec.encoding = TALLY_ENCODING_INDEX_UNARY;
    strcpy(spec.name, "test");
    spec.params = TALLY_CEAL.defaults();
    spec.params.ceal.step_size = 1.5;
    spec.params.ceal.sigma = 1.2;
    spec.params.ceal.gamma0 = 1.5;
    spec.params.ceal.phi0 = 1;
    spec.params.ceal.sample_scale = 0.05;
    spec.params.ceal.log_factor = false;
    spec.params.ceal.first_stage = 2;
    spec.objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 6, .points = 63, .frobenius_norm = 8, .noise_std = 0.5};
    spec.clients = 5;
    spec.horizon = 300;
    spec.seed = 42;
    spec.initial_point.type = TALLY_INITIAL_RANDOM_SPHERE;
    spec.initial_point.radius = 12;
    return spec;
}

struct tally_job_spec job_host_fedavg_spec(int64_t clients, double cohort)
{
    struct tally_job_spec spec = job_host_spec();
    spec.algorithm = 2; /* fedavg */
    spec.params = TALLY_FEDAVG.defaults();
    spec.params.baseline.step_size = 0.02;
    spec.params.baseline.local_steps = 3;
    spec.clients = clients;
    spec.cohort = cohort;
    return spec;
}

void job_host_init(struct job_host *host, const struct tally_job_spec *spec)
{
    job_host_init_in(host, spec, ".");
}

void job_host_init_in(struct job_host *host, const struct tally_job_spec *spec,
                      const char *data_dir)
{
    *host = (struct job_host){.spec = *spec};
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_FATAL(spec->clients <= HOST_MAX_CLIENTS);
    TALLY_ASSERT_STATUS(tally_job_spec_validate(spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_objective_new(&spec->objective, (uint32_t)spec->clients,
                                            tally_job_spec_setting(spec).key, data_dir,
                                            &host->objective, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_local_reference(spec, host->objective, &host->f_star, &err), TALLY_OK,
                        &err);
    TALLY_ASSERT_STATUS(tally_model_copy_new(spec, host->objective, &host->copy, &err), TALLY_OK,
                        &err);
    TALLY_ASSERT_STATUS(tally_job_new(spec, &host->job, &err), TALLY_OK, &err);
    char schedule[TALLY_SCHEDULE_CAPACITY];
    tally_local_schedule(spec, schedule);
    TALLY_ASSERT_STATUS(tally_job_start(host->job, host->f_star, schedule, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(err.status, TALLY_OK);
}

void job_host_init_standard(struct job_host *host)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(host, &spec);
}

static void drop_updates(struct job_host *host)
{
    for (int m = 0; m < HOST_MAX_CLIENTS; m++) {
        free((void *)(uintptr_t)host->updates[m].payload.data);
        host->updates[m] = (struct tally_update){0};
    }
}

void job_host_fini(struct job_host *host)
{
    drop_updates(host);
    tally_job_free(host->job);
    tally_model_copy_free(host->copy);
    tally_objective_free(host->objective);
}

void job_host_compute(struct job_host *host)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_progress *progress = tally_job_progress(host->job);
    while (tally_model_copy_iterate(host->copy) < progress->iterate) {
        int64_t next = tally_model_copy_iterate(host->copy) + 1;
        const struct tally_message *broadcast = tally_job_broadcast(host->job, next);
        CU_ASSERT_PTR_NOT_NULL_FATAL(broadcast);
        struct tally_message_view view = tally_message_view(broadcast);
        CU_ASSERT_EQUAL_FATAL(tally_model_copy_apply(host->copy, next, &view, &err), TALLY_OK);
    }
    CU_ASSERT_EQUAL(tally_model_copy_checksum(host->copy), progress->x_checksum);
    drop_updates(host);
    size_t dim;
    const double *x = tally_job_point(host->job, &dim);
    double sum = 0;
    for (uint32_t m = 0; m < host->spec.clients; m++) {
        struct tally_update *update = &host->updates[m];
        TALLY_ASSERT_STATUS(tally_model_copy_compute(host->copy, tally_job_open_round(host->job), m,
                                                     update, &host->bits[m], &err),
                            TALLY_OK, &err);
        if (update->payload.size > 0) {
            uint8_t *copy = malloc(update->payload.size);
            CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
            memcpy(copy, update->payload.data, update->payload.size);
            update->payload.data = copy;
        } else {
            update->payload.data = NULL;
        }
        sum += local_loss_of(host->objective, m, x);
    }
    host->loss = sum / (double)host->spec.clients;
}

struct tally_job_outcome job_host_send(struct job_host *host, uint32_t client)
{
    struct tally_job_outcome outcome;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_receive(host->job, &host->updates[client], &outcome, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(err.status, TALLY_OK);
    for (int i = 0; i < outcome.n_records; i++) {
        CU_ASSERT_FATAL(host->n_records < HOST_MAX_RECORDS);
        host->records[host->n_records++] = outcome.records[i];
    }
    return outcome;
}

void job_host_round(struct job_host *host)
{
    job_host_compute(host);
    bool is_open = true;
    for (uint32_t m = 0; m < host->spec.clients && is_open; m++) {
        is_open = !tally_job_is_drawn(host->job, m) || job_host_send(host, m).n_records == 0;
    }
}

void job_host_run(struct job_host *host)
{
    while (!tally_job_status_is_terminal(tally_job_status(host->job))) {
        job_host_round(host);
    }
}

struct job_look job_look(const struct tally_job *job)
{
    struct job_look look = {.status = tally_job_status(job),
                            .progress = *tally_job_progress(job),
                            .open = *tally_job_open_round(job)};
    for (uint32_t m = 0; m < tally_job_get_spec(job)->clients; m++) {
        look.received[m] = tally_job_has_received(job, m);
    }
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(job, &look.state),
                          look.status != TALLY_JOB_QUEUED ? TALLY_OK : TALLY_FAILED_PRECONDITION);
    return look;
}

void job_look_fini(struct job_look *look)
{
    tally_buffer_fini(&look->state);
}

bool job_same_progress(const struct tally_progress *a, const struct tally_progress *b)
{
    return a->round == b->round && a->time_step == b->time_step && a->iterate == b->iterate &&
           a->stage == b->stage && a->cumulative_regret == b->cumulative_regret &&
           a->f_star == b->f_star && a->has_f_star == b->has_f_star && a->has_loss == b->has_loss &&
           a->loss == b->loss && a->x_checksum == b->x_checksum &&
           a->estimates.sigma == b->estimates.sigma &&
           a->estimates.gradient_bound == b->estimates.gradient_bound &&
           memcmp(&a->bits, &b->bits, sizeof a->bits) == 0;
}

bool job_same_record(const struct tally_round_record *a, const struct tally_round_record *b)
{
    return a->round == b->round && a->time_step == b->time_step && a->iterate == b->iterate &&
           a->stage == b->stage && a->samples == b->samples && a->received == b->received &&
           strcmp(a->missing, b->missing) == 0 && a->norm == b->norm && a->passed == b->passed &&
           a->cut == b->cut && a->loss == b->loss && a->cumulative_regret == b->cumulative_regret &&
           memcmp(&a->bits, &b->bits, sizeof a->bits) == 0;
}

static bool same_open(const struct tally_job_round *a, const struct tally_job_round *b)
{
    return a->round == b->round && a->iterate == b->iterate && a->evaluate == b->evaluate &&
           a->received == b->received && a->plan.stage == b->plan.stage &&
           a->plan.samples == b->plan.samples && a->plan.cut == b->plan.cut &&
           a->plan.grid.step == b->plan.grid.step &&
           a->plan.grid.intervals == b->plan.grid.intervals;
}

bool job_looks_same(const struct job_look *a, const struct job_look *b)
{
    return a->status == b->status && job_same_progress(&a->progress, &b->progress) &&
           same_open(&a->open, &b->open) &&
           memcmp(a->received, b->received, sizeof a->received) == 0 &&
           a->state.size == b->state.size && /* data is NULL where size is 0 */
           (a->state.size == 0 || memcmp(a->state.data, b->state.data, a->state.size) == 0);
}

#include "tests/unit/services/algorithms/baseline_world.h"

#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"

const struct tally_algorithm *const BASELINES[N_BASELINES] = {&TALLY_MINIBATCH_SGD, &TALLY_FEDAVG,
                                                              &TALLY_FEDPAQ, &TALLY_FEDCOM};

bool baseline_is_qsgd(const struct tally_algorithm *algorithm)
{
    return algorithm == &TALLY_FEDPAQ || algorithm == &TALLY_FEDCOM;
}

void baseline_world_init(struct baseline_world *world)
{
    *world = (struct baseline_world){
        .params.baseline = {.step_size = 0.05,
                            .local_steps = 6,
                            .levels = 5,
                            .server_step_size = 3},
        .setting = {.clients = BASELINE_CLIENTS,
                    .cohort = BASELINE_CLIENTS,
                    .dim = BASELINE_DIM,
                    .minibatch = 2,
                    .evaluate_every = 1,
                    .key = tally_rng_key(31, 0),
                    .encoding = &TALLY_ENCODING_UNARY},
        .plan = {.samples = 6},
        .answer.loss = -1,
        .x = {0.5, -1.25, 0.3, 2, -0.1, 0, 1.7},
    };
    struct tally_objective_spec spec = tally_objective_spec_default();
    spec.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = BASELINE_DIM, .points = 42, .frobenius_norm = 9, .noise_std = 0.5};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_new(&spec, BASELINE_CLIENTS, world->setting.key, ".",
                                            &world->objective, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(
        tally_scratch_init(&world->scratch, BASELINE_DIM, TALLY_SCRATCH_CLIENT, &err), TALLY_OK,
        &err);
    CU_ASSERT_EQUAL_FATAL(err.status, TALLY_OK);
    world->setting.params = &world->params;
}

void baseline_world_fini(struct baseline_world *world)
{
    tally_message_fini(&world->answer.message);
    tally_message_fini(&world->decision.broadcast);
    tally_scratch_fini(&world->scratch);
    tally_objective_free(world->objective);
}

enum tally_status baseline_step(struct baseline_world *world,
                                const struct tally_algorithm *algorithm, uint32_t client,
                                uint32_t round, bool evaluate, struct tally_error *err)
{
    const struct tally_client_task task = {&world->setting, &world->plan, world->objective, client,
                                           round,           world->x,     evaluate,         NULL};
    return algorithm->client_step(&task, &world->scratch, &world->answer, err);
}

void baseline_step_ok(struct baseline_world *world, const struct tally_algorithm *algorithm,
                      uint32_t client, uint32_t round, bool evaluate)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(baseline_step(world, algorithm, client, round, evaluate, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL_FATAL(err.status, TALLY_OK);
}

double baseline_loss_at(const struct baseline_world *world, const double *x)
{
    double sum = 0;
    for (uint32_t m = 0; m < BASELINE_CLIENTS; m++) {
        sum += local_loss_of(world->objective, m, x);
    }
    return sum / BASELINE_CLIENTS;
}

void baseline_walk(const struct baseline_world *world, uint32_t client, uint32_t round, double *x,
                   double *losses)
{
    struct tally_rng rng;
    double gradient[BASELINE_DIM];
    memcpy(x, world->x, sizeof world->x);
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_SAMPLING);
    for (int64_t k = 0; k < world->plan.samples; k++) {
        if (losses != NULL) {
            losses[k] = baseline_loss_at(world, x);
        }
        tally_objective_local_gradient(world->objective, client, x, world->setting.minibatch, &rng,
                                       gradient, NULL);
        const struct tally_baseline_params *params = &world->params.baseline;
        const double divisor = 1 + params->step_decay * (double)(world->plan.stage + k);
        for (size_t i = 0; i < BASELINE_DIM; i++) {
            const double pull = params->mu * (x[i] - world->x[i]); /* 0 unless fedprox */
            x[i] -= params->step_size / divisor * (gradient[i] + pull);
        }
        tally_domain_project(&world->setting.domain, x, BASELINE_DIM);
    }
}

void baseline_expected_vector(const struct baseline_world *world,
                              const struct tally_algorithm *algorithm, uint32_t client,
                              uint32_t round, float *ret_vector)
{
    double end[BASELINE_DIM], mean[BASELINE_DIM];
    struct tally_rng rng;
    baseline_walk(world, client, round, end, NULL);
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_SAMPLING);
    tally_objective_local_gradient(world->objective, client, world->x,
                                   world->plan.samples * world->setting.minibatch, &rng, mean,
                                   NULL);
    const double eta = world->params.baseline.step_size;
    for (size_t i = 0; i < BASELINE_DIM; i++) {
        const double step_taken = end[i] - world->x[i];
        const double value = algorithm == &TALLY_MINIBATCH_SGD ? mean[i]
                             : algorithm == &TALLY_FEDCOM      ? -1 / eta * step_taken
                                                               : step_taken;
        ret_vector[i] = (float)value;
    }
}

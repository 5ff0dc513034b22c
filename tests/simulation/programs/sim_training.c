#include "tests/simulation/programs/sim_training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "tests/simulation/checks/sim_job.h"
#include "tests/simulation/world/sim.h"

enum { MOST_CLIENTS = 16, MOST_DIM = 64 };

/* The loop of one process. */
struct loop {
    int job; /* its options: the number of the job in the seed */
    size_t dim;
    uint64_t seed;
    bool is_worker; /* else it is part of a run that others are compared with */
};

static struct {
    struct tally_plugin_set plugins;
    /* Failed trainings so far, which a failure that is due compares with. */
    int failures[SIM_MAX_JOBS][SIM_MAX_ROUNDS + 1][MOST_CLIENTS];
} all;

void sim_training_begin(void)
{
    memset(all.failures, 0, sizeof all.failures);
}

static int open_loop(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                     size_t capacity)
{
    (void)ret_why;
    (void)capacity;
    struct loop *loop = sim_new(sizeof *loop);
    *loop = (struct loop){atoi(problem->options), (size_t)problem->dim, problem->seed,
                          problem->job[0] != '\0'};
    SIM_REQUIRE(loop->job < SIM_MAX_JOBS && loop->dim <= MOST_DIM &&
                    problem->clients <= MOST_CLIENTS,
                "job of a training loop");
    *ret_state = loop;
    return 0;
}

static void close_loop(void *state)
{
    free(state);
}

static uint64_t number_of(const struct loop *loop, uint32_t client, uint32_t round)
{
    const uint64_t facts[] = {loop->seed, client, round};
    return tally_checksum64(facts, sizeof facts);
}

/* Whether the training fails this time: one in ten does once or twice, wherever it is
 * tried. */
static bool fails(const struct loop *loop, const struct tally_plugin_training *task)
{
    const uint64_t number = number_of(loop, task->client, task->round);
    const int due = number % 10 == 0 ? 1 + (int)(number / 10 % 2) : 0;
    int *failures = &all.failures[loop->job][task->round][task->client];
    return loop->is_worker && (*failures)++ < due;
}

/* Moves the weights towards the client's own. */
static int train(void *state, const struct tally_plugin_training *task, float *weights,
                 uint64_t *ret_samples, char *ret_why, size_t capacity)
{
    const struct loop *loop = state;
    if (fails(loop, task)) {
        snprintf(ret_why, capacity, "the simulation has it fail");
        return 1;
    }
    for (size_t i = 0; i < loop->dim; i++) {
        const uint64_t number = number_of(loop, task->client, 1000 * task->round + (uint32_t)i);
        const float aim = 1 + 0.5F * (float)task->client + (float)(number % 1000) / 5000;
        weights[i] += 0.25F * (aim - weights[i]);
    }
    *ret_samples = 1 + number_of(loop, task->client, 0) % 50;
    return 0;
}

static int initial(void *state, float *ret_weights, char *ret_why, size_t capacity)
{
    const struct loop *loop = state;
    (void)ret_why;
    (void)capacity;
    for (size_t i = 0; i < loop->dim; i++) {
        ret_weights[i] = -1 - (float)i / 8;
    }
    return 0;
}

static int metrics(void *state, uint32_t client, uint32_t round, const double *x,
                   struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                   size_t capacity)
{
    (void)ret_why;
    (void)capacity;
    ret_metrics[0] = (struct tally_plugin_metric){
        "effort", x[0] + (double)(number_of(state, client, round) % 100) / 8};
    *ret_n = 1;
    return 0;
}

static double model_of(const float *weights, size_t dim)
{
    return (double)(tally_checksum64(weights, dim * sizeof *weights) >> 16);
}

double sim_training_model(const double *x, size_t dim)
{
    float weights[MOST_DIM];
    for (size_t i = 0; i < dim; i++) {
        weights[i] = (float)x[i];
    }
    return model_of(weights, dim);
}

/* A score that rises and then goes up and down a little, which differs between clients. */
static int evaluate(void *state, const struct tally_plugin_training *task, const float *weights,
                    struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                    size_t capacity)
{
    const struct loop *loop = state;
    (void)ret_why;
    (void)capacity;
    double distance = 0;
    for (size_t i = 0; i < loop->dim; i++) {
        distance += fabs((double)weights[i] - 1.5);
    }
    ret_metrics[0] = (struct tally_plugin_metric){SIM_MODEL_METRIC, model_of(weights, loop->dim)};
    ret_metrics[1] = (struct tally_plugin_metric){SIM_ROUND_METRIC, task->round};
    ret_metrics[2] = (struct tally_plugin_metric){"score", -distance / (double)loop->dim};
    ret_metrics[3] = (struct tally_plugin_metric){"own", 0.1 * task->client - distance};
    *ret_n = 4;
    return 0;
}

static const struct tally_plugin LOOP = {.abi = TALLY_PLUGIN_ABI,
                                         .size = sizeof LOOP,
                                         .name = "loop",
                                         .open = open_loop,
                                         .close = close_loop,
                                         .metrics = metrics,
                                         .train = train,
                                         .initial = initial,
                                         .evaluate = evaluate};

const struct tally_plugin_set *sim_training_plugins(void)
{
    if (all.plugins.first == NULL) { /* once in the process */
        SIM_REQUIRE(tally_plugin_set_add(&all.plugins, &LOOP, false, 0, NULL) == TALLY_OK,
                    "training loop");
    }
    return &all.plugins;
}

enum tally_status sim_objective_new(const struct tally_job_spec *spec,
                                    struct tally_objective **ret_objective, struct tally_error *err)
{
    const struct tally_data_source files = {.dir = SIM_DATA_DIR};
    return tally_plugin_set_objective(sim_training_plugins(), spec, "", &files, ret_objective, err);
}

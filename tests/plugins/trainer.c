/* trainer: a plug-in with a training loop. Client m moves every weight a third of the way to m + 1
 * (of 1 / (3 + mu) with a proximal term), and has used m + 1 samples. It offers -1 / i as the start
 * of weight i = 1, 2, ... `options` names what it does wrong instead, at the start, or in round 3:
 * for all clients, or only for client 1 ("one ..."), or for client 1 at its first two attempts
 * ("twice ..."). With "held", client m evaluates the last model once there is no file hold-m in
 * the data folder. */
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/objectives/plugin.h"

struct trainer {
    size_t dim;
    uint64_t rounds;
    float mu;
    bool has_job;
    char data_dir[512];
    char mood[32];
    bool only_one;
    int attempts; /* that go wrong; the rest succeed */
};

static int trainer_open(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                        size_t capacity)
{
    struct trainer *trainer = calloc(1, sizeof *trainer);
    (void)ret_why;
    (void)capacity;
    if (trainer == NULL) {
        return 1;
    }
    trainer->dim = (size_t)problem->dim;
    trainer->rounds = problem->rounds;
    trainer->mu = (float)problem->mu;
    trainer->has_job = problem->job[0] != '\0';
    snprintf(trainer->data_dir, sizeof trainer->data_dir, "%s", problem->data_dir);
    const char *space = strchr(problem->options, ' ');
    snprintf(trainer->mood, sizeof trainer->mood, "%s",
             space != NULL ? space + 1 : problem->options);
    trainer->only_one = space != NULL;
    trainer->attempts = strncmp(problem->options, "twice ", 6) == 0 ? 2 : INT_MAX;
    *ret_state = trainer;
    return 0;
}

static void trainer_close(void *state)
{
    free(state);
}

static int trainer_train(void *state, const struct tally_plugin_training *task, float *weights,
                         uint64_t *ret_samples, char *ret_why, size_t capacity)
{
    struct trainer *trainer = state;
    const bool is_wrong =
        task->round == 3 && (!trainer->only_one || task->client == 1) && trainer->attempts-- > 0;
    const char *mood = is_wrong ? trainer->mood : "";
    const float target = (float)(task->client + 1);
    for (size_t i = 0; i < trainer->dim; i++) {
        weights[i] += (target - weights[i]) / (3 + trainer->mu);
    }
    *ret_samples = task->client + 1;
    if (strcmp(mood, "nan") == 0) {
        weights[trainer->dim - 1] = NAN;
    } else if (strcmp(mood, "infinite") == 0) {
        weights[0] = -INFINITY;
    } else if (strcmp(mood, "none") == 0) {
        *ret_samples = 0;
    } else if (strcmp(mood, "many") == 0) {
        *ret_samples = UINT64_C(1) << 40;
    } else if (strcmp(mood, "crash") == 0) {
        abort();
    } else if (strcmp(mood, "fail") == 0) {
        snprintf(ret_why, capacity, "of %d rounds this is the third", (int)trainer->rounds);
        return 1;
    }
    return 0;
}

static int trainer_metrics(void *state, uint32_t client, uint32_t round, const double *x,
                           struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                           size_t capacity)
{
    const struct trainer *trainer = state;
    (void)round;
    (void)ret_why;
    (void)capacity;
    ret_metrics[0] = (struct tally_plugin_metric){"distance", fabs(client + 1 - x[0])};
    ret_metrics[1] = (struct tally_plugin_metric){"has_job", trainer->has_job};
    *ret_n = 2;
    return 0;
}

static int trainer_initial(void *state, float *ret_weights, char *ret_why, size_t capacity)
{
    const struct trainer *trainer = state;
    for (size_t i = 0; i + (strcmp(trainer->mood, "short_start") == 0) < trainer->dim; i++) {
        ret_weights[i] = -1 / (float)(i + 1);
    }
    if (strcmp(trainer->mood, "infinite_start") == 0) {
        ret_weights[1] = INFINITY;
    }
    if (strcmp(trainer->mood, "no_start") == 0) {
        snprintf(ret_why, capacity, "there is nowhere to start");
        return 1;
    }
    if (strcmp(trainer->mood, "crash_at_start") == 0) {
        abort();
    }
    return 0;
}

static void wait_while_held(const struct trainer *trainer, uint32_t client)
{
    char path[sizeof trainer->data_dir + 24];
    snprintf(path, sizeof path, "%s/hold-%u", trainer->data_dir, client);
    while (access(path, F_OK) == 0) {
        usleep(2000);
    }
}

/* The model's first weight, and what the options name for the model of round 3. */
static int trainer_evaluate(void *state, const struct tally_plugin_training *task,
                            const float *weights, struct tally_plugin_metric *ret_metrics,
                            size_t *ret_n, char *ret_why, size_t capacity)
{
    const struct trainer *trainer = state;
    const char *mood = task->round == 3 ? trainer->mood : "";
    if (strcmp(trainer->mood, "held") == 0 && task->round == trainer->rounds) {
        wait_while_held(trainer, task->client);
    }
    if (strcmp(mood, "blind") == 0) {
        snprintf(ret_why, capacity, "no test data");
        return 1;
    }
    if (strcmp(mood, "crash_blind") == 0) {
        abort();
    }
    ret_metrics[0] = (struct tally_plugin_metric){
        "first_weight", strcmp(mood, "unsure") == 0 ? (double)NAN : (double)weights[0]};
    ret_metrics[1] = (struct tally_plugin_metric){"model_of", task->round};
    ret_metrics[2] = (struct tally_plugin_metric){"evaluator", task->client};
    *ret_n = 3;
    return 0;
}

static const struct tally_plugin TRAINER = {.abi = TALLY_PLUGIN_ABI,
                                            .size = sizeof TRAINER,
                                            .name = "trainer",
                                            .open = trainer_open,
                                            .close = trainer_close,
                                            .metrics = trainer_metrics,
                                            .train = trainer_train,
                                            .initial = trainer_initial,
                                            .evaluate = trainer_evaluate};

const struct tally_plugin *tally_plugin(void)
{
    return &TRAINER;
}

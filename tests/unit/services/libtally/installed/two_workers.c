/* two_workers URL: two workers in two threads of one process, with a gradient of their own.
 *
 * Ends when no job is left, or on SIGINT, whose handler stops both: the workers install no signal
 * handlers. Prints what each has done, and 0 if the signal handlers are still the program's own. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tally/plugin.h>
#include <tally/tally.h>

static int open_nothing(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                        size_t capacity)
{
    uint64_t *dim = malloc(sizeof *dim);
    if (dim == NULL) {
        snprintf(ret_why, capacity, "no memory");
        return 1;
    }
    *dim = problem->dim;
    *ret_state = dim;
    return 0;
}

/* The gradient of |x - 1|^2, with noise from the job's own random stream. */
static int gradient(void *state, const struct tally_plugin_query *query, const double *x,
                    double *ret_gradient, uint64_t *ret_dim, char *ret_why, size_t capacity)
{
    (void)ret_why, (void)capacity;
    const double noise = 0.01 * ((double)query->below(query->stream, 201) - 100);
    *ret_dim = *(const uint64_t *)state;
    for (uint64_t i = 0; i < *ret_dim; i++) {
        ret_gradient[i] = 2 * (x[i] - 1) + noise;
    }
    return 0;
}

static int loss(void *state, uint32_t client, const double *x, double *ret_loss, char *ret_why,
                size_t capacity)
{
    (void)client, (void)ret_why, (void)capacity;
    *ret_loss = 0;
    for (uint64_t i = 0; i < *(const uint64_t *)state; i++) {
        *ret_loss += (x[i] - 1) * (x[i] - 1);
    }
    return 0;
}

static const struct tally_plugin PLUGIN = {
    .abi = TALLY_PLUGIN_ABI,
    .size = sizeof PLUGIN,
    .name = "python",
    .open = open_nothing,
    .close = free,
    .gradient = gradient,
    .loss = loss,
};

static struct tally_worker *workers[2];

static void on_interrupt(int number)
{
    (void)number;
    tally_worker_stop(workers[0]);
    tally_worker_stop(workers[1]);
}

static void say(void *context, int level, const char *line)
{
    fprintf(stderr, "%s level %d: %s\n", (const char *)context, level, line);
}

static void *run(void *worker)
{
    static const char *failed = "failed";
    struct tally_failure failure;
    struct tally_worker_totals totals;
    if (tally_worker_run(worker, &totals, &failure) != TALLY_CODE_OK) {
        printf("%s: %s\n", tally_code_name(failure.code), failure.message);
        return (void *)failed;
    }
    printf("%llu messages %llu payload_bits\n", (unsigned long long)totals.messages,
           (unsigned long long)totals.payload_bits);
    return NULL;
}

int main(int argc, char **argv)
{
    static char *names[] = {"left", "right"};
    struct sigaction action, after;
    pthread_t threads[2];
    int failed = 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    for (int i = 0; i < 2; i++) {
        struct tally_worker_config config;
        struct tally_failure failure;
        tally_worker_config_init(&config, sizeof config);
        config.coordinator = argv[argc - 1];
        config.name = names[i];
        config.clients = 2;
        config.plugin = &PLUGIN;
        config.exit_when_idle = argc == 2;
        config.log = say;
        config.log_context = names[i];
        if (tally_worker_new(&config, &workers[i], &failure) != TALLY_CODE_OK) {
            printf("%s: %s\n", failure.field, failure.message);
            return 2;
        }
    }
    failed |= sigaction(SIGINT, &action, NULL);
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run, workers[i]) != 0) {
            return 2;
        }
    }
    for (int i = 0; i < 2; i++) {
        void *ended;
        pthread_join(threads[i], &ended);
        failed |= ended != NULL;
    }
    failed |= sigaction(SIGINT, NULL, &after);
    failed |= after.sa_handler != on_interrupt;
    failed |= sigaction(SIGPIPE, NULL, &after);
    failed |= after.sa_handler != SIG_DFL;
    tally_worker_free(workers[0]);
    tally_worker_free(workers[1]);
    return failed;
}

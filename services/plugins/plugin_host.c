#include "services/plugins/plugin_host.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/plugins/plugin_file.h"
#include "services/plugins/plugin_wire.h"

/* word, path, socket, memory, parent, limit */
enum { N_ARGUMENTS = 7 };

struct host {
    const char *path;
    int socket;
    struct tally_plugin_memory *memory;
    struct tally_plugin_problem problem;
    struct tally_plugin_file file;
    struct tally_plugin_instance *instance;
};

/* The process. */

/* Makes this process end with its parent, even if the parent has already ended. */
static bool bind_to_parent(pid_t parent)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

/* Ignores stop signals: the parent decides when to stop, but a service manager signals all
 * processes of a unit. */
static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Leaves the plug-in an empty standard input, the parent's standard error for its output, and no
 * other descriptor of the parent. */
static void tidy_descriptors(int socket, int memory)
{
    const int null_fd = open("/dev/null", O_RDWR);
    if (null_fd >= 0 && null_fd != STDIN_FILENO) {
        (void)dup2(null_fd, STDIN_FILENO);
    }
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    const unsigned low = (unsigned)(socket < memory ? socket : memory);
    const unsigned high = (unsigned)(socket < memory ? memory : socket);
    if (low > STDERR_FILENO + 1) {
        close_range(STDERR_FILENO + 1, low - 1, 0);
    }
    if (high > low + 1) {
        close_range(low + 1, high - 1, 0);
    }
    close_range(high + 1, ~0U, 0);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
}

/* If memory runs out, the kernel ends this process before its parent. */
static void offer_to_oom_killer(void)
{
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        const ssize_t ignored = write(fd, "500", 3);
        (void)ignored;
        close(fd);
    }
}

static bool map_memory(struct host *host, int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0 || (size_t)about.st_size < sizeof *host->memory) {
        return false;
    }
    void *memory = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) {
        return false;
    }
    host->memory = memory;
    host->problem = (struct tally_plugin_problem){.size = sizeof host->problem,
                                                  .dim = host->memory->dim,
                                                  .clients = host->memory->clients,
                                                  .seed = host->memory->seed,
                                                  .run = host->memory->run,
                                                  .options = host->memory->options,
                                                  .data_dir = host->memory->data_dir,
                                                  .rounds = host->memory->rounds,
                                                  .job = host->memory->job,
                                                  .mu = host->memory->mu};
    return true;
}

/* Requests. */

static enum tally_status load(struct host *host, struct tally_plugin_reply *reply,
                              struct tally_error *err)
{
    if (host->file.plugin != NULL) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "it is already loaded");
    }
    enum tally_status status = tally_plugin_file_open(host->path, &host->file, err);
    if (status == TALLY_OK) {
        reply->has_gradient = host->file.plugin->gradient != NULL;
        reply->has_loss = host->file.plugin->loss != NULL;
        reply->has_train = tally_plugin_has_train(host->file.plugin);
        reply->has_initial = tally_plugin_has_initial(host->file.plugin);
        reply->has_evaluate = tally_plugin_has_evaluate(host->file.plugin);
        reply->has_metrics = tally_plugin_has_metrics(host->file.plugin);
        snprintf(reply->name, sizeof reply->name, "%s", host->file.plugin->name);
    }
    return status;
}

static enum tally_status serve(struct host *host, struct tally_plugin_request *request,
                               struct tally_plugin_reply *reply, struct tally_error *err)
{
    const size_t dim = (size_t)host->problem.dim;
    double *x = host->memory->vectors;
    struct tally_plugin_instance *instance = host->instance;
    if (request->operation == TALLY_PLUGIN_LOAD) {
        return load(host, reply, err);
    }
    if (host->file.plugin != NULL && request->operation == TALLY_PLUGIN_OPEN) {
        return tally_plugin_instance_open(host->file.plugin, &host->problem, &host->instance, err);
    }
    if (instance != NULL && instance->has_gradient && request->operation == TALLY_PLUGIN_GRADIENT) {
        return instance->ops->gradient(instance, request->client, request->samples, &request->rng,
                                       x, x + dim, err);
    }
    if (instance != NULL && instance->has_loss && request->operation == TALLY_PLUGIN_LOSS) {
        return instance->ops->loss(instance, request->client, x, &reply->loss, err);
    }
    if (instance != NULL && instance->has_metrics && request->operation == TALLY_PLUGIN_METRICS) {
        size_t n = 0;
        enum tally_status status = instance->ops->metrics(
            instance, request->client, (uint32_t)request->round, x, reply->metrics, &n, err);
        reply->n_metrics = (uint32_t)n;
        return status;
    }
    if (instance != NULL && instance->has_train && request->operation == TALLY_PLUGIN_TRAIN) {
        float *weights = (float *)(x + dim);
        memcpy(weights, x, dim * sizeof *weights);
        return instance->ops->train(instance, request->client, (uint32_t)request->round, weights,
                                    &reply->samples, err);
    }
    if (instance != NULL && instance->has_initial && request->operation == TALLY_PLUGIN_INITIAL) {
        return instance->ops->initial(instance, (float *)(x + dim), err);
    }
    if (instance != NULL && instance->has_evaluate && request->operation == TALLY_PLUGIN_EVALUATE) {
        size_t n = 0;
        enum tally_status status =
            instance->ops->evaluate(instance, request->client, (uint32_t)request->round,
                                    (const float *)x, reply->metrics, &n, err);
        reply->n_metrics = (uint32_t)n;
        return status;
    }
    return tally_fail(err, TALLY_INTERNAL, NULL, "request %u out of order", request->operation);
}

/* Serves requests, one after the other, until the parent closes its end of the socket. */
static int run(struct host *host)
{
    struct tally_plugin_request request;
    while (recv(host->socket, &request, sizeof request, 0) == (ssize_t)sizeof request) {
        struct tally_error err = TALLY_ERROR_INIT;
        struct tally_plugin_reply reply = {.number = request.number};
        if (serve(host, &request, &reply, &err) != TALLY_OK) {
            reply.is_failed = true;
            snprintf(reply.why, sizeof reply.why, "%s", err.message);
        }
        reply.rng = request.rng;
        if (send(host->socket, &reply, sizeof reply, MSG_NOSIGNAL) != (ssize_t)sizeof reply) {
            break;
        }
    }
    tally_plugin_instance_free(host->instance);
    tally_plugin_file_close(&host->file);
    return EXIT_SUCCESS;
}

bool tally_plugin_host(int argc, char **argv, int *ret_exit_code)
{
    if (argc != N_ARGUMENTS || strcmp(argv[1], TALLY_PLUGIN_HOST_WORD) != 0) {
        return false;
    }
    struct host host = {.path = argv[2], .socket = atoi(argv[3])};
    const int memory_fd = atoi(argv[4]);
    const rlim_t limit = (rlim_t)strtoull(argv[6], NULL, 10);
    const struct rlimit memory_limit = {.rlim_cur = limit, .rlim_max = limit};
    *ret_exit_code = EXIT_FAILURE;
    if (!bind_to_parent((pid_t)strtol(argv[5], NULL, 10))) {
        return true;
    }
    reset_signals();
    tidy_descriptors(host.socket, memory_fd);
    offer_to_oom_killer();
    if (map_memory(&host, memory_fd) && (limit == 0 || setrlimit(RLIMIT_AS, &memory_limit) == 0)) {
        *ret_exit_code = run(&host);
    }
    return true;
}

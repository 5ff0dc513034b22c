#include "services/plugins/plugin_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/process_guard.h"
#include "services/base/time.h"
#include "services/plugins/plugin_host.h"

/* How long a child may take to end after it was told to or its socket was closed. */
enum { END_MS = 2000 };

/* Exit status of a child that could not execute the program. */
enum { EXIT_NOT_STARTED = 127 };

struct tally_plugin_process {
    pid_t pid; /* 0 = it has ended and has been waited for */
    int pid_fd;
    int socket;
    struct tally_plugin_memory *memory;
    size_t memory_size;
    uint64_t dim;
    uint64_t n_requests;
    struct tally_plugin_limits limits;
    char end[128]; /* how it ended */
};

/* End of the child. */

static void describe_end(struct tally_plugin_process *process, const siginfo_t *info)
{
    char limit[48] = "";
    if (process->limits.memory_bytes > 0) {
        snprintf(limit, sizeof limit, "; its memory is limited to %" PRId64 " MiB",
                 process->limits.memory_bytes >> 20);
    }
    if (info->si_code == CLD_EXITED && info->si_status == EXIT_NOT_STARTED) {
        snprintf(process->end, sizeof process->end, "its process could not be started%s", limit);
    } else if (info->si_code == CLD_EXITED) {
        snprintf(process->end, sizeof process->end, "its process exited with status %d%s",
                 info->si_status, limit);
    } else {
        snprintf(process->end, sizeof process->end, "killed by signal %d (%s)%s", info->si_status,
                 strsignal(info->si_status), limit);
    }
}

/* Waits for the child to end, and kills it after timeout_ms. True if it ended by itself. */
static bool reap(struct tally_plugin_process *process, int timeout_ms)
{
    struct pollfd gone = {.fd = process->pid_fd, .events = POLLIN};
    const int64_t until_ms = tally_monotonic_ms() + timeout_ms;
    int64_t left_ms = timeout_ms;
    int n = 0;
    do {
        n = poll(&gone, 1, (int)left_ms);
        left_ms = until_ms - tally_monotonic_ms();
    } while (n < 0 && errno == EINTR && left_ms > 0);
    const bool by_itself = n > 0;
    kill(-process->pid, SIGKILL); /* including its own children */
    if (!by_itself) {
        kill(process->pid, SIGKILL); /* in case it has left its group */
    }
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)process->pid, &info, WEXITED) < 0 && errno == EINTR) {
    }
    if (by_itself) {
        describe_end(process, &info);
    }
    process->pid = 0;
    return by_itself;
}

/* Start of the child. */

static void close_if_open(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* Makes memory that cannot be resized and whose pages are allocated, so that neither side can make
 * an access of the other fail. */
static enum tally_status make_memory(struct tally_plugin_process *process, int *ret_fd,
                                     struct tally_error *err)
{
    const off_t size = (off_t)process->memory_size;
    const int fd = memfd_create("tally-plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int code = fd < 0 ? errno : posix_fallocate(fd, 0, size);
    if (code == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        code = errno;
    }
    void *memory = MAP_FAILED;
    if (code == 0) {
        memory = mmap(NULL, process->memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        code = memory == MAP_FAILED ? errno : 0;
    }
    if (code != 0) {
        close_if_open(fd);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory of %zu bytes for it: %s",
                          process->memory_size, strerror(code));
    }
    process->memory = memory;
    *ret_fd = fd;
    return TALLY_OK;
}

static enum tally_status copy_problem(struct tally_plugin_process *process,
                                      const struct tally_plugin_problem *problem,
                                      struct tally_error *err)
{
    struct tally_plugin_memory *memory = process->memory;
    const size_t n_options = strlen(problem->options), n_data_dir = strlen(problem->data_dir);
    const size_t n_job = strlen(problem->job);
    if (n_options >= sizeof memory->options || n_data_dir >= sizeof memory->data_dir ||
        n_job >= sizeof memory->job) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "its options, its job or the name of the data folder are too long");
    }
    memory->dim = problem->dim;
    memory->seed = problem->seed;
    memory->clients = problem->clients;
    memory->run = problem->run;
    memory->rounds = problem->rounds;
    memory->mu = problem->mu;
    memcpy(memory->job, problem->job, n_job + 1);
    memcpy(memory->options, problem->options, n_options + 1);
    memcpy(memory->data_dir, problem->data_dir, n_data_dir + 1);
    return TALLY_OK;
}

/* Between fork() and exec(), calls only functions that are safe in a signal handler. */
static _Noreturn void become_host(const char *program, char *const *arguments,
                                  char *const *environment, int socket, int memory_fd)
{
    setpgid(0, 0); /* Ctrl-C is for the parent, which then ends the child */
    if (fcntl(socket, F_SETFD, 0) == 0 && fcntl(memory_fd, F_SETFD, 0) == 0) {
        execve(program, arguments, environment);
    }
    _exit(EXIT_NOT_STARTED);
}

static enum tally_status start(struct tally_plugin_process *process, const char *path,
                               int child_socket, int memory_fd, struct tally_error *err)
{
    const char *program =
        process->limits.program != NULL ? process->limits.program : "/proc/self/exe";
    char socket_text[16], memory_text[16], parent_text[24], limit_text[24];
    snprintf(socket_text, sizeof socket_text, "%d", child_socket);
    snprintf(memory_text, sizeof memory_text, "%d", memory_fd);
    snprintf(parent_text, sizeof parent_text, "%ld", (long)getpid());
    snprintf(limit_text, sizeof limit_text, "%" PRId64, process->limits.memory_bytes);
    const char *arguments[] = {"tally-plugin-host",
                               TALLY_PLUGIN_HOST_WORD,
                               path,
                               socket_text,
                               memory_text,
                               parent_text,
                               limit_text,
                               NULL};
    char **environment = tally_child_environment_new();
    if (environment == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an environment");
    }
    const pid_t pid = fork();
    if (pid == 0) {
        become_host(program, (char *const *)arguments, environment, child_socket, memory_fd);
    }
    const int code = errno;
    free(environment);
    if (pid < 0) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot start a process: %s",
                          strerror(code));
    }
    process->pid = pid;
    process->pid_fd = pidfd_open(pid, 0);
    if (process->pid_fd < 0) {
        const enum tally_status status =
            tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot watch a process: %s", strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        process->pid = 0;
        return status;
    }
    return TALLY_OK;
}

enum tally_status tally_plugin_process_start(const char *path,
                                             const struct tally_plugin_problem *problem,
                                             const struct tally_plugin_limits *limits,
                                             struct tally_plugin_process **ret_process,
                                             struct tally_error *err)
{
    int sockets[2] = {-1, -1}, memory_fd = -1;
    struct tally_plugin_process *process = calloc(1, sizeof *process);
    if (process == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a process");
    }
    process->socket = process->pid_fd = -1;
    process->limits = *limits;
    process->dim = problem->dim;
    process->memory_size = sizeof *process->memory + 2 * (size_t)problem->dim * sizeof(double);
    enum tally_status status = make_memory(process, &memory_fd, err);
    if (status == TALLY_OK) {
        status = copy_problem(process, problem, err);
    }
    if (status == TALLY_OK && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "socketpair: %s", strerror(errno));
    }
    process->socket = sockets[0];
    if (status == TALLY_OK) {
        status = start(process, path, sockets[1], memory_fd, err);
    }
    close_if_open(sockets[1]);
    close_if_open(memory_fd);
    if (status != TALLY_OK) {
        tally_plugin_process_free(process);
        return status;
    }
    *ret_process = process;
    return TALLY_OK;
}

double *tally_plugin_process_x(struct tally_plugin_process *process)
{
    return process->memory->vectors;
}

const double *tally_plugin_process_gradient(const struct tally_plugin_process *process)
{
    return process->memory->vectors + process->dim;
}

/* Calls. */

/* Reports a fault of the child and ends the child. */
static enum tally_status fail_and_end(struct tally_plugin_process *process, const char *what,
                                      struct tally_error *err)
{
    if (process->pid != 0) {
        reap(process, 0);
    }
    snprintf(process->end, sizeof process->end, "%s", what);
    return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "%s", process->end);
}

/* For a child that has closed its end of the socket, most likely because it has ended. */
static enum tally_status fail_ended(struct tally_plugin_process *process, struct tally_error *err)
{
    return reap(process, END_MS)
               ? tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "%s", process->end)
               : fail_and_end(process, "its process closed the connection", err);
}

/* Waits until there is a reply to read. */
static enum tally_status wait_for_reply(struct tally_plugin_process *process,
                                        struct tally_error *err)
{
    const int64_t until_ms = tally_monotonic_ms() + process->limits.timeout_ms;
    for (;;) {
        struct pollfd fds[] = {{.fd = process->socket, .events = POLLIN},
                               {.fd = process->pid_fd, .events = POLLIN},
                               {.fd = process->limits.cancel_fd, .events = POLLIN}};
        const int64_t left_ms = until_ms - tally_monotonic_ms();
        const int n = poll(fds, 3,
                           left_ms <= 0          ? 0
                           : left_ms < INT32_MAX ? (int)left_ms
                                                 : INT32_MAX);
        if (n > 0 && fds[2].revents != 0) {
            reap(process, 0);
            snprintf(process->end, sizeof process->end, "the call was cancelled");
            return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
        }
        if (n > 0 && fds[0].revents != 0) {
            return TALLY_OK;
        }
        if (n > 0) { /* the child has ended, while another process holds its socket */
            return fail_ended(process, err);
        }
        if (n == 0 && left_ms <= 0) {
            char what[96];
            snprintf(what, sizeof what, "no answer after %" PRId64 " ms; its process was killed",
                     process->limits.timeout_ms);
            return fail_and_end(process, what, err);
        }
    }
}

static void clean_text(char *text, size_t capacity)
{
    text[capacity - 1] = '\0';
    tally_utf8_sanitize_line(text);
}

enum tally_status tally_plugin_process_call(struct tally_plugin_process *process,
                                            struct tally_plugin_request *request,
                                            struct tally_plugin_reply *ret_reply,
                                            struct tally_error *err)
{
    if (process->pid == 0) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "%s", process->end);
    }
    request->number = ++process->n_requests;
    if (send(process->socket, request, sizeof *request, MSG_NOSIGNAL) != (ssize_t)sizeof *request) {
        return fail_ended(process, err);
    }
    enum tally_status status = wait_for_reply(process, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_plugin_reply reply;
    const ssize_t n = recv(process->socket, &reply, sizeof reply, MSG_DONTWAIT | MSG_TRUNC);
    if (n <= 0) {
        return fail_ended(process, err);
    }
    if (n != (ssize_t)sizeof reply || reply.number != request->number || reply.rng.n_used > 4 ||
        reply.n_metrics > TALLY_METRICS_MOST) {
        return fail_and_end(process, "its process sent an invalid reply", err);
    }
    clean_text(reply.name, sizeof reply.name);
    clean_text(reply.why, sizeof reply.why);
    for (size_t i = 0; i < reply.n_metrics; i++) {
        clean_text(reply.metrics[i].name, sizeof reply.metrics[i].name);
    }
    if (reply.is_failed) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "%s", reply.why);
    }
    *ret_reply = reply;
    return TALLY_OK;
}

bool tally_plugin_process_has_ended(const struct tally_plugin_process *process)
{
    return process == NULL || process->pid == 0;
}

void tally_plugin_process_free(struct tally_plugin_process *process)
{
    if (process == NULL) {
        return;
    }
    close_if_open(process->socket); /* tells the child to end */
    if (process->pid != 0) {
        reap(process, END_MS);
    }
    close_if_open(process->pid_fd);
    if (process->memory != NULL) {
        munmap(process->memory, process->memory_size);
    }
    free(process);
}

#include "tests/bench/bench_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "services/base/process_guard.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "services/base/whole_file.h"
#include "tests/bench/echo_server.h"

enum {
    START_MS = 30000, /* far longer than a start takes */
    END_MS = 10000,   /* draining takes 2 s at most */
    PAUSE_MS = 5,
};

/* ---- Processors ---- */

static struct {
    bool is_known;
    cpu_set_t of_servers;
} processors;

enum tally_status tally_bench_pin(struct tally_error *err)
{
    cpu_set_t all, own;
    size_t found[2];
    int n = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot get the processors: %s",
                          strerror(errno));
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            found[n++] = cpu;
        }
    }
    if (n < 2) {
        return TALLY_OK;
    }
    CPU_ZERO(&processors.of_servers);
    CPU_SET(found[0], &processors.of_servers);
    CPU_ZERO(&own);
    CPU_SET(found[1], &own);
    processors.is_known = true;
    return sched_setaffinity(0, sizeof own, &own) == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot run on processor %zu: %s",
                            found[1], strerror(errno));
}

/* In the child: moves it to the servers' processor and makes it end with its parent. */
static void become_server(pid_t parent)
{
    if (processors.is_known) {
        (void)sched_setaffinity(0, sizeof processors.of_servers, &processors.of_servers);
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(EXIT_FAILURE);
    }
    setpgid(0, 0); /* Ctrl-C goes to the parent, which then ends this process */
}

/* ---- The end ---- */

static bool has_ended(pid_t pid)
{
    const pid_t ended = waitpid(pid, NULL, WNOHANG);
    return ended == pid || (ended < 0 && errno != EINTR);
}

static void end_process(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    const int64_t until_ms = tally_monotonic_ms() + END_MS;
    kill(pid, SIGTERM);
    while (!has_ended(pid)) {
        if (tally_monotonic_ms() > until_ms) {
            kill(pid, SIGKILL);
        }
        nanosleep(&pause, NULL);
    }
}

/* The folder holds only files: those of the store and the log. */
static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder != NULL) {
        for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
                (void)unlinkat(dirfd(folder), entry->d_name, 0);
            }
        }
        closedir(folder);
    }
    (void)rmdir(path);
}

void tally_bench_stop(struct tally_bench_server *server)
{
    if (server->pid > 0) {
        end_process(server->pid);
    }
    if (server->folder[0] != '\0') {
        remove_folder(server->folder);
    }
    *server = (struct tally_bench_server){0};
}

/* ---- The coordinator ---- */

static enum tally_status make_folder(char ret_folder[PATH_MAX], struct tally_error *err)
{
    const char *parent = getenv("TMPDIR");
    const int n = snprintf(ret_folder, PATH_MAX, "%s/tally-bench-XXXXXX",
                           parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    if (n >= PATH_MAX || mkdtemp(ret_folder) == NULL) {
        const enum tally_status status = tally_fail(
            err, TALLY_UNAVAILABLE, NULL, "cannot make a folder in TMPDIR: %s", strerror(errno));
        ret_folder[0] = '\0';
        return status;
    }
    return TALLY_OK;
}

static enum tally_status find_coordinator(char ret_path[PATH_MAX], struct tally_error *err)
{
    static const char NAME[] = "tally-coordinator";
    const ssize_t n = readlink("/proc/self/exe", ret_path, PATH_MAX - sizeof NAME);
    char *slash = n > 0 ? memrchr(ret_path, '/', (size_t)n) : NULL;
    if (slash == NULL) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot find this program: %s",
                          strerror(errno));
    }
    memcpy(slash + 1, NAME, sizeof NAME);
    return access(ret_path, X_OK) == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s: %s", ret_path, strerror(errno));
}

/* Sessions and connections outlast delays on a busy machine and the runs of the other coordinators.
 * The limits on connections and held bytes are never reached, because a player, unlike a real
 * client, does not reconnect. All other options have their defaults. */
static const char *const ARGUMENTS[] = {"--listen",
                                        "127.0.0.1:0",
                                        "--max-connections",
                                        "100000",
                                        "--max-connections-per-address",
                                        "100000",
                                        "--max-held-bytes",
                                        "17179869184",
                                        "--idle-timeout-s",
                                        "3600",
                                        "--session-timeout-ms",
                                        "600000",
                                        NULL};
enum { N_ARGUMENTS = sizeof ARGUMENTS / sizeof ARGUMENTS[0] };

static enum tally_status spawn_coordinator(const char *program, const char *store, int log,
                                           pid_t *ret_pid, struct tally_error *err)
{
    const char *arguments[N_ARGUMENTS + 3] = {"tally-coordinator", "--store", store};
    memcpy(arguments + 3, ARGUMENTS, sizeof ARGUMENTS);
    char **environment = tally_child_environment_new();
    if (environment == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an environment");
    }
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        become_server(parent);
        if (dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0) {
            execve(program, (char *const *)(uintptr_t)arguments, environment);
        }
        _exit(EXIT_FAILURE);
    }
    free(environment);
    *ret_pid = pid;
    return pid > 0 ? TALLY_OK
                   : tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot start a process: %s",
                                strerror(errno));
}

/* Waits until the coordinator's log states its port. */
static enum tally_status await_port(struct tally_bench_server *server, const char *log,
                                    struct tally_error *err)
{
    const int64_t until_ms = tally_monotonic_ms() + START_MS;
    char text[1024] = "";
    while (server->port == 0) {
        tally_file_peek(log, text, sizeof text);
        const char *at = strstr(text, " port=");
        if (at != NULL && strchr(at, '\n') != NULL) {
            server->port = (uint16_t)strtoul(at + sizeof " port=" - 1, NULL, 10);
        } else if (has_ended(server->pid)) {
            server->pid = 0;
            return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator did not start: %.200s",
                              text);
        } else if (tally_signals_wait(PAUSE_MS)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "interrupted");
        } else if (tally_monotonic_ms() > until_ms) {
            return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator does not listen");
        }
    }
    return TALLY_OK;
}

enum tally_status tally_bench_start_coordinator(const char *store, struct tally_bench_server *ret,
                                                struct tally_error *err)
{
    char program[PATH_MAX], log[PATH_MAX + 32], uri[PATH_MAX + 32] = "memory:";
    *ret = (struct tally_bench_server){0};
    enum tally_status status = find_coordinator(program, err);
    if (status == TALLY_OK) {
        status = make_folder(ret->folder, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    snprintf(log, sizeof log, "%s/log", ret->folder);
    if (strcmp(store, "sqlite") == 0) {
        snprintf(uri, sizeof uri, "sqlite:%s/tally.db", ret->folder);
    }
    const int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    status = log_fd >= 0 ? spawn_coordinator(program, uri, log_fd, &ret->pid, err)
                         : tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s: %s", log, strerror(errno));
    if (log_fd >= 0) {
        close(log_fd);
    }
    if (status == TALLY_OK) {
        status = await_port(ret, log, err);
    }
    if (status != TALLY_OK) {
        tally_bench_stop(ret);
    }
    return status;
}

/* ---- The echo server ---- */

/* In the child: reports its port, and serves until it is killed. */
static _Noreturn void serve_echoes(size_t n_answer, unsigned n_connections, int pipe)
{
    struct tally_echo_server *server;
    uint16_t port = 0;
    signal(SIGTERM, SIG_DFL);
    /* Closes the parent's connections, which would otherwise stay open for their server. */
    if (dup2(pipe, STDERR_FILENO + 1) < 0 || close_range(STDERR_FILENO + 2, ~0U, 0) != 0) {
        _exit(EXIT_FAILURE);
    }
    pipe = STDERR_FILENO + 1;
    if (tally_echo_server_new(n_answer, n_connections, &server, NULL) == TALLY_OK) {
        port = tally_echo_server_port(server);
    }
    if (write(pipe, &port, sizeof port) != (ssize_t)sizeof port || port == 0) {
        _exit(EXIT_FAILURE);
    }
    for (;;) {
        tally_echo_server_step(server);
    }
}

enum tally_status tally_bench_start_echo(size_t n_answer, unsigned n_connections,
                                         struct tally_bench_server *ret, struct tally_error *err)
{
    int pipes[2];
    *ret = (struct tally_bench_server){0};
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot make a pipe: %s", strerror(errno));
    }
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        become_server(parent);
        serve_echoes(n_answer, n_connections, pipes[1]);
    }
    close(pipes[1]);
    enum tally_status status = TALLY_OK;
    if (pid < 0) {
        status =
            tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot start a process: %s", strerror(errno));
    } else {
        ret->pid = pid;
        if (read(pipes[0], &ret->port, sizeof ret->port) != (ssize_t)sizeof ret->port ||
            ret->port == 0) {
            status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "the echo server did not start");
        }
    }
    close(pipes[0]);
    if (status != TALLY_OK) {
        tally_bench_stop(ret);
    }
    return status;
}

/* ---- Resources ---- */

double tally_bench_cpu_s(const struct tally_bench_server *server)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(server->pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
        return (double)NAN;
    }
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* The value of a line "NAME   1234 kB" of /proc/PID/status. */
static uint64_t bytes_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at != NULL ? 1024 * strtoull(at + strlen(name), NULL, 10) : 0;
}

struct tally_bench_memory tally_bench_memory(const struct tally_bench_server *server)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)server->pid);
    tally_file_peek(path, text, sizeof text);
    return (struct tally_bench_memory){bytes_of(text, "VmRSS:"), bytes_of(text, "VmHWM:")};
}

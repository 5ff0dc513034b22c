/* moody: a plug-in that does what it is told to, by the environment, and most of that is wrong.
 *
 *     MOODY="WHERE WHAT ROUND"      WHERE: load open gradient loss metrics close;  ROUND: from when
 * on, 0 = always
 *
 * With no MOODY it is good: f_m(x) = |x - m|^2 / 2 over all coordinates, with a gradient that is
 * moved by one of the job's random numbers. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/objectives/plugin.h"

struct mood {
    char where[16], what[24];
    unsigned round;
};

struct state {
    uint64_t dim;
};

static struct mood mood_now(void)
{
    struct mood mood = {.what = ""};
    const char *text = getenv("MOODY");
    if (text == NULL || sscanf(text, "%15s %23s %u", mood.where, mood.what, &mood.round) != 3) {
        mood.what[0] = '\0';
    }
    return mood;
}

static void close_all(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        close(fd);
    }
}

/* Messages of a wrong size, and one of the right size, to whoever listens. */
static void write_garbage(void)
{
    char junk[4096];
    memset(junk, 0x5a, sizeof junk);
    for (int fd = 3; fd < 64; fd++) {
        const ssize_t ignored = write(fd, junk, sizeof junk);
        (void)ignored;
    }
}

static void hang(void)
{
    for (;;) {
        sleep(1000);
    }
}

/* Client 0 takes 0.2 s for a gradient, the others end the process. */
static void slow_down(uint32_t client)
{
    if (client != 0) {
        abort();
    }
    usleep(200000);
}

/* A process of its own that keeps what it has inherited, while this one dies. */
static void leave_a_child(void)
{
    if (fork() == 0) {
        hang();
    }
    raise(SIGKILL);
}

/* Until there is no more: then it does as programs do that do not look. */
static void eat_memory(void)
{
    for (;;) {
        const size_t n = 16 << 20;
        char *more = malloc(n);
        memset(more, 1, n);
    }
}

/* Does what ends or stops a process. */
static void misbehave(const char *what)
{
    static const struct {
        const char *what;
        void (*act)(void);
    } acts[] = {{"close", close_all}, {"garbage", write_garbage},    {"hang", hang},
                {"abort", abort},     {"grandchild", leave_a_child}, {"eat", eat_memory}};
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        if (strcmp(what, acts[i].what) == 0) {
            acts[i].act();
        }
    }
    if (strcmp(what, "crash") == 0) {
        signal(SIGSEGV, SIG_DFL); /* what a sanitizer would report */
        raise(SIGSEGV);
    } else if (strcmp(what, "exit") == 0) {
        exit(3);
    } else if (strcmp(what, "close") == 0) {
        hang();
    }
}

/* Whether the call is to fail in words. */
static int fails(const char *what, char *ret_why, size_t capacity)
{
    if (strcmp(what, "fail") == 0) {
        snprintf(ret_why, capacity, "the moon is full");
    } else if (strcmp(what, "noise") == 0) { /* no UTF-8, a line break, and no end */
        memset(ret_why, '\xff', capacity);
        ret_why[0] = 'a';
        ret_why[1] = '\n';
    } else {
        return strcmp(what, "silent") == 0 ? 7 : 0;
    }
    return 1;
}

static const char *mood_of(const char *where, unsigned round)
{
    static struct mood mood;
    mood = mood_now();
    const int is_meant = strcmp(mood.where, where) == 0 && round >= mood.round;
    misbehave(is_meant ? mood.what : "");
    return is_meant ? mood.what : "";
}

static int open_state(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                      size_t capacity)
{
    const int code = fails(mood_of("open", 0), ret_why, capacity);
    if (code != 0) {
        return code;
    }
    struct state *state = malloc(sizeof *state);
    state->dim = problem->dim;
    *ret_state = state;
    return 0;
}

static void close_state(void *state)
{
    mood_of("close", 0);
    free(state);
}

static int gradient(void *opaque, const struct tally_plugin_query *query, const double *x,
                    double *ret_gradient, uint64_t *ret_dim, char *ret_why, size_t capacity)
{
    const struct state *state = opaque;
    const char *what = mood_of("gradient", query->round);
    const int code = fails(what, ret_why, capacity);
    const double moved = (query->below(query->stream, 1001) - 500.0) / 5000.0;
    if (code != 0) {
        return code;
    }
    if (strcmp(what, "slow") == 0) {
        slow_down(query->client);
    }
    for (uint64_t i = 0; i < state->dim; i++) {
        ret_gradient[i] = x[i] - query->client + moved;
    }
    *ret_dim = state->dim;
    if (strcmp(what, "nan") == 0) {
        ret_gradient[state->dim - 1] = NAN;
    } else if (strcmp(what, "huge") == 0) {
        ret_gradient[0] = -1e300;
    } else if (strcmp(what, "partial") == 0) {
        memset(ret_gradient + 1, 0xff, (size_t)(state->dim - 1) * sizeof *ret_gradient);
    } else if (strcmp(what, "dim") == 0) {
        *ret_dim = state->dim - 1;
    } else if (strcmp(what, "nodim") == 0) {
        *ret_dim = 0;
    }
    return 0;
}

static int loss(void *opaque, uint32_t client, const double *x, double *ret_loss, char *ret_why,
                size_t capacity)
{
    const struct state *state = opaque;
    const char *what = mood_of("loss", 0);
    const int code = fails(what, ret_why, capacity);
    *ret_loss = 0;
    for (uint64_t i = 0; i < state->dim; i++) {
        *ret_loss += (x[i] - client) * (x[i] - client) / 2;
    }
    if (strcmp(what, "nan") == 0) {
        *ret_loss = NAN;
    }
    return code;
}

/* None, unless it is told to. */
static int metrics(void *opaque, uint32_t client, uint32_t round, const double *x,
                   struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                   size_t capacity)
{
    const struct state *state = opaque;
    const char *what = mood_of("metrics", round);
    const int code = fails(what, ret_why, capacity);
    if (what[0] == '\0' || code != 0) {
        return code;
    }
    ret_metrics[0] = (struct tally_plugin_metric){"client", client};
    ret_metrics[1] = (struct tally_plugin_metric){"last", x[state->dim - 1]};
    *ret_n = strcmp(what, "many") == 0 ? 17 : 2;
    if (strcmp(what, "nan") == 0) {
        ret_metrics[1].value = NAN;
    } else if (strcmp(what, "name") == 0) {
        memset(ret_metrics[1].name, 'A', sizeof ret_metrics[1].name);
    } else if (strcmp(what, "twice") == 0) {
        ret_metrics[1] = ret_metrics[0];
    }
    return 0;
}

const struct tally_plugin *tally_plugin(void)
{
    static struct tally_plugin plugin = {.abi = TALLY_PLUGIN_ABI,
                                         .size = sizeof plugin,
                                         .name = "moody",
                                         .open = open_state,
                                         .close = close_state,
                                         .gradient = gradient,
                                         .loss = loss,
                                         .metrics = metrics};
    const char *what = mood_of("load", 0);
    if (strcmp(what, "null") == 0) {
        return NULL;
    }
    if (strcmp(what, "abi") == 0) {
        plugin.abi = TALLY_PLUGIN_ABI + 1;
    } else if (strcmp(what, "size") == 0) {
        plugin.size = 8;
    } else if (strcmp(what, "name") == 0) {
        plugin.name = "Moody!";
    } else if (strcmp(what, "gradient") == 0) {
        plugin.gradient = NULL;
    } else if (strcmp(what, "loss") == 0) {
        plugin.loss = NULL;
    }
    return &plugin;
}

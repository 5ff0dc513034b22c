/* plugin: gradients of your own, from a shared object that a worker loads: tally-worker --plugin.
 *
 * A plug-in exports one function, tally_plugin(), that returns this table. It serves jobs whose
 * document has
 *
 *     "objective": {"type": "plugin", "name": "NAME", "dim": D, "options": "..."}
 *
 * This header stands alone: it needs nothing of Tally but itself, and a plug-in links nothing of
 * it. Vectors are double[dim], owned by the caller; texts are UTF-8 and borrowed for the call.
 * Calls for one state never overlap. */
#ifndef TALLY_SERVICES_OBJECTIVES_PLUGIN_PLUGIN_H
#define TALLY_SERVICES_OBJECTIVES_PLUGIN_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every change that an older plug-in or worker would not understand. */
#define TALLY_PLUGIN_ABI 1

/* What a plug-in is asked to serve: one job, all clients that this worker plays. */
struct tally_plugin_problem {
    size_t size;          /* of this struct, as the worker knows it: members are only added */
    uint64_t dim;         /* d of the job */
    uint32_t clients;     /* M */
    uint64_t seed;        /* of the job */
    uint32_t run;         /* replication of `tally simulate --runs`; 0 in the service */
    const char *options;  /* of the document; "" if it has none */
    const char *data_dir; /* --data-dir of the worker */
};

/* One gradient query. */
struct tally_plugin_query {
    size_t size;
    uint32_t client;  /* in [0, M) */
    uint32_t round;   /* from 1 */
    uint64_t samples; /* >= 1: the gradient is the mean over as many data points */
    /* The job's own random numbers, the same on every machine: uniform in [0, n), n >= 1. A plug-in
     * that draws its points with them, and nothing else, makes a job that repeats bit for bit. */
    uint32_t (*below)(void *stream, uint32_t n);
    void *stream;
};

/* A named number about one round, such as an accuracy or a computing time. */
#define TALLY_PLUGIN_METRICS_MOST 16
struct tally_plugin_metric {
    char name[33]; /* [a-z][a-z0-9_]{0,31}, with NUL; each once */
    double value;  /* finite */
};

/* Functions return 0, or another value and a text that says why, of at most `capacity` bytes with
 * its NUL. What they write on failure is ignored. */
struct tally_plugin {
    uint32_t abi;     /* TALLY_PLUGIN_ABI */
    size_t size;      /* of this struct, as the plug-in knows it: members are only added */
    const char *name; /* its name in job documents: 1 to 64 of a-z 0-9 - _ */

    /* Makes what the other functions need (loads data, say). */
    int (*open)(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                size_t capacity);
    void (*close)(void *state);

    /* Writes a stochastic gradient of f_m at x and how many coordinates it wrote, which must be
     * dim: so a plug-in for a different dimension is detected. The old content of ret_gradient is
     * undefined; each coordinate must be a number that float can hold. */
    int (*gradient)(void *state, const struct tally_plugin_query *query, const double *x,
                    double *ret_gradient, uint64_t *ret_dim, char *ret_why, size_t capacity);

    /* f_m(x), for the regret. May be NULL for jobs whose reference is of type `none`, which have no
     * regret. Methods whose clients walk (fedavg and its like) ask it of all clients of the job,
     * also of those that other workers run. */
    int (*loss)(void *state, uint32_t client, const double *x, double *ret_loss, char *ret_why,
                size_t capacity);

    /* Optional. Plug-ins built with an older plugin.h end with `loss`. Called when a client has
     * computed its message of a round. Writes up to TALLY_PLUGIN_METRICS_MOST metrics, and their
     * number to *ret_n. Metrics are telemetry and never change the job. x is the point at which all
     * clients began the round. */
    int (*metrics)(void *state, uint32_t client, uint32_t round, const double *x,
                   struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                   size_t capacity);
};

/* The one symbol that a plug-in exports, also when the compiler is told to hide all others. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct tally_plugin *
tally_plugin(void);

#ifdef __cplusplus
}
#endif

#endif

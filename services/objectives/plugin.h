/* plugin: gradients or a training loop of your own, in a shared object that a worker loads
 * (tally-worker --plugin).
 *
 * A plug-in exports one function, tally_plugin(), that returns this table. It serves jobs whose
 * document has one of
 *
 *     "objective": {"type": "plugin", "name": "NAME", "dim": D, "options": "..."}       gradient()
 *     "objective": {"type": "training", "name": "NAME", "dim": D, "options": "..."}     train(),
 * evaluate()
 *
 * This header is self-contained, and a plug-in links no library of Tally. Vectors are double[dim],
 * owned by the caller; strings are UTF-8 and borrowed for the call. Calls for one state never
 * overlap. */
#ifndef TALLY_SERVICES_OBJECTIVES_PLUGIN_H
#define TALLY_SERVICES_OBJECTIVES_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented by every change that an older plug-in or worker would not understand. */
#define TALLY_PLUGIN_ABI 1

/* What a plug-in is asked to serve: one job, for all clients that this worker serves. */
struct tally_plugin_problem {
    size_t size;          /* of this struct in the worker's version; members are only added */
    uint64_t dim;         /* d, the dimension of the job */
    uint32_t clients;     /* M, the number of clients of the job */
    uint64_t seed;        /* of the job */
    uint32_t run;         /* replication of `tally simulate --runs`; 0 in the service */
    const char *options;  /* "options" of the objective; "" if the document has none */
    const char *data_dir; /* --data-dir of the worker */
    uint64_t rounds;      /* of a job that trains: its horizon; otherwise 0 */
    const char *job;      /* id of the job; "" in `tally simulate` */
    /* Of a job that trains with algorithm `fedprox`, otherwise 0: weight of the proximal term
     * mu/2 |w - w_round|^2, which train() adds to its loss; w_round are the weights on entry. */
    double mu;
};

/* One gradient query. */
struct tally_plugin_query {
    size_t size;
    uint32_t client;  /* in [0, M) */
    uint32_t round;   /* from 1 */
    uint64_t samples; /* >= 1: the gradient is the mean over this many data points */
    /* The job's own random numbers, the same on every machine: uniform in [0, n), n >= 1. A plug-in
     * that draws its points with them, and nothing else, makes a job that repeats bit for bit. */
    uint32_t (*below)(void *stream, uint32_t n);
    void *stream;
};

/* One call of train() or evaluate(). */
struct tally_plugin_training {
    size_t size;
    uint32_t client; /* in [0, M) */
    uint32_t round;  /* from 1 */
};

/* A named number about one round, such as an accuracy or a computing time. */
#define TALLY_PLUGIN_METRICS_MOST 16
struct tally_plugin_metric {
    char name[33]; /* [a-z][a-z0-9_]{0,31}, with NUL; unique within the call */
    double value;  /* if not finite, the metric is dropped, and the worker's log warns once */
};

/* A function returns 0 on success. On failure it returns another value and writes the reason to
 * ret_why, at most `capacity` bytes with the NUL; its other results are ignored. A failure of
 * train() costs the client this round, others make this worker refuse the job. */
struct tally_plugin {
    uint32_t abi;     /* TALLY_PLUGIN_ABI */
    size_t size;      /* of this struct in the plug-in's version; members are only added */
    const char *name; /* its name in job documents: 1 to 64 of a-z 0-9 - _ */

    /* Prepares what the other functions need, such as data, and returns it as *ret_state. */
    int (*open)(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                size_t capacity);
    void (*close)(void *state);

    /* Required unless there is train(). Writes a stochastic gradient of f_m at x, and to *ret_dim
     * the number of coordinates that it wrote. That must be dim, so that a plug-in for a different
     * dimension is detected. Each coordinate must be finite as a float. ret_gradient is not
     * initialized. */
    int (*gradient)(void *state, const struct tally_plugin_query *query, const double *x,
                    double *ret_gradient, uint64_t *ret_dim, char *ret_why, size_t capacity);

    /* f_m(x), for the regret. It depends on m and x alone, and is called once for each pair of
     * them. May be NULL for jobs whose reference is of type `none`, which have no regret. With
     * algorithms that make local steps (fedavg and its relatives) it is called for all clients of
     * the job, including those that other workers serve. */
    int (*loss)(void *state, uint32_t client, const double *x, double *ret_loss, char *ret_why,
                size_t capacity);

    /* Optional; the struct of an older plugin.h ends with `loss`. Called when a client has computed
     * its message of a round. Writes up to TALLY_PLUGIN_METRICS_MOST metrics to ret_metrics, and
     * their number to *ret_n. Metrics are telemetry and never change the job. x is the point at
     * which all clients began the round. */
    int (*metrics)(void *state, uint32_t client, uint32_t round, const double *x,
                   struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                   size_t capacity);

    /* Optional; the struct of an older plugin.h ends with `metrics`. Trains the model of one client
     * for one round: `weights`, float[dim], are those of the global model on entry, and those to
     * which the client's own steps have led on return; each must be finite. *ret_samples is the
     * number of data points that the client used, the client's weight if the job's `weighting` is
     * `points`: 1 to 33554432. metrics(), if there is one, is called afterwards. */
    int (*train)(void *state, const struct tally_plugin_training *task, float *weights,
                 uint64_t *ret_samples, char *ret_why, size_t capacity);

    /* Optional; the struct of an older plugin.h ends with `train`. Writes the point from which the
     * job is to start, float[dim], each finite. Called, at one worker, before a job starts whose
     * `initial_point` is of type `first`. */
    int (*initial)(void *state, float *ret_weights, char *ret_why, size_t capacity);

    /* Optional; the struct of an older plugin.h ends with `initial`. Evaluates the model to which a
     * round has led, the last one included: `weights`, float[dim], and task->round are those of
     * that model. Called for one client, or for each client on its own data if the job's
     * `evaluation` is `clients`. Writes metrics like metrics(). A failure is logged and shown; the
     * job goes on. */
    int (*evaluate)(void *state, const struct tally_plugin_training *task, const float *weights,
                    struct tally_plugin_metric *ret_metrics, size_t *ret_n, char *ret_why,
                    size_t capacity);
};

/* The one symbol that a plug-in exports, even if it is compiled with hidden visibility. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct tally_plugin *
tally_plugin(void);

#ifdef __cplusplus
}
#endif

#endif

/* plugin_wire: the messages between a process and the child that runs a plug-in for it.
 *
 * Both are the same program, so structs are sent unchanged: one request and one reply at a time, as
 * messages of a socket that preserves message boundaries (SOCK_SEQPACKET). Vectors are in shared
 * memory, which neither side can resize:
 *
 *     struct tally_plugin_memory | x: double[dim] | gradient: double[dim]
 *
 * The child may write anything to the shared memory. The parent therefore never reads its own
 * problem or x from there, and checks each reply. */
#ifndef TALLY_SERVICES_PLUGINS_PLUGIN_WIRE_H
#define TALLY_SERVICES_PLUGINS_PLUGIN_WIRE_H

#include <stdint.h>

#include "codec/numeric/rng.h"
#include "services/objectives/objective.h"
#include "services/objectives/plugin_instance.h"

/* The problem, for the child. */
struct tally_plugin_memory {
    uint64_t dim;
    uint64_t seed;
    uint32_t clients;
    uint32_t run;
    uint64_t rounds;
    double mu;
    char job[40];
    char options[sizeof((struct tally_plugin_spec *)0)->options];
    char data_dir[4096];
    double vectors[]; /* double[2 * dim] */
};

enum tally_plugin_operation {
    TALLY_PLUGIN_LOAD = 1, /* the first request: loads the shared object, asks for its name */
    TALLY_PLUGIN_OPEN,     /* the second one, if any: opens it for the problem */
    TALLY_PLUGIN_GRADIENT,
    TALLY_PLUGIN_LOSS,
    TALLY_PLUGIN_METRICS,
    TALLY_PLUGIN_TRAIN,   /* weights, float[dim], in the places of x and of the gradient */
    TALLY_PLUGIN_INITIAL, /* weights, float[dim], in the place of the gradient */
    TALLY_PLUGIN_EVALUATE /* weights, float[dim], in the place of x */
};

struct tally_plugin_request {
    uint64_t number; /* from 1 */
    uint32_t operation;
    uint32_t client;
    uint64_t samples;
    uint64_t round;       /* METRICS, TRAIN, EVALUATE */
    struct tally_rng rng; /* draws continue from here */
};

struct tally_plugin_reply {
    uint64_t number;                               /* of the request */
    uint32_t is_failed;                            /* if true, only `why` is valid */
    uint32_t has_loss;                             /* LOAD */
    double loss;                                   /* LOSS */
    uint32_t has_metrics, has_gradient, has_train; /* LOAD */
    uint32_t has_initial, has_evaluate;            /* LOAD */
    uint32_t n_metrics;                            /* METRICS, EVALUATE */
    uint64_t samples;                              /* TRAIN */
    struct tally_metric metrics[TALLY_METRICS_MOST];
    struct tally_rng rng;
    char name[TALLY_PLUGIN_NAME_CAPACITY]; /* LOAD */
    char why[384];
};

#endif

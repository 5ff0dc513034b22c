/* stub_plugin: a plug-in in the test's own process that behaves as the test says and records its
 * calls. */
#ifndef TALLY_TESTS_UNIT_SERVICES_PLUGINS_STUB_PLUGIN_H
#define TALLY_TESTS_UNIT_SERVICES_PLUGINS_STUB_PLUGIN_H

#include "services/job/job_spec.h"
#include "services/objectives/plugin.h"

enum { STUB_DIM = 3 };

/* The results of the functions. By default, coordinate i of the gradient is x[i] + i, and f_m(x) is
 * m + x[0]. */
struct stub {
    int code;                /* returned by all functions */
    const char *why;         /* reason given if code is not 0; NULL = none */
    double change[STUB_DIM]; /* replaces a gradient's coordinate, if not 0 */
    uint64_t left_out;       /* number of last coordinates silently left unwritten */
    uint64_t dim;            /* number of coordinates it claims to have written; 0 = STUB_DIM */
    double loss;             /* replaces f_m(x), if not 0 */
    /* The calls it received. */
    int n_opened, n_closed, n_gradients, n_losses;
    struct tally_plugin_problem problem;
    char options[32], data_dir[32];
    struct tally_plugin_query query;
    uint32_t draws[4];
};
extern struct stub stub;

/* The plug-in's table; a test changes a copy. */
extern const struct tally_plugin STUB_PLUGIN;

/* A problem for the plug-in. */
struct tally_plugin_problem stub_problem(void);
/* A job for the plug-in: 2 clients, reference of type none, options "shallow". */
struct tally_job_spec stub_job(void);

#endif

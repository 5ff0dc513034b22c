/* stub_plugin: a plug-in in the test's own process that does what the test says and remembers what
 * it was asked. */
#ifndef TALLY_TESTS_UNIT_SERVICES_PLUGINS_STUB_PLUGIN_H
#define TALLY_TESTS_UNIT_SERVICES_PLUGINS_STUB_PLUGIN_H

#include "services/job/spec.h"
#include "services/objectives/plugin/plugin.h"

enum { STUB_DIM = 3 };

/* The answers. Without the changes below, gradient i is x[i] + i and f_m(x) is m + x[0]. */
struct stub {
    int code;                /* of all functions */
    const char *why;         /* with a code that is not 0; NULL = it says nothing */
    double change[STUB_DIM]; /* replaces a gradient's coordinate, if not 0 */
    uint64_t left_out;       /* last coordinates that it silently leaves unwritten */
    uint64_t dim;            /* coordinates that it claims to have written; 0 = its own */
    double loss;             /* instead of its own, if not 0 */
    /* The calls it received. */
    int n_opened, n_closed, n_gradients;
    struct tally_plugin_problem problem;
    char options[32], data_dir[32];
    struct tally_plugin_query query;
    uint32_t draws[4];
};
extern struct stub stub;

/* Its table; a test changes a copy. */
extern const struct tally_plugin STUB_PLUGIN;

/* A problem for it. */
struct tally_plugin_problem stub_problem(void);
/* A job for it: 2 clients, reference of type none, options "shallow". */
struct tally_job_spec stub_job(void);

#endif

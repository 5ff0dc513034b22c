/* plugin_set: the plug-ins of a process, and the objective of a job, with or without a plug-in.
 *
 * A plug-in is a table in this process (the caller's, or that of a loaded shared object), or a
 * shared object that runs in a child process of its own for every job. */
#ifndef TALLY_SERVICES_PLUGINS_PLUGIN_SET_H
#define TALLY_SERVICES_PLUGINS_PLUGIN_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/base/environment.h"
#include "services/job/job_spec.h"
#include "services/objectives/plugin_instance.h"

struct tally_plugin_source;

/* All slots required. */
struct tally_plugin_source_ops {
    /* Opens the plug-in for one job. Errors: FAILED_PRECONDITION, NO_MEMORY. */
    enum tally_status (*open)(const struct tally_plugin_source *source,
                              const struct tally_plugin_problem *problem,
                              struct tally_plugin_instance **ret_instance, struct tally_error *err);
    void (*free)(struct tally_plugin_source *source);
};

/* The source of the instances of one plug-in. */
struct tally_plugin_source {
    const struct tally_plugin_source_ops *ops;
    char name[TALLY_PLUGIN_NAME_CAPACITY];
    bool has_initial; /* offers a point to start from */
    bool is_override; /* replaces the objective of every job with this dim */
    uint64_t dim;     /* the only dim that it serves; 0 = any */
    const char *path; /* of a shared object that each job opens anew; NULL = it is loaded already */
    struct tally_user_code code; /* its name is "" if it is that of the plug-in */
    struct tally_plugin_source *next;
};

/* `= {0}` has none. */
struct tally_plugin_set {
    struct tally_plugin_source *first; /* in the order in which they were added */
};

/* Frees the sources. None of their objectives may exist any more. */
void tally_plugin_set_fini(struct tally_plugin_set *set);

/* Adds a source, which the set owns unless this fails. Errors: ALREADY_EXISTS (the set already has
 * this name, or this source overrides and the set already has one that does). */
enum tally_status tally_plugin_set_take(struct tally_plugin_set *set,
                                        struct tally_plugin_source *source,
                                        struct tally_error *err);

/* Adds a table of the caller, which is borrowed and must outlive the set. It serves jobs whose
 * objective is the plug-in of this name and, with is_override, all other jobs with this dim.
 * Errors: those of tally_plugin_check(), ALREADY_EXISTS, NO_MEMORY. */
enum tally_status tally_plugin_set_add(struct tally_plugin_set *set,
                                       const struct tally_plugin *plugin, bool is_override,
                                       uint64_t dim, struct tally_error *err);

/* Loads a shared object into this process and adds what it exports. Errors: INVALID_ARGUMENT (it
 * cannot be loaded, exports no tally_plugin(), or exports an unusable plug-in), ALREADY_EXISTS,
 * NO_MEMORY; the message starts with the path. */
enum tally_status tally_plugin_set_load(struct tally_plugin_set *set, const char *path,
                                        struct tally_error *err);

/* Limits of a plug-in in a child process. */
struct tally_plugin_limits {
    int64_t timeout_ms;   /* of each call, open() included; > 0 */
    int64_t memory_bytes; /* address space of the child; 0 = no limit */
    int cancel_fd;        /* once readable, calls end with CANCELLED; -1 = none */
    const char *program;  /* that calls tally_plugin_host() (plugin_host.h); NULL = this one */
};

/* Adds a shared object that runs in a separate child process for every job (plugin_process.h). A
 * first child, which ends at once, reports its name. `limits` are copied; their program is
 * borrowed. Errors: those of tally_plugin_set_load(), FAILED_PRECONDITION, UNAVAILABLE. */
enum tally_status tally_plugin_set_isolate(struct tally_plugin_set *set, const char *path,
                                           const struct tally_plugin_limits *limits,
                                           struct tally_error *err);

/* Loads or, with limits, isolates every path of a list that is separated by ':', the form of a list
 * option; NULL = none. Errors: as above. */
enum tally_status tally_plugin_set_load_list(struct tally_plugin_set *set, const char *paths,
                                             const struct tally_plugin_limits *limits,
                                             struct tally_error *err);

/* Makes the objective of a job, whose id is `job` ("" = it has none), and which must not outlive
 * the set (NULL = empty) or the spec. It is that of a plug-in if the job names one or if one
 * overrides it, otherwise the result of tally_objective_load() with `files`. If an overriding
 * plug-in has no loss(), the job's own objective computes the losses, provided that its data are
 * available here. Errors: those of tally_objective_load(), FAILED_PRECONDITION (no such plug-in, a
 * different dim, or an error of its open()). */
enum tally_status tally_plugin_set_objective(const struct tally_plugin_set *set,
                                             const struct tally_job_spec *spec, const char *job,
                                             const struct tally_data_source *files,
                                             struct tally_objective **ret_objective,
                                             struct tally_error *err);
/* The code that computes the updates of a job: that of its plug-in, if one serves it. */
void tally_plugin_set_code(const struct tally_plugin_set *set,
                           const struct tally_objective_spec *spec,
                           struct tally_user_code *ret_code);
/* Whether an error of tally_plugin_set_objective() means that the job's plug-in is not loaded. */
bool tally_plugin_set_is_absence(const struct tally_error *err);

#endif

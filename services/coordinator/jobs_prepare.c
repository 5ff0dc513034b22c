#include "services/coordinator/jobs_prepare.h"
#include "services/base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/load_watch.h"
#include "services/coordinator/background.h"
#include "services/job/job_footprint.h"

struct solve {
    struct background_work work; /* must be first */
    struct tally_job_spec spec;
    int64_t bytes; /* needed to solve it */
    struct prepared result;
    char data_dir[]; /* its own copy: a solve may outlive the options at the end of the process */
};

struct preparer {
    struct background *background;
    const char *data_dir;
};

static void solve(struct background_work *work)
{
    struct solve *solve = (struct solve *)work;
    struct prepared *result = &solve->result;
    struct tally_objective *objective = NULL;
    const struct tally_job_spec *spec = &solve->spec;
    result->status = TALLY_OK;
    if (spec->reference.type == TALLY_REFERENCE_SOLVE) {
        struct tally_load_watch watch = {.job = result->job_id};
        const struct tally_data_source files = {.dir = solve->data_dir,
                                                .on_progress = tally_load_watch_tell,
                                                .on_fault = tally_load_watch_fault,
                                                .context = &watch};
        struct tally_objective_spec solved = spec->objective;
        tally_objective_spec_drop_report(&solved);
        result->status =
            tally_objective_load(&solved, (uint32_t)spec->clients, tally_job_spec_setting(spec).key,
                                 &files, &objective, &result->err);
    }
    if (objective != NULL) {
        result->columns = objective->columns;
        result->data_digest = objective->data_digest;
    }
    if (result->status == TALLY_OK) {
        result->status =
            tally_local_prepare(spec, objective, &work->stop, &result->preparation, &result->err);
    }
    tally_objective_free(objective);
}

enum tally_status preparer_new(int wake_fd, const char *data_dir, struct preparer **ret_preparer,
                               struct tally_error *err)
{
    struct preparer *preparer = tally_xcalloc(1, sizeof *preparer);
    preparer->data_dir = data_dir != NULL ? data_dir : "";
    const enum tally_status status = background_new(wake_fd, &preparer->background, err);
    if (status != TALLY_OK) {
        free(preparer);
        return status;
    }
    *ret_preparer = preparer;
    return TALLY_OK;
}

void preparer_free(struct preparer *preparer)
{
    if (preparer != NULL) {
        background_free(preparer->background);
        free(preparer);
    }
}

void preparer_submit(struct preparer *preparer, const char *job_id,
                     const struct tally_job_spec *spec)
{
    const size_t n = strlen(preparer->data_dir) + 1;
    struct solve *one = tally_xcalloc(1, sizeof *one + n);
    one->work.run = solve;
    memcpy(one->data_dir, preparer->data_dir, n);
    one->spec = *spec;
    one->bytes = tally_footprint_solving(spec);
    snprintf(one->result.job_id, sizeof one->result.job_id, "%s", job_id);
    background_add(preparer->background, &one->work);
}

/* The list of all solves has their works. */
static struct solve *solve_at(struct tally_list_node *node)
{
    return (struct solve *)TALLY_LIST_MEMBER(struct background_work, in_works, node);
}

int64_t preparer_bytes(struct preparer *preparer)
{
    int64_t bytes = 0;
    TALLY_LIST_EACH(node, background_works(preparer->background))
    {
        bytes += solve_at(node)->bytes;
    }
    return bytes;
}

void preparer_forget(struct preparer *preparer, const char *job_id)
{
    TALLY_LIST_EACH(node, background_works(preparer->background))
    {
        struct solve *one = solve_at(node);
        if (strcmp(one->result.job_id, job_id) == 0) {
            atomic_store(&one->work.stop, true);
        }
    }
}

bool preparer_take(struct preparer *preparer, struct prepared *ret_result)
{
    struct solve *one = (struct solve *)background_take(preparer->background);
    if (one == NULL) {
        return false;
    }
    *ret_result = one->result;
    if (atomic_load(&one->work.stop)) { /* the job may have been added again since */
        ret_result->job_id[0] = '\0';
    }
    free(one);
    return true;
}

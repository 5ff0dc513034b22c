/* Stands in for services/coordinator/jobs_prepare.h: f(x*) is solved when the result is asked for,
 * in the coordinator's next turn, instead of in a thread. A restarted coordinator asks again. The
 * solution depends on the document alone, so each document of a seed is solved once. */
#include "tests/simulation/programs/sim_prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/coordinator/jobs_prepare.h"
#include "services/job/document.h"
#include "tests/simulation/checks/sim_job.h"
#include "tests/simulation/programs/sim_training.h"
#include "tests/simulation/world/sim.h"

struct work {
    char job_id[TALLY_JOB_ID_CAPACITY];
    struct tally_job_spec spec;
    struct work *next;
};

struct preparer {
    struct work *first;
    int wake_fd;
};

static struct {
    struct {
        struct tally_buffer document;
        struct tally_local_preparation preparation;
    } solved[SIM_MAX_JOBS];
    int n_solved;
} all;

void sim_prepare_end(void)
{
    while (all.n_solved > 0) {
        tally_buffer_fini(&all.solved[--all.n_solved].document);
    }
}

enum tally_status preparer_new(int wake_fd, const char *data_dir, struct preparer **ret_preparer,
                               struct tally_error *err)
{
    (void)data_dir, (void)err;
    *ret_preparer = sim_new(sizeof **ret_preparer);
    (*ret_preparer)->wake_fd = wake_fd;
    return TALLY_OK;
}

/* Closes wake_fd as well, which the coordinator leaves open for a thread that may still solve. */
void preparer_free(struct preparer *preparer)
{
    if (preparer == NULL) {
        return;
    }
    while (preparer->first != NULL) {
        struct work *work = preparer->first;
        preparer->first = work->next;
        free(work);
    }
    close(preparer->wake_fd);
    free(preparer);
}

void preparer_submit(struct preparer *preparer, const char *job_id,
                     const struct tally_job_spec *spec)
{
    struct work *work = sim_new(sizeof *work);
    snprintf(work->job_id, sizeof work->job_id, "%s", job_id);
    work->spec = *spec;
    work->next = preparer->first;
    preparer->first = work;
}

/* Solving takes no time, so nothing is held meanwhile. */
int64_t preparer_bytes(struct preparer *preparer)
{
    (void)preparer;
    return 0;
}

void preparer_forget(struct preparer *preparer, const char *job_id)
{
    struct work **at = &preparer->first;
    while (*at != NULL) {
        struct work *work = *at;
        if (strcmp(work->job_id, job_id) == 0) {
            *at = work->next;
            free(work);
        } else {
            at = &work->next;
        }
    }
}

static enum tally_status solve(const struct tally_job_spec *spec,
                               struct tally_local_preparation *ret_preparation,
                               struct tally_error *err)
{
    struct tally_objective *objective = NULL;
    enum tally_status status = spec->objective.type == TALLY_TRAINING
                                   ? TALLY_OK /* only workers have it */
                                   : sim_objective_new(spec, &objective, err);
    if (status == TALLY_OK) {
        status = tally_local_prepare(spec, objective, NULL, ret_preparation, err);
    }
    tally_objective_free(objective);
    return status;
}

static struct tally_buffer document_of(const struct tally_job_spec *spec)
{
    struct tally_buffer document = {0};
    struct tally_json *json = tally_document_of(spec);
    SIM_REQUIRE(json != NULL && tally_json_dump(json, 0, &document) == TALLY_OK, "no document");
    tally_json_free(json);
    return document;
}

static bool is_same(const struct tally_buffer *a, const struct tally_buffer *b)
{
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

static enum tally_status solve_once(const struct tally_job_spec *spec,
                                    struct tally_local_preparation *ret_preparation,
                                    struct tally_error *err)
{
    struct tally_buffer document = document_of(spec);
    for (int i = 0; i < all.n_solved; i++) {
        if (is_same(&all.solved[i].document, &document)) {
            *ret_preparation = all.solved[i].preparation;
            tally_buffer_fini(&document);
            return TALLY_OK;
        }
    }
    const enum tally_status status = solve(spec, ret_preparation, err);
    if (status == TALLY_OK && all.n_solved < SIM_MAX_JOBS) {
        all.solved[all.n_solved].document = document;
        all.solved[all.n_solved++].preparation = *ret_preparation;
    } else {
        tally_buffer_fini(&document);
    }
    return status;
}

bool preparer_take(struct preparer *preparer, struct prepared *ret_result)
{
    struct work *work = preparer->first;
    if (work == NULL) {
        return false;
    }
    preparer->first = work->next;
    *ret_result = (struct prepared){.status = TALLY_OK};
    snprintf(ret_result->job_id, sizeof ret_result->job_id, "%s", work->job_id);
    ret_result->status = solve_once(&work->spec, &ret_result->preparation, &ret_result->err);
    free(work);
    return true;
}

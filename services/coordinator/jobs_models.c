#include "services/coordinator/jobs_models.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/coordinator/jobs_live.h"

enum tally_status jobs_read_which(const char *text, struct model_which *ret_which,
                                  struct tally_error *err)
{
    *ret_which = (struct model_which){.choice = MODEL_LAST};
    if (text == NULL || strcmp(text, "last") == 0) {
        return TALLY_OK;
    }
    if (strcmp(text, "best") == 0) {
        ret_which->choice = MODEL_BEST;
        return TALLY_OK;
    }
    const size_t n = strlen(text);
    if (n == 0 || n > 18 || strspn(text, "0123456789") != n) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "which",
                          "which \"%.32s\" is not best, last or a round", text);
    }
    *ret_which = (struct model_which){MODEL_ROUND, strtoll(text, NULL, 10)};
    return TALLY_OK;
}

/* A walk over the kept models of a job. */
struct search {
    const struct model_which *which;
    bool is_found;
    struct tally_store_model model;
    int64_t n, last_round; /* of the models seen */
};

static enum tally_status see_model(void *context, const struct tally_store_model *model,
                                   struct tally_error *err)
{
    struct search *search = context;
    (void)err;
    const bool is_wanted = search->which->choice == MODEL_BEST
                               ? model->slot == TALLY_STORE_BEST_MODEL
                               : model->round == search->which->round;
    if (is_wanted && !search->is_found) {
        search->is_found = true;
        search->model = *model;
    }
    search->n++;
    search->last_round = model->round;
    return TALLY_OK;
}

static enum tally_status fail_missing(const struct tally_store_job *row,
                                      const struct search *search, struct tally_error *err)
{
    if (search->which->choice == MODEL_BEST) {
        return tally_fail(err, TALLY_NOT_FOUND, "which",
                          "job %s keeps no best model, or has not measured one yet", row->id);
    }
    return search->n == 0
               ? tally_fail(err, TALLY_NOT_FOUND, "which",
                            "job %s keeps no model of round %" PRId64 ", only its last one, of "
                            "round %" PRId64,
                            row->id, search->which->round, row->progress.round)
               : tally_fail(err, TALLY_NOT_FOUND, "which",
                            "job %s keeps no model of round %" PRId64 "; of its %" PRId64
                            " kept models the last is of round %" PRId64 ", and /v1/jobs/%s/models "
                            "lists all",
                            row->id, search->which->round, search->n, search->last_round, row->id);
}

enum tally_status jobs_find_model(struct tally_coordinator *coordinator,
                                  const struct tally_store_job *row,
                                  const struct model_which *which, bool *ret_is_last,
                                  struct tally_store_model *ret_model, struct tally_error *err)
{
    struct search search = {.which = which};
    *ret_is_last = which->choice == MODEL_LAST ||
                   (which->choice == MODEL_ROUND && which->round == row->progress.round);
    if (*ret_is_last) {
        return TALLY_OK;
    }
    struct tally_store *store = coordinator->store;
    const enum tally_status status =
        store->ops->model_list(store, row->key, see_model, &search, err);
    if (status == TALLY_OK && search.is_found) {
        *ret_model = search.model;
    }
    return status == TALLY_OK && !search.is_found ? fail_missing(row, &search, err) : status;
}

enum tally_status jobs_load_model(struct tally_coordinator *coordinator,
                                  const struct tally_store_job *row,
                                  const struct tally_store_model *model, struct tally_buffer *out,
                                  struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    const size_t before = out->size, n_bytes = (size_t)row->dim * sizeof(double);
    const enum tally_status status = store->ops->model_get(store, row->key, model->slot, out, err);
    if (status != TALLY_OK) {
        return status;
    }
    return out->size == before + n_bytes &&
                   tally_checksum64(out->data + before, n_bytes) == model->x_checksum
               ? TALLY_OK
               : tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "the kept model of round %" PRId64 " of job %s does not match its "
                            "checksum",
                            model->round, row->id);
}

enum tally_status jobs_with_engine(struct tally_coordinator *coordinator, const char *id,
                                   struct hosted_job **ret_job, bool *ret_owned,
                                   struct tally_error *err)
{
    *ret_owned = false;
    *ret_job = jobs_find(coordinator, id);
    if (*ret_job != NULL) {
        return TALLY_OK;
    }
    struct tally_store_job row;
    enum tally_status status = jobs_read_row(coordinator, id, &row, err);
    if (status == TALLY_OK && !tally_job_status_is_terminal(row.status)) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "job %s is being taken over by a coordinator", id);
    }
    if (status == TALLY_OK) {
        status = hosted_job_load(coordinator->store, &row, ret_job, err);
        *ret_owned = status == TALLY_OK;
    }
    return status;
}

/* Appends the engine's point, or the initial one of a job that has not started. */
static enum tally_status append_point(const struct hosted_job *job, struct tally_buffer *out,
                                      struct tally_error *err)
{
    size_t dim;
    double *initial = NULL;
    const double *x = tally_job_point(job->engine, &dim);
    enum tally_status status =
        x == NULL ? tally_job_make_initial_point(&job->spec, &initial, err) : TALLY_OK;
    if (status == TALLY_OK &&
        tally_buffer_append(out, x != NULL ? x : initial, dim * sizeof *x) != TALLY_OK) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the model");
    }
    free(initial);
    return status;
}

enum tally_status jobs_read_model(struct tally_coordinator *coordinator, const char *id,
                                  const struct model_which *which, struct tally_buffer *out,
                                  struct tally_error *err)
{
    struct tally_store_job row;
    struct tally_store_model model;
    bool is_last = false;
    enum tally_status status = jobs_read_row(coordinator, id, &row, err);
    if (status == TALLY_OK) {
        status = jobs_find_model(coordinator, &row, which, &is_last, &model, err);
    }
    if (status != TALLY_OK || !is_last) {
        return status == TALLY_OK ? jobs_load_model(coordinator, &row, &model, out, err) : status;
    }
    struct hosted_job *job;
    bool owned;
    status = jobs_with_engine(coordinator, id, &job, &owned, err);
    if (status == TALLY_OK) {
        status = append_point(job, out, err);
        if (owned) {
            hosted_job_free(job);
        }
    }
    return status;
}

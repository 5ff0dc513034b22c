#include "services/worker/worker_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/load_watch.h"
#include "services/job/document.h"

/* Reads the data, and scales the features if the scaling is known. */
static enum tally_status load(struct job_copy *copy, const char *data_dir,
                              const struct tally_plugin_set *plugins,
                              const volatile sig_atomic_t *stop,
                              struct tally_objective **ret_objective, struct tally_error *err)
{
    struct tally_load_watch watch = {.job = copy->id, .stop = stop};
    const struct tally_data_source files = {.dir = data_dir,
                                            .on_progress = tally_load_watch_tell,
                                            .on_fault = tally_load_watch_fault,
                                            .context = &watch,
                                            .scaling =
                                                copy->scaling.features > 0 ? &copy->scaling : NULL};
    return tally_plugin_set_objective(plugins, &copy->spec, copy->id, &files, ret_objective, err);
}

/* Takes the scaling that a task has. */
static enum tally_status take_scaling(struct job_copy *copy, const struct tally_task *task,
                                      struct tally_error *err)
{
    const size_t features = (size_t)tally_data_spec_features(&copy->spec.objective.data);
    const size_t n = 3 * features * sizeof(double);
    const bool is_due = tally_job_spec_is_surveyed(&copy->spec) && task->scaling_digest != 0;
    if (!is_due || task->scaling.size != n) {
        return tally_fail(err, TALLY_DATA_LOSS, "scaling", "a scaling of %zu bytes instead of %zu",
                          task->scaling.size, is_due ? n : 0);
    }
    double *numbers = malloc(n);
    if (numbers == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the scaling");
    }
    memcpy(numbers, task->scaling.data, n);
    tally_scaling_fini(&copy->scaling);
    const enum tally_status status = tally_scaling_set(&copy->scaling, numbers, features, err);
    free(numbers);
    return status == TALLY_OK && copy->scaling.digest != task->scaling_digest
               ? tally_fail(err, TALLY_DATA_LOSS, "scaling",
                            "the scaling is not that of its digest")
               : status;
}

enum tally_status job_copy_scale(struct job_copy *copy, const struct tally_task *task,
                                 const char *data_dir, const struct tally_plugin_set *plugins,
                                 const volatile sig_atomic_t *stop, struct tally_error *err)
{
    enum tally_status status = task->scaling.size > 0 ? take_scaling(copy, task, err) : TALLY_OK;
    if (status != TALLY_OK || task->scaling_digest == copy->objective->scaling ||
        task->wants_survey) {
        return status;
    }
    if (copy->scaling.digest != task->scaling_digest) {
        return tally_fail(err, TALLY_DATA_LOSS, "scaling", "the job's scaling is not here");
    }
    tally_objective_free(copy->objective); /* first, so that the data are not here twice */
    copy->objective = NULL;
    status = load(copy, data_dir, plugins, stop, &copy->objective, err);
    if (status == TALLY_OK) {
        tally_model_copy_use(copy->model, copy->objective);
    }
    return status;
}

uint32_t job_copy_scaling(const struct job_copy *copy)
{
    return copy->scaling.digest;
}

enum tally_status job_copy_new(const char *id, const struct tally_bytes *document,
                               const char *data_dir, const struct tally_plugin_set *plugins,
                               const volatile sig_atomic_t *stop, struct job_copy **ret_copy,
                               struct tally_error *err)
{
    struct job_copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for job %s", id);
    }
    snprintf(copy->id, sizeof copy->id, "%s", id);
    enum tally_status status =
        tally_document_parse((const char *)document->data, document->size, &copy->spec, err);
    if (status == TALLY_OK) {
        status = load(copy, data_dir, plugins, stop, &copy->objective, err);
    }
    if (status == TALLY_OK) {
        status = tally_model_copy_new(&copy->spec, copy->objective, &copy->model, err);
    }
    if (status == TALLY_OK) {
        copy->places = calloc((size_t)copy->spec.clients, sizeof *copy->places);
        status = copy->places != NULL
                     ? TALLY_OK
                     : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %lld clients",
                                  (long long)copy->spec.clients);
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "job %s", id);
        job_copy_free(copy);
        return status;
    }
    *ret_copy = copy;
    return TALLY_OK;
}

void job_copy_free(struct job_copy *copy)
{
    if (copy != NULL) {
        tally_model_copy_free(copy->model);
        tally_objective_free(copy->objective);
        tally_scaling_fini(&copy->scaling);
        free(copy->clients);
        free(copy->places);
        free(copy);
    }
}

struct job_copy *job_copy_find(struct job_copy *jobs, const char *id)
{
    while (jobs != NULL && strcmp(jobs->id, id) != 0) {
        jobs = jobs->next;
    }
    return jobs;
}

bool job_copy_note_dropped(struct job_copy *copy, const char *name)
{
    for (size_t i = 0; i < copy->n_dropped; i++) {
        if (strcmp(copy->dropped[i], name) == 0) {
            return false;
        }
    }
    if (copy->n_dropped == TALLY_METRICS_MOST) {
        return false;
    }
    snprintf(copy->dropped[copy->n_dropped++], TALLY_METRIC_NAME_CAPACITY, "%s", name);
    return true;
}

static void put_client(struct job_copy *copy, size_t index, uint32_t client)
{
    copy->clients[index] = client;
    copy->places[client] = (uint32_t)index + 1;
}

/* Swaps a client of the list with the one at `index`. */
static void swap_to(struct job_copy *copy, size_t index, uint32_t client)
{
    if (index < copy->n_clients) { /* not so for a task with a client twice */
        put_client(copy, copy->places[client] - 1, copy->clients[index]);
        put_client(copy, index, client);
    }
}

/* Records the i-th client of a task. */
static enum tally_status remember_client(struct job_copy *copy, size_t i, uint32_t client,
                                         struct tally_error *err)
{
    if (client >= copy->spec.clients) { /* no such client: nothing is computed for it */
        return TALLY_OK;
    }
    if (copy->places[client] != 0) {
        swap_to(copy, i, client);
        return TALLY_OK;
    }
    if (copy->n_clients == copy->capacity) {
        size_t capacity = copy->capacity == 0 ? 8 : 2 * copy->capacity;
        uint32_t *clients = realloc(copy->clients, capacity * sizeof *clients);
        if (clients == NULL) {
            return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients");
        }
        copy->clients = clients;
        copy->capacity = capacity;
    }
    put_client(copy, copy->n_clients++, client);
    swap_to(copy, i, client);
    return TALLY_OK;
}

static enum tally_status apply_broadcasts(struct job_copy *copy, const struct tally_task *task,
                                          struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < task->n_broadcasts; i++) {
        const struct tally_broadcast *broadcast = &task->broadcasts[i];
        if ((int64_t)broadcast->iterate <= tally_model_copy_iterate(copy->model)) {
            continue;
        }
        const struct tally_message_view view = {.payload = broadcast->payload.data,
                                                .n_payload = broadcast->payload.size,
                                                .payload_bits = broadcast->payload_bits,
                                                .grid = {broadcast->quantizer_step,
                                                         broadcast->quantizer_intervals,
                                                         broadcast->quantizer_scale}};
        status = tally_model_copy_apply(copy->model, (int64_t)broadcast->iterate, &view, err);
    }
    return status;
}

/* Sets the shifts of the task's clients to those of the task. */
static enum tally_status follow_shifts(struct job_copy *copy, const struct tally_task *task,
                                       struct tally_error *err)
{
    if (task->n_shifts != (task->shift_gain > 0 ? task->n_clients : 0)) {
        return tally_fail(err, TALLY_MALFORMED, "shifts", "%zu shifts came for %zu clients",
                          task->n_shifts, task->n_clients);
    }
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < task->n_shifts; i++) {
        const struct tally_client_shift *shift = &task->shifts[i];
        status = tally_model_copy_set_shift(copy->model, shift->client, shift->round,
                                            shift->vector.data, shift->vector.size, err);
    }
    return status;
}

enum tally_status job_copy_follow(struct job_copy *copy, const struct tally_task *task,
                                  struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < task->n_clients; i++) {
        status = remember_client(copy, i, task->clients[i], err);
    }
    if (status == TALLY_OK && task->snapshot.size > 0) {
        status = tally_model_copy_load(copy->model, (int64_t)task->iterate, task->snapshot.data,
                                       task->snapshot.size, err);
    } else if (status == TALLY_OK) {
        status = apply_broadcasts(copy, task, err);
    }
    if (status == TALLY_OK) {
        status = follow_shifts(copy, task, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_model_copy_iterate(copy->model) != (int64_t)task->iterate ||
        tally_model_copy_checksum(copy->model) != task->x_checksum) {
        return tally_fail(err, TALLY_DATA_LOSS, "x_checksum",
                          "the point of iterate %lld is not the coordinator's at iterate %llu",
                          (long long)tally_model_copy_iterate(copy->model),
                          (unsigned long long)task->iterate);
    }
    return TALLY_OK;
}

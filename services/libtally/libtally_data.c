/* The data points of a job's clients, for a process that computes gradients elsewhere. */
#include <stdlib.h>

#include "services/job/document.h"
#include "services/job/document_complete.h"
#include "services/libtally/libtally_internal.h"
#include "services/objectives/data/load_data.h"

struct tally_job_data {
    struct tally_dataset *dataset;
};

_Static_assert((int)TALLY_POINTS_VALUES_MAX == (int)TALLY_DATA_MAX_VALUES, "the header says so");

static enum tally_status load(const struct tally_job_spec *spec, const char *data_dir,
                              struct tally_dataset **ret_dataset, struct tally_error *err)
{
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[spec->objective.type];
    const struct tally_data_spec *data = &spec->objective.data;
    const struct tally_data_source source = {.dir = data_dir != NULL ? data_dir : "data"};
    const struct tally_rng_key key = tally_job_spec_setting(spec).key;
    const uint32_t clients = (uint32_t)spec->clients;
    if (kind->data == 0 || data->type == TALLY_DATA_MATRIX) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.type",
                          "objective %s has no points", kind->name);
    }
    return tally_dataset_load(data, kind->labels, clients, key, &source, ret_dataset, err);
}

/* Completes the document, unless a coordinator has, and reads it. */
static enum tally_status parse(const char *document, size_t size, const char *data_dir,
                               struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_data_source source = {.dir = data_dir != NULL ? data_dir : "data"};
    struct tally_buffer text = {0};
    char found[TALLY_FOUND_CAPACITY];
    enum tally_status status = tally_buffer_append(&text, document, size);
    if (status == TALLY_OK) {
        status = tally_document_complete(&text, &source, found, err);
    }
    if (status == TALLY_OK) {
        status = tally_document_parse((const char *)text.data, text.size, spec, err);
    }
    tally_buffer_fini(&text);
    return status;
}

enum tally_code tally_job_data_load(const char *document, size_t size, const char *data_dir,
                                    struct tally_job_data **ret_data, struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_data *data = calloc(1, sizeof *data);
    struct tally_job_spec *spec = malloc(sizeof *spec); /* large */
    enum tally_status status = data != NULL && spec != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    if (status == TALLY_OK) {
        status = parse(document, size, data_dir, spec, &err);
    }
    if (status == TALLY_OK) {
        status = load(spec, data_dir, &data->dataset, &err);
    }
    free(spec);
    if (status != TALLY_OK) {
        free(data);
        return tally_failure_of(status, &err, failure);
    }
    *ret_data = data;
    return TALLY_CODE_OK;
}

void tally_job_data_free(struct tally_job_data *data)
{
    if (data != NULL) {
        tally_dataset_free(data->dataset);
        free(data);
    }
}

uint32_t tally_job_data_clients(const struct tally_job_data *data)
{
    return data->dataset->clients;
}

static enum tally_status copy_points(const struct tally_dataset *dataset, uint32_t client,
                                     struct tally_points *points, struct tally_error *err)
{
    struct tally_shard shard;
    if (client >= dataset->clients) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "client", "client %u outside [0, %u]", client,
                          dataset->clients - 1);
    }
    enum tally_status status = tally_dataset_shard(dataset, client, &shard, err);
    if (status != TALLY_OK) {
        return status;
    }
    const size_t n = shard.size, features = dataset->features;
    if (n > TALLY_POINTS_VALUES_MAX / features) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "client",
                          "%zu points of %zu features are more than %d values, zeros included", n,
                          features, (int)TALLY_POINTS_VALUES_MAX);
    }
    double *values = malloc(n * features * sizeof *values);
    double *labels = malloc(n * sizeof *labels);
    points->n = n;
    points->features = features;
    points->values = values;
    points->labels = labels;
    if (values == NULL || labels == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu points", n);
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t point = shard.first + (uint32_t)i;
        tally_dataset_row(dataset, point, values + i * features);
        labels[i] = dataset->labels[point];
    }
    return TALLY_OK;
}

enum tally_code tally_job_data_points(const struct tally_job_data *data, uint32_t client,
                                      struct tally_points **ret_points,
                                      struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_points *points = calloc(1, sizeof *points);
    const enum tally_status status =
        points != NULL ? copy_points(data->dataset, client, points, &err) : TALLY_NO_MEMORY;
    if (status != TALLY_OK) {
        tally_points_free(points);
        return tally_failure_of(status, &err, failure);
    }
    *ret_points = points;
    return TALLY_CODE_OK;
}

void tally_points_free(struct tally_points *points)
{
    if (points != NULL) {
        free((void *)(uintptr_t)points->values);
        free((void *)(uintptr_t)points->labels);
        free(points);
    }
}

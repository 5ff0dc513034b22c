#include "services/objectives/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/dataset_builder.h"
#include "services/objectives/libsvm.h"

void tally_dataset_free(struct tally_dataset *dataset)
{
    if (dataset != NULL) {
        free(dataset->shards);
        free(dataset->values);
        free(dataset->row_first);
        free(dataset->columns);
        free(dataset->bytes);
        free(dataset->labels);
        free(dataset);
    }
}

/* Use. */

enum tally_status tally_dataset_shard(const struct tally_dataset *dataset, uint32_t client,
                                      struct tally_shard *ret_shard, struct tally_error *err)
{
    *ret_shard = dataset->shards[client];
    return ret_shard->size > 0
               ? TALLY_OK
               : tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.data",
                            "the data of client %u are not in this data folder", client);
}

double tally_dataset_dot(const struct tally_dataset *dataset, uint32_t point, const double *x)
{
    const size_t features = dataset->features;
    double sum = 0;
    if (dataset->row_first != NULL) {
        for (size_t i = dataset->row_first[point]; i < dataset->row_first[point + 1]; i++) {
            sum += dataset->values[i] * x[dataset->columns[i]];
        }
    } else if (dataset->bytes != NULL) {
        const uint8_t *row = dataset->bytes + point * features;
        for (size_t j = 0; j < features; j++) {
            sum += row[j] / 255.0 * x[j];
        }
    } else {
        const double *row = dataset->values + point * features;
        for (size_t j = 0; j < features; j++) {
            sum += row[j] * x[j];
        }
    }
    return sum;
}

void tally_dataset_add(const struct tally_dataset *dataset, uint32_t point, double factor,
                       double *x)
{
    const size_t features = dataset->features;
    if (dataset->row_first != NULL) {
        for (size_t i = dataset->row_first[point]; i < dataset->row_first[point + 1]; i++) {
            x[dataset->columns[i]] += factor * dataset->values[i];
        }
    } else if (dataset->bytes != NULL) {
        const uint8_t *row = dataset->bytes + point * features;
        for (size_t j = 0; j < features; j++) {
            x[j] += factor * (row[j] / 255.0);
        }
    } else {
        const double *row = dataset->values + point * features;
        for (size_t j = 0; j < features; j++) {
            x[j] += factor * row[j];
        }
    }
}

void tally_dataset_row(const struct tally_dataset *dataset, uint32_t point, double *ret_row)
{
    const size_t features = dataset->features;
    if (dataset->row_first != NULL) {
        memset(ret_row, 0, features * sizeof *ret_row);
        for (size_t i = dataset->row_first[point]; i < dataset->row_first[point + 1]; i++) {
            ret_row[dataset->columns[i]] = dataset->values[i];
        }
    } else if (dataset->bytes != NULL) {
        for (size_t j = 0; j < features; j++) {
            ret_row[j] = dataset->bytes[point * features + j] / 255.0;
        }
    } else {
        memcpy(ret_row, dataset->values + point * features, features * sizeof *ret_row);
    }
}

/* Splitting over clients. */

static int compare_labels(const void *a, const void *b, void *context)
{
    const double *labels = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (labels[i] != labels[j]) {
        return labels[i] < labels[j] ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* order[p] <- the place in the file of point p. */
static void choose_order(const struct tally_dataset *dataset, int sharding,
                         struct tally_rng_key key, uint32_t *order)
{
    if (sharding == TALLY_SHARDING_IID) {
        tally_shard_permutation(key, dataset->points, order);
        return;
    }
    for (uint32_t i = 0; i < dataset->points; i++) {
        order[i] = i;
    }
    qsort_r(order, dataset->points, sizeof *order, compare_labels, dataset->labels);
}

/* Puts rows into order, cycle by cycle with one spare row; order becomes the identity. */
static void permute_rows(void *rows, size_t n_bytes, uint32_t *order, uint32_t points, void *spare)
{
    uint8_t *at = rows;
    for (uint32_t first = 0; first < points; first++) {
        uint32_t to = first;
        if (order[first] == first) {
            continue;
        }
        memcpy(spare, at + first * n_bytes, n_bytes);
        while (order[to] != first) {
            const uint32_t from = order[to];
            memcpy(at + to * n_bytes, at + from * n_bytes, n_bytes);
            order[to] = to;
            to = from;
        }
        memcpy(at + to * n_bytes, spare, n_bytes);
        order[to] = to;
    }
}

/* The same for an array of rows of different lengths: a new array. */
static void *permute_sparse(const struct tally_dataset *dataset, const void *from, size_t n_bytes,
                            const uint32_t *order)
{
    const size_t *first = dataset->row_first;
    uint8_t *to = malloc((first[dataset->points] + 1) * n_bytes);
    size_t at = 0;
    for (uint32_t p = 0; to != NULL && p < dataset->points; p++) {
        const size_t n = first[order[p] + 1] - first[order[p]];
        memcpy(to + at * n_bytes, (const uint8_t *)from + first[order[p]] * n_bytes, n * n_bytes);
        at += n;
    }
    return to;
}

static bool order_sparse(struct tally_dataset *dataset, const uint32_t *order)
{
    double *values = permute_sparse(dataset, dataset->values, sizeof *values, order);
    if (values == NULL) {
        return false;
    }
    free(dataset->values);
    dataset->values = values;
    uint32_t *columns = permute_sparse(dataset, dataset->columns, sizeof *columns, order);
    size_t *row_first = malloc((dataset->points + 1) * sizeof *row_first);
    if (columns == NULL || row_first == NULL) {
        free(columns);
        free(row_first);
        return false;
    }
    row_first[0] = 0;
    for (uint32_t p = 0; p < dataset->points; p++) {
        row_first[p + 1] =
            row_first[p] + dataset->row_first[order[p] + 1] - dataset->row_first[order[p]];
    }
    free(dataset->columns);
    free(dataset->row_first);
    dataset->columns = columns;
    dataset->row_first = row_first;
    return true;
}

/* Brings the points from the file's order into that of the shards. */
static bool put_in_order(struct tally_dataset *dataset, int sharding, struct tally_rng_key key)
{
    const size_t n_order = dataset->points * sizeof(uint32_t);
    const size_t n_row = dataset->features * sizeof(double);
    uint32_t *order = malloc(n_order), *used_up = malloc(n_order);
    void *spare = malloc(n_row > sizeof(double) ? n_row : sizeof(double));
    bool ok = order != NULL && used_up != NULL && spare != NULL;
    if (ok) {
        choose_order(dataset, sharding, key, order);
        memcpy(used_up, order, n_order);
        permute_rows(dataset->labels, sizeof *dataset->labels, used_up, dataset->points, spare);
        memcpy(used_up, order, n_order);
        if (dataset->row_first != NULL) {
            ok = order_sparse(dataset, order);
        } else if (dataset->bytes != NULL) {
            permute_rows(dataset->bytes, dataset->features, used_up, dataset->points, spare);
        } else {
            permute_rows(dataset->values, n_row, used_up, dataset->points, spare);
        }
    }
    free(order);
    free(used_up);
    free(spare);
    return ok;
}

/* Loading. */

static enum tally_status read_table(const struct tally_table_data *table,
                                    const struct tally_data_source *source, const char *name,
                                    struct tally_dataset_builder *builder, struct tally_error *err)
{
    struct tally_data_file *file;
    enum tally_status status = tally_data_file_open(source, name, &file, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_libsvm_read(file, (size_t)table->features, builder);
    tally_data_file_close(file);
    return status;
}

static enum tally_status cut(struct tally_dataset *dataset, const char *name,
                             struct tally_error *err)
{
    if (dataset->points < dataset->clients) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "%s has %u points, too few for %u clients", name, dataset->points,
                          dataset->clients);
    }
    for (uint32_t m = 0; m < dataset->clients; m++) {
        dataset->shards[m] = tally_shard_of(dataset->points, dataset->clients, m);
    }
    return TALLY_OK;
}

enum tally_status tally_dataset_load(const struct tally_data_spec *data, enum tally_labels labels,
                                     uint32_t clients, struct tally_rng_key key,
                                     const struct tally_data_source *source,
                                     struct tally_dataset **ret, struct tally_error *err)
{
    struct tally_dataset *dataset = calloc(1, sizeof *dataset);
    if (dataset == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for data");
    }
    dataset->clients = clients;
    dataset->features = (size_t)tally_data_spec_features(data);
    dataset->is_whole = true;
    dataset->shards = calloc(clients, sizeof *dataset->shards);
    struct tally_dataset_builder builder = {.dataset = dataset,
                                            .rule = labels,
                                            .classes = tally_data_spec_classes(data),
                                            .is_sparse = data->type == TALLY_DATA_LIBSVM};
    enum tally_status status =
        dataset->shards != NULL
            ? read_table(&data->table, source, data->table.file, &builder, err)
            : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u clients", clients);
    if (status == TALLY_OK) {
        status = cut(dataset, data->table.file, err);
    }
    if (status == TALLY_OK && data->sharding != TALLY_SHARDING_CONTIGUOUS &&
        !put_in_order(dataset, data->sharding, key)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to shuffle %u points",
                            dataset->points);
    }
    for (uint32_t i = 0; builder.has_zero && i < dataset->points; i++) {
        dataset->labels[i] = dataset->labels[i] == 0 ? -1 : dataset->labels[i];
    }
    if (status != TALLY_OK) {
        tally_dataset_free(dataset);
        return status;
    }
    *ret = dataset;
    return TALLY_OK;
}

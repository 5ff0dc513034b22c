#include "services/objectives/data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "codec/numeric/gcd.h"
#include "codec/numeric/vector.h"

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

enum tally_status tally_dataset_shard(const struct tally_dataset *dataset, uint32_t client,
                                      struct tally_shard *ret_shard, struct tally_error *err)
{
    *ret_shard = dataset->shards[client];
    return ret_shard->size > 0
               ? TALLY_OK
               : tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.data",
                            "the data of client %u are not in this data folder", client);
}

enum tally_status tally_dataset_count(const struct tally_dataset *dataset, uint32_t client,
                                      uint32_t *ret_n, struct tally_error *err)
{
    struct tally_shard shard;
    const enum tally_status status = tally_dataset_shard(dataset, client, &shard, err);
    if (status == TALLY_OK) {
        *ret_n = shard.size;
    }
    return status;
}

uint32_t tally_dataset_n_shards(const struct tally_dataset *dataset)
{
    const struct tally_shard *shards = dataset->shards;
    const bool is_shared = dataset->clients > 1 && shards[0].size > 0 && shards[1].size > 0 &&
                           shards[1].first == shards[0].first;
    return is_shared ? 1 : dataset->clients;
}

enum tally_status tally_dataset_check_whole(const struct tally_dataset *dataset,
                                            struct tally_error *err)
{
    return dataset->is_whole
               ? TALLY_OK
               : tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                            "the points of all clients are not here, so f cannot be computed");
}

void tally_dataset_weigh_points(struct tally_dataset *dataset)
{
    for (uint32_t m = 0; m < dataset->clients; m++) {
        dataset->n_weighed += dataset->shards[m].size;
        dataset->unit = tally_gcd(dataset->unit, dataset->shards[m].size);
    }
}

uint32_t tally_dataset_share(const struct tally_dataset *dataset, struct tally_shard shard)
{
    return dataset->unit > 0 ? shard.size / dataset->unit : 1;
}

double tally_dataset_weight(const struct tally_dataset *dataset, struct tally_shard shard)
{
    return 1.0 / (dataset->n_weighed > 0 ? (double)dataset->n_weighed
                                         : (double)dataset->clients * shard.size);
}

void tally_dataset_weights(const struct tally_dataset *dataset, double *ret_weights)
{
    for (uint32_t i = 0; i < dataset->points; i++) {
        ret_weights[i] = 0;
    }
    for (uint32_t m = 0; m < dataset->clients; m++) {
        const struct tally_shard shard = dataset->shards[m];
        for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
            ret_weights[i] += tally_dataset_weight(dataset, shard);
        }
    }
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
        sum = tally_vector_dot(dataset->values + point * features, x, features);
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

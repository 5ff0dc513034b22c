#include "services/objectives/data/load_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/dataset.h"
#include "services/objectives/data/formats.h"
#include "services/objectives/data/idx.h"
#include "services/objectives/data/scaling.h"
#include "services/objectives/data/survey.h"
#include "services/objectives/data/synthetic_linear.h"

/* --- splitting over clients ------------------------------------------------------------------ */

static int compare_labels(const void *a, const void *b, void *context)
{
    const double *labels = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (labels[i] != labels[j]) {
        return labels[i] < labels[j] ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* order[p] <- the index in the file of point p. */
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

/* The same with `dirichlet`, which also sets the shards. False if memory ran out. */
static bool deal(struct tally_dataset *dataset, double alpha, struct tally_rng_key key,
                 uint32_t *order)
{
    return tally_shard_dirichlet(key, alpha, dataset->labels, dataset->points, dataset->clients,
                                 order, dataset->shards);
}

/* tally_shard_reorder() for rows of different lengths. Returns a new array. */
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

/* Reorders the points from the order of the file to that of the shards. */
static bool put_in_order(struct tally_dataset *dataset, const struct tally_data_spec *data,
                         struct tally_rng_key key)
{
    const uint32_t points = dataset->points;
    const bool is_bytes = dataset->bytes != NULL;
    const size_t n_row = dataset->features * (is_bytes ? 1 : sizeof(double));
    uint32_t *order = malloc(points * sizeof *order), *used_up = malloc(points * sizeof *order);
    void *spare = malloc(n_row > sizeof(double) ? n_row : sizeof(double)); /* a row, or a label */
    bool ok = order != NULL && used_up != NULL && spare != NULL;
    if (ok && data->sharding == TALLY_SHARDING_DIRICHLET) {
        ok = deal(dataset, data->alpha, key, order);
    } else if (ok) {
        choose_order(dataset, data->sharding, key, order);
    }
    if (ok) {
        memcpy(used_up, order, points * sizeof *order);
        tally_shard_reorder(dataset->labels, sizeof *dataset->labels, points, used_up, spare);
        memcpy(used_up, order, points * sizeof *order);
        if (dataset->row_first != NULL) {
            ok = order_sparse(dataset, order);
        } else {
            tally_shard_reorder(is_bytes ? (void *)dataset->bytes : dataset->values, n_row, points,
                                used_up, spare);
        }
    }
    free(order);
    free(used_up);
    free(spare);
    return ok;
}

/* --- loading --------------------------------------------------------------------------------- */

struct loader {
    const struct tally_data_spec *data;
    const struct tally_data_source *source;
    struct tally_rng_key key;
    struct tally_columns *columns; /* of CSV files */
    struct tally_dataset_builder builder;
    bool has_untried; /* the trial left out a file */
    struct tally_error *err;
};

/* Replaces the mark in a name by the client's number. */
static enum tally_status name_of(const struct loader *loader, const char *name, uint32_t client,
                                 char ret_name[TALLY_DATA_NAME_CAPACITY])
{
    const char *mark = strstr(name, TALLY_DATA_CLIENT_MARK);
    const int n = mark == NULL
                      ? snprintf(ret_name, TALLY_DATA_NAME_CAPACITY, "%s", name)
                      : snprintf(ret_name, TALLY_DATA_NAME_CAPACITY, "%.*s%u%s", (int)(mark - name),
                                 name, client, mark + strlen(TALLY_DATA_CLIENT_MARK));
    return n < TALLY_DATA_NAME_CAPACITY
               ? TALLY_OK
               : tally_fail(loader->err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "the name %s is too long", name);
}

/* Opens a file of a client. */
static enum tally_status open_of(const struct loader *loader, const char *name, uint32_t client,
                                 struct tally_data_file **ret_file)
{
    char of_client[TALLY_DATA_NAME_CAPACITY];
    const enum tally_status status = name_of(loader, name, client, of_client);
    return status == TALLY_OK
               ? tally_data_file_open(loader->source, of_client, ret_file, loader->err)
               : status;
}

static enum tally_status read_text(struct loader *loader, uint32_t client)
{
    const struct tally_table_data *table = &loader->data->table;
    struct tally_data_file *file;
    enum tally_status status = open_of(loader, table->file, client, &file);
    if (status != TALLY_OK) {
        return status;
    }
    if (loader->builder.is_trial && !file->is_packed) {
        loader->has_untried = true;
    } else if (loader->data->type == TALLY_DATA_CSV) {
        /* A trial may read the files in another order, which must not become the features'. */
        struct tally_columns *columns = loader->builder.is_trial ? NULL : loader->columns;
        status = tally_csv_read(file, table, columns, &loader->builder);
    } else {
        status = tally_libsvm_read(file, (size_t)table->features, &loader->builder);
    }
    tally_data_file_close(file);
    return status;
}

/* Opens the array of points or of labels, in a file of its own or in a shared one. */

static enum tally_status open_array(const struct loader *loader, uint32_t client,
                                    struct tally_npz *npz, const char *name,
                                    struct tally_data_file **ret_file)
{
    return npz != NULL ? tally_npz_open_array(npz, name, ret_file, loader->err)
                       : open_of(loader, name, client, ret_file);
}

static enum tally_status read_arrays(struct loader *loader, uint32_t client, struct tally_npz *npz)
{
    const struct tally_table_data *table = &loader->data->table;
    struct tally_data_file *file;
    size_t points = 0;
    enum tally_status status = open_array(loader, client, npz, table->points, &file);
    if (status == TALLY_OK) {
        status = tally_npy_read_points(file, (size_t)table->features, &loader->builder, &points);
        tally_data_file_close(file);
    }
    if (status == TALLY_OK) {
        status = open_array(loader, client, npz, table->labels, &file);
    }
    if (status == TALLY_OK) {
        status = tally_npy_read_labels(file, points, &loader->builder);
        tally_data_file_close(file);
    }
    return status;
}

static enum tally_status read_npz(struct loader *loader, uint32_t client)
{
    char name[TALLY_DATA_NAME_CAPACITY];
    struct tally_npz *npz = NULL;
    enum tally_status status = name_of(loader, loader->data->table.file, client, name);
    if (status == TALLY_OK) {
        status = tally_npz_open(loader->source, name, &npz, loader->err);
    }
    if (status == TALLY_OK) {
        status = read_arrays(loader, client, npz);
    }
    tally_npz_close(npz);
    return status;
}

/* Moves the images of a set into the dataset. Those of the first set are not copied. */
static bool take_images(struct tally_dataset *dataset, struct tally_idx_set *set)
{
    const size_t before = dataset->points, n = set->points, features = set->features;
    if (before == 0) {
        free(dataset->bytes);
        dataset->bytes = set->pixels;
        set->pixels = NULL;
    } else {
        uint8_t *grown = realloc(dataset->bytes, (before + n) * features);
        if (grown == NULL) {
            return false;
        }
        dataset->bytes = grown;
        memcpy(grown + before * features, set->pixels, n * features);
    }
    double *labels = realloc(dataset->labels, (before + n + 1) * sizeof *labels);
    if (labels == NULL) {
        return false;
    }
    dataset->labels = labels;
    for (size_t i = 0; i < n; i++) {
        labels[before + i] = set->labels[i];
    }
    dataset->points += (uint32_t)n;
    return true;
}

static enum tally_status read_idx(struct loader *loader, uint32_t client)
{
    struct tally_dataset *dataset = loader->builder.dataset;
    struct tally_idx_data data = loader->data->idx;
    struct tally_idx_set set;
    enum tally_status status = name_of(loader, loader->data->idx.images, client, data.images);
    if (status == TALLY_OK) {
        status = name_of(loader, loader->data->idx.labels, client, data.labels);
    }
    if (status == TALLY_OK) {
        status = tally_idx_load(&data, (enum tally_sharding)loader->data->sharding, loader->source,
                                loader->key, &set, loader->err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    for (uint32_t i = 0; status == TALLY_OK && i < set.points; i++) {
        const char *why = tally_builder_check_label(&loader->builder, set.labels[i]);
        if (why != NULL) {
            status = tally_fail(loader->err, TALLY_INVALID_ARGUMENT, "objective.data",
                                "%s: label %d %s", data.labels, set.labels[i], why);
        }
    }
    const size_t most = TALLY_DATA_MAX_BYTE_VALUES / set.features;
    if (status == TALLY_OK && set.points > most - dataset->points) {
        status = tally_fail(loader->err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "%s: more than %zu images in all", data.images, most);
    } else if (status == TALLY_OK && !take_images(dataset, &set)) {
        status = tally_fail(loader->err, TALLY_NO_MEMORY, NULL, "no memory for the images of %s",
                            data.images);
    }
    tally_idx_fini(&set);
    return status;
}

/* Appends the points of the files, or of the files of one client. */
static enum tally_status read_files(struct loader *loader, uint32_t client)
{
    switch ((enum tally_data_type)loader->data->type) {
    case TALLY_DATA_IDX:
        return read_idx(loader, client);
    case TALLY_DATA_LIBSVM:
    case TALLY_DATA_CSV:
        return read_text(loader, client);
    case TALLY_DATA_NPY:
        return read_arrays(loader, client, NULL);
    case TALLY_DATA_NPZ:
        return read_npz(loader, client);
    case TALLY_DATA_SYNTHETIC_LINEAR:
    case TALLY_DATA_MATRIX:
    case TALLY_N_DATA_TYPES:
        break;
    }
    return tally_fail(loader->err, TALLY_INTERNAL, "objective.data.type", "no data of points");
}

static enum tally_status no_points(const struct loader *loader)
{
    return tally_fail(loader->err, TALLY_INVALID_ARGUMENT, "objective.data", "%s has no points",
                      tally_data_spec_file(loader->data));
}

/* Points that are split over the clients must be enough for them. */
static enum tally_status check_number(const struct loader *loader)
{
    const struct tally_dataset *dataset = loader->builder.dataset;
    if (dataset->points == 0) {
        return no_points(loader);
    }
    return dataset->points >= dataset->clients
               ? TALLY_OK
               : tally_fail(loader->err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "%s has %u points, too few for %u clients",
                            tally_data_spec_file(loader->data), dataset->points, dataset->clients);
}

/* One file for each client. A client whose file is not here has no points here. */
static enum tally_status load_per_client(struct loader *loader)
{
    struct tally_dataset *dataset = loader->builder.dataset;
    enum tally_status status = TALLY_OK;
    for (uint32_t m = 0; status == TALLY_OK && m < dataset->clients; m++) {
        char name[TALLY_DATA_NAME_CAPACITY];
        const uint32_t first = dataset->points;
        status = name_of(loader, tally_data_spec_file(loader->data), m, name);
        const bool is_here = status == TALLY_OK && tally_data_file_exists(loader->source, name);
        if (is_here) {
            status = read_files(loader, m);
        }
        dataset->shards[m] = (struct tally_shard){first, dataset->points - first};
        dataset->is_whole &= is_here;
        if (status == TALLY_OK && is_here && dataset->points == first) {
            status = tally_fail(loader->err, TALLY_INVALID_ARGUMENT, "objective.data",
                                "%s has no points", name);
        }
    }
    return status == TALLY_OK && dataset->points == 0 ? read_files(loader, 0) : status;
}

/* One file, the same for all clients. */
static enum tally_status load_copies(struct loader *loader)
{
    struct tally_dataset *dataset = loader->builder.dataset;
    enum tally_status status = read_files(loader, 0);
    dataset->is_whole = false;
    for (uint32_t m = 0; m < dataset->clients; m++) {
        dataset->shards[m] = (struct tally_shard){0, dataset->points};
    }
    return status == TALLY_OK && dataset->points == 0 ? no_points(loader) : status;
}

/* Keeps the points with the mark, in their order. */
static void keep_points(struct tally_dataset *dataset, const bool *is_kept)
{
    const size_t features = dataset->features;
    size_t *first = dataset->row_first, n_values = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < dataset->points; i++) {
        const size_t from = first != NULL ? first[i] : i * features;
        const size_t size = first != NULL ? first[i + 1] - from : features;
        if (!is_kept[i]) {
            continue;
        }
        memmove(dataset->values + n_values, dataset->values + from, size * sizeof(double));
        if (first != NULL) {
            memmove(dataset->columns + n_values, dataset->columns + from, size * sizeof(uint32_t));
        }
        dataset->labels[n++] = dataset->labels[i];
        n_values += size;
        if (first != NULL) {
            first[n] = n_values; /* n <= i + 1, and first[i + 1] is read before this */
        }
    }
    dataset->points = n;
}

/* Leaves out the held-out points, or all others. */
static enum tally_status select_part(struct loader *loader)
{
    static const double rounding = 1e-12; /* 0.07 * 100 is a little more than 7 */
    const struct tally_table_data *table = &loader->data->table;
    struct tally_dataset *dataset = loader->builder.dataset;
    const uint32_t points = dataset->points;
    const bool is_due =
        (1 << loader->data->type & TALLY_DATA_SET_TABLES) != 0 && table->test_fraction > 0;
    if (!is_due || points == 0) {
        return TALLY_OK;
    }
    uint32_t *order = malloc(points * sizeof *order);
    bool *is_kept = malloc(points * sizeof *is_kept);
    if (order == NULL || is_kept == NULL) {
        free(order);
        free(is_kept);
        return tally_fail(loader->err, TALLY_NO_MEMORY, NULL, "no memory to split %u points",
                          points);
    }
    const double n_test = ceil(points * table->test_fraction * (1 - rounding));
    tally_shard_permutation_of_test(loader->key, points, order);
    for (uint32_t i = 0; i < points; i++) {
        is_kept[order[i]] = (i < n_test) == table->is_test_part;
    }
    keep_points(dataset, is_kept);
    free(order);
    free(is_kept);
    return TALLY_OK;
}

/* Fits the scaling, unless earlier data have, and applies it. */
static enum tally_status scale(struct loader *loader)
{
    const struct tally_table_data *table = &loader->data->table;
    struct tally_scaling own = {0};
    struct tally_scaling *scaling =
        loader->source->scaling != NULL ? loader->source->scaling : &own;
    const bool is_dense = loader->data->type == TALLY_DATA_CSV ||
                          loader->data->type == TALLY_DATA_NPY ||
                          loader->data->type == TALLY_DATA_NPZ;
    enum tally_status status = TALLY_OK;
    if (!is_dense || (!table->standardize && table->missing != TALLY_MISSING_MEAN)) {
        return TALLY_OK;
    }
    if (scaling->features == 0) {
        status = tally_scaling_fit(scaling, loader->builder.dataset, table->standardize,
                                   loader->columns, loader->err);
    }
    if (status == TALLY_OK) {
        tally_scaling_apply(scaling, loader->builder.dataset);
    }
    tally_scaling_fini(&own);
    return status;
}

/* The first client whose points are not here; the number of clients if all are. */
static uint32_t find_absent(const struct tally_dataset *dataset)
{
    uint32_t m = 0;
    while (m < dataset->clients && dataset->shards[m].size > 0) {
        m++;
    }
    return m;
}

/* Fits the scaling to the surveys of all clients. */
static enum tally_status conclude(const struct loader *loader, const struct tally_surveys *surveys,
                                  struct tally_scaling *scaling)
{
    const struct tally_dataset *dataset = loader->builder.dataset;
    const size_t features = dataset->features;
    double *numbers = malloc(3 * features * sizeof *numbers);
    struct tally_buffer total = {0};
    enum tally_status status = numbers != NULL ? TALLY_OK
                                               : tally_fail(loader->err, TALLY_NO_MEMORY, NULL,
                                                            "no memory for %zu means", features);
    for (uint32_t m = 0; status == TALLY_OK && m < dataset->clients; m++) {
        const struct tally_buffer *survey = tally_surveys_of(surveys, m);
        status = tally_survey_add(&total, survey->data, survey->size, features, loader->err);
    }
    if (status == TALLY_OK) {
        status = tally_survey_conclude(&total, features, loader->data->table.standardize,
                                       loader->columns, numbers, loader->err);
    }
    if (status == TALLY_OK) {
        status = tally_scaling_set(scaling, numbers, features, loader->err);
    }
    tally_buffer_fini(&total);
    free(numbers);
    return status;
}

/* Surveys the clients whose points are here. Without the others, and if the scaling is not known,
 * the points stay as they are. */
static enum tally_status survey(struct loader *loader)
{
    struct tally_dataset *dataset = loader->builder.dataset;
    struct tally_scaling own = {0};
    struct tally_surveys of_files = {0};
    struct tally_scaling *scaling =
        loader->source->scaling != NULL ? loader->source->scaling : &own;
    struct tally_surveys *kept = loader->source->surveys;
    struct tally_surveys *surveys = kept != NULL ? kept : &of_files;
    const uint32_t absent = find_absent(dataset);
    const bool has_all = absent == dataset->clients && dataset->is_whole;
    enum tally_status status = TALLY_OK;
    if (kept != NULL || scaling->features == 0) {
        status = tally_surveys_make(dataset, loader->columns, surveys, loader->err);
    }
    if (status == TALLY_OK && scaling->features == 0 && has_all) {
        status = conclude(loader, surveys, scaling);
    } else if (status == TALLY_OK && scaling->features == 0 && kept == NULL) {
        status = tally_fail(loader->err, TALLY_INVALID_ARGUMENT,
                            loader->data->table.standardize ? "objective.data.standardize"
                                                            : "objective.data.missing",
                            "the means are those of the points of all clients, and those of client "
                            "%u are not here",
                            absent < dataset->clients ? absent : 1);
    }
    if (status == TALLY_OK && scaling->features > 0) {
        tally_scaling_apply(scaling, dataset);
    }
    tally_surveys_fini(&of_files);
    tally_scaling_fini(&own);
    return status;
}

/* To be called once all files are read, before any point is left out or changed. */
static void finish_points(struct loader *loader)
{
    struct tally_dataset *dataset = loader->builder.dataset;
    for (uint32_t i = 0; loader->builder.has_zero && i < dataset->points; i++) {
        dataset->labels[i] = dataset->labels[i] == 0 ? -1 : dataset->labels[i];
    }
    if (loader->source->ret_digest != NULL) {
        *loader->source->ret_digest = tally_dataset_digest(dataset);
    }
}

/* One file, cut into shards. */
static enum tally_status load_cut(struct loader *loader)
{
    struct tally_dataset *dataset = loader->builder.dataset;
    const int sharding = loader->data->sharding;
    enum tally_status status = read_files(loader, 0);
    if (status == TALLY_OK) {
        finish_points(loader);
        status = select_part(loader);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (check_number(loader) != TALLY_OK) {
        return TALLY_INVALID_ARGUMENT;
    }
    for (uint32_t m = 0; m < dataset->clients; m++) {
        dataset->shards[m] = tally_shard_of(dataset->points, dataset->clients, m);
    }
    status = scale(loader);
    if (status != TALLY_OK) {
        return status;
    }
    /* Images are in order already, except with `dirichlet`. */
    const bool is_in_order = sharding == TALLY_SHARDING_CONTIGUOUS ||
                             (dataset->bytes != NULL && sharding != TALLY_SHARDING_DIRICHLET);
    if (!is_in_order && !put_in_order(dataset, loader->data, loader->key)) {
        return tally_fail(loader->err, TALLY_NO_MEMORY, NULL, "no memory to sort %u points",
                          dataset->points);
    }
    return TALLY_OK;
}

static bool has_file_of(const struct loader *loader, uint32_t client)
{
    char name[TALLY_DATA_NAME_CAPACITY];
    return name_of(loader, tally_data_spec_file(loader->data), client, name) == TALLY_OK &&
           tally_data_file_exists(loader->source, name);
}

/* Reads compressed files once before any value is kept: 130 KB of gzip can hold a gigabyte of
 * numbers with an error at the end. A refused file then takes no memory, and an accepted one only
 * what it needs. Uncompressed text is read once: reading it is slow, and its numbers take only a
 * few times its length. idx.c does the same for images. */
static enum tally_status try_files(struct loader *loader)
{
    struct tally_dataset_builder *builder = &loader->builder;
    const struct tally_dataset_builder begin = *builder;
    const bool is_cut = loader->data->sharding != TALLY_SHARDING_LOCAL;
    const bool is_per_client = !is_cut && tally_data_spec_is_shared(loader->data);
    const uint32_t n = is_per_client ? builder->dataset->clients : 1;
    enum tally_status status = TALLY_OK;
    if (loader->data->type == TALLY_DATA_IDX) {
        return TALLY_OK;
    }
    builder->is_trial = true;
    for (uint32_t m = 0; status == TALLY_OK && m < n; m++) {
        if (!is_per_client || has_file_of(loader, m)) {
            status = read_files(loader, m);
        }
    }
    if (status == TALLY_OK && is_cut && !loader->has_untried) {
        status = check_number(loader);
    }
    const size_t n_values = builder->n_values;
    *builder = begin;
    builder->expected_values = n_values;
    builder->dataset->points = 0;
    return status;
}

enum tally_status tally_dataset_load(const struct tally_data_spec *data, enum tally_labels labels,
                                     uint32_t clients, struct tally_rng_key key,
                                     const struct tally_data_source *source,
                                     struct tally_dataset **ret, struct tally_error *err)
{
    if (data->type == TALLY_DATA_SYNTHETIC_LINEAR) {
        return tally_synthetic_linear_make(&data->synthetic_linear, clients, key, ret, err);
    }
    struct tally_dataset *dataset = calloc(1, sizeof *dataset);
    struct tally_shard *shards = calloc(clients, sizeof *shards);
    if (dataset == NULL || shards == NULL) {
        free(dataset);
        free(shards);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u clients", clients);
    }
    *dataset = (struct tally_dataset){.clients = clients,
                                      .features = (size_t)tally_data_spec_features(data),
                                      .is_whole = true,
                                      .shards = shards};
    struct tally_columns columns = {.n = 0};
    struct loader loader = {.data = data,
                            .source = source,
                            .key = key,
                            .columns = source->columns != NULL ? source->columns : &columns,
                            .builder = {.dataset = dataset,
                                        .rule = labels,
                                        .classes = tally_data_spec_classes(data),
                                        .is_sparse = data->type == TALLY_DATA_LIBSVM},
                            .err = err};
    enum tally_status status = try_files(&loader);
    if (status == TALLY_OK) {
        status = data->sharding != TALLY_SHARDING_LOCAL ? load_cut(&loader)
                 : tally_data_spec_is_shared(data)      ? load_per_client(&loader)
                                                        : load_copies(&loader);
    }
    if (status == TALLY_OK && data->sharding == TALLY_SHARDING_LOCAL) {
        finish_points(&loader);
    }
    if (status == TALLY_OK && tally_data_spec_is_surveyed(data)) {
        status = survey(&loader);
    }
    tally_columns_fini(&columns);
    if (status != TALLY_OK) {
        tally_dataset_free(dataset);
        return status;
    }
    *ret = dataset;
    return TALLY_OK;
}

/* --- points to be predicted --------------------------------------------------------------------
 */

enum tally_status tally_dataset_load_unlabelled(const struct tally_data_spec *data,
                                                const char *name,
                                                const struct tally_data_source *source,
                                                struct tally_dataset **ret, struct tally_error *err)
{
    struct tally_table_data table = data->table;
    struct tally_data_file *file;
    struct tally_dataset *dataset = calloc(1, sizeof *dataset);
    if (dataset == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a file");
    }
    struct tally_dataset_builder builder = {.dataset = dataset, .is_unlabelled = true};
    dataset->clients = 1;
    dataset->features = (size_t)table.features;
    table.missing = table.missing == TALLY_MISSING_MEAN ? TALLY_MISSING_MEAN : TALLY_MISSING_ERROR;
    enum tally_status status = tally_data_file_open(source, name, &file, err);
    if (status == TALLY_OK) {
        status = tally_csv_read(file, &table, source->columns, &builder);
        tally_data_file_close(file);
    }
    if (status == TALLY_OK && source->scaling->features > 0) {
        tally_scaling_apply(source->scaling, dataset);
    }
    if (status != TALLY_OK) {
        tally_dataset_free(dataset);
        return status;
    }
    *ret = dataset;
    return TALLY_OK;
}

/* --- what a document leaves open ---------------------------------------------------------------
 */

static enum tally_status survey_file(const struct loader *loader, uint32_t client,
                                     size_t *ret_features, struct tally_csv_labels *labels)
{
    struct tally_table_data table = loader->data->table;
    struct tally_data_file *file;
    enum tally_status status = open_of(loader, table.file, client, &file);
    if (status == TALLY_OK) {
        table.features = 0;
        table.class_names[0] = '\0';
        status = tally_csv_survey(file, &table, ret_features, labels);
        tally_data_file_close(file);
    }
    return status;
}

/* The files of all clients must be here if labels are wanted, otherwise one of them. */
static enum tally_status survey_clients(const struct loader *loader, uint32_t clients,
                                        size_t *ret_features, struct tally_csv_labels *labels)
{
    enum tally_status status = TALLY_OK;
    uint32_t n = 0;
    for (uint32_t m = 0; status == TALLY_OK && m < clients && (n == 0 || labels != NULL); m++) {
        if (has_file_of(loader, m)) {
            status = survey_file(loader, m, ret_features, labels);
            n++;
        } else if (labels != NULL) {
            status = tally_fail(loader->err, TALLY_INVALID_ARGUMENT, "objective.data.classes",
                                "classes must be given: the file of client %u is not here, and its "
                                "labels may be others",
                                m);
        }
    }
    return status == TALLY_OK && n == 0 ? survey_file(loader, 0, ret_features, labels) : status;
}

enum tally_status tally_dataset_survey(const struct tally_data_spec *data, uint32_t clients,
                                       const struct tally_data_source *source, size_t *ret_features,
                                       struct tally_csv_labels *labels, struct tally_error *err)
{
    const struct loader loader = {.data = data, .source = source, .err = err};
    if (data->sharding != TALLY_SHARDING_LOCAL) {
        return survey_file(&loader, 0, ret_features, labels);
    }
    if (tally_data_spec_is_shared(data)) {
        return survey_clients(&loader, clients, ret_features, labels);
    }
    return labels == NULL
               ? survey_file(&loader, 0, ret_features, NULL)
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.classes",
                            "classes must be given: with sharding local, each worker has a file of "
                            "its own, whose labels may be others");
}

#include "services/objectives/data/dataset.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
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

static enum tally_status no_memory(struct tally_data_file *file)
{
    if (file->status == TALLY_OK) {
        file->status = tally_fail(file->err, TALLY_NO_MEMORY, NULL,
                                  "no memory for the points of %s after %llu points", file->name,
                                  (unsigned long long)file->points);
    }
    return file->status;
}

/* Makes room for element n of an array, or for all elements if their number is known. */
static bool reserve(void **array, size_t *capacity, size_t n, size_t expected, size_t n_bytes)
{
    if (n < *capacity) {
        return true;
    }
    const size_t more = n < expected ? expected : *capacity < 1024 ? 1024 : 2 * *capacity;
    void *grown = realloc(*array, more * n_bytes);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *capacity = more;
    return true;
}

#define RESERVE(array, capacity, n, expected)                                                      \
    reserve((void **)&(array), &(capacity), (n), (expected), sizeof *(array))

enum tally_status tally_builder_value(struct tally_dataset_builder *builder,
                                      struct tally_data_file *file, uint32_t column, double value)
{
    struct tally_dataset *dataset = builder->dataset;
    const size_t n = builder->n_values;
    if (n == TALLY_DATA_MAX_VALUES) {
        return tally_data_file_refuse(file,
                                      "more than %d numbers in all, the most that a job's data "
                                      "may hold",
                                      TALLY_DATA_MAX_VALUES);
    }
    if (builder->is_trial) {
        builder->n_values++;
        return TALLY_OK;
    }
    const size_t expected = builder->expected_values;
    if (!RESERVE(dataset->values, builder->value_capacity, n, expected) ||
        (builder->is_sparse && !RESERVE(dataset->columns, builder->column_capacity, n, expected))) {
        return no_memory(file);
    }
    dataset->values[n] = value;
    if (builder->is_sparse) {
        dataset->columns[n] = column;
    }
    builder->n_values++;
    return TALLY_OK;
}

const char *tally_builder_check_label(struct tally_dataset_builder *builder, double label)
{
    if (!isfinite(label)) {
        return "is not finite";
    }
    if (builder->classes > 0 &&
        (label < 0 || label >= (double)builder->classes || label != floor(label))) {
        return "is not a class";
    }
    if (builder->rule == TALLY_LABELS_BINARY) {
        builder->has_zero |= label == 0;
        builder->has_minus |= label == -1;
        return label == 2 ? "is neither -1 nor 1 (nor 0 and 1); write 1 and 2 as 0 and 1"
               : label != 0 && fabs(label) != 1          ? "is neither -1 nor 1 (nor 0 and 1)"
               : builder->has_zero && builder->has_minus ? "makes both 0 and -1 appear"
                                                         : NULL;
    }
    return NULL;
}

/* Not mapped: which class a number is must not depend on the other labels of a file. */
const char *tally_builder_label_remedy(double label, int64_t classes)
{
    return label == (double)classes      ? "; if they count from 1, subtract 1 from every label"
           : label == -1 && classes == 2 ? "; write -1 and 1 as 0 and 1"
                                         : "";
}

bool tally_builder_label_fault(struct tally_dataset_builder *builder, double label,
                               char ret_fault[192])
{
    const char *why = tally_builder_check_label(builder, label);
    if (why != NULL && builder->classes > 0) {
        snprintf(ret_fault, 192, "label %g %s: classes are 0 to %lld%s", label, why,
                 (long long)builder->classes - 1,
                 tally_builder_label_remedy(label, builder->classes));
    } else if (why != NULL) {
        snprintf(ret_fault, 192, "label %g %s", label, why);
    }
    return why != NULL;
}

enum tally_status tally_builder_point(struct tally_dataset_builder *builder,
                                      struct tally_data_file *file, double label)
{
    struct tally_dataset *dataset = builder->dataset;
    const size_t n = dataset->points;
    char fault[192];
    if (!builder->is_unlabelled && tally_builder_label_fault(builder, label, fault)) {
        return tally_data_file_refuse(file, "%s", fault);
    }
    if (n == TALLY_DATA_MAX_POINTS) {
        return tally_data_file_refuse(file,
                                      "more than %d points in all, the most that a job may "
                                      "have",
                                      TALLY_DATA_MAX_POINTS);
    }
    if (!builder->is_trial) {
        if (!RESERVE(dataset->labels, builder->label_capacity, n, 0) ||
            (builder->is_sparse && !RESERVE(dataset->row_first, builder->row_capacity, n + 1, 0))) {
            return no_memory(file);
        }
        dataset->labels[n] = label;
        if (builder->is_sparse) {
            dataset->row_first[0] = 0;
            dataset->row_first[n + 1] = builder->n_values;
        }
    }
    dataset->points++;
    file->points++;
    return TALLY_OK;
}

enum { WHY_CAPACITY = 200 };

static bool keep(struct tally_columns *columns, const char *name, size_t n_bytes)
{
    if (columns->size + n_bytes > columns->capacity) {
        const size_t capacity = 2 * (columns->size + n_bytes);
        char *text = realloc(columns->text, capacity);
        if (text == NULL) {
            return false;
        }
        columns->text = text;
        columns->capacity = capacity;
    }
    memcpy(columns->text + columns->size, name, n_bytes);
    columns->size += n_bytes;
    columns->n_kept++;
    return true;
}

bool tally_columns_add(struct tally_columns *columns, const char *name)
{
    const size_t n_bytes = strlen(name) + 1;
    const bool is_kept =
        columns->n_kept == columns->n && columns->size + n_bytes <= (size_t)TALLY_COLUMNS_MAX_BYTES;
    columns->sum =
        tally_checksum64_more(columns->n == 0 ? TALLY_CHECKSUM_SEED : columns->sum, name, n_bytes);
    columns->n++;
    return !is_kept || keep(columns, name, n_bytes);
}

void tally_columns_fini(struct tally_columns *columns)
{
    free(columns->text);
    *columns = (struct tally_columns){.n = 0};
}

const char *tally_columns_name(const struct tally_columns *columns, size_t i)
{
    if (i >= columns->n_kept) {
        return NULL;
    }
    const char *at = columns->text;
    for (; i > 0; i--) {
        at += strlen(at) + 1;
    }
    return at;
}

uint32_t tally_columns_digest(const struct tally_columns *columns)
{
    enum { N_DIGESTS = (1 << 28) - 1 };
    return columns->n == 0 ? 0 : 1 + (uint32_t)(columns->sum % N_DIGESTS);
}

/* A column, to be sorted by name. */
struct entry {
    const char *name;
    uint32_t place;
};

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Returns a new array; NULL if memory ran out. */
static struct entry *sort_by_name(const struct tally_columns *columns)
{
    struct entry *entries = malloc(columns->n * sizeof *entries);
    const char *at = columns->text;
    for (size_t i = 0; entries != NULL && i < columns->n; i++, at += strlen(at) + 1) {
        entries[i] = (struct entry){at, (uint32_t)i};
    }
    if (entries != NULL) {
        qsort(entries, columns->n, sizeof *entries, compare_entries);
    }
    return entries;
}

/* Appends as much as fits into `capacity` bytes. */
__attribute__((format(printf, 3, 4))) static void add_text(char *text, size_t capacity,
                                                           const char *format, ...)
{
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, capacity - n, format, args);
    va_end(args);
}

/* Lists the names that only one of two sorted arrays of the same length has. */
static void write_difference(const struct entry *earlier, const struct entry *entries, size_t n,
                             const char *file, char *ret_why)
{
    char only_there[60] = "", only_here[60] = "";
    for (size_t i = 0, k = 0; i < n || k < n;) {
        const int order = i == n ? 1 : k == n ? -1 : strcmp(earlier[i].name, entries[k].name);
        char *list = order < 0 ? only_there : only_here;
        if (order != 0) {
            add_text(list, sizeof only_here, "%s%.40s", list[0] != '\0' ? ", " : "",
                     order < 0 ? earlier[i].name : entries[k].name);
        }
        i += order <= 0;
        k += order >= 0;
    }
    snprintf(ret_why, WHY_CAPACITY,
             "are not those of %.40s: only this file has %s, only that has %s", file, only_here,
             only_there);
}

/* Pairs the columns of two sorted arrays. */
static enum tally_columns_match pair(const struct entry *earlier, const struct entry *entries,
                                     size_t n, const char *file, uint32_t *ret_places,
                                     char *ret_why)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(earlier[i].name, entries[i].name) != 0) {
            write_difference(earlier, entries, n, file, ret_why);
            return TALLY_COLUMNS_DIFFERENT;
        }
        if (i > 0 && strcmp(entries[i - 1].name, entries[i].name) == 0) {
            snprintf(ret_why, WHY_CAPACITY,
                     "have another order than in %.40s, and two of them are called \"%.40s\"", file,
                     entries[i].name);
            return TALLY_COLUMNS_DIFFERENT;
        }
        ret_places[entries[i].place] = earlier[i].place;
    }
    return TALLY_COLUMNS_REORDERED;
}

enum tally_columns_match tally_columns_match(const struct tally_columns *earlier,
                                             const struct tally_columns *columns,
                                             uint32_t **ret_places, char ret_why[200])
{
    const size_t n = columns->n;
    if (earlier->sum == columns->sum && earlier->n == n) {
        return TALLY_COLUMNS_EQUAL;
    }
    if (earlier->n_kept < n || columns->n_kept < n || earlier->n != n) {
        snprintf(ret_why, WHY_CAPACITY,
                 "are not those of %.40s in the same order, and their names take more than %d "
                 "bytes, too many to match them by name",
                 earlier->file, TALLY_COLUMNS_MAX_BYTES);
        return TALLY_COLUMNS_DIFFERENT;
    }
    struct entry *there = sort_by_name(earlier), *here = sort_by_name(columns);
    uint32_t *places = malloc(n * sizeof *places);
    enum tally_columns_match match = TALLY_COLUMNS_NO_MEMORY;
    if (there != NULL && here != NULL && places != NULL) {
        match = pair(there, here, n, earlier->file, places, ret_why);
    }
    free(there);
    free(here);
    if (match == TALLY_COLUMNS_REORDERED) {
        *ret_places = places;
    } else {
        free(places);
    }
    return match;
}

static uint64_t digest_of_point(const struct tally_dataset *dataset, uint32_t p)
{
    const size_t n = dataset->features;
    uint64_t sum = tally_checksum64(&dataset->labels[p], sizeof dataset->labels[p]);
    if (dataset->bytes != NULL) {
        return tally_checksum64_more(sum, dataset->bytes + p * n, n);
    }
    if (dataset->row_first == NULL) {
        return tally_checksum64_more(sum, dataset->values + p * n, n * sizeof *dataset->values);
    }
    const size_t first = dataset->row_first[p], size = dataset->row_first[p + 1] - first;
    sum = tally_checksum64_more(sum, dataset->columns + first, size * sizeof *dataset->columns);
    return tally_checksum64_more(sum, dataset->values + first, size * sizeof *dataset->values);
}

uint64_t tally_dataset_digest(const struct tally_dataset *dataset)
{
    uint64_t sum = dataset->points;
    for (uint32_t p = 0; p < dataset->points; p++) {
        sum += digest_of_point(dataset, p); /* the sums are finalised, so adding them is safe */
    }
    return sum != 0 ? sum : 1;
}

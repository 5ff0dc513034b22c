#include "services/objectives/data/idx.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/objectives/data/data_file.h"
#include "services/objectives/data/dataset.h"
#include "services/objectives/data/sharding.h"

enum { N_CLASSES = 256 };

/* Reads a header of n_sizes dimensions. */
static enum tally_status read_header(struct tally_data_file *file, unsigned n_sizes,
                                     uint32_t *sizes)
{
    uint8_t bytes[16];
    const size_t n = 4 + 4 * (size_t)n_sizes;
    if (tally_data_file_read(file, bytes, n) < n) {
        return tally_data_file_refuse(file, "ends in its header");
    }
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != n_sizes) {
        return tally_data_file_refuse(file, "is not an IDX file of bytes in %u dimensions",
                                      n_sizes);
    }
    for (unsigned i = 0; i < n_sizes; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;
        sizes[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    return TALLY_OK;
}

/* No byte may follow. Reading to the end also makes zlib check the checksum of a .gz file. */
static enum tally_status expect_end(struct tally_data_file *file, uint32_t n, const char *what)
{
    if (tally_data_file_peek(file) != TALLY_DATA_END) {
        return tally_data_file_refuse(file, "has data after its %u %s", n, what);
    }
    return file->status;
}

/* Appends n bytes of the file to an array. The array grows with the bytes that are really there, so
 * that a header cannot claim memory. False if memory ran out or the file ended. */
static bool append_bytes(struct tally_data_file *file, size_t n, uint8_t **array, size_t *size,
                         size_t *capacity)
{
    while (n > 0) {
        const size_t some = n < TALLY_DATA_WINDOW ? n : TALLY_DATA_WINDOW;
        if (*size + some > *capacity) {
            const size_t more = 2 * (*size + some);
            uint8_t *grown = realloc(*array, more);
            if (grown == NULL) {
                file->status = tally_fail(file->err, TALLY_NO_MEMORY, NULL,
                                          "no memory for %zu bytes of %s", more, file->name);
                return false;
            }
            *array = grown;
            *capacity = more;
        }
        if (tally_data_file_read(file, *array + *size, some) < some) {
            return false;
        }
        *size += some;
        n -= some;
    }
    return true;
}

static enum tally_status read_number_of_labels(struct tally_data_file *file, uint32_t *n)
{
    const enum tally_status status = read_header(file, 1, n);
    return status == TALLY_OK && *n > TALLY_DATA_MAX_POINTS
               ? tally_data_file_refuse(file, "claims %u labels, the limit is %d", *n,
                                        TALLY_DATA_MAX_POINTS)
               : status;
}

static enum tally_status read_labels(struct tally_data_file *file, uint8_t **labels, uint32_t *n)
{
    size_t size = 0, capacity = TALLY_DATA_WINDOW;
    enum tally_status status = read_number_of_labels(file, n);
    *labels = calloc(1, capacity);
    if (*labels == NULL) {
        return tally_fail(file->err, TALLY_NO_MEMORY, NULL, "no memory for labels");
    }
    if (status == TALLY_OK && !append_bytes(file, *n, labels, &size, &capacity)) {
        status = tally_data_file_refuse(file, "ends before its %u labels", *n);
    }
    return status == TALLY_OK ? expect_end(file, *n, "labels") : status;
}

static enum tally_status load_labels(const struct tally_idx_data *data,
                                     const struct tally_data_source *source, uint8_t **labels,
                                     uint32_t *n, struct tally_error *err)
{
    struct tally_data_file *file;
    enum tally_status status = tally_data_file_open(source, data->labels, &file, err);
    if (status == TALLY_OK) {
        status = read_labels(file, labels, n);
        tally_data_file_close(file);
    }
    return status;
}

static const uint32_t NOT_CHOSEN = UINT32_MAX;

/* Gives the selected images new places. In the first permutation a class with more images reaches
 * points_per_class earlier than the others, so the last shards would lack it. order: room for
 * `points`. */
static void mix(struct tally_rng_key key, uint32_t n, uint32_t points, uint32_t *order,
                uint32_t *place)
{
    tally_shard_permutation_of_chosen(key, points, order);
    for (uint32_t i = 0; i < n; i++) {
        place[i] = place[i] == NOT_CHOSEN ? NOT_CHOSEN : order[place[i]];
    }
}

static bool has_label(const uint8_t *labels, uint32_t n, int64_t label)
{
    return label <= UINT8_MAX && memchr(labels, (int)label, n) != NULL;
}

/* place[i] <- the rank of image i among the chosen ones, in the order that the key draws. Images
 * that are all chosen keep the order of the first permutation. */
static enum tally_status choose(const struct tally_idx_data *data, const uint8_t *labels,
                                uint32_t n, struct tally_rng_key key, uint32_t *place,
                                uint32_t *ret_points, struct tally_error *err)
{
    const int64_t most = data->points_per_class > 0 ? data->points_per_class : INT64_MAX;
    int64_t taken[N_CLASSES] = {0};
    uint32_t *order = malloc((n > 0 ? n : 1) * sizeof *order);
    if (order == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to choose images");
    }
    tally_shard_permutation(key, n, order);
    uint32_t points = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t label = labels[order[i]];
        const bool wanted = label < data->classes && taken[label] < most;
        place[order[i]] = wanted ? points : NOT_CHOSEN;
        points += wanted;
        taken[label] += wanted;
    }
    if (points < n) {
        mix(key, n, points, order, place);
    }
    free(order);
    for (int64_t c = 0; c < data->classes; c++) {
        if (taken[c] < data->points_per_class) {
            const bool from_one = taken[0] == 0 && has_label(labels, n, data->classes);
            return tally_fail(
                err, TALLY_INVALID_ARGUMENT, "objective.data.points_per_class",
                "%s has only %lld images of class %lld, not %lld%s", data->labels,
                (long long)taken[c], (long long)c, (long long)data->points_per_class,
                from_one ? tally_builder_label_remedy((double)data->classes, data->classes) : "");
        }
    }
    *ret_points = points;
    return TALLY_OK;
}

/* Without a subset, every label must be a class. */
static enum tally_status check_labels(const struct tally_idx_data *data, const uint8_t *labels,
                                      uint32_t n, struct tally_error *err)
{
    for (uint32_t i = 0; data->points_per_class == 0 && i < n; i++) {
        if (labels[i] >= data->classes) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.classes",
                              "%s: label %d of image %u is not a class: classes are 0 to %lld%s",
                              data->labels, labels[i], i, (long long)data->classes - 1,
                              tally_builder_label_remedy(labels[i], data->classes));
        }
    }
    return TALLY_OK;
}

/* order[p] <- the chosen image that is point p of the set, counted in the order of the file. */
static void put_in_order(enum tally_sharding sharding, const uint8_t *labels, uint32_t n,
                         const uint32_t *place, uint32_t *order)
{
    uint32_t first_of[N_CLASSES + 1] = {0}, chosen = 0;
    for (uint32_t i = 0; i < n; i++) {
        first_of[labels[i] + 1] += place[i] != NOT_CHOSEN;
    }
    for (int c = 0; c < N_CLASSES; c++) {
        first_of[c + 1] += first_of[c];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (place[i] == NOT_CHOSEN) {
            continue;
        }
        const uint32_t to = sharding == TALLY_SHARDING_IID        ? place[i]
                            : sharding == TALLY_SHARDING_BY_LABEL ? first_of[labels[i]]++
                                                                  : chosen;
        order[to] = chosen++;
    }
}

static enum tally_status read_shape_of_images(struct tally_data_file *file,
                                              const struct tally_idx_data *data, uint32_t n)
{
    uint32_t sizes[3] = {0};
    const enum tally_status status = read_header(file, 3, sizes);
    if (status == TALLY_OK &&
        (sizes[0] != n || (uint64_t)sizes[1] * sizes[2] != (uint64_t)data->features)) {
        file->status = tally_fail(file->err, TALLY_INVALID_ARGUMENT, "objective.data.features",
                                  "%s has %u images of %u x %u, not %u of %lld pixels", file->name,
                                  sizes[0], sizes[1], sizes[2], n, (long long)data->features);
        return file->status;
    }
    return status;
}

/* Appends the chosen images, in the order of the file. */
static enum tally_status read_images(struct tally_data_file *file,
                                     const struct tally_idx_data *data, uint32_t n,
                                     const uint32_t *place, struct tally_idx_set *set)
{
    size_t size = 0, capacity = 0, n_kept = 0;
    enum tally_status status = read_shape_of_images(file, data, n);
    for (uint32_t i = 0; status == TALLY_OK && i < n; i++) {
        if (!append_bytes(file, set->features, &set->pixels, &size, &capacity)) {
            status = tally_data_file_refuse(file, "ends in image %u of %u", i, n);
        } else if (place[i] == NOT_CHOSEN) {
            size -= set->features;
        } else if (++n_kept * set->features > TALLY_DATA_MAX_BYTE_VALUES) {
            status =
                tally_data_file_refuse(file, "more than %d pixels", TALLY_DATA_MAX_BYTE_VALUES);
        }
        file->points = n_kept;
    }
    return status == TALLY_OK ? expect_end(file, n, "images") : status;
}

static enum tally_status load_images(const struct tally_idx_data *data,
                                     const struct tally_data_source *source, uint32_t n,
                                     const uint32_t *place, struct tally_idx_set *set,
                                     struct tally_error *err)
{
    struct tally_data_file *file;
    enum tally_status status = tally_data_file_open(source, data->images, &file, err);
    if (status == TALLY_OK) {
        status = read_images(file, data, n, place, set);
        tally_data_file_close(file);
    }
    return status;
}

/* Skips n values of a compressed file and expects its end. */
static enum tally_status pass_over(struct tally_data_file *file, uint32_t n, size_t n_bytes,
                                   const char *what)
{
    if (!file->is_packed) {
        return TALLY_OK;
    }
    if (!tally_data_file_skip(file, (uint64_t)n * n_bytes)) {
        return tally_data_file_refuse(file, "ends before its %u %s", n, what);
    }
    return expect_end(file, n, what);
}

/* Checks both headers, and the lengths of the files, before any value is kept (try_files() in
 * load_data.c says why). */
static enum tally_status try_files(const struct tally_idx_data *data,
                                   const struct tally_data_source *source, struct tally_error *err)
{
    struct tally_data_file *file;
    uint32_t n = 0;
    enum tally_status status = tally_data_file_open(source, data->labels, &file, err);
    if (status == TALLY_OK) {
        status = read_number_of_labels(file, &n);
        status = status == TALLY_OK ? pass_over(file, n, 1, "labels") : status;
        tally_data_file_close(file);
    }
    if (status == TALLY_OK) {
        status = tally_data_file_open(source, data->images, &file, err);
    }
    if (status == TALLY_OK) {
        status = read_shape_of_images(file, data, n);
        status = status == TALLY_OK ? pass_over(file, n, (size_t)data->features, "images") : status;
        tally_data_file_close(file);
    }
    return status;
}

void tally_idx_fini(struct tally_idx_set *set)
{
    free(set->pixels);
    free(set->labels);
    *set = (struct tally_idx_set){0};
}

/* Keeps the labels of the chosen images, and sorts images and labels. False if memory ran out. */
static bool arrange(enum tally_sharding sharding, const uint8_t *labels, uint32_t n,
                    const uint32_t *place, struct tally_idx_set *set)
{
    uint32_t *order = malloc((set->points > 0 ? set->points : 1) * sizeof *order);
    uint8_t *spare = malloc(set->features);
    set->labels = malloc(set->points > 0 ? set->points : 1);
    const bool ok = order != NULL && spare != NULL && set->labels != NULL;
    if (ok) {
        for (uint32_t i = 0, chosen = 0; i < n; i++) {
            if (place[i] != NOT_CHOSEN) {
                set->labels[chosen++] = labels[i];
            }
        }
        put_in_order(sharding, labels, n, place, order);
        tally_shard_reorder(set->labels, 1, set->points, order, spare);
        put_in_order(sharding, labels, n, place, order);
        tally_shard_reorder(set->pixels, set->features, set->points, order, spare);
    }
    free(order);
    free(spare);
    return ok;
}

enum tally_status tally_idx_load(const struct tally_idx_data *data, enum tally_sharding sharding,
                                 const struct tally_data_source *source, struct tally_rng_key key,
                                 struct tally_idx_set *ret_set, struct tally_error *err)
{
    uint8_t *labels = NULL;
    uint32_t *place = NULL;
    uint32_t n = 0;
    struct tally_idx_set set = {.features = (size_t)data->features};
    enum tally_status status = try_files(data, source, err);
    if (status == TALLY_OK) {
        status = load_labels(data, source, &labels, &n, err);
    }
    if (status == TALLY_OK) {
        status = check_labels(data, labels, n, err);
    }
    if (status == TALLY_OK) {
        place = malloc((n > 0 ? n : 1) * sizeof *place);
        status = place != NULL ? choose(data, labels, n, key, place, &set.points, err)
                               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for images");
    }
    if (status == TALLY_OK) {
        status = load_images(data, source, n, place, &set, err);
    }
    if (status == TALLY_OK && !arrange(sharding, labels, n, place, &set)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u images", set.points);
    }
    free(labels);
    free(place);
    if (status != TALLY_OK) {
        tally_idx_fini(&set);
        return status;
    }
    *ret_set = set;
    return TALLY_OK;
}

uint64_t tally_idx_digest(const struct tally_idx_set *set)
{
    uint64_t sum = set->points;
    for (uint32_t p = 0; p < set->points; p++) {
        const double label = set->labels[p]; /* as in a dataset */
        sum += tally_checksum64_more(tally_checksum64(&label, sizeof label),
                                     set->pixels + p * set->features, set->features);
    }
    return sum != 0 ? sum : 1;
}

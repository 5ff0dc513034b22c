#include "services/objectives/idx.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "services/objectives/sharding.h"

enum { MAX_IMAGES = 100000000, N_CLASSES = 256 };

/* A name that stays below the folder. */
static bool is_inside(const char *name)
{
    return name[0] != '\0' && name[0] != '/' && strcmp(name, "..") != 0 &&
           strncmp(name, "../", 3) != 0 && strstr(name, "/../") == NULL &&
           (strlen(name) < 3 || strcmp(name + strlen(name) - 3, "/..") != 0);
}

/* Opens folder/name or folder/name.gz; zlib reads both. */
static enum tally_status open_file(const char *folder, const char *name, gzFile *ret_file,
                                   struct tally_error *err)
{
    if (!is_inside(name)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "\"%s\" is no name below the data folder", name);
    }
    char path[4096];
    static const char *const endings[] = {"", ".gz"};
    for (size_t i = 0; i < 2; i++) {
        int n = snprintf(path, sizeof path, "%s/%s%s", folder, name, endings[i]);
        gzFile file = n < (int)sizeof path ? gzopen(path, "rb") : NULL;
        if (file != NULL) {
            gzbuffer(file, 1 << 17);
            *ret_file = file;
            return TALLY_OK;
        }
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                      "cannot read %s (or .gz) in the data folder %s", name, folder);
}

static bool read_exactly(gzFile file, void *bytes, size_t n)
{
    return gzread(file, bytes, (unsigned)n) == (int)n;
}

/* Whether nothing follows; reading on also has zlib compare the checksum of a .gz. */
static bool is_at_end(gzFile file)
{
    uint8_t byte;
    int code;
    const bool none = gzread(file, &byte, 1) == 0;
    gzerror(file, &code);
    return none && code == Z_OK;
}

/* Reads a header of n_sizes dimensions. */
static enum tally_status read_header(gzFile file, const char *name, unsigned n_sizes,
                                     uint32_t *sizes, struct tally_error *err)
{
    uint8_t bytes[16];
    if (!read_exactly(file, bytes, 4 + 4 * (size_t)n_sizes)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data", "%s ends in its header",
                          name);
    }
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != n_sizes) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "%s is no IDX file of bytes in %u dimensions", name, n_sizes);
    }
    for (unsigned i = 0; i < n_sizes; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;
        sizes[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    return TALLY_OK;
}

static enum tally_status load_labels(const struct tally_idx_data *data, const char *folder,
                                     uint8_t **ret_labels, uint32_t *ret_n, struct tally_error *err)
{
    gzFile file;
    enum tally_status status = open_file(folder, data->labels, &file, err);
    if (status != TALLY_OK) {
        return status;
    }
    uint32_t n = 0;
    uint8_t *labels = NULL;
    status = read_header(file, data->labels, 1, &n, err);
    if (status == TALLY_OK && n > MAX_IMAGES) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "%s claims %u labels, the limit is %d", data->labels, n, MAX_IMAGES);
    }
    if (status == TALLY_OK) {
        labels = malloc(n > 0 ? n : 1);
        status = labels != NULL ? TALLY_OK
                                : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for labels");
    }
    if (status == TALLY_OK && !read_exactly(file, labels, n)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "%s ends before its %u labels", data->labels, n);
    }
    if (status == TALLY_OK && !is_at_end(file)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "%s is damaged or goes on after its %u labels", data->labels, n);
    }
    gzclose(file);
    if (status != TALLY_OK) {
        free(labels);
        return status;
    }
    *ret_labels = labels;
    *ret_n = n;
    return TALLY_OK;
}

static const uint32_t NOT_CHOSEN = UINT32_MAX - 1;

/* place[i] <- position of image i in the subset, NOT_CHOSEN for most others. */
static enum tally_status choose(const struct tally_idx_data *data, const uint8_t *labels,
                                uint32_t n, struct tally_rng_key key, uint32_t *place,
                                struct tally_error *err)
{
    int64_t taken[N_CLASSES] = {0};
    uint32_t *order = malloc((n > 0 ? n : 1) * sizeof *order);
    if (order == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to choose images");
    }
    tally_shard_permutation(key, n, order);
    uint32_t position = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t label = labels[order[i]];
        const bool wanted = label < data->classes && taken[label] < data->points_per_class;
        place[order[i]] = wanted ? position : NOT_CHOSEN;
        position += wanted;
        taken[label] += wanted;
    }
    free(order);
    for (int64_t c = 0; c < data->classes; c++) {
        if (taken[c] < data->points_per_class) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.points_per_class",
                              "%s has only %lld images of class %lld, not %lld", data->labels,
                              (long long)taken[c], (long long)c, (long long)data->points_per_class);
        }
    }
    return TALLY_OK;
}

/* Reads the images one after the other into their places. */
static enum tally_status load_images(const struct tally_idx_data *data, const char *folder,
                                     uint32_t n, const uint32_t *place, struct tally_idx_set *set,
                                     struct tally_error *err)
{
    gzFile file;
    enum tally_status status = open_file(folder, data->images, &file, err);
    if (status != TALLY_OK) {
        return status;
    }
    uint32_t sizes[3] = {0};
    uint8_t *spare = malloc(set->features);
    status = read_header(file, data->images, 3, sizes, err);
    if (status == TALLY_OK &&
        (sizes[0] != n || (uint64_t)sizes[1] * sizes[2] != (uint64_t)data->features)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.features",
                            "%s has %u images of %u x %u, not %u of %lld pixels", data->images,
                            sizes[0], sizes[1], sizes[2], n, (long long)data->features);
    }
    if (status == TALLY_OK && spare == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an image");
    }
    for (uint32_t i = 0; status == TALLY_OK && i < n; i++) {
        uint8_t *to =
            place[i] < set->points ? set->pixels + (size_t)place[i] * set->features : spare;
        if (!read_exactly(file, to, set->features)) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                                "%s ends in image %u of %u", data->images, i, n);
        }
    }
    if (status == TALLY_OK && !is_at_end(file)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "%s is damaged or goes on after its %u images", data->images, n);
    }
    free(spare);
    gzclose(file);
    return status;
}

void tally_idx_fini(struct tally_idx_set *set)
{
    free(set->pixels);
    free(set->labels);
    *set = (struct tally_idx_set){0};
}

enum tally_status tally_idx_load(const struct tally_idx_data *data, const char *folder,
                                 struct tally_rng_key key, struct tally_idx_set *ret_set,
                                 struct tally_error *err)
{
    uint8_t *labels = NULL;
    uint32_t *place = NULL;
    uint32_t n = 0;
    struct tally_idx_set set = {.points = (uint32_t)(data->classes * data->points_per_class),
                                .features = (size_t)data->features};
    enum tally_status status = load_labels(data, folder, &labels, &n, err);
    if (status == TALLY_OK) {
        set.pixels = malloc(set.points * set.features);
        set.labels = malloc(set.points);
        place = malloc((n > 0 ? n : 1) * sizeof *place);
        if (set.pixels == NULL || set.labels == NULL || place == NULL) {
            status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u images", set.points);
        }
    }
    if (status == TALLY_OK) {
        status = choose(data, labels, n, key, place, err);
    }
    if (status == TALLY_OK) {
        status = load_images(data, folder, n, place, &set, err);
    }
    for (uint32_t i = 0; status == TALLY_OK && i < n; i++) {
        if (place[i] < set.points) {
            set.labels[place[i]] = labels[i];
        }
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

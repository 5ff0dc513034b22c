#include "services/objectives/data/scaling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"

void tally_scaling_fini(struct tally_scaling *scaling)
{
    free(scaling->fill);
    free(scaling->mean);
    free(scaling->s);
    *scaling = (struct tally_scaling){0};
}

static const double *row_of(const struct tally_dataset *dataset, uint32_t point)
{
    return dataset->values + (size_t)point * dataset->features;
}

/* The means of the values that are not missing. Returns the first feature without any, or the
 * number of features. */
static size_t fit_fill(const struct tally_dataset *dataset, double *fill, double *counts)
{
    const size_t features = dataset->features;
    for (size_t j = 0; j < features; j++) {
        fill[j] = counts[j] = 0;
    }
    for (uint32_t i = 0; i < dataset->points; i++) {
        const double *row = row_of(dataset, i);
        for (size_t j = 0; j < features; j++) {
            fill[j] += isnan(row[j]) ? 0 : row[j];
            counts[j] += !isnan(row[j]);
        }
    }
    for (size_t j = 0; j < features; j++) {
        if (counts[j] == 0) {
            return j;
        }
        fill[j] /= counts[j];
    }
    return features;
}

/* A feature that is constant has s = 0 until the end. Returns the first feature whose numbers are
 * not finite, or the number of features. */
static size_t fit_deviations(const struct tally_dataset *dataset, struct tally_scaling *scaling)
{
    const size_t features = dataset->features;
    const double n = dataset->points;
    double *mean = scaling->mean, *s = scaling->s;
    for (size_t j = 0; j < features; j++) {
        mean[j] = scaling->fill[j];
        s[j] = 0;
    }
    for (uint32_t i = 0; i < dataset->points; i++) {
        const double *row = row_of(dataset, i);
        for (size_t j = 0; j < features; j++) {
            const double d = isnan(row[j]) ? 0 : row[j] - mean[j];
            s[j] += d * d;
        }
    }
    for (size_t j = 0; j < features; j++) {
        s[j] = sqrt(s[j] / n);
        if (!isfinite(mean[j]) || !isfinite(s[j])) {
            return j;
        }
    }
    return features;
}

/* Rounding may give a constant feature a deviation above 0, or a tiny one a deviation of 0. */
static void leave_constant(const struct tally_dataset *dataset, struct tally_scaling *scaling)
{
    for (size_t j = 0; j < dataset->features; j++) {
        bool differs = false;
        double first = NAN;
        for (uint32_t i = 0; !differs && i < dataset->points; i++) {
            const double x = row_of(dataset, i)[j], value = isnan(x) ? scaling->fill[j] : x;
            differs = i > 0 && value != first;
            first = i == 0 ? value : first;
        }
        if (!differs || scaling->s[j] == 0) {
            scaling->mean[j] = 0;
            scaling->s[j] = 1;
        }
    }
}

static const char *title_of(const struct tally_columns *columns, size_t j, char room[32])
{
    const char *name = columns != NULL ? tally_columns_name(columns, j) : NULL;
    snprintf(room, 32, "%zu", j);
    return name != NULL ? name : room;
}

enum tally_status tally_scaling_fit(struct tally_scaling *scaling,
                                    const struct tally_dataset *dataset, bool standardizes,
                                    const struct tally_columns *columns, struct tally_error *err)
{
    const size_t features = dataset->features;
    char room[32];
    double *counts = malloc(features * sizeof *counts);
    *scaling = (struct tally_scaling){.features = features,
                                      .fill = malloc(features * sizeof *counts),
                                      .mean = calloc(features, sizeof *counts),
                                      .s = malloc(features * sizeof *counts)};
    enum tally_status status = TALLY_OK;
    size_t bad = features;
    if (counts == NULL || scaling->fill == NULL || scaling->mean == NULL || scaling->s == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu means", features);
    }
    if (status == TALLY_OK) {
        bad = fit_fill(dataset, scaling->fill, counts);
    }
    free(counts);
    if (bad < features) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.missing",
                            "column %.40s has no value at any training point; remove it",
                            title_of(columns, bad, room));
    }
    for (size_t j = 0; status == TALLY_OK && j < features; j++) {
        scaling->s[j] = 1;
        bad = isfinite(scaling->fill[j]) || bad < features ? bad : j;
    }
    if (status == TALLY_OK && bad == features && standardizes) {
        bad = fit_deviations(dataset, scaling);
    }
    if (status == TALLY_OK && bad < features) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT,
                            standardizes ? "objective.data.standardize" : "objective.data.missing",
                            "the values of column %.40s are too large to be added and squared",
                            title_of(columns, bad, room));
    } else if (status == TALLY_OK && standardizes) {
        leave_constant(dataset, scaling);
    }
    if (status != TALLY_OK) {
        tally_scaling_fini(scaling);
    }
    return status;
}

enum tally_status tally_scaling_set(struct tally_scaling *scaling, const double *numbers,
                                    size_t features, struct tally_error *err)
{
    double **const parts[] = {&scaling->fill, &scaling->mean, &scaling->s};
    bool ok = true;
    *scaling = (struct tally_scaling){.features = features};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i] = malloc(features * sizeof **parts[i]);
        ok = ok && *parts[i] != NULL;
        if (ok) {
            memcpy(*parts[i], numbers + i * features, features * sizeof **parts[i]);
        }
    }
    if (!ok) {
        tally_scaling_fini(scaling);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu means", features);
    }
    scaling->digest = tally_scaling_digest(numbers, features);
    return TALLY_OK;
}

uint32_t tally_scaling_digest(const double *numbers, size_t features)
{
    enum { N_DIGESTS = (1 << 28) - 1 };
    return 1 + (uint32_t)(tally_checksum64(numbers, 3 * features * sizeof *numbers) % N_DIGESTS);
}

void tally_scaling_apply(const struct tally_scaling *scaling, struct tally_dataset *dataset)
{
    const size_t features = dataset->features;
    for (uint32_t i = 0; i < dataset->points; i++) {
        double *row = dataset->values + (size_t)i * features;
        for (size_t j = 0; j < features; j++) {
            const double x = isnan(row[j]) ? scaling->fill[j] : row[j];
            row[j] = (x - scaling->mean[j]) / scaling->s[j];
        }
    }
}

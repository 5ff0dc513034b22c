/* npy_data: points, labels and matrices from .npy files, as a stream.
 *
 * Values are integers or floats of any width. A value that is not finite, or an integer that no
 * double equals, is refused; the error names its row. Rows count from 0, as in NumPy. */
#include "services/objectives/data/formats.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/load_data.h"
#include "services/objectives/data/npy.h"

/* Reads the header. The values follow. */
static enum tally_status read_header(struct tally_data_file *file,
                                     struct tally_npy_header *ret_header)
{
    uint8_t bytes[TALLY_NPY_PREFIX_BYTES + TALLY_NPY_MAX_TEXT_BYTES];
    struct tally_error why = TALLY_ERROR_INIT;
    size_t length = 0;
    /* Version 1.0 has a shorter prefix, but never a text of less than two bytes. */
    size_t n = tally_data_file_read(file, bytes, TALLY_NPY_PREFIX_BYTES);
    if (tally_npy_header_bytes(bytes, n, &length, &why) != TALLY_OK) {
        return tally_data_file_refuse(file, "%s", why.message);
    }
    if (length > sizeof bytes) {
        return tally_data_file_refuse(file, "a header of %zu bytes, more than %d", length,
                                      TALLY_NPY_MAX_TEXT_BYTES);
    }
    if (length < n) {
        return tally_data_file_refuse(file, "the .npy header is empty");
    }
    n += tally_data_file_read(file, bytes + n, length - n);
    if (n < length) {
        return tally_data_file_refuse(file, "the .npy file ends in its header");
    }
    return tally_npy_header_parse(bytes, n, ret_header, &why) == TALLY_OK
               ? TALLY_OK
               : tally_data_file_refuse(file, "%s", why.message);
}

/* Called for each value. `place` is its index in the order of the file, from 0. */
typedef enum tally_status take_fn(void *context, struct tally_data_file *file, uint64_t place,
                                  double value);

/* Passes `rows` times `columns` values on; `inner` is the array's innermost length. */
static enum tally_status read_values(struct tally_data_file *file,
                                     const struct tally_npy_header *header, uint64_t n_values,
                                     size_t inner, take_fn *take, void *context)
{
    uint8_t bytes[4096];
    const size_t n_value = tally_npy_type_bytes(header->type);
    enum tally_status status = TALLY_OK;
    file->place = TALLY_DATA_ROW;
    for (uint64_t done = 0; status == TALLY_OK && done < n_values;) {
        const uint64_t left = n_values - done;
        const size_t wanted = left < sizeof bytes / n_value ? (size_t)left : sizeof bytes / n_value;
        const size_t n = tally_data_file_read(file, bytes, wanted * n_value) / n_value;
        for (size_t i = 0; status == TALLY_OK && i < n; i++) {
            double value = 0;
            const bool is_exact = tally_npy_value(header->type, bytes, i, &value);
            const uint64_t at = done + i;
            file->line = header->is_fortran ? at % inner : at / inner;
            const unsigned long long column = header->is_fortran ? at / inner : at % inner;
            if (!is_exact) {
                status = tally_data_file_refuse(file, "the integer of column %llu is above 2^53",
                                                column);
            } else if (!isfinite(value)) {
                status =
                    tally_data_file_refuse(file, "the value of column %llu is not finite", column);
            } else {
                status = take(context, file, at, value);
            }
        }
        done += n;
        if (status == TALLY_OK && n < wanted) {
            file->line = header->is_fortran ? done % inner : done / inner;
            status = tally_data_file_refuse(file, "the file ends there, %llu values too early",
                                            (unsigned long long)(n_values - done));
        }
    }
    if (status == TALLY_OK && tally_data_file_peek(file) != TALLY_DATA_END) {
        file->place = TALLY_DATA_NOWHERE;
        return tally_data_file_refuse(file, "has data after its %llu values",
                                      (unsigned long long)n_values);
    }
    return status == TALLY_OK ? file->status : status;
}

static enum tally_status refuse_shape(struct tally_data_file *file,
                                      const struct tally_npy_header *header, const char *wanted)
{
    switch (header->n_dims) {
    case 1:
        return tally_data_file_refuse(file, "has shape (%zu,), not %s", header->shape[0], wanted);
    case 2:
        return tally_data_file_refuse(file, "has shape (%zu, %zu), not %s", header->shape[0],
                                      header->shape[1], wanted);
    default:
        return tally_data_file_refuse(file, "has %zu dimensions, not %s", header->n_dims, wanted);
    }
}

/* Points. */

static enum tally_status take_value(void *context, struct tally_data_file *file, uint64_t place,
                                    double value)
{
    (void)place;
    file->points = file->line;
    return tally_builder_value(context, file, 0, value);
}

/* From column-major to row-major order. */
static bool transpose(double *values, size_t rows, size_t columns)
{
    if (values == NULL || rows == 0 || columns == 0) {
        return true; /* nothing was read */
    }
    double *copy = malloc(rows * columns * sizeof *copy);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, values, rows * columns * sizeof *copy);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            values[r * columns + c] = copy[c * rows + r];
        }
    }
    free(copy);
    return true;
}

enum tally_status tally_npy_read_points(struct tally_data_file *file, size_t features,
                                        struct tally_dataset_builder *builder, size_t *ret_points)
{
    struct tally_npy_header header = {.n_dims = 0};
    char wanted[64];
    enum tally_status status = read_header(file, &header);
    if (status != TALLY_OK) {
        return status;
    }
    const bool is_column = header.n_dims == 1 && features == 1;
    if (!is_column && (header.n_dims != 2 || header.shape[1] != features)) {
        snprintf(wanted, sizeof wanted, "(points, %zu), as features says", features);
        return refuse_shape(file, &header, wanted);
    }
    const size_t rows = header.shape[0];
    if (rows > TALLY_DATA_MAX_VALUES / features || rows > TALLY_DATA_MAX_POINTS) {
        return tally_data_file_refuse(file,
                                      "%zu points of %zu numbers are more than %d points or %d "
                                      "numbers, the most that a job's data may hold",
                                      rows, features, TALLY_DATA_MAX_POINTS, TALLY_DATA_MAX_VALUES);
    }
    const size_t before = builder->n_values;
    const size_t inner = is_column ? 1 : header.is_fortran ? rows : features;
    header.is_fortran = header.is_fortran && !is_column;
    status = read_values(file, &header, rows * features, inner, take_value, builder);
    if (status == TALLY_OK && header.is_fortran && !builder->is_trial &&
        builder->n_values > before &&
        !transpose(builder->dataset->values + before, rows, features)) {
        status =
            tally_fail(file->err, TALLY_NO_MEMORY, NULL, "no memory to transpose %s", file->name);
    }
    *ret_points = rows;
    return status;
}

/* Labels. */

static enum tally_status take_label(void *context, struct tally_data_file *file, uint64_t place,
                                    double value)
{
    (void)place;
    return tally_builder_point(context, file, value);
}

enum tally_status tally_npy_read_labels(struct tally_data_file *file, size_t points,
                                        struct tally_dataset_builder *builder)
{
    struct tally_npy_header header = {.n_dims = 0};
    char wanted[64];
    const enum tally_status status = read_header(file, &header);
    if (status != TALLY_OK) {
        return status;
    }
    const bool is_vector = header.n_dims == 1 || (header.n_dims == 2 && header.shape[1] == 1);
    if (!is_vector || header.shape[0] != points) {
        snprintf(wanted, sizeof wanted, "(%zu,), a label for each point", points);
        return refuse_shape(file, &header, wanted);
    }
    header.is_fortran = false;
    return read_values(file, &header, points, 1, take_label, builder);
}

/* Matrices. */

struct matrix {
    double *values;
    size_t most;
    bool is_trial; /* values are only checked */
};

static enum tally_status take_entry(void *context, struct tally_data_file *file, uint64_t place,
                                    double value)
{
    struct matrix *matrix = context;
    if (matrix->is_trial) {
        return TALLY_OK;
    }
    if (matrix->values == NULL) { /* the trial has counted them */
        matrix->values = malloc(matrix->most * sizeof *matrix->values);
        if (matrix->values == NULL) {
            return tally_fail(file->err, TALLY_NO_MEMORY, NULL, "no memory for the values of %s",
                              file->name);
        }
    }
    matrix->values[place] = value;
    return TALLY_OK;
}

static enum tally_status read_matrix(struct tally_data_file *file, size_t rows, size_t columns,
                                     struct matrix *matrix)
{
    struct tally_npy_header header = {.n_dims = 0};
    char wanted[64];
    enum tally_status status = read_header(file, &header);
    if (status != TALLY_OK) {
        return status;
    }
    const bool is_vector = columns == 0;
    if (header.shape[0] != rows || header.n_dims != (is_vector ? 1 : 2) ||
        (!is_vector && header.shape[1] != columns)) {
        snprintf(wanted, sizeof wanted, is_vector ? "(%zu,)" : "(%zu, %zu)", rows, columns);
        return refuse_shape(file, &header, wanted);
    }
    header.is_fortran = header.is_fortran && !is_vector;
    const size_t inner = is_vector ? 1 : header.is_fortran ? rows : columns;
    status = read_values(file, &header, matrix->most, inner, take_entry, matrix);
    if (status == TALLY_OK && header.is_fortran && !transpose(matrix->values, rows, columns)) {
        status =
            tally_fail(file->err, TALLY_NO_MEMORY, NULL, "no memory to transpose %s", file->name);
    }
    return status;
}

enum tally_status tally_matrix_load(const struct tally_data_source *source, const char *name,
                                    size_t rows, size_t columns, double **ret_values,
                                    struct tally_error *err)
{
    struct matrix matrix = {.most = rows * (columns > 0 ? columns : 1)};
    enum tally_status status = TALLY_OK;
    for (int pass = 0; status == TALLY_OK && pass < 2; pass++) { /* as try_files() in load_data.c */
        struct tally_data_file *file;
        status = tally_data_file_open(source, name, &file, err);
        if (status == TALLY_OK) {
            matrix.is_trial = pass == 0;
            status = read_matrix(file, rows, columns, &matrix);
            tally_data_file_close(file);
        }
    }
    if (status != TALLY_OK) {
        free(matrix.values);
        return status;
    }
    *ret_values = matrix.values;
    return TALLY_OK;
}

/* Vectors. */

static enum tally_status check_vector(struct tally_data_file *file,
                                      const struct tally_npy_header *header, size_t dim)
{
    char wanted[64];
    if (header->type != TALLY_NPY_FLOAT32 && header->type != TALLY_NPY_FLOAT64) {
        return tally_data_file_refuse(file, "has dtype %s, not float32 or float64",
                                      tally_npy_type_name(header->type));
    }
    if (header->n_values != dim) {
        snprintf(wanted, sizeof wanted, "(%zu,) or another of %zu values", dim, dim);
        return refuse_shape(file, header, wanted);
    }
    return !header->is_fortran || header->n_dims < 2
               ? TALLY_OK
               : tally_data_file_refuse(file, "is in Fortran order; save what "
                                              "numpy.ascontiguousarray() makes of it");
}

/* Converts n values, float32 or float64, and returns the index of the first that is not finite; n
 * if there is none. A model has millions of them, so they do not go through tally_npy_value(). */
static size_t convert(enum tally_npy_type type, const uint8_t *bytes, size_t n, double *ret_values)
{
    bool is_finite = true;
    if (type == TALLY_NPY_FLOAT64) {
        memcpy(ret_values, bytes, n * sizeof *ret_values);
    }
    for (size_t i = 0; type == TALLY_NPY_FLOAT32 && i < n; i++) {
        float single;
        memcpy(&single, bytes + i * sizeof single, sizeof single);
        ret_values[i] = (double)single;
    }
    for (size_t i = 0; i < n; i++) {
        is_finite &= fabs(ret_values[i]) <= DBL_MAX; /* false for NaN */
    }
    size_t first = is_finite ? n : 0;
    while (first < n && isfinite(ret_values[first])) {
        first++;
    }
    return first;
}

static enum tally_status read_vector(struct tally_data_file *file, enum tally_npy_type type,
                                     size_t dim, double *ret_values)
{
    uint8_t bytes[TALLY_DATA_WINDOW];
    const size_t n_value = tally_npy_type_bytes(type);
    for (size_t done = 0; done < dim;) {
        const size_t left = dim - done, most = sizeof bytes / n_value;
        const size_t wanted = left < most ? left : most;
        const size_t n = tally_data_file_read(file, bytes, wanted * n_value) / n_value;
        const size_t bad = convert(type, bytes, n, ret_values + done);
        if (bad < n) {
            return tally_data_file_refuse(file, "coordinate %zu is %s", done + bad,
                                          isnan(ret_values[done + bad]) ? "NaN" : "infinite");
        }
        done += n;
        if (n < wanted) {
            return tally_data_file_refuse(file, "ends after %zu of %zu values", done, dim);
        }
    }
    return tally_data_file_peek(file) == TALLY_DATA_END
               ? file->status
               : tally_data_file_refuse(file, "has data after its %zu values", dim);
}

enum tally_status tally_vector_load(const struct tally_data_source *source, const char *name,
                                    size_t dim, double **ret_values, struct tally_error *err)
{
    struct tally_npy_header header = {.n_dims = 0};
    struct tally_data_file *file;
    double *values = NULL;
    enum tally_status status = tally_data_file_open(source, name, &file, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = read_header(file, &header);
    if (status == TALLY_OK) {
        status = check_vector(file, &header, dim);
    }
    if (status == TALLY_OK) {
        values = malloc(dim * sizeof *values);
        status = values != NULL ? read_vector(file, header.type, dim, values)
                                : tally_fail(err, TALLY_NO_MEMORY, NULL,
                                             "no memory for the values of %s", file->name);
    }
    tally_data_file_close(file);
    if (status != TALLY_OK) {
        free(values);
        return status;
    }
    *ret_values = values;
    return TALLY_OK;
}

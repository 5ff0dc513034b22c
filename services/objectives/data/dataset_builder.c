#include "services/objectives/data/dataset_builder.h"

#include <math.h>
#include <stdlib.h>

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

enum tally_status tally_builder_point(struct tally_dataset_builder *builder,
                                      struct tally_data_file *file, double label)
{
    struct tally_dataset *dataset = builder->dataset;
    const size_t n = dataset->points;
    const char *why = tally_builder_check_label(builder, label);
    if (why != NULL && builder->classes > 0) {
        return tally_data_file_refuse(file, "label %g %s: classes are 0 to %lld%s", label, why,
                                      (long long)builder->classes - 1,
                                      tally_builder_label_remedy(label, builder->classes));
    }
    if (why != NULL) {
        return tally_data_file_refuse(file, "label %g %s", label, why);
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

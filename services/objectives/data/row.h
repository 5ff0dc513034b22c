/* row: a point of a dataset as its numbers, whatever the layout. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_ROW_H
#define TALLY_SERVICES_OBJECTIVES_DATA_ROW_H

#include "services/objectives/data/dataset.h"

/* values[i] stands in column columns[i], or in column i if columns is NULL. */
struct tally_row {
    size_t n;
    const uint32_t *columns;
    const double *values;
};

/* Borrows from the dataset, or from `room` (double[features]) where the dataset keeps bytes. */
static inline struct tally_row tally_row_of(const struct tally_dataset *dataset, uint32_t point,
                                            double *room)
{
    if (dataset->row_first != NULL) {
        const size_t first = dataset->row_first[point];
        return (struct tally_row){.n = dataset->row_first[point + 1] - first,
                                  .columns = dataset->columns + first,
                                  .values = dataset->values + first};
    }
    if (dataset->bytes != NULL) {
        tally_dataset_row(dataset, point, room);
        return (struct tally_row){.n = dataset->features, .values = room};
    }
    return (struct tally_row){.n = dataset->features,
                              .values = dataset->values + (size_t)point * dataset->features};
}

static inline size_t tally_row_column(const struct tally_row *row, size_t i)
{
    return row->columns != NULL ? row->columns[i] : i;
}

#endif

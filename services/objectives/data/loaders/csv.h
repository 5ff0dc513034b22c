/* csv: points from comma-separated values (RFC 4180) with a header line.
 *
 * One column, named by the document, is the label; the others are the features, in their order.
 * Fields may be quoted; lines end with LF or CRLF, the last one also without; a UTF-8 byte order
 * mark is skipped, and so are empty lines. There are no comments and no missing values. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_CSV_H
#define TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_CSV_H

#include "services/objectives/data/dataset_builder.h"

/* Appends the points of the file. Errors: as tally_dataset_load(). */
enum tally_status tally_csv_read(struct tally_data_file *file, const char *label, size_t features,
                                 struct tally_dataset_builder *builder);

#endif

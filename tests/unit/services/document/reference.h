/* reference: the documents of services/job that are generated from the product's tables. */
#ifndef TALLY_TESTS_UNIT_SERVICES_DOCUMENT_REFERENCE_H
#define TALLY_TESTS_UNIT_SERVICES_DOCUMENT_REFERENCE_H

#include "codec/base/buffer.h"

/* Append Markdown to `out`. */
void reference_write_reasons(struct tally_buffer *out);

#endif

/* reference: the documents of services/job that are generated from the product's tables. */
#ifndef TALLY_TESTS_UNIT_SERVICES_JOB_REFERENCE_H
#define TALLY_TESTS_UNIT_SERVICES_JOB_REFERENCE_H

#include "codec/buffer.h"

/* The example of a job document. */
#define REFERENCE_EXAMPLE                                                                          \
    "{\"algorithm\": {\"type\": \"ceal\", \"step_size\": 2.0, \"sigma\": \"auto\"},\n"             \
    " \"objective\": {\"type\": \"least_squares\", \"data\": "                                     \
    "{\"type\": \"synthetic_linear\", \"dim\": 30, \"points\": 2000}},\n"                          \
    " \"clients\": 10, \"horizon\": 2000}\n"

/* Append Markdown to `out`. */
void reference_write_reasons(struct tally_buffer *out);
void reference_write_document(struct tally_buffer *out);

#endif

/* document_labels: the member `labels` of a job document. */
#ifndef TALLY_SERVICES_JOB_DOCUMENT_LABELS_H
#define TALLY_SERVICES_JOB_DOCUMENT_LABELS_H

#include "api/json/json.h"
#include "codec/error.h"
#include "services/base/labels.h"

/* Checks that the object `labels` has at most TALLY_LABELS_MOST members. Errors: OUT_OF_RANGE. */
enum tally_status tally_document_count_labels(const struct tally_json *labels,
                                              struct tally_error *err);
/* Reads member `key` of `labels`. Errors: INVALID_ARGUMENT (not a key; a value that is not text, or
 * has control characters), OUT_OF_RANGE (a value that is too long), with field `key`. */
enum tally_status tally_document_read_label(const struct tally_json *labels, const char *key,
                                            struct tally_label *ret_label, struct tally_error *err);
/* Reads the member `labels` of a document, if it exists, as a text. Errors: as above, with field
 * "labels.KEY" or "labels". */
enum tally_status tally_document_read_labels(const struct tally_json *document,
                                             char ret_labels[TALLY_LABELS_CAPACITY],
                                             struct tally_error *err);
/* Sets the member `labels` of `object`; adds no member if there are none. False = out of memory. */
bool tally_document_set_labels(struct tally_json *object, const char *labels);

#endif

/* document_complete: finds what a job document leaves open in its CSV file.
 *
 *     {"type": "csv", "file": "cancer.csv", "label": "diagnosis"}
 *
 *     {"type": "csv", "file": "cancer.csv", "label": "diagnosis", "features": 30,
 *      "classes": ["benign", "malignant"]}
 *
 * `features` is found if it is absent. `classes` is found, for an objective that has classes, if it
 * is "auto", or if it is absent and either `features` is, too, or the objective needs it. Labels
 * that are the numbers that the objective takes without names (0 to classes - 1; -1 and 1) give no
 * names; all others become the names of the classes, in the order of their bytes. The process that
 * accepts the document (coordinator, `tally simulate`) completes it, so all others agree. */
#ifndef TALLY_SERVICES_JOB_DOCUMENT_COMPLETE_H
#define TALLY_SERVICES_JOB_DOCUMENT_COMPLETE_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "services/objectives/data/data_source.h"

enum { TALLY_FOUND_CAPACITY = 256 };

/* Whether the text is a document that leaves members open and is valid otherwise. */
bool tally_document_is_open(const char *text, size_t n);

/* Replaces such a text by the completed document, and describes what was found in a line for
 * people, "cancer.csv: features 30, classes \"benign\", \"malignant\"". Any other text stays as it
 * is, and *ret_found becomes "". Errors: those of tally_dataset_survey(); INVALID_ARGUMENT with
 * field "objective.data.classes" (the labels do not suit the objective), NO_MEMORY. */
enum tally_status tally_document_complete(struct tally_buffer *text,
                                          const struct tally_data_source *source,
                                          char ret_found[TALLY_FOUND_CAPACITY],
                                          struct tally_error *err);

#endif

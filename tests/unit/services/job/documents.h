/* documents: job documents on which the parser tests are based. */
#ifndef TALLY_TESTS_UNIT_SERVICES_JOB_DOCUMENTS_H
#define TALLY_TESTS_UNIT_SERVICES_JOB_DOCUMENTS_H

#include "services/job/document.h"

/* A `ceal` job with every member of the algorithm and many others given. */
extern const char DOCUMENT_EXAMPLE[];

/* A `ceal` job with only the members that have no default. */
extern const char DOCUMENT_SHORTEST[];

/* A `fedcom` job on image data. */
extern const char DOCUMENT_IMAGES[];

/* Replaces the only occurrence of `find` in `text`. */
void document_edit(const char *text, const char *find, const char *replace, char ret_text[4000]);

/* Resets *err and parses a text. */
enum tally_status document_parse(const char *text, struct tally_job_spec *spec,
                                 struct tally_error *err);

#endif

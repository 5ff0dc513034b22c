/* documents: job documents that the tests of the parser start from. */
#ifndef TALLY_TESTS_UNIT_SERVICES_DOCUMENT_DOCUMENTS_H
#define TALLY_TESTS_UNIT_SERVICES_DOCUMENT_DOCUMENTS_H

#include "services/document/document.h"

/* Every member of a `ceal` job, written out. */
extern const char DOCUMENT_EXAMPLE[];

/* Only what has no default. */
extern const char DOCUMENT_SHORTEST[];

/* A document of every other algorithm, on the other kind of data. */
extern const char DOCUMENT_IMAGES[];

/* `text` with its only occurrence of `find` replaced. */
void document_edit(const char *text, const char *find, const char *replace, char ret_text[4000]);

/* Parses a text, after forgetting what *err holds. */
enum tally_status document_parse(const char *text, struct tally_job_spec *spec,
                                 struct tally_error *err);

#endif

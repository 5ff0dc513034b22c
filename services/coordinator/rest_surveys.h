/* rest_surveys: completes submitted documents that leave the features or classes of a CSV file open
 * (services/job/document_complete.h). The file is read in a thread; meanwhile the call is held, and
 * its handler then runs again. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_SURVEYS_H
#define TALLY_SERVICES_COORDINATOR_REST_SURVEYS_H

#include <stddef.h>

#include "codec/error.h"
#include "services/coordinator/calls.h"

struct surveys;

enum { MAX_SURVEYS = 64 }; /* in progress or waiting */

struct surveys *surveys_new(void);
/* Frees all surveys and the calls that they hold. NULL is allowed. */
void surveys_free(struct tally_coordinator *coordinator);

/* Sets *ret_text to the document in the body of a call or, if it leaves members open, to the
 * completed one, which belongs to the call. If call->is_held afterwards, the handler will run
 * again. Errors: those of tally_document_complete(), RESOURCE_EXHAUSTED. */
enum tally_status surveys_complete(struct tally_coordinator *coordinator, struct call *call,
                                   const char *body, size_t n_body, const char **ret_text,
                                   size_t *ret_n, struct tally_error *err);
/* To be called in every turn of the loop: runs the calls of finished surveys again. */
void surveys_serve(struct tally_coordinator *coordinator);

#endif

/* document_faults: everything that is wrong with a job document. tally_document_parse() reports
 * only the first fault; this module checks the document again, member by member and then rule by
 * rule.
 *
 *     {"clients": 0, "horizon": 10, "algorithm": {"type": "fedavg", "stepsize": 1}, ...}
 *
 *     [{"field": "clients", "code": "out_of_range", "detail": "clients 0 outside [1, 100000]"},
 *      {"field": "algorithm.stepsize", "code": "unknown_member",
 *       "detail": "unknown key \"stepsize\"; did you mean step_size?", "suggestion": "step_size"},
 *      {"field": "algorithm.step_size", "code": "missing", "detail": "step_size is missing"}, ...]
 *
 * `code` is one of
 *   unknown_member   `suggestion` has the member that was probably meant, if one is near
 *   missing
 *   wrong_type       `auto` is true where the text "auto" is allowed in place of a number
 *   out_of_range     `auto` as above
 *   not_allowed      a text that is none of `choices`, perhaps with a `suggestion`, or that has a
 *                    control character; a label with a key that no label may have
 *   conflict         members that are valid alone, but not together
 *   limit            a limit of this coordinator
 *
 * Rules between members are checked only if all members are valid. */
#ifndef TALLY_SERVICES_JOB_DOCUMENT_FAULTS_H
#define TALLY_SERVICES_JOB_DOCUMENT_FAULTS_H

#include <stddef.h>

#include "api/json/json.h"

enum { TALLY_MAX_FAULTS = 32 };

/* An array of at most TALLY_MAX_FAULTS objects, in the order in which tally_document_parse() would
 * find them. Empty if the document is valid. NULL if the text is not JSON within the limits of a
 * document, or if out of memory. */
struct tally_json *tally_document_faults(const char *text, size_t n);

/* Appends the fault that `err` describes, unless the list is full. False = out of memory. */
bool tally_document_add_fault(struct tally_json *faults, const char *code,
                              const struct tally_error *err);

#endif

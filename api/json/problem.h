/* problem: errors in the formats of the two interfaces. Pure functions that only make bytes. */
#ifndef TALLY_API_JSON_PROBLEM_H
#define TALLY_API_JSON_PROBLEM_H

#include "api/json/json.h"
#include "codec/buffer.h"
#include "codec/error.h"

/* RFC 9457 application/problem+json:
 * {"type":"about:blank","title","status","detail","code","field"}; "field" is left out when
 * err->field is empty. `err->status` must not be OK. */
enum tally_status tally_problem_encode(const struct tally_error *err, struct tally_buffer *out);

/* The same with the member "errors", an array of all faults of a document; NULL = without it. */
enum tally_status tally_problem_encode_all(const struct tally_error *err,
                                           const struct tally_json *errors,
                                           struct tally_buffer *out);

/* Connect error: {"code","message"}; the field path, if any, comes first ("round: ..."). */
enum tally_status tally_connect_error_encode(const struct tally_error *err,
                                             struct tally_buffer *out);

/* Reads either form (for clients). If the body is neither, returns false, and the status follows
 * from `http_status`; it is never OK. */
bool tally_problem_decode(int http_status, const char *text, size_t n, struct tally_error *ret_err);

#endif

/* http_response: responses, on their way from tally_http_respond() to MHD.
 *
 * Wire bytes. MHD does not report how much it sends, so response_head_bytes() repeats what
 * build_header_response() of MHD 0.9.75 writes; the unit tests compare it with a socket. For
 * requests, the header section counts with the size that MHD reports, from the first letter of the
 * request line to the blank line, plus the body. A chunked body counts with its content; chunk
 * sizes and trailers are not counted. TLS does not change the numbers: they are those before
 * encryption. Requests that the handler never sees (400, 413, 431 and 501 from here or from MHD) do
 * not count. */
#ifndef TALLY_API_HTTP_HTTP_RESPONSE_H
#define TALLY_API_HTTP_HTTP_RESPONSE_H

#include "api/http/http_server_internal.h"

/* Adds the Date and the caller's headers, and returns their length on the wire. */
uint64_t http_response_add_headers(struct tally_http_server *server, struct MHD_Response *made,
                                   const struct tally_http_response *response);
/* Gives the response of the request to MHD. Without one (memory ran out) the connection is closed.
 */
enum MHD_Result http_response_queue(struct tally_http_request *request);
/* Responds to a request that the handler never sees, and ends the connection. */
enum MHD_Result http_response_refuse(struct tally_http_request *request,
                                     enum tally_http_refusal_reason reason, int status,
                                     const char *detail);

#endif

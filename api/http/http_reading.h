/* http_reading: how MHD reads a request, and what the server does at each step.
 *
 *   headers complete   http_reading_on_data() makes the request and refuses what is too long or
 *                      ambiguous; a large body that is not wanted is left unread (wants_body)
 *   body arrives       http_reading_on_data() collects it, or suspends the connection while too
 *                      many large bodies are in progress (http_uploads.h)
 *   all is read        on_request is called. With a response it is queued; without one the request
 *                      waits: MHD does not read, and calls http_reading_on_data() again
 *   response           tally_http_respond() keeps it and resumes the connection if necessary; MHD
 *                      calls http_reading_on_data() again, which queues it
 *   all is sent, or    http_reading_on_completed() frees the request: the only place that does
 *   the peer is gone */
#ifndef TALLY_API_HTTP_HTTP_READING_H
#define TALLY_API_HTTP_HTTP_READING_H

#include "api/http/http_server_internal.h"

/* Callbacks of MHD; `context` is the server. */
enum MHD_Result http_reading_on_data(void *context, struct MHD_Connection *connection,
                                     const char *url, const char *method, const char *version,
                                     const char *data, size_t *n_data, void **request_context);
void http_reading_on_completed(void *context, struct MHD_Connection *connection,
                               void **request_context, enum MHD_RequestTerminationCode code);
/* Lets waiting bodies begin, as far as http_uploads.h allows it now. */
void http_reading_resume(struct tally_http_server *server, int64_t now_ms);

#endif

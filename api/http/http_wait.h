/* http_wait: requests whose response is not there yet, and suspended connections.
 *
 * A handler may respond later: after a commit (a few milliseconds) or at the end of a long poll (a
 * minute). MHD knows two ways to wait. It can call the server again in every turn, which costs 0.4
 * us per turn and connection, and does not notice a hang-up. Or the connection is suspended, which
 * costs as much as the rest of a small request, once. So a request waits in the first way for
 * SUSPEND_AFTER_MS and in the second way after that:
 *
 *     handler returns               20 ms                        response
 *        |---- waiting ---------------|---- suspended ----------------|
 *              MHD asks every turn          our epoll set: hang-up only
 *
 * MHD does not watch a suspended connection. The server's own epoll set does, for the hang-up: a
 * peer that has closed its side has given up, like a killed worker. (A client that shuts down its
 * sending side and then waits for a delayed response is treated the same way, as in nginx.)
 *
 * A body that may not be read yet (http_uploads.h) suspends its connection too. */
#ifndef TALLY_API_HTTP_HTTP_WAIT_H
#define TALLY_API_HTTP_HTTP_WAIT_H

#include "api/http/http_server_internal.h"

/* To be called when the request is complete and has no response yet. */
void http_wait_begin(struct tally_http_request *request);
/* Does nothing for a request that does not wait. */
void http_wait_end(struct tally_http_request *request);
/* MHD does not touch the connection until it is resumed. */
void http_wait_suspend(struct tally_http_request *request);
void http_wait_resume(struct tally_http_request *request);
/* To be called when MHD must look at the request again: there is a response, or more of one. */
void http_wait_wake(struct tally_http_request *request);
/* Suspends the requests that have waited long enough. Call it after MHD ran, not from within. */
void http_wait_suspend_old(struct tally_http_server *server);
/* Resumes all suspended connections: MHD does not stop while there are any. */
void http_wait_resume_all(struct tally_http_server *server);
/* To be called when the peer of a suspended request hung up: MHD gets the connection back and ends
 * it. */
void http_wait_hang_up(struct tally_http_request *request);

#endif

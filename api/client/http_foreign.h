/* http_foreign: a response that no coordinator has sent, in words.
 *
 *     HTTP 413 from http://tally.example (nginx/1.22.1): body of 1200081 bytes
 *     HTTP 308 from http://tally.example (nginx/1.22.1): redirects to https://tally.example: use
 * that HTTP 407 from http://tally.example through the proxy http://proxy.example:3128 */
#ifndef TALLY_API_CLIENT_HTTP_FOREIGN_H
#define TALLY_API_CLIENT_HTTP_FOREIGN_H

#include "api/client/http_client.h"

enum { HTTP_PROXY_CAPACITY = 128 };

/* The proxy that the environment names for this URL, without user and password; "" = none. */
void http_proxy_name(const char *url, char ret_name[HTTP_PROXY_CAPACITY]);

/* Fails with a description of the exchange. `answer` is what tally_problem_decode() has made of its
 * body. Errors: that of `answer`, but MISDIRECTED for a permanent redirect. */
enum tally_status http_fail_foreign(const char *url, const struct tally_http_exchange *exchange,
                                    const struct tally_error *answer, struct tally_error *err);

#endif

/* http_answers: short answers whose memory, MHD's response objects included, is used again.
 *
 * MHD fixes the length of a body and the headers when a response is made, but not the bytes. So
 * responses that have been sent wait by their length for the next answer that is as long. */
#ifndef TALLY_API_SERVER_HTTP_ANSWERS_H
#define TALLY_API_SERVER_HTTP_ANSWERS_H

#include <microhttpd.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_ANSWER_MAX_BYTES = 1024,
    HTTP_MAX_ANSWERS = 1024 /* that exist */
};

struct http_answer {
    struct http_answer *next; /* while it waits */
    struct MHD_Response *response;
    size_t n;
    uint8_t bytes[];
};

struct http_answers {
    const char *content_type; /* of all of them, and their only header */
    struct http_answer *by_length[HTTP_ANSWER_MAX_BYTES + 1];
    unsigned n, n_waiting;
};

/* An answer with these bytes; NULL if they are too many, all are in use, or there is no memory. */
struct http_answer *http_answers_take(struct http_answers *answers, const uint8_t *bytes, size_t n);
/* MHD has sent it, or will not. */
void http_answers_give_back(struct http_answers *answers, struct http_answer *answer);
/* Frees those that wait. */
void http_answers_clear(struct http_answers *answers);

#endif

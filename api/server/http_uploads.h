/* http_uploads: how many large bodies are read at once.
 *
 * A client that computes as fast as the others of its round posts when they do. If all bodies that
 * are there were read at the same time, thousands of them would be in memory together, each nearly
 * complete; and nobody is served sooner by that. So a large body is begun only while those under
 * way are few bytes together, first come first served. What waits costs nothing: it is left in the
 * socket, and TCP holds the sender back.
 *
 * Peers whose lines are slow, or who say that much comes and send nothing, must not stop the
 * others, nor each other: whatever is under way, one body more is begun a millisecond after
 * another, unless as much comes as HTTP_UPLOAD_BYTES_PER_MS. What is announced does not count
 * there.
 *
 * "Under way" is from the first byte until the body is not needed any more. */
#ifndef TALLY_API_SERVER_HTTP_UPLOADS_H
#define TALLY_API_SERVER_HTTP_UPLOADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Shorter bodies are as many as there are connections, which cost more. */
    HTTP_UPLOAD_MIN_BYTES = 8 * 1024,
    /* Under way; more than a turn of the loop can make use of. One body may always be. */
    HTTP_UPLOADS_MAX_BYTES = 16 * 1024 * 1024,
    /* A quarter of a gigabit a second. */
    HTTP_UPLOAD_BYTES_PER_MS = 32 * 1024,
    /* After which the line counts as free, however much came before. */
    HTTP_UPLOAD_QUIET_MS = 4
};

enum http_upload_state { HTTP_UPLOAD_NONE, HTTP_UPLOAD_WAITS, HTTP_UPLOAD_UNDER_WAY };

/* Embedded in what the owner keeps for a request, zeroed. */
struct http_upload {
    enum http_upload_state state;
    size_t n_bytes;
    struct http_upload *previous, *next; /* while it waits */
};

struct http_uploads {
    struct http_upload *first, *last; /* those that wait */
    size_t under_way_bytes;
    int64_t next_ms;    /* when one more may begin, whatever is under way */
    size_t moved_bytes; /* less than a millisecond's, beyond next_ms */
};

/* The body of an upload that is NONE has begun to come. False = it waits from now on. */
bool http_uploads_begin(struct http_uploads *uploads, struct http_upload *upload, size_t n_bytes,
                        int64_t now_ms);
/* Bytes of the body have come. Does nothing for NONE. */
void http_uploads_receive(struct http_uploads *uploads, const struct http_upload *upload,
                          size_t n_bytes, int64_t now_ms);
/* Its body is not needed any more, or will not come. Does nothing for NONE. */
void http_uploads_end(struct http_uploads *uploads, struct http_upload *upload);
/* The next of those that wait, which is under way from now on; NULL = none. */
struct http_upload *http_uploads_next(struct http_uploads *uploads, int64_t now_ms);
/* Milliseconds until http_uploads_next() is worth a call if nothing ends; -1 = never. */
int64_t http_uploads_wait_ms(const struct http_uploads *uploads, int64_t now_ms);

#endif

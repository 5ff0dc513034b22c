/* http_uploads: how many large bodies are read at once.
 *
 * Clients of a round compute equally fast and post at the same time. If all bodies were read at
 * once, thousands of nearly complete ones would be in memory together, and none would be complete
 * sooner. So a large body is begun only while the bodies in progress are few bytes together, first
 * come first served. A body that waits costs nothing: it is left in the socket, and TCP holds the
 * sender back.
 *
 * Peers on slow lines, or peers that announce much and send nothing, must stop neither the others
 * nor each other: whatever is in progress, another body is begun every millisecond, unless
 * HTTP_UPLOAD_BYTES_PER_MS arrive in that time. Announced bytes do not count there.
 *
 *     next_ms
 *        |      32 KiB arrive: + 1 ms      32 KiB arrive: + 1 ms
 *        v----------------------------->---------------------------->   begin one more when
 *     ---+-----------------------------+-----------------------------+  now_ms gets here
 *
 * In progress is from the first byte until the body is no longer needed. */
#ifndef TALLY_API_HTTP_HTTP_UPLOADS_H
#define TALLY_API_HTTP_HTTP_UPLOADS_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/list.h"

enum {
    /* Shorter bodies are not limited: there is at most one per connection, which costs more. */
    HTTP_UPLOAD_MIN_BYTES = 8 * 1024,
    /* Of bodies in progress; more than one turn of the loop can use. One body is always allowed. */
    HTTP_UPLOADS_MAX_BYTES = 16 * 1024 * 1024,
    /* A quarter of a gigabit a second. */
    HTTP_UPLOAD_BYTES_PER_MS = 32 * 1024,
    /* How long after the last bytes the line counts as free, however much arrived before. */
    HTTP_UPLOAD_QUIET_MS = 4
};

enum http_upload_state { HTTP_UPLOAD_NONE, HTTP_UPLOAD_WAITS, HTTP_UPLOAD_UNDER_WAY };

/* A member of the owner's record of a request, zeroed. */
struct http_upload {
    struct tally_list_node node; /* while it waits */
    enum http_upload_state state;
    size_t n_bytes;
};

struct http_uploads {
    struct tally_list waiting;
    size_t under_way_bytes;
    int64_t next_ms;    /* when one more may begin, whatever is in progress */
    size_t moved_bytes; /* less than a millisecond's, beyond next_ms */
};

void http_uploads_init(struct http_uploads *uploads);
/* The body of an upload that is NONE has begun to arrive. False = it waits from now on. */
bool http_uploads_begin(struct http_uploads *uploads, struct http_upload *upload, size_t n_bytes,
                        int64_t now_ms);
/* Bytes of the body have arrived. Does nothing for NONE. */
void http_uploads_receive(struct http_uploads *uploads, const struct http_upload *upload,
                          size_t n_bytes, int64_t now_ms);
/* The body is no longer needed, or will not arrive. Does nothing for NONE. */
void http_uploads_end(struct http_uploads *uploads, struct http_upload *upload);
/* The next waiting upload, which is in progress from now on; NULL = none may begin. */
struct http_upload *http_uploads_next(struct http_uploads *uploads, int64_t now_ms);
/* Milliseconds until http_uploads_next() is worth a call if nothing ends; -1 = never. */
int64_t http_uploads_wait_ms(const struct http_uploads *uploads, int64_t now_ms);

#endif

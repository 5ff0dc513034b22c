#include "api/http/http_uploads.h"

static bool may_begin(const struct http_uploads *uploads, size_t n_bytes, int64_t now_ms)
{
    return uploads->under_way_bytes == 0 ||
           n_bytes + uploads->under_way_bytes <= HTTP_UPLOADS_MAX_BYTES ||
           now_ms >= uploads->next_ms;
}

static struct http_upload *first_waiting(const struct http_uploads *uploads)
{
    return TALLY_LIST_FIRST(struct http_upload, node, &uploads->waiting);
}

static void set_under_way(struct http_uploads *uploads, struct http_upload *upload, int64_t now_ms)
{
    upload->state = HTTP_UPLOAD_UNDER_WAY;
    uploads->under_way_bytes += upload->n_bytes;
    uploads->next_ms = now_ms + 1;
    uploads->moved_bytes = 0;
}

void http_uploads_init(struct http_uploads *uploads)
{
    *uploads = (struct http_uploads){.under_way_bytes = 0};
    tally_list_init(&uploads->waiting);
}

bool http_uploads_begin(struct http_uploads *uploads, struct http_upload *upload, size_t n_bytes,
                        int64_t now_ms)
{
    *upload = (struct http_upload){.n_bytes = n_bytes};
    if (tally_list_is_empty(&uploads->waiting) && may_begin(uploads, n_bytes, now_ms)) {
        set_under_way(uploads, upload, now_ms);
        return true;
    }
    upload->state = HTTP_UPLOAD_WAITS;
    tally_list_append(&uploads->waiting, &upload->node);
    return false;
}

void http_uploads_receive(struct http_uploads *uploads, const struct http_upload *upload,
                          size_t n_bytes, int64_t now_ms)
{
    if (upload->state != HTTP_UPLOAD_UNDER_WAY) {
        return;
    }
    const size_t moved_bytes = uploads->moved_bytes + n_bytes;
    const int64_t from_ms = uploads->next_ms > now_ms ? uploads->next_ms : now_ms;
    const int64_t next_ms = from_ms + (int64_t)(moved_bytes / HTTP_UPLOAD_BYTES_PER_MS);
    const int64_t last_ms = now_ms + HTTP_UPLOAD_QUIET_MS;
    uploads->next_ms = next_ms < last_ms ? next_ms : last_ms;
    uploads->moved_bytes = moved_bytes % HTTP_UPLOAD_BYTES_PER_MS;
}

void http_uploads_end(struct http_uploads *uploads, struct http_upload *upload)
{
    if (upload->state == HTTP_UPLOAD_WAITS) {
        tally_list_remove(&upload->node);
    } else if (upload->state == HTTP_UPLOAD_UNDER_WAY) {
        uploads->under_way_bytes -= upload->n_bytes;
    }
    upload->state = HTTP_UPLOAD_NONE;
}

struct http_upload *http_uploads_next(struct http_uploads *uploads, int64_t now_ms)
{
    struct http_upload *upload = first_waiting(uploads);
    if (upload == NULL || !may_begin(uploads, upload->n_bytes, now_ms)) {
        return NULL;
    }
    tally_list_remove(&upload->node);
    set_under_way(uploads, upload, now_ms);
    return upload;
}

int64_t http_uploads_wait_ms(const struct http_uploads *uploads, int64_t now_ms)
{
    const struct http_upload *upload = first_waiting(uploads);
    if (upload == NULL) {
        return -1;
    }
    return may_begin(uploads, upload->n_bytes, now_ms) ? 0 : uploads->next_ms - now_ms;
}

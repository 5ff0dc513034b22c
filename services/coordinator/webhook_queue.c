#include "services/coordinator/webhook_queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "api/json/json.h"

static enum tally_status append_body(void *text, const struct tally_store_update *row,
                                     struct tally_error *err)
{
    const enum tally_status status = tally_buffer_append(text, row->body, row->n_body);
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "no memory for a notification");
}

static enum tally_status read_row(struct tally_store *store, int64_t job_key,
                                  struct tally_buffer *text, struct tally_error *err)
{
    return store->ops->update_list(store, job_key, TALLY_STORE_WEBHOOK_ROUND, append_body, text,
                                   err);
}

/* Replaces the row; an empty text removes it. */
static enum tally_status write_row(struct tally_store *store, int64_t job_key,
                                   const struct tally_buffer *text, struct tally_error *err)
{
    const int64_t round = TALLY_STORE_WEBHOOK_ROUND;
    const struct tally_store_update row = {
        .round = round, .body = text->data, .n_body = text->size};
    enum tally_status status = store->ops->updates_delete(store, job_key, round, round, err);
    return status == TALLY_OK && text->size > 0
               ? store->ops->update_insert(store, job_key, &row, err)
               : status;
}

static size_t n_lines(const struct tally_buffer *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->size; i++) {
        n += text->data[i] == '\n';
    }
    return n;
}

/* Removes n lines after the first, which is the URL; the URL too, if no other line remains. */
static void remove_lines(struct tally_buffer *text, size_t n)
{
    const uint8_t *end = text->data + text->size;
    uint8_t *first = text->size > 0 ? memchr(text->data, '\n', text->size) : NULL;
    uint8_t *rest = first != NULL ? first + 1 : text->data;
    for (; n > 0 && rest != NULL && rest < end; n--) {
        uint8_t *feed = memchr(rest, '\n', (size_t)(end - rest));
        rest = feed != NULL ? feed + 1 : text->data + text->size;
    }
    if (first == NULL || rest >= end) {
        text->size = 0;
    } else {
        memmove(first + 1, rest, (size_t)(end - rest));
        text->size -= (size_t)(rest - (first + 1));
    }
}

static enum tally_status append_notification(const struct tally_store_job *row,
                                             enum tally_job_status before, int64_t now_ms,
                                             struct tally_buffer *text)
{
    uint64_t word = 0;
    char id[24];
    (void)!getrandom(&word, sizeof word, 0);
    snprintf(id, sizeof id, "%016" PRIx64, word);
    struct tally_json *body = tally_json_object();
    const bool ok = tally_json_set_text(body, "id", id) &&
                    tally_json_set_text(body, "type", "job.status") &&
                    tally_json_set_integer(body, "time_ms", now_ms) &&
                    tally_json_set_text(body, "job_id", row->id) &&
                    tally_json_set_text(body, "name", row->name) &&
                    tally_json_set_text(body, "status", tally_job_status_name(row->status)) &&
                    tally_json_set_text(body, "previous_status", tally_job_status_name(before)) &&
                    tally_json_set_text_or_null(body, "reason", row->reason) &&
                    tally_json_set_integer(body, "round", row->progress.round) &&
                    tally_json_set_integer(body, "time_step", row->progress.time_step);
    enum tally_status status = ok ? tally_json_dump(body, 0, text) : TALLY_NO_MEMORY;
    tally_json_free(body);
    return status == TALLY_OK ? tally_buffer_append_text(text, "\n") : status;
}

enum tally_status webhook_queue_add(struct tally_store *store, const struct tally_store_job *row,
                                    enum tally_job_status before, const char *url, int64_t now_ms,
                                    struct tally_error *err)
{
    struct tally_buffer text = {0};
    enum tally_status status = read_row(store, row->key, &text, err);
    if (status == TALLY_OK && text.size == 0) {
        status = tally_buffer_printf(&text, "%s\n", url);
    }
    if (status == TALLY_OK && n_lines(&text) > WEBHOOK_QUEUE_MOST) {
        remove_lines(&text, n_lines(&text) - WEBHOOK_QUEUE_MOST);
    }
    status = status == TALLY_OK ? append_notification(row, before, now_ms, &text) : status;
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory for a notification");
    } else {
        status = write_row(store, row->key, &text, err);
    }
    tally_buffer_fini(&text);
    return status;
}

/* Appends line `index` of the text, if it has it. */
static enum tally_status take_line(const struct tally_buffer *text, size_t index,
                                   struct tally_buffer *out)
{
    size_t from = 0;
    for (size_t i = 0; i < text->size; i++) {
        if (text->data[i] != '\n') {
            continue;
        }
        if (index-- == 0) {
            return tally_buffer_append(out, text->data + from, i - from);
        }
        from = i + 1;
    }
    return TALLY_OK;
}

enum tally_status webhook_queue_first(struct tally_store *store, int64_t job_key,
                                      struct webhook_notification *ret_first,
                                      struct tally_error *err)
{
    struct webhook_notification first = {0};
    struct tally_buffer text = {0};
    enum tally_status status = read_row(store, job_key, &text, err);
    if (status == TALLY_OK && n_lines(&text) > 1) {
        status = take_line(&text, 0, &first.url);
        status = status == TALLY_OK ? tally_buffer_append(&first.url, "", 1) : status;
        status = status == TALLY_OK ? take_line(&text, 1, &first.body) : status;
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for a notification");
        }
    }
    tally_buffer_fini(&text);
    if (status != TALLY_OK) {
        webhook_notification_fini(&first);
        return status;
    }
    *ret_first = first;
    return TALLY_OK;
}

void webhook_notification_fini(struct webhook_notification *notification)
{
    tally_buffer_fini(&notification->url);
    tally_buffer_fini(&notification->body);
}

enum tally_status webhook_queue_remove(struct tally_store *store, int64_t job_key,
                                       const struct tally_buffer *body, size_t *ret_n,
                                       struct tally_error *err)
{
    struct tally_buffer text = {0}, line = {0};
    size_t n = 0;
    enum tally_status status = read_row(store, job_key, &text, err);
    const size_t n_all = n_lines(&text) > 1 ? n_lines(&text) - 1 : 0;
    if (status == TALLY_OK && body != NULL) {
        status = take_line(&text, 1, &line);
    }
    if (status == TALLY_OK) {
        const bool is_same = body != NULL && line.data != NULL && line.size == body->size &&
                             memcmp(line.data, body->data, line.size) == 0;
        n = body == NULL ? n_all : is_same ? 1 : 0;
        if (n > 0) {
            remove_lines(&text, n);
            status = write_row(store, job_key, &text, err);
        }
    }
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory for a notification");
    } else {
        *ret_n = n;
    }
    tally_buffer_fini(&text);
    tally_buffer_fini(&line);
    return status;
}

#include "api/worker_messages_direct.h"

#include <string.h>

#include "codec/base/utf8.h"
#include "worker.pb.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2 };

/* ---- Reading ---- */

/* What is left of a message; `ok` is false from the first surprise on. */
struct reader {
    const uint8_t *at, *end;
    bool ok;
};

static struct reader reader_of(struct tally_bytes bytes)
{
    return (struct reader){
        .at = bytes.data, .end = bytes.size > 0 ? bytes.data + bytes.size : bytes.data, .ok = true};
}

static uint64_t read_varint(struct reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (reader->at == reader->end) {
            break;
        }
        const uint8_t byte = *reader->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            reader->ok = reader->ok && (shift < 63 || byte <= 1);
            return value;
        }
    }
    reader->ok = false;
    return 0;
}

static uint32_t read_varint32(struct reader *reader)
{
    const uint64_t value = read_varint(reader);
    reader->ok = reader->ok && value <= UINT32_MAX;
    return (uint32_t)value;
}

static void read_fixed64(struct reader *reader, void *ret_value)
{
    if (reader->end - reader->at < 8) {
        reader->ok = false;
        return;
    }
    memcpy(ret_value, reader->at, 8); /* little-endian, as this machine */
    reader->at += 8;
}

static struct tally_bytes read_bytes(struct reader *reader)
{
    const uint64_t n = read_varint(reader);
    if (!reader->ok || n > (uint64_t)(reader->end - reader->at)) {
        reader->ok = false;
        return (struct tally_bytes){.size = 0};
    }
    const struct tally_bytes bytes = {.data = reader->at, .size = (size_t)n};
    reader->at += n;
    return bytes;
}

static void read_text(struct reader *reader, char *ret_text, size_t capacity)
{
    const struct tally_bytes bytes = read_bytes(reader);
    if (!reader->ok || bytes.size >= capacity ||
        (bytes.size > 0 && memchr(bytes.data, '\0', bytes.size) != NULL) ||
        tally_utf8_valid_prefix((const char *)bytes.data, bytes.size) != bytes.size) {
        reader->ok = false;
        return;
    }
    memcpy(ret_text, bytes.data, bytes.size);
    ret_text[bytes.size] = '\0';
}

/* The key of a field: number and wire type in one. */
#define KEY(number, wire_type) ((uint32_t)(number) << 3 | (wire_type))

static bool is_done(const struct reader *reader)
{
    return !reader->ok || reader->at == reader->end;
}

bool direct_read_update(struct tally_bytes bytes, struct tally_update *ret_message)
{
    struct reader reader = reader_of(bytes);
    struct tally_update *message = ret_message;
    message->session = message->payload_bits = 0;
    message->job_id[0] = message->failure[0] = message->refusal[0] = '\0';
    message->round = message->client = message->clipped = 0;
    message->payload = (struct tally_bytes){.size = 0};
    message->has_loss = message->tried = message->has_poll = false;
    message->poll = message->payload;
    message->loss = 0;
    while (!is_done(&reader)) {
        switch (read_varint32(&reader)) {
        case KEY(tally_v1_PostUpdateRequest_session_tag, WIRE_FIXED64):
            read_fixed64(&reader, &message->session);
            break;
        case KEY(tally_v1_PostUpdateRequest_job_id_tag, WIRE_LENGTH):
            read_text(&reader, message->job_id, sizeof message->job_id);
            break;
        case KEY(tally_v1_PostUpdateRequest_round_tag, WIRE_VARINT):
            message->round = read_varint32(&reader);
            break;
        case KEY(tally_v1_PostUpdateRequest_client_tag, WIRE_VARINT):
            message->client = read_varint32(&reader);
            break;
        case KEY(tally_v1_PostUpdateRequest_payload_tag, WIRE_LENGTH):
            message->payload = read_bytes(&reader);
            break;
        case KEY(tally_v1_PostUpdateRequest_payload_bits_tag, WIRE_VARINT):
            message->payload_bits = read_varint(&reader);
            break;
        case KEY(tally_v1_PostUpdateRequest_clipped_tag, WIRE_VARINT):
            message->clipped = read_varint32(&reader);
            break;
        case KEY(tally_v1_PostUpdateRequest_loss_tag, WIRE_FIXED64):
            message->has_loss = true;
            read_fixed64(&reader, &message->loss);
            break;
        case KEY(tally_v1_PostUpdateRequest_poll_tag, WIRE_LENGTH):
            message->has_poll = true;
            message->poll = read_bytes(&reader);
            break;
        default: /* a failure or a refusal, which are rare, too */
            return false;
        }
    }
    return reader.ok;
}

static void read_cursor(struct reader *reader, struct tally_cursor *ret_cursor)
{
    const struct tally_bytes bytes = read_bytes(reader);
    struct reader inner = reader_of(bytes);
    ret_cursor->job_id[0] = '\0';
    ret_cursor->iterate = 0;
    while (!is_done(&inner)) {
        switch (read_varint32(&inner)) {
        case KEY(tally_v1_Cursor_job_id_tag, WIRE_LENGTH):
            read_text(&inner, ret_cursor->job_id, sizeof ret_cursor->job_id);
            break;
        case KEY(tally_v1_Cursor_iterate_tag, WIRE_VARINT):
            ret_cursor->iterate = read_varint(&inner);
            break;
        default:
            inner.ok = false;
        }
    }
    reader->ok = reader->ok && inner.ok;
}

bool direct_read_poll_request(struct tally_bytes bytes, struct tally_poll_request *ret_message)
{
    struct reader reader = reader_of(bytes);
    ret_message->session = 0;
    ret_message->wait_ms = 0;
    ret_message->n_cursors = 0;
    while (!is_done(&reader)) {
        switch (read_varint32(&reader)) {
        case KEY(tally_v1_PollTaskRequest_session_tag, WIRE_FIXED64):
            read_fixed64(&reader, &ret_message->session);
            break;
        case KEY(tally_v1_PollTaskRequest_wait_ms_tag, WIRE_VARINT):
            ret_message->wait_ms = read_varint32(&reader);
            break;
        case KEY(tally_v1_PollTaskRequest_cursors_tag, WIRE_LENGTH):
            if (ret_message->n_cursors == TALLY_MAX_CURSORS) {
                return false;
            }
            read_cursor(&reader, &ret_message->cursors[ret_message->n_cursors++]);
            break;
        default:
            return false;
        }
    }
    return reader.ok;
}

/* ---- Writing ---- */

/* Writes, or only counts while `at` is NULL. */
struct writer {
    uint8_t *at;
    size_t n;
};

static void put(struct writer *writer, const void *bytes, size_t n)
{
    if (writer->at != NULL && n > 0) {
        memcpy(writer->at + writer->n, bytes, n);
    }
    writer->n += n;
}

static void put_varint(struct writer *writer, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[n++] = (uint8_t)(value | 0x80);
    }
    bytes[n++] = (uint8_t)value;
    put(writer, bytes, n);
}

/* Fields as proto3 has them: what is zero or empty is left out. */

static void put_integer(struct writer *writer, uint32_t number, uint64_t value)
{
    if (value != 0) {
        put_varint(writer, KEY(number, WIRE_VARINT));
        put_varint(writer, value);
    }
}

static void put_fixed64_always(struct writer *writer, uint32_t number, const void *value)
{
    put_varint(writer, KEY(number, WIRE_FIXED64));
    put(writer, value, 8);
}

static void put_fixed64(struct writer *writer, uint32_t number, const void *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    if (bits != 0) { /* -0.0 is not zero */
        put_fixed64_always(writer, number, value);
    }
}

static void put_length(struct writer *writer, uint32_t number, size_t n)
{
    put_varint(writer, KEY(number, WIRE_LENGTH));
    put_varint(writer, n);
}

static void put_bytes(struct writer *writer, uint32_t number, const void *bytes, size_t n)
{
    if (n > 0) {
        put_length(writer, number, n);
        put(writer, bytes, n);
    }
}

static void put_text(struct writer *writer, uint32_t number, const char *text)
{
    put_bytes(writer, number, text, strlen(text));
}

/* The function that writes a message, called twice: for its length, and to write. */
typedef void put_fn(struct writer *writer, const void *message);

static enum tally_status append(struct tally_buffer *out, put_fn *put_message, const void *message)
{
    struct writer writer = {.at = NULL};
    put_message(&writer, message);
    enum tally_status status = tally_buffer_reserve(out, writer.n);
    if (status == TALLY_OK && writer.n > 0) {
        writer = (struct writer){.at = out->data + out->size};
        put_message(&writer, message);
        out->size += writer.n;
    }
    return status;
}

static void put_submessage(struct writer *writer, uint32_t number, put_fn *put_message,
                           const void *message)
{
    struct writer counter = {.at = NULL};
    put_message(&counter, message);
    put_length(writer, number, counter.n);
    if (writer->at == NULL) {
        writer->n += counter.n;
    } else {
        put_message(writer, message);
    }
}

static void put_update(struct writer *writer, const void *of)
{
    const struct tally_update *message = of;
    put_fixed64(writer, tally_v1_PostUpdateRequest_session_tag, &message->session);
    put_text(writer, tally_v1_PostUpdateRequest_job_id_tag, message->job_id);
    put_integer(writer, tally_v1_PostUpdateRequest_round_tag, message->round);
    put_integer(writer, tally_v1_PostUpdateRequest_client_tag, message->client);
    put_bytes(writer, tally_v1_PostUpdateRequest_payload_tag, message->payload.data,
              message->payload.size);
    put_integer(writer, tally_v1_PostUpdateRequest_payload_bits_tag, message->payload_bits);
    put_integer(writer, tally_v1_PostUpdateRequest_clipped_tag, message->clipped);
    if (message->has_loss) {
        put_fixed64_always(writer, tally_v1_PostUpdateRequest_loss_tag, &message->loss);
    }
    put_text(writer, tally_v1_PostUpdateRequest_failure_tag, message->failure);
    put_text(writer, tally_v1_PostUpdateRequest_refusal_tag, message->refusal);
    put_integer(writer, tally_v1_PostUpdateRequest_tried_tag, message->tried);
    if (message->has_poll) {
        put_length(writer, tally_v1_PostUpdateRequest_poll_tag, message->poll.size);
        put(writer, message->poll.data, message->poll.size);
    }
}

enum tally_status direct_write_update(const struct tally_update *message, struct tally_buffer *out)
{
    return append(out, put_update, message);
}

static void put_update_response(struct writer *writer, const void *of)
{
    const struct tally_update_response *message = of;
    put_integer(writer, tally_v1_PostUpdateResponse_formula_bits_tag, message->formula_bits);
    put_integer(writer, tally_v1_PostUpdateResponse_payload_bits_tag, message->payload_bits);
    if (message->has_next) {
        put_length(writer, tally_v1_PostUpdateResponse_next_tag, message->next.size);
        put(writer, message->next.data, message->next.size);
    }
}

enum tally_status direct_write_update_response(const struct tally_update_response *message,
                                               struct tally_buffer *out)
{
    return append(out, put_update_response, message);
}

static void put_broadcast(struct writer *writer, const void *of)
{
    const struct tally_broadcast *message = of;
    put_integer(writer, tally_v1_Broadcast_iterate_tag, message->iterate);
    put_bytes(writer, tally_v1_Broadcast_payload_tag, message->payload.data, message->payload.size);
    put_integer(writer, tally_v1_Broadcast_payload_bits_tag, message->payload_bits);
    put_fixed64(writer, tally_v1_Broadcast_quantizer_step_tag, &message->quantizer_step);
    put_integer(writer, tally_v1_Broadcast_quantizer_intervals_tag, message->quantizer_intervals);
}

/* Packed. */
static void put_clients(struct writer *writer, const struct tally_task *task)
{
    struct writer counter = {.at = NULL};
    for (size_t i = 0; i < task->n_clients; i++) {
        put_varint(&counter, task->clients[i]);
    }
    if (task->n_clients > 0) {
        put_length(writer, tally_v1_Task_clients_tag, counter.n);
    }
    for (size_t i = 0; i < task->n_clients; i++) {
        put_varint(writer, task->clients[i]);
    }
}

static void put_task(struct writer *writer, const void *of)
{
    const struct tally_task *task = of;
    put_text(writer, tally_v1_Task_job_id_tag, task->job_id);
    put_bytes(writer, tally_v1_Task_job_document_tag, task->job_document.data,
              task->job_document.size);
    put_integer(writer, tally_v1_Task_round_tag, task->round);
    put_integer(writer, tally_v1_Task_stage_tag, task->stage);
    put_integer(writer, tally_v1_Task_iterate_tag, task->iterate);
    put_integer(writer, tally_v1_Task_samples_tag, task->samples);
    put_fixed64(writer, tally_v1_Task_quantizer_step_tag, &task->quantizer_step);
    put_integer(writer, tally_v1_Task_quantizer_intervals_tag, task->quantizer_intervals);
    put_text(writer, tally_v1_Task_encoding_tag, task->encoding);
    put_integer(writer, tally_v1_Task_evaluate_tag, task->evaluate);
    put_integer(writer, tally_v1_Task_deadline_ms_tag, task->deadline_ms);
    put_fixed64(writer, tally_v1_Task_x_checksum_tag, &task->x_checksum);
    put_clients(writer, task);
    for (size_t i = 0; i < task->n_broadcasts; i++) {
        put_submessage(writer, tally_v1_Task_broadcasts_tag, put_broadcast, &task->broadcasts[i]);
    }
    put_bytes(writer, tally_v1_Task_snapshot_tag, task->snapshot.data, task->snapshot.size);
    put_integer(writer, tally_v1_Task_cut_tag, task->cut);
}

static void put_task_response(struct writer *writer, const void *of)
{
    const struct tally_poll_response *message = of;
    put_submessage(writer, tally_v1_PollTaskResponse_task_tag, put_task, &message->task);
}

enum tally_status direct_write_task(const struct tally_poll_response *message,
                                    struct tally_buffer *out)
{
    return append(out, put_task_response, message);
}

/* worker_messages_encode: encodes worker messages; message_fields.h explains how. */
#include <assert.h>
#include <string.h>

#include <pb_encode.h>

#include "api/worker/message_fields.h"

/* Writes the fields of a message, or counts their bytes if the stream is for sizing. Returns false
 * if the stream is full. */
typedef bool put_fn(pb_ostream_t *stream, const void *message);

static bool write_in_place(put_fn *put, const void *message, struct tally_buffer *out)
{
    const size_t room = out->capacity - out->size;
    pb_ostream_t stream = pb_ostream_from_buffer(room > 0 ? out->data + out->size : NULL, room);
    if (room == 0 || !put(&stream, message)) {
        return false;
    }
    out->size += stream.bytes_written;
    return true;
}

/* Encodes straight into `out`, which usually has enough room. Only otherwise does it compute the
 * length first. */
static enum tally_status encode_but(put_fn *put, const void *message, size_t n_apart,
                                    struct tally_buffer *out)
{
    if (write_in_place(put, message, out)) {
        return TALLY_OK;
    }
    pb_ostream_t sizing = PB_OSTREAM_SIZING;
    enum tally_status status = put(&sizing, message)
                                   ? tally_buffer_reserve(out, sizing.bytes_written - n_apart)
                                   : TALLY_INTERNAL; /* sizing streams are never full */
    if (status != TALLY_OK || sizing.bytes_written == 0) {
        return status;
    }
    return write_in_place(put, message, out) ? TALLY_OK : TALLY_INTERNAL;
}

static enum tally_status encode(put_fn *put, const void *message, struct tally_buffer *out)
{
    return encode_but(put, message, 0, out);
}

/* Fields in the form of proto3, which omits zero and empty values. */

static bool put_varint(pb_ostream_t *stream, uint32_t tag, uint64_t value)
{
    return value == 0 ||
           (pb_encode_tag(stream, PB_WT_VARINT, tag) && pb_encode_varint(stream, value));
}

static bool put_double(pb_ostream_t *stream, uint32_t tag, double value)
{
    return pb_encode_tag(stream, PB_WT_64BIT, tag) && pb_encode_fixed64(stream, &value);
}

static bool put_fixed64(pb_ostream_t *stream, uint32_t tag, uint64_t value)
{
    return value == 0 ||
           (pb_encode_tag(stream, PB_WT_64BIT, tag) && pb_encode_fixed64(stream, &value));
}

/* -0.0 does not count as zero. */
static bool put_nonzero_double(pb_ostream_t *stream, uint32_t tag, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == 0 || put_double(stream, tag, value);
}

/* An encoded message, which is written even if it is empty. */
static bool put_encoded(pb_ostream_t *stream, uint32_t tag, struct tally_bytes bytes)
{
    return pb_encode_tag(stream, PB_WT_STRING, tag) &&
           pb_encode_string(stream, bytes.data, bytes.size);
}

static bool put_bytes(pb_ostream_t *stream, uint32_t tag, struct tally_bytes bytes)
{
    return bytes.size == 0 || put_encoded(stream, tag, bytes);
}

static bool put_text(pb_ostream_t *stream, uint32_t tag, const char *text)
{
    return put_bytes(stream, tag, (struct tally_bytes){(const uint8_t *)text, strlen(text)});
}

static bool put_message(pb_ostream_t *stream, uint32_t tag, put_fn *put, const void *message)
{
    pb_ostream_t sizing = PB_OSTREAM_SIZING;
    return put(&sizing, message) && pb_encode_tag(stream, PB_WT_STRING, tag) &&
           pb_encode_varint(stream, sizing.bytes_written) &&
           (stream->callback == NULL ? pb_write(stream, NULL, sizing.bytes_written)
                                     : put(stream, message));
}

static bool put_array(pb_ostream_t *stream, uint32_t tag, put_fn *put, const void *array, size_t n,
                      size_t element_size)
{
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = put_message(stream, tag, put, (const char *)array + i * element_size);
    }
    return ok;
}

/* A chain of `&&`, one link for each line of a field list. */
#define PUT(a, allocation, rule, type, name, tag) &&PUT_##rule##_##type(name, tag)
#define PUT_SINGULAR_UINT32(name, tag)            put_varint(stream, tag, message->name)
#define PUT_SINGULAR_UINT64(name, tag)            put_varint(stream, tag, message->name)
#define PUT_SINGULAR_BOOL(name, tag)              put_varint(stream, tag, message->name)
#define PUT_SINGULAR_FIXED64(name, tag)           put_fixed64(stream, tag, message->name)
#define PUT_SINGULAR_DOUBLE(name, tag)            put_nonzero_double(stream, tag, message->name)
#define PUT_SINGULAR_STRING(name, tag)            put_text(stream, tag, message->name)
#define PUT_SINGULAR_BYTES(name, tag)             put_bytes(stream, tag, message->name)
#define PUT_OPTIONAL_DOUBLE(name, tag)                                                             \
    (!message->has_##name || put_double(stream, tag, message->name))
#define PUT_OPTIONAL_MESSAGE(name, tag) put_##name(stream, tag, message)
#define PUT_REPEATED_MESSAGE(name, tag) put_##name(stream, tag, message)
#define PUT_REPEATED_UINT32(name, tag)  put_##name(stream, tag, message)

/* put_TYPE_fields(), a put_fn, for a message of our type `struct_type`. */
#define DEFINE_PUT(type, struct_type)                                                              \
    static bool put_##type##_fields(pb_ostream_t *stream, const void *of)                          \
    {                                                                                              \
        const struct_type *message = of;                                                           \
        return true tally_v1_##type##_FIELDLIST(PUT, a);                                           \
    }

DEFINE_PUT(HeldClient, struct tally_held_client)

static bool put_held(pb_ostream_t *stream, uint32_t tag, const struct tally_join_request *message)
{
    return put_array(stream, tag, put_HeldClient_fields, message->held, message->n_held,
                     sizeof message->held[0]);
}

DEFINE_PUT(JoinRequest, struct tally_join_request)
DEFINE_PUT(JoinResponse, struct tally_join_response)
DEFINE_PUT(Cursor, struct tally_cursor)

static bool put_cursors(pb_ostream_t *stream, uint32_t tag,
                        const struct tally_poll_request *message)
{
    return put_array(stream, tag, put_Cursor_fields, message->cursors, message->n_cursors,
                     sizeof message->cursors[0]);
}

DEFINE_PUT(Undeliverable, struct tally_undeliverable)

static bool put_undeliverable(pb_ostream_t *stream, uint32_t tag,
                              const struct tally_poll_request *message)
{
    return message->undeliverable.job_id[0] == '\0' ||
           put_message(stream, tag, put_Undeliverable_fields, &message->undeliverable);
}

DEFINE_PUT(PollTaskRequest, struct tally_poll_request)

/* Packed, as in proto3. */
static bool put_clients(pb_ostream_t *stream, uint32_t tag, const struct tally_task *task)
{
    if (task->n_clients == 0) {
        return true;
    }
    pb_ostream_t sizing = PB_OSTREAM_SIZING;
    bool ok = true;
    for (size_t i = 0; ok && i < task->n_clients; i++) {
        ok = pb_encode_varint(&sizing, task->clients[i]);
    }
    ok = ok && pb_encode_tag(stream, PB_WT_STRING, tag) &&
         pb_encode_varint(stream, sizing.bytes_written);
    for (size_t i = 0; ok && i < task->n_clients; i++) {
        ok = pb_encode_varint(stream, task->clients[i]);
    }
    return ok;
}

DEFINE_PUT(Broadcast, struct tally_broadcast)

static bool put_broadcasts(pb_ostream_t *stream, uint32_t tag, const struct tally_task *task)
{
    return put_array(stream, tag, put_Broadcast_fields, task->broadcasts, task->n_broadcasts,
                     sizeof task->broadcasts[0]);
}

DEFINE_PUT(ClientShift, struct tally_client_shift)

static bool put_shifts(pb_ostream_t *stream, uint32_t tag, const struct tally_task *task)
{
    return put_array(stream, tag, put_ClientShift_fields, task->shifts, task->n_shifts,
                     sizeof task->shifts[0]);
}

DEFINE_PUT(Task, struct tally_task)

static bool is_own(uint32_t tag)
{
    return tag == tally_v1_Task_clients_tag || tag == tally_v1_Task_shifts_tag ||
           tag == tally_v1_Task_deadline_ms_tag;
}

#define PUT_SHARED(a, allocation, rule, type, name, tag)                                           \
    &&(is_own(tag) || PUT_##rule##_##type(name, tag))

static bool put_shared_fields(pb_ostream_t *stream, const void *of)
{
    const struct tally_task *message = of;
    return true tally_v1_Task_FIELDLIST(PUT_SHARED, a);
}

/* The shared fields come last. So they end the response and need not be copied into it. */
static bool put_own_and_shared(pb_ostream_t *stream, const void *of)
{
    const struct tally_task *task = of;
    const bool is_sizing = stream->callback == NULL;
    return put_varint(stream, tally_v1_Task_deadline_ms_tag, task->deadline_ms) &&
           put_clients(stream, tally_v1_Task_clients_tag, task) &&
           put_shifts(stream, tally_v1_Task_shifts_tag, task) &&
           ((task->shared_is_apart && !is_sizing) ||
            pb_write(stream, task->shared.data, task->shared.size));
}

static bool put_task(pb_ostream_t *stream, uint32_t tag, const struct tally_poll_response *message)
{
    const struct tally_task *task = &message->task;
    return message->kind != TALLY_POLL_TASK ||
           put_message(stream, tag, task->shared.size > 0 ? put_own_and_shared : put_Task_fields,
                       task);
}

DEFINE_PUT(PollTaskResponse_Idle, struct tally_poll_response)

static bool put_idle(pb_ostream_t *stream, uint32_t tag, const struct tally_poll_response *message)
{
    return message->kind != TALLY_POLL_IDLE ||
           put_message(stream, tag, put_PollTaskResponse_Idle_fields, message);
}

DEFINE_PUT(PollTaskResponse_Released, struct released)

static bool put_released(pb_ostream_t *stream, uint32_t tag,
                         const struct tally_poll_response *message)
{
    struct released released;
    memcpy(released.job_id, message->released_job_id, sizeof released.job_id);
    return message->kind != TALLY_POLL_RELEASED ||
           put_message(stream, tag, put_PollTaskResponse_Released_fields, &released);
}

DEFINE_PUT(PollTaskResponse, struct tally_poll_response)

DEFINE_PUT(Metric, struct tally_metric)

static bool put_metrics(pb_ostream_t *stream, uint32_t tag, const struct tally_update *message)
{
    return put_array(stream, tag, put_Metric_fields, message->metrics, message->n_metrics,
                     sizeof message->metrics[0]);
}

static bool put_evaluation(pb_ostream_t *stream, uint32_t tag, const struct tally_update *message)
{
    return put_array(stream, tag, put_Metric_fields, message->evaluation, message->n_evaluation,
                     sizeof message->evaluation[0]);
}

DEFINE_PUT(ClientUpdate, struct tally_update)

static bool put_one_update(pb_ostream_t *stream, const void *of)
{
    return put_message(stream, tally_v1_PostUpdateRequest_updates_tag, put_ClientUpdate_fields, of);
}

static bool put_poll(pb_ostream_t *stream, uint32_t tag, const struct tally_update_request *message)
{
    return !message->has_poll || put_encoded(stream, tag, message->poll);
}

/* The updates of a request, and the results of its response, are written one by one, by
 * tally_update_request_add() and tally_update_result_add(). */
#define put_updates(stream, tag, message) true
#define put_results(stream, tag, message) true

DEFINE_PUT(PostUpdateRequest, struct tally_update_request)
DEFINE_PUT(UpdateResult, struct tally_update_result)

static bool put_one_result(pb_ostream_t *stream, const void *of)
{
    return put_message(stream, tally_v1_PostUpdateResponse_results_tag, put_UpdateResult_fields,
                       of);
}

/* The response to updates, and the response to the poll that came with them. */
struct double_response {
    uint64_t formula_bits, payload_bits;
    const struct tally_poll_response *next;
};

static bool put_next(pb_ostream_t *stream, uint32_t tag, const struct double_response *message)
{
    return message->next == NULL ||
           put_message(stream, tag, put_PollTaskResponse_fields, message->next);
}

DEFINE_PUT(PostUpdateResponse, struct double_response)
DEFINE_PUT(ProgressRequest, struct tally_progress_request)
DEFINE_PUT(DescribeRequest, struct tally_describe_request)
DEFINE_PUT(LeaveRequest, struct leave_request)

enum tally_status tally_join_request_encode(const struct tally_join_request *message,
                                            struct tally_buffer *out)
{
    assert(message->n_held <= TALLY_MAX_SLOTS);
    return encode(put_JoinRequest_fields, message, out);
}

enum tally_status tally_join_response_encode(const struct tally_join_response *message,
                                             struct tally_buffer *out)
{
    return encode(put_JoinResponse_fields, message, out);
}

enum tally_status tally_poll_request_encode(const struct tally_poll_request *message,
                                            struct tally_buffer *out)
{
    assert(message->n_cursors <= TALLY_MAX_CURSORS);
    return encode(put_PollTaskRequest_fields, message, out);
}

static void check_task(const struct tally_poll_response *message)
{
    assert(message->kind != TALLY_POLL_TASK ||
           (message->task.n_clients <= TALLY_MAX_SLOTS &&
            message->task.n_shifts <= TALLY_MAX_SLOTS &&
            message->task.n_broadcasts <= TALLY_MAX_BROADCASTS));
    (void)message;
}

static size_t n_apart(const struct tally_poll_response *message)
{
    const bool is_apart = message->kind == TALLY_POLL_TASK && message->task.shared_is_apart;
    return is_apart ? message->task.shared.size : 0;
}

enum tally_status tally_poll_response_encode(const struct tally_poll_response *message,
                                             struct tally_buffer *out)
{
    check_task(message);
    return encode_but(put_PollTaskResponse_fields, message, n_apart(message), out);
}

enum tally_status tally_task_encode_shared(const struct tally_task *task, struct tally_buffer *out)
{
    return encode(put_shared_fields, task, out);
}

enum tally_status tally_update_response_encode(const struct tally_update_response *message,
                                               const struct tally_poll_response *next,
                                               struct tally_buffer *out)
{
    if (next != NULL) {
        check_task(next);
    }
    const struct double_response both = {
        .formula_bits = message->formula_bits, .payload_bits = message->payload_bits, .next = next};
    return encode_but(put_PostUpdateResponse_fields, &both, next != NULL ? n_apart(next) : 0, out);
}

void tally_session_write_first(uint64_t session, uint8_t ret_field[TALLY_SESSION_FIELD_BYTES])
{
    ret_field[0] = tally_v1_PostUpdateRequest_session_tag << 3 | PB_WT_64BIT;
    for (int i = 0; i < 8; i++) {
        ret_field[1 + i] = (uint8_t)(session >> 8 * i);
    }
}

enum tally_status tally_update_request_add(const struct tally_update *update,
                                           struct tally_buffer *out)
{
    return encode(put_one_update, update, out);
}

enum tally_status tally_update_request_end(const struct tally_update_request *message,
                                           struct tally_buffer *out)
{
    return encode(put_PostUpdateRequest_fields, message, out);
}

enum tally_status tally_update_result_add(const struct tally_update_result *result,
                                          struct tally_buffer *out)
{
    return encode(put_one_result, result, out);
}

enum tally_status tally_progress_request_encode(const struct tally_progress_request *message,
                                                struct tally_buffer *out)
{
    return encode(put_ProgressRequest_fields, message, out);
}

enum tally_status tally_describe_request_encode(const struct tally_describe_request *message,
                                                struct tally_buffer *out)
{
    return encode(put_DescribeRequest_fields, message, out);
}

enum tally_status tally_leave_request_encode(uint64_t session, struct tally_buffer *out)
{
    return encode(put_LeaveRequest_fields, &(struct leave_request){.session = session}, out);
}

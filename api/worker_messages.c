/* Encoding lets nanopb write everything; what repeats or is large goes through its field callbacks.
 *
 * Decoding walks a message field by field and gives nanopb one field at a time, which comes to the
 * same by the rule that concatenated messages merge. So a failure is known by its field's name, and
 * fields that nanopb would hand to a callback are taken here directly, with their wire type, which
 * a callback cannot see. */
#include "api/worker_messages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <pb_common.h>
#include <pb_decode.h>
#include <pb_encode.h>

#include "codec/base/utf8.h"
#include "worker.pb.h"

static_assert(sizeof((tally_v1_Task *)0)->job_id == TALLY_MESSAGE_JOB_ID_CAPACITY,
              "worker.options: job_id");
static_assert(sizeof((tally_v1_JoinRequest *)0)->name == TALLY_WORKER_NAME_CAPACITY,
              "worker.options: name");
static_assert(sizeof((tally_v1_Task *)0)->encoding == TALLY_ENCODING_NAME_CAPACITY,
              "worker.options: encoding");
static_assert(sizeof((tally_v1_PostUpdateRequest *)0)->failure == TALLY_FAILURE_CAPACITY,
              "worker.options: failure");
static_assert(sizeof((tally_v1_PostUpdateRequest *)0)->refusal == TALLY_FAILURE_CAPACITY,
              "worker.options: refusal");

/* ---- Encoding ---- */

static enum tally_status encode(const pb_msgdesc_t *descriptor, const void *raw,
                                struct tally_buffer *out)
{
    /* Mostly there is room enough, and the length need not be known before. */
    size_t size = out->capacity - out->size;
    pb_ostream_t stream = pb_ostream_from_buffer(size > 0 ? out->data + out->size : NULL, size);
    if (size > 0 && pb_encode(&stream, descriptor, raw)) {
        out->size += stream.bytes_written;
        return TALLY_OK;
    }
    if (!pb_get_encoded_size(&size, descriptor, raw)) {
        return TALLY_INTERNAL; /* a text without NUL: a broken caller */
    }
    enum tally_status status = tally_buffer_reserve(out, size);
    if (status != TALLY_OK || size == 0) {
        return status;
    }
    stream = pb_ostream_from_buffer(out->data + out->size, size);
    if (!pb_encode(&stream, descriptor, raw)) {
        return TALLY_INTERNAL;
    }
    out->size += size;
    return TALLY_OK;
}

/* A field callback that calls `write` with what `value` points to. */
static pb_callback_t with(bool (*write)(pb_ostream_t *, const pb_field_t *, void *const *),
                          const void *value)
{
    pb_callback_t callback = {.funcs.encode = write, .arg = (void *)value};
    return callback;
}

static bool write_submessage(pb_ostream_t *stream, const pb_field_t *field,
                             const pb_msgdesc_t *descriptor, const void *raw)
{
    return pb_encode_tag_for_field(stream, field) && pb_encode_submessage(stream, descriptor, raw);
}

static bool write_bytes(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_bytes *bytes = *arg;
    return bytes->size == 0 || (pb_encode_tag_for_field(stream, field) &&
                                pb_encode_string(stream, bytes->data, bytes->size));
}

/* A message that is encoded already: there, even if it is empty. */
static bool write_encoded(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_bytes *bytes = *arg;
    return bytes == NULL || (pb_encode_tag_for_field(stream, field) &&
                             pb_encode_string(stream, bytes->data, bytes->size));
}

static bool write_held(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_join_request *message = *arg;
    bool ok = true;
    for (size_t i = 0; ok && i < message->n_held; i++) {
        tally_v1_HeldClient raw = {.client = message->held[i].client};
        memcpy(raw.job_id, message->held[i].job_id, sizeof raw.job_id);
        ok = write_submessage(stream, field, tally_v1_HeldClient_fields, &raw);
    }
    return ok;
}

static bool write_cursors(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_poll_request *message = *arg;
    bool ok = true;
    for (size_t i = 0; ok && i < message->n_cursors; i++) {
        tally_v1_Cursor raw = {.iterate = message->cursors[i].iterate};
        memcpy(raw.job_id, message->cursors[i].job_id, sizeof raw.job_id);
        ok = write_submessage(stream, field, tally_v1_Cursor_fields, &raw);
    }
    return ok;
}

/* Packed, as proto3 has it. */
static bool write_clients(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_task *task = *arg;
    if (task->n_clients == 0) {
        return true;
    }
    pb_ostream_t sizing = PB_OSTREAM_SIZING;
    bool ok = true;
    for (size_t i = 0; ok && i < task->n_clients; i++) {
        ok = pb_encode_varint(&sizing, task->clients[i]);
    }
    ok = ok && pb_encode_tag(stream, PB_WT_STRING, field->tag) &&
         pb_encode_varint(stream, sizing.bytes_written);
    for (size_t i = 0; ok && i < task->n_clients; i++) {
        ok = pb_encode_varint(stream, task->clients[i]);
    }
    return ok;
}

static bool write_broadcasts(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_task *task = *arg;
    bool ok = true;
    for (size_t i = 0; ok && i < task->n_broadcasts; i++) {
        const struct tally_broadcast *broadcast = &task->broadcasts[i];
        tally_v1_Broadcast raw = {.iterate = broadcast->iterate,
                                  .payload = with(write_bytes, &broadcast->payload),
                                  .payload_bits = broadcast->payload_bits,
                                  .quantizer_step = broadcast->quantizer_step,
                                  .quantizer_intervals = broadcast->quantizer_intervals};
        ok = write_submessage(stream, field, tally_v1_Broadcast_fields, &raw);
    }
    return ok;
}

static bool write_task(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_task *task = *arg;
    tally_v1_Task raw = {.job_document = with(write_bytes, &task->job_document),
                         .round = task->round,
                         .stage = task->stage,
                         .iterate = task->iterate,
                         .samples = task->samples,
                         .quantizer_step = task->quantizer_step,
                         .quantizer_intervals = task->quantizer_intervals,
                         .evaluate = task->evaluate,
                         .cut = task->cut,
                         .deadline_ms = task->deadline_ms,
                         .x_checksum = task->x_checksum,
                         .clients = with(write_clients, task),
                         .broadcasts = with(write_broadcasts, task),
                         .snapshot = with(write_bytes, &task->snapshot)};
    memcpy(raw.job_id, task->job_id, sizeof raw.job_id);
    memcpy(raw.encoding, task->encoding, sizeof raw.encoding);
    return write_submessage(stream, field, tally_v1_Task_fields, &raw);
}

static bool write_idle(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_poll_response *message = *arg;
    tally_v1_PollTaskResponse_Idle raw = {.jobs_pending = message->jobs_pending};
    return write_submessage(stream, field, tally_v1_PollTaskResponse_Idle_fields, &raw);
}

static bool write_released(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct tally_poll_response *message = *arg;
    tally_v1_PollTaskResponse_Released raw = {.job_id = ""};
    memcpy(raw.job_id, message->released_job_id, sizeof raw.job_id);
    return write_submessage(stream, field, tally_v1_PollTaskResponse_Released_fields, &raw);
}

enum tally_status tally_join_request_encode(const struct tally_join_request *message,
                                            struct tally_buffer *out)
{
    assert(message->n_held <= TALLY_MAX_SLOTS);
    tally_v1_JoinRequest raw = {
        .slots = message->slots, .held = with(write_held, message), .format = message->format};
    memcpy(raw.name, message->name, sizeof raw.name);
    memcpy(raw.job_id, message->job_id, sizeof raw.job_id);
    return encode(tally_v1_JoinRequest_fields, &raw, out);
}

enum tally_status tally_join_response_encode(const struct tally_join_response *message,
                                             struct tally_buffer *out)
{
    tally_v1_JoinResponse raw = {.session = message->session,
                                 .session_timeout_ms = message->session_timeout_ms,
                                 .format = message->format,
                                 .max_wait_ms = message->max_wait_ms};
    return encode(tally_v1_JoinResponse_fields, &raw, out);
}

enum tally_status tally_poll_request_encode(const struct tally_poll_request *message,
                                            struct tally_buffer *out)
{
    assert(message->n_cursors <= TALLY_MAX_CURSORS);
    tally_v1_PollTaskRequest raw = {.session = message->session,
                                    .wait_ms = message->wait_ms,
                                    .cursors = with(write_cursors, message)};
    return encode(tally_v1_PollTaskRequest_fields, &raw, out);
}

enum tally_status tally_poll_response_encode(const struct tally_poll_response *message,
                                             struct tally_buffer *out)
{
    tally_v1_PollTaskResponse raw = tally_v1_PollTaskResponse_init_zero;
    switch (message->kind) {
    case TALLY_POLL_IDLE:
        raw.idle = with(write_idle, message);
        break;
    case TALLY_POLL_TASK:
        assert(message->task.n_clients <= TALLY_MAX_SLOTS);
        assert(message->task.n_broadcasts <= TALLY_MAX_BROADCASTS);
        raw.task = with(write_task, &message->task);
        break;
    case TALLY_POLL_RELEASED:
        raw.released = with(write_released, message);
        break;
    }
    return encode(tally_v1_PollTaskResponse_fields, &raw, out);
}

enum tally_status tally_update_encode(const struct tally_update *message, struct tally_buffer *out)
{
    tally_v1_PostUpdateRequest raw = {
        .session = message->session,
        .round = message->round,
        .client = message->client,
        .payload = with(write_bytes, &message->payload),
        .payload_bits = message->payload_bits,
        .clipped = message->clipped,
        .has_loss = message->has_loss,
        .loss = message->loss,
        .tried = message->tried,
        .poll = with(write_encoded, message->has_poll ? &message->poll : NULL)};
    memcpy(raw.job_id, message->job_id, sizeof raw.job_id);
    memcpy(raw.failure, message->failure, sizeof raw.failure);
    memcpy(raw.refusal, message->refusal, sizeof raw.refusal);
    return encode(tally_v1_PostUpdateRequest_fields, &raw, out);
}

enum tally_status tally_update_response_encode(const struct tally_update_response *message,
                                               struct tally_buffer *out)
{
    tally_v1_PostUpdateResponse raw = {
        .formula_bits = message->formula_bits,
        .payload_bits = message->payload_bits,
        .next = with(write_encoded, message->has_next ? &message->next : NULL)};
    return encode(tally_v1_PostUpdateResponse_fields, &raw, out);
}

enum tally_status tally_leave_request_encode(uint64_t session, struct tally_buffer *out)
{
    tally_v1_LeaveRequest raw = {.session = session};
    return encode(tally_v1_LeaveRequest_fields, &raw, out);
}

/* ---- Decoding ---- */

/* A message type: nanopb's descriptor, and the names of the fields, which nanopb does not keep. */
struct schema {
    const pb_msgdesc_t *descriptor;
    const char *(*name_of)(uint32_t tag); /* "" if unknown */
};

#define FIELD_NAME(a, allocation, rule, type, name, tag)                                           \
    case tag:                                                                                      \
        return #name;
#define DEFINE_SCHEMA(message)                                                                     \
    static const char *message##_name_of(uint32_t tag)                                             \
    {                                                                                              \
        switch (tag) {                                                                             \
            tally_v1_##message##_FIELDLIST(FIELD_NAME, a) default : return "";                     \
        }                                                                                          \
    }                                                                                              \
    static const struct schema message##_SCHEMA = {&tally_v1_##message##_msg, message##_name_of}

DEFINE_SCHEMA(Cursor);
DEFINE_SCHEMA(HeldClient);
DEFINE_SCHEMA(JoinRequest);
DEFINE_SCHEMA(JoinResponse);
DEFINE_SCHEMA(PollTaskRequest);
DEFINE_SCHEMA(Broadcast);
DEFINE_SCHEMA(Task);
DEFINE_SCHEMA(PollTaskResponse);
DEFINE_SCHEMA(PollTaskResponse_Idle);
DEFINE_SCHEMA(PollTaskResponse_Released);
DEFINE_SCHEMA(PostUpdateRequest);
DEFINE_SCHEMA(PostUpdateResponse);
DEFINE_SCHEMA(LeaveRequest);

/* Takes one value of a field that worker.options makes a callback: the content of its length, or
 * the bytes of one varint. */
typedef enum tally_status taker(void *into, uint32_t tag, struct tally_bytes value,
                                struct tally_error *err);

/* nanopb's stream over a buffer: `state` is its read pointer (pb_istream_from_buffer). */
static const uint8_t *position(const pb_istream_t *stream)
{
    return stream->state;
}

static enum tally_status malformed(const pb_istream_t *stream, struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, NULL, "%s", PB_GET_ERROR(stream));
}

/* nanopb alone would take a NUL within a text and anything but UTF-8. */
static enum tally_status check_text(struct tally_bytes value, size_t capacity,
                                    struct tally_error *err)
{
    if (value.size >= capacity) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "text of %zu bytes, at most %zu", value.size,
                          capacity - 1);
    }
    if (value.size > 0 && memchr(value.data, '\0', value.size) != NULL) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "text contains NUL");
    }
    if (tally_utf8_valid_prefix((const char *)value.data, value.size) != value.size) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "text is not UTF-8");
    }
    return TALLY_OK;
}

/* The value at `stream`, which has been skipped once and so is whole. */
static struct tally_bytes value_at(pb_istream_t stream, pb_wire_type_t wire_type)
{
    uint32_t size = 0;
    if (wire_type == PB_WT_STRING) {
        bool whole = pb_decode_varint32(&stream, &size);
        assert(whole && size == stream.bytes_left);
        (void)whole;
    }
    return (struct tally_bytes){.data = position(&stream), .size = stream.bytes_left};
}

/* Decodes a field of `schema` that spans `field`, its value being `value`. */
static enum tally_status decode_field(pb_istream_t field, pb_istream_t value,
                                      pb_wire_type_t wire_type, pb_field_iter_t *known, void *raw,
                                      taker *take, void *into, struct tally_error *err)
{
    pb_type_t type = PB_LTYPE(known->type);
    bool has_length = wire_type == PB_WT_STRING;
    bool must_have_length =
        type == PB_LTYPE_STRING || type == PB_LTYPE_BYTES || type == PB_LTYPE_SUBMESSAGE;
    if (PB_ATYPE(known->type) == PB_ATYPE_CALLBACK) {
        bool may_be_varint = type == PB_LTYPE_UVARINT && wire_type == PB_WT_VARINT;
        if (must_have_length ? !has_length : !has_length && !may_be_varint) {
            return tally_fail(err, TALLY_MALFORMED, NULL, "wrong wire type");
        }
        assert(take != NULL);
        return take(into, known->tag, value_at(value, wire_type), err);
    }
    if (type == PB_LTYPE_STRING && has_length) {
        enum tally_status status = check_text(value_at(value, wire_type), known->data_size, err);
        if (status != TALLY_OK) {
            return status;
        }
    }
    if (!pb_decode_ex(&field, known->descriptor, raw, PB_DECODE_NOINIT)) {
        return malformed(&field, err);
    }
    return TALLY_OK;
}

/* `known` stands at the field before, or NULL if the type has no fields. */
static enum tally_status decode_next_field(pb_istream_t *stream, const struct schema *schema,
                                           pb_field_iter_t *known, void *raw, taker *take,
                                           void *into, struct tally_error *err)
{
    pb_istream_t field = *stream;
    pb_wire_type_t wire_type;
    uint32_t tag;
    bool eof;
    if (!pb_decode_tag(stream, &wire_type, &tag, &eof) || tag == 0) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "invalid field tag");
    }
    pb_istream_t value = *stream;
    enum tally_status status = TALLY_OK;
    if (!pb_skip_field(stream, wire_type)) {
        status = malformed(stream, err);
    } else {
        field.bytes_left -= stream->bytes_left;
        value.bytes_left -= stream->bytes_left;
        if (known != NULL && pb_field_iter_find(known, tag)) {
            status = decode_field(field, value, wire_type, known, raw, take, into, err);
        }
    }
    if (status != TALLY_OK && schema->name_of(tag)[0] != '\0') {
        tally_error_in_field(err, schema->name_of(tag));
    }
    return status;
}

/* Decodes `bytes` into the zeroed nanopb struct `raw`; callback fields go to `take` with `into`
 * (NULL if the type has none). */
static enum tally_status decode(struct tally_bytes bytes, const struct schema *schema, void *raw,
                                taker *take, void *into, struct tally_error *err)
{
    pb_istream_t stream = pb_istream_from_buffer(bytes.data, bytes.size);
    pb_field_iter_t known;
    const bool has_fields = pb_field_iter_begin(&known, schema->descriptor, raw);
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && stream.bytes_left > 0) {
        status =
            decode_next_field(&stream, schema, has_fields ? &known : NULL, raw, take, into, err);
    }
    return status;
}

static enum tally_status too_many(size_t limit, struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, NULL, "more than %zu elements", limit);
}

/* Makes room for element `n` of a heap array: at powers of two it doubles. */
static enum tally_status grow(void **array, size_t n, size_t element_size, struct tally_error *err)
{
    if (n >= TALLY_MAX_SLOTS) {
        return too_many(TALLY_MAX_SLOTS, err);
    }
    if ((n & (n - 1)) != 0) {
        return TALLY_OK;
    }
    void *grown = realloc(*array, (n == 0 ? 1 : 2 * n) * element_size);
    if (grown == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu elements", 2 * n);
    }
    *array = grown;
    return TALLY_OK;
}

static enum tally_status take_held(void *into, uint32_t tag, struct tally_bytes value,
                                   struct tally_error *err)
{
    assert(tag == tally_v1_JoinRequest_held_tag);
    (void)tag;
    struct tally_join_request *message = into;
    tally_v1_HeldClient raw = tally_v1_HeldClient_init_zero;
    enum tally_status status = decode(value, &HeldClient_SCHEMA, &raw, NULL, NULL, err);
    if (status == TALLY_OK) {
        void *array = message->held;
        status = grow(&array, message->n_held, sizeof *message->held, err);
        message->held = array;
    }
    if (status == TALLY_OK) {
        struct tally_held_client *held = &message->held[message->n_held++];
        memcpy(held->job_id, raw.job_id, sizeof held->job_id);
        held->client = raw.client;
    }
    return status;
}

void tally_join_request_fini(struct tally_join_request *message)
{
    if (message != NULL) {
        free(message->held);
        message->held = NULL;
        message->n_held = 0;
    }
}

enum tally_status tally_join_request_decode(const uint8_t *bytes, size_t n,
                                            struct tally_join_request *ret_message,
                                            struct tally_error *err)
{
    struct tally_join_request message = {.held = NULL};
    tally_v1_JoinRequest raw = tally_v1_JoinRequest_init_zero;
    enum tally_status status =
        decode((struct tally_bytes){bytes, n}, &JoinRequest_SCHEMA, &raw, take_held, &message, err);
    if (status != TALLY_OK) {
        tally_join_request_fini(&message);
        return status;
    }
    memcpy(message.name, raw.name, sizeof message.name);
    memcpy(message.job_id, raw.job_id, sizeof message.job_id);
    message.slots = raw.slots;
    message.format = raw.format;
    *ret_message = message;
    return TALLY_OK;
}

enum tally_status tally_join_response_decode(const uint8_t *bytes, size_t n,
                                             struct tally_join_response *ret_message,
                                             struct tally_error *err)
{
    tally_v1_JoinResponse raw = tally_v1_JoinResponse_init_zero;
    enum tally_status status =
        decode((struct tally_bytes){bytes, n}, &JoinResponse_SCHEMA, &raw, NULL, NULL, err);
    if (status == TALLY_OK) {
        /* A coordinator that does not know the field is of the first format. */
        *ret_message = (struct tally_join_response){.session = raw.session,
                                                    .session_timeout_ms = raw.session_timeout_ms,
                                                    .format = raw.format == 0 ? 1 : raw.format,
                                                    .max_wait_ms = raw.max_wait_ms};
    }
    return status;
}

enum tally_status tally_join_check_format(uint32_t worker, uint32_t coordinator,
                                          struct tally_error *err)
{
    if (worker == coordinator) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "format",
                      "the worker's messages are of format %u, the coordinator's of format %u: "
                      "upgrade the %s",
                      worker, coordinator, worker < coordinator ? "worker" : "coordinator");
}

static enum tally_status take_cursor(void *into, uint32_t tag, struct tally_bytes value,
                                     struct tally_error *err)
{
    assert(tag == tally_v1_PollTaskRequest_cursors_tag);
    (void)tag;
    struct tally_poll_request *message = into;
    if (message->n_cursors == TALLY_MAX_CURSORS) {
        return too_many(TALLY_MAX_CURSORS, err);
    }
    tally_v1_Cursor raw = tally_v1_Cursor_init_zero;
    enum tally_status status = decode(value, &Cursor_SCHEMA, &raw, NULL, NULL, err);
    if (status == TALLY_OK) {
        struct tally_cursor *cursor = &message->cursors[message->n_cursors++];
        memcpy(cursor->job_id, raw.job_id, sizeof cursor->job_id);
        cursor->iterate = raw.iterate;
    }
    return status;
}

enum tally_status tally_poll_request_decode(const uint8_t *bytes, size_t n,
                                            struct tally_poll_request *ret_message,
                                            struct tally_error *err)
{
    struct tally_poll_request message = {.n_cursors = 0};
    tally_v1_PollTaskRequest raw = tally_v1_PollTaskRequest_init_zero;
    enum tally_status status = decode((struct tally_bytes){bytes, n}, &PollTaskRequest_SCHEMA, &raw,
                                      take_cursor, &message, err);
    if (status == TALLY_OK) {
        message.session = raw.session;
        message.wait_ms = raw.wait_ms;
        *ret_message = message;
    }
    return status;
}

/* Broadcast.payload, its only callback field. */
static enum tally_status take_payload(void *into, uint32_t tag, struct tally_bytes value,
                                      struct tally_error *err)
{
    (void)tag;
    (void)err;
    *(struct tally_bytes *)into = value;
    return TALLY_OK;
}

static enum tally_status take_update_field(void *into, uint32_t tag, struct tally_bytes value,
                                           struct tally_error *err)
{
    (void)err;
    struct tally_update *message = into;
    if (tag == tally_v1_PostUpdateRequest_poll_tag) {
        message->has_poll = true;
        message->poll = value;
    } else {
        assert(tag == tally_v1_PostUpdateRequest_payload_tag);
        message->payload = value;
    }
    return TALLY_OK;
}

static enum tally_status take_next(void *into, uint32_t tag, struct tally_bytes value,
                                   struct tally_error *err)
{
    assert(tag == tally_v1_PostUpdateResponse_next_tag);
    (void)tag;
    (void)err;
    struct tally_update_response *message = into;
    message->has_next = true;
    message->next = value;
    return TALLY_OK;
}

static enum tally_status take_broadcast(struct tally_task *task, struct tally_bytes value,
                                        struct tally_error *err)
{
    if (task->n_broadcasts == TALLY_MAX_BROADCASTS) {
        return too_many(TALLY_MAX_BROADCASTS, err);
    }
    struct tally_broadcast *broadcast = &task->broadcasts[task->n_broadcasts];
    tally_v1_Broadcast raw = tally_v1_Broadcast_init_zero;
    enum tally_status status =
        decode(value, &Broadcast_SCHEMA, &raw, take_payload, &broadcast->payload, err);
    if (status == TALLY_OK) {
        broadcast->iterate = raw.iterate;
        broadcast->payload_bits = raw.payload_bits;
        broadcast->quantizer_step = raw.quantizer_step;
        broadcast->quantizer_intervals = raw.quantizer_intervals;
        task->n_broadcasts++;
    }
    return status;
}

/* One varint, or a packed run of them. */
static enum tally_status take_clients(struct tally_task *task, struct tally_bytes value,
                                      struct tally_error *err)
{
    pb_istream_t stream = pb_istream_from_buffer(value.data, value.size);
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && stream.bytes_left > 0) {
        uint64_t client;
        if (!pb_decode_varint(&stream, &client)) {
            return malformed(&stream, err);
        }
        if (client > UINT32_MAX) {
            return tally_fail(err, TALLY_MALFORMED, NULL, "integer too large");
        }
        void *array = task->clients;
        status = grow(&array, task->n_clients, sizeof *task->clients, err);
        task->clients = array;
        if (status == TALLY_OK) {
            task->clients[task->n_clients++] = (uint32_t)client;
        }
    }
    return status;
}

static enum tally_status take_task_field(void *into, uint32_t tag, struct tally_bytes value,
                                         struct tally_error *err)
{
    struct tally_task *task = into;
    switch (tag) {
    case tally_v1_Task_job_document_tag:
        task->job_document = value;
        return TALLY_OK;
    case tally_v1_Task_snapshot_tag:
        task->snapshot = value;
        return TALLY_OK;
    case tally_v1_Task_clients_tag:
        return take_clients(task, value, err);
    case tally_v1_Task_broadcasts_tag:
        return take_broadcast(task, value, err);
    default:
        assert(false && "a callback field of Task that is not taken");
        return TALLY_INTERNAL;
    }
}

static enum tally_status take_task(struct tally_task *task, struct tally_bytes value,
                                   struct tally_error *err)
{
    tally_v1_Task raw = tally_v1_Task_init_zero;
    enum tally_status status = decode(value, &Task_SCHEMA, &raw, take_task_field, task, err);
    if (status == TALLY_OK) {
        memcpy(task->job_id, raw.job_id, sizeof task->job_id);
        memcpy(task->encoding, raw.encoding, sizeof task->encoding);
        task->round = raw.round;
        task->stage = raw.stage;
        task->iterate = raw.iterate;
        task->samples = raw.samples;
        task->quantizer_step = raw.quantizer_step;
        task->quantizer_intervals = raw.quantizer_intervals;
        task->evaluate = raw.evaluate;
        task->cut = raw.cut;
        task->deadline_ms = raw.deadline_ms;
        task->x_checksum = raw.x_checksum;
    }
    return status;
}

/* What PollTaskResponse is decoded into: the message and how many kinds it has shown. */
struct poll_response_target {
    struct tally_poll_response message;
    int n_kinds;
};

/* Departs from protobuf, where the last member of a oneof wins: our encoder never writes two, and
 * two are refused. */
static enum tally_status take_kind(void *into, uint32_t tag, struct tally_bytes value,
                                   struct tally_error *err)
{
    struct poll_response_target *target = into;
    struct tally_poll_response *message = &target->message;
    if (target->n_kinds++ > 0) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "a second kind");
    }
    tally_v1_PollTaskResponse_Idle idle = tally_v1_PollTaskResponse_Idle_init_zero;
    tally_v1_PollTaskResponse_Released released = tally_v1_PollTaskResponse_Released_init_zero;
    enum tally_status status;
    switch (tag) {
    case tally_v1_PollTaskResponse_idle_tag:
        message->kind = TALLY_POLL_IDLE;
        status = decode(value, &PollTaskResponse_Idle_SCHEMA, &idle, NULL, NULL, err);
        message->jobs_pending = idle.jobs_pending;
        return status;
    case tally_v1_PollTaskResponse_task_tag:
        message->kind = TALLY_POLL_TASK;
        return take_task(&message->task, value, err);
    case tally_v1_PollTaskResponse_released_tag:
        message->kind = TALLY_POLL_RELEASED;
        status = decode(value, &PollTaskResponse_Released_SCHEMA, &released, NULL, NULL, err);
        memcpy(message->released_job_id, released.job_id, sizeof message->released_job_id);
        return status;
    default:
        assert(false && "a kind of PollTaskResponse that is not taken");
        return TALLY_INTERNAL;
    }
}

void tally_poll_response_fini(struct tally_poll_response *message)
{
    if (message != NULL) {
        free(message->task.clients);
        message->task.clients = NULL;
        message->task.n_clients = 0;
    }
}

enum tally_status tally_poll_response_decode(const uint8_t *bytes, size_t n,
                                             struct tally_poll_response *ret_message,
                                             struct tally_error *err)
{
    struct poll_response_target target = {.n_kinds = 0};
    tally_v1_PollTaskResponse raw = tally_v1_PollTaskResponse_init_zero;
    enum tally_status status = decode((struct tally_bytes){bytes, n}, &PollTaskResponse_SCHEMA,
                                      &raw, take_kind, &target, err);
    if (status == TALLY_OK && target.n_kinds == 0) {
        status = tally_fail(err, TALLY_MALFORMED, "kind", "neither idle, task nor released");
    }
    if (status != TALLY_OK) {
        tally_poll_response_fini(&target.message);
        return status;
    }
    *ret_message = target.message;
    return TALLY_OK;
}

enum tally_status tally_update_decode(const uint8_t *bytes, size_t n,
                                      struct tally_update *ret_message, struct tally_error *err)
{
    struct tally_update message = {.has_poll = false};
    tally_v1_PostUpdateRequest raw = tally_v1_PostUpdateRequest_init_zero;
    enum tally_status status = decode((struct tally_bytes){bytes, n}, &PostUpdateRequest_SCHEMA,
                                      &raw, take_update_field, &message, err);
    if (status == TALLY_OK) {
        memcpy(message.job_id, raw.job_id, sizeof message.job_id);
        memcpy(message.failure, raw.failure, sizeof message.failure);
        memcpy(message.refusal, raw.refusal, sizeof message.refusal);
        message.session = raw.session;
        message.round = raw.round;
        message.client = raw.client;
        message.payload_bits = raw.payload_bits;
        message.clipped = raw.clipped;
        message.has_loss = raw.has_loss;
        message.loss = raw.loss;
        message.tried = raw.tried;
        *ret_message = message;
    }
    return status;
}

enum tally_status tally_update_response_decode(const uint8_t *bytes, size_t n,
                                               struct tally_update_response *ret_message,
                                               struct tally_error *err)
{
    struct tally_update_response message = {.has_next = false};
    tally_v1_PostUpdateResponse raw = tally_v1_PostUpdateResponse_init_zero;
    enum tally_status status = decode((struct tally_bytes){bytes, n}, &PostUpdateResponse_SCHEMA,
                                      &raw, take_next, &message, err);
    if (status == TALLY_OK) {
        message.formula_bits = raw.formula_bits;
        message.payload_bits = raw.payload_bits;
        *ret_message = message;
    }
    return status;
}

enum tally_status tally_leave_request_decode(const uint8_t *bytes, size_t n, uint64_t *ret_session,
                                             struct tally_error *err)
{
    tally_v1_LeaveRequest raw = tally_v1_LeaveRequest_init_zero;
    enum tally_status status =
        decode((struct tally_bytes){bytes, n}, &LeaveRequest_SCHEMA, &raw, NULL, NULL, err);
    if (status == TALLY_OK) {
        *ret_session = raw.session;
    }
    return status;
}

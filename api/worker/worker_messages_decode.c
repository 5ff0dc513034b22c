/* worker_messages_decode: decodes worker messages; message_fields.h explains how. */
#include <stdlib.h>
#include <string.h>

#include <pb_decode.h>

#include "api/worker/message_fields.h"
#include "codec/encoding.h"
#include "codec/utf8.h"

/* The value of a field: the number of a varint or of 64 bits, or the content of a length. */
struct value {
    pb_wire_type_t wire_type;
    uint64_t number;
    struct tally_bytes bytes;
};

/* A message type: stores a value in a message, unless the field is unknown, and names the fields;
 * "" = unknown. */
struct schema {
    enum tally_status (*take)(void *into, uint32_t tag, const struct value *value,
                              struct tally_error *err);
    const char *(*name_of)(uint32_t tag);
};

static enum tally_status malformed(const pb_istream_t *stream, struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, NULL, "%s", PB_GET_ERROR(stream));
}

static enum tally_status too_many(size_t limit, struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, NULL, "more than %zu elements", limit);
}

static enum tally_status wrong_type(struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, NULL, "wrong wire type");
}

/* Borrows the bytes. For a stream over a buffer, nanopb's `state` is its read pointer. */
static bool read_content(pb_istream_t *stream, struct tally_bytes *ret_bytes)
{
    uint32_t size;
    if (!pb_decode_varint32(stream, &size)) {
        return false;
    }
    *ret_bytes = (struct tally_bytes){.data = stream->state, .size = size};
    return pb_read(stream, NULL, size);
}

static enum tally_status read_value(pb_istream_t *stream, struct value *ret_value,
                                    struct tally_error *err)
{
    bool ok;
    switch (ret_value->wire_type) {
    case PB_WT_VARINT:
        ok = pb_decode_varint(stream, &ret_value->number);
        break;
    case PB_WT_64BIT:
        ok = pb_decode_fixed64(stream, &ret_value->number);
        break;
    case PB_WT_STRING:
        ok = read_content(stream, &ret_value->bytes);
        break;
    case PB_WT_32BIT: /* we have no such field */
    case PB_WT_PACKED:
    default: /* nanopb refuses it */
        ok = pb_skip_field(stream, ret_value->wire_type);
        break;
    }
    return ok ? TALLY_OK : malformed(stream, err);
}

/* Decodes `bytes` into a message that is zeroed. */
static enum tally_status decode(struct tally_bytes bytes, const struct schema *schema,
                                void *message, struct tally_error *err)
{
    pb_istream_t stream = pb_istream_from_buffer(bytes.data, bytes.size);
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && stream.bytes_left > 0) {
        struct value value = {.number = 0};
        uint32_t tag;
        bool eof;
        if (!pb_decode_tag(&stream, &value.wire_type, &tag, &eof) || tag == 0) {
            return tally_fail(err, TALLY_MALFORMED, NULL, "invalid field tag");
        }
        status = read_value(&stream, &value, err);
        if (status == TALLY_OK) {
            status = schema->take(message, tag, &value, err);
        }
        if (status != TALLY_OK && schema->name_of(tag)[0] != '\0') {
            tally_error_in_field(err, schema->name_of(tag));
        }
    }
    return status;
}

/* As decode(), but writes *ret_message, which has the same size, only on success. */
static enum tally_status decode_into(const uint8_t *bytes, size_t n, const struct schema *schema,
                                     void *message, size_t size, void *ret_message,
                                     struct tally_error *err)
{
    enum tally_status status = decode((struct tally_bytes){bytes, n}, schema, message, err);
    if (status == TALLY_OK) {
        memcpy(ret_message, message, size);
    }
    return status;
}

static enum tally_status take_uint64(const struct value *value, uint64_t *ret_number,
                                     struct tally_error *err)
{
    *ret_number = value->number;
    return value->wire_type == PB_WT_VARINT ? TALLY_OK : wrong_type(err);
}

static enum tally_status take_uint32(const struct value *value, uint32_t *ret_number,
                                     struct tally_error *err)
{
    if (value->wire_type == PB_WT_VARINT && value->number > UINT32_MAX) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "integer too large");
    }
    *ret_number = (uint32_t)value->number;
    return value->wire_type == PB_WT_VARINT ? TALLY_OK : wrong_type(err);
}

static enum tally_status take_bool(const struct value *value, bool *ret_is_true,
                                   struct tally_error *err)
{
    *ret_is_true = value->number != 0;
    return value->wire_type == PB_WT_VARINT ? TALLY_OK : wrong_type(err);
}

static enum tally_status take_fixed64(const struct value *value, uint64_t *ret_number,
                                      struct tally_error *err)
{
    *ret_number = value->number;
    return value->wire_type == PB_WT_64BIT ? TALLY_OK : wrong_type(err);
}

static enum tally_status take_double(const struct value *value, double *ret_number,
                                     struct tally_error *err)
{
    memcpy(ret_number, &value->number, sizeof *ret_number);
    return value->wire_type == PB_WT_64BIT ? TALLY_OK : wrong_type(err);
}

static enum tally_status take_bytes(const struct value *value, struct tally_bytes *ret_bytes,
                                    struct tally_error *err)
{
    *ret_bytes = value->bytes;
    return value->wire_type == PB_WT_STRING ? TALLY_OK : wrong_type(err);
}

/* proto3 requires UTF-8; a NUL would cut the text for its readers. */
static enum tally_status take_text(const struct value *value, char *ret_text, size_t capacity,
                                   struct tally_error *err)
{
    if (value->wire_type != PB_WT_STRING) {
        return wrong_type(err);
    }
    const struct tally_bytes bytes = value->bytes;
    if (bytes.size >= capacity) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "text of %zu bytes, at most %zu", bytes.size,
                          capacity - 1);
    }
    if (bytes.size > 0 && memchr(bytes.data, '\0', bytes.size) != NULL) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "text contains NUL");
    }
    if (tally_utf8_valid_prefix((const char *)bytes.data, bytes.size) != bytes.size) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "text is not UTF-8");
    }
    if (bytes.size > 0) {
        memcpy(ret_text, bytes.data, bytes.size);
    }
    ret_text[bytes.size] = '\0';
    return TALLY_OK;
}

static enum tally_status take_message(const struct value *value, const struct schema *schema,
                                      void *message, struct tally_error *err)
{
    return value->wire_type == PB_WT_STRING ? decode(value->bytes, schema, message, err)
                                            : wrong_type(err);
}

/* A `case` for each line of a field list. */
#define TAKE(a, allocation, rule, type, name, tag)                                                 \
    case tag:                                                                                      \
        return TAKE_##rule##_##type(name);
#define TAKE_SINGULAR_UINT32(name)  take_uint32(value, &message->name, err)
#define TAKE_SINGULAR_UINT64(name)  take_uint64(value, &message->name, err)
#define TAKE_SINGULAR_BOOL(name)    take_bool(value, &message->name, err)
#define TAKE_SINGULAR_FIXED64(name) take_fixed64(value, &message->name, err)
#define TAKE_SINGULAR_DOUBLE(name)  take_double(value, &message->name, err)
#define TAKE_SINGULAR_STRING(name)  take_text(value, message->name, sizeof message->name, err)
#define TAKE_SINGULAR_BYTES(name)   take_bytes(value, &message->name, err)
#define TAKE_OPTIONAL_DOUBLE(name)                                                                 \
    (message->has_##name = true, take_double(value, &message->name, err))
#define TAKE_OPTIONAL_MESSAGE(name) take_##name(message, value, err)
#define TAKE_REPEATED_MESSAGE(name) take_##name(message, value, err)
#define TAKE_REPEATED_UINT32(name)  take_##name(message, value, err)
#define NAME(a, allocation, rule, type, name, tag)                                                 \
    case tag:                                                                                      \
        return #name;

/* TYPE_SCHEMA, for a message of our type `struct_type`. */
#define DEFINE_SCHEMA(type, struct_type)                                                           \
    static enum tally_status take_##type##_field(                                                  \
        void *into, uint32_t tag, const struct value *value, struct tally_error *err)              \
    {                                                                                              \
        struct_type *message = into;                                                               \
        switch (tag) {                                                                             \
            tally_v1_##type##_FIELDLIST(TAKE, a) default : return TALLY_OK;                        \
        }                                                                                          \
    }                                                                                              \
    static const char *name_##type##_field(uint32_t tag)                                           \
    {                                                                                              \
        switch (tag) {                                                                             \
            tally_v1_##type##_FIELDLIST(NAME, a) default : return "";                              \
        }                                                                                          \
    }                                                                                              \
    static const struct schema type##_SCHEMA = {take_##type##_field, name_##type##_field};

/* Makes room for element `n` of a heap array, which doubles at powers of two. */
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

DEFINE_SCHEMA(HeldClient, struct tally_held_client)

static enum tally_status take_held(struct tally_join_request *message, const struct value *value,
                                   struct tally_error *err)
{
    struct tally_held_client held = {.client = 0};
    enum tally_status status = take_message(value, &HeldClient_SCHEMA, &held, err);
    if (status == TALLY_OK) {
        void *array = message->held;
        status = grow(&array, message->n_held, sizeof *message->held, err);
        message->held = array;
    }
    if (status == TALLY_OK) {
        message->held[message->n_held++] = held;
    }
    return status;
}

DEFINE_SCHEMA(JoinRequest, struct tally_join_request)

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
    enum tally_status status =
        decode((struct tally_bytes){bytes, n}, &JoinRequest_SCHEMA, &message, err);
    if (status != TALLY_OK) {
        tally_join_request_fini(&message);
        return status;
    }
    *ret_message = message;
    return TALLY_OK;
}

DEFINE_SCHEMA(JoinResponse, struct tally_join_response)

enum tally_status tally_join_response_decode(const uint8_t *bytes, size_t n,
                                             struct tally_join_response *ret_message,
                                             struct tally_error *err)
{
    struct tally_join_response message = {.session = 0};
    return decode_into(bytes, n, &JoinResponse_SCHEMA, &message, sizeof message, ret_message, err);
}

enum tally_status tally_join_check_format(uint32_t worker, uint32_t coordinator,
                                          struct tally_error *err)
{
    if (worker == coordinator) {
        return TALLY_OK;
    }
    if (worker == 0) {
        return tally_fail(
            err, TALLY_FAILED_PRECONDITION, "format",
            "the worker states no format, the coordinator's is %u: upgrade the worker",
            coordinator);
    }
    const bool is_worker_older = worker < coordinator;
    const uint32_t older = is_worker_older ? worker : coordinator;
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "format",
                      "the worker's messages are of format %u, the coordinator's of format %u: "
                      "upgrade the %s%s",
                      worker, coordinator, is_worker_older ? "worker" : "coordinator",
                      older < TALLY_FORMAT_VERSION ? "; 0.15 is the last release of format 2" : "");
}

DEFINE_SCHEMA(Cursor, struct tally_cursor)

static enum tally_status take_cursors(struct tally_poll_request *message, const struct value *value,
                                      struct tally_error *err)
{
    if (message->n_cursors == TALLY_MAX_CURSORS) {
        return too_many(TALLY_MAX_CURSORS, err);
    }
    struct tally_cursor *cursor = &message->cursors[message->n_cursors++];
    *cursor = (struct tally_cursor){.iterate = 0};
    return take_message(value, &Cursor_SCHEMA, cursor, err);
}

DEFINE_SCHEMA(Undeliverable, struct tally_undeliverable)

static enum tally_status take_undeliverable(struct tally_poll_request *message,
                                            const struct value *value, struct tally_error *err)
{
    return take_message(value, &Undeliverable_SCHEMA, &message->undeliverable, err);
}

DEFINE_SCHEMA(PollTaskRequest, struct tally_poll_request)

enum tally_status tally_poll_request_decode(const uint8_t *bytes, size_t n,
                                            struct tally_poll_request *ret_message,
                                            struct tally_error *err)
{
    ret_message->session = 0;
    ret_message->wait_ms = 0;
    ret_message->n_cursors = 0;
    ret_message->until_idle = false;
    ret_message->undeliverable.job_id[0] = ret_message->undeliverable.reason[0] = '\0';
    return decode((struct tally_bytes){bytes, n}, &PollTaskRequest_SCHEMA, ret_message, err);
}

DEFINE_SCHEMA(Broadcast, struct tally_broadcast)

static enum tally_status take_broadcasts(struct tally_task *task, const struct value *value,
                                         struct tally_error *err)
{
    if (task->n_broadcasts == TALLY_MAX_BROADCASTS) {
        return too_many(TALLY_MAX_BROADCASTS, err);
    }
    return take_message(value, &Broadcast_SCHEMA, &task->broadcasts[task->n_broadcasts++], err);
}

static enum tally_status add_client(struct tally_task *task, const struct value *value,
                                    struct tally_error *err)
{
    uint32_t client;
    enum tally_status status = take_uint32(value, &client, err);
    if (status == TALLY_OK) {
        void *array = task->clients;
        status = grow(&array, task->n_clients, sizeof *task->clients, err);
        task->clients = array;
    }
    if (status == TALLY_OK) {
        task->clients[task->n_clients++] = client;
    }
    return status;
}

/* One varint, or a packed run of them. */
static enum tally_status take_clients(struct tally_task *task, const struct value *value,
                                      struct tally_error *err)
{
    if (value->wire_type != PB_WT_STRING) {
        return add_client(task, value, err);
    }
    pb_istream_t stream = pb_istream_from_buffer(value->bytes.data, value->bytes.size);
    struct value client = {.wire_type = PB_WT_VARINT};
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && stream.bytes_left > 0) {
        status = read_value(&stream, &client, err);
        if (status == TALLY_OK) {
            status = add_client(task, &client, err);
        }
    }
    return status;
}

DEFINE_SCHEMA(ClientShift, struct tally_client_shift)

static enum tally_status take_shifts(struct tally_task *task, const struct value *value,
                                     struct tally_error *err)
{
    void *array = task->shifts;
    enum tally_status status = grow(&array, task->n_shifts, sizeof *task->shifts, err);
    task->shifts = array;
    if (status != TALLY_OK) {
        return status;
    }
    task->shifts[task->n_shifts] = (struct tally_client_shift){.client = 0};
    return take_message(value, &ClientShift_SCHEMA, &task->shifts[task->n_shifts++], err);
}

DEFINE_SCHEMA(Task, struct tally_task)

/* PollTaskResponse is decoded into the message and the number of kinds that it contains. */
struct poll_response_target {
    struct tally_poll_response message;
    int n_kinds;
};

/* Departs from protobuf, where the last member of a oneof wins: our encoder never writes two, and
 * two are refused. */
static enum tally_status take_kind(struct poll_response_target *target, enum tally_poll_kind kind,
                                   const struct value *value, const struct schema *schema,
                                   void *into, struct tally_error *err)
{
    if (target->n_kinds++ > 0) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "a second kind");
    }
    target->message.kind = kind;
    return take_message(value, schema, into, err);
}

static enum tally_status take_task(struct poll_response_target *target, const struct value *value,
                                   struct tally_error *err)
{
    return take_kind(target, TALLY_POLL_TASK, value, &Task_SCHEMA, &target->message.task, err);
}

DEFINE_SCHEMA(PollTaskResponse_Idle, struct tally_poll_response)

static enum tally_status take_idle(struct poll_response_target *target, const struct value *value,
                                   struct tally_error *err)
{
    return take_kind(target, TALLY_POLL_IDLE, value, &PollTaskResponse_Idle_SCHEMA,
                     &target->message, err);
}

DEFINE_SCHEMA(PollTaskResponse_Released, struct released)

static enum tally_status take_released(struct poll_response_target *target,
                                       const struct value *value, struct tally_error *err)
{
    struct released released = {.job_id = ""};
    enum tally_status status = take_kind(target, TALLY_POLL_RELEASED, value,
                                         &PollTaskResponse_Released_SCHEMA, &released, err);
    memcpy(target->message.released_job_id, released.job_id, sizeof released.job_id);
    return status;
}

DEFINE_SCHEMA(PollTaskResponse, struct poll_response_target)

void tally_poll_response_fini(struct tally_poll_response *message)
{
    if (message != NULL) {
        free(message->task.clients);
        message->task.clients = NULL;
        free(message->task.shifts);
        message->task.shifts = NULL;
        message->task.n_clients = 0;
    }
}

enum tally_status tally_poll_response_decode(const uint8_t *bytes, size_t n,
                                             struct tally_poll_response *ret_message,
                                             struct tally_error *err)
{
    struct poll_response_target target = {.n_kinds = 0};
    enum tally_status status =
        decode((struct tally_bytes){bytes, n}, &PollTaskResponse_SCHEMA, &target, err);
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

DEFINE_SCHEMA(Metric, struct tally_metric)

static enum tally_status add_metric(struct tally_metric metrics[TALLY_METRICS_MOST], size_t *n,
                                    const struct value *value, struct tally_error *err)
{
    if (*n == TALLY_METRICS_MOST) {
        return too_many(TALLY_METRICS_MOST, err);
    }
    return take_message(value, &Metric_SCHEMA, &metrics[(*n)++], err);
}

#define take_metrics(message, value, err)                                                          \
    add_metric((message)->metrics, &(message)->n_metrics, value, err)
#define take_evaluation(message, value, err)                                                       \
    add_metric((message)->evaluation, &(message)->n_evaluation, value, err)

DEFINE_SCHEMA(ClientUpdate, struct tally_update)
DEFINE_SCHEMA(UpdateResult, struct tally_update_result)

/* Counts elements, which are read one by one later. */
static enum tally_status count(const struct value *value, size_t *n, struct tally_error *err)
{
    if (*n == TALLY_MAX_UPDATES) {
        return too_many(TALLY_MAX_UPDATES, err);
    }
    ++*n;
    return value->wire_type == PB_WT_STRING ? TALLY_OK : wrong_type(err);
}

#define take_updates(message, value, err) count(value, &(message)->n_updates, err)
#define take_results(message, value, err) count(value, &(message)->n_results, err)
/* Polls and their responses are decoded separately. */
#define take_poll(message, value, err)                                                             \
    ((message)->has_poll = true, take_bytes(value, &(message)->poll, err))
#define take_next(message, value, err)                                                             \
    ((message)->has_next = true, take_bytes(value, &(message)->next, err))
DEFINE_SCHEMA(PostUpdateRequest, struct tally_update_request)
DEFINE_SCHEMA(PostUpdateResponse, struct tally_update_response)

/* Takes the next field `tag`, a message of *ret_bytes, from `rest`, which has one and was decoded.
 */
static enum tally_status take_element(struct tally_bytes *rest, uint32_t tag,
                                      const struct schema *schema, void *into,
                                      struct tally_bytes *ret_bytes, struct tally_error *err)
{
    pb_istream_t stream = pb_istream_from_buffer(rest->data, rest->size);
    struct value value = {.number = 0};
    uint32_t found = 0;
    bool eof, ok = true;
    while (ok && found != tag) {
        ok = pb_decode_tag(&stream, &value.wire_type, &found, &eof) &&
             read_value(&stream, &value, err) == TALLY_OK;
    }
    *rest = (struct tally_bytes){.data = stream.state, .size = stream.bytes_left};
    *ret_bytes = value.bytes;
    return ok ? take_message(&value, schema, into, err) : malformed(&stream, err);
}

bool tally_session_read_first(const uint8_t field[TALLY_SESSION_FIELD_BYTES], uint64_t *ret_session)
{
    uint64_t session = 0;
    for (int i = 8; i > 0; i--) {
        session = session << 8 | field[i];
    }
    *ret_session = session;
    return field[0] == (tally_v1_PostUpdateRequest_session_tag << 3 | PB_WT_64BIT);
}

enum tally_status tally_update_request_decode(const uint8_t *bytes, size_t n,
                                              struct tally_update_request *ret_message,
                                              struct tally_error *err)
{
    struct tally_update_request message = {.rest = {bytes, n}};
    enum tally_status status = decode_into(bytes, n, &PostUpdateRequest_SCHEMA, &message,
                                           sizeof message, ret_message, err);
    return status != TALLY_OK || message.n_updates > 0
               ? status
               : tally_fail(err, TALLY_MALFORMED, "updates", "there is none");
}

enum tally_status tally_update_request_next(struct tally_update_request *message,
                                            struct tally_update *ret_update,
                                            struct tally_error *err)
{
    *ret_update = (struct tally_update){.round = message->round, .mark = message->mark};
    return take_element(&message->rest, tally_v1_PostUpdateRequest_updates_tag,
                        &ClientUpdate_SCHEMA, ret_update, &ret_update->encoded, err);
}

enum tally_status tally_update_decode(const uint8_t *bytes, size_t n,
                                      struct tally_update *ret_update, struct tally_error *err)
{
    *ret_update = (struct tally_update){.encoded = {bytes, n}};
    return decode(ret_update->encoded, &ClientUpdate_SCHEMA, ret_update, err);
}

enum tally_status tally_update_response_decode(const uint8_t *bytes, size_t n,
                                               struct tally_update_response *ret_message,
                                               struct tally_error *err)
{
    struct tally_update_response message = {.rest = {bytes, n}};
    return decode_into(bytes, n, &PostUpdateResponse_SCHEMA, &message, sizeof message, ret_message,
                       err);
}

enum tally_status tally_update_response_next(struct tally_update_response *message,
                                             struct tally_update_result *ret_result,
                                             struct tally_error *err)
{
    *ret_result = (struct tally_update_result){.formula_bits = 0};
    return take_element(&message->rest, tally_v1_PostUpdateResponse_results_tag,
                        &UpdateResult_SCHEMA, ret_result, &(struct tally_bytes){0}, err);
}

DEFINE_SCHEMA(ProgressRequest, struct tally_progress_request)

enum tally_status tally_progress_request_decode(const uint8_t *bytes, size_t n,
                                                struct tally_progress_request *ret_message,
                                                struct tally_error *err)
{
    struct tally_progress_request message = {.session = 0};
    return decode_into(bytes, n, &ProgressRequest_SCHEMA, &message, sizeof message, ret_message,
                       err);
}

DEFINE_SCHEMA(DescribeRequest, struct tally_describe_request)

enum tally_status tally_describe_request_decode(const uint8_t *bytes, size_t n,
                                                struct tally_describe_request *ret_message,
                                                struct tally_error *err)
{
    struct tally_describe_request message = {.session = 0};
    return decode_into(bytes, n, &DescribeRequest_SCHEMA, &message, sizeof message, ret_message,
                       err);
}

DEFINE_SCHEMA(LeaveRequest, struct leave_request)

enum tally_status tally_leave_request_decode(const uint8_t *bytes, size_t n, uint64_t *ret_session,
                                             struct tally_error *err)
{
    struct leave_request message = {.session = 0};
    return decode_into(bytes, n, &LeaveRequest_SCHEMA, &message, sizeof message, ret_session, err);
}

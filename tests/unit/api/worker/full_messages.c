#include "tests/unit/api/worker/full_messages.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

const uint8_t FULL_PAYLOAD[4] = {0x00, 0xFF, 0x80, 0x01};
static const uint8_t SNAPSHOT[] = {1, 2, 3, 4, 5, 6, 7, 8};

struct tally_bytes bytes_of(const void *data, size_t size)
{
    return (struct tally_bytes){.data = data, .size = size};
}

struct tally_join_request full_join_request(struct tally_held_client held[3])
{
    strcpy(held[0].job_id, FULL_JOB_ID);
    held[0].client = 0;
    strcpy(held[1].job_id, "");
    held[1].client = UINT32_MAX;
    strcpy(held[2].job_id, "j3");
    held[2].client = 300;
    struct tally_join_request message = {
        .slots = 12, .held = held, .n_held = 3, .format = UINT32_MAX};
    strcpy(message.name, "worker-\xC3\xA9");
    strcpy(message.job_id, FULL_JOB_ID);
    return message;
}

static const struct tally_join_response FULL_JOIN_RESPONSE = {.session = UINT64_MAX,
                                                              .session_timeout_ms = 60000,
                                                              .format = 3,
                                                              .max_wait_ms = 3000,
                                                              .max_batch_bytes = 262144,
                                                              .rival = "2001:db8::7",
                                                              .ended = "cancelled"};

struct tally_poll_request full_poll_request(void)
{
    struct tally_poll_request message = {.session = 0x0102030405060708,
                                         .wait_ms = 30000,
                                         .n_cursors = TALLY_MAX_CURSORS,
                                         .until_idle = true};
    strcpy(message.undeliverable.job_id, FULL_JOB_ID);
    strcpy(message.undeliverable.reason, "client 3 cannot post its update: HTTP 413");
    for (size_t i = 0; i < message.n_cursors; i++) {
        snprintf(message.cursors[i].job_id, sizeof message.cursors[i].job_id, "job-%zu", i);
        message.cursors[i].iterate = i == 0 ? UINT64_MAX : i;
    }
    return message;
}

struct tally_poll_response full_task_response(uint32_t *clients, size_t n_clients,
                                              size_t n_broadcasts)
{
    struct tally_poll_response message = {.kind = TALLY_POLL_TASK};
    struct tally_task *task = &message.task;
    strcpy(task->job_id, FULL_JOB_ID);
    strcpy(task->encoding, "entropy");
    task->job_document = bytes_of("{\"a\": 1}", 8);
    task->round = 41;
    task->stage = 7;
    task->iterate = 1u << 30;
    task->samples = UINT64_MAX;
    task->quantizer_step = 0.1;
    task->quantizer_intervals = 32766;
    task->evaluate = true;
    task->cut = true;
    task->deadline_ms = 1;
    task->x_checksum = 0xFFEEDDCCBBAA9988;
    task->mark = UINT32_MAX;
    task->clients = clients;
    task->n_clients = n_clients;
    task->n_broadcasts = n_broadcasts;
    task->snapshot = bytes_of(SNAPSHOT, sizeof SNAPSHOT);
    for (size_t i = 0; i < n_broadcasts; i++) {
        task->broadcasts[i] = (struct tally_broadcast){.iterate = i + 2,
                                                       .payload = bytes_of(FULL_PAYLOAD, i % 5),
                                                       .payload_bits = 8 * (i % 5),
                                                       .quantizer_step = 1.0 / (double)(i + 1),
                                                       .quantizer_intervals = (uint32_t)i};
    }
    return message;
}

struct tally_update full_update(void)
{
    struct tally_update message = {.client = 9,
                                   .payload = bytes_of(FULL_PAYLOAD, sizeof FULL_PAYLOAD),
                                   .payload_bits = 29,
                                   .clipped = 3,
                                   .has_loss = true,
                                   .loss = -0.0,
                                   .tried = true,
                                   .lacks_plugin = true,
                                   .metrics = {{"accuracy", 0.5}, {"s", -0.0}},
                                   .n_metrics = 2};
    strcpy(message.failure, "data set \"mnist\" is not here");
    strcpy(message.refusal, "plug-in ridge is not loaded here");
    return message;
}

static enum tally_status make_join_request(struct tally_buffer *out)
{
    struct tally_held_client held[3];
    struct tally_join_request message = full_join_request(held);
    return tally_join_request_encode(&message, out);
}

static enum tally_status decode_join_request(const uint8_t *bytes, size_t n,
                                             struct tally_error *err)
{
    struct tally_join_request message = {.n_held = 0};
    enum tally_status status = tally_join_request_decode(bytes, n, &message, err);
    tally_join_request_fini(&message);
    return status;
}

enum tally_status make_join_response(struct tally_buffer *out)
{
    return tally_join_response_encode(&FULL_JOIN_RESPONSE, out);
}

static enum tally_status decode_join_response(const uint8_t *bytes, size_t n,
                                              struct tally_error *err)
{
    struct tally_join_response message;
    return tally_join_response_decode(bytes, n, &message, err);
}

static enum tally_status make_poll_request(struct tally_buffer *out)
{
    struct tally_poll_request message = full_poll_request();
    return tally_poll_request_encode(&message, out);
}

static enum tally_status decode_poll_request(const uint8_t *bytes, size_t n,
                                             struct tally_error *err)
{
    struct tally_poll_request message;
    return tally_poll_request_decode(bytes, n, &message, err);
}

static enum tally_status make_task_response(struct tally_buffer *out)
{
    uint32_t clients[] = {0, 127, 128, UINT32_MAX};
    struct tally_poll_response message = full_task_response(clients, 4, 3);
    return tally_poll_response_encode(&message, out);
}

enum tally_status make_idle_response(struct tally_buffer *out)
{
    struct tally_poll_response message = {.kind = TALLY_POLL_IDLE, .jobs_pending = 300};
    return tally_poll_response_encode(&message, out);
}

enum tally_status make_released_response(struct tally_buffer *out)
{
    struct tally_poll_response message = {.kind = TALLY_POLL_RELEASED,
                                          .released_job_id = FULL_JOB_ID};
    return tally_poll_response_encode(&message, out);
}

static enum tally_status decode_poll_response(const uint8_t *bytes, size_t n,
                                              struct tally_error *err)
{
    struct tally_poll_response message = {.kind = TALLY_POLL_IDLE};
    enum tally_status status = tally_poll_response_decode(bytes, n, &message, err);
    tally_poll_response_fini(&message);
    return status;
}

struct tally_update_request full_update_request(void)
{
    static const uint8_t POLL[] = {0x10, 5};
    struct tally_update_request message = {.session = UINT64_MAX,
                                           .round = UINT32_MAX,
                                           .mark = (1 << 28) - 1,
                                           .columns = (1 << 28) - 2,
                                           .has_poll = true,
                                           .poll = bytes_of(POLL, sizeof POLL)};
    strcpy(message.job_id, FULL_JOB_ID);
    return message;
}

/* Appends what `make` wrote in several steps as one piece, then frees `whole`. */
static enum tally_status append_whole(enum tally_status made, struct tally_buffer *whole,
                                      struct tally_buffer *out)
{
    made = made == TALLY_OK ? tally_buffer_append(out, whole->data, whole->size) : made;
    tally_buffer_fini(whole);
    return made;
}

enum tally_status make_update_request(struct tally_buffer *out)
{
    const struct tally_update_request message = full_update_request();
    const struct tally_update update = full_update(), empty = {.client = 0};
    struct tally_buffer whole = {.size = 0};
    enum tally_status status = tally_update_request_add(&update, &whole);
    status = status == TALLY_OK ? tally_update_request_add(&empty, &whole) : status;
    status = status == TALLY_OK ? tally_update_request_end(&message, &whole) : status;
    return append_whole(status, &whole, out);
}

static enum tally_status decode_update_request(const uint8_t *bytes, size_t n,
                                               struct tally_error *err)
{
    struct tally_update_request message;
    enum tally_status status = tally_update_request_decode(bytes, n, &message, err);
    for (size_t i = 0; status == TALLY_OK && i < message.n_updates; i++) {
        struct tally_update update;
        status = tally_update_request_next(&message, &update, err);
    }
    return status;
}

/* The content of the field that tally_update_request_add() writes. */
static enum tally_status make_update(struct tally_buffer *out)
{
    const struct tally_update update = full_update();
    struct tally_buffer field = {.size = 0};
    enum tally_status status = tally_update_request_add(&update, &field);
    if (status == TALLY_OK) {
        CU_ASSERT_TRUE_FATAL(field.size < 130); /* so tag and length are two bytes */
        status = tally_buffer_append(out, field.data + 2, field.size - 2);
    }
    tally_buffer_fini(&field);
    return status;
}

static enum tally_status decode_update(const uint8_t *bytes, size_t n, struct tally_error *err)
{
    struct tally_update update;
    return tally_update_decode(bytes, n, &update, err);
}

enum tally_status make_update_response(struct tally_buffer *out)
{
    const struct tally_poll_response next = {.kind = TALLY_POLL_IDLE, .jobs_pending = 2};
    const struct tally_update_result accepted = {.formula_bits = UINT64_MAX, .payload_bits = 1};
    const struct tally_update_result refused = {.code = "invalid_argument", .message = "no"};
    const struct tally_update_response sums = {.formula_bits = 3, .payload_bits = UINT64_MAX};
    struct tally_buffer whole = {.size = 0};
    enum tally_status status = tally_update_result_add(&accepted, &whole);
    status = status == TALLY_OK ? tally_update_result_add(&refused, &whole) : status;
    status = status == TALLY_OK ? tally_update_response_encode(&sums, &next, &whole) : status;
    return append_whole(status, &whole, out);
}

static enum tally_status decode_update_response(const uint8_t *bytes, size_t n,
                                                struct tally_error *err)
{
    struct tally_update_response message;
    enum tally_status status = tally_update_response_decode(bytes, n, &message, err);
    for (size_t i = 0; status == TALLY_OK && i < message.n_results; i++) {
        struct tally_update_result result;
        status = tally_update_response_next(&message, &result, err);
    }
    return status;
}

enum tally_status make_leave_request(struct tally_buffer *out)
{
    return tally_leave_request_encode(UINT64_MAX - 1, out);
}

static enum tally_status decode_leave_request(const uint8_t *bytes, size_t n,
                                              struct tally_error *err)
{
    uint64_t session;
    return tally_leave_request_decode(bytes, n, &session, err);
}

enum tally_status make_progress_request(struct tally_buffer *out)
{
    const struct tally_progress_request message = {
        .session = 7, .receives = true, .bytes = 1000, .of_bytes = UINT64_MAX};
    return tally_progress_request_encode(&message, out);
}

static enum tally_status decode_progress_request(const uint8_t *bytes, size_t n,
                                                 struct tally_error *err)
{
    struct tally_progress_request message;
    return tally_progress_request_decode(bytes, n, &message, err);
}

enum tally_status make_describe_request(struct tally_buffer *out)
{
    const struct tally_describe_request message = {
        .session = 7, .job_id = "0123456789ab", .origin = "{\"version\": \"1\"}"};
    return tally_describe_request_encode(&message, out);
}

static enum tally_status decode_describe_request(const uint8_t *bytes, size_t n,
                                                 struct tally_error *err)
{
    struct tally_describe_request message;
    return tally_describe_request_decode(bytes, n, &message, err);
}

const struct message_type MESSAGE_TYPES[N_MESSAGE_TYPES] = {
    {"join request", decode_join_request, make_join_request},
    {"join response", decode_join_response, make_join_response},
    {"poll request", decode_poll_request, make_poll_request},
    {"poll response (task)", decode_poll_response, make_task_response},
    {"poll response (idle)", decode_poll_response, make_idle_response},
    {"poll response (released)", decode_poll_response, make_released_response},
    {"update request", decode_update_request, make_update_request},
    {"update", decode_update, make_update},
    {"update response", decode_update_response, make_update_response},
    {"leave request", decode_leave_request, make_leave_request},
    {"progress request", decode_progress_request, make_progress_request},
    {"describe request", decode_describe_request, make_describe_request},
};

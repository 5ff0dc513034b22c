#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "tests/harness.h"

/* Every message type behind one pair of functions, so that a test can run over all of them:
 * `decode` reads bytes and forgets the message, `make` encodes one with every field set. */
struct message_type {
    const char *name;
    enum tally_status (*decode)(const uint8_t *bytes, size_t n, struct tally_error *err);
    enum tally_status (*make)(struct tally_buffer *out);
};

static const uint8_t PAYLOAD[] = {0x00, 0xFF, 0x80, 0x01};
static const uint8_t SNAPSHOT[] = {1, 2, 3, 4, 5, 6, 7, 8};
#define JOB_ID "0123456789abcdef0123456789abcdef" /* 32 characters: the longest */

static struct tally_bytes bytes_of(const void *data, size_t size)
{
    return (struct tally_bytes){.data = data, .size = size};
}

static void assert_bytes(struct tally_bytes actual, const void *expected, size_t n)
{
    CU_ASSERT_EQUAL(actual.size, n);
    CU_ASSERT_TRUE(actual.size == n && (n == 0 || memcmp(actual.data, expected, n) == 0));
}

static bool lies_within(struct tally_bytes part, const struct tally_buffer *whole)
{
    return part.data >= whole->data && part.data + part.size <= whole->data + whole->size;
}

/* ---- Full messages ---- */

static struct tally_join_request full_join_request(struct tally_held_client held[3])
{
    strcpy(held[0].job_id, JOB_ID);
    held[0].client = 0;
    strcpy(held[1].job_id, "");
    held[1].client = UINT32_MAX;
    strcpy(held[2].job_id, "j3");
    held[2].client = 300;
    struct tally_join_request message = {
        .slots = 12, .held = held, .n_held = 3, .format = UINT32_MAX};
    strcpy(message.name, "worker-\xC3\xA9");
    strcpy(message.job_id, JOB_ID);
    return message;
}

static const struct tally_join_response FULL_JOIN_RESPONSE = {
    .session = UINT64_MAX, .session_timeout_ms = 60000, .format = 3, .max_wait_ms = 3000};

static struct tally_poll_request full_poll_request(void)
{
    struct tally_poll_request message = {
        .session = 0x0102030405060708, .wait_ms = 30000, .n_cursors = TALLY_MAX_CURSORS};
    for (size_t i = 0; i < message.n_cursors; i++) {
        snprintf(message.cursors[i].job_id, sizeof message.cursors[i].job_id, "job-%zu", i);
        message.cursors[i].iterate = i == 0 ? UINT64_MAX : i;
    }
    return message;
}

static struct tally_poll_response full_task_response(uint32_t *clients, size_t n_clients,
                                                     size_t n_broadcasts)
{
    struct tally_poll_response message = {.kind = TALLY_POLL_TASK};
    struct tally_task *task = &message.task;
    strcpy(task->job_id, JOB_ID);
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
    task->clients = clients;
    task->n_clients = n_clients;
    task->n_broadcasts = n_broadcasts;
    task->snapshot = bytes_of(SNAPSHOT, sizeof SNAPSHOT);
    for (size_t i = 0; i < n_broadcasts; i++) {
        task->broadcasts[i] = (struct tally_broadcast){.iterate = i + 2,
                                                       .payload = bytes_of(PAYLOAD, i % 5),
                                                       .payload_bits = 8 * (i % 5),
                                                       .quantizer_step = 1.0 / (double)(i + 1),
                                                       .quantizer_intervals = (uint32_t)i};
    }
    return message;
}

static struct tally_update full_update(void)
{
    struct tally_update message = {.session = 1,
                                   .round = UINT32_MAX,
                                   .client = 9,
                                   .payload = bytes_of(PAYLOAD, sizeof PAYLOAD),
                                   .payload_bits = 29,
                                   .clipped = 3,
                                   .has_loss = true,
                                   .loss = -0.0,
                                   .tried = true};
    strcpy(message.job_id, JOB_ID);
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

static enum tally_status make_join_response(struct tally_buffer *out)
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

static enum tally_status make_idle_response(struct tally_buffer *out)
{
    struct tally_poll_response message = {.kind = TALLY_POLL_IDLE, .jobs_pending = 300};
    return tally_poll_response_encode(&message, out);
}

static enum tally_status make_released_response(struct tally_buffer *out)
{
    struct tally_poll_response message = {.kind = TALLY_POLL_RELEASED, .released_job_id = JOB_ID};
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

static enum tally_status make_update(struct tally_buffer *out)
{
    struct tally_update message = full_update();
    return tally_update_encode(&message, out);
}

static enum tally_status decode_update(const uint8_t *bytes, size_t n, struct tally_error *err)
{
    struct tally_update message;
    return tally_update_decode(bytes, n, &message, err);
}

static enum tally_status make_update_response(struct tally_buffer *out)
{
    struct tally_update_response message = {.formula_bits = UINT64_MAX, .payload_bits = 1};
    return tally_update_response_encode(&message, NULL, out);
}

static enum tally_status decode_update_response(const uint8_t *bytes, size_t n,
                                                struct tally_error *err)
{
    struct tally_update_response message;
    return tally_update_response_decode(bytes, n, &message, err);
}

static enum tally_status make_leave_request(struct tally_buffer *out)
{
    return tally_leave_request_encode(UINT64_MAX - 1, out);
}

static enum tally_status decode_leave_request(const uint8_t *bytes, size_t n,
                                              struct tally_error *err)
{
    uint64_t session;
    return tally_leave_request_decode(bytes, n, &session, err);
}

static const struct message_type TYPES[] = {
    {"join request", decode_join_request, make_join_request},
    {"join response", decode_join_response, make_join_response},
    {"poll request", decode_poll_request, make_poll_request},
    {"poll response (task)", decode_poll_response, make_task_response},
    {"poll response (idle)", decode_poll_response, make_idle_response},
    {"poll response (released)", decode_poll_response, make_released_response},
    {"update", decode_update, make_update},
    {"update response", decode_update_response, make_update_response},
    {"leave request", decode_leave_request, make_leave_request},
};
static const size_t N_TYPES = sizeof TYPES / sizeof TYPES[0];

/* ---- Round trips ---- */

static void test_api_worker_messages__join_round_trip(void)
{
    struct tally_held_client held[3];
    struct tally_join_request sent = full_join_request(held);
    struct tally_buffer wire = {.size = 0};
    CU_ASSERT_EQUAL(tally_join_request_encode(&sent, &wire), TALLY_OK);
    struct tally_join_request got;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_join_request_decode(wire.data, wire.size, &got, &err), TALLY_OK,
                        &err);
    TALLY_ASSERT_TEXT(got.name, sent.name);
    TALLY_ASSERT_TEXT(got.job_id, JOB_ID);
    CU_ASSERT_EQUAL(got.slots, 12);
    CU_ASSERT_EQUAL(got.format, UINT32_MAX);
    CU_ASSERT_EQUAL_FATAL(got.n_held, 3);
    for (size_t i = 0; i < 3; i++) {
        TALLY_ASSERT_TEXT(got.held[i].job_id, held[i].job_id);
        CU_ASSERT_EQUAL(got.held[i].client, held[i].client);
    }
    tally_join_request_fini(&got);
    tally_join_request_fini(&got);
    tally_join_request_fini(NULL);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__join_response_round_trip(void)
{
    struct tally_buffer wire = {.size = 0};
    struct tally_join_response got;
    CU_ASSERT_EQUAL(make_join_response(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_join_response_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.session, UINT64_MAX);
    CU_ASSERT_EQUAL(got.session_timeout_ms, 60000);
    CU_ASSERT_EQUAL(got.max_wait_ms, 3000);
    CU_ASSERT_EQUAL(got.format, 3);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__poll_request_round_trip(void)
{
    struct tally_poll_request sent = full_poll_request();
    struct tally_buffer wire = {.size = 0};
    CU_ASSERT_EQUAL(tally_poll_request_encode(&sent, &wire), TALLY_OK);
    struct tally_poll_request got;
    CU_ASSERT_EQUAL(tally_poll_request_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.session, sent.session);
    CU_ASSERT_EQUAL(got.wait_ms, 30000);
    CU_ASSERT_EQUAL_FATAL(got.n_cursors, TALLY_MAX_CURSORS);
    for (size_t i = 0; i < got.n_cursors; i++) {
        TALLY_ASSERT_TEXT(got.cursors[i].job_id, sent.cursors[i].job_id);
        CU_ASSERT_EQUAL(got.cursors[i].iterate, sent.cursors[i].iterate);
    }
    tally_buffer_fini(&wire);
}

static void assert_same_task(const struct tally_task *got, const struct tally_task *sent)
{
    TALLY_ASSERT_TEXT(got->job_id, sent->job_id);
    TALLY_ASSERT_TEXT(got->encoding, sent->encoding);
    assert_bytes(got->job_document, sent->job_document.data, sent->job_document.size);
    assert_bytes(got->snapshot, sent->snapshot.data, sent->snapshot.size);
    CU_ASSERT_EQUAL(got->round, sent->round);
    CU_ASSERT_EQUAL(got->stage, sent->stage);
    CU_ASSERT_EQUAL(got->iterate, sent->iterate);
    CU_ASSERT_EQUAL(got->samples, sent->samples);
    CU_ASSERT_EQUAL(got->quantizer_step, sent->quantizer_step);
    CU_ASSERT_EQUAL(got->quantizer_intervals, sent->quantizer_intervals);
    CU_ASSERT_EQUAL(got->evaluate, sent->evaluate);
    CU_ASSERT_EQUAL(got->cut, sent->cut);
    CU_ASSERT_EQUAL(got->deadline_ms, sent->deadline_ms);
    CU_ASSERT_EQUAL(got->x_checksum, sent->x_checksum);
    CU_ASSERT_EQUAL_FATAL(got->n_clients, sent->n_clients);
    assert_bytes(bytes_of(got->clients, got->n_clients * sizeof *got->clients), sent->clients,
                 sent->n_clients * sizeof *sent->clients);
    CU_ASSERT_EQUAL_FATAL(got->n_broadcasts, sent->n_broadcasts);
    for (size_t i = 0; i < got->n_broadcasts; i++) {
        const struct tally_broadcast *a = &got->broadcasts[i], *b = &sent->broadcasts[i];
        CU_ASSERT_EQUAL(a->iterate, b->iterate);
        CU_ASSERT_EQUAL(a->payload_bits, b->payload_bits);
        CU_ASSERT_EQUAL(a->quantizer_step, b->quantizer_step);
        CU_ASSERT_EQUAL(a->quantizer_intervals, b->quantizer_intervals);
        assert_bytes(a->payload, b->payload.data, b->payload.size);
    }
}

/* What is apart follows what is encoded, in an answer to a poll and in one to an update. */
static void test_api_worker_messages__shared_part_of_a_task_may_be_apart(void)
{
    uint32_t clients[] = {5, 300};
    struct tally_poll_response sent = full_task_response(clients, 2, 3);
    const struct tally_update_response update = {.formula_bits = 7, .payload_bits = 8};
    struct tally_buffer shared = {.size = 0}, whole[2] = {{.size = 0}}, apart[2] = {{.size = 0}};
    CU_ASSERT_EQUAL(tally_task_encode_shared(&sent.task, &shared), TALLY_OK);
    sent.task.shared = bytes_of(shared.data, shared.size);
    CU_ASSERT_EQUAL(tally_poll_response_encode(&sent, &whole[0]), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_response_encode(&update, &sent, &whole[1]), TALLY_OK);
    sent.task.shared_is_apart = true;
    CU_ASSERT_EQUAL(tally_poll_response_encode(&sent, &apart[0]), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_response_encode(&update, &sent, &apart[1]), TALLY_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(apart[i].size + shared.size, whole[i].size);
        CU_ASSERT_EQUAL(tally_buffer_append(&apart[i], shared.data, shared.size), TALLY_OK);
        CU_ASSERT_EQUAL_FATAL(apart[i].size, whole[i].size);
        CU_ASSERT_EQUAL(memcmp(apart[i].data, whole[i].data, whole[i].size), 0);
        tally_buffer_fini(&apart[i]);
        tally_buffer_fini(&whole[i]);
    }
    tally_buffer_fini(&shared);
}

static void test_api_worker_messages__largest_task_round_trip_borrows_bytes(void)
{
    uint32_t *clients = malloc(TALLY_MAX_SLOTS * sizeof *clients);
    for (uint32_t i = 0; i < TALLY_MAX_SLOTS; i++) {
        clients[i] = i * 1000003u;
    }
    struct tally_poll_response sent =
        full_task_response(clients, TALLY_MAX_SLOTS, TALLY_MAX_BROADCASTS);
    struct tally_buffer wire = {.size = 0};
    CU_ASSERT_EQUAL(tally_poll_response_encode(&sent, &wire), TALLY_OK);
    struct tally_poll_response got;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_poll_response_decode(wire.data, wire.size, &got, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL_FATAL(got.kind, TALLY_POLL_TASK);
    assert_same_task(&got.task, &sent.task);
    CU_ASSERT_TRUE(lies_within(got.task.job_document, &wire));
    CU_ASSERT_TRUE(lies_within(got.task.snapshot, &wire));
    CU_ASSERT_TRUE(lies_within(got.task.broadcasts[4].payload, &wire));
    tally_poll_response_fini(&got);
    tally_poll_response_fini(&got);
    tally_poll_response_fini(NULL);
    tally_buffer_fini(&wire);
    free(clients);
}

/* What is encoded once for all clients, and each one's own fields beside it. */
static void test_api_worker_messages__shared_task_round_trip(void)
{
    uint32_t clients[] = {5, 300};
    struct tally_poll_response whole = full_task_response(clients, 2, 3);
    struct tally_buffer shared = {.size = 0}, wire = {.size = 0};
    CU_ASSERT_EQUAL(tally_task_encode_shared(&whole.task, &shared), TALLY_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct tally_poll_response sent = {
            .kind = TALLY_POLL_TASK,
            .task = {.clients = clients, .n_clients = i, .deadline_ms = 1000 * i}};
        sent.task.shared = bytes_of(shared.data, shared.size);
        struct tally_poll_response got, expected = whole;
        expected.task.n_clients = i;
        expected.task.deadline_ms = 1000 * i;
        wire.size = 0;
        CU_ASSERT_EQUAL(tally_poll_response_encode(&sent, &wire), TALLY_OK);
        CU_ASSERT_EQUAL(tally_poll_response_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(got.kind, TALLY_POLL_TASK);
        assert_same_task(&got.task, &expected.task);
        tally_poll_response_fini(&got);
    }
    tally_buffer_fini(&shared);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__empty_task_stays_a_task(void)
{
    struct tally_poll_response sent = {.kind = TALLY_POLL_TASK};
    struct tally_buffer wire = {.size = 0};
    struct tally_poll_response got;
    CU_ASSERT_EQUAL(tally_poll_response_encode(&sent, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(wire.size, 2);
    CU_ASSERT_EQUAL(tally_poll_response_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.kind, TALLY_POLL_TASK);
    assert_same_task(&got.task, &sent.task);
    tally_poll_response_fini(&got);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__idle_and_released_round_trip(void)
{
    struct tally_buffer wire = {.size = 0};
    struct tally_poll_response got;
    CU_ASSERT_EQUAL(make_idle_response(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_poll_response_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.kind, TALLY_POLL_IDLE);
    CU_ASSERT_EQUAL(got.jobs_pending, 300);
    tally_poll_response_fini(&got);
    wire.size = 0;
    CU_ASSERT_EQUAL(make_released_response(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_poll_response_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.kind, TALLY_POLL_RELEASED);
    TALLY_ASSERT_TEXT(got.released_job_id, JOB_ID);
    tally_poll_response_fini(&got);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__update_round_trip(void)
{
    struct tally_update sent = full_update();
    struct tally_buffer wire = {.size = 0};
    struct tally_update got;
    CU_ASSERT_EQUAL(tally_update_encode(&sent, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.session, 1);
    TALLY_ASSERT_TEXT(got.job_id, JOB_ID);
    CU_ASSERT_EQUAL(got.round, UINT32_MAX);
    CU_ASSERT_EQUAL(got.client, 9);
    assert_bytes(got.payload, PAYLOAD, sizeof PAYLOAD);
    CU_ASSERT_TRUE(lies_within(got.payload, &wire));
    CU_ASSERT_EQUAL(got.payload_bits, 29);
    CU_ASSERT_EQUAL(got.clipped, 3);
    CU_ASSERT_TRUE(got.has_loss);
    CU_ASSERT_TRUE(got.loss == 0 && signbit(got.loss)); /* the sign survives too */
    TALLY_ASSERT_TEXT(got.failure, sent.failure);
    TALLY_ASSERT_TEXT(got.refusal, sent.refusal);
    CU_ASSERT_TRUE(got.tried);
    sent.has_loss = false;
    sent.tried = false;
    wire.size = 0;
    CU_ASSERT_EQUAL(tally_update_encode(&sent, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_FALSE(got.has_loss);
    CU_ASSERT_FALSE(got.tried);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__small_messages_round_trip(void)
{
    struct tally_buffer wire = {.size = 0};
    struct tally_update_response response;
    CU_ASSERT_EQUAL(make_update_response(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_response_decode(wire.data, wire.size, &response, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(response.formula_bits, UINT64_MAX);
    CU_ASSERT_EQUAL(response.payload_bits, 1);
    wire.size = 0;
    uint64_t session = 0;
    CU_ASSERT_EQUAL(make_leave_request(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(wire.size, 9);
    CU_ASSERT_EQUAL(tally_leave_request_decode(wire.data, wire.size, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, UINT64_MAX - 1);
    CU_ASSERT_EQUAL(tally_leave_request_decode(NULL, 0, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, 0);
    tally_buffer_fini(&wire);
}

/* A replica reads nothing else of a message that belongs to another one. */
static void test_api_worker_messages__session_of_any_message(void)
{
    struct tally_buffer wire = {.size = 0};
    const struct tally_update update = full_update();
    const struct tally_poll_request poll = {
        .session = 7, .wait_ms = 5, .n_cursors = 1, .cursors = {{"job", 3}}};
    uint64_t session = 0;
    CU_ASSERT_EQUAL(tally_update_encode(&update, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_leave_request_decode(wire.data, wire.size, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, update.session);
    wire.size = 0;
    CU_ASSERT_EQUAL(tally_poll_request_encode(&poll, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_leave_request_decode(wire.data, wire.size, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, 7);
    tally_buffer_fini(&wire);
}

/* The bytes that any protobuf library makes: field numbers and wire types are frozen. */
static void test_api_worker_messages__golden_bytes(void)
{
    static const uint8_t update_bytes[] = {
        0x09, 1,    0,    0,    0, 0, 0, 0,    0,    /* session */
        0x12, 1,    'j',                             /* job_id */
        0x18, 0x80, 0x01,                            /* round 128 */
        0x20, 2,                                     /* client */
        0x2A, 2,    0xAB, 0xCD,                      /* payload */
        0x30, 13,                                    /* payload_bits */
        0x38, 1,                                     /* clipped */
        0x41, 0,    0,    0,    0, 0, 0, 0xF0, 0x3F, /* loss 1.0 */
        0x4A, 2,    'n',  'o'};                      /* failure */
    struct tally_update update = {.session = 1,
                                  .job_id = "j",
                                  .round = 128,
                                  .client = 2,
                                  .payload = bytes_of("\xAB\xCD", 2),
                                  .payload_bits = 13,
                                  .clipped = 1,
                                  .has_loss = true,
                                  .loss = 1.0,
                                  .failure = "no"};
    struct tally_buffer wire = {.size = 0};
    CU_ASSERT_EQUAL(tally_update_encode(&update, &wire), TALLY_OK);
    assert_bytes(bytes_of(wire.data, wire.size), update_bytes, sizeof update_bytes);

    static const uint8_t task_bytes[] = {0x12, 12,                   /* task */
                                         0x0A, 1,  'j',              /* job_id */
                                         0x6A, 3,  0x01, 0x80, 0x01, /* clients, packed: 1, 128 */
                                         0x72, 2,  0x08, 0x02};      /* broadcasts: iterate 2 */
    uint32_t clients[] = {1, 128};
    struct tally_poll_response response = {.kind = TALLY_POLL_TASK,
                                           .task = {.job_id = "j",
                                                    .clients = clients,
                                                    .n_clients = 2,
                                                    .broadcasts = {{.iterate = 2}},
                                                    .n_broadcasts = 1}};
    wire.size = 0;
    CU_ASSERT_EQUAL(tally_poll_response_encode(&response, &wire), TALLY_OK);
    assert_bytes(bytes_of(wire.data, wire.size), task_bytes, sizeof task_bytes);
    tally_buffer_fini(&wire);
}

/* What programs send that do not know the field: up to Tally 0.5.0. The numbers are frozen, since
 * other versions must understand at least these bytes of each other. */
static void test_api_worker_messages__format_at_join(void)
{
    static const uint8_t request_bytes[] = {0x0A, 1, 'w', 0x10, 3, 0x28, 2};
    static const uint8_t response_bytes[] = {0x09, 7, 0, 0, 0, 0, 0, 0, 0, 0x18, 2};
    const struct tally_join_request request = {.name = "w", .slots = 3, .format = 2};
    const struct tally_join_response response = {.session = 7, .format = 2};
    struct tally_join_request got_request;
    struct tally_join_response got_response;
    struct tally_buffer wire = {.size = 0};
    CU_ASSERT_EQUAL(tally_join_request_encode(&request, &wire), TALLY_OK);
    assert_bytes(bytes_of(wire.data, wire.size), request_bytes, sizeof request_bytes);
    CU_ASSERT_EQUAL(tally_join_request_decode(wire.data, wire.size - 2, &got_request, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(got_request.format, 0);
    wire.size = 0;
    CU_ASSERT_EQUAL(tally_join_response_encode(&response, &wire), TALLY_OK);
    assert_bytes(bytes_of(wire.data, wire.size), response_bytes, sizeof response_bytes);
    CU_ASSERT_EQUAL(tally_join_response_decode(wire.data, wire.size - 2, &got_response, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(got_response.format, 1);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__other_format_names_who_is_behind(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_join_check_format(2, 2, &err), TALLY_OK);
    CU_ASSERT_EQUAL(tally_join_check_format(1, 2, &err), TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(err.field, "format");
    TALLY_ASSERT_TEXT(err.message, "the worker's messages are of format 1, the coordinator's of "
                                   "format 2: upgrade the worker");
    tally_error_clear(&err);
    CU_ASSERT_EQUAL(tally_join_check_format(3, 2, &err), TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(err.message, "the worker's messages are of format 3, the coordinator's of "
                                   "format 2: upgrade the coordinator");
}

static void test_api_worker_messages__encoding_appends_and_honours_the_limit(void)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        struct tally_buffer whole = {.size = 0};
        CU_ASSERT_EQUAL(tally_buffer_append(&whole, "x", 1), TALLY_OK);
        CU_ASSERT_EQUAL(TYPES[i].make(&whole), TALLY_OK);
        CU_ASSERT_EQUAL(whole.data[0], 'x');
        CU_ASSERT_EQUAL(TYPES[i].decode(whole.data + 1, whole.size - 1, NULL), TALLY_OK);
        struct tally_buffer exact = {.limit = whole.size - 1};
        CU_ASSERT_EQUAL(TYPES[i].make(&exact), TALLY_OK);
        struct tally_buffer small = {.limit = whole.size - 2};
        CU_ASSERT_EQUAL(TYPES[i].make(&small), TALLY_TOO_LARGE);
        CU_ASSERT_EQUAL(small.size, 0);
        tally_buffer_fini(&whole);
        tally_buffer_fini(&exact);
        tally_buffer_fini(&small);
    }
}

/* ---- Malformed input ---- */

/* Runs a decoder on a heap copy without slack, so that ASan sees a read past the end. */
static enum tally_status decode_exactly(const struct message_type *type, const uint8_t *bytes,
                                        size_t n, struct tally_error *err)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    enum tally_status status = type->decode(copy, n, err);
    free(copy);
    return status;
}

static void assert_ok_or_malformed(const struct message_type *type, const uint8_t *bytes, size_t n)
{
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = decode_exactly(type, bytes, n, &err);
    if (status != TALLY_OK) {
        TALLY_ASSERT_STATUS(status, TALLY_MALFORMED, &err);
        CU_ASSERT_NOT_EQUAL(err.message[0], '\0');
    }
}

static void test_api_worker_messages__every_prefix_decodes_or_is_malformed(void)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        struct tally_buffer wire = {.size = 0};
        CU_ASSERT_EQUAL(TYPES[i].make(&wire), TALLY_OK);
        for (size_t n = 0; n < wire.size; n++) {
            assert_ok_or_malformed(&TYPES[i], wire.data, n);
        }
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_messages__flipped_bytes_decode_or_are_malformed(void)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        struct tally_buffer wire = {.size = 0};
        CU_ASSERT_EQUAL(TYPES[i].make(&wire), TALLY_OK);
        for (size_t at = 0; at < wire.size; at++) {
            for (int value = 0; value < 256; value++) {
                uint8_t kept = wire.data[at];
                wire.data[at] = (uint8_t)value;
                assert_ok_or_malformed(&TYPES[i], wire.data, wire.size);
                wire.data[at] = kept;
            }
        }
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_messages__random_bytes_decode_or_are_malformed(void)
{
    uint64_t state = 99;
    uint8_t bytes[64];
    for (int i = 0; i < 20000; i++) {
        for (size_t k = 0; k < sizeof bytes; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (uint8_t)(state >> 56);
        }
        bytes[0] &= 0x7F; /* a known field more often */
        assert_ok_or_malformed(&TYPES[(size_t)i % N_TYPES], bytes, 1 + (size_t)i % sizeof bytes);
    }
}

struct bad_case {
    size_t type; /* in TYPES */
    const char *field, *message;
    size_t n;
    uint8_t bytes[48];
};

enum { JOIN = 0, JOIN_RESPONSE = 1, POLL = 2, RESPONSE = 3, UPDATE = 6 };

static const struct bad_case BAD_CASES[] = {
    {JOIN, "name", "text contains NUL", 5, {0x0A, 3, 'a', 0, 'b'}},
    {JOIN, "name", "text is not UTF-8", 4, {0x0A, 2, 'a', 0xFF}},
    {JOIN, "name", "wrong wire type", 2, {0x08, 3}},
    {JOIN, "name", "end-of-stream", 3, {0x0A, 2, 'a'}},
    {JOIN, "slots", "wrong wire type", 3, {0x12, 1, 5}},
    {JOIN, "slots", "integer too large", 6, {0x10, 0x80, 0x80, 0x80, 0x80, 0x10}},
    {JOIN, "slots", NULL, 11, {0x10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 127}},
    {JOIN, "slots", "end-of-stream", 2, {0x10, 0x80}},
    {JOIN, "held", "wrong wire type", 2, {0x20, 1}},
    {JOIN, "held", "wrong wire type", 9, {0x21, 1, 2, 3, 4, 5, 6, 7, 8}},
    {JOIN, "held.client", "integer too large", 8, {0x22, 6, 0x10, 255, 255, 255, 255, 0x1F}},
    {JOIN, "held.job_id", "end-of-stream", 4, {0x22, 2, 0x0A, 5}},
    {JOIN, "", "invalid field tag", 2, {0x00, 1}},
    {JOIN, "", "invalid field tag", 1, {0x80}},
    {JOIN, "slots", "invalid wire_type", 2, {0x13, 1}},
    {JOIN, "", "invalid wire_type", 3, {0xFB, 0x07, 1}}, /* a group of an unknown field */
    {JOIN, "", "end-of-stream", 3, {0xFA, 0x07, 9}},     /* an unknown field that is cut */
    {JOIN_RESPONSE, "session", "wrong wire type", 2, {0x08, 1}},
    {JOIN_RESPONSE, "session", "end-of-stream", 5, {0x09, 1, 2, 3, 4}},
    {POLL, "cursors.iterate", "wrong wire type", 5, {0x1A, 3, 0x12, 1, 0}},
    {RESPONSE, "kind", "neither idle, task nor released", 0, {0}},
    {RESPONSE, "kind", "neither idle, task nor released", 3, {0x78, 0x80, 0x01}},
    {RESPONSE, "task", "a second kind", 4, {0x0A, 0, 0x12, 0}},
    {RESPONSE, "idle", "wrong wire type", 2, {0x08, 0}},
    {RESPONSE, "released.job_id", "text contains NUL", 5, {0x1A, 3, 0x0A, 1, 0}},
    {RESPONSE, "task.job_document", "wrong wire type", 4, {0x12, 2, 0x10, 7}},
    {RESPONSE, "task.snapshot", "wrong wire type", 7, {0x12, 5, 0x7D, 1, 2, 3, 4}},
    {RESPONSE,
     "task.clients",
     "integer too large",
     9,
     {0x12, 7, 0x6A, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F}},
    {RESPONSE, "task.clients", "end-of-stream", 6, {0x12, 4, 0x6A, 2, 1, 0x80}},
    {RESPONSE, "task.clients", "wrong wire type", 7, {0x12, 5, 0x6D, 1, 2, 3, 4}},
    {RESPONSE, "task.broadcasts.payload", "end-of-stream", 6, {0x12, 4, 0x72, 2, 0x12, 9}},
    {RESPONSE, "task.broadcasts.quantizer_step", "wrong wire type", 6, {0x12, 4, 0x72, 2, 0x20, 1}},
    {UPDATE, "payload", "wrong wire type", 2, {0x28, 1}},
    {UPDATE, "payload", "end-of-stream", 7, {0x2A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 1}},
    {UPDATE, "loss", "wrong wire type", 6, {0x45, 1, 2, 3, 4, 0}},
};

static void test_api_worker_messages__malformed_names_the_field(void)
{
    for (size_t i = 0; i < sizeof BAD_CASES / sizeof BAD_CASES[0]; i++) {
        const struct bad_case *bad = &BAD_CASES[i];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(decode_exactly(&TYPES[bad->type], bad->bytes, bad->n, &err),
                            TALLY_MALFORMED, &err);
        TALLY_ASSERT_TEXT(err.field, bad->field);
        if (bad->message != NULL) {
            TALLY_ASSERT_TEXT(err.message, bad->message);
        }
        CU_ASSERT_EQUAL(decode_exactly(&TYPES[bad->type], bad->bytes, bad->n, NULL),
                        TALLY_MALFORMED);
    }
}

/* Appends field `tag` (below 16) with `n` bytes of content. */
static void append_field(struct tally_buffer *wire, uint8_t tag, const void *content, size_t n)
{
    uint8_t head[] = {(uint8_t)(tag << 3 | 2), (uint8_t)(n | 0x80), (uint8_t)(n >> 7)};
    (void)tally_buffer_append(wire, head, sizeof head);
    (void)tally_buffer_append(wire, content, n);
}

static void assert_text_limit(size_t type, uint8_t tag, size_t longest)
{
    char text[512];
    memset(text, 'a', sizeof text);
    struct tally_buffer wire = {.size = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    append_field(&wire, tag, text, longest);
    TALLY_ASSERT_STATUS(decode_exactly(&TYPES[type], wire.data, wire.size, &err), TALLY_OK, &err);
    wire.size = 0;
    append_field(&wire, tag, text, longest + 1);
    TALLY_ASSERT_STATUS(decode_exactly(&TYPES[type], wire.data, wire.size, &err), TALLY_MALFORMED,
                        &err);
    char message[64];
    snprintf(message, sizeof message, "text of %zu bytes, at most %zu", longest + 1, longest);
    TALLY_ASSERT_TEXT(err.message, message);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__text_limits(void)
{
    assert_text_limit(JOIN, 1, TALLY_WORKER_NAME_CAPACITY - 1);
    assert_text_limit(JOIN, 3, TALLY_MESSAGE_JOB_ID_CAPACITY - 1);
    assert_text_limit(UPDATE, 2, TALLY_MESSAGE_JOB_ID_CAPACITY - 1);
    assert_text_limit(UPDATE, 9, TALLY_FAILURE_CAPACITY - 1);
}

/* Field `tag` of type `type` may come `most` times, each with `content`. */
static void assert_count_limit(size_t type, uint8_t tag, const void *content, size_t n_content,
                               size_t most, const char *field)
{
    struct tally_buffer wire = {.size = 0};
    for (size_t i = 0; i < most; i++) {
        append_field(&wire, tag, content, n_content);
    }
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(decode_exactly(&TYPES[type], wire.data, wire.size, &err), TALLY_OK, &err);
    append_field(&wire, tag, content, n_content);
    TALLY_ASSERT_STATUS(decode_exactly(&TYPES[type], wire.data, wire.size, &err), TALLY_MALFORMED,
                        &err);
    TALLY_ASSERT_TEXT(err.field, field);
    char message[64];
    snprintf(message, sizeof message, "more than %zu elements", most);
    TALLY_ASSERT_TEXT(err.message, message);
    tally_buffer_fini(&wire);
}

/* Wraps what is in `wire` into field `tag`, its length taking three bytes. */
static void wrap_in_field(struct tally_buffer *wire, uint8_t tag)
{
    struct tally_buffer wrapped = {.size = 0};
    size_t n = wire->size;
    uint8_t head[] = {(uint8_t)(tag << 3 | 2), (uint8_t)(n | 0x80), (uint8_t)(n >> 7 | 0x80),
                      (uint8_t)(n >> 14)};
    (void)tally_buffer_append(&wrapped, head, sizeof head);
    (void)tally_buffer_append(&wrapped, wire->data, n);
    tally_buffer_fini(wire);
    *wire = wrapped;
}

/* As assert_count_limit(), within the task of a PollTaskResponse. */
static void assert_task_count_limit(const uint8_t *element, size_t n_element, size_t most,
                                    const char *field)
{
    for (size_t count = most; count <= most + 1; count++) {
        struct tally_buffer wire = {.size = 0};
        struct tally_error err = TALLY_ERROR_INIT;
        for (size_t i = 0; i < count; i++) {
            (void)tally_buffer_append(&wire, element, n_element);
        }
        wrap_in_field(&wire, 2);
        TALLY_ASSERT_STATUS(decode_exactly(&TYPES[RESPONSE], wire.data, wire.size, &err),
                            count == most ? TALLY_OK : TALLY_MALFORMED, &err);
        TALLY_ASSERT_TEXT(err.field, count == most ? "" : field);
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_messages__count_limits(void)
{
    assert_count_limit(JOIN, 4, "\x10\x05", 2, TALLY_MAX_SLOTS, "held");
    assert_count_limit(POLL, 3, "\x10\x05", 2, TALLY_MAX_CURSORS, "cursors");
    static const uint8_t unpacked_client[] = {0x68, 7};
    static const uint8_t packed_clients[] = {0x6A, 2, 7, 8};
    static const uint8_t broadcast[] = {0x72, 2, 0x08, 1};
    assert_task_count_limit(unpacked_client, 2, TALLY_MAX_SLOTS, "task.clients");
    assert_task_count_limit(packed_clients, 4, TALLY_MAX_SLOTS / 2, "task.clients");
    assert_task_count_limit(broadcast, 4, TALLY_MAX_BROADCASTS, "task.broadcasts");
}

static void test_api_worker_messages__unknown_fields_are_skipped(void)
{
    static const uint8_t unknown[] = {0x78, 0x80, 0x01,                         /* 15: varint */
                                      0xF9, 0x7F, 1,    2, 3,    4, 5, 6, 7, 8, /* 2047: fixed64 */
                                      0x7A, 3,    'a',  0, 0xFF,                /* 15: bytes */
                                      0x7D, 1,    2,    3, 4};                  /* 15: fixed32 */
    for (size_t i = 0; i < N_TYPES; i++) {
        struct tally_buffer wire = {.size = 0};
        (void)tally_buffer_append(&wire, unknown, sizeof unknown);
        CU_ASSERT_EQUAL(TYPES[i].make(&wire), TALLY_OK);
        (void)tally_buffer_append(&wire, unknown, sizeof unknown);
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(decode_exactly(&TYPES[i], wire.data, wire.size, &err), TALLY_OK, &err);
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_messages__last_value_wins(void)
{
    static const uint8_t twice[] = {0x18, 1, 0x12, 2, 'a', 'b', 0x18, 2, 0x12, 1, 'c'};
    struct tally_update got;
    CU_ASSERT_EQUAL(tally_update_decode(twice, sizeof twice, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.round, 2);
    TALLY_ASSERT_TEXT(got.job_id, "c");
}

static void test_api_worker_messages__failure_leaves_the_result_alone(void)
{
    static const uint8_t bad[] = {0x18, 7, 0x28, 1};
    struct tally_update got = {.round = 5};
    CU_ASSERT_EQUAL(tally_update_decode(bad, sizeof bad, &got, NULL), TALLY_MALFORMED);
    CU_ASSERT_EQUAL(got.round, 5);
}

/* An update that polls, and the answer to both. */
static void test_api_worker_messages__poll_within_an_update(void)
{
    const struct tally_poll_request poll = {.wait_ms = 5, .n_cursors = 1, .cursors = {{"job", 3}}};
    const struct tally_poll_response idle = {.kind = TALLY_POLL_IDLE, .jobs_pending = 2};
    struct tally_buffer inner = {0}, wire = {0};
    struct tally_update update = full_update(), got;
    CU_ASSERT_EQUAL(tally_poll_request_encode(&poll, &inner), TALLY_OK);
    update.has_poll = true;
    update.poll = (struct tally_bytes){inner.data, inner.size};
    CU_ASSERT_EQUAL(tally_update_encode(&update, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    struct tally_poll_request got_poll;
    CU_ASSERT_TRUE_FATAL(got.has_poll);
    CU_ASSERT_EQUAL(tally_poll_request_decode(got.poll.data, got.poll.size, &got_poll, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(got_poll.wait_ms, 5);
    CU_ASSERT_EQUAL(got_poll.cursors[0].iterate, 3);

    wire.size = inner.size = 0;
    CU_ASSERT_EQUAL(tally_poll_response_encode(&idle, &inner), TALLY_OK);
    const struct tally_update_response response = {.payload_bits = 9};
    struct tally_update_response got_response;
    CU_ASSERT_EQUAL(tally_update_response_encode(&response, &idle, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_response_decode(wire.data, wire.size, &got_response, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(got_response.payload_bits, 9);
    CU_ASSERT_TRUE_FATAL(got_response.has_next);
    CU_ASSERT_EQUAL(got_response.next.size, inner.size);
    CU_ASSERT_EQUAL(memcmp(got_response.next.data, inner.data, inner.size), 0);

    /* A poll without anything is one all the same. */
    static const uint8_t empty[] = {0x62, 0};
    CU_ASSERT_EQUAL(tally_update_decode(empty, sizeof empty, &got, NULL), TALLY_OK);
    CU_ASSERT_TRUE(got.has_poll);
    tally_buffer_fini(&inner);
    tally_buffer_fini(&wire);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_worker_messages__join_round_trip),
    TALLY_TEST(test_api_worker_messages__join_response_round_trip),
    TALLY_TEST(test_api_worker_messages__poll_request_round_trip),
    TALLY_TEST(test_api_worker_messages__shared_part_of_a_task_may_be_apart),
    TALLY_TEST(test_api_worker_messages__largest_task_round_trip_borrows_bytes),
    TALLY_TEST(test_api_worker_messages__shared_task_round_trip),
    TALLY_TEST(test_api_worker_messages__empty_task_stays_a_task),
    TALLY_TEST(test_api_worker_messages__idle_and_released_round_trip),
    TALLY_TEST(test_api_worker_messages__update_round_trip),
    TALLY_TEST(test_api_worker_messages__small_messages_round_trip),
    TALLY_TEST(test_api_worker_messages__session_of_any_message),
    TALLY_TEST(test_api_worker_messages__golden_bytes),
    TALLY_TEST(test_api_worker_messages__format_at_join),
    TALLY_TEST(test_api_worker_messages__other_format_names_who_is_behind),
    TALLY_TEST(test_api_worker_messages__encoding_appends_and_honours_the_limit),
    TALLY_TEST(test_api_worker_messages__every_prefix_decodes_or_is_malformed),
    TALLY_TEST(test_api_worker_messages__flipped_bytes_decode_or_are_malformed),
    TALLY_TEST(test_api_worker_messages__random_bytes_decode_or_are_malformed),
    TALLY_TEST(test_api_worker_messages__malformed_names_the_field),
    TALLY_TEST(test_api_worker_messages__text_limits),
    TALLY_TEST(test_api_worker_messages__count_limits),
    TALLY_TEST(test_api_worker_messages__unknown_fields_are_skipped),
    TALLY_TEST(test_api_worker_messages__last_value_wins),
    TALLY_TEST(test_api_worker_messages__failure_leaves_the_result_alone),
    TALLY_TEST(test_api_worker_messages__poll_within_an_update),
};
TALLY_SUITE(api_worker_messages, TESTS);

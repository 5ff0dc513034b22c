/* Messages between worker and coordinator: round trips, and the exact bytes of the format. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "tests/harness.h"
#include "tests/unit/api/worker/full_messages.h"

static void assert_bytes(struct tally_bytes actual, const void *expected, size_t n)
{
    CU_ASSERT_EQUAL(actual.size, n);
    CU_ASSERT_TRUE(actual.size == n && (n == 0 || memcmp(actual.data, expected, n) == 0));
}

static bool lies_within(struct tally_bytes part, const struct tally_buffer *whole)
{
    return part.data >= whole->data && part.data + part.size <= whole->data + whole->size;
}

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
    TALLY_ASSERT_TEXT(got.job_id, FULL_JOB_ID);
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
    CU_ASSERT_EQUAL(got.max_batch_bytes, 262144);
    CU_ASSERT_EQUAL(got.format, 3);
    TALLY_ASSERT_TEXT(got.rival, "2001:db8::7");
    TALLY_ASSERT_TEXT(got.ended, "cancelled");
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
    CU_ASSERT_TRUE(got.until_idle);
    CU_ASSERT_EQUAL_FATAL(got.n_cursors, TALLY_MAX_CURSORS);
    for (size_t i = 0; i < got.n_cursors; i++) {
        TALLY_ASSERT_TEXT(got.cursors[i].job_id, sent.cursors[i].job_id);
        CU_ASSERT_EQUAL(got.cursors[i].iterate, sent.cursors[i].iterate);
    }
    TALLY_ASSERT_TEXT(got.undeliverable.job_id, sent.undeliverable.job_id);
    TALLY_ASSERT_TEXT(got.undeliverable.reason, sent.undeliverable.reason);
    sent.until_idle = false;
    sent.undeliverable.job_id[0] = '\0';
    wire.size = 0;
    CU_ASSERT_EQUAL(tally_poll_request_encode(&sent, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_poll_request_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_FALSE(got.until_idle);
    TALLY_ASSERT_TEXT(got.undeliverable.job_id, "");
    TALLY_ASSERT_TEXT(got.undeliverable.reason, "");
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
    CU_ASSERT_EQUAL(got->mark, sent->mark);
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

/* The shared part may follow the encoded message, in the responses to a poll and to an update. */
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

/* One shared part, encoded once for all clients, combined with the own fields of each task. */
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

/* Shifts belong to one task, like its clients: they are not in the part that tasks share. */
static void test_api_worker_messages__shifts_round_trip(void)
{
    static const uint8_t VECTOR[] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint32_t clients[] = {7, 0};
    struct tally_client_shift shifts[] = {
        {.client = 7, .round = 3, .vector = bytes_of(VECTOR, sizeof VECTOR)}, {.client = 0}};
    struct tally_poll_response sent = full_task_response(clients, 2, 1), got = {.jobs_pending = 0};
    sent.task.shift_gain = 0.75;
    sent.task.repeats = 4;
    struct tally_buffer shared = {.size = 0};
    CU_ASSERT_EQUAL(tally_task_encode_shared(&sent.task, &shared), TALLY_OK);
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        struct tally_buffer wire = {.size = 0};
        sent.task.shifts = shifts;
        sent.task.n_shifts = 2;
        sent.task.shared = is_shared ? bytes_of(shared.data, shared.size) : bytes_of(NULL, 0);
        CU_ASSERT_EQUAL(tally_poll_response_encode(&sent, &wire), TALLY_OK);
        CU_ASSERT_EQUAL_FATAL(tally_poll_response_decode(wire.data, wire.size, &got, NULL),
                              TALLY_OK);
        CU_ASSERT_EQUAL(got.task.shift_gain, 0.75);
        CU_ASSERT_EQUAL(got.task.repeats, 4);
        CU_ASSERT_EQUAL_FATAL(got.task.n_shifts, 2);
        CU_ASSERT_TRUE(got.task.shifts[0].client == 7 && got.task.shifts[0].round == 3);
        CU_ASSERT_EQUAL_FATAL(got.task.shifts[0].vector.size, sizeof VECTOR);
        CU_ASSERT_EQUAL(memcmp(got.task.shifts[0].vector.data, VECTOR, sizeof VECTOR), 0);
        CU_ASSERT_TRUE(got.task.shifts[1].client == 0 && got.task.shifts[1].round == 0 &&
                       got.task.shifts[1].vector.size == 0);
        tally_poll_response_fini(&got);
        tally_buffer_fini(&wire);
    }
    tally_buffer_fini(&shared);
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
    TALLY_ASSERT_TEXT(got.released_job_id, FULL_JOB_ID);
    tally_poll_response_fini(&got);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__update_request_round_trip(void)
{
    const struct tally_update sent = full_update();
    struct tally_buffer wire = {.size = 0};
    struct tally_update_request got;
    struct tally_update update;
    CU_ASSERT_EQUAL(make_update_request(&wire), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_update_request_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    TALLY_ASSERT_TEXT(got.job_id, FULL_JOB_ID);
    CU_ASSERT_EQUAL(got.session, UINT64_MAX);
    CU_ASSERT_EQUAL(got.columns, (1 << 28) - 2);
    CU_ASSERT_EQUAL(got.n_updates, 2);
    CU_ASSERT_TRUE(got.has_poll);
    assert_bytes(got.poll, full_update_request().poll.data, 2);
    CU_ASSERT_EQUAL(tally_update_request_next(&got, &update, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(update.round, UINT32_MAX);
    CU_ASSERT_EQUAL(update.mark, (1 << 28) - 1);
    CU_ASSERT_EQUAL(update.client, 9);
    assert_bytes(update.payload, FULL_PAYLOAD, sizeof FULL_PAYLOAD);
    CU_ASSERT_TRUE(lies_within(update.payload, &wire));
    CU_ASSERT_EQUAL(update.payload_bits, 29);
    CU_ASSERT_EQUAL(update.clipped, 3);
    CU_ASSERT_TRUE(update.has_loss);
    CU_ASSERT_TRUE(update.loss == 0 && signbit(update.loss)); /* the sign is kept too */
    TALLY_ASSERT_TEXT(update.failure, sent.failure);
    TALLY_ASSERT_TEXT(update.refusal, sent.refusal);
    CU_ASSERT_TRUE(update.tried);
    CU_ASSERT_TRUE(update.lacks_plugin);
    CU_ASSERT_EQUAL_FATAL(update.n_metrics, 2);
    TALLY_ASSERT_TEXT(update.metrics[0].name, "accuracy");
    CU_ASSERT_EQUAL(update.metrics[0].value, 0.5);
    TALLY_ASSERT_TEXT(update.metrics[1].name, "s");
    CU_ASSERT_TRUE(signbit(update.metrics[1].value));
    CU_ASSERT_EQUAL(tally_update_request_next(&got, &update, NULL), TALLY_OK);
    CU_ASSERT_TRUE(update.client == 0 && update.payload.size == 0 && !update.has_loss);
    CU_ASSERT_TRUE(!update.tried && !update.lacks_plugin && update.n_metrics == 0);
    CU_ASSERT_EQUAL(update.encoded.size, 0);
    CU_ASSERT_EQUAL(tally_update_request_next(&got, &update, NULL), TALLY_MALFORMED);
    tally_buffer_fini(&wire);
}

/* The bytes of an update within its request are an update, too: they are what is stored. */
static void test_api_worker_messages__encoded_update_decodes_by_itself(void)
{
    struct tally_buffer wire = {.size = 0};
    struct tally_update_request got;
    struct tally_update update, again;
    CU_ASSERT_EQUAL(make_update_request(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_request_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(tally_update_request_next(&got, &update, NULL), TALLY_OK);
        CU_ASSERT_TRUE(lies_within(update.encoded, &wire));
        CU_ASSERT_EQUAL(tally_update_decode(update.encoded.data, update.encoded.size, &again, NULL),
                        TALLY_OK);
        CU_ASSERT_TRUE(again.round == 0 && again.mark == 0);
        CU_ASSERT_EQUAL(again.client, update.client);
        CU_ASSERT_EQUAL(again.payload.data, update.payload.data);
        CU_ASSERT_EQUAL(again.payload.size, update.payload.size);
        CU_ASSERT_EQUAL(again.payload_bits, update.payload_bits);
        CU_ASSERT_EQUAL(again.has_loss, update.has_loss);
        CU_ASSERT_EQUAL(again.n_metrics, update.n_metrics);
    }
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__small_messages_round_trip(void)
{
    struct tally_buffer wire = {.size = 0};
    uint64_t session = 0;
    CU_ASSERT_EQUAL(make_leave_request(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(wire.size, 9);
    CU_ASSERT_EQUAL(tally_leave_request_decode(wire.data, wire.size, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, UINT64_MAX - 1);
    CU_ASSERT_EQUAL(tally_leave_request_decode(NULL, 0, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, 0);
    wire.size = 0;
    struct tally_progress_request progress;
    CU_ASSERT_EQUAL(make_progress_request(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_progress_request_decode(wire.data, wire.size, &progress, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(progress.session, 7);
    CU_ASSERT_TRUE(progress.receives);
    CU_ASSERT_EQUAL(progress.bytes, 1000);
    CU_ASSERT_EQUAL(progress.of_bytes, UINT64_MAX);
    wire.size = 0;
    struct tally_describe_request origin;
    CU_ASSERT_EQUAL(make_describe_request(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_describe_request_decode(wire.data, wire.size, &origin, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(origin.session, 7);
    CU_ASSERT_STRING_EQUAL(origin.job_id, "0123456789ab");
    CU_ASSERT_STRING_EQUAL(origin.origin, "{\"version\": \"1\"}");
    tally_buffer_fini(&wire);
}

/* Of a message for another replica, a replica reads only the session. */
static void test_api_worker_messages__session_of_any_message(void)
{
    struct tally_buffer wire = {.size = 0};
    const struct tally_poll_request poll = {
        .session = 7, .wait_ms = 5, .n_cursors = 1, .cursors = {{.job_id = "job", .iterate = 3}}};
    uint64_t session = 0;
    CU_ASSERT_EQUAL(make_update_request(&wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_leave_request_decode(wire.data, wire.size, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, UINT64_MAX);
    wire.size = 0;
    CU_ASSERT_EQUAL(tally_poll_request_encode(&poll, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_leave_request_decode(wire.data, wire.size, &session, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(session, 7);
    tally_buffer_fini(&wire);
}

/* The bytes that any protobuf library writes: field numbers and wire types are frozen. */
static void test_api_worker_messages__golden_bytes(void)
{
    static const uint8_t update_bytes[] = {
        0x09, 1,    0,    0,    0,    0, 0, 0,    0,    /* session */
        0x32, 23,                                       /* updates */
        0x08, 2,                                        /* client */
        0x12, 2,    0xAB, 0xCD,                         /* payload */
        0x18, 13,                                       /* payload_bits */
        0x20, 1,                                        /* clipped */
        0x29, 0,    0,    0,    0,    0, 0, 0xF0, 0x3F, /* loss 1.0 */
        0x3A, 2,    'n',  'o',                          /* failure */
        0x12, 1,    'j',                                /* job_id */
        0x18, 0x80, 0x01,                               /* round 128 */
        0x20, 0xFF, 0xFF, 0xFF, 0x7F,                   /* the largest mark */
        0x28, 3};                                       /* columns */
    const struct tally_update update = {.client = 2,
                                        .payload = bytes_of("\xAB\xCD", 2),
                                        .payload_bits = 13,
                                        .clipped = 1,
                                        .has_loss = true,
                                        .loss = 1.0,
                                        .failure = "no"};
    const struct tally_update_request request = {
        .job_id = "j", .round = 128, .mark = (UINT32_C(1) << 28) - 1, .columns = 3};
    struct tally_buffer wire = {.size = 0};
    uint8_t session[TALLY_SESSION_FIELD_BYTES];
    tally_session_write_first(1, session);
    CU_ASSERT_EQUAL(tally_buffer_append(&wire, session, sizeof session), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_request_add(&update, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_request_end(&request, &wire), TALLY_OK);
    assert_bytes(bytes_of(wire.data, wire.size), update_bytes, sizeof update_bytes);

    static const uint8_t task_bytes[] = {0x12, 18,                     /* task */
                                         0x0A, 1,    'j',              /* job_id */
                                         0x20, 0xFF, 0xFF, 0xFF, 0x7F, /* mark */
                                         0x42, 3,    0x01, 0x80, 0x01, /* clients, packed: 1, 128 */
                                         0xCA, 0x01, 2,    0x08, 0x02}; /* broadcasts: iterate 2 */
    uint32_t clients[] = {1, 128};
    struct tally_poll_response response = {.kind = TALLY_POLL_TASK,
                                           .task = {.job_id = "j",
                                                    .mark = (UINT32_C(1) << 28) - 1,
                                                    .clients = clients,
                                                    .n_clients = 2,
                                                    .broadcasts = {{.iterate = 2}},
                                                    .n_broadcasts = 1}};
    wire.size = 0;
    CU_ASSERT_EQUAL(tally_poll_response_encode(&response, &wire), TALLY_OK);
    assert_bytes(bytes_of(wire.data, wire.size), task_bytes, sizeof task_bytes);
    tally_buffer_fini(&wire);
}

/* Worker and coordinator of any two formats read each other's, so these bytes stay as they are. */
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
    CU_ASSERT_EQUAL(got_response.format, 0);
    tally_buffer_fini(&wire);
}

static void expect_other_format(uint32_t worker, uint32_t coordinator, const char *message)
{
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_join_check_format(worker, coordinator, &err), TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(err.field, "format");
    TALLY_ASSERT_TEXT(err.message, message);
}

static void test_api_worker_messages__other_format_names_who_is_behind(void)
{
    CU_ASSERT_EQUAL(tally_join_check_format(3, 3, NULL), TALLY_OK);
    expect_other_format(2, 3,
                        "the worker's messages are of format 2, the coordinator's of format 3: "
                        "upgrade the worker; 0.15 is the last release of format 2");
    expect_other_format(3, 2,
                        "the worker's messages are of format 3, the coordinator's of format 2: "
                        "upgrade the coordinator; 0.15 is the last release of format 2");
    expect_other_format(3, 4,
                        "the worker's messages are of format 3, the coordinator's of format 4: "
                        "upgrade the worker");
    expect_other_format(0, 3,
                        "the worker states no format, the coordinator's is 3: upgrade the worker");
}

/* The encoded updates are reused when the request is sent again in another session. */
static void test_api_worker_messages__update_request_ends_anew(void)
{
    const struct tally_update update = full_update();
    struct tally_update_request message = full_update_request(), got;
    struct tally_buffer wire = {.size = 0};
    CU_ASSERT_EQUAL(tally_update_request_add(&update, &wire), TALLY_OK);
    const size_t n = wire.size;
    for (uint64_t session = 1; session <= 2; session++) {
        wire.size = n;
        message.session = session;
        CU_ASSERT_EQUAL(tally_update_request_end(&message, &wire), TALLY_OK);
        CU_ASSERT_EQUAL(tally_update_request_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(got.session, session);
        CU_ASSERT_EQUAL(got.n_updates, 1);
    }
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__too_many_updates_are_malformed(void)
{
    const struct tally_update empty = {.client = 0};
    struct tally_buffer wire = {.size = 0};
    struct tally_update_request got;
    struct tally_error err = TALLY_ERROR_INIT;
    for (int i = 0; i < TALLY_MAX_UPDATES; i++) {
        CU_ASSERT_EQUAL(tally_update_request_add(&empty, &wire), TALLY_OK);
    }
    CU_ASSERT_EQUAL(tally_update_request_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_request_add(&empty, &wire), TALLY_OK);
    TALLY_ASSERT_STATUS(tally_update_request_decode(wire.data, wire.size, &got, &err),
                        TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.field, "updates");
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__update_response_round_trip(void)
{
    struct tally_buffer wire = {.size = 0};
    struct tally_update_response got;
    struct tally_update_result result;
    struct tally_poll_response next;
    CU_ASSERT_EQUAL(make_update_response(&wire), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_update_response_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.n_results, 2);
    CU_ASSERT_TRUE(got.formula_bits == 3 && got.payload_bits == UINT64_MAX);
    CU_ASSERT_EQUAL(tally_update_response_next(&got, &result, NULL), TALLY_OK);
    CU_ASSERT_TRUE(result.formula_bits == UINT64_MAX && result.payload_bits == 1);
    TALLY_ASSERT_TEXT(result.code, "");
    CU_ASSERT_EQUAL(tally_update_response_next(&got, &result, NULL), TALLY_OK);
    TALLY_ASSERT_TEXT(result.code, "invalid_argument");
    TALLY_ASSERT_TEXT(result.message, "no");
    CU_ASSERT_EQUAL(result.formula_bits, 0);
    CU_ASSERT_EQUAL(tally_update_response_next(&got, &result, NULL), TALLY_MALFORMED);
    CU_ASSERT_TRUE_FATAL(got.has_next);
    CU_ASSERT_EQUAL(tally_poll_response_decode(got.next.data, got.next.size, &next, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(next.jobs_pending, 2);
    tally_buffer_fini(&wire);
}

static void test_api_worker_messages__encoding_appends_and_honours_the_limit(void)
{
    for (size_t i = 0; i < N_MESSAGE_TYPES; i++) {
        struct tally_buffer whole = {.size = 0};
        CU_ASSERT_EQUAL(tally_buffer_append(&whole, "x", 1), TALLY_OK);
        CU_ASSERT_EQUAL(MESSAGE_TYPES[i].make(&whole), TALLY_OK);
        CU_ASSERT_EQUAL(whole.data[0], 'x');
        CU_ASSERT_EQUAL(MESSAGE_TYPES[i].decode(whole.data + 1, whole.size - 1, NULL), TALLY_OK);
        struct tally_buffer exact = {.limit = whole.size - 1};
        CU_ASSERT_EQUAL(MESSAGE_TYPES[i].make(&exact), TALLY_OK);
        struct tally_buffer small = {.limit = whole.size - 2};
        CU_ASSERT_EQUAL(MESSAGE_TYPES[i].make(&small), TALLY_TOO_LARGE);
        CU_ASSERT_EQUAL(small.size, 0);
        tally_buffer_fini(&whole);
        tally_buffer_fini(&exact);
        tally_buffer_fini(&small);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_worker_messages__join_round_trip),
    TALLY_TEST(test_api_worker_messages__join_response_round_trip),
    TALLY_TEST(test_api_worker_messages__poll_request_round_trip),
    TALLY_TEST(test_api_worker_messages__shared_part_of_a_task_may_be_apart),
    TALLY_TEST(test_api_worker_messages__largest_task_round_trip_borrows_bytes),
    TALLY_TEST(test_api_worker_messages__shared_task_round_trip),
    TALLY_TEST(test_api_worker_messages__shifts_round_trip),
    TALLY_TEST(test_api_worker_messages__empty_task_stays_a_task),
    TALLY_TEST(test_api_worker_messages__idle_and_released_round_trip),
    TALLY_TEST(test_api_worker_messages__update_request_round_trip),
    TALLY_TEST(test_api_worker_messages__encoded_update_decodes_by_itself),
    TALLY_TEST(test_api_worker_messages__small_messages_round_trip),
    TALLY_TEST(test_api_worker_messages__session_of_any_message),
    TALLY_TEST(test_api_worker_messages__golden_bytes),
    TALLY_TEST(test_api_worker_messages__format_at_join),
    TALLY_TEST(test_api_worker_messages__other_format_names_who_is_behind),
    TALLY_TEST(test_api_worker_messages__update_request_ends_anew),
    TALLY_TEST(test_api_worker_messages__too_many_updates_are_malformed),
    TALLY_TEST(test_api_worker_messages__update_response_round_trip),
    TALLY_TEST(test_api_worker_messages__encoding_appends_and_honours_the_limit),
};
TALLY_SUITE(api_worker_messages, TESTS);

/* Messages between worker and coordinator that are damaged, too long, or have unknown fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "tests/harness.h"
#include "tests/unit/api/worker/full_messages.h"

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

static void test_api_worker_malformed__every_prefix_decodes_or_is_malformed(void)
{
    for (size_t i = 0; i < N_MESSAGE_TYPES; i++) {
        struct tally_buffer wire = {.size = 0};
        CU_ASSERT_EQUAL(MESSAGE_TYPES[i].make(&wire), TALLY_OK);
        for (size_t n = 0; n < wire.size; n++) {
            assert_ok_or_malformed(&MESSAGE_TYPES[i], wire.data, n);
        }
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_malformed__flipped_bytes_decode_or_are_malformed(void)
{
    for (size_t i = 0; i < N_MESSAGE_TYPES; i++) {
        struct tally_buffer wire = {.size = 0};
        CU_ASSERT_EQUAL(MESSAGE_TYPES[i].make(&wire), TALLY_OK);
        for (size_t at = 0; at < wire.size; at++) {
            for (int value = 0; value < 256; value++) {
                uint8_t kept = wire.data[at];
                wire.data[at] = (uint8_t)value;
                assert_ok_or_malformed(&MESSAGE_TYPES[i], wire.data, wire.size);
                wire.data[at] = kept;
            }
        }
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_malformed__random_bytes_decode_or_are_malformed(void)
{
    uint64_t state = 99;
    uint8_t bytes[64];
    for (int i = 0; i < 20000; i++) {
        for (size_t k = 0; k < sizeof bytes; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (uint8_t)(state >> 56);
        }
        bytes[0] &= 0x7F; /* makes a known field more likely */
        assert_ok_or_malformed(&MESSAGE_TYPES[(size_t)i % N_MESSAGE_TYPES], bytes,
                               1 + (size_t)i % sizeof bytes);
    }
}

struct bad_case {
    size_t type; /* in MESSAGE_TYPES */
    const char *field, *message;
    size_t n;
    uint8_t bytes[48];
};

enum { JOIN = 0, JOIN_RESPONSE = 1, POLL = 2, RESPONSE = 3, REQUEST = 6, UPDATE = 7, RESULTS = 8 };

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
    {JOIN, "", "end-of-stream", 3, {0xFA, 0x07, 9}},     /* a truncated unknown field */
    {JOIN_RESPONSE, "session", "wrong wire type", 2, {0x08, 1}},
    {JOIN_RESPONSE, "session", "end-of-stream", 5, {0x09, 1, 2, 3, 4}},
    {POLL, "cursors.iterate", "wrong wire type", 5, {0x1A, 3, 0x12, 1, 0}},
    {RESPONSE, "kind", "neither idle, task nor released", 0, {0}},
    {RESPONSE, "kind", "neither idle, task nor released", 3, {0x78, 0x80, 0x01}},
    {RESPONSE, "task", "a second kind", 4, {0x0A, 0, 0x12, 0}},
    {RESPONSE, "idle", "wrong wire type", 2, {0x08, 0}},
    {RESPONSE, "released.job_id", "text contains NUL", 5, {0x1A, 3, 0x0A, 1, 0}},
    {RESPONSE, "task.job_document", "wrong wire type", 4, {0x12, 2, 0x10, 7}},
    {RESPONSE, "task.snapshot", "wrong wire type", 8, {0x12, 6, 0xD5, 0x01, 1, 2, 3, 4}},
    {RESPONSE,
     "task.clients",
     "integer too large",
     9,
     {0x12, 7, 0x42, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F}},
    {RESPONSE, "task.clients", "end-of-stream", 6, {0x12, 4, 0x42, 2, 1, 0x80}},
    {RESPONSE, "task.clients", "wrong wire type", 7, {0x12, 5, 0x45, 1, 2, 3, 4}},
    {RESPONSE, "task.broadcasts.payload", "end-of-stream", 7, {0x12, 5, 0xCA, 0x01, 2, 0x12, 9}},
    {RESPONSE,
     "task.broadcasts.quantizer_step",
     "wrong wire type",
     7,
     {0x12, 5, 0xCA, 0x01, 2, 0x20, 1}},
    {UPDATE, "payload", "wrong wire type", 2, {0x10, 1}},
    {UPDATE, "payload", "end-of-stream", 7, {0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 1}},
    {UPDATE, "loss", "wrong wire type", 6, {0x2D, 1, 2, 3, 4, 0}},
    {REQUEST, "updates", "there is none", 0, {0}},
    {REQUEST, "updates", "there is none", 2, {0x18, 1}},
    {REQUEST, "updates", "wrong wire type", 2, {0x30, 1}},
    {REQUEST, "updates", "end-of-stream", 2, {0x32, 1}},
    {REQUEST, "payload", "wrong wire type", 6, {0x32, 2, 0x10, 1, 0x18, 1}},
    {RESULTS, "results", "wrong wire type", 2, {0x18, 1}},
    {RESULTS, "code", "text contains NUL", 7, {0x1A, 5, 0x1A, 3, 'a', 0, 'b'}},
};

static void test_api_worker_malformed__malformed_names_the_field(void)
{
    for (size_t i = 0; i < sizeof BAD_CASES / sizeof BAD_CASES[0]; i++) {
        const struct bad_case *bad = &BAD_CASES[i];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(decode_exactly(&MESSAGE_TYPES[bad->type], bad->bytes, bad->n, &err),
                            TALLY_MALFORMED, &err);
        TALLY_ASSERT_TEXT(err.field, bad->field);
        if (bad->message != NULL) {
            TALLY_ASSERT_TEXT(err.message, bad->message);
        }
        CU_ASSERT_EQUAL(decode_exactly(&MESSAGE_TYPES[bad->type], bad->bytes, bad->n, NULL),
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
    TALLY_ASSERT_STATUS(decode_exactly(&MESSAGE_TYPES[type], wire.data, wire.size, &err), TALLY_OK,
                        &err);
    wire.size = 0;
    append_field(&wire, tag, text, longest + 1);
    TALLY_ASSERT_STATUS(decode_exactly(&MESSAGE_TYPES[type], wire.data, wire.size, &err),
                        TALLY_MALFORMED, &err);
    char message[64];
    snprintf(message, sizeof message, "text of %zu bytes, at most %zu", longest + 1, longest);
    TALLY_ASSERT_TEXT(err.message, message);
    tally_buffer_fini(&wire);
}

static void test_api_worker_malformed__text_limits(void)
{
    assert_text_limit(JOIN, 1, TALLY_WORKER_NAME_CAPACITY - 1);
    assert_text_limit(JOIN, 3, TALLY_MESSAGE_JOB_ID_CAPACITY - 1);
    assert_text_limit(UPDATE, 7, TALLY_FAILURE_CAPACITY - 1);
    assert_text_limit(UPDATE, 8, TALLY_FAILURE_CAPACITY - 1);
}

/* Checks that field `tag` of type `type`, with `content` each time, may occur at most `most` times.
 */
static void assert_count_limit(size_t type, uint8_t tag, const void *content, size_t n_content,
                               size_t most, const char *field)
{
    struct tally_buffer wire = {.size = 0};
    for (size_t i = 0; i < most; i++) {
        append_field(&wire, tag, content, n_content);
    }
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(decode_exactly(&MESSAGE_TYPES[type], wire.data, wire.size, &err), TALLY_OK,
                        &err);
    append_field(&wire, tag, content, n_content);
    TALLY_ASSERT_STATUS(decode_exactly(&MESSAGE_TYPES[type], wire.data, wire.size, &err),
                        TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.field, field);
    char message[64];
    snprintf(message, sizeof message, "more than %zu elements", most);
    TALLY_ASSERT_TEXT(err.message, message);
    tally_buffer_fini(&wire);
}

/* Wraps the content of `wire` in field `tag`, with a length of three bytes. */
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

/* Like assert_count_limit(), for a field of the task in a PollTaskResponse. */
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
        TALLY_ASSERT_STATUS(decode_exactly(&MESSAGE_TYPES[RESPONSE], wire.data, wire.size, &err),
                            count == most ? TALLY_OK : TALLY_MALFORMED, &err);
        TALLY_ASSERT_TEXT(err.field, count == most ? "" : field);
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_malformed__count_limits(void)
{
    assert_count_limit(JOIN, 4, "\x10\x05", 2, TALLY_MAX_SLOTS, "held");
    assert_count_limit(POLL, 3, "\x10\x05", 2, TALLY_MAX_CURSORS, "cursors");
    static const uint8_t unpacked_client[] = {0x40, 7};
    static const uint8_t packed_clients[] = {0x42, 2, 7, 8};
    static const uint8_t broadcast[] = {0xCA, 0x01, 2, 0x08, 1};
    assert_task_count_limit(unpacked_client, 2, TALLY_MAX_SLOTS, "task.clients");
    assert_task_count_limit(packed_clients, 4, TALLY_MAX_SLOTS / 2, "task.clients");
    assert_task_count_limit(broadcast, 5, TALLY_MAX_BROADCASTS, "task.broadcasts");
}

static void test_api_worker_malformed__unknown_fields_are_skipped(void)
{
    static const uint8_t unknown[] = {0xF0, 0x01, 0x80, 0x01, /* 30: varint */
                                      0xF9, 0x7F, 1,    2,    3, 4,
                                      5,    6,    7,    8,             /* 2047: fixed64 */
                                      0xF2, 0x01, 3,    'a',  0, 0xFF, /* 30: bytes */
                                      0xF5, 0x01, 1,    2,    3, 4};   /* 30: fixed32 */
    for (size_t i = 0; i < N_MESSAGE_TYPES; i++) {
        struct tally_buffer wire = {.size = 0};
        (void)tally_buffer_append(&wire, unknown, sizeof unknown);
        CU_ASSERT_EQUAL(MESSAGE_TYPES[i].make(&wire), TALLY_OK);
        (void)tally_buffer_append(&wire, unknown, sizeof unknown);
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(decode_exactly(&MESSAGE_TYPES[i], wire.data, wire.size, &err), TALLY_OK,
                            &err);
        tally_buffer_fini(&wire);
    }
}

static void test_api_worker_malformed__last_value_wins(void)
{
    static const uint8_t twice[] = {0x18, 1, 0x12, 2, 'a', 'b', 0x18, 2, 0x12, 1, 'c', 0x32, 0};
    struct tally_update_request got;
    CU_ASSERT_EQUAL(tally_update_request_decode(twice, sizeof twice, &got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(got.round, 2);
    TALLY_ASSERT_TEXT(got.job_id, "c");
}

static void test_api_worker_malformed__failure_leaves_the_result_alone(void)
{
    static const uint8_t bad[] = {0x18, 7, 0x30, 1};
    struct tally_update_request got = {.round = 5};
    CU_ASSERT_EQUAL(tally_update_request_decode(bad, sizeof bad, &got, NULL), TALLY_MALFORMED);
    CU_ASSERT_EQUAL(got.round, 5);
}

/* An update that also polls, and the response to both. */
static void test_api_worker_malformed__poll_within_an_update(void)
{
    const struct tally_poll_request poll = {
        .wait_ms = 5, .n_cursors = 1, .cursors = {{.job_id = "job", .iterate = 3}}};
    const struct tally_poll_response idle = {.kind = TALLY_POLL_IDLE, .jobs_pending = 2};
    struct tally_buffer inner = {0}, wire = {0};
    const struct tally_update update = full_update();
    struct tally_update_request request = {.has_poll = true}, got;
    CU_ASSERT_EQUAL(tally_poll_request_encode(&poll, &inner), TALLY_OK);
    request.poll = (struct tally_bytes){inner.data, inner.size};
    CU_ASSERT_EQUAL(tally_update_request_add(&update, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_request_end(&request, &wire), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_request_decode(wire.data, wire.size, &got, NULL), TALLY_OK);
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

    /* An empty poll is still a poll. */
    static const uint8_t empty[] = {0x32, 0, 0x3A, 0};
    CU_ASSERT_EQUAL(tally_update_request_decode(empty, sizeof empty, &got, NULL), TALLY_OK);
    CU_ASSERT_TRUE(got.has_poll);
    tally_buffer_fini(&inner);
    tally_buffer_fini(&wire);
}

/* An update holds at most 16 metrics, and a name has at most 32 bytes. */
static void test_api_worker_malformed__metrics_have_limits(void)
{
    struct tally_buffer wire = {.size = 0};
    struct tally_update update = {.n_metrics = TALLY_METRICS_MOST}, got;
    struct tally_error err = TALLY_ERROR_INIT;
    for (int i = 0; i < TALLY_METRICS_MOST; i++) {
        update.metrics[i].name[0] = (char)('a' + i);
    }
    CU_ASSERT_EQUAL(tally_update_request_add(&update, &wire), TALLY_OK);
    uint8_t *body = wire.data + 2; /* after tag and length */
    CU_ASSERT_TRUE_FATAL(wire.data[1] == wire.size - 2);
    TALLY_ASSERT_STATUS(tally_update_decode(body, wire.size - 2, &got, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(got.n_metrics, TALLY_METRICS_MOST);
    CU_ASSERT_EQUAL(tally_buffer_append(&wire, "\x32\3\x0a\1z", 5), TALLY_OK);
    body = wire.data + 2;
    CU_ASSERT_EQUAL(tally_update_decode(body, wire.size - 2, &got, &err), TALLY_MALFORMED);
    TALLY_ASSERT_TEXT(err.field, "metrics");
    TALLY_ASSERT_TEXT(err.message, "more than 16 elements");
    char name[37] = "\x32\x23\x0a\x21";
    memset(name + 4, 'a', 33);
    err = (struct tally_error)TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_update_decode((const uint8_t *)name, sizeof name, &got, &err),
                    TALLY_MALFORMED);
    TALLY_ASSERT_TEXT(err.message, "text of 33 bytes, at most 32");
    tally_buffer_fini(&wire);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_worker_malformed__every_prefix_decodes_or_is_malformed),
    TALLY_TEST(test_api_worker_malformed__flipped_bytes_decode_or_are_malformed),
    TALLY_TEST(test_api_worker_malformed__random_bytes_decode_or_are_malformed),
    TALLY_TEST(test_api_worker_malformed__malformed_names_the_field),
    TALLY_TEST(test_api_worker_malformed__text_limits),
    TALLY_TEST(test_api_worker_malformed__count_limits),
    TALLY_TEST(test_api_worker_malformed__unknown_fields_are_skipped),
    TALLY_TEST(test_api_worker_malformed__last_value_wins),
    TALLY_TEST(test_api_worker_malformed__failure_leaves_the_result_alone),
    TALLY_TEST(test_api_worker_malformed__poll_within_an_update),
    TALLY_TEST(test_api_worker_malformed__metrics_have_limits),
};
TALLY_SUITE(api_worker_malformed, TESTS);

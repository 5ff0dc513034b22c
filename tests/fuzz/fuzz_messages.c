/* Protobuf bodies of the worker protocol: byte 0 selects the message, the rest is the body. An
 * accepted body is written again; the result is accepted too, and written to the same bytes. */
#include <string.h>

#include "api/worker/worker_messages.h"
#include "tests/fuzz/fuzz.h"

static void no_fini(void *message)
{
    (void)message;
}

/* Decodes a message and encodes it again. Returns whether it was accepted. */
#define DEFINE_REWRITE(name, fini)                                                                 \
    static bool rewrite_##name(const uint8_t *bytes, size_t n, struct tally_buffer *out)           \
    {                                                                                              \
        struct tally_error err = TALLY_ERROR_INIT;                                                 \
        struct tally_##name message;                                                               \
        const enum tally_status status = tally_##name##_decode(bytes, n, &message, &err);          \
        FUZZ_CHECK(status == TALLY_OK || (status == TALLY_MALFORMED && err.message[0] != '\0'));   \
        if (status == TALLY_OK) {                                                                  \
            FUZZ_CHECK(tally_##name##_encode(&message, out) == TALLY_OK);                          \
            fini(&message);                                                                        \
        }                                                                                          \
        return status == TALLY_OK;                                                                 \
    }
DEFINE_REWRITE(join_request, tally_join_request_fini)
DEFINE_REWRITE(join_response, no_fini)
DEFINE_REWRITE(poll_request, no_fini)
DEFINE_REWRITE(poll_response, tally_poll_response_fini)
DEFINE_REWRITE(describe_request, no_fini)
static bool rewrite_leave_request(const uint8_t *bytes, size_t n, struct tally_buffer *out)
{
    uint64_t session;
    if (tally_leave_request_decode(bytes, n, &session, NULL) != TALLY_OK) {
        return false;
    }
    FUZZ_CHECK(tally_leave_request_encode(session, out) == TALLY_OK);
    return true;
}

/* Every update is decoded, in the request and by itself; malformed ones are omitted. */
static bool rewrite_update_request(const uint8_t *bytes, size_t n, struct tally_buffer *out)
{
    struct tally_update_request message;
    struct tally_update update, again;
    size_t n_kept = 0;
    if (tally_update_request_decode(bytes, n, &message, NULL) != TALLY_OK) {
        return false;
    }
    for (size_t i = 0; i < message.n_updates; i++) {
        if (tally_update_request_next(&message, &update, NULL) == TALLY_OK) {
            n_kept++;
            FUZZ_CHECK(tally_update_request_add(&update, out) == TALLY_OK);
            FUZZ_CHECK(tally_update_decode(update.encoded.data, update.encoded.size, &again,
                                           NULL) == TALLY_OK);
            FUZZ_CHECK(again.client == update.client && again.payload.data == update.payload.data);
        }
    }
    FUZZ_CHECK(tally_update_request_next(&message, &update, NULL) == TALLY_MALFORMED);
    FUZZ_CHECK(tally_update_request_end(&message, out) == TALLY_OK);
    return n_kept > 0;
}

/* Results, and the response to a poll, are decoded separately; malformed ones are omitted. */
static bool rewrite_update_response(const uint8_t *bytes, size_t n, struct tally_buffer *out)
{
    struct tally_update_response message;
    struct tally_poll_response next = {.kind = TALLY_POLL_IDLE};
    if (tally_update_response_decode(bytes, n, &message, NULL) != TALLY_OK) {
        return false;
    }
    for (size_t i = 0; i < message.n_results; i++) {
        struct tally_update_result result;
        if (tally_update_response_next(&message, &result, NULL) == TALLY_OK) {
            FUZZ_CHECK(tally_update_result_add(&result, out) == TALLY_OK);
        }
    }
    const bool has_next =
        message.has_next &&
        tally_poll_response_decode(message.next.data, message.next.size, &next, NULL) == TALLY_OK;
    FUZZ_CHECK(tally_update_response_encode(&message, has_next ? &next : NULL, out) == TALLY_OK);
    tally_poll_response_fini(&next);
    return true;
}

static bool (*const REWRITES[])(const uint8_t *bytes, size_t n, struct tally_buffer *out) = {
    rewrite_join_request,  rewrite_join_response,    rewrite_poll_request,
    rewrite_poll_response, rewrite_update_request,   rewrite_update_response,
    rewrite_leave_request, rewrite_describe_request,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    const size_t kind = data[0] % (sizeof REWRITES / sizeof REWRITES[0]);
    struct tally_buffer once = {0}, twice = {0};
    if (REWRITES[kind](data + 1, size - 1, &once)) {
        FUZZ_CHECK(REWRITES[kind](once.data, once.size, &twice));
        FUZZ_CHECK(once.size == twice.size);
        FUZZ_CHECK(once.size == 0 || memcmp(once.data, twice.data, once.size) == 0);
    }
    tally_buffer_fini(&once);
    tally_buffer_fini(&twice);
    return 0;
}

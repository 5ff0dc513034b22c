/* full_messages: one message of each type with every field set. */
#ifndef TALLY_TESTS_UNIT_API_WORKER_FULL_MESSAGES_H
#define TALLY_TESTS_UNIT_API_WORKER_FULL_MESSAGES_H

#include "api/worker/worker_messages.h"

/* A message type behind one pair of functions, so that a test can run over all types. `decode`
 * reads a message and drops it; `make` encodes one with every field set. */
struct message_type {
    const char *name;
    enum tally_status (*decode)(const uint8_t *bytes, size_t n, struct tally_error *err);
    enum tally_status (*make)(struct tally_buffer *out);
};

#define FULL_JOB_ID "0123456789abcdef0123456789abcdef" /* 32 characters: the longest */

extern const uint8_t FULL_PAYLOAD[4];

/* ---- Full messages ---- */

struct tally_bytes bytes_of(const void *data, size_t size);

struct tally_join_request full_join_request(struct tally_held_client held[3]);

struct tally_poll_request full_poll_request(void);

struct tally_poll_response full_task_response(uint32_t *clients, size_t n_clients,
                                              size_t n_broadcasts);

struct tally_update full_update(void);

enum tally_status make_join_response(struct tally_buffer *out);

enum tally_status make_idle_response(struct tally_buffer *out);

enum tally_status make_released_response(struct tally_buffer *out);

/* Every field except the updates. */
struct tally_update_request full_update_request(void);

/* Encodes full_update_request() with full_update() and an empty update. */
enum tally_status make_update_request(struct tally_buffer *out);

/* Encodes an accepted result, a refused result, sums, and an idle poll response. */
enum tally_status make_update_response(struct tally_buffer *out);

enum tally_status make_leave_request(struct tally_buffer *out);
enum tally_status make_progress_request(struct tally_buffer *out);
enum tally_status make_describe_request(struct tally_buffer *out);

enum { N_MESSAGE_TYPES = 12 };
extern const struct message_type MESSAGE_TYPES[N_MESSAGE_TYPES];

#endif

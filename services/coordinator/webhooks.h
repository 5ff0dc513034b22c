/* webhooks: tells receivers of the users' choice that a job's status has changed, by a POST to the
 * URL that the job document names.
 *
 * A coordinator that posts where a document says could be made to reach what only it can reach
 * (server-side request forgery). So a job may only name URLs below a prefix that the operator has
 * allowed; without --webhook-allow, none. Redirects are not followed, no proxy of the environment
 * is used, and nothing of the response is kept but its status.
 *
 * Each POST is signed as in the specification Standard Webhooks: the header webhook-signature has
 * HMAC-SHA256, with the key in --webhook-secret-file, of "ID.TIMESTAMP.BODY", where webhook-id and
 * webhook-timestamp have the first two.
 *
 * Delivery is at least once: what is undelivered is stored with the change of status
 * (webhook_queue.h) until a response of 2xx has come. A response that is lost, or a crash after it,
 * sends the notification again with the same id. The notifications of one job are sent in order,
 * one at a time. After a failure the pause grows from 1 s to 5 min; after WEBHOOK_MOST_ATTEMPTS the
 * job's notifications are given up. A restart begins the attempts anew.
 *
 * Where replicas share a store, the leader of a job delivers; if it dies, its successor does. But
 * if it dies when the job has ended, what is undelivered of that job is lost: no other replica may
 * change its rows, so it would be sent for ever. */
#ifndef TALLY_SERVICES_COORDINATOR_WEBHOOKS_H
#define TALLY_SERVICES_COORDINATOR_WEBHOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

struct tally_coordinator;
struct tally_store_job;
struct webhooks;

enum {
    WEBHOOK_MOST_PREFIXES = 16,
    WEBHOOK_MOST_ATTEMPTS = 16, /* over about 40 minutes */
    WEBHOOK_SECRET_LEAST = 16   /* characters */
};

/* What the operator allows; all zero = nothing. */
struct webhook_rules {
    const char *prefixes[WEBHOOK_MOST_PREFIXES + 1]; /* NULL after the last; borrowed */
    const char *secret;                              /* borrowed */
};

/* Whether the text can be a prefix: "https://host/", with anything after it. Errors:
 * INVALID_ARGUMENT. */
enum tally_status webhook_prefix_check(const char *prefix, struct tally_error *err);
/* Whether a job may name the URL. Errors: INVALID_ARGUMENT, with field "webhook". */
enum tally_status webhook_url_check(const struct webhook_rules *rules, const char *url,
                                    struct tally_error *err);

/* The pause before the next attempt when n have failed, n >= 1; -1 = there is none. */
int64_t webhook_pause_ms(int n_failed);

#define WEBHOOK_RESULT_TABLE(X)                                                                    \
    X(DELIVERED, "delivered") /* a response of 2xx */                                              \
    X(REJECTED, "rejected")   /* another response */                                               \
    X(UNREACHABLE, "unreachable")                                                                  \
    X(GIVEN_UP, "given_up") /* dropped after the last attempt, or no longer allowed */
enum webhook_result {
#define WEBHOOK_RESULT_ENUM(symbol, name) WEBHOOK_##symbol,
    WEBHOOK_RESULT_TABLE(WEBHOOK_RESULT_ENUM)
#undef WEBHOOK_RESULT_ENUM
        N_WEBHOOK_RESULTS
};

/* Finds what is undelivered in the store: of the live jobs, and of the newest that have ended. Sets
 * coordinator->webhooks; to NULL without prefixes. Errors: NO_MEMORY, UNAVAILABLE, STORE. */
enum tally_status webhooks_new(struct tally_coordinator *coordinator, struct tally_error *err);
void webhooks_free(struct webhooks *webhooks); /* NULL is allowed */
/* Readable when webhooks_step() can send or receive; -1 = there are no webhooks. */
int webhooks_fd(const struct webhooks *webhooks);
/* The job may have something new to deliver, once the open transaction is committed. */
void webhooks_wake(struct tally_coordinator *coordinator, int64_t job_key);
/* Sends what is due and takes results. No transaction is open. */
void webhooks_step(struct tally_coordinator *coordinator, int64_t now_ms);

/* For /metrics: counts[N_WEBHOOK_RESULTS], and how many jobs have something undelivered. */
const uint64_t *webhooks_counts(const struct webhooks *webhooks);
size_t webhooks_n_waiting(const struct webhooks *webhooks);

#endif

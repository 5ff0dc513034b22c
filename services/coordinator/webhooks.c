#include "services/coordinator/webhooks.h"
#include "services/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/client/http_forward.h"
#include "api/http/sha256.h"
#include "api/json/json.h"
#include "codec/list.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/webhook_queue.h"

enum {
    TIMEOUT_MS = 10000,         /* of a whole exchange */
    FIRST_PAUSE_MS = 1000,      /* after a failure; it doubles ... */
    LAST_PAUSE_MS = 300000,     /* ... up to this */
    STORE_PAUSE_MS = 10000,     /* if the store fails */
    MOST_IN_FLIGHT = 16,        /* exchanges at once */
    MOST_WAITING = 10000,       /* jobs; others wait in the store for the next start */
    MOST_ENDED = 1000,          /* newest jobs that are looked at after a start */
    MOST_RESPONSE_BYTES = 65536 /* of which nothing is used */
};

/* A job with something undelivered. */
struct delivery {
    int64_t key;
    int n_attempts;
    int64_t next_ms;                    /* monotonic; when it is due */
    struct tally_http_forward *request; /* NULL = none is in flight */
    struct tally_buffer body;           /* of it */
    struct tally_list_node node;
};

struct webhooks {
    struct tally_http_forwarder *forwarder;
    struct tally_list deliveries; /* oldest first */
    size_t n, n_in_flight;
    int64_t next_ms; /* monotonic; no delivery is due before it */
    uint64_t counts[N_WEBHOOK_RESULTS];
};

/* ---- URLs. */

/* The length of "scheme://host:port"; 0 if the text does not begin so. */
static size_t origin_length(const char *url)
{
    static const char *const SCHEMES[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof SCHEMES / sizeof *SCHEMES; i++) {
        const size_t n = strlen(SCHEMES[i]);
        const size_t n_host = strncmp(url, SCHEMES[i], n) == 0 ? strcspn(url + n, "/?") : 0;
        if (n_host > 0) {
            return n + n_host;
        }
    }
    return 0;
}

/* Only visible ASCII; nothing that a server might read in another way: a fragment, a backslash, or
 * "." and ".." as parts of the path; none of ".", "/" and "\\" in hexadecimal; no user before the
 * host. */
static bool is_plain_url(const char *url)
{
    const size_t n_origin = origin_length(url);
    const char *path = url + n_origin;
    for (const char *c = url; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~' || strchr("#\\\"<>^`{|}", *c) != NULL) {
            return false;
        }
    }
    if (n_origin == 0 || memchr(url, '@', n_origin) != NULL) {
        return false;
    }
    for (const char *c = path; *c != '\0' && *c != '?'; c++) {
        const size_t n_part = strcspn(c + 1, "/?;"); /* some servers drop what follows ";" */
        const bool is_dots = *c == '/' && n_part > 0 && n_part < 3 && strspn(c + 1, ".") >= n_part;
        const bool is_hidden = strncasecmp(c, "%2e", 3) == 0 || strncasecmp(c, "%2f", 3) == 0 ||
                               strncasecmp(c, "%5c", 3) == 0;
        if (is_dots || is_hidden) {
            return false;
        }
    }
    return true;
}

enum tally_status webhook_prefix_check(const char *prefix, struct tally_error *err)
{
    return is_plain_url(prefix) && prefix[origin_length(prefix)] == '/' &&
                   strchr(prefix, '?') == NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "\"%.200s\" is not the beginning of a URL with a host and a path, such "
                            "as https://hooks.example.com/tally/",
                            prefix);
}

/* A prefix ends where a part of the path does: "https://host/a" allows "https://host/a/b" and
 * "https://host/a?b", but not "https://host/ab". */
static bool is_below(const char *url, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(url, prefix, n) == 0 &&
           (prefix[n - 1] == '/' || strchr("/?", url[n]) != NULL); /* NUL, too */
}

enum tally_status webhook_url_check(const struct webhook_rules *rules, const char *url,
                                    struct tally_error *err)
{
    static const char FIELD[] = "webhook";
    if (url[0] == '\0') {
        return TALLY_OK;
    }
    if (rules->prefixes[0] == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, FIELD,
                          "this coordinator has no webhooks: its operator has to allow URLs with "
                          "--webhook-allow");
    }
    if (!is_plain_url(url)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, FIELD,
                          "\"%.200s\" is not a plain http:// or https:// URL: visible ASCII, no "
                          "user, no fragment, no \".\" or \"..\" in the path",
                          url);
    }
    for (size_t i = 0; rules->prefixes[i] != NULL; i++) {
        if (is_below(url, rules->prefixes[i])) {
            return TALLY_OK;
        }
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, FIELD,
                      "\"%.200s\" is not below a URL that this coordinator's operator has allowed "
                      "with --webhook-allow",
                      url);
}

/* ---- The list of deliveries. */

static struct delivery *delivery_at(struct tally_list_node *node)
{
    return TALLY_LIST_MEMBER(struct delivery, node, node);
}

static struct delivery *find(struct webhooks *webhooks, int64_t key)
{
    TALLY_LIST_EACH(node, &webhooks->deliveries)
    {
        if (delivery_at(node)->key == key) {
            return delivery_at(node);
        }
    }
    return NULL;
}

static void forget(struct webhooks *webhooks, struct delivery *delivery)
{
    if (delivery->request != NULL) {
        tally_http_forward_abort(delivery->request);
        webhooks->n_in_flight--;
    }
    tally_list_remove(&delivery->node);
    tally_buffer_fini(&delivery->body);
    free(delivery);
    webhooks->n--;
}

static void make_due(struct webhooks *webhooks, struct delivery *delivery, int64_t at_ms)
{
    delivery->next_ms = at_ms;
    webhooks->next_ms = at_ms < webhooks->next_ms ? at_ms : webhooks->next_ms;
}

static void add(struct webhooks *webhooks, int64_t key)
{
    struct delivery *delivery = find(webhooks, key);
    if (delivery == NULL && webhooks->n < MOST_WAITING) {
        delivery = tally_xcalloc(1, sizeof *delivery);
        delivery->key = key;
        tally_list_append(&webhooks->deliveries, &delivery->node);
        webhooks->n++;
        make_due(webhooks, delivery, 0);
    }
    if (delivery == NULL) {
        tally_log(TALLY_LOG_WARN,
                  tally_log_event("too many webhooks wait; this one is sent after a restart"),
                  tally_log_integer("job_key", key));
    }
}

void webhooks_wake(struct tally_coordinator *coordinator, int64_t job_key)
{
    if (coordinator->webhooks != NULL) {
        add(coordinator->webhooks, job_key);
    }
}

/* ---- Start and end. */

struct found {
    struct tally_coordinator *coordinator;
    int64_t *keys;
    size_t n;
};

static enum tally_status collect_key(void *context, const struct tally_store_job *row,
                                     struct tally_error *err)
{
    (void)err;
    struct found *found = context;
    found->keys[found->n++] = row->key;
    return TALLY_OK;
}

/* Deliveries of jobs without anything undelivered are forgotten when they are due. */
static enum tally_status find_undelivered(struct tally_coordinator *coordinator,
                                          struct tally_error *err)
{
    struct found found = {coordinator, tally_xcalloc(MOST_ENDED, sizeof(int64_t)), 0};
    enum tally_status status = TALLY_OK;
    if (coordinator->store->leases == NULL) { /* else no replica may change their rows */
        status = coordinator->store->ops->job_list(coordinator->store, -1, INT64_MAX, MOST_ENDED,
                                                   collect_key, &found, err);
    }
    for (size_t i = found.n; status == TALLY_OK && i > 0; i--) {
        add(coordinator->webhooks, found.keys[i - 1]);
    }
    free(found.keys);
    for (const struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        add(coordinator->webhooks, job->row.key);
    }
    return status;
}

enum tally_status webhooks_new(struct tally_coordinator *coordinator, struct tally_error *err)
{
    const struct tally_http_forwarder_config config = {.max_requests = MOST_IN_FLIGHT,
                                                       .max_answer_bytes = MOST_RESPONSE_BYTES,
                                                       .max_idle_connections = MOST_IN_FLIGHT};
    if (coordinator->config.webhooks.prefixes[0] == NULL) {
        return TALLY_OK;
    }
    struct webhooks *webhooks = tally_xcalloc(1, sizeof *webhooks);
    tally_list_init(&webhooks->deliveries);
    const enum tally_status status = tally_http_forwarder_new(&config, &webhooks->forwarder, err);
    if (status != TALLY_OK) {
        free(webhooks);
        return status;
    }
    coordinator->webhooks = webhooks;
    return find_undelivered(coordinator, err);
}

void webhooks_free(struct webhooks *webhooks)
{
    if (webhooks != NULL) {
        TALLY_LIST_EACH(node, &webhooks->deliveries)
        {
            forget(webhooks, delivery_at(node));
        }
        tally_http_forwarder_free(webhooks->forwarder);
        free(webhooks);
    }
}

int webhooks_fd(const struct webhooks *webhooks)
{
    return webhooks != NULL ? tally_http_forwarder_fd(webhooks->forwarder) : -1;
}

const uint64_t *webhooks_counts(const struct webhooks *webhooks)
{
    return webhooks->counts;
}

size_t webhooks_n_waiting(const struct webhooks *webhooks)
{
    return webhooks->n;
}

/* ---- Sending. */

/* "v1,SIGNATURE" of "ID.TIMESTAMP.BODY". */
static enum tally_status sign(const char *secret, const char *id, const char *timestamp,
                              const struct tally_buffer *body, char *ret_text, size_t capacity)
{
    struct tally_buffer content = {0};
    char signature[TALLY_HMAC_TEXT_CAPACITY];
    enum tally_status status = tally_buffer_printf(&content, "%s.%s.", id, timestamp);
    if (status == TALLY_OK) {
        status = tally_buffer_append(&content, body->data, body->size);
    }
    if (status == TALLY_OK) {
        status =
            tally_hmac_sha256_base64(secret, strlen(secret), content.data, content.size, signature);
    }
    if (status == TALLY_OK) {
        snprintf(ret_text, capacity, "v1,%s", signature);
    }
    tally_buffer_fini(&content);
    return status;
}

/* The notification's id, which is a member of its body. */
static void read_id(const struct tally_buffer *body, char *ret_id, size_t capacity)
{
    struct tally_json *value = NULL;
    const char *id = NULL;
    if (tally_json_parse((const char *)body->data, body->size, &value, NULL) == TALLY_OK) {
        id = tally_json_get_text(value, "id");
    }
    snprintf(ret_id, capacity, "%s", id != NULL ? id : "");
    tally_json_free(value);
}

static enum tally_status post(struct tally_coordinator *coordinator, struct delivery *delivery,
                              const char *url, struct tally_error *err)
{
    char id[40], timestamp[24], signature[TALLY_HMAC_TEXT_CAPACITY + 8];
    struct tally_buffer origin = {0}, sent = {0};
    const size_t n_origin = origin_length(url);
    read_id(&delivery->body, id, sizeof id);
    snprintf(timestamp, sizeof timestamp, "%" PRId64, tally_realtime_ms() / 1000);
    enum tally_status status = sign(coordinator->config.webhooks.secret, id, timestamp,
                                    &delivery->body, signature, sizeof signature);
    if (status == TALLY_OK) {
        status = tally_buffer_printf(&origin, "%.*s", (int)n_origin, url);
    }
    status = status == TALLY_OK ? tally_buffer_append(&origin, "", 1) : status;
    if (status == TALLY_OK) {
        status = tally_buffer_append(&sent, delivery->body.data, delivery->body.size);
    }
    if (status == TALLY_OK) {
        const char *path = url + n_origin;
        const struct tally_http_forward_request request = {
            .method = "POST",
            .base_url = (const char *)origin.data,
            .target = path,
            .headers = {{"Content-Type", "application/json"},
                        {"User-Agent", "tally/" TALLY_VERSION},
                        {"webhook-id", id},
                        {"webhook-timestamp", timestamp},
                        {"webhook-signature", signature}},
            .body = &sent,
            .timeout_ms = TIMEOUT_MS,
            .user = delivery};
        status =
            tally_http_forward(coordinator->webhooks->forwarder, &request, &delivery->request, err);
    } else {
        tally_fail(err, status, NULL, "no memory for a webhook");
    }
    tally_buffer_fini(&origin);
    tally_buffer_fini(&sent);
    return status;
}

/* Removes notifications from the store, in a transaction of its own. Errors: FAILED_PRECONDITION
 * (another replica leads the job, and sends what is left), those of the store. */
static enum tally_status remove_stored(struct tally_coordinator *coordinator, int64_t key,
                                       const struct tally_buffer *body, size_t *ret_n)
{
    struct tally_store *store = coordinator->store;
    struct tally_error err = TALLY_ERROR_INIT;
    *ret_n = 0;
    enum tally_status status = store->ops->begin(store, &err);
    if (status == TALLY_OK) {
        status = webhook_queue_remove(store, key, body, ret_n, &err);
        if (status == TALLY_OK) {
            status = store->ops->commit(store, &err);
        } else {
            store->ops->rollback(store);
        }
    }
    if (status == TALLY_NOT_FOUND) {
        return TALLY_OK; /* the job has been deleted */
    }
    if (status != TALLY_OK) {
        tally_log(TALLY_LOG_WARN, tally_log_event("webhook not removed from the store"),
                  tally_log_integer("job_key", key), tally_log_problem(&err));
    }
    return status;
}

static void give_up(struct tally_coordinator *coordinator, struct delivery *delivery,
                    const char *why)
{
    size_t n = 0;
    const enum tally_status status = remove_stored(coordinator, delivery->key, NULL, &n);
    if (status != TALLY_OK && status != TALLY_FAILED_PRECONDITION) {
        make_due(coordinator->webhooks, delivery, tally_monotonic_ms() + LAST_PAUSE_MS);
        return;
    }
    if (status == TALLY_OK) {
        coordinator->webhooks->counts[WEBHOOK_GIVEN_UP] += n;
        tally_log(TALLY_LOG_WARN, tally_log_event("webhook given up"),
                  tally_log_integer("job_key", delivery->key),
                  tally_log_integer("lost", (int64_t)n), tally_log_text("reason", why));
    }
    forget(coordinator->webhooks, delivery);
}

static void send_next(struct tally_coordinator *coordinator, struct delivery *delivery,
                      int64_t now_ms)
{
    struct webhooks *webhooks = coordinator->webhooks;
    struct webhook_notification first = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = webhook_queue_first(coordinator->store, delivery->key, &first, &err);
    if (status == TALLY_OK && first.url.size == 0) {
        forget(webhooks, delivery);
        return;
    }
    if (status == TALLY_OK && webhook_url_check(&coordinator->config.webhooks,
                                                (const char *)first.url.data, &err) != TALLY_OK) {
        give_up(coordinator, delivery, err.message); /* the operator has changed the rules */
        webhook_notification_fini(&first);
        return;
    }
    if (status == TALLY_OK) {
        tally_buffer_fini(&delivery->body);
        delivery->body = first.body;
        first.body = (struct tally_buffer){0};
        status = post(coordinator, delivery, (const char *)first.url.data, &err);
    }
    if (status == TALLY_OK) {
        webhooks->n_in_flight++;
    } else {
        tally_log(TALLY_LOG_WARN, tally_log_event("webhook not sent"),
                  tally_log_integer("job_key", delivery->key), tally_log_problem(&err));
        transaction_note_damage(coordinator->transaction, &err);
        if (status == TALLY_DATA_LOSS) {
            forget(webhooks, delivery); /* it would be damaged the next time, too */
        } else {
            make_due(webhooks, delivery, now_ms + STORE_PAUSE_MS);
        }
    }
    webhook_notification_fini(&first);
}

int64_t webhook_pause_ms(int n_failed)
{
    int64_t pause_ms = FIRST_PAUSE_MS;
    for (int i = 1; i < n_failed && pause_ms < LAST_PAUSE_MS; i++) {
        pause_ms *= 2;
    }
    return n_failed >= WEBHOOK_MOST_ATTEMPTS ? -1
           : pause_ms < LAST_PAUSE_MS        ? pause_ms
                                             : LAST_PAUSE_MS;
}

static void retry(struct tally_coordinator *coordinator, struct delivery *delivery,
                  enum webhook_result result, const char *why, int64_t now_ms)
{
    const int64_t pause_ms = webhook_pause_ms(++delivery->n_attempts);
    coordinator->webhooks->counts[result]++;
    tally_log(TALLY_LOG_DEBUG, tally_log_event("webhook failed"),
              tally_log_integer("job_key", delivery->key), tally_log_text("reason", why));
    if (pause_ms < 0) {
        give_up(coordinator, delivery, why);
    } else {
        make_due(coordinator->webhooks, delivery, now_ms + pause_ms);
    }
}

static void take_result(struct tally_coordinator *coordinator,
                        const struct tally_http_forward_result *result, int64_t now_ms)
{
    struct delivery *delivery = result->user;
    char why[64];
    size_t n;
    delivery->request = NULL;
    coordinator->webhooks->n_in_flight--;
    coordinator->webhooks->next_ms = 0; /* one more may be sent */
    if (result->err.status != TALLY_OK) {
        retry(coordinator, delivery, WEBHOOK_UNREACHABLE, result->err.message, now_ms);
    } else if (result->http_status < 200 || result->http_status > 299) {
        snprintf(why, sizeof why, "status %d", result->http_status);
        retry(coordinator, delivery, WEBHOOK_REJECTED, why, now_ms);
    } else {
        coordinator->webhooks->counts[WEBHOOK_DELIVERED]++;
        delivery->n_attempts = 0;
        switch ((int)remove_stored(coordinator, delivery->key, &delivery->body, &n)) {
        case TALLY_OK:
            make_due(coordinator->webhooks, delivery, 0);
            break;
        case TALLY_FAILED_PRECONDITION:
            forget(coordinator->webhooks, delivery);
            break;
        default: /* it stays stored, and is sent again */
            make_due(coordinator->webhooks, delivery, now_ms + STORE_PAUSE_MS);
        }
    }
}

void webhooks_step(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct webhooks *webhooks = coordinator->webhooks;
    struct tally_http_forward_result result;
    if (webhooks == NULL) {
        return;
    }
    while (tally_http_forward_take(webhooks->forwarder, &result)) {
        take_result(coordinator, &result, now_ms);
        tally_http_forward_result_fini(&result);
    }
    if (now_ms < webhooks->next_ms || coordinator->draining) {
        return;
    }
    webhooks->next_ms = INT64_MAX;
    TALLY_LIST_EACH(node, &webhooks->deliveries)
    {
        struct delivery *delivery = delivery_at(node);
        if (delivery->request != NULL) {
            continue;
        }
        if (delivery->next_ms > now_ms || webhooks->n_in_flight == MOST_IN_FLIGHT) {
            make_due(webhooks, delivery, delivery->next_ms);
        } else {
            send_next(coordinator, delivery, now_ms);
        }
    }
    if (webhooks->n_in_flight == MOST_IN_FLIGHT) {
        webhooks->next_ms = INT64_MAX; /* a result makes others due */
    }
}

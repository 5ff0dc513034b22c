#include "services/coordinator/provenance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/environment.h"

/* A row: the round in decimal, a space, the digest of the data in 16 hexadecimal digits (zeros if
 * it is not known), a space, and the environment as JSON. */
enum { DIGEST_DIGITS = 16 };

/* The last row, and how many there are. */
struct last {
    const char *environment;
    uint32_t n;
    bool is_same;
};

/* The environment in a row, not terminated; NULL if the row is damaged. */
static const char *split(const struct tally_store_update *row, int64_t *ret_round,
                         uint64_t *ret_digest, size_t *ret_n)
{
    char head[64];
    const size_t n_head = row->n_body < sizeof head ? row->n_body : sizeof head - 1;
    int at = 0;
    memcpy(head, row->body, n_head);
    head[n_head] = '\0';
    if (sscanf(head, "%" SCNd64 " %16" SCNx64 " %n", ret_round, ret_digest, &at) != 2 || at == 0) {
        return NULL;
    }
    *ret_n = row->n_body - (size_t)at;
    return (const char *)row->body + at;
}

static enum tally_status compare(void *context, const struct tally_store_update *row,
                                 struct tally_error *err)
{
    (void)err;
    struct last *last = context;
    int64_t round;
    uint64_t digest;
    size_t n;
    const char *environment = split(row, &round, &digest, &n);
    last->n = row->client + 1;
    last->is_same = environment != NULL && n == strlen(last->environment) &&
                    memcmp(environment, last->environment, n) == 0;
    return TALLY_OK;
}

enum tally_status provenance_put(struct tally_store *store, struct hosted_job *job,
                                 const char *environment, int64_t round, struct tally_error *err)
{
    if (environment == NULL || job->provenance_is_current) {
        return TALLY_OK;
    }
    struct last last = {.environment = environment};
    struct tally_buffer body = {0};
    enum tally_status status = store->ops->update_list(
        store, job->row.key, TALLY_STORE_PROVENANCE_ROUND, compare, &last, err);
    if (status == TALLY_OK && !last.is_same && last.n < PROVENANCE_MOST_COORDINATORS) {
        status = tally_buffer_printf(&body, "%" PRId64 " %016" PRIx64 " %s", round,
                                     job->data_digest, environment);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the provenance");
        }
        const struct tally_store_update row = {.round = TALLY_STORE_PROVENANCE_ROUND,
                                               .client = last.n,
                                               .body = body.data,
                                               .n_body = body.size};
        if (status == TALLY_OK) {
            status = store->ops->update_insert(store, job->row.key, &row, err);
        }
    }
    job->provenance_is_current = status == TALLY_OK;
    tally_buffer_fini(&body);
    return status;
}

static enum tally_status append(void *context, const struct tally_store_update *row,
                                struct tally_error *err)
{
    struct tally_json *list = context, *entry = NULL;
    int64_t round;
    uint64_t digest;
    char text[DIGEST_DIGITS + 1];
    size_t n = 0;
    const char *environment = split(row, &round, &digest, &n);
    if (environment == NULL || tally_json_parse(environment, n, &entry, err) != TALLY_OK ||
        !tally_json_is_object(entry)) {
        tally_json_free(entry);
        tally_error_clear(err);
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "stored provenance %u cannot be read",
                          row->client);
    }
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    const bool ok = tally_json_set_integer(entry, "from_round", round) &&
                    tally_json_set_text_or_null(entry, "data", digest != 0 ? text : NULL);
    return tally_json_append(list, tally_json_if_complete(entry, ok))
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
}

enum tally_status provenance_add(struct tally_store *store, const struct tally_store_job *row,
                                 const struct tally_buffer *document, struct tally_json *detail,
                                 struct tally_error *err)
{
    struct tally_json *coordinators = tally_json_array();
    enum tally_status status =
        coordinators != NULL
            ? store->ops->update_list(store, row->key, TALLY_STORE_PROVENANCE_ROUND, append,
                                      coordinators, err)
            : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    if (status != TALLY_OK || tally_json_size(coordinators) == 0) {
        tally_json_free(coordinators);
        return status != TALLY_OK || tally_json_set_null(detail, "provenance")
                   ? status
                   : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    }
    struct tally_json *provenance =
        tally_provenance_json(document->data, document->size, coordinators);
    return tally_json_set(detail, "provenance", provenance)
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
}

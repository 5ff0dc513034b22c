#include "services/coordinator/provenance.h"
#include "services/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
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
    if (row->client >= PROVENANCE_MOST_COORDINATORS) {
        return TALLY_OK;
    }
    last->n = row->client + 1;
    last->is_same = environment != NULL && n == strlen(last->environment) &&
                    memcmp(environment, last->environment, n) == 0;
    return TALLY_OK;
}

static enum tally_status insert(struct tally_store *store, const struct hosted_job *job,
                                uint32_t index, int64_t round, uint64_t digest, const char *text,
                                struct tally_error *err)
{
    struct tally_buffer body = {0};
    enum tally_status status =
        tally_buffer_printf(&body, "%" PRId64 " %016" PRIx64 " %s", round, digest, text);
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory for the provenance");
    } else {
        const struct tally_store_update row = {.round = TALLY_STORE_PROVENANCE_ROUND,
                                               .client = index,
                                               .body = body.data,
                                               .n_body = body.size};
        status = store->ops->update_insert(store, job->row.key, &row, err);
    }
    tally_buffer_fini(&body);
    return status;
}

enum tally_status provenance_put(struct tally_store *store, struct hosted_job *job,
                                 const char *environment, int64_t round, struct tally_error *err)
{
    if (environment == NULL || job->provenance_is_current) {
        return TALLY_OK;
    }
    struct last last = {.environment = environment};
    enum tally_status status = store->ops->update_list(
        store, job->row.key, TALLY_STORE_PROVENANCE_ROUND, compare, &last, err);
    if (status == TALLY_OK && !last.is_same && last.n < PROVENANCE_MOST_COORDINATORS) {
        status = insert(store, job, last.n, round, job->data_digest, environment, err);
    }
    job->provenance_is_current = status == TALLY_OK;
    return status;
}

/* ---- Origins. */

/* What an origin may have: texts, or null for what its worker does not know. */
static const struct known {
    const char *key;
    const char *const *members; /* of an object of texts; NULL = a text */
} KNOWN[] = {
    {"version", NULL},
    {"commit", NULL},
    {"compiler", NULL},
    {"libraries", (const char *const[]){"openblas", "libc", NULL}},
    {"machine", (const char *const[]){"processor", "system", NULL}},
    {"data", NULL},
    {"code", (const char *const[]){"name", "sha256", NULL}},
};
enum { N_KNOWN = sizeof KNOWN / sizeof KNOWN[0] };

/* What is no text becomes null. */
static bool copy_member(const struct tally_json *from, const struct known *known,
                        struct tally_json *to)
{
    const struct tally_json *value = tally_json_get(from, known->key);
    if (known->members == NULL) {
        return tally_json_set_text_or_null(to, known->key, tally_json_as_text(value));
    }
    if (!tally_json_is_object(value)) {
        return tally_json_set_null(to, known->key);
    }
    struct tally_json *copy = tally_json_object();
    bool ok = copy != NULL;
    for (const char *const *member = known->members; *member != NULL; member++) {
        ok = tally_json_set_text_or_null(copy, *member, tally_json_get_text(value, *member)) && ok;
    }
    return tally_json_set(to, known->key, tally_json_if_complete(copy, ok));
}

/* Reads an origin, and writes it with all known members in one order, so that equal ones are equal
 * as texts. */
static enum tally_status normalize(const char *origin, struct tally_buffer *out,
                                   struct tally_error *err)
{
    struct tally_json *given = NULL, *copy = tally_json_object();
    bool ok = copy != NULL;
    enum tally_status status = tally_json_parse(origin, strlen(origin), &given, err);
    if (status == TALLY_MALFORMED || (status == TALLY_OK && !tally_json_is_object(given))) {
        tally_error_clear(err);
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "origin", "not a JSON object");
    }
    for (size_t i = 0; status == TALLY_OK && i < N_KNOWN; i++) {
        ok = copy_member(given, &KNOWN[i], copy) && ok;
    }
    if (status == TALLY_OK && (!ok || tally_json_dump(copy, 0, out) != TALLY_OK ||
                               tally_buffer_append(out, "", 1) != TALLY_OK)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    }
    tally_json_free(given);
    tally_json_free(copy);
    return status;
}

static enum tally_status note_known(void *context, const struct tally_store_update *row,
                                    struct tally_error *err)
{
    (void)err;
    struct known_origins *origins = context;
    int64_t round;
    uint64_t digest;
    size_t n = 0;
    const char *text = split(row, &round, &digest, &n);
    if (row->client >= PROVENANCE_MOST_COORDINATORS && row->client < PROVENANCE_IMPORT &&
        origins->n < PROVENANCE_MOST_ORIGINS) {
        origins->checksums[origins->n++] = text != NULL ? tally_checksum64(text, n) : 0;
    }
    return TALLY_OK;
}

static enum tally_status read_known(struct tally_store *store, struct hosted_job *job,
                                    struct tally_error *err)
{
    struct known_origins *origins = &job->origins;
    if (origins->checksums != NULL) {
        return TALLY_OK;
    }
    origins->checksums = tally_xcalloc(PROVENANCE_MOST_ORIGINS, sizeof *origins->checksums);
    const enum tally_status status = store->ops->update_list(
        store, job->row.key, TALLY_STORE_PROVENANCE_ROUND, note_known, origins, err);
    if (status != TALLY_OK) {
        provenance_forget(origins);
    }
    return status;
}

static uint64_t checksum_of(const struct tally_buffer *text)
{
    return tally_checksum64(text->data, text->size - 1);
}

enum tally_status provenance_read_origin(struct tally_store *store, struct hosted_job *job,
                                         const char *origin, struct tally_buffer *ret_text,
                                         struct tally_error *err)
{
    const struct known_origins *origins = &job->origins;
    ret_text->size = 0;
    enum tally_status status = normalize(origin, ret_text, err);
    if (status == TALLY_OK) {
        status = read_known(store, job, err);
    }
    bool is_new = status == TALLY_OK && origins->n < PROVENANCE_MOST_ORIGINS;
    for (uint32_t i = 0; is_new && i < origins->n; i++) {
        is_new = origins->checksums[i] != checksum_of(ret_text);
    }
    ret_text->size = is_new ? ret_text->size : 0;
    return status;
}

enum tally_status provenance_put_origin(struct tally_store *store, struct hosted_job *job,
                                        const struct tally_buffer *text, struct tally_error *err)
{
    struct known_origins *origins = &job->origins;
    const enum tally_status status =
        insert(store, job, PROVENANCE_MOST_COORDINATORS + origins->n,
               tally_job_progress(job->engine)->round + 1, 0, (const char *)text->data, err);
    if (status == TALLY_OK) {
        origins->checksums[origins->n++] = checksum_of(text);
    }
    return status;
}

void provenance_forget(struct known_origins *origins)
{
    free(origins->checksums);
    *origins = (struct known_origins){.n = 0};
}

/* ---- Reading. */

/* The lists of a detail. */
struct lists {
    struct tally_json *coordinators, *workers;
    struct tally_json *detail; /* gets `imported` */
};

static enum tally_status append(void *context, const struct tally_store_update *row,
                                struct tally_error *err)
{
    const struct lists *lists = context;
    const bool is_worker = row->client >= PROVENANCE_MOST_COORDINATORS;
    struct tally_json *entry = NULL;
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
    if (row->client == PROVENANCE_IMPORT) {
        return tally_json_set(lists->detail, "imported", entry)
                   ? TALLY_OK
                   : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    }
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    const bool ok =
        tally_json_set_integer(entry, "from_round", round) &&
        (is_worker || tally_json_set_text_or_null(entry, "data", digest != 0 ? text : NULL));
    return tally_json_append(is_worker ? lists->workers : lists->coordinators,
                             tally_json_if_complete(entry, ok))
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
}

enum tally_status provenance_add(struct tally_store *store, const struct tally_store_job *row,
                                 const struct tally_buffer *document, struct tally_json *detail,
                                 struct tally_error *err)
{
    const struct lists lists = {tally_json_array(), tally_json_array(), detail};
    enum tally_status status =
        lists.coordinators != NULL && lists.workers != NULL
            ? store->ops->update_list(store, row->key, TALLY_STORE_PROVENANCE_ROUND, append,
                                      (void *)&lists, err)
            : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    if (status != TALLY_OK || tally_json_size(lists.coordinators) == 0) {
        tally_json_free(lists.coordinators);
        tally_json_free(lists.workers);
        return status != TALLY_OK || tally_json_set_null(detail, "provenance")
                   ? status
                   : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    }
    struct tally_json *provenance =
        tally_provenance_json(document->data, document->size, lists.coordinators, lists.workers);
    return tally_json_set(detail, "provenance", provenance)
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
}

/* ---- Imported jobs. */

enum { MOST_ROW_BYTES = 8192 };

void provenance_rows_fini(struct provenance_rows *rows)
{
    for (size_t i = 0; i < PROVENANCE_MOST_ROWS; i++) {
        tally_buffer_fini(&rows->texts[i]);
    }
}

/* A copy of the entry without what append() adds. NULL = out of memory. */
static struct tally_json *rest_of(const struct tally_json *entry, bool is_worker)
{
    struct tally_json *rest = tally_json_object();
    const char *key;
    bool ok = rest != NULL;
    for (size_t i = 0; ok && (key = tally_json_key(entry, i)) != NULL; i++) {
        if (strcmp(key, "from_round") != 0 && (is_worker || strcmp(key, "data") != 0)) {
            ok = tally_json_set(rest, key, tally_json_copy(tally_json_get(entry, key)));
        }
    }
    return tally_json_if_complete(rest, ok);
}

static enum tally_status write_row(int64_t round, const char *data, const struct tally_json *rest,
                                   struct tally_buffer *out)
{
    const enum tally_status status = tally_buffer_printf(out, "%" PRId64 " %s ", round,
                                                         data != NULL ? data : "0000000000000000");
    return status == TALLY_OK && rest != NULL ? tally_json_dump(rest, 0, out) : TALLY_NO_MEMORY;
}

/* Whether an entry without what append() adds has the members that a program gives it, and no
 * others; those of a worker have also data and code. */
static bool is_known_entry(const struct tally_json *rest, bool is_worker)
{
    enum { N_OF_PROGRAM = 5 };
    struct tally_buffer texts[2] = {{0}, {0}};
    struct tally_json *copy = tally_json_object();
    bool ok = copy != NULL;
    for (size_t i = 0; ok && i < (is_worker ? N_KNOWN : N_OF_PROGRAM); i++) {
        ok = copy_member(rest, &KNOWN[i], copy);
    }
    ok = ok && tally_json_dump(copy, 0, &texts[0]) == TALLY_OK &&
         tally_json_dump(rest, 0, &texts[1]) == TALLY_OK && texts[0].size == texts[1].size &&
         memcmp(texts[0].data, texts[1].data, texts[0].size) == 0;
    tally_json_free(copy);
    tally_buffer_fini(&texts[0]);
    tally_buffer_fini(&texts[1]);
    return ok;
}

static bool is_digest_or_null(const struct tally_json *entry)
{
    const char *text = tally_json_get_text(entry, "data");
    return text != NULL ? strlen(text) == DIGEST_DIGITS &&
                              strspn(text, "0123456789abcdef") == DIGEST_DIGITS &&
                              strspn(text, "0") < DIGEST_DIGITS
                        : tally_json_is_null(tally_json_get(entry, "data"));
}

static enum tally_status read_entry(const struct tally_json *entry, bool is_worker,
                                    struct tally_buffer *out, struct tally_error *err)
{
    const int64_t round = tally_json_get_integer(entry, "from_round", -1);
    struct tally_json *rest = rest_of(entry, is_worker);
    enum tally_status status = TALLY_OK;
    if (round < 0 || (!is_worker && !is_digest_or_null(entry)) ||
        !is_known_entry(rest, is_worker)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "it does not have the members that a coordinator gives it");
    } else if (write_row(round, is_worker ? NULL : tally_json_get_text(entry, "data"), rest, out) !=
               TALLY_OK) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    } else if (out->size > MOST_ROW_BYTES) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "it has %zu bytes, more than %d",
                            out->size, (int)MOST_ROW_BYTES);
    }
    tally_json_free(rest);
    return status;
}

static enum tally_status read_list(const struct tally_json *list, bool is_worker,
                                   struct tally_buffer *texts, struct tally_error *err)
{
    const char *field = is_worker ? "provenance.workers" : "provenance.coordinators";
    const size_t least = is_worker ? 0 : 1;
    const size_t most = is_worker ? PROVENANCE_MOST_ORIGINS : PROVENANCE_MOST_COORDINATORS;
    const size_t n = tally_json_size(list);
    if (!tally_json_is_array(list) || n < least || n > most) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "%zu entries outside [%zu, %zu]", n,
                          least, most);
    }
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = read_entry(tally_json_at(list, i), is_worker, &texts[i], err);
        if (status == TALLY_INVALID_ARGUMENT && err != NULL) {
            snprintf(err->field, sizeof err->field, "%s", field);
            tally_error_wrap(err, "entry %zu", i);
        }
    }
    return status;
}

/* The provenance must have what tally_provenance_json() makes, and nothing else. */
static enum tally_status read_provenance(const struct tally_json *provenance, const void *document,
                                         size_t n_document, struct provenance_rows *rows,
                                         struct tally_error *err)
{
    struct tally_json *own =
        tally_provenance_json(document, n_document, tally_json_array(), tally_json_array());
    const char *digest = tally_json_get_text(own, "document_sha256");
    const char *given = tally_json_get_text(provenance, "document_sha256");
    enum tally_status status = TALLY_OK;
    if (digest == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    } else if (given == NULL || strcmp(given, digest) != 0 ||
               tally_json_key(provenance, 3) != NULL) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "provenance.document_sha256",
                            "the provenance is that of another document: %.64s, not %s",
                            given != NULL ? given : "none", digest);
    }
    if (status == TALLY_OK) {
        status = read_list(tally_json_get(provenance, "coordinators"), false, rows->texts, err);
    }
    if (status == TALLY_OK) {
        status = read_list(tally_json_get(provenance, "workers"), true,
                           &rows->texts[PROVENANCE_MOST_COORDINATORS], err);
    }
    tally_json_free(own);
    return status;
}

enum tally_status provenance_rows_read(const struct tally_json *provenance,
                                       const struct tally_json *imported, const void *document,
                                       size_t n_document, struct provenance_rows *ret_rows,
                                       struct tally_error *err)
{
    struct tally_buffer *text = &ret_rows->texts[PROVENANCE_IMPORT];
    enum tally_status status = TALLY_OK;
    if (tally_json_is_object(provenance)) {
        status = read_provenance(provenance, document, n_document, ret_rows, err);
    } else if (!tally_json_is_null(provenance)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "provenance",
                            "provenance is neither an object nor null");
    }
    if (status == TALLY_OK && imported != NULL && write_row(0, NULL, imported, text) != TALLY_OK) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the provenance");
    }
    return status == TALLY_OK && text->size > MOST_ROW_BYTES
               ? tally_fail(err, TALLY_INVALID_ARGUMENT, "imported",
                            "imported has more than %d bytes", (int)MOST_ROW_BYTES)
               : status;
}

enum tally_status provenance_rows_put(struct tally_store *store, int64_t job_key,
                                      const struct provenance_rows *rows, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (uint32_t i = 0; status == TALLY_OK && i < PROVENANCE_MOST_ROWS; i++) {
        const struct tally_store_update row = {.round = TALLY_STORE_PROVENANCE_ROUND,
                                               .client = i,
                                               .body = rows->texts[i].data,
                                               .n_body = rows->texts[i].size};
        if (row.n_body > 0) {
            status = store->ops->update_insert(store, job_key, &row, err);
        }
    }
    return status;
}

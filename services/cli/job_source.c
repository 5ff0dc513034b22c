#include "services/cli/job_source.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "services/base/bundle.h"
#include "services/base/whole_file.h"
#include "services/job/document.h"

enum { MOST_BYTES = 16 << 20, PATH_CAPACITY = 256 };

bool tally_job_source_is_file(const char *word)
{
    struct stat info;
    return stat(word, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool tally_job_source_is_of_document(const char *key)
{
    bool found = strcmp(key, "labels") == 0;
    for (size_t i = 0; !found && i < TALLY_N_JOB_FIELDS; i++) {
        found = strcmp(key, TALLY_JOB_FIELDS[i].name) == 0;
    }
    for (size_t i = 0; !found && TALLY_DOCUMENT_PARTS[i] != NULL; i++) {
        found = strcmp(key, TALLY_DOCUMENT_PARTS[i]) == 0;
    }
    return found;
}

/* The members of the detail that are those of its document. */
static struct tally_json *document_in(const struct tally_json *detail)
{
    struct tally_json *document = tally_json_object();
    const char *key;
    bool ok = document != NULL;
    for (size_t i = 0; ok && (key = tally_json_key(detail, i)) != NULL; i++) {
        ok = !tally_job_source_is_of_document(key) ||
             tally_json_set(document, key, tally_json_copy(tally_json_get(detail, key)));
    }
    return tally_json_if_complete(document, ok);
}

static enum tally_status parse(const char *path, const struct tally_buffer *text,
                               struct tally_json **ret_value, struct tally_error *err)
{
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        tally_json_parse((const char *)text->data, text->size, ret_value, &why);
    if (status == TALLY_OK && tally_json_get_text(*ret_value, "status") == NULL &&
        tally_json_get(*ret_value, "clients") == NULL) {
        status = tally_fail(&why, TALLY_INVALID_ARGUMENT, NULL, "it is no job");
    }
    return status == TALLY_OK
               ? TALLY_OK
               : tally_fail(err, status, NULL,
                            "%.200s is neither a bundle of tally export nor a job's detail: %s",
                            path, why.message);
}

static enum tally_status read_member(const char *path, const char *name,
                                     struct tally_json **ret_value, struct tally_error *err)
{
    struct tally_buffer text = {.limit = MOST_BYTES};
    enum tally_status status = tally_bundle_read(path, name, &text, err);
    if (status == TALLY_OK) {
        status = parse(path, &text, ret_value, err);
    }
    tally_buffer_fini(&text);
    return status;
}

static enum tally_status read_file(const char *path, struct tally_job_source *source,
                                   struct tally_error *err)
{
    struct tally_buffer text = {.limit = MOST_BYTES};
    enum tally_status status;
    if (tally_bundle_is_one(path)) {
        status = read_member(path, "job.json", &source->detail, err);
        return status == TALLY_OK ? read_member(path, "document.json", &source->document, err)
                                  : status;
    }
    status = tally_file_read(path, &text, err);
    if (status == TALLY_OK) {
        status = parse(path, &text, &source->detail, err);
    }
    if (status == TALLY_OK) {
        source->document = document_in(source->detail);
        status = source->document != NULL ? TALLY_OK
                                          : tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    tally_buffer_fini(&text);
    return status;
}

enum tally_status tally_job_source_read(struct tally_cli *cli, const char *word,
                                        struct tally_job_source *ret_source,
                                        struct tally_error *err)
{
    char name[TALLY_JOB_WORD_CAPACITY];
    *ret_source = (struct tally_job_source){NULL, NULL};
    if (tally_job_source_is_file(word)) {
        return read_file(word, ret_source, err);
    }
    snprintf(name, sizeof name, "%s", word);
    enum tally_status status = tally_job_get_json(&cli->rest, name, "", &ret_source->detail, err);
    return status == TALLY_OK
               ? tally_job_get_json(&cli->rest, name, "/document", &ret_source->document, err)
               : status;
}

enum tally_status tally_job_source_spec(const struct tally_job_source *source,
                                        struct tally_job_spec *ret_spec, struct tally_error *err)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_json_dump(source->document, 0, &text);
    status = status == TALLY_OK
                 ? tally_document_parse((const char *)text.data, text.size, ret_spec, err)
                 : tally_fail(err, status, NULL, "out of memory");
    tally_buffer_fini(&text);
    return status;
}

void tally_job_source_fini(struct tally_job_source *source)
{
    tally_json_free(source->detail);
    tally_json_free(source->document);
}

/* ---- Differences. */

/* NOLINTBEGIN(misc-no-recursion): as deep as the values, which the parser limits to 2,048. */
static int compare_at(const char *path, const struct tally_json *a, const struct tally_json *b,
                      tally_difference_fn *each, void *context);

/* Compares the members of `a`; of `b` only those that `a` lacks. */
static int compare_members(const char *path, const struct tally_json *a, const struct tally_json *b,
                           tally_difference_fn *each, void *context)
{
    char below[PATH_CAPACITY];
    const char *key;
    int n = 0;
    for (int side = 0; side < 2; side++) {
        const struct tally_json *of = side == 0 ? a : b;
        for (size_t i = 0; (key = tally_json_key(of, i)) != NULL; i++) {
            if (side == 0 || tally_json_get(a, key) == NULL) {
                snprintf(below, sizeof below, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
                n += compare_at(below, tally_json_get(a, key), tally_json_get(b, key), each,
                                context);
            }
        }
    }
    return n;
}

static int compare_at(const char *path, const struct tally_json *a, const struct tally_json *b,
                      tally_difference_fn *each, void *context)
{
    if (tally_json_is_object(a) && tally_json_is_object(b)) {
        return compare_members(path, a, b, each, context);
    }
    if (tally_json_is_same(a, b)) {
        return 0;
    }
    each(context, path, a, b);
    return 1;
}
/* NOLINTEND(misc-no-recursion) */

int tally_differences(const struct tally_json *a, const struct tally_json *b,
                      tally_difference_fn *each, void *context)
{
    return compare_members("", a, b, each, context);
}

/* The results in a detail, of those members alone on which two runs must agree. NULL = out of
 * memory. */
static struct tally_json *result_of(const struct tally_json *detail)
{
    static const char *const KEYS[] = {"status",  "time_step",         "round",     "iterate",
                                       "stage",   "cumulative_regret", "loss",      "f_star",
                                       "metrics", "x_checksum",        "estimates", "stopped_by"};
    static const char *const BITS[] = {"uplink", "downlink", "control", "telemetry"};
    struct tally_json *result = tally_json_object(), *bits = tally_json_object();
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof KEYS / sizeof *KEYS; i++) {
        const struct tally_json *value = tally_json_get(detail, KEYS[i]);
        ok = value == NULL || tally_json_set(result, KEYS[i], tally_json_copy(value));
    }
    for (size_t i = 0; ok && i < sizeof BITS / sizeof *BITS; i++) {
        const struct tally_json *value = tally_json_get(tally_json_get(detail, "bits"), BITS[i]);
        ok = value == NULL || tally_json_set(bits, BITS[i], tally_json_copy(value));
    }
    ok = tally_json_set(result, "bits", bits) && ok;
    return tally_json_if_complete(result, ok);
}

int tally_result_differences(const struct tally_json *a, const struct tally_json *b,
                             tally_difference_fn *each, void *context)
{
    struct tally_json *results[] = {result_of(a), result_of(b)};
    const int n = tally_differences(results[0], results[1], each, context);
    tally_json_free(results[0]);
    tally_json_free(results[1]);
    return n;
}

/* The program that started the job; NULL if it is not known. */
static const struct tally_json *program_of(const struct tally_json *detail)
{
    return tally_json_at(tally_json_get(tally_json_get(detail, "provenance"), "coordinators"), 0);
}

/* What all workers of the job have said of their updates; NULL = not known, or not the same. */
static const struct tally_json *origin_of(const struct tally_json *detail)
{
    const struct tally_json *workers =
        tally_json_get(tally_json_get(detail, "provenance"), "workers");
    return tally_json_size(workers) == 1 ? tally_json_at(workers, 0) : NULL;
}

const char *tally_detail_data(const struct tally_json *detail)
{
    const char *data = tally_json_get_text(program_of(detail), "data");
    return data != NULL ? data : tally_json_get_text(origin_of(detail), "data");
}

int tally_program_differences(const struct tally_json *a, const struct tally_json *b,
                              tally_difference_fn *each, void *context)
{
    static const char *const KEYS[] = {"version", "commit", "compiler", "libraries", "machine"};
    int n = 0;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        n += compare_at(KEYS[i], tally_json_get(program_of(a), KEYS[i]),
                        tally_json_get(program_of(b), KEYS[i]), each, context);
    }
    if (origin_of(a) != NULL && origin_of(b) != NULL) {
        n += compare_at("code", tally_json_get(origin_of(a), "code"),
                        tally_json_get(origin_of(b), "code"), each, context);
    }
    return n;
}

void tally_difference_cell(const struct tally_json *value, char ret_text[TALLY_DIFFERENCE_CAPACITY])
{
    const char *text = tally_json_as_text(value);
    struct tally_buffer json = {0};
    if (text != NULL) {
        snprintf(ret_text, TALLY_DIFFERENCE_CAPACITY, "%s", text);
    } else if (value != NULL && tally_json_dump(value, 0, &json) == TALLY_OK) {
        snprintf(ret_text, TALLY_DIFFERENCE_CAPACITY, "%.*s", (int)json.size,
                 (const char *)json.data);
    }
    if ((text == NULL && json.size == 0) || strcmp(ret_text, "null") == 0) {
        snprintf(ret_text, TALLY_DIFFERENCE_CAPACITY, "-");
    }
    tally_buffer_fini(&json);
}

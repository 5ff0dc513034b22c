#include "services/cli/document_text.h"

#include <stdio.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/base/whole_file.h"
#include "services/job/document.h"

enum { MAX_EDIT = 4096 };

static const char LABELS[] = "labels.";
enum { LABELS_LENGTH = sizeof LABELS - 1 };

#define PATH_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

/* Whether an edit begins here: "path=". */
static bool begins_edit(const char *at)
{
    const bool is_label = strncmp(at, LABELS, LABELS_LENGTH) == 0;
    const size_t n = strspn(at, is_label ? PATH_CHARACTERS "/" : PATH_CHARACTERS);
    return n > 0 && at[n] == '=';
}

/* Bytes up to the ':' in front of the next edit, or to the end. */
static size_t edit_length(const char *edits)
{
    size_t n = 0;
    while (edits[n] != '\0' && !(edits[n] == ':' && begins_edit(edits + n + 1))) {
        n++;
    }
    return n;
}

/* Sets label `key` to `value`, or to `text` if `value` is not a string. Takes ownership of
 * `value`. */
static enum tally_status set_label(struct tally_json *document, const char *key, const char *text,
                                   struct tally_json *value, struct tally_error *err)
{
    const struct tally_json *before = tally_json_get(document, "labels");
    if (before != NULL && !tally_json_is_object(before)) {
        tally_json_free(value);
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "labels is not an object");
    }
    if (tally_json_as_text(value) == NULL) {
        tally_json_free(value);
        value = tally_json_text(text);
    }
    struct tally_json *labels = before != NULL ? tally_json_copy(before) : tally_json_object();
    const bool ok = tally_json_set(labels, key, value);
    return tally_json_set(document, "labels", tally_json_if_complete(labels, ok))
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the labels");
}

/* Sets a text member to the text of its edit, unless that is a JSON string. */
static enum tally_status apply_text(const char *path, const char *text, struct tally_json *document,
                                    struct tally_json *parsed, struct tally_error *err)
{
    const bool is_text = tally_json_as_text(parsed) != NULL;
    tally_json_free(parsed);
    return is_text || !tally_document_is_text(document, path)
               ? TALLY_OK
               : tally_json_set_path(document, path, tally_json_text(text), err);
}

/* "path=value". With `only_texts`, all edits have been applied already, so that the members' types
 * are known: text members that look like something else become texts. */
static enum tally_status apply(char *edit, struct tally_json *document, bool only_texts,
                               struct tally_error *err)
{
    char *equals = strchr(edit, '=');
    if (!begins_edit(edit)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "--set \"%.100s\" is not PATH=VALUE",
                          edit);
    }
    *equals = '\0';
    const char *text = equals + 1;
    struct tally_json *value = NULL;
    if (tally_json_parse(text, strlen(text), &value, NULL) != TALLY_OK) {
        value = tally_json_text(text);
    }
    enum tally_status status = value != NULL ? TALLY_OK : TALLY_INVALID_ARGUMENT;
    if (value != NULL && only_texts) {
        status = apply_text(edit, text, document, value, err);
    } else if (value != NULL && strncmp(edit, LABELS, LABELS_LENGTH) == 0) {
        status = set_label(document, edit + LABELS_LENGTH, text, value, err);
    } else if (value != NULL) {
        status = tally_json_set_path(document, edit, value, err);
    }
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "%.100s is not UTF-8", edit);
        tally_error_wrap(err, "--set");
    }
    return status;
}

static enum tally_status apply_all(const char *edits, struct tally_json *document, bool only_texts,
                                   struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && *edits != '\0') {
        char edit[MAX_EDIT];
        const size_t n = edit_length(edits);
        if (n >= sizeof edit) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "--set of %zu bytes, at most %d",
                              n, MAX_EDIT - 1);
        }
        memcpy(edit, edits, n);
        edit[n] = '\0';
        status = apply(edit, document, only_texts, err);
        edits += n;
        edits += *edits == ':';
    }
    return status;
}

enum tally_status tally_document_text_edit(const char *edits, struct tally_buffer *text,
                                           struct tally_error *err)
{
    struct tally_json *document = NULL;
    enum tally_status status =
        tally_json_parse((const char *)text->data, text->size, &document, err);
    if (status == TALLY_OK && !tally_json_is_object(document)) {
        status = tally_fail(err, TALLY_MALFORMED, NULL, "the job document is not an object");
    }
    if (status == TALLY_OK) {
        status = apply_all(edits, document, false, err);
    }
    if (status == TALLY_OK) {
        status = apply_all(edits, document, true, err);
    }
    if (status == TALLY_OK) {
        text->size = 0;
        status = tally_json_dump(document, 2, text);
    }
    tally_json_free(document);
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "no memory for the document");
}

enum tally_status tally_document_text_read(const struct tally_options *options,
                                           struct tally_buffer *out, struct tally_error *err)
{
    const char *edits = tally_options_text(options, "set");
    const enum tally_status status =
        tally_whole_file_read(tally_options_positional(options, 0), out, err);
    return status == TALLY_OK && edits != NULL ? tally_document_text_edit(edits, out, err) : status;
}

static enum tally_status append_line(const struct tally_json *fault, struct tally_buffer *out)
{
    const char *field = tally_json_get_text(fault, "field");
    const char *detail = tally_json_get_text(fault, "detail");
    const bool says_auto = detail != NULL && strstr(detail, "\"auto\"") != NULL;
    const bool has_auto = tally_json_get(fault, "auto") != NULL && !says_auto;
    char line[1024];
    snprintf(line, sizeof line, "  %s: %s%s", field != NULL ? field : "",
             detail != NULL ? detail : "", has_auto ? ", or \"auto\"" : "");
    tally_utf8_sanitize_line(line);
    return tally_buffer_printf(out, "%s\n", line);
}

enum tally_status tally_document_text_faults(const struct tally_json *faults,
                                             struct tally_buffer *out)
{
    const size_t n = faults != NULL ? tally_json_size(faults) : 0;
    const bool has_more =
        n > 1 || (n == 1 && (tally_json_get(tally_json_at(faults, 0), "suggestion") != NULL ||
                             tally_json_get(tally_json_at(faults, 0), "auto") != NULL));
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; has_more && status == TALLY_OK && i < n; i++) {
        status = append_line(tally_json_at(faults, i), out);
    }
    return status;
}

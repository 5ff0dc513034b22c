#include "services/job/document_labels.h"

#include <string.h>

enum tally_status tally_document_count_labels(const struct tally_json *labels,
                                              struct tally_error *err)
{
    size_t n = 0;
    while (tally_json_key(labels, n) != NULL) {
        n++;
    }
    return n <= TALLY_LABELS_MOST ? TALLY_OK
                                  : tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                                               "%zu labels, at most %d", n, TALLY_LABELS_MOST);
}

enum tally_status tally_document_read_label(const struct tally_json *labels, const char *key,
                                            struct tally_label *ret_label, struct tally_error *err)
{
    const struct tally_field field = {
        .name = key, .kind = TALLY_FIELD_TEXT, .capacity = TALLY_LABEL_VALUE_CAPACITY};
    struct tally_label label = {.value = ""};
    if (!tally_label_is_key(key)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, key,
                          "\"%.80s\" is not a key: a key has " TALLY_LABEL_KEY_RULE, key);
    }
    memcpy(label.key, key, strlen(key) + 1);
    const enum tally_status status = tally_json_read_field(labels, &field, label.value, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (!tally_label_is_value(label.value)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, key, "%s contains a control character", key);
    }
    *ret_label = label;
    return TALLY_OK;
}

enum tally_status tally_document_read_labels(const struct tally_json *document,
                                             char ret_labels[TALLY_LABELS_CAPACITY],
                                             struct tally_error *err)
{
    const struct tally_json *labels = tally_json_get(document, "labels");
    char text[TALLY_LABELS_CAPACITY] = "";
    if (labels == NULL) {
        return TALLY_OK;
    }
    if (!tally_json_is_object(labels)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "labels", "labels must be an object");
    }
    enum tally_status status = tally_document_count_labels(labels, err);
    const char *key;
    for (size_t i = 0; status == TALLY_OK && (key = tally_json_key(labels, i)) != NULL; i++) {
        struct tally_label label;
        status = tally_document_read_label(labels, key, &label, err);
        if (status == TALLY_OK) {
            tally_labels_add(text, &label);
        }
    }
    if (status != TALLY_OK) {
        tally_error_in_field(err, "labels");
        return status;
    }
    memcpy(ret_labels, text, sizeof text);
    return TALLY_OK;
}

bool tally_document_set_labels(struct tally_json *object, const char *labels)
{
    struct tally_label label;
    if (labels[0] == '\0') {
        return true;
    }
    struct tally_json *value = tally_json_object();
    bool ok = value != NULL;
    while (ok && tally_labels_next(&labels, &label)) {
        ok = tally_json_set_text(value, label.key, label.value);
    }
    return tally_json_set(object, "labels", tally_json_if_complete(value, ok));
}

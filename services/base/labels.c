#include "services/base/labels.h"

#include <string.h>

#include "codec/utf8.h"

_Static_assert(TALLY_LABELS_MOST *(TALLY_LABEL_KEY_CAPACITY + TALLY_LABEL_VALUE_CAPACITY) + 1 <=
                   TALLY_LABELS_CAPACITY,
               "room for the longest labels: '=' and a line feed in place of two NULs");

#define LETTERS_AND_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* Length of the key that `text` starts with; 0 if it starts with none. */
static size_t key_length(const char *text)
{
    return strspn(text, LETTERS_AND_DIGITS) > 0 ? strspn(text, LETTERS_AND_DIGITS "._/-") : 0;
}

bool tally_label_is_key(const char *text)
{
    const size_t n = key_length(text);
    return n > 0 && n < TALLY_LABEL_KEY_CAPACITY && text[n] == '\0';
}

bool tally_label_is_value(const char *text)
{
    const size_t n = strlen(text);
    return n < TALLY_LABEL_VALUE_CAPACITY && tally_utf8_valid_prefix(text, n) == n &&
           tally_utf8_find_control(text) == n;
}

/* Copies n bytes and a NUL. False if they do not fit. */
static bool copy(char *ret_text, size_t capacity, const char *from, size_t n)
{
    if (n >= capacity) {
        return false;
    }
    memcpy(ret_text, from, n);
    ret_text[n] = '\0';
    return true;
}

bool tally_labels_next(const char **at, struct tally_label *ret_label)
{
    struct tally_label label;
    const size_t n_key = key_length(*at);
    if (n_key == 0 || (*at)[n_key] != '=') {
        return false;
    }
    const char *value = *at + n_key + 1;
    const size_t n_value = strcspn(value, "\n");
    if (value[n_value] != '\n' || !copy(label.key, sizeof label.key, *at, n_key) ||
        !copy(label.value, sizeof label.value, value, n_value)) {
        return false;
    }
    *at = value + n_value + 1;
    *ret_label = label;
    return true;
}

void tally_labels_add(char text[TALLY_LABELS_CAPACITY], const struct tally_label *label)
{
    struct tally_label other;
    const char *place = text, *at = text; /* the new line is inserted at `place` */
    while (tally_labels_next(&at, &other) && strcmp(other.key, label->key) < 0) {
        place = at;
    }
    const size_t n_key = strlen(label->key), n_value = strlen(label->value);
    const size_t n_line = n_key + n_value + 2;
    char *line = text + (place - text);
    memmove(line + n_line, line, strlen(line) + 1);
    memcpy(line, label->key, n_key);
    line[n_key] = '=';
    memcpy(line + n_key + 1, label->value, n_value);
    line[n_line - 1] = '\n';
}

enum tally_status tally_label_filter_parse(const char *text, struct tally_label_filter *ret_filter,
                                           struct tally_error *err)
{
    struct tally_label_filter filter = {.any_value = strchr(text, '=') == NULL};
    const size_t n_key = strcspn(text, "=");
    const char *value = filter.any_value ? "" : text + n_key + 1;
    if (!copy(filter.label.key, sizeof filter.label.key, text, n_key) ||
        !tally_label_is_key(filter.label.key)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "label",
                          "\"%.80s\" is neither KEY=VALUE nor KEY; a key has " TALLY_LABEL_KEY_RULE,
                          text);
    }
    if (!tally_label_is_value(value)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "label",
                          "the value of %s is not at most %d bytes of UTF-8 without control "
                          "characters",
                          filter.label.key, TALLY_LABEL_VALUE_CAPACITY - 1);
    }
    copy(filter.label.value, sizeof filter.label.value, value, strlen(value));
    *ret_filter = filter;
    return TALLY_OK;
}

bool tally_labels_match(const char *labels, const struct tally_label_filter *filter)
{
    struct tally_label label;
    while (tally_labels_next(&labels, &label)) {
        if (strcmp(label.key, filter->label.key) == 0) {
            return filter->any_value || strcmp(label.value, filter->label.value) == 0;
        }
    }
    return false;
}

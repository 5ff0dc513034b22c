/* labels: the labels that users give to jobs, to find them again.
 *
 * A label is a key with a value. All labels of a job are kept as one text, with one line for each
 * label and the keys in ascending order of their bytes:
 *
 *     {"team": "vision", "run": "a=1"}        "run=a=1\nteam=vision\n"
 *
 * A key has no '=' and a value has no line feed, so the text needs no quotes. A filter is a line
 * without its line feed, or a key alone. */
#ifndef TALLY_SERVICES_BASE_LABELS_H
#define TALLY_SERVICES_BASE_LABELS_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/error.h"
#include "codec/record.h"

enum {
    TALLY_LABELS_MOST = 16,         /* of a job */
    TALLY_LABEL_KEY_CAPACITY = 64,  /* with NUL */
    TALLY_LABEL_VALUE_CAPACITY = 64 /* with NUL */
};

#define TALLY_LABEL_KEY_RULE                                                                       \
    "1 to 63 letters, digits and ._/-, and starts with a letter or digit" /* "a key has ..." */

struct tally_label {
    char key[TALLY_LABEL_KEY_CAPACITY]; /* ASCII: [A-Za-z0-9][A-Za-z0-9._/-]{0,62} */
    /* UTF-8 without control characters; may be empty */
    char value[TALLY_LABEL_VALUE_CAPACITY];
};

bool tally_label_is_key(const char *text);
/* At most 63 bytes of valid UTF-8 without control characters. */
bool tally_label_is_value(const char *text);

/* Adds a label to the labels in `text`. Precondition: fewer than TALLY_LABELS_MOST are there, none
 * of them with this key. */
void tally_labels_add(char text[TALLY_LABELS_CAPACITY], const struct tally_label *label);
/* Reads the label at *at and advances; false at the end of the text, or if it is damaged. */
bool tally_labels_next(const char **at, struct tally_label *ret_label);

/* Condition on the labels of a job. */
struct tally_label_filter {
    struct tally_label label;
    bool any_value; /* the job has the key, whatever the value */
};

/* Reads "KEY=VALUE" or "KEY"; the value starts after the first '='. Errors: INVALID_ARGUMENT, with
 * field "label". */
enum tally_status tally_label_filter_parse(const char *text, struct tally_label_filter *ret_filter,
                                           struct tally_error *err);
bool tally_labels_match(const char *labels, const struct tally_label_filter *filter);

#endif

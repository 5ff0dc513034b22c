/* field: describes one member of a plain struct, so that one const table drives reading, checking,
 * printing and documenting a JSON object.
 *
 * The table is pure data; api/json_fields.h reads and writes JSON with it. */
#ifndef TALLY_CODEC_BASE_FIELD_H
#define TALLY_CODEC_BASE_FIELD_H

#include <stdbool.h>
#include <stddef.h>

enum tally_field_kind {
    TALLY_FIELD_BOOL,    /* bool */
    TALLY_FIELD_INTEGER, /* int64_t */
    TALLY_FIELD_REAL,    /* double; JSON integers are accepted */
    TALLY_FIELD_TEXT,    /* char[capacity], NUL-terminated, no control characters */
    TALLY_FIELD_CHOICE,  /* int, index into choices */
};

struct tally_field {
    const char *name; /* JSON key = config key = metric label */
    enum tally_field_kind kind;
    size_t offset;              /* of the member in its struct */
    bool required;              /* otherwise the struct's prior value stands */
    double min, max;            /* inclusive limits of INTEGER and REAL */
    bool min_exclusive;         /* min itself is refused */
    bool auto_allowed;          /* of REAL: the text "auto" is taken too, as NaN */
    size_t capacity;            /* of TEXT, with its NUL */
    const char *const *choices; /* of CHOICE; NULL-terminated */
    const char *unit;           /* for people; NULL = none */
    const char *doc;            /* one clause: its meaning */
};

#endif

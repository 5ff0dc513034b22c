/* field: describes one member of a plain struct, so that one const table drives reading, checking,
 * printing and documenting a JSON object.
 *
 * The table is pure data; api/json_fields.h reads and writes JSON with it. */
#ifndef TALLY_CODEC_FIELD_H
#define TALLY_CODEC_FIELD_H

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
    size_t offset;      /* of the member in its struct */
    bool required;      /* otherwise the member keeps its value */
    bool found;         /* required, but the program that accepts a document adds it if need be */
    bool omits_zero;    /* of INTEGER and REAL: 0, its default, is not written */
    bool omits_nan;     /* of REAL: NaN, its default, is not written */
    double min, max;    /* inclusive limits of INTEGER and REAL */
    bool min_exclusive; /* min itself is refused */
    bool quiet;         /* of BOOL, TEXT, CHOICE: false, "", the first choice are not written */
    bool auto_allowed;  /* of REAL: the string "auto" is accepted too, as NaN */
    size_t capacity;    /* of TEXT, with its NUL */
    /* Of INTEGER; not 0: an array of different texts is accepted too. The member is then their
     * number, and the char[names_capacity] right behind it has each text with its NUL, one after
     * the other, and ends with an empty one. An empty list there: the member is only a number. */
    size_t names_capacity;
    const char *const *choices; /* of CHOICE; NULL-terminated */
    const char *unit;           /* for people; NULL = none */
    const char *doc;            /* one clause: its meaning */
};

/* Rows of a table: the key, the offset of the member, limits, and then `.doc = "..."` and any other
 * member that is not zero. */
#define TALLY_BOOL(key, member, ...)                                                               \
    {                                                                                              \
        .name = (key), .kind = TALLY_FIELD_BOOL, .offset = (member), __VA_ARGS__                   \
    }
#define TALLY_NUMBER(type, key, member, least, most, ...)                                          \
    {                                                                                              \
        .name = (key), .kind = (type), .offset = (member), .min = (least), .max = (most),          \
        __VA_ARGS__                                                                                \
    }
#define TALLY_INTEGER(key, member, least, most, ...)                                               \
    TALLY_NUMBER(TALLY_FIELD_INTEGER, key, member, least, most, __VA_ARGS__)
#define TALLY_REAL(key, member, least, most, ...)                                                  \
    TALLY_NUMBER(TALLY_FIELD_REAL, key, member, least, most, __VA_ARGS__)
/* A real number above 0. */
#define TALLY_POSITIVE(key, member, most, ...)                                                     \
    TALLY_REAL(key, member, 0, most, .min_exclusive = true, __VA_ARGS__)
#define TALLY_TEXT(key, member, size, ...)                                                         \
    {                                                                                              \
        .name = (key), .kind = TALLY_FIELD_TEXT, .offset = (member), .capacity = (size),           \
        __VA_ARGS__                                                                                \
    }
#define TALLY_CHOICE(key, member, names, ...)                                                      \
    {                                                                                              \
        .name = (key), .kind = TALLY_FIELD_CHOICE, .offset = (member), .choices = (names),         \
        __VA_ARGS__                                                                                \
    }

/* Expands to a table and its length, as two struct members or two arguments. */
#define TALLY_ROWS(table) (table), sizeof(table) / sizeof((table)[0])

#endif

/* json: JSON values, read and written with jansson.
 *
 * A `struct tally_json` is a reference. Functions named get borrow; set and append take ownership
 * of the value they are given (also on failure). Setters return false when memory ran out, so that
 * a builder can collect them with `ok = tally_json_set_...(...) && ok` and check once. */
#ifndef TALLY_API_JSON_JSON_H
#define TALLY_API_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/field.h"

struct tally_json;

/* Parses exactly n bytes of UTF-8, which may begin with a byte order mark. Duplicate keys, NaN,
 * trailing text and nesting past jansson's limit are refused. Errors: MALFORMED with line and
 * column, NO_MEMORY. */
enum tally_status tally_json_parse(const char *text, size_t n, struct tally_json **ret_value,
                                   struct tally_error *err);
void tally_json_free(struct tally_json *value);

/* A parsed value costs about 100 bytes and a microsecond, so untrusted texts are measured before
 * they are parsed. `values` counts the members of objects and the elements of arrays, on all
 * levels. */
struct tally_json_limits {
    size_t bytes, values, depth;
};

/* Refuses a text that exceeds a limit. Takes linear time and allocates nothing. Invalid JSON may
 * pass: the parser refuses it. Errors: INVALID_ARGUMENT; the message names the limit. */
enum tally_status tally_json_check_limits(const char *text, size_t n,
                                          const struct tally_json_limits *limits,
                                          struct tally_error *err);

/* New values with one reference; NULL when memory ran out. */
struct tally_json *tally_json_object(void);
struct tally_json *tally_json_array(void);
struct tally_json *tally_json_text(const char *text);
struct tally_json *tally_json_integer(int64_t value);
struct tally_json *tally_json_real(double value);                   /* null if it is not finite */
struct tally_json *tally_json_copy(const struct tally_json *value); /* deep */
/* The value, if all of its members could be set; else frees it and returns NULL. */
struct tally_json *tally_json_if_complete(struct tally_json *value, bool is_complete);

bool tally_json_set(struct tally_json *object, const char *key, struct tally_json *value);
bool tally_json_set_bool(struct tally_json *object, const char *key, bool value);
bool tally_json_set_integer(struct tally_json *object, const char *key, int64_t value);
/* Counters stay below 2^63; a larger one is written as a decimal string. */
bool tally_json_set_unsigned(struct tally_json *object, const char *key, uint64_t value);
/* NaN and infinities, which JSON lacks, are written as null. */
bool tally_json_set_real(struct tally_json *object, const char *key, double value);
bool tally_json_set_text(struct tally_json *object, const char *key, const char *text);
bool tally_json_set_null(struct tally_json *object, const char *key);
/* Sets null for NULL and for "". */
bool tally_json_set_text_or_null(struct tally_json *object, const char *key, const char *text);
bool tally_json_append(struct tally_json *array, struct tally_json *value);
bool tally_json_append_real(struct tally_json *array, double value);
bool tally_json_append_integer(struct tally_json *array, int64_t value);

/* Sets the member that a path such as "algorithm.step_size" names; missing objects on the path are
 * created. Takes ownership of the value. Errors: INVALID_ARGUMENT (empty path, or a value on the
 * path is not an object), NO_MEMORY. */
enum tally_status tally_json_set_path(struct tally_json *object, const char *path,
                                      struct tally_json *value, struct tally_error *err);

bool tally_json_is_object(const struct tally_json *value);
bool tally_json_is_array(const struct tally_json *value);
bool tally_json_is_null(const struct tally_json *value); /* false if there is no value */
bool tally_json_is_true(const struct tally_json *value);
const struct tally_json *tally_json_get(const struct tally_json *object, const char *key);
/* The key at an index in an object's order of insertion; NULL past the last. Takes time
 * proportional to the index. */
const char *tally_json_key(const struct tally_json *object, size_t index);
size_t tally_json_size(const struct tally_json *array);
const struct tally_json *tally_json_at(const struct tally_json *array, size_t index);
/* The text, or NULL if the value is not a string. */
const char *tally_json_as_text(const struct tally_json *value);
const char *tally_json_get_text(const struct tally_json *object, const char *key);
/* The number, or `otherwise` if the member is absent or of a different type. */
int64_t tally_json_get_integer(const struct tally_json *object, const char *key, int64_t otherwise);
double tally_json_get_real(const struct tally_json *object, const char *key, double otherwise);

/* Appends the JSON text. `indent` 0 is one line. Reals are the shortest decimal that reads back as
 * the same double; key order is insertion order. Errors: NO_MEMORY, TOO_LARGE. */
enum tally_status tally_json_dump(const struct tally_json *value, int indent,
                                  struct tally_buffer *out);

/* Whether both are written alike; false if there is no value, or no memory. */
bool tally_json_is_same(const struct tally_json *a, const struct tally_json *b);
/* Appends a real as tally_json_dump() writes it; null if it is not finite. Errors: as above. */
enum tally_status tally_json_dump_real(double value, struct tally_buffer *out);

/* Reads the members of `object` that `fields` describes into the struct at `ret_struct`, whose
 * initial contents are the defaults. Keys listed in `others` (NULL-terminated, may be NULL) are
 * ignored; any other key is an error. Errors: INVALID_ARGUMENT (not an object, wrong type, unknown
 * or missing key), OUT_OF_RANGE; err->field is the key, the message names value and limits. On
 * failure the struct may be partly written. */
enum tally_status tally_json_read_fields(const struct tally_json *object,
                                         const struct tally_field *fields, size_t n_fields,
                                         const char *const *others, void *ret_struct,
                                         struct tally_error *err);
/* Reads one member of an object, whatever others it has. Errors: those of its value, and
 * INVALID_ARGUMENT (a required key is missing). */
enum tally_status tally_json_read_field(const struct tally_json *object,
                                        const struct tally_field *field, void *ret_struct,
                                        struct tally_error *err);
/* Sets in `object` one member per field. */
bool tally_json_write_fields(struct tally_json *object, const struct tally_field *fields,
                             size_t n_fields, const void *from_struct);

#endif

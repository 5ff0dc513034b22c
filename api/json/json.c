#include "api/json/json.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"

/* A `struct tally_json` is jansson's json_t by another name, so that jansson.h stays in here. */
static json_t *inner(const struct tally_json *value)
{
    return (json_t *)value; /* jansson's iterators take a plain json_t * even to read */
}

static struct tally_json *outer(json_t *value)
{
    return (struct tally_json *)value;
}

enum tally_status tally_json_parse(const char *text, size_t n, struct tally_json **ret_value,
                                   struct tally_error *err)
{
    if (n == 0) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "empty, expected JSON");
    }
    json_error_t found;
    const size_t n_mark = tally_utf8_mark(text, n);
    json_t *value =
        json_loadb(text + n_mark, n - n_mark, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &found);
    if (value == NULL && json_error_code(&found) == json_error_out_of_memory) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu bytes of JSON", n);
    }
    if (value == NULL) {
        tally_utf8_sanitize_line(found.text); /* jansson's message quotes the input */
        return tally_fail(err, TALLY_MALFORMED, NULL, "line %d column %d: %s", found.line,
                          found.column, found.text);
    }
    *ret_value = outer(value);
    return TALLY_OK;
}

void tally_json_free(struct tally_json *value)
{
    json_decref(inner(value));
}

struct tally_json *tally_json_object(void)
{
    return outer(json_object());
}

struct tally_json *tally_json_array(void)
{
    return outer(json_array());
}

struct tally_json *tally_json_text(const char *text)
{
    return outer(json_string(text));
}

struct tally_json *tally_json_integer(int64_t value)
{
    return outer(json_integer(value));
}

struct tally_json *tally_json_real(double value)
{
    return outer(isfinite(value) ? json_real(value) : json_null());
}

struct tally_json *tally_json_copy(const struct tally_json *value)
{
    return outer(json_deep_copy(inner(value)));
}

bool tally_json_set(struct tally_json *object, const char *key, struct tally_json *value)
{
    return json_object_set_new(inner(object), key, inner(value)) == 0;
}

bool tally_json_set_bool(struct tally_json *object, const char *key, bool value)
{
    return tally_json_set(object, key, outer(json_boolean(value)));
}

bool tally_json_set_integer(struct tally_json *object, const char *key, int64_t value)
{
    return tally_json_set(object, key, outer(json_integer(value)));
}

bool tally_json_set_unsigned(struct tally_json *object, const char *key, uint64_t value)
{
    if (value <= INT64_MAX) {
        return tally_json_set_integer(object, key, (int64_t)value);
    }
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    return tally_json_set_text(object, key, digits);
}

bool tally_json_set_real(struct tally_json *object, const char *key, double value)
{
    return tally_json_set(object, key, tally_json_real(value));
}

bool tally_json_set_text(struct tally_json *object, const char *key, const char *text)
{
    return tally_json_set(object, key, tally_json_text(text));
}

bool tally_json_set_text_or_null(struct tally_json *object, const char *key, const char *text)
{
    return text != NULL && text[0] != '\0' ? tally_json_set_text(object, key, text)
                                           : tally_json_set_null(object, key);
}

struct tally_json *tally_json_if_complete(struct tally_json *value, bool is_complete)
{
    if (!is_complete) {
        tally_json_free(value);
    }
    return is_complete ? value : NULL;
}

bool tally_json_set_null(struct tally_json *object, const char *key)
{
    return tally_json_set(object, key, outer(json_null()));
}

bool tally_json_append(struct tally_json *array, struct tally_json *value)
{
    return json_array_append_new(inner(array), inner(value)) == 0;
}

bool tally_json_append_real(struct tally_json *array, double value)
{
    return tally_json_append(array, tally_json_real(value));
}

bool tally_json_append_integer(struct tally_json *array, int64_t value)
{
    return tally_json_append(array, outer(json_integer(value)));
}

bool tally_json_is_object(const struct tally_json *value)
{
    return json_is_object(inner(value));
}

bool tally_json_is_array(const struct tally_json *value)
{
    return json_is_array(inner(value));
}

bool tally_json_is_null(const struct tally_json *value)
{
    return json_is_null(inner(value));
}

bool tally_json_is_true(const struct tally_json *value)
{
    return json_is_true(inner(value));
}

const struct tally_json *tally_json_get(const struct tally_json *object, const char *key)
{
    return outer(json_object_get(inner(object), key));
}

const char *tally_json_key(const struct tally_json *object, size_t index)
{
    json_t *iterable = inner(object);
    void *at = json_object_iter(iterable);
    for (size_t i = 0; at != NULL && i < index; i++) {
        at = json_object_iter_next(iterable, at);
    }
    return at != NULL ? json_object_iter_key(at) : NULL;
}

size_t tally_json_size(const struct tally_json *array)
{
    return json_array_size(inner(array));
}

const struct tally_json *tally_json_at(const struct tally_json *array, size_t index)
{
    return outer(json_array_get(inner(array), index));
}

const char *tally_json_as_text(const struct tally_json *value)
{
    return json_string_value(inner(value));
}

const char *tally_json_get_text(const struct tally_json *object, const char *key)
{
    return json_string_value(json_object_get(inner(object), key));
}

int64_t tally_json_get_integer(const struct tally_json *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(inner(object), key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

double tally_json_get_real(const struct tally_json *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(inner(object), key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

/* ---- Writing. jansson's own writer has a fixed number of digits: too many for 0.1, or too few to
 * read the same double back. ---- */

struct writer {
    struct tally_buffer *out;
    int indent;
};

/* 17 digits are enough for every double; most need fewer. The mark (point or exponent) keeps a real
 * a real when it is read back. */
static enum tally_status write_real(double value, struct tally_buffer *out)
{
    char digits[40];
    int n = 0;
    for (int precision = 15; precision <= 17; precision++) {
        n = snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    if (strpbrk(digits, ".e") == NULL) {
        memcpy(digits + n, ".0", sizeof ".0");
    }
    return tally_buffer_append_text(out, digits);
}

static enum tally_status write_escaped(struct writer *writer, uint32_t point)
{
    switch (point) {
    case '"':
        return tally_buffer_append_text(writer->out, "\\\"");
    case '\\':
        return tally_buffer_append_text(writer->out, "\\\\");
    case '\n':
        return tally_buffer_append_text(writer->out, "\\n");
    case '\r':
        return tally_buffer_append_text(writer->out, "\\r");
    case '\t':
        return tally_buffer_append_text(writer->out, "\\t");
    default:
        return tally_buffer_printf(writer->out, "\\u%04x", (unsigned)point);
    }
}

/* JSON is printed on terminals too, so control characters are escaped. */
static enum tally_status write_text(struct writer *writer, const char *text)
{
    enum tally_status status = tally_buffer_append(writer->out, "\"", 1);
    const char *start = text;
    uint32_t point;
    for (size_t n; status == TALLY_OK && (n = tally_utf8_next(text, &point)) > 0; text += n) {
        if (point == '"' || point == '\\' || tally_utf8_is_control(point)) {
            status = tally_buffer_append(writer->out, start, (size_t)(text - start));
            status = status == TALLY_OK ? write_escaped(writer, point) : status;
            start = text + n;
        }
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(writer->out, start, (size_t)(text - start));
    }
    return status == TALLY_OK ? tally_buffer_append(writer->out, "\"", 1) : status;
}

/* Between two members, and before the closing bracket. */
static enum tally_status write_line_break(struct writer *writer, int depth)
{
    if (writer->indent == 0) {
        return TALLY_OK;
    }
    size_t spaces = (size_t)writer->indent * (size_t)depth;
    enum tally_status status = tally_buffer_reserve(writer->out, spaces + 1);
    if (status == TALLY_OK) {
        uint8_t *at = writer->out->data + writer->out->size;
        at[0] = '\n';
        memset(at + 1, ' ', spaces);
        writer->out->size += spaces + 1;
    }
    return status;
}

static enum tally_status write_separator(struct writer *writer, bool first, int depth)
{
    const char *comma = first ? "" : writer->indent == 0 ? ", " : ",";
    enum tally_status status = tally_buffer_append_text(writer->out, comma);
    return status == TALLY_OK ? write_line_break(writer, depth) : status;
}

/* NOLINTBEGIN(misc-no-recursion): as deep as the value, which the parser limits to 2,048. */
static enum tally_status write_value(struct writer *writer, json_t *value, int depth);

static enum tally_status write_object(struct writer *writer, json_t *object, int depth)
{
    enum tally_status status = tally_buffer_append(writer->out, "{", 1);
    bool first = true;
    for (void *at = json_object_iter(object); status == TALLY_OK && at != NULL;
         at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        status = write_separator(writer, first, depth + 1);
        if (status == TALLY_OK) {
            status = write_text(writer, key);
        }
        if (status == TALLY_OK) {
            status = tally_buffer_append(writer->out, ": ", 2);
        }
        if (status == TALLY_OK) {
            status = write_value(writer, json_object_iter_value(at), depth + 1);
        }
        first = false;
    }
    if (status == TALLY_OK && !first) {
        status = write_line_break(writer, depth);
    }
    return status == TALLY_OK ? tally_buffer_append(writer->out, "}", 1) : status;
}

static enum tally_status write_array(struct writer *writer, const json_t *array, int depth)
{
    enum tally_status status = tally_buffer_append(writer->out, "[", 1);
    size_t n = json_array_size(array);
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = write_separator(writer, i == 0, depth + 1);
        if (status == TALLY_OK) {
            status = write_value(writer, json_array_get(array, i), depth + 1);
        }
    }
    if (status == TALLY_OK && n > 0) {
        status = write_line_break(writer, depth);
    }
    return status == TALLY_OK ? tally_buffer_append(writer->out, "]", 1) : status;
}

static enum tally_status write_value(struct writer *writer, json_t *value, int depth)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return write_object(writer, value, depth);
    case JSON_ARRAY:
        return write_array(writer, value, depth);
    case JSON_STRING:
        return write_text(writer, json_string_value(value));
    case JSON_INTEGER:
        return tally_buffer_printf(writer->out, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return write_real(json_real_value(value), writer->out);
    case JSON_TRUE:
        return tally_buffer_append_text(writer->out, "true");
    case JSON_FALSE:
        return tally_buffer_append_text(writer->out, "false");
    case JSON_NULL:
        return tally_buffer_append_text(writer->out, "null");
    }
    assert(false && "a JSON type that jansson does not have");
    return TALLY_INTERNAL;
}
/* NOLINTEND(misc-no-recursion) */

enum tally_status tally_json_dump_real(double value, struct tally_buffer *out)
{
    return isfinite(value) ? write_real(value, out) : tally_buffer_append_text(out, "null");
}

enum tally_status tally_json_dump(const struct tally_json *value, int indent,
                                  struct tally_buffer *out)
{
    struct writer writer = {.out = out, .indent = indent};
    return write_value(&writer, inner(value), 0);
}

bool tally_json_is_same(const struct tally_json *a, const struct tally_json *b)
{
    struct tally_buffer texts[2] = {{0}, {0}};
    const bool same = a != NULL && b != NULL && tally_json_dump(a, 0, &texts[0]) == TALLY_OK &&
                      tally_json_dump(b, 0, &texts[1]) == TALLY_OK &&
                      texts[0].size == texts[1].size &&
                      memcmp(texts[0].data, texts[1].data, texts[0].size) == 0;
    tally_buffer_fini(&texts[0]);
    tally_buffer_fini(&texts[1]);
    return same;
}

/* ---- The size of a JSON text, measured without parsing it into values. */

/* Returns the end of the text whose opening quote precedes text[at]. */
static size_t skip_text(const char *text, size_t n, size_t at)
{
    while (at < n && text[at] != '"') {
        at += text[at] == '\\' ? 2 : 1;
    }
    return at;
}

enum tally_status tally_json_check_limits(const char *text, size_t n,
                                          const struct tally_json_limits *limits,
                                          struct tally_error *err)
{
    size_t n_values = 0, depth = 0;
    if (n > limits->bytes) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "the document has %zu bytes, the limit is %zu", n, limits->bytes);
    }
    for (size_t at = 0; at < n; at++) {
        switch (text[at]) {
        case '"':
            at = skip_text(text, n, at + 1);
            break;
        case '{':
        case '[': /* the bracket begins the first value; commas begin the others */
            depth++;
            n_values++;
            break;
        case '}':
        case ']':
            depth -= depth > 0;
            break;
        case ',':
            n_values++;
            break;
        default:
            break;
        }
        if (n_values > limits->values) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "the document has more than %zu members and elements, the limit",
                              limits->values);
        }
        if (depth > limits->depth) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "the document nests more than %zu objects and arrays, the limit",
                              limits->depth);
        }
    }
    return TALLY_OK;
}

/* ---- A member deep inside an object. */

enum { MAX_KEY = 128 };

/* The object in member `key` of `parent`, created if absent. NULL = the member is something else,
 * or memory ran out. */
static json_t *enter(json_t *parent, const char *key)
{
    json_t *value = json_object_get(parent, key);
    if (value == NULL && json_object_set_new(parent, key, json_object()) == 0) {
        value = json_object_get(parent, key);
    }
    return json_is_object(value) ? value : NULL;
}

enum tally_status tally_json_set_path(struct tally_json *object, const char *path,
                                      struct tally_json *value, struct tally_error *err)
{
    json_t *at = (json_t *)object;
    const char *rest = path;
    char key[MAX_KEY];
    for (;;) {
        const size_t n = strcspn(rest, ".");
        if (n == 0 || n >= sizeof key) {
            tally_json_free(value);
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "\"%.100s\" is not a path of a member", path);
        }
        memcpy(key, rest, n);
        key[n] = '\0';
        if (rest[n] == '\0') {
            break;
        }
        rest += n + 1;
        at = enter(at, key);
        if (at == NULL) {
            tally_json_free(value);
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.100s: %s is not an object",
                              path, key);
        }
    }
    return json_object_set_new(at, key, (json_t *)value) == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %.100s", path);
}

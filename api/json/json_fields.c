/* json_fields: JSON objects to plain structs and back, driven by a table of struct tally_field. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "api/json/json.h"

static const json_t *inner(const struct tally_json *value)
{
    return (const json_t *)value;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "text";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "nothing";
}

static enum tally_status wrong_type(const struct tally_field *field, const json_t *value,
                                    const char *expected, struct tally_error *err)
{
    return tally_fail(err, TALLY_INVALID_ARGUMENT, field->name, "%s must be %s, not %s",
                      field->name, expected, type_name(value));
}

/* Nearest int64_t to a limit of the table, which may be infinite. */
static int64_t integer_limit(double limit)
{
    const double two_63 = 9223372036854775808.0; /* the first double past INT64_MAX */
    if (limit >= two_63) {
        return INT64_MAX;
    }
    return limit <= -two_63 ? INT64_MIN : (int64_t)limit;
}

/* Reads 1e3 and 100.0 as integers, too: programs write them so. Above 2^53 a double may be another
 * integer than the one that was written. */
static bool get_integer(const json_t *value, int64_t *ret_number)
{
    const double most = 9007199254740992.0;
    const double real = json_is_real(value) ? json_real_value(value) : 0.5;
    if (json_is_integer(value)) {
        *ret_number = json_integer_value(value);
        return true;
    }
    if (real != floor(real) || fabs(real) > most) {
        return false;
    }
    *ret_number = (int64_t)real;
    return true;
}

/* C0 controls and DEL, and the C1 controls U+0080 to U+009F (C2 80 to C2 9F). jansson has already
 * refused invalid UTF-8 and NUL. */
static bool has_control_character(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    for (; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] < 0xA0)) {
            return true;
        }
    }
    return false;
}

/* The texts of an array, behind the number of them. */
static enum tally_status read_names(const struct tally_field *field, const json_t *value,
                                    int64_t *ret_n, struct tally_error *err)
{
    char *names = (char *)(ret_n + 1), *end = names;
    const size_t n = json_array_size(value);
    if (n == 0 || (double)n > field->max) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, field->name, "%s has %zu names, not 1 to %.0f",
                          field->name, n, field->max);
    }
    memset(names, 0, field->names_capacity);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(value, i));
        const size_t n_bytes = text != NULL ? strlen(text) + 1 : 0;
        if (n_bytes <= 1) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, field->name,
                              "name %zu of %s must be a text that is not empty", i + 1,
                              field->name);
        }
        if (has_control_character(text)) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, field->name,
                              "name %zu of %s contains a control character", i + 1, field->name);
        }
        if (n_bytes >= field->names_capacity - (size_t)(end - names)) {
            return tally_fail(err, TALLY_OUT_OF_RANGE, field->name,
                              "the names of %s take more than %zu bytes, one between two included",
                              field->name, field->names_capacity - 2);
        }
        for (const char *at = names; at < end; at += strlen(at) + 1) {
            if (strcmp(at, text) == 0) {
                return tally_fail(err, TALLY_INVALID_ARGUMENT, field->name,
                                  "%s has \"%.60s\" twice", field->name, text);
            }
        }
        memcpy(end, text, n_bytes);
        end += n_bytes;
    }
    *ret_n = (int64_t)n;
    return TALLY_OK;
}

static enum tally_status read_integer(const struct tally_field *field, const json_t *value,
                                      int64_t *ret_value, struct tally_error *err)
{
    int64_t number;
    if (field->names_capacity > 0 && json_is_array(value)) {
        return read_names(field, value, ret_value, err);
    }
    if (!get_integer(value, &number)) {
        return json_is_real(value)
                   ? tally_fail(err, TALLY_INVALID_ARGUMENT, field->name,
                                "%s must be an integer, not %.17g", field->name,
                                json_real_value(value))
                   : wrong_type(field, value,
                                field->names_capacity > 0 ? "an integer or an array of texts"
                                                          : "an integer",
                                err);
    }
    int64_t min = integer_limit(field->min);
    int64_t max = integer_limit(field->max);
    if (number < min || number > max || (field->min_exclusive && number == min)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, field->name, "%s %lld outside %c%lld, %lld]",
                          field->name, (long long)number, field->min_exclusive ? '(' : '[',
                          (long long)min, (long long)max);
    }
    *ret_value = number;
    if (field->names_capacity > 0) {
        *(char *)(ret_value + 1) = '\0';
    }
    return TALLY_OK;
}

static enum tally_status read_real(const struct tally_field *field, const json_t *value,
                                   double *ret_value, struct tally_error *err)
{
    if (field->auto_allowed && json_is_string(value) &&
        strcmp(json_string_value(value), "auto") == 0) {
        *ret_value = NAN;
        return TALLY_OK;
    }
    if (!json_is_number(value)) {
        return wrong_type(field, value, field->auto_allowed ? "a number or \"auto\"" : "a number",
                          err);
    }
    double number = json_number_value(value);
    bool inside = number >= field->min && number <= field->max;
    if (!inside || (field->min_exclusive && number <= field->min)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, field->name, "%s %.17g outside %c%g, %g%c",
                          field->name, number,
                          field->min_exclusive || isinf(field->min) ? '(' : '[', field->min,
                          field->max, isinf(field->max) ? ')' : ']');
    }
    *ret_value = number;
    return TALLY_OK;
}

static enum tally_status read_text(const struct tally_field *field, const json_t *value,
                                   char *ret_text, struct tally_error *err)
{
    if (!json_is_string(value)) {
        return wrong_type(field, value, "text", err);
    }
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    if (n >= field->capacity) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, field->name, "%s of %zu bytes, at most %zu",
                          field->name, n, field->capacity - 1);
    }
    if (has_control_character(text)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field->name,
                          "%s contains a control character", field->name);
    }
    memcpy(ret_text, text, n + 1);
    return TALLY_OK;
}

static enum tally_status read_choice(const struct tally_field *field, const json_t *value,
                                     int *ret_index, struct tally_error *err)
{
    if (!json_is_string(value)) {
        return wrong_type(field, value, "text", err);
    }
    const char *text = json_string_value(value);
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; field->choices[i] != NULL; i++) {
        if (strcmp(field->choices[i], text) == 0) {
            *ret_index = i;
            return TALLY_OK;
        }
        if (used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "",
                                     field->choices[i]);
        }
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, field->name, "%s \"%.60s\" is not one of %s",
                      field->name, text, list);
}

static enum tally_status read_value(const struct tally_field *field, const json_t *value,
                                    void *ret_member, struct tally_error *err)
{
    switch (field->kind) {
    case TALLY_FIELD_BOOL:
        if (!json_is_boolean(value)) {
            return wrong_type(field, value, "true or false", err);
        }
        *(bool *)ret_member = json_is_true(value);
        return TALLY_OK;
    case TALLY_FIELD_INTEGER:
        return read_integer(field, value, ret_member, err);
    case TALLY_FIELD_REAL:
        return read_real(field, value, ret_member, err);
    case TALLY_FIELD_TEXT:
        return read_text(field, value, ret_member, err);
    case TALLY_FIELD_CHOICE:
        return read_choice(field, value, ret_member, err);
    }
    assert(false && "a field kind that field.h does not have");
    return TALLY_INTERNAL;
}

static bool is_known(const char *key, const struct tally_field *fields, size_t n_fields,
                     const char *const *others)
{
    for (size_t i = 0; i < n_fields; i++) {
        if (strcmp(fields[i].name, key) == 0) {
            return true;
        }
    }
    for (size_t i = 0; others != NULL && others[i] != NULL; i++) {
        if (strcmp(others[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static enum tally_status refuse_unknown_keys(const json_t *object, const struct tally_field *fields,
                                             size_t n_fields, const char *const *others,
                                             struct tally_error *err)
{
    json_t *iterable = (json_t *)object; /* jansson's iterators want it writable */
    for (void *at = json_object_iter(iterable); at != NULL;
         at = json_object_iter_next(iterable, at)) {
        const char *key = json_object_iter_key(at);
        if (!is_known(key, fields, n_fields, others)) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, key, "unknown key \"%.80s\"", key);
        }
    }
    return TALLY_OK;
}

enum tally_status tally_json_read_field(const struct tally_json *object,
                                        const struct tally_field *field, void *ret_struct,
                                        struct tally_error *err)
{
    const json_t *value = json_object_get(inner(object), field->name);
    if (value != NULL) {
        return read_value(field, value, (char *)ret_struct + field->offset, err);
    }
    return field->required
               ? tally_fail(err, TALLY_INVALID_ARGUMENT, field->name, "%s is missing", field->name)
               : TALLY_OK;
}

enum tally_status tally_json_read_fields(const struct tally_json *object,
                                         const struct tally_field *fields, size_t n_fields,
                                         const char *const *others, void *ret_struct,
                                         struct tally_error *err)
{
    if (!json_is_object(inner(object))) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "must be an object, not %s",
                          object != NULL ? type_name(inner(object)) : "nothing");
    }
    enum tally_status status = refuse_unknown_keys(inner(object), fields, n_fields, others, err);
    for (size_t i = 0; status == TALLY_OK && i < n_fields; i++) {
        status = tally_json_read_field(object, &fields[i], ret_struct, err);
    }
    return status;
}

static bool write_real(struct tally_json *object, const struct tally_field *field, double value)
{
    if ((field->omits_zero && value == 0) || (field->omits_nan && isnan(value))) {
        return true;
    }
    return field->auto_allowed && isnan(value) ? tally_json_set_text(object, field->name, "auto")
                                               : tally_json_set_real(object, field->name, value);
}

static bool write_integer(struct tally_json *object, const struct tally_field *field,
                          const int64_t *member)
{
    const char *at = (const char *)(member + 1);
    if (field->names_capacity == 0 || at[0] == '\0') {
        return (field->omits_zero && *member == 0) ||
               tally_json_set_integer(object, field->name, *member);
    }
    struct tally_json *list = tally_json_array();
    bool ok = list != NULL;
    for (; ok && at[0] != '\0'; at += strlen(at) + 1) {
        ok = tally_json_append(list, tally_json_text(at));
    }
    return tally_json_set(object, field->name, tally_json_if_complete(list, ok));
}

static bool write_field(struct tally_json *object, const struct tally_field *field,
                        const void *member)
{
    switch (field->kind) {
    case TALLY_FIELD_BOOL:
        return tally_json_set_bool(object, field->name, *(const bool *)member);
    case TALLY_FIELD_INTEGER:
        return write_integer(object, field, member);
    case TALLY_FIELD_REAL:
        return write_real(object, field, *(const double *)member);
    case TALLY_FIELD_TEXT:
        return tally_json_set_text(object, field->name, member);
    case TALLY_FIELD_CHOICE:
        return tally_json_set_text(object, field->name, field->choices[*(const int *)member]);
    }
    assert(false && "a field kind that field.h does not have");
    return false;
}

/* Whether a member of a kind that may be quiet is false, "" or the first choice. */
static bool is_zero(const struct tally_field *field, const void *member)
{
    return field->kind == TALLY_FIELD_CHOICE ? *(const int *)member == 0
                                             : *(const char *)member == '\0';
}

bool tally_json_write_fields(struct tally_json *object, const struct tally_field *fields,
                             size_t n_fields, const void *from_struct)
{
    bool ok = true;
    for (size_t i = 0; i < n_fields; i++) {
        const char *member = (const char *)from_struct + fields[i].offset;
        if (!fields[i].quiet || !is_zero(&fields[i], member)) {
            ok = write_field(object, &fields[i], member) && ok;
        }
    }
    return ok;
}

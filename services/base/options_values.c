/* The values of options: lookup, conversion, and errors that name the source. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/options_internal.h"

struct tally_option_value *tally_options_value_of(const struct tally_options *options,
                                                  const struct tally_option *option)
{
    for (int i = 0; i < options->n_values; i++) {
        if (options->values[i].option == option) {
            return &options->values[i];
        }
    }
    return NULL;
}

/* The value of an option, which must be in the table. */
static const struct tally_option_value *named_value(const struct tally_options *options,
                                                    const char *name)
{
    const struct tally_option *option = tally_options_find(options->spec, name, strlen(name));
    assert(option != NULL && "the option stands in no table");
    return tally_options_value_of(options, option);
}

/* "--clients", "TALLY_CLIENTS", "tally.conf:3: clients". */
static void describe_source(const struct tally_options *options,
                            const struct tally_option_value *value, char *ret_text, size_t capacity)
{
    const char *name = value->option->name;
    char environment_name[TALLY_OPTION_ENVIRONMENT_CAPACITY];
    switch (value->source) {
    case TALLY_OPTION_CONFIG:
        snprintf(ret_text, capacity, "%s:%d: %s", options->config_path, value->line, name);
        break;
    case TALLY_OPTION_ENVIRONMENT:
        tally_option_environment_name(name, environment_name);
        snprintf(ret_text, capacity, "%s", environment_name);
        break;
    case TALLY_OPTION_NONE:
    case TALLY_OPTION_DEFAULT:
    case TALLY_OPTION_COMMAND_LINE:
        snprintf(ret_text, capacity, "--%s", name);
        break;
    }
}

enum tally_status tally_options_fail(const struct tally_options *options,
                                     const struct tally_option_value *value,
                                     enum tally_status status, struct tally_error *err,
                                     const char *problem)
{
    char source[256];
    describe_source(options, value, source, sizeof source);
    return tally_fail(err, status, value->option->name, "%s: %s", source, problem);
}

static bool parse_bool(const char *text, bool *ret_value)
{
    static const char *const WORDS[][2] = {
        {"false", "true"}, {"no", "yes"}, {"off", "on"}, {"0", "1"}};
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        for (int b = 0; b < 2; b++) {
            if (strcmp(text, WORDS[i][b]) == 0) {
                *ret_value = b == 1;
                return true;
            }
        }
    }
    return false;
}

static bool is_list(const struct tally_option *option)
{
    const size_t n = option->value != NULL ? strlen(option->value) : 0;
    return n >= 3 && strcmp(option->value + n - 3, "...") == 0;
}

static bool append_item(struct tally_option_value *value, const char *text)
{
    const char **items = realloc(value->items, (value->n_items + 2) * sizeof *items);
    if (items == NULL) {
        return false;
    }
    if (value->n_items == 0) {
        items[value->n_items++] = value->text;
    }
    items[value->n_items++] = text;
    value->items = items;
    return true;
}

/* Only the command line can name an option twice. */
static enum tally_status append(struct tally_option_value *value, const char *text,
                                struct tally_error *err)
{
    char *joined;
    if (!append_item(value, text) || asprintf(&joined, "%s:%s", value->text, text) < 0) {
        return tally_fail(err, TALLY_NO_MEMORY, value->option->name, "out of memory");
    }
    free(value->joined);
    value->text = value->joined = joined;
    return TALLY_OK;
}

enum tally_status tally_options_set(struct tally_options *options,
                                    const struct tally_option_value *new_value,
                                    struct tally_error *err)
{
    bool ignored;
    if (new_value->option->value == NULL && !parse_bool(new_value->text, &ignored)) {
        char problem[128];
        snprintf(problem, sizeof problem, "\"%.60s\" is neither true nor false", new_value->text);
        return tally_options_fail(options, new_value, TALLY_INVALID_ARGUMENT, err, problem);
    }
    struct tally_option_value *value = tally_options_value_of(options, new_value->option);
    if (new_value->source == value->source && is_list(value->option)) {
        return append(value, new_value->text, err);
    }
    if (new_value->source >= value->source) {
        *value = *new_value;
    }
    return TALLY_OK;
}

bool tally_options_has(const struct tally_options *options, const char *name)
{
    return named_value(options, name)->text != NULL;
}

bool tally_options_is_given(const struct tally_options *options, const char *name)
{
    return named_value(options, name)->source > TALLY_OPTION_DEFAULT;
}

const char *tally_options_text(const struct tally_options *options, const char *name)
{
    return named_value(options, name)->text;
}

const char *tally_options_item(const struct tally_options *options, const char *name, size_t index)
{
    const struct tally_option_value *value = named_value(options, name);
    if (value->n_items == 0) {
        return index == 0 ? value->text : NULL;
    }
    return index < value->n_items ? value->items[index] : NULL;
}

bool tally_options_bool(const struct tally_options *options, const char *name)
{
    const char *text = named_value(options, name)->text;
    bool value = false;
    return text != NULL && parse_bool(text, &value) && value;
}

enum tally_status tally_options_integer(const struct tally_options *options, const char *name,
                                        int64_t min, int64_t max, int64_t *ret_value,
                                        struct tally_error *err)
{
    const struct tally_option_value *value = named_value(options, name);
    char problem[160];
    if (value->text == NULL) {
        return tally_options_fail(options, value, TALLY_INVALID_ARGUMENT, err, "is required");
    }
    char *end;
    errno = 0;
    long long number = strtoll(value->text, &end, 10);
    if (strspn(value->text, "+-0123456789") != strlen(value->text) || end == value->text ||
        *end != '\0') {
        snprintf(problem, sizeof problem, "\"%.60s\" is not an integer", value->text);
        return tally_options_fail(options, value, TALLY_INVALID_ARGUMENT, err, problem);
    }
    if (errno == ERANGE || number < min || number > max) {
        snprintf(problem, sizeof problem, "%.60s outside [%lld, %lld]", value->text, (long long)min,
                 (long long)max);
        return tally_options_fail(options, value, TALLY_OUT_OF_RANGE, err, problem);
    }
    *ret_value = number;
    return TALLY_OK;
}

enum tally_status tally_options_real(const struct tally_options *options, const char *name,
                                     double min, double max, double *ret_value,
                                     struct tally_error *err)
{
    const struct tally_option_value *value = named_value(options, name);
    char problem[160];
    if (value->text == NULL) {
        return tally_options_fail(options, value, TALLY_INVALID_ARGUMENT, err, "is required");
    }
    char *end;
    const double number = strtod(value->text, &end);
    /* Excludes hexadecimal numbers, "inf" and "nan", which strtod() accepts. */
    if (strspn(value->text, "+-.0123456789eE") != strlen(value->text) || end == value->text ||
        *end != '\0') {
        snprintf(problem, sizeof problem, "\"%.60s\" is not a number", value->text);
        return tally_options_fail(options, value, TALLY_INVALID_ARGUMENT, err, problem);
    }
    if (!(number >= min && number <= max)) {
        snprintf(problem, sizeof problem, "%.60s outside [%g, %g]", value->text, min, max);
        return tally_options_fail(options, value, TALLY_OUT_OF_RANGE, err, problem);
    }
    *ret_value = number;
    return TALLY_OK;
}

enum tally_status tally_options_choice(const struct tally_options *options, const char *name,
                                       const char *const *choices, int *ret_index,
                                       struct tally_error *err)
{
    const struct tally_option_value *value = named_value(options, name);
    if (value->text == NULL) {
        return tally_options_fail(options, value, TALLY_INVALID_ARGUMENT, err, "is required");
    }
    char problem[200];
    int n = snprintf(problem, sizeof problem, "\"%.60s\" is not one of", value->text);
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value->text) == 0) {
            *ret_index = i;
            return TALLY_OK;
        }
        if (n > 0 && (size_t)n < sizeof problem) {
            n += snprintf(problem + n, sizeof problem - (size_t)n, "%s %s", i > 0 ? "," : "",
                          choices[i]);
        }
    }
    return tally_options_fail(options, value, TALLY_INVALID_ARGUMENT, err, problem);
}

enum tally_status tally_options_refuse(const struct tally_options *options, const char *name,
                                       struct tally_error *err, const char *format, ...)
{
    char problem[256];
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return tally_options_fail(options, named_value(options, name), TALLY_INVALID_ARGUMENT, err,
                              problem);
}

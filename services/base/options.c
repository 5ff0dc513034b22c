#include "services/base/options.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/nearest_name.h"
#include "services/base/text.h"
#include "services/base/whole_file.h"

/* Names and rows, the grammar of the config file, the three sources, values and their errors,
 * --help, and what main() calls, in this order. */

/* Ascending strength. */
enum tally_option_source {
    TALLY_OPTION_NONE,
    TALLY_OPTION_DEFAULT,
    TALLY_OPTION_CONFIG,
    TALLY_OPTION_ENVIRONMENT,
    TALLY_OPTION_COMMAND_LINE
};

struct tally_option_value {
    const struct tally_option *option;
    const char *text; /* borrowed; NULL = none */
    enum tally_option_source source;
    int line;           /* of the config file */
    char *joined;       /* heap: `text`, if that is a list from several flags; else NULL */
    const char **items; /* heap: the flags that were joined, in order; else NULL */
    size_t n_items;
};

struct tally_options {
    const struct tally_options_spec *spec;
    struct tally_option_value *values;
    int n_values;
    const char **positionals;
    int n_positionals;
    const char *config_path; /* NULL = no file was read */
    char *config_text;
    enum tally_options_request request;
};

enum { TALLY_OPTION_ENVIRONMENT_CAPACITY = 96 };

/* "round-limit" -> "TALLY_ROUND_LIMIT". */
static void tally_option_environment_name(const char *name,
                                          char ret_text[TALLY_OPTION_ENVIRONMENT_CAPACITY]);
/* Whether the option is the switch --json, which -o json sets too. */
static bool tally_option_is_json(const struct tally_option *option);
/* False for --help, --version and --json. */
static bool tally_option_has_environment(const struct tally_option *option);
/* False for --help, --version and --config. */
static bool tally_option_has_config_key(const struct tally_option *option);

/* Walks the rows of a spec, built-in ones last: `*table` and `*row` start at 0; NULL at the end. */
static const struct tally_option *tally_options_next(const struct tally_options_spec *spec,
                                                     int *table, int *row);

/* Compares the first n characters of `typed` with a name of the table; '-' and '_' are equal. */
static bool tally_option_is_name(const char *name, const char *typed, size_t n);
/* The row whose name is the first n characters of `typed`, or NULL. */
static const struct tally_option *tally_options_find(const struct tally_options_spec *spec,
                                                     const char *typed, size_t n);

static struct tally_option_value *tally_options_value_of(const struct tally_options *options,
                                                         const struct tally_option *option);
/* Stores a value unless a stronger source has set the option. Errors: INVALID_ARGUMENT (a switch
 * that is neither true nor false). */
static enum tally_status tally_options_set(struct tally_options *options,
                                           const struct tally_option_value *value,
                                           struct tally_error *err);
/* "SOURCE: problem". */
static enum tally_status tally_options_fail(const struct tally_options *options,
                                            const struct tally_option_value *value,
                                            enum tally_status status, struct tally_error *err,
                                            const char *problem);

/* Reads the command line, the environment and the config file. Errors as tally_options_new(). */
static enum tally_status tally_options_read_sources(struct tally_options *options, int argc,
                                                    char *const *argv, char *const *environment,
                                                    struct tally_error *err);

/* One `key = value` line of a config file; `key` and `value` point into the file's text. */
struct tally_config_line {
    const char *key, *value;
    int line;
};

/* Reads the next pair from the NUL-terminated text at *cursor, which it changes and advances; *line
 * counts the lines. *ret_found is false at the end. Errors: INVALID_ARGUMENT; the message does not
 * name the line. */
static enum tally_status tally_config_next(char **cursor, int *line,
                                           struct tally_config_line *ret_pair, bool *ret_found,
                                           struct tally_error *err);
/* Reads a file of at most 1 MiB without NUL bytes; the caller frees *ret_text. Errors:
 * INVALID_ARGUMENT, NO_MEMORY. */
static enum tally_status tally_config_load(const char *path, char **ret_text,
                                           struct tally_error *err);

static bool allocate(struct tally_options *options, int argc)
{
    int table = 0, row = 0, n = 0;
    while (tally_options_next(options->spec, &table, &row) != NULL) {
        n++;
    }
    options->values = calloc((size_t)n + 1, sizeof options->values[0]);
    options->positionals = calloc((size_t)argc + 1, sizeof options->positionals[0]);
    if (options->values == NULL || options->positionals == NULL) {
        return false;
    }
    table = row = 0;
    for (options->n_values = 0; options->n_values < n; options->n_values++) {
        const struct tally_option *option = tally_options_next(options->spec, &table, &row);
        options->values[options->n_values] = (struct tally_option_value){
            .option = option,
            .text = option->fallback,
            .source = option->fallback != NULL ? TALLY_OPTION_DEFAULT : TALLY_OPTION_NONE,
        };
    }
    return true;
}

enum tally_status tally_options_new(const struct tally_options_spec *spec, int argc,
                                    char *const *argv, char *const *environment,
                                    struct tally_options **ret_options, struct tally_error *err)
{
    struct tally_options *options = calloc(1, sizeof *options);
    if (options == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    options->spec = spec;
    enum tally_status status = TALLY_OK;
    if (!allocate(options, argc)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    } else {
        status = tally_options_read_sources(options, argc, argv, environment, err);
    }
    if (status != TALLY_OK) {
        tally_options_free(options);
        return status;
    }
    *ret_options = options;
    return TALLY_OK;
}

void tally_options_free(struct tally_options *options)
{
    if (options != NULL) {
        for (int i = 0; i < options->n_values; i++) {
            free(options->values[i].joined);
            free(options->values[i].items);
        }
        free(options->values);
        free(options->positionals);
        free(options->config_text);
        free(options);
    }
}

enum tally_options_request tally_options_request(const struct tally_options *options)
{
    return options->request;
}

const char *tally_options_positional(const struct tally_options *options, int index)
{
    return index >= 0 && index < options->n_positionals ? options->positionals[index] : NULL;
}

/* ---- Names of options, and the rows that describe them. */

const struct tally_option TALLY_BUILTIN_OPTIONS[] = {
    {"config", "FILE", NULL, "read options from FILE, lines `name = value`", "General"},
    {"help", NULL, NULL, "print this and exit", "General"},
    {"version", NULL, NULL, "print the version and exit", "General"},
    {0},
};

static void tally_option_environment_name(const char *name,
                                          char ret_text[TALLY_OPTION_ENVIRONMENT_CAPACITY])
{
    snprintf(ret_text, TALLY_OPTION_ENVIRONMENT_CAPACITY, "TALLY_%s", name);
    for (char *c = ret_text; *c != '\0'; c++) {
        if (*c == '-') {
            *c = '_';
        } else if (*c >= 'a' && *c <= 'z') {
            *c = (char)(*c - 'a' + 'A');
        }
    }
}

static bool tally_option_is_json(const struct tally_option *option)
{
    return option->value == NULL && strcmp(option->name, "json") == 0;
}

/* Not --json: a variable TALLY_JSON that was set for one script would break another. */
static bool tally_option_has_environment(const struct tally_option *option)
{
    return option != &TALLY_BUILTIN_OPTIONS[1] && option != &TALLY_BUILTIN_OPTIONS[2] &&
           !tally_option_is_json(option);
}

static bool tally_option_has_config_key(const struct tally_option *option)
{
    return (tally_option_has_environment(option) || tally_option_is_json(option)) &&
           option != &TALLY_BUILTIN_OPTIONS[0];
}

static const struct tally_option *tally_options_next(const struct tally_options_spec *spec,
                                                     int *table, int *row)
{
    while (*table <= TALLY_OPTIONS_MAX_TABLES) {
        const struct tally_option *rows =
            *table < TALLY_OPTIONS_MAX_TABLES ? spec->tables[*table] : TALLY_BUILTIN_OPTIONS;
        if (rows != NULL && rows[*row].name != NULL) {
            return &rows[(*row)++];
        }
        (*table)++;
        *row = 0;
    }
    return NULL;
}

static bool tally_option_is_name(const char *name, const char *typed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = typed[i] == '_' ? '-' : typed[i];
        if (name[i] == '\0' || c != name[i]) {
            return false;
        }
    }
    return name[n] == '\0';
}

static const struct tally_option *tally_options_find(const struct tally_options_spec *spec,
                                                     const char *typed, size_t n)
{
    int table = 0, row = 0;
    const struct tally_option *option;
    while ((option = tally_options_next(spec, &table, &row)) != NULL) {
        if (tally_option_is_name(option->name, typed, n)) {
            return option;
        }
    }
    return NULL;
}

/* ---- The values of options: lookup, conversion, and errors that name the source. */

static struct tally_option_value *tally_options_value_of(const struct tally_options *options,
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

static enum tally_status tally_options_fail(const struct tally_options *options,
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

static enum tally_status tally_options_set(struct tally_options *options,
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

/* ---- Command line, environment and config file, each into the same table of values. */

static void offer_names(struct tally_nearest_name *nearest, const struct tally_options_spec *spec,
                        bool in_config)
{
    int table = 0, row = 0;
    const struct tally_option *option;
    while ((option = tally_options_next(spec, &table, &row)) != NULL) {
        if (!in_config || tally_option_has_config_key(option)) {
            tally_nearest_name_offer(nearest, option->name);
        }
    }
}

/* `place` is "" or "tally.conf:3: ", `dashes` is "" or "--". */
static enum tally_status fail_unknown(const struct tally_options_spec *spec, const char *place,
                                      const char *dashes, const char *typed,
                                      struct tally_error *err)
{
    struct tally_nearest_name nearest = {.typed = typed};
    offer_names(&nearest, spec, dashes[0] == '\0');
    if (nearest.name == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, typed, "%sunknown option %s%s", place,
                          dashes, typed);
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, typed,
                      "%sunknown option %s%s; did you mean %s%s?", place, dashes, typed, dashes,
                      nearest.name);
}

/* -o json is --json, as in other programs; -o table undoes it. */
static enum tally_status read_output(struct tally_options *options, const char *format,
                                     struct tally_error *err)
{
    const struct tally_option *option = tally_options_find(options->spec, "json", 4);
    const bool is_json = format != NULL && strcmp(format, "json") == 0;
    if (option == NULL || !tally_option_is_json(option)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "unknown option -o");
    }
    if (!is_json && (format == NULL || strcmp(format, "table") != 0)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "json",
                          "-o: \"%.60s\" is not one of json, table", format != NULL ? format : "");
    }
    const struct tally_option_value value = {
        .option = option, .source = TALLY_OPTION_COMMAND_LINE, .text = is_json ? "true" : "false"};
    return tally_options_set(options, &value, err);
}

/* Reads the option argv[*index], and the word after it if that is its value. */
static enum tally_status read_flag(struct tally_options *options, int argc, char *const *argv,
                                   int *index, struct tally_error *err)
{
    const char *word = strcmp(argv[*index], "-h") == 0 ? "--help" : argv[*index];
    if (strcmp(word, "-o") == 0) {
        return read_output(options, *index + 1 < argc ? argv[++*index] : NULL, err);
    }
    if (word[1] != '-') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "unknown option %s", word);
    }
    const char *name = word + 2;
    size_t n = strcspn(name, "=");
    const struct tally_option *option = tally_options_find(options->spec, name, n);
    if (option == NULL) {
        char typed[64];
        snprintf(typed, sizeof typed, "%.*s", (int)(n < sizeof typed ? n : sizeof typed - 1), name);
        return fail_unknown(options->spec, "", "--", typed, err);
    }
    struct tally_option_value value = {.option = option, .source = TALLY_OPTION_COMMAND_LINE};
    if (name[n] == '=') {
        value.text = name + n + 1;
    } else if (option->value == NULL) {
        value.text = "true";
    } else if (*index + 1 < argc && strncmp(argv[*index + 1], "--", 2) != 0) {
        value.text = argv[++*index];
    } else {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, option->name, "--%s needs a value, %s",
                          option->name, option->value);
    }
    return tally_options_set(options, &value, err);
}

static enum tally_options_request request_of(const struct tally_options *options)
{
    if (tally_options_bool(options, "help")) {
        return TALLY_OPTIONS_HELP;
    }
    return tally_options_bool(options, "version") ? TALLY_OPTIONS_VERSION : TALLY_OPTIONS_RUN;
}

static enum tally_status read_command_line(struct tally_options *options, int argc,
                                           char *const *argv, struct tally_error *err)
{
    bool only_positionals = false;
    for (int i = 1; i < argc && options->request == TALLY_OPTIONS_RUN; i++) {
        if (!only_positionals && strcmp(argv[i], "--") == 0) {
            only_positionals = true;
        } else if (only_positionals || argv[i][0] != '-' || argv[i][1] == '\0') {
            options->positionals[options->n_positionals++] = argv[i];
        } else {
            enum tally_status status = read_flag(options, argc, argv, &i, err);
            if (status != TALLY_OK) {
                return status;
            }
            options->request = request_of(options);
        }
    }
    return TALLY_OK;
}

static const char *find_environment(char *const *environment, const char *name)
{
    size_t n = strlen(name);
    for (; environment != NULL && *environment != NULL; environment++) {
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=') {
            return (*environment)[n + 1] != '\0' ? *environment + n + 1 : NULL;
        }
    }
    return NULL;
}

static enum tally_status read_environment(struct tally_options *options, char *const *environment,
                                          struct tally_error *err)
{
    for (int i = 0; i < options->n_values; i++) {
        const struct tally_option *option = options->values[i].option;
        char name[TALLY_OPTION_ENVIRONMENT_CAPACITY];
        tally_option_environment_name(option->name, name);
        const char *text = find_environment(environment, name);
        if (text == NULL || !tally_option_has_environment(option)) {
            continue;
        }
        struct tally_option_value value = {
            .option = option, .text = text, .source = TALLY_OPTION_ENVIRONMENT};
        enum tally_status status = tally_options_set(options, &value, err);
        if (status != TALLY_OK) {
            return status;
        }
    }
    return TALLY_OK;
}

static bool is_other_key(const struct tally_options_spec *spec, const char *key)
{
    for (int t = 0; spec->other_tables != NULL && spec->other_tables[t] != NULL; t++) {
        for (const struct tally_option *row = spec->other_tables[t]; row->name != NULL; row++) {
            if (tally_option_is_name(row->name, key, strlen(key))) {
                return true;
            }
        }
    }
    return false;
}

static enum tally_status set_from_config(struct tally_options *options,
                                         const struct tally_config_line *pair,
                                         struct tally_error *err)
{
    char place[200];
    snprintf(place, sizeof place, "%s:%d: ", options->config_path, pair->line);
    const struct tally_option *option =
        tally_options_find(options->spec, pair->key, strlen(pair->key));
    if (option == NULL && is_other_key(options->spec, pair->key)) {
        return TALLY_OK;
    }
    if (option == NULL) {
        return fail_unknown(options->spec, place, "", pair->key, err);
    }
    struct tally_option_value value = {
        .option = option, .text = pair->value, .source = TALLY_OPTION_CONFIG, .line = pair->line};
    if (!tally_option_has_config_key(option)) {
        return tally_options_fail(options, &value, TALLY_INVALID_ARGUMENT, err,
                                  "is for the command line, not for a config file");
    }
    return tally_options_set(options, &value, err);
}

/* A key that appears twice is an error: its author may see only one of the two lines. */
static enum tally_status check_not_twice(const struct tally_options *options,
                                         const struct tally_config_line *pair, int *lines,
                                         struct tally_error *err)
{
    const struct tally_option *option =
        tally_options_find(options->spec, pair->key, strlen(pair->key));
    if (option == NULL) {
        return TALLY_OK;
    }
    int index = (int)(tally_options_value_of(options, option) - options->values);
    if (lines[index] != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, option->name,
                          "%s:%d: %s is already set in line %d", options->config_path, pair->line,
                          option->name, lines[index]);
    }
    lines[index] = pair->line;
    return TALLY_OK;
}

static enum tally_status read_config(struct tally_options *options, const char *path,
                                     struct tally_error *err)
{
    options->config_path = path;
    enum tally_status status = tally_config_load(path, &options->config_text, err);
    if (status != TALLY_OK) {
        return status;
    }
    assert(options->n_values > 0); /* the built-in options are always there */
    int *lines = calloc((size_t)options->n_values, sizeof lines[0]);
    if (lines == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, "config", "out of memory");
    }
    char *cursor = options->config_text;
    cursor += tally_utf8_mark(cursor, strlen(cursor));
    struct tally_config_line pair = {0};
    int line = 0;
    bool found = true;
    while (status == TALLY_OK && found) {
        status = tally_config_next(&cursor, &line, &pair, &found, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "%.120s:%d", path, line);
        } else if (found) {
            status = check_not_twice(options, &pair, lines, err);
        }
        if (status == TALLY_OK && found) {
            status = set_from_config(options, &pair, err);
        }
    }
    free(lines);
    return status;
}

static enum tally_status check_positionals(const struct tally_options *options,
                                           struct tally_error *err)
{
    const struct tally_options_spec *spec = options->spec;
    if (options->n_positionals < spec->min_positionals) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "too few arguments; usage: %s %s",
                          spec->program, spec->synopsis);
    }
    if (options->n_positionals > spec->max_positionals) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "unexpected argument \"%.60s\"",
                          options->positionals[spec->max_positionals]);
    }
    return TALLY_OK;
}

/* The command line comes first, because it may name the config file or ask for help. */
static enum tally_status tally_options_read_sources(struct tally_options *options, int argc,
                                                    char *const *argv, char *const *environment,
                                                    struct tally_error *err)
{
    enum tally_status status = read_command_line(options, argc, argv, err);
    if (status != TALLY_OK || options->request != TALLY_OPTIONS_RUN) {
        return status;
    }
    status = read_environment(options, environment, err);
    const char *path = tally_options_text(options, "config");
    if (status == TALLY_OK && path != NULL) {
        status = read_config(options, path, err);
    }
    return status == TALLY_OK ? check_positionals(options, err) : status;
}

/* ---- The config file: lines `key = value`, comments, quoted values. */

/* A config file has a few lines; a megabyte is a data set given by mistake. */
enum { MAX_FILE_BYTES = 1 << 20 };

static enum tally_status tally_config_load(const char *path, char **ret_text,
                                           struct tally_error *err)
{
    struct tally_buffer text = {.limit = MAX_FILE_BYTES + 1};
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = tally_file_read(path, &text, &why);
    if (status == TALLY_TOO_LARGE || text.size > MAX_FILE_BYTES) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "config", "%s: longer than %d bytes", path,
                            MAX_FILE_BYTES);
    } else if (text.size > 0 && memchr(text.data, '\0', text.size) != NULL) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "config", "%s: holds a NUL byte", path);
    } else if (status != TALLY_OK || (status = tally_buffer_append(&text, "", 1)) != TALLY_OK) {
        tally_fail(err, status, "config", "%s",
                   why.message[0] != '\0' ? why.message : "no memory for the config file");
    }
    if (status == TALLY_OK) {
        *ret_text = (char *)text.data;
    } else {
        tally_buffer_fini(&text);
    }
    return status;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static char *skip_blanks(char *text)
{
    while (is_blank(*text)) {
        text++;
    }
    return text;
}

static void trim_end(char *text)
{
    size_t n = strlen(text);
    while (n > 0 && is_blank(text[n - 1])) {
        text[--n] = '\0';
    }
}

/* Cuts a comment off the value, or removes its quotes. */
static enum tally_status cut_value(char *value, const char **ret_value, struct tally_error *err)
{
    if (*value == '"') {
        char *end = strchr(value + 1, '"');
        char *rest = end != NULL ? skip_blanks(end + 1) : NULL;
        if (rest == NULL || (*rest != '\0' && *rest != '#')) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "a quoted value must end with \" and nothing after it");
        }
        *end = '\0';
        *ret_value = value + 1;
        return TALLY_OK;
    }
    for (char *c = value; *c != '\0'; c++) {
        if (*c == '#' && (c == value || is_blank(c[-1]))) {
            *c = '\0';
            break;
        }
    }
    trim_end(value);
    *ret_value = value;
    return TALLY_OK;
}

static enum tally_status tally_config_next(char **cursor, int *line,
                                           struct tally_config_line *ret_pair, bool *ret_found,
                                           struct tally_error *err)
{
    *ret_found = false;
    while (**cursor != '\0') {
        char *start = skip_blanks(*cursor);
        size_t n = strcspn(*cursor, "\n");
        *cursor += n + ((*cursor)[n] == '\n');
        (*line)++;
        start[strcspn(start, "\n")] = '\0';
        if (*start == '\0' || *start == '#') {
            continue;
        }
        char *equals = strchr(start, '=');
        if (equals == NULL || equals == start) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "\"%.60s\" is not key = value",
                              start);
        }
        *equals = '\0';
        trim_end(start);
        ret_pair->key = start;
        ret_pair->line = *line;
        enum tally_status status = cut_value(skip_blanks(equals + 1), &ret_pair->value, err);
        *ret_found = status == TALLY_OK;
        return status;
    }
    return TALLY_OK;
}

/* --help: usage line, description, options in groups with default and environment, all within 79
 * columns. */

/* A terminal has 80 columns, and some leave the last one unused. The help of all options begins in
 * the same column; a longer label has its help on the next line. */
enum { LINE_COLUMNS = 79, MAX_LABEL_COLUMNS = 30, LABEL_INDENT = 2, LABEL_CAPACITY = 128 };

static void put_spaces(struct tally_text *writer, int n)
{
    tally_text_printf(writer, "%*s", n, "");
}

/* Writes the words of one paragraph and ends the line. The cursor is in `column`; later lines are
 * indented by `indent`. */
static void put_wrapped(struct tally_text *writer, const char *text, size_t n_text, int column,
                        int indent)
{
    bool at_start = true;
    const char *end = text + n_text;
    while (text < end) {
        size_t n = strcspn(text, " ");
        if (n > (size_t)(end - text)) {
            n = (size_t)(end - text);
        }
        if (!at_start && column + 1 + (int)n > LINE_COLUMNS) {
            tally_text_put(writer, "\n");
            put_spaces(writer, indent);
            column = indent;
        } else if (!at_start) {
            tally_text_put(writer, " ");
            column++;
        }
        tally_text_put_bytes(writer, text, n);
        column += (int)n;
        at_start = false;
        text += n;
        while (text < end && *text == ' ') {
            text++;
        }
    }
    tally_text_put(writer, "\n");
}

static void put_paragraphs(struct tally_text *writer, const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        put_wrapped(writer, text, n, 0, 0);
        text += n + (text[n] == '\n');
    }
}

/* "--clients N"; returns its columns. */
static int label_of(const struct tally_option *option, char ret_label[LABEL_CAPACITY])
{
    snprintf(ret_label, LABEL_CAPACITY, "--%s%s%s", option->name, option->value != NULL ? " " : "",
             option->value != NULL ? option->value : "");
    return (int)strlen(ret_label);
}

static int label_columns(const struct tally_options_spec *spec)
{
    int columns = 0, table = 0, row = 0;
    const struct tally_option *option;
    while ((option = tally_options_next(spec, &table, &row)) != NULL) {
        char label[LABEL_CAPACITY];
        int n = label_of(option, label);
        if (n > columns && n <= MAX_LABEL_COLUMNS) {
            columns = n;
        }
    }
    return columns;
}

/* " (default 8080)". */
static void describe_default(const struct tally_option *option, char *ret_text, size_t capacity)
{
    const bool has_default = option->fallback != NULL && option->fallback[0] != '\0';
    ret_text[0] = '\0';
    if (has_default) {
        snprintf(ret_text, capacity, " (default %s)", option->fallback);
    } else if (tally_option_is_json(option)) {
        snprintf(ret_text, capacity, " (or -o json)");
    }
}

static void put_option(struct tally_text *writer, const struct tally_option *option, int columns)
{
    char label[LABEL_CAPACITY], fallback[256], help[768];
    int n = label_of(option, label);
    int help_column = LABEL_INDENT + columns + 2;
    put_spaces(writer, LABEL_INDENT);
    tally_text_put(writer, label);
    if (n > columns) {
        tally_text_put(writer, "\n");
        put_spaces(writer, help_column);
    } else {
        put_spaces(writer, columns + 2 - n);
    }
    describe_default(option, fallback, sizeof fallback);
    snprintf(help, sizeof help, "%s%s", option->help, fallback);
    put_wrapped(writer, help, strlen(help), help_column, help_column);
}

static const char *group_of(const struct tally_option *option)
{
    return option->group != NULL ? option->group : "Options";
}

/* One sentence for all options, with one of them as the example. */
static void put_environment(struct tally_text *writer, const struct tally_options_spec *spec)
{
    int table = 0, row = 0;
    const struct tally_option *option = tally_options_find(spec, "coordinator", 11);
    while (option == NULL || !tally_option_has_environment(option)) {
        option = tally_options_next(spec, &table, &row);
    }
    char name[TALLY_OPTION_ENVIRONMENT_CAPACITY], text[512];
    tally_option_environment_name(option->name, name);
    snprintf(
        text, sizeof text,
        "Options are also read from the environment, --%s from %s and so on, and from the file "
        "of --config. The command line overrides the environment, which overrides the file.",
        option->name, name);
    tally_text_put(writer, "\n");
    put_wrapped(writer, text, strlen(text), 0, 0);
}

enum tally_status tally_options_help(const struct tally_options_spec *spec,
                                     struct tally_buffer *out)
{
    struct tally_text writer = {out, TALLY_OK};
    tally_text_printf(&writer, "Usage: %s %s\n\n", spec->program, spec->synopsis);
    put_paragraphs(&writer, spec->description);
    int columns = label_columns(spec), table = 0, row = 0;
    const char *group = "";
    const struct tally_option *option;
    while ((option = tally_options_next(spec, &table, &row)) != NULL) {
        if (strcmp(group, group_of(option)) != 0) {
            group = group_of(option);
            tally_text_printf(&writer, "\n%s:\n", group);
        }
        put_option(&writer, option, columns);
    }
    put_environment(&writer, spec);
    if (spec->epilogue != NULL) {
        tally_text_printf(&writer, "\n%s", spec->epilogue);
    }
    return writer.status;
}

/* ---- What main() needs: errors, help and version printed, an exit code. */

enum { EXIT_USAGE = 2 };

int tally_options_usage_error(const struct tally_options_spec *spec, const struct tally_error *err)
{
    fprintf(stderr, "%s: %s\nTry '%s --help'.\n", spec->program, err->message, spec->program);
    return EXIT_USAGE;
}

static int print_help(const struct tally_options_spec *spec)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_options_help(spec, &text);
    bool ok = status == TALLY_OK && fwrite(text.data, 1, text.size, stdout) == text.size &&
              fflush(stdout) == 0;
    tally_buffer_fini(&text);
    return ok ? 0 : 1;
}

static int print_version(const struct tally_options_spec *spec)
{
    size_t n = strcspn(spec->program, " "); /* the program of "tally submit" is "tally" */
    bool ok = printf("%.*s %s\n", (int)n, spec->program, TALLY_VERSION) > 0 && fflush(stdout) == 0;
    return ok ? 0 : 1;
}

bool tally_options_start(const struct tally_options_spec *spec, int argc, char *const *argv,
                         struct tally_options **ret_options, int *ret_exit_code)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_options *options = NULL;
    if (tally_options_new(spec, argc, argv, environ, &options, &err) != TALLY_OK) {
        *ret_exit_code = tally_options_usage_error(spec, &err);
        return false;
    }
    if (options->request == TALLY_OPTIONS_RUN) {
        *ret_options = options;
        return true;
    }
    *ret_exit_code =
        options->request == TALLY_OPTIONS_HELP ? print_help(spec) : print_version(spec);
    tally_options_free(options);
    return false;
}

int tally_options_first_positional(const struct tally_options_spec *spec, int argc,
                                   char *const *argv)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1] != '\0') {
        const char *name = argv[i] + (argv[i][1] == '-' ? 2 : 1);
        if (strcmp(name, "h") == 0 || strcmp(name, "help") == 0 || strcmp(name, "version") == 0) {
            return argc;
        }
        size_t n = strcspn(name, "=");
        const struct tally_option *option = tally_options_find(spec, name, n);
        i += strcmp(argv[i], "-o") == 0                                  ? 2
             : option != NULL && option->value != NULL && name[n] != '=' ? 2
                                                                         : 1;
    }
    return i < argc ? i : argc;
}

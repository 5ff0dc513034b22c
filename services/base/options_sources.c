/* Command line, environment and config file, each into the same table of values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/base/nearest_name.h"
#include "services/base/options_internal.h"

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
enum tally_status tally_options_read_sources(struct tally_options *options, int argc,
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

/* options_internal: what the files options*.c share.
 *
 * options_table.c names and rows; options_config.c grammar of the config file; options_sources.c
 * the three sources; options_values.c values and their errors; options_help.c --help;
 * options_start.c for main(). */
#ifndef TALLY_SERVICES_BASE_OPTIONS_INTERNAL_H
#define TALLY_SERVICES_BASE_OPTIONS_INTERNAL_H

#include "services/base/options.h"

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
void tally_option_environment_name(const char *name,
                                   char ret_text[TALLY_OPTION_ENVIRONMENT_CAPACITY]);
/* Whether the option is the switch --json, which -o json sets too. */
bool tally_option_is_json(const struct tally_option *option);
/* False for --help, --version and --json. */
bool tally_option_has_environment(const struct tally_option *option);
/* False for --help, --version and --config. */
bool tally_option_has_config_key(const struct tally_option *option);

/* Walks the rows of a spec, built-in ones last: `*table` and `*row` start at 0; NULL at the end. */
const struct tally_option *tally_options_next(const struct tally_options_spec *spec, int *table,
                                              int *row);

/* Compares the first n characters of `typed` with a name of the table; '-' and '_' are equal. */
bool tally_option_is_name(const char *name, const char *typed, size_t n);
/* The row whose name is the first n characters of `typed`, or NULL. */
const struct tally_option *tally_options_find(const struct tally_options_spec *spec,
                                              const char *typed, size_t n);

struct tally_option_value *tally_options_value_of(const struct tally_options *options,
                                                  const struct tally_option *option);
/* Stores a value unless a stronger source has set the option. Errors: INVALID_ARGUMENT (a switch
 * that is neither true nor false). */
enum tally_status tally_options_set(struct tally_options *options,
                                    const struct tally_option_value *value,
                                    struct tally_error *err);
/* "SOURCE: problem". */
enum tally_status tally_options_fail(const struct tally_options *options,
                                     const struct tally_option_value *value,
                                     enum tally_status status, struct tally_error *err,
                                     const char *problem);

/* Reads the command line, the environment and the config file. Errors as tally_options_new(). */
enum tally_status tally_options_read_sources(struct tally_options *options, int argc,
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
enum tally_status tally_config_next(char **cursor, int *line, struct tally_config_line *ret_pair,
                                    bool *ret_found, struct tally_error *err);
/* Reads a file of at most 1 MiB without NUL bytes; the caller frees *ret_text. Errors:
 * INVALID_ARGUMENT, NO_MEMORY. */
enum tally_status tally_config_load(const char *path, char **ret_text, struct tally_error *err);

#endif

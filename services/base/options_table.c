/* Names of options, and the rows that describe them. */
#include <stdio.h>
#include <string.h>

#include "services/base/options_internal.h"

const struct tally_option TALLY_BUILTIN_OPTIONS[] = {
    {"config", "FILE", NULL, "read options from FILE, lines `name = value`", "General"},
    {"help", NULL, NULL, "print this and exit", "General"},
    {"version", NULL, NULL, "print the version and exit", "General"},
    {0},
};

void tally_option_environment_name(const char *name,
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

bool tally_option_is_json(const struct tally_option *option)
{
    return option->value == NULL && strcmp(option->name, "json") == 0;
}

/* Not --json: a variable TALLY_JSON that was set for one script would break another. */
bool tally_option_has_environment(const struct tally_option *option)
{
    return option != &TALLY_BUILTIN_OPTIONS[1] && option != &TALLY_BUILTIN_OPTIONS[2] &&
           !tally_option_is_json(option);
}

bool tally_option_has_config_key(const struct tally_option *option)
{
    return (tally_option_has_environment(option) || tally_option_is_json(option)) &&
           option != &TALLY_BUILTIN_OPTIONS[0];
}

const struct tally_option *tally_options_next(const struct tally_options_spec *spec, int *table,
                                              int *row)
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

bool tally_option_is_name(const char *name, const char *typed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = typed[i] == '_' ? '-' : typed[i];
        if (name[i] == '\0' || c != name[i]) {
            return false;
        }
    }
    return name[n] == '\0';
}

const struct tally_option *tally_options_find(const struct tally_options_spec *spec,
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

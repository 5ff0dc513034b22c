/* --help: usage line, description, options in groups with default and environment, all within 79
 * columns. */
#include <stdio.h>
#include <string.h>

#include "services/base/options_internal.h"
#include "services/base/text.h"

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

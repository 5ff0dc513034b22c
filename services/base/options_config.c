/* The config file: lines `key = value`, comments, quoted values. */
#include <string.h>

#include "services/base/options_internal.h"
#include "services/base/whole_file.h"

/* A config file has a few lines; a megabyte is a data set given by mistake. */
enum { MAX_FILE_BYTES = 1 << 20 };

enum tally_status tally_config_load(const char *path, char **ret_text, struct tally_error *err)
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

enum tally_status tally_config_next(char **cursor, int *line, struct tally_config_line *ret_pair,
                                    bool *ret_found, struct tally_error *err)
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

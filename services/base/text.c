#include "services/base/text.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "codec/utf8.h"

void tally_text_put_bytes(struct tally_text *text, const char *bytes, size_t n)
{
    if (text->status == TALLY_OK) {
        text->status = tally_buffer_append(text->out, bytes, n);
    }
}

void tally_text_put(struct tally_text *text, const char *piece)
{
    tally_text_put_bytes(text, piece, strlen(piece));
}

void tally_text_printf(struct tally_text *text, const char *format, ...)
{
    char *piece = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int n = vasprintf(&piece, format, arguments);
    va_end(arguments);
    if (n >= 0) {
        tally_text_put_bytes(text, piece, (size_t)n);
        free(piece);
    } else if (text->status == TALLY_OK) {
        text->status = TALLY_NO_MEMORY;
    }
}

enum { DEFAULT_COLUMNS = 80 };

/* Printable ASCII, one column each, needs no locale. */
static size_t plain_prefix(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] >= ' ' && text[i] <= '~') {
        i++;
    }
    return i;
}

static size_t columns_in_locale(const char *text, size_t n)
{
    size_t columns = 0, at = 0;
    uint32_t point;
    for (size_t size; at < n && (size = tally_utf8_next(text + at, &point)) > 0; at += size) {
        const int width = point != TALLY_UTF8_INVALID ? wcwidth((wchar_t)point) : 1;
        columns += width >= 0 ? (size_t)width : 1;
    }
    return columns;
}

size_t tally_text_columns(const char *text, size_t n)
{
    const size_t plain = plain_prefix(text, n);
    if (plain == n) {
        return n;
    }
    const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    const locale_t before = utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
    const size_t columns = plain + columns_in_locale(text + plain, n - plain);
    if (utf8 != (locale_t)0) {
        uselocale(before);
        freelocale(utf8);
    }
    return columns;
}

int tally_terminal_columns(int fd)
{
    struct winsize size = {0};
    if (isatty(fd) != 1) {
        return 0;
    }
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : DEFAULT_COLUMNS;
}

const char *tally_word_list_next(const char **list, size_t *ret_n)
{
    const char *word = *list;
    if (word == NULL || word[0] == '\0') {
        return NULL;
    }
    *ret_n = strcspn(word, ",");
    *list = word + *ret_n + (word[*ret_n] == ',');
    return word;
}

bool tally_word_list_has(const char *list, const char *word, size_t n)
{
    size_t n_each;
    for (const char *each; (each = tally_word_list_next(&list, &n_each)) != NULL;) {
        if (n_each == n && memcmp(each, word, n) == 0) {
            return true;
        }
    }
    return false;
}

#include "services/base/text_columns.h"

#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "codec/utf8.h"

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

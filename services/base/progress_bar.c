#include "services/base/progress_bar.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/signals.h"
#include "services/base/text.h"
#include "services/base/time.h"

/* On a narrower terminal the text is more useful than the bar. */
enum { MIN_COLUMNS_WITH_BAR = 40, MIN_BAR = 10, MAX_BAR = 30, DEFAULT_COLUMNS = 80 };
/* Ten times a second looks continuous and does not overload a slow terminal. */
enum { PAINT_INTERVAL_MS = 100 };
/* An earlier estimate would be unstable. */
enum { ETA_AFTER_MS = 1000 };

struct line {
    char *bytes;
    size_t size;
    int columns_left;
};

/* Appends one code point of n bytes. */
static bool put(struct line *line, const char *bytes, size_t n)
{
    if (line->columns_left < (int)tally_text_columns(bytes, n) || line->columns_left <= 0 ||
        line->size + n >= TALLY_PROGRESS_LINE_CAPACITY) {
        return false;
    }
    memcpy(line->bytes + line->size, bytes, n);
    line->size += n;
    line->columns_left -= (int)tally_text_columns(bytes, n);
    return true;
}

static void put_text(struct line *line, const char *text)
{
    uint32_t point;
    for (size_t n; (n = tally_utf8_next(text, &point)) > 0; text += n) {
        bool plain = !tally_utf8_is_control(point) && point != TALLY_UTF8_INVALID;
        if (!put(line, plain ? text : "?", plain ? n : 1)) {
            return;
        }
    }
}

/* Appends the fields of a text that fit, with two blanks between them. The first field is cut if it
 * does not fit. */
static void put_fields(struct line *line, const char *text)
{
    bool is_first = true;
    while (*text != '\0') {
        const char *end = strstr(text, "  ");
        const size_t n = end != NULL ? (size_t)(end - text) : strlen(text);
        char field[TALLY_PROGRESS_LINE_CAPACITY];
        snprintf(field, sizeof field, "  %.*s", (int)n, text);
        if (is_first || (int)tally_text_columns(field, strlen(field)) <= line->columns_left) {
            put_text(line, field);
        }
        is_first = false;
        text += n + strspn(text + n, " ");
    }
}

/* Eighths of a column: U+258F (one) to U+2589 (seven), U+2588 (full). */
static void put_blocks(struct line *line, double fraction, int n_columns)
{
    int eighths = (int)(fraction * n_columns * 8);
    for (int i = 0; i < n_columns; i++) {
        int here = eighths - 8 * i;
        if (here <= 0) {
            put(line, " ", 1);
        } else {
            char block[] = "\xE2\x96\x88";
            block[2] = (char)(0x90 - (here > 8 ? 8 : here));
            put(line, block, 3);
        }
    }
}

static void put_bar(struct line *line, double fraction, int n_columns, bool utf8)
{
    put(line, "[", 1);
    if (utf8) {
        put_blocks(line, fraction, n_columns);
    } else {
        for (int i = 0; i < n_columns; i++) {
            put(line, i < (int)(fraction * n_columns) ? "#" : ".", 1);
        }
    }
    put(line, "]", 1);
    put(line, " ", 1);
}

/* "0:12", "1:02:03". */
static void format_duration(int64_t ms, char *ret_text, size_t capacity)
{
    int64_t s = ms / 1000;
    if (s >= 3600) {
        snprintf(ret_text, capacity, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60),
                 (int)(s % 60));
    } else {
        snprintf(ret_text, capacity, "%d:%02d", (int)(s / 60), (int)(s % 60));
    }
}

/* Extrapolates the pace since `start`. Negative = unknown. */
static int64_t time_left_ms(const struct tally_progress_bar *bar, double fraction)
{
    double done = fraction - bar->start;
    if (bar->elapsed_ms < ETA_AFTER_MS || !(done > 0) || fraction >= 1) {
        return -1;
    }
    double left = (double)bar->elapsed_ms * (1 - fraction) / done;
    return left < 1e15 ? (int64_t)left : -1;
}

void tally_progress_bar_format(const struct tally_progress_bar *bar, int columns, bool utf8,
                               char ret_line[TALLY_PROGRESS_LINE_CAPACITY])
{
    double fraction = bar->fraction > 0 ? bar->fraction : 0;
    fraction = fraction < 1 ? fraction : 1;
    struct line line = {ret_line, 0, columns};
    if (columns >= MIN_COLUMNS_WITH_BAR) {
        int n_columns = columns / 4;
        n_columns = n_columns < MIN_BAR ? MIN_BAR : n_columns > MAX_BAR ? MAX_BAR : n_columns;
        put_bar(&line, fraction, n_columns, utf8);
    }
    char duration[32], words[64];
    int64_t left_ms = time_left_ms(bar, fraction);
    format_duration(left_ms >= 0 ? left_ms : bar->elapsed_ms, duration, sizeof duration);
    snprintf(words, sizeof words, "%3d%%  %s%s", (int)(fraction * 100), duration,
             left_ms >= 0 ? " left" : "");
    put_text(&line, words);
    if (bar->text != NULL && bar->text[0] != '\0') {
        put_fields(&line, bar->text);
    }
    line.bytes[line.size] = '\0';
}

/* Chooses the variable like setlocale() for LC_CTYPE, but does not change the process's locale. */
static bool locale_is_utf8(void)
{
    static const char *const VARIABLES[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof VARIABLES / sizeof VARIABLES[0]; i++) {
        const char *value = getenv(VARIABLES[i]);
        if (value != NULL && value[0] != '\0') {
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
        }
    }
    return false;
}

void tally_progress_painter_init(struct tally_progress_painter *painter, int fd)
{
    *painter = (struct tally_progress_painter){
        .fd = fd, .is_terminal = isatty(fd) == 1, .utf8 = locale_is_utf8()};
}

/* One column stays free: writing the last one wraps on some terminals. */
static int columns_of(int fd)
{
    const int columns = tally_terminal_columns(fd);
    return (columns > 0 ? columns : DEFAULT_COLUMNS) - 1;
}

/* Ignores errors: a closed terminal is detected when results are written. */
static void write_terminal(int fd, const char *bytes, size_t n)
{
    ssize_t ignored = write(fd, bytes, n);
    (void)ignored;
}

static const char ERASE_LINE[] = "\r\033[K";

bool tally_progress_paint(struct tally_progress_painter *painter,
                          const struct tally_progress_bar *bar, int64_t now_ms)
{
    if (!painter->is_terminal ||
        (painter->painted && now_ms - painter->last_ms < PAINT_INTERVAL_MS)) {
        return false;
    }
    char line[TALLY_PROGRESS_LINE_CAPACITY];
    tally_progress_bar_format(bar, columns_of(painter->fd), painter->utf8, line);
    char bytes[sizeof ERASE_LINE + sizeof line];
    int n = snprintf(bytes, sizeof bytes, "%s%s", ERASE_LINE, line);
    write_terminal(painter->fd, bytes, (size_t)n);
    painter->painted = true;
    painter->last_ms = now_ms;
    return true;
}

void tally_progress_show(struct tally_progress_painter *painter, int64_t started_ms,
                         double fraction, const char *text)
{
    const int64_t now_ms = tally_monotonic_ms();
    const struct tally_progress_bar bar = {
        .fraction = fraction, .elapsed_ms = now_ms - started_ms, .text = text};
    tally_progress_paint(painter, &bar, now_ms);
}

void tally_progress_clear(struct tally_progress_painter *painter)
{
    if (painter->painted) {
        write_terminal(painter->fd, ERASE_LINE, sizeof ERASE_LINE - 1);
        painter->painted = false;
    }
}

static bool tell(void *context, const char *what, int64_t done, int64_t total)
{
    struct tally_store_bar *progress = context;
    char text[96];
    if (progress->what != what) {
        progress->what = what;
        progress->began_ms = tally_monotonic_ms();
    }
    if (total > 0) {
        snprintf(text, sizeof text, "%s %" PRId64 "/%" PRId64, what, done, total);
    } else {
        snprintf(text, sizeof text, "%s", what);
    }
    tally_progress_show(&progress->painter, progress->began_ms,
                        total > 0 ? (double)done / (double)total : 0, text);
    return *tally_signals_stop() == 0;
}

void tally_store_bar_init(struct tally_store_bar *progress)
{
    *progress = (struct tally_store_bar){.base = {tell, progress}};
    tally_progress_painter_init(&progress->painter, STDERR_FILENO);
}

void tally_store_bar_end(struct tally_store_bar *progress)
{
    tally_progress_clear(&progress->painter);
}

/* progress_bar: one line that shows progress.
 *
 *   [##########..........]  50%  0:12 left  time step 1000/2000
 *
 * Formatting is pure; the painter below writes the line to a terminal. */
#ifndef TALLY_SERVICES_BASE_PROGRESS_BAR_H
#define TALLY_SERVICES_BASE_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/backend.h"

struct tally_progress_bar {
    double fraction;    /* clamped to [0, 1]; NaN is 0 */
    int64_t elapsed_ms; /* since fraction was `start` */
    double start;       /* fraction at elapsed_ms 0; the time left is estimated from there */
    const char *text;   /* trailing; control characters become '?'. Its fields are separated by two
                         * blanks. A field that does not fit is left out; the first is cut */
};

enum { TALLY_PROGRESS_LINE_CAPACITY = 1024 };

/* Writes at most `columns` columns (services/base/text.h), NUL-terminated and without
 * newline. Below 40 columns there is no bar. The line shows the time left after one second and some
 * progress; before that, and at the end, the time elapsed. */
void tally_progress_bar_format(const struct tally_progress_bar *bar, int columns, bool utf8,
                               char ret_line[TALLY_PROGRESS_LINE_CAPACITY]);

struct tally_progress_painter {
    int fd;
    bool is_terminal; /* otherwise nothing is ever painted */
    bool utf8;
    bool painted;    /* a line is shown */
    int64_t last_ms; /* when it was painted */
};

/* Looks at the descriptor and at the locale in the environment (LC_ALL, LC_CTYPE, LANG). */
void tally_progress_painter_init(struct tally_progress_painter *painter, int fd);
/* Paints over the previous line if that is at least 100 ms old. True if it painted. */
bool tally_progress_paint(struct tally_progress_painter *painter,
                          const struct tally_progress_bar *bar, int64_t now_ms);
/* Paints a bar that started at monotonic time started_ms, from 0. */
void tally_progress_show(struct tally_progress_painter *painter, int64_t started_ms,
                         double fraction, const char *text);
/* Clears the line and moves the cursor to its start. Call it before other output and at the end. */
void tally_progress_clear(struct tally_progress_painter *painter);

/* ---- Shows the progress of work on a store, as a line on stderr if that is a terminal; a
 * stop signal ends the work early. */

struct tally_store_bar {
    struct tally_store_progress base; /* for the functions of storage/backends.h */
    struct tally_progress_painter painter;
    const char *what; /* the current stage */
    int64_t began_ms;
};

/* `progress` must not be moved or copied. */
void tally_store_bar_init(struct tally_store_bar *progress);
/* Clears the line. */
void tally_store_bar_end(struct tally_store_bar *progress);

#endif

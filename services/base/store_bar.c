#include "services/base/store_bar.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "services/base/signals.h"
#include "services/base/time.h"

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

#include "services/base/load_watch.h"

#include "services/base/log.h"
#include "services/base/time.h"

enum { FIRST_MS = 2000, EVERY_MS = 5000 };

bool tally_load_watch_tell(void *context, const struct tally_load_progress *progress)
{
    struct tally_load_watch *watch = context;
    const int64_t now_ms = tally_monotonic_ms();
    if (watch->next_ms == 0) {
        watch->next_ms = now_ms + FIRST_MS;
    }
    if (now_ms >= watch->next_ms) {
        watch->next_ms = now_ms + EVERY_MS;
        const double part = progress->total_bytes > 0
                                ? (double)progress->read_bytes / (double)progress->total_bytes
                                : 1;
        tally_log(TALLY_LOG_INFO, tally_log_event("reading data"),
                  tally_log_text("job", watch->job), tally_log_text("file", progress->file),
                  tally_log_integer("percent", (int64_t)(100 * part)),
                  tally_log_unsigned("points", progress->points));
    }
    return watch->stop == NULL || *watch->stop == 0;
}

void tally_load_watch_fault(void *context, const char *fault)
{
    const struct tally_load_watch *watch = context;
    tally_log(TALLY_LOG_WARN, tally_log_event("error in data"), tally_log_text("job", watch->job),
              tally_log_text("error", fault));
}

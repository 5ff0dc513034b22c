#include "services/base/outage.h"

#include <ctype.h>

enum { PAUSE_MS = 5000 };

static const char *skip_digits(const char *text)
{
    while (isdigit((unsigned char)*text)) {
        text++;
    }
    return text;
}

static bool are_alike(const char *left, const char *right)
{
    for (;; left++, right++) {
        left = skip_digits(left);
        right = skip_digits(right);
        if (*left != *right) {
            return false;
        }
        if (*left == '\0') {
            return true;
        }
    }
}

bool tally_outage_is_news(struct tally_outage *outage, const struct tally_error *why,
                          int64_t now_ms)
{
    const bool is_first = outage->last.status == TALLY_OK;
    if (!is_first &&
        (now_ms - outage->told_ms < PAUSE_MS || are_alike(outage->last.message, why->message))) {
        return false;
    }
    outage->last = *why;
    outage->told_ms = now_ms;
    return true;
}

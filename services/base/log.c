#include "services/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/time.h"

static struct tally_log_settings settings_now = {TALLY_LOG_INFO, TALLY_LOG_TEXT, STDERR_FILENO};

/* Per thread: a process may host several workers. */
static _Thread_local const struct tally_log_sink *sink_now;

static const char *const LEVEL_NAMES[] = {"debug", "info", "warn", "error", NULL};
static const char *const FORMAT_NAMES[] = {"text", "json", NULL};

const struct tally_option TALLY_LOG_OPTIONS[] = {
    {"log-level", "LEVEL", "info", "least level that is written: debug, info, warn, error",
     "Logging"},
    {"log-format", "FORMAT", "text", "text (key=value) or json, one line per event", "Logging"},
    {0},
};

static const char TRUNCATED_TEXT[] = " truncated=true";
static const char TRUNCATED_JSON[] = ",\"truncated\":true}";

/* Room that values leave free: U+2026 (3 bytes), a quote, the longer TRUNCATED_, a newline. */
enum { RESERVED_BYTES = 3 + 1 + (int)sizeof TRUNCATED_JSON + 1 };
/* The longest number or escaped code point. */
enum { WORD_CAPACITY = 40 };

struct line {
    char *bytes;
    size_t size;
    enum tally_log_format format;
};

/* Appends all n bytes or nothing; false = nothing. */
static bool put(struct line *line, const char *bytes, size_t n)
{
    if (line->size + n > (size_t)(TALLY_LOG_LINE_CAPACITY - RESERVED_BYTES)) {
        return false;
    }
    memcpy(line->bytes + line->size, bytes, n);
    line->size += n;
    return true;
}

/* As put(), into the reserved room. */
static void put_reserved(struct line *line, const char *text)
{
    size_t n = strlen(text);
    memcpy(line->bytes + line->size, text, n);
    line->size += n;
}

static bool is_escaped(uint32_t point)
{
    return point == '"' || point == '\\' || tally_utf8_is_control(point);
}

/* Writes a code point as it appears inside quotes; both formats escape as JSON does. */
static size_t quote_point(uint32_t point, const char *bytes, size_t n, char ret[WORD_CAPACITY])
{
    static const char SHORT[] = "\"\"\\\\\nn\rr\tt";
    if (!is_escaped(point)) {
        bool invalid = point == TALLY_UTF8_INVALID;
        memcpy(ret, invalid ? "\xEF\xBF\xBD" : bytes, invalid ? 3 : n);
        return invalid ? 3 : n;
    }
    for (size_t i = 0; i + 1 < sizeof SHORT; i += 2) {
        if (point == (uint32_t)SHORT[i]) {
            ret[0] = '\\';
            ret[1] = SHORT[i + 1];
            return 2;
        }
    }
    return (size_t)snprintf(ret, WORD_CAPACITY, "\\u%04" PRIx32, point);
}

/* False if the text had to be cut. */
static bool put_quoted(struct line *line, const char *text)
{
    if (!put(line, "\"", 1)) {
        return false;
    }
    bool whole = true;
    uint32_t point;
    for (size_t n; whole && (n = tally_utf8_next(text, &point)) > 0; text += n) {
        char word[WORD_CAPACITY];
        whole = put(line, word, quote_point(point, text, n, word));
    }
    put_reserved(line, whole ? "\"" : "\xE2\x80\xA6\"");
    return whole;
}

/* Whether a text needs no quotes in the text format: printable ASCII without its special
 * characters. */
static bool is_bare(const char *text)
{
    size_t n = 0;
    for (; text[n] != '\0'; n++) {
        if (text[n] <= ' ' || text[n] > '~' || strchr("\"=\\", text[n]) != NULL) {
            return false;
        }
    }
    return n > 0;
}

static bool put_text_value(struct line *line, const char *text)
{
    if (text == NULL) {
        return put(line, "null", 4);
    }
    if (line->format == TALLY_LOG_TEXT && is_bare(text) && put(line, text, strlen(text))) {
        return true;
    }
    return put_quoted(line, text);
}

/* Shortest of 15 to 17 digits that reads back as the same double. */
static int format_real(double value, bool json, char ret[WORD_CAPACITY])
{
    if (json && !isfinite(value)) {
        return snprintf(ret, WORD_CAPACITY, "null");
    }
    int n = 0;
    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(ret, WORD_CAPACITY, "%.*g", digits, value);
        if (strtod(ret, NULL) == value) {
            break;
        }
    }
    return n;
}

static bool put_value(struct line *line, const struct tally_log_pair *pair)
{
    char word[WORD_CAPACITY];
    int n = 0;
    switch (pair->kind) {
    case TALLY_LOG_KIND_TEXT:
        return put_text_value(line, pair->value.text);
    case TALLY_LOG_KIND_INTEGER:
        n = snprintf(word, sizeof word, "%" PRId64, pair->value.integer);
        break;
    case TALLY_LOG_KIND_UNSIGNED:
        n = snprintf(word, sizeof word, "%" PRIu64, pair->value.natural);
        break;
    case TALLY_LOG_KIND_REAL:
        n = format_real(pair->value.real, line->format == TALLY_LOG_JSON, word);
        break;
    }
    return put(line, word, (size_t)n);
}

/* False if the pair did not fit whole; then a text value is cut, and any other pair left out. */
static bool put_pair(struct line *line, const struct tally_log_pair *pair)
{
    bool json = line->format == TALLY_LOG_JSON;
    size_t before = line->size;
    bool whole = put(line, json ? ",\"" : " ", json ? 2 : 1) &&
                 put(line, pair->key, strlen(pair->key)) &&
                 put(line, json ? "\":" : "=", json ? 2 : 1);
    if (!whole) {
        line->size = before;
        return false;
    }
    size_t at_value = line->size;
    whole = put_value(line, pair);
    if (line->size == at_value) {
        line->size = before;
    }
    return whole;
}

size_t tally_log_render(enum tally_log_format format, int64_t realtime_ms,
                        enum tally_log_level level, const struct tally_log_pair *pairs,
                        size_t n_pairs, char ret_line[TALLY_LOG_LINE_CAPACITY])
{
    struct line line = {ret_line, 0, format};
    bool json = format == TALLY_LOG_JSON;
    char timestamp[TALLY_TIMESTAMP_CAPACITY];
    tally_timestamp_format(realtime_ms, timestamp);
    put(&line, json ? "{\"time\":\"" : "", json ? strlen("{\"time\":\"") : 0);
    put(&line, timestamp, strlen(timestamp));
    put(&line, "\"", json ? 1 : 0);
    const struct tally_log_pair level_pair = tally_log_text("level", LEVEL_NAMES[level]);
    bool whole = put_pair(&line, &level_pair);
    for (size_t i = 0; i < n_pairs && whole; i++) {
        whole = put_pair(&line, &pairs[i]);
    }
    if (whole) {
        put_reserved(&line, json ? "}" : "");
    } else {
        put_reserved(&line, json ? TRUNCATED_JSON : TRUNCATED_TEXT);
    }
    put_reserved(&line, "\n");
    return line.size;
}

bool tally_log_is_on(enum tally_log_level level)
{
    return sink_now != NULL || level >= settings_now.level;
}

void tally_log_write(enum tally_log_level level, const struct tally_log_pair *pairs, size_t n_pairs)
{
    if (sink_now != NULL) {
        sink_now->write(sink_now->context, level, pairs, n_pairs);
        return;
    }
    if (!tally_log_is_on(level)) {
        return;
    }
    int saved_errno = errno;
    char bytes[TALLY_LOG_LINE_CAPACITY];
    size_t n =
        tally_log_render(settings_now.format, tally_realtime_ms(), level, pairs, n_pairs, bytes);
    ssize_t written;
    do {
        written = write(settings_now.fd, bytes, n);
    } while (written < 0 && errno == EINTR);
    errno = saved_errno;
}

void tally_log_divert(const struct tally_log_sink *sink)
{
    sink_now = sink;
}

void tally_log_set(const struct tally_log_settings *settings)
{
    settings_now = *settings;
}

enum tally_status tally_log_configure(const struct tally_options *options, struct tally_error *err)
{
    int level = 0, format = 0;
    tally_options_choice(options, "log-level", LEVEL_NAMES, &level, err);
    tally_options_choice(options, "log-format", FORMAT_NAMES, &format, err);
    if (err->status == TALLY_OK) {
        settings_now.level = (enum tally_log_level)level;
        settings_now.format = (enum tally_log_format)format;
    }
    return err->status;
}

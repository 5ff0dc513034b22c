/* log: one structured line per event on stderr.
 *
 *   2026-11-21T03:40:00.123Z level=info event="job started" job=ab12 round=3
 *   {"time":"2026-11-21T03:40:00.123Z","level":"info","event":"job started","job":"ab12","round":3}
 *
 * Use:
 *   tally_log(TALLY_LOG_INFO, tally_log_event("job started"), tally_log_text("job", id),
 *             tally_log_integer("round", 3));
 *
 * A line is always one line of valid UTF-8, at most TALLY_LOG_LINE_CAPACITY bytes with its newline
 * and written by one write(2), so that lines of several processes on one pipe do not mix. Control
 * characters and line separators are escaped, bytes that are not UTF-8 become U+FFFD. A line that
 * is too long is cut: a cut text ends in U+2026, and truncated=true follows. No memory is
 * allocated. Keys are constants of the program: lower-case letters, digits, '_'. Safe from several
 * threads after the settings are made. */
#ifndef TALLY_SERVICES_BASE_LOG_H
#define TALLY_SERVICES_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/base/options.h"

enum tally_log_level { TALLY_LOG_DEBUG, TALLY_LOG_INFO, TALLY_LOG_WARN, TALLY_LOG_ERROR };
enum tally_log_format { TALLY_LOG_TEXT, TALLY_LOG_JSON };

/* PIPE_BUF of Linux: longer writes to a pipe are not atomic. */
enum { TALLY_LOG_LINE_CAPACITY = 4096 };

enum tally_log_kind {
    TALLY_LOG_KIND_TEXT,
    TALLY_LOG_KIND_INTEGER,
    TALLY_LOG_KIND_UNSIGNED,
    TALLY_LOG_KIND_REAL
};

struct tally_log_pair {
    const char *key;
    enum tally_log_kind kind;
    union {
        const char *text; /* NULL is written as null */
        int64_t integer;
        uint64_t natural;
        double real; /* shortest exact decimal; NaN and infinities are null in JSON */
    } value;
};

static inline struct tally_log_pair tally_log_text(const char *key, const char *value)
{
    return (struct tally_log_pair){key, TALLY_LOG_KIND_TEXT, {.text = value}};
}

static inline struct tally_log_pair tally_log_integer(const char *key, int64_t value)
{
    return (struct tally_log_pair){key, TALLY_LOG_KIND_INTEGER, {.integer = value}};
}

static inline struct tally_log_pair tally_log_unsigned(const char *key, uint64_t value)
{
    return (struct tally_log_pair){key, TALLY_LOG_KIND_UNSIGNED, {.natural = value}};
}

static inline struct tally_log_pair tally_log_real(const char *key, double value)
{
    return (struct tally_log_pair){key, TALLY_LOG_KIND_REAL, {.real = value}};
}

/* What happened, first pair of every line. */
static inline struct tally_log_pair tally_log_event(const char *event)
{
    return tally_log_text("event", event);
}

/* The message of an error. */
static inline struct tally_log_pair tally_log_problem(const struct tally_error *err)
{
    return tally_log_text("error", err->message);
}

#define tally_log(level, ...)                                                                      \
    tally_log_write((level), (const struct tally_log_pair[]){__VA_ARGS__},                         \
                    sizeof((const struct tally_log_pair[]){__VA_ARGS__}) /                         \
                        sizeof(struct tally_log_pair))

/* Writes a line unless its level is below the set one. Keeps errno. A failing write is ignored:
 * there is nowhere to report it. */
void tally_log_write(enum tally_log_level level, const struct tally_log_pair *pairs,
                     size_t n_pairs);
bool tally_log_is_on(enum tally_log_level level);

/* --log-level and --log-format, for an options spec. */
extern const struct tally_option TALLY_LOG_OPTIONS[];
/* Applies these options. Errors: INVALID_ARGUMENT. */
enum tally_status tally_log_configure(const struct tally_options *options, struct tally_error *err);

/* Receives the lines of one thread, of every level, instead of the descriptor. */
struct tally_log_sink {
    void (*write)(void *context, enum tally_log_level level, const struct tally_log_pair *pairs,
                  size_t n_pairs);
    void *context;
};
/* Sends the calling thread's lines to the sink only, which is borrowed; NULL = to the descriptor
 * again. For a library, whose host decides where its log goes. */
void tally_log_divert(const struct tally_log_sink *sink);

struct tally_log_settings {
    enum tally_log_level level; /* lines below it are not written */
    enum tally_log_format format;
    int fd;
};
/* As tally_log_configure(), without options. The initial settings are INFO, TEXT, stderr. */
void tally_log_set(const struct tally_log_settings *settings);

/* Formats the line, with its newline and without NUL, and returns its length. Pure function. */
size_t tally_log_render(enum tally_log_format format, int64_t realtime_ms,
                        enum tally_log_level level, const struct tally_log_pair *pairs,
                        size_t n_pairs, char ret_line[TALLY_LOG_LINE_CAPACITY]);

#endif

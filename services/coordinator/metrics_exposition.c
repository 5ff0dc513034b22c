#include "services/coordinator/metrics_exposition.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"

enum { NUMBER_CAPACITY = 40, MAX_NAME = 120, MAX_HISTOGRAM_LABELS = 3 };

static void put(struct exposition *exposition, const char *bytes, size_t n)
{
    if (exposition->status == TALLY_OK) {
        exposition->status = tally_buffer_append(exposition->out, bytes, n);
    }
}

static void put_text(struct exposition *exposition, const char *text)
{
    put(exposition, text, strlen(text));
}

void exposition_family(struct exposition *exposition, const char *name, enum exposition_type type,
                       const char *help)
{
    static const char *const TYPES[] = {"counter", "gauge", "histogram"};
    const char *const words[] = {"# HELP ", name, " ",         help, "\n# TYPE ",
                                 name,      " ",  TYPES[type], "\n"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        put_text(exposition, words[i]);
    }
}

/* The value of a label between its quotes. */
static void put_label_value(struct exposition *exposition, const char *text)
{
    const char *plain = text; /* start of what can be copied unchanged */
    uint32_t point;
    for (size_t n; (n = tally_utf8_next(text, &point)) > 0; text += n) {
        /* A code point U+FFFD in the text itself is three bytes long and is kept. */
        const char *instead = point == '\\'                           ? "\\\\"
                              : point == '"'                          ? "\\\""
                              : point == '\n'                         ? "\\n"
                              : n == 1 && point == TALLY_UTF8_INVALID ? "\xEF\xBF\xBD"
                                                                      : NULL;
        if (instead != NULL) {
            put(exposition, plain, (size_t)(text - plain));
            put_text(exposition, instead);
            plain = text + n;
        }
    }
    put(exposition, plain, (size_t)(text - plain));
}

static void put_sample(struct exposition *exposition, const char *name, const struct label *labels,
                       const char *number)
{
    put_text(exposition, name);
    const char *before = "{";
    for (; labels != NULL && labels->name != NULL; labels++) {
        put_text(exposition, before);
        put_text(exposition, labels->name);
        put_text(exposition, "=\"");
        put_label_value(exposition, labels->value);
        before = "\",";
    }
    put_text(exposition, *before == '{' ? " " : "\"} ");
    put_text(exposition, number);
    put_text(exposition, "\n");
}

void exposition_unsigned(struct exposition *exposition, const char *name,
                         const struct label *labels, uint64_t value)
{
    char number[NUMBER_CAPACITY];
    snprintf(number, sizeof number, "%" PRIu64, value);
    put_sample(exposition, name, labels, number);
}

static void format_real(double value, char ret_text[NUMBER_CAPACITY])
{
    if (!isfinite(value)) {
        snprintf(ret_text, NUMBER_CAPACITY, "%s",
                 isnan(value) ? "NaN" : (value > 0 ? "+Inf" : "-Inf"));
        return;
    }
    for (int digits = 6; digits <= 17; digits += digits == 6 ? 9 : 1) {
        snprintf(ret_text, NUMBER_CAPACITY, "%.*g", digits, value);
        if (strtod(ret_text, NULL) == value) {
            return;
        }
    }
}

void exposition_real(struct exposition *exposition, const char *name, const struct label *labels,
                     double value)
{
    char number[NUMBER_CAPACITY];
    format_real(value, number);
    put_sample(exposition, name, labels, number);
}

void exposition_one(struct exposition *exposition, const char *name, enum exposition_type type,
                    const char *help, uint64_t value)
{
    exposition_family(exposition, name, type, help);
    exposition_unsigned(exposition, name, NULL, value);
}

void exposition_each(struct exposition *exposition, const char *name, enum exposition_type type,
                     const char *help, const char *label, const char *const *label_values,
                     const uint64_t *values, int n)
{
    exposition_family(exposition, name, type, help);
    for (int i = 0; i < n; i++) {
        exposition_unsigned(exposition, name, EXPOSITION_LABELS({label, label_values[i]}),
                            values[i]);
    }
}

void exposition_histogram(struct exposition *exposition, const char *name,
                          const struct label *labels, const struct histogram *histogram)
{
    char full[MAX_NAME], bound[NUMBER_CAPACITY];
    struct label with_bound[MAX_HISTOGRAM_LABELS + 2] = {0};
    int n = 0;
    for (; labels != NULL && labels[n].name != NULL; n++) {
        assert(n < MAX_HISTOGRAM_LABELS);
        with_bound[n] = labels[n];
    }
    with_bound[n] = (struct label){"le", bound};
    snprintf(full, sizeof full, "%s_bucket", name);
    uint64_t below = 0;
    for (int i = 0; i <= histogram->n_bounds; i++) {
        below += histogram->counts[i];
        format_real(i < histogram->n_bounds ? histogram->bounds[i] : INFINITY, bound);
        exposition_unsigned(exposition, full, with_bound, below);
    }
    snprintf(full, sizeof full, "%s_sum", name);
    exposition_real(exposition, full, labels, histogram->sum);
    snprintf(full, sizeof full, "%s_count", name);
    exposition_unsigned(exposition, full, labels, below);
}

#include "codec/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool terminal;
} JOB_STATUS[] = {
#define TALLY_JOB_STATUS_ROW(symbol, name, terminal) {name, terminal},
    TALLY_JOB_STATUS_TABLE(TALLY_JOB_STATUS_ROW)
#undef TALLY_JOB_STATUS_ROW
};

const char *tally_job_status_name(enum tally_job_status status)
{
    return JOB_STATUS[status].name;
}

bool tally_job_status_is_terminal(enum tally_job_status status)
{
    return JOB_STATUS[status].terminal;
}

bool tally_job_status_of_name(const char *name, enum tally_job_status *ret_status)
{
    for (int i = 0; i < TALLY_N_JOB_STATUS; i++) {
        if (strcmp(JOB_STATUS[i].name, name) == 0) {
            *ret_status = (enum tally_job_status)i;
            return true;
        }
    }
    return false;
}

double tally_progress_loss(const struct tally_progress *progress)
{
    return progress->round > 0 ? progress->loss : (double)NAN;
}

bool tally_metric_is_name(const char *name)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyz";
    const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return name[0] != '\0' && strchr(LETTERS, name[0]) != NULL && name[n] == '\0' &&
           n < TALLY_METRIC_NAME_CAPACITY;
}

/* "-1.2345678901234567e-308" is the longest number. */
enum { SUMMARY_MOST = TALLY_METRIC_NAME_CAPACITY + 3 * (24 + 1) };
_Static_assert(TALLY_JOB_METRICS_MOST *SUMMARY_MOST + 1 <= TALLY_METRICS_CAPACITY &&
                   2 * TALLY_METRICS_MOST <= TALLY_JOB_METRICS_MOST,
               "room for the longest summaries");

void tally_metrics_append(char *text, const struct tally_metric_summary *summary)
{
    snprintf(text + strlen(text), SUMMARY_MOST + 1, "%s %.17g %.17g %.17g;", summary->name,
             summary->mean, summary->min, summary->max);
}

bool tally_metrics_next(const char **at, struct tally_metric_summary *ret_summary)
{
    struct tally_metric_summary summary = {.mean = 0};
    double *const values[] = {&summary.mean, &summary.min, &summary.max};
    const size_t n = strcspn(*at, " ");
    const char *from = *at + n;
    if (n >= sizeof summary.name) {
        return false;
    }
    memcpy(summary.name, *at, n);
    for (size_t i = 0; i < 3; i++) {
        char *end;
        *values[i] = strtod(from, &end);
        if (*from != ' ' || end == from) {
            return false;
        }
        from = end;
    }
    if (*from != ';' || !tally_metric_is_name(summary.name)) {
        return false;
    }
    *at = from + 1;
    *ret_summary = summary;
    return true;
}

static int count_summaries(const char *text)
{
    struct tally_metric_summary summary;
    int n = 0;
    while (tally_metrics_next(&text, &summary)) {
        n++;
    }
    return n;
}

void tally_metrics_update(char last[TALLY_METRICS_CAPACITY], const char *round)
{
    char merged[TALLY_METRICS_CAPACITY] = "";
    const char *old = last;
    struct tally_metric_summary a = {.mean = 0}, b = {.mean = 0};
    int room = TALLY_JOB_METRICS_MOST - count_summaries(last);
    bool has_a = tally_metrics_next(&old, &a), has_b = tally_metrics_next(&round, &b);
    while (has_a || has_b) {
        const int order = !has_b ? -1 : !has_a ? 1 : strcmp(a.name, b.name);
        if (order < 0) {
            tally_metrics_append(merged, &a);
        } else if (order == 0 || room-- > 0) {
            tally_metrics_append(merged, &b);
        }
        has_a = order <= 0 ? tally_metrics_next(&old, &a) : has_a;
        has_b = order >= 0 ? tally_metrics_next(&round, &b) : has_b;
    }
    memcpy(last, merged, sizeof merged);
}

void tally_record_evaluate(struct tally_round_record *record,
                           const struct tally_round_evaluation *evaluation)
{
    tally_metrics_update(record->metrics, evaluation->metrics);
    record->bits.telemetry_bits += evaluation->telemetry_bits;
}

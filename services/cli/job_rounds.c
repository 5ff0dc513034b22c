#include "services/cli/job_rounds.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/record.h"

enum { PAGE_ROUNDS = 1000 };

/* Passes on one page of round records; *after advances, or becomes -1 at the end. */
static enum tally_status read_page(struct tally_cli *cli, tally_record_fn *each, void *context,
                                   int64_t *after, struct tally_error *err)
{
    char rest[64];
    snprintf(rest, sizeof rest, "/rounds?after=%" PRId64 "&limit=%d", *after, PAGE_ROUNDS);
    struct tally_json *page = NULL;
    enum tally_status status = tally_job_get_json(&cli->rest, cli->job, rest, &page, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_json *more = tally_json_get(page, "rounds");
    if (!tally_json_is_array(more)) {
        status = tally_fail(err, TALLY_MALFORMED, NULL, "answer to GET rounds has no rounds");
    }
    for (size_t i = 0; status == TALLY_OK && i < tally_json_size(more); i++) {
        status = each(context, tally_json_at(more, i));
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "%s", tally_status_info(status)->title);
        }
    }
    int64_t next = tally_json_get_integer(page, "next_after", -1);
    if (status == TALLY_OK && next >= 0 && next <= *after) {
        status = tally_fail(err, TALLY_MALFORMED, NULL,
                            "next_after %" PRId64 " is not above %" PRId64, next, *after);
    }
    *after = next;
    tally_json_free(page);
    return status;
}

enum tally_status tally_job_rounds_read(struct tally_cli *cli, int64_t after, tally_record_fn *each,
                                        void *context, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    while (after >= 0 && status == TALLY_OK) {
        status = read_page(cli, each, context, &after, err);
    }
    return status;
}

/* ---- Values. */

static const struct {
    const char *name;
    const char *direction; /* NULL = the member is of the bits themselves */
    const char *key;
} BITS[TALLY_ROUND_N_BITS] = {
    {"bits/uplink_formula", "uplink", "formula"},
    {"bits/uplink_payload", "uplink", "payload"},
    {"bits/downlink_formula", "downlink", "formula"},
    {"bits/downlink_payload", "downlink", "payload"},
    {"bits/control", NULL, "control"},
    {"bits/telemetry", NULL, "telemetry"},
};

struct visit {
    tally_round_value_fn *each;
    void *context;
    enum tally_status status;
};

static void tell(struct visit *visit, const char *name, double value)
{
    if (visit->status == TALLY_OK && isfinite(value)) {
        visit->status = visit->each(visit->context, name, value);
    }
}

static void tell_metrics(struct visit *visit, const struct tally_json *metrics)
{
    static const struct {
        const char *folder, *key;
    } PARTS[] = {{"metrics", "mean"}, {"metrics_min", "min"}, {"metrics_max", "max"}};
    const char *metric;
    for (size_t i = 0; (metric = tally_json_key(metrics, i)) != NULL; i++) {
        if (!tally_metric_is_name(metric)) {
            continue; /* it may become the name of a file */
        }
        const struct tally_json *values = tally_json_get(metrics, metric);
        for (size_t k = 0; k < sizeof PARTS / sizeof *PARTS; k++) {
            char name[TALLY_ROUND_NAME_CAPACITY];
            snprintf(name, sizeof name, "%s/%.32s", PARTS[k].folder, metric);
            tell(visit, name, tally_json_get_real(values, PARTS[k].key, NAN));
        }
    }
}

enum tally_status tally_round_values(const struct tally_json *record, struct tally_round_sums *sums,
                                     tally_round_value_fn *each, void *context)
{
    struct visit visit = {each, context, TALLY_OK};
    const struct tally_json *bits = tally_json_get(record, "bits");
    tell(&visit, "loss", tally_json_get_real(record, "loss", NAN));
    tell(&visit, "cumulative_regret", tally_json_get_real(record, "regret", NAN));
    tell(&visit, "time_step", tally_json_get_real(record, "t", NAN));
    for (size_t i = 0; i < TALLY_ROUND_N_BITS; i++) {
        const struct tally_json *of =
            BITS[i].direction != NULL ? tally_json_get(bits, BITS[i].direction) : bits;
        sums->bits[i] += tally_json_get_integer(of, BITS[i].key, 0);
        tell(&visit, BITS[i].name, (double)sums->bits[i]);
    }
    tell_metrics(&visit, tally_json_get(record, "metrics"));
    return visit.status;
}

/* ---- Runs. */

void tally_run_name(const struct tally_json *detail, char ret_name[TALLY_RUN_NAME_CAPACITY])
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *name = tally_json_get_text(detail, "name");
    const char *id = tally_json_get_text(detail, "id");
    const bool has_name = name != NULL && name[0] != '\0';
    snprintf(ret_name, TALLY_RUN_NAME_CAPACITY, "%.64s%s%.64s", has_name ? name : "",
             has_name ? "-" : "", id != NULL ? id : "job");
    for (char *c = ret_name; *c != '\0'; c++) {
        const bool hides = c == ret_name && *c == '.';
        *c = strchr(PLAIN, *c) != NULL && !hides ? *c : '_';
    }
}

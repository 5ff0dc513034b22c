#include "storage/round_columns.h"

#include <string.h>

#include "storage/store.h"

/* A new member needs a row below and a new TALLY_SCHEMA_VERSION; these lines make forgetting it a
 * build error. */
_Static_assert(sizeof(struct tally_ledger) == 11 * 8, "column for every member of tally_ledger");
_Static_assert(sizeof(struct tally_progress) == 23 * 8 + sizeof(struct tally_ledger) +
                                                    TALLY_STOP_RULE_CAPACITY +
                                                    TALLY_METRICS_CAPACITY + TALLY_SETBACK_CAPACITY,
               "column for every member of tally_progress");
_Static_assert(sizeof(struct tally_curvature) == 2 * 8,
               "column for every member of tally_curvature");
_Static_assert(sizeof(struct tally_round_record) == 11 * 8 + TALLY_MISSING_CAPACITY +
                                                        sizeof(struct tally_ledger) +
                                                        TALLY_METRICS_CAPACITY,
               "column for every member of tally_round_record");
_Static_assert(sizeof(struct tally_store_model) == 6 * 8,
               "column for every member of tally_store_model");

#define JOB(kind_, member)                                                                         \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_##kind_,                                             \
        .offset = offsetof(struct tally_store_job, member)                                         \
    }
#define JOB_FIXED(kind_, member)                                                                   \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_##kind_,                                             \
        .offset = offsetof(struct tally_store_job, member), .fixed = true                          \
    }
#define JOB_TEXT(member, fixed_)                                                                   \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_TEXT,                                                \
        .offset = offsetof(struct tally_store_job, member),                                        \
        .capacity = sizeof((struct tally_store_job *)0)->member, .fixed = (fixed_)                 \
    }
#define PROGRESS(kind_, member)                                                                    \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_##kind_,                                             \
        .offset = offsetof(struct tally_store_job, progress.member)                                \
    }
#define ESTIMATE(member)                                                                           \
    {                                                                                              \
        .name = "estimated_" #member, .kind = TALLY_COLUMN_REAL,                                   \
        .offset = offsetof(struct tally_store_job, progress.estimates.member)                      \
    }
#define CURVATURE(member)                                                                          \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_REAL,                                                \
        .offset = offsetof(struct tally_store_job, curvature.member)                               \
    }
#define PROGRESS_SETBACK                                                                           \
    {                                                                                              \
        .name = "setback", .kind = TALLY_COLUMN_TEXT,                                              \
        .offset = offsetof(struct tally_store_job, progress.setback),                              \
        .capacity = TALLY_SETBACK_CAPACITY                                                         \
    }
/* A member of a struct inside the progress. */
#define PROGRESS_OF(kind_, part, member)                                                           \
    {                                                                                              \
        .name = #part "_" #member, .kind = TALLY_COLUMN_##kind_,                                   \
        .offset = offsetof(struct tally_store_job, progress.part.member)                           \
    }
#define STOPPED_RULE                                                                               \
    {                                                                                              \
        .name = "stopped_rule", .kind = TALLY_COLUMN_TEXT,                                         \
        .offset = offsetof(struct tally_store_job, progress.stopped.rule),                         \
        .capacity = TALLY_STOP_RULE_CAPACITY                                                       \
    }
#define PROGRESS_METRICS                                                                           \
    {                                                                                              \
        .name = "metrics", .kind = TALLY_COLUMN_TEXT,                                              \
        .offset = offsetof(struct tally_store_job, progress.metrics),                              \
        .capacity = TALLY_METRICS_CAPACITY                                                         \
    }
#define ROUND_TEXT(member)                                                                         \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_TEXT,                                                \
        .offset = offsetof(struct tally_round_record, member),                                     \
        .capacity = sizeof((struct tally_round_record *)0)->member                                 \
    }
#define ROUND(kind_, member)                                                                       \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_##kind_,                                             \
        .offset = offsetof(struct tally_round_record, member)                                      \
    }

#define MODEL(kind_, member)                                                                       \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_##kind_,                                             \
        .offset = offsetof(struct tally_store_model, member)                                       \
    }

/* A counter of the struct tally_ledger `ledger` inside `struct type`; LEDGER: all 11 of them. */
#define COUNTER(type, ledger, member, name_)                                                       \
    {                                                                                              \
        .name = (name_), .kind = TALLY_COLUMN_UINT64,                                              \
        .offset = offsetof(struct type, ledger.member)                                             \
    }
#define DIRECTION(type, ledger, direction)                                                         \
    COUNTER(type, ledger, direction.formula_bits, #direction "_formula_bits"),                     \
        COUNTER(type, ledger, direction.payload_bits, #direction "_payload_bits"),                 \
        COUNTER(type, ledger, direction.messages, #direction "_messages"),                         \
        COUNTER(type, ledger, direction.clipped, #direction "_clipped")
#define LEDGER(type, ledger)                                                                       \
    DIRECTION(type, ledger, uplink), DIRECTION(type, ledger, downlink),                            \
        COUNTER(type, ledger, delivered_payload_bits, "delivered_payload_bits"),                   \
        COUNTER(type, ledger, control_bits, "control_bits"),                                       \
        COUNTER(type, ledger, telemetry_bits, "telemetry_bits")

static const struct tally_column JOB_COLUMN[] = {
    JOB_TEXT(id, true),
    JOB_TEXT(name, true),
    JOB_TEXT(algorithm, true),
    JOB(STATUS, status),
    JOB_TEXT(reason, false),
    JOB_FIXED(INT64, created_ms),
    JOB(INT64, started_ms),
    JOB(INT64, finished_ms),
    JOB_FIXED(INT64, clients),
    JOB_FIXED(INT64, dim),
    JOB_FIXED(INT64, horizon),
    PROGRESS(INT64, round),
    PROGRESS(INT64, time_step),
    PROGRESS(INT64, iterate),
    PROGRESS(INT64, stage),
    PROGRESS(REAL, cumulative_regret),
    PROGRESS(REAL, f_star),
    PROGRESS(BOOL, has_f_star),
    PROGRESS(REAL, loss),
    PROGRESS(BOOL, has_loss),
    PROGRESS(UINT64, x_checksum),
    LEDGER(tally_store_job, progress.bits),
    JOB(UINT64, recovery_bits),
    JOB(UINT64, wire_in_bytes),
    JOB(UINT64, wire_out_bytes),
    ESTIMATE(sigma),
    ESTIMATE(gradient_bound),
    ESTIMATE(step_size),
    ESTIMATE(step_size_error),
    ESTIMATE(noise_growth),
    CURVATURE(smoothness),
    CURVATURE(strong_convexity),
    PROGRESS_OF(REAL, best, value),
    PROGRESS_OF(INT64, best, round),
    PROGRESS_OF(INT64, best, iterate),
    PROGRESS_OF(REAL, patience, best),
    PROGRESS_OF(INT64, patience, round),
    PROGRESS_OF(INT64, patience, n_stale),
    STOPPED_RULE,
    PROGRESS_OF(REAL, stopped, value),
    PROGRESS_OF(INT64, stopped, round),
    JOB_TEXT(schedule, false),
    JOB_TEXT(labels, true),
    PROGRESS_SETBACK,
    PROGRESS_METRICS, /* last is a column that moves: an update has its parameter, the largest */
};

static const struct tally_column ROUND_COLUMN[] = {
    ROUND(INT64, round),
    ROUND(INT64, time_step),
    ROUND(INT64, iterate),
    ROUND(INT64, stage),
    ROUND(INT64, samples),
    ROUND(INT64, received),
    ROUND(REAL, norm),
    ROUND(BOOL, passed),
    ROUND(BOOL, cut),
    ROUND(REAL, loss),
    ROUND(REAL, cumulative_regret),
    LEDGER(tally_round_record, bits),
    ROUND(INT64, closed_ms),
    ROUND_TEXT(missing),
    ROUND_TEXT(metrics),
};

static const struct tally_column MODEL_COLUMN[] = {
    MODEL(INT64, slot), MODEL(INT64, round),       MODEL(INT64, iterate),
    MODEL(REAL, value), MODEL(UINT64, x_checksum), MODEL(INT64, n_bytes),
};

const struct tally_columns TALLY_MODEL_COLUMNS = {
    MODEL_COLUMN, (int)(sizeof MODEL_COLUMN / sizeof MODEL_COLUMN[0])};
const struct tally_columns TALLY_JOB_COLUMNS = {JOB_COLUMN,
                                                (int)(sizeof JOB_COLUMN / sizeof JOB_COLUMN[0])};
const struct tally_columns TALLY_ROUND_COLUMNS = {
    ROUND_COLUMN, (int)(sizeof ROUND_COLUMN / sizeof ROUND_COLUMN[0])};

/* What a {...} stands for: which columns, and whether their names, their parameters or both. */
static const struct list_token {
    const char *text;
    bool has_fixed, has_moving;
    bool has_name, has_parameter, has_type;
} LIST_TOKEN[] = {
    {"{names}", true, true, true, false, false},
    {"{values}", true, true, false, true, false},
    {"{sets}", false, true, true, true, false},
    {"{fixed_names}", true, false, true, false, false},
    {"{fixed_values}", true, false, false, true, false},
    {"{moving_names}", false, true, true, false, false},
    {"{moving_values}", false, true, false, true, false},
    {"{definitions}", true, true, true, false, true},
};
enum { N_LIST_TOKENS = sizeof LIST_TOKEN / sizeof LIST_TOKEN[0] };

static enum tally_status append_list(struct tally_buffer *out, const struct tally_columns *columns,
                                     const struct list_token *token,
                                     const struct tally_columns_dialect *dialect)
{
    enum tally_status status = TALLY_OK;
    int n_listed = 0;
    for (int i = 0; i < columns->n_columns && status == TALLY_OK; i++) {
        const struct tally_column *column = &columns->column[i];
        if (column->fixed ? !token->has_fixed : !token->has_moving) {
            continue;
        }
        const int number = dialect->first_parameter + (dialect->has_gaps ? i : n_listed);
        status = tally_buffer_printf(out, "%s%s%s", n_listed > 0 ? ", " : "",
                                     token->has_name ? column->name : "",
                                     token->has_name && token->has_parameter ? " = " : "");
        if (status == TALLY_OK && token->has_parameter) {
            status = dialect->append_parameter(out, number, column->kind);
        }
        if (status == TALLY_OK && token->has_type) {
            status = tally_buffer_printf(out, " %s", dialect->types[column->kind]);
        }
        n_listed++;
    }
    return status;
}

enum tally_status tally_columns_expand(struct tally_buffer *out, const char *sql,
                                       const struct tally_columns *columns,
                                       const struct tally_columns_dialect *dialect)
{
    enum tally_status status = TALLY_OK;
    while (sql[0] != '\0' && status == TALLY_OK) {
        const size_t n = strcspn(sql, "{");
        status = tally_buffer_append(out, sql, n);
        sql += n;
        for (int i = 0; i < N_LIST_TOKENS && status == TALLY_OK; i++) {
            const size_t n_token = strlen(LIST_TOKEN[i].text);
            if (strncmp(sql, LIST_TOKEN[i].text, n_token) == 0) {
                status = append_list(out, columns, &LIST_TOKEN[i], dialect);
                sql += n_token;
            }
        }
    }
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
}

const char *tally_status_filter(int status)
{
    if (status < 0) {
        return NULL;
    }
    return status < TALLY_N_JOB_STATUS ? tally_job_status_name((enum tally_job_status)status) : "";
}

/* The schema version of the last release. */
enum { LAST_RELEASED = 7 };

enum tally_status tally_schema_require(const char *label, int64_t version, struct tally_error *err)
{
    if (version == TALLY_SCHEMA_VERSION) {
        return TALLY_OK;
    }
    if (version > TALLY_SCHEMA_VERSION) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "database \"%s\" has schema version %lld, newer than %d, the newest that "
                          "this program knows: install the release of Tally that made it",
                          label, (long long)version, TALLY_SCHEMA_VERSION);
    }
    if (version > LAST_RELEASED) {
        return tally_fail(
            err, TALLY_FAILED_PRECONDITION, NULL,
            "database \"%s\" has schema version %lld, not %d: it was made between two "
            "releases; finish and export its jobs with the commit that made it, then "
            "begin with a new database",
            label, (long long)version, TALLY_SCHEMA_VERSION);
    }
    return version >= 1
               ? tally_fail(
                     err, TALLY_FAILED_PRECONDITION, NULL,
                     "database \"%s\" has schema version %lld, not %d; the last release that "
                     "reads it is Tally 0.15.0: finish and export its jobs with that release, "
                     "then begin with a new database",
                     label, (long long)version, TALLY_SCHEMA_VERSION)
               : tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "database \"%s\" has schema version %lld, which no release has made",
                            label, (long long)version);
}

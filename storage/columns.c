#include "storage/columns.h"

#include <stdint.h>

#include "storage/store.h"

/* A new member needs a row below and a migration; these lines make forgetting it a build error. */
_Static_assert(sizeof(struct tally_ledger) == 11 * 8, "column for every member of tally_ledger");
_Static_assert(sizeof(struct tally_progress) == 12 * 8 + sizeof(struct tally_ledger),
               "column for every member of tally_progress");
_Static_assert(sizeof(struct tally_curvature) == 2 * 8,
               "column for every member of tally_curvature");
_Static_assert(sizeof(struct tally_round_record) ==
                   10 * 8 + TALLY_MISSING_CAPACITY + sizeof(struct tally_ledger),
               "column for every member of tally_round_record");

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
        .offset = offsetof(struct tally_store_job, progress.estimates.member), .since = 4          \
    }
#define CURVATURE(member)                                                                          \
    {                                                                                              \
        .name = #member, .kind = TALLY_COLUMN_REAL,                                                \
        .offset = offsetof(struct tally_store_job, curvature.member), .since = 4                   \
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

/* The 11 counters of the struct tally_ledger `ledger` inside `struct type`. */
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
    JOB_TEXT(id, true),           JOB_TEXT(name, true),
    JOB_TEXT(algorithm, true),    JOB(STATUS, status),
    JOB_TEXT(reason, false),      JOB_FIXED(INT64, created_ms),
    JOB(INT64, started_ms),       JOB(INT64, finished_ms),
    JOB_FIXED(INT64, clients),    JOB_FIXED(INT64, dim),
    JOB_FIXED(INT64, horizon),    PROGRESS(INT64, round),
    PROGRESS(INT64, time_step),   PROGRESS(INT64, iterate),
    PROGRESS(INT64, stage),       PROGRESS(REAL, cumulative_regret),
    PROGRESS(REAL, f_star),       PROGRESS(BOOL, has_f_star),
    PROGRESS(REAL, loss),         PROGRESS(BOOL, has_loss),
    PROGRESS(UINT64, x_checksum), LEDGER(tally_store_job, progress.bits),
    JOB(UINT64, recovery_bits),   JOB(UINT64, wire_in_bytes),
    JOB(UINT64, wire_out_bytes),  ESTIMATE(sigma),
    ESTIMATE(gradient_bound),     CURVATURE(smoothness),
    CURVATURE(strong_convexity),
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
    ROUND_TEXT(missing),
};

const struct tally_columns TALLY_JOB_COLUMNS = {"jobs", JOB_COLUMN,
                                                (int)(sizeof JOB_COLUMN / sizeof JOB_COLUMN[0])};
const struct tally_columns TALLY_ROUND_COLUMNS = {
    "rounds", ROUND_COLUMN, (int)(sizeof ROUND_COLUMN / sizeof ROUND_COLUMN[0])};

/* What the store must hold after each turn: rows that only grow, records and points as the
 * fault-free run or the replay has them, every acknowledged update, jobs that end. */
#include "tests/simulation/checks/invariants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "services/coordinator/provenance.h"
#include "storage/round_columns.h"
#include "storage/store.h"
#include "tests/simulation/checks/invariants_job.h"
#include "tests/simulation/checks/lease_invariants.h"
#include "tests/simulation/checks/sim_replay.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/programs/sim_training.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"

/* What cannot be read now is checked after the next turn. */
static void note_unreadable(const struct tally_error *why)
{
    sim_note("invariants", "store not readable: %s", why->message);
    seen.is_stale = true;
}

/* Rows and records, column by column. */

static size_t size_of(const struct tally_column *column)
{
    switch (column->kind) {
    case TALLY_COLUMN_BOOL:
        return sizeof(bool);
    case TALLY_COLUMN_STATUS:
        return sizeof(enum tally_job_status);
    case TALLY_COLUMN_TEXT:
        return column->capacity;
    case TALLY_COLUMN_INT64:
    case TALLY_COLUMN_UINT64:
    case TALLY_COLUMN_REAL:
        break;
    }
    return sizeof(int64_t);
}

/* The first column in which two structs differ; NULL = none. Compares reals by their bits. */
static const struct tally_column *find_difference(const struct tally_columns *columns,
                                                  const void *a, const void *b)
{
    for (int i = 0; i < columns->n_columns; i++) {
        const struct tally_column *column = &columns->column[i];
        const char *x = (const char *)a + column->offset, *y = (const char *)b + column->offset;
        const bool same = column->kind == TALLY_COLUMN_TEXT ? strcmp(x, y) == 0
                                                            : memcmp(x, y, size_of(column)) == 0;
        if (!same) {
            return column;
        }
    }
    return NULL;
}

/* The same for a stored record and one of the engine, which has no clock. */
static const struct tally_column *find_result_difference(const struct tally_round_record *stored,
                                                         const struct tally_round_record *expected)
{
    struct tally_round_record timed = *expected;
    timed.closed_ms = stored->closed_ms > 0 ? stored->closed_ms : 1;
    return find_difference(&TALLY_ROUND_COLUMNS, stored, &timed);
}

/* Members of a row that only grow: all counters, and these. */
static bool only_grows(const struct tally_column *column)
{
    static const char *const NAMES[] = {"round", "time_step", "iterate", "started_ms",
                                        "finished_ms"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(column->name, NAMES[i]) == 0) {
            return true;
        }
    }
    return column->kind == TALLY_COLUMN_UINT64 && strcmp(column->name, "x_checksum") != 0;
}

static void check_growth(const struct invariants_job *watch, const struct tally_store_job *row)
{
    for (int i = 0; i < TALLY_JOB_COLUMNS.n_columns; i++) {
        const struct tally_column *column = &TALLY_JOB_COLUMNS.column[i];
        if (!only_grows(column)) {
            continue;
        }
        int64_t before, now;
        memcpy(&before, (const char *)&watch->row + column->offset, sizeof before);
        memcpy(&now, (const char *)row + column->offset, sizeof now);
        if (now < before) {
            sim_violation("%s: %s went back from %" PRId64 " to %" PRId64, watch->job->name,
                          column->name, before, now);
        }
    }
}

/* How many clients "3 17 20-25" names. */
static int64_t count_listed(const char *text)
{
    int64_t n = 0;
    char *at = (char *)text;
    while (*at != '\0') {
        const long first = strtol(at, &at, 10);
        const long last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        n += last - first + 1;
        at += *at == ' ';
    }
    return n;
}

/* A round that closed without some clients lists them, had a quorum, and counts none of them. Only
 * under a budget may a client answer without a message. */
static void check_missing(struct invariants_job *watch, const struct tally_round_record *record)
{
    const struct sim_job *job = watch->job;
    const int64_t n_missing = count_listed(record->missing);
    const int64_t n_drawn = tally_job_spec_cohort(&job->spec);
    const int64_t n_expected = record->cut ? 0 : n_drawn - n_missing;
    const int64_t n_messages = (int64_t)record->bits.uplink.messages;
    const bool may_decline = job->spec.budget.uplink_bits > 0;
    if (record->received != n_expected ||
        (may_decline ? n_messages > n_expected : n_messages != n_expected)) {
        sim_violation("%s: round %" PRId64 " has %" PRId64 " answers and %" PRIu64
                      " messages, and says that \"%s\" are missing",
                      job->name, record->round, record->received, record->bits.uplink.messages,
                      record->missing);
    }
    if (n_missing > 0 &&
        (job->spec.policy == TALLY_POLICY_WAIT || n_drawn - n_missing < job->spec.quorum)) {
        sim_violation("%s: round %" PRId64 " closed without \"%s\", against its policy", job->name,
                      record->round, record->missing);
    }
    for (int64_t m = 0; m < job->spec.clients; m++) {
        if (*invariants_at_update(watch, watch->acknowledged, record->round, m) != 0 &&
            sim_is_listed(record->missing, m)) {
            sim_violation("%s: client %" PRId64 " is missing in round %" PRId64
                          ", which acknowledged its update",
                          job->name, m, record->round);
        }
    }
    if (n_missing > 0 && watch->dropped_in_round == INT64_MAX) {
        sim_note("store", "%s: round %" PRId64 " closed without %s", job->name, record->round,
                 record->missing);
        watch->has_two_histories |= record->round <= watch->lost_rounds;
        watch->dropped_in_round = record->round;
        watch->dropped_at_iterate = record->iterate;
        const int64_t next = record->iterate + 1;
        memset(&watch->checksums[next], 0,
               ((size_t)watch->max_rounds + 2 - (size_t)next) * sizeof(uint64_t));
        uint64_t *rest = invariants_at_update(watch, watch->sent, record->round + 1, 0);
        memset(rest, 0,
               (invariants_n_updates(watch) - (size_t)(rest - watch->sent)) * sizeof(uint64_t));
    }
}

/* Whether the model of the record may lack evaluations, although the job has ended, because its
 * time was up. */
static bool may_lack_evaluations(const struct invariants_job *watch,
                                 const struct tally_round_record *record)
{
    const struct tally_job_spec *spec = &watch->job->spec;
    return spec->stop.seconds > 0 && tally_job_spec_evaluates(spec) &&
           record->round == watch->row.progress.round;
}

/* The difference of such a record from what it should be with as many evaluations as its telemetry
 * shows: none, all of them, or some, which leave the metrics open. */
static const struct tally_column *find_lacking_difference(const struct sim_job *job,
                                                          const struct tally_round_record *record)
{
    const struct tally_round_record *before = &job->records[record->round - 1];
    const uint64_t most = job->spec.evaluation == TALLY_EVALUATION_ONE
                              ? 1
                              : (uint64_t)tally_job_spec_cohort(&job->spec);
    const uint64_t bits = record->bits.telemetry_bits - before->bits.telemetry_bits;
    const uint64_t n = bits / SIM_EVALUATION_BITS;
    struct tally_round_record expected = n == 0 ? *before : job->evaluated[record->round - 1];
    if (n <= most && bits % SIM_EVALUATION_BITS == 0) {
        expected.bits.telemetry_bits = record->bits.telemetry_bits;
    }
    if (n > 0 && n < most) {
        memcpy(expected.metrics, record->metrics, sizeof expected.metrics);
    }
    return find_result_difference(record, &expected);
}

/* Checks a round before any client was dropped. */
static void check_as_expected(const struct invariants_job *watch,
                              const struct tally_round_record *record)
{
    const struct sim_job *job = watch->job;
    if (record->round > job->n_rounds) {
        sim_violation("%s: round %" PRId64 " although the fault-free run has %" PRId64, job->name,
                      record->round, job->n_rounds);
        return;
    }
    const struct tally_column *column =
        find_result_difference(record, &job->records[record->round - 1]);
    if (column != NULL && may_lack_evaluations(watch, record)) {
        column = find_lacking_difference(job, record);
    }
    if (column != NULL && /* perhaps its model has been evaluated since */
        find_result_difference(record, &job->evaluated[record->round - 1]) != NULL) {
        sim_violation("%s: round %" PRId64 ": %s is not that of the fault-free run", job->name,
                      record->round, column->name);
    }
}

/* Sets the value expected from now on; a value that was already seen must equal it. */
static void expect(const struct invariants_job *watch, uint64_t *at, uint64_t expected,
                   const char *what, int64_t number)
{
    if (*at != 0 && *at != expected && !watch->has_two_histories) {
        sim_violation("%s: %s of %" PRId64 " is not that of the replay", watch->job->name, what,
                      number);
    }
    *at = expected;
}

/* Expects the point and the clients' updates that the replay has for the open round. */
static void expect_open_round(struct invariants_job *watch)
{
    int64_t iterate;
    const uint64_t checksum = sim_replay_checksum(watch->replay, &iterate);
    expect(watch, &watch->checksums[iterate], checksum, "the point of iterate", iterate);
    const int64_t round = sim_replay_open_round(watch->replay);
    for (uint32_t m = 0; round > 0 && m < watch->job->spec.clients; m++) {
        if (!sim_replay_draws(watch->replay, m)) {
            continue;
        }
        expect(watch, invariants_at_update(watch, watch->sent, round, m),
               sim_replay_update(watch->replay, m), "an update in round", round);
        if (sim_replay_diverges(watch->replay, m)) {
            *invariants_at_update(watch, watch->failing, round, m) = 1;
            sim_note("replay", "%s: client %u cannot go on in round %" PRId64, watch->job->name, m,
                     round);
        }
    }
}

/* Checks a round in which some client was missing, or one after it. */
static void check_as_replayed(struct invariants_job *watch, const struct tally_round_record *record)
{
    const struct sim_job *job = watch->job;
    if (watch->replay == NULL) {
        watch->replay = sim_replay_new(job);
        for (int64_t i = 0; i < record->round - 1; i++) {
            (void)sim_replay_round(watch->replay, &job->records[i]);
        }
    }
    const struct tally_round_record *expected = sim_replay_round(watch->replay, record);
    if (expected == NULL) {
        sim_violation("%s: round %" PRId64
                      " closed without \"%s\", which the engine alone does not",
                      job->name, record->round, record->missing);
        return;
    }
    const struct tally_column *column = find_result_difference(record, expected);
    if (column != NULL) {
        sim_violation("%s: round %" PRId64 ": %s is not that of the replay", job->name,
                      record->round, column->name);
    }
    expect_open_round(watch);
}

static enum tally_status check_record(void *context, const struct tally_round_record *record,
                                      struct tally_error *err)
{
    (void)err;
    struct invariants_job *watch = context;
    if (record->round != watch->n_records + 1 || record->round >= watch->max_rounds) {
        sim_violation("%s: record of round %" PRId64 " where %" PRId64 " should be",
                      watch->job->name, record->round, watch->n_records + 1);
        return TALLY_OK;
    }
    watch->n_records++;
    watch->moved_us = sim_now_us();
    tally_ledger_add(&watch->sum, &record->bits);
    watch->last_telemetry_bits = record->bits.telemetry_bits;
    watch->payload_bits[record->round] = (int64_t)watch->sum.uplink.payload_bits;
    check_missing(watch, record);
    if (record->round < watch->dropped_in_round) {
        check_as_expected(watch, record);
    } else if (sim_violated() == NULL) {
        check_as_replayed(watch, record);
    }
    return TALLY_OK;
}

/* Checks that the record of one of the last two rounds has the evaluation of its model if the next
 * round has closed, and not before. */
static enum tally_status check_evaluation(void *context, const struct tally_round_record *record,
                                          struct tally_error *err)
{
    (void)err;
    struct invariants_job *watch = context;
    const struct sim_job *job = watch->job;
    const bool is_last = record->round == watch->n_records;
    const bool is_due = !is_last || watch->row.status == TALLY_JOB_COMPLETED;
    if (watch->dropped_in_round != INT64_MAX || record->round > job->n_rounds) {
        return TALLY_OK;
    }
    const struct tally_round_record *all = is_due ? job->evaluated : job->records;
    const struct tally_column *column =
        is_due && may_lack_evaluations(watch, record)
            ? find_lacking_difference(job, record)
            : find_result_difference(record, &all[record->round - 1]);
    if (column != NULL) {
        sim_violation("%s: %s of round %" PRId64 " is not that %s the evaluation of its model",
                      job->name, column->name, record->round, is_due ? "with" : "before");
    }
    if (is_last) { /* the bits of the last evaluation are its */
        watch->sum.telemetry_bits += record->bits.telemetry_bits - watch->last_telemetry_bits;
        watch->last_telemetry_bits = record->bits.telemetry_bits;
    }
    return TALLY_OK;
}

static enum tally_status see_stored(void *context, const struct tally_store_update *stored,
                                    struct tally_error *err)
{
    struct invariants_job *watch = context;
    struct tally_update update;
    if (tally_update_decode(stored->body, stored->n_body, &update, err) != TALLY_OK ||
        stored->client >= (uint32_t)watch->job->spec.clients || update.client != stored->client) {
        sim_violation("%s: a stored update of round %" PRId64 " does not read back",
                      watch->job->name, stored->round);
        return TALLY_OK;
    }
    watch->stored[stored->client] = sim_update_digest(&update);
    return TALLY_OK;
}

/* Updates of closed rounds are in the sums and nowhere else. */
static enum tally_status see_left_over(void *context, const struct tally_store_update *stored,
                                       struct tally_error *err)
{
    (void)err;
    const struct invariants_job *watch = context;
    sim_violation("%s: an update of round %" PRId64 ", which has closed, is still stored",
                  watch->job->name, stored->round);
    return TALLY_OK;
}

struct programs {
    int64_t coordinators, origins;
};

static enum tally_status count_row(void *context, const struct tally_store_update *row,
                                   struct tally_error *err)
{
    (void)err;
    struct programs *n = context;
    ++*(row->client < PROVENANCE_MOST_COORDINATORS ? &n->coordinators : &n->origins);
    return TALLY_OK;
}

/* The program that started a job is stored with its start, and each only once. Besides closed
 * rounds, a rule about time and the end of a last evaluation may each add one. All workers say the
 * same of themselves. */
static void check_provenance(const struct invariants_job *watch, struct tally_store *store)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const int64_t most = 1 + watch->row.progress.round + 2;
    const bool has_started = watch->row.started_ms > 0;
    struct programs n = {0};
    if (store->ops->update_list(store, watch->row.key, TALLY_STORE_PROVENANCE_ROUND, count_row, &n,
                                &err) != TALLY_OK) {
        note_unreadable(&err);
    } else if (n.coordinators < has_started || (!has_started && n.coordinators > 0) ||
               n.coordinators > most) {
        sim_violation("%s: %" PRId64 " programs are recorded, round %" PRId64, watch->job->name,
                      n.coordinators, watch->row.progress.round);
    } else if (n.origins > 1) {
        sim_violation("%s: %" PRId64 " origins are recorded", watch->job->name, n.origins);
    }
}

/* While the survey is open, every acknowledged survey is stored. Once it has closed, the state has
 * the scaling, and none is stored. */
static void check_surveyed(struct invariants_job *watch, struct tally_store *store)
{
    const struct sim_job *job = watch->job;
    struct tally_buffer state = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job *engine = NULL;
    size_t n_scaling = 0;
    enum tally_status status = store->ops->state_get(store, watch->row.key, &state, &err);
    if (status != TALLY_OK) {
        note_unreadable(&err);
        return;
    }
    status = tally_job_restore(&job->spec, watch->row.status, &watch->row.progress, state.data,
                               state.size, &engine, &err);
    tally_buffer_fini(&state);
    if (status != TALLY_OK) {
        sim_violation("%s: the state cannot be restored: %s", job->name, err.message);
        return;
    }
    (void)tally_job_scaling(engine, &n_scaling);
    tally_job_free(engine);
    if (watch->has_scaling && n_scaling == 0) {
        sim_violation("%s: the scaling is lost", job->name);
    }
    watch->has_scaling = n_scaling > 0;
    for (int64_t m = 0; m < job->spec.clients; m++) {
        if (watch->has_scaling && watch->stored[m] == job->surveys[m]) {
            sim_violation("%s: the survey of client %" PRId64 ", which has closed, is still stored",
                          job->name, m);
        } else if (!watch->has_scaling && watch->surveyed[m] != watch->stored[m] &&
                   watch->surveyed[m] != 0) {
            sim_violation("%s: the acknowledged survey of client %" PRId64 " is lost", job->name,
                          m);
        } else if (!watch->has_scaling && watch->stored[m] != 0 &&
                   watch->stored[m] != job->surveys[m]) {
            sim_violation("%s: an update of client %" PRId64 " is stored before the scaling",
                          job->name, m);
        }
    }
}

/* Every acknowledged update of the open round is stored, and none is acknowledged beyond it. */
static void check_acknowledged(struct invariants_job *watch, struct tally_store *store)
{
    const int64_t clients = watch->job->spec.clients, open = watch->row.progress.round + 1;
    memset(watch->stored, 0, (size_t)clients * sizeof *watch->stored);
    struct tally_error err = TALLY_ERROR_INIT;
    if (store->ops->update_list(store, watch->row.key, open, see_stored, watch, &err) != TALLY_OK ||
        store->ops->update_list(store, watch->row.key, open - 1, see_left_over, watch, &err) !=
            TALLY_OK) {
        note_unreadable(&err);
        return;
    }
    if (watch->job->scaling != 0 && open == 1) {
        check_surveyed(watch, store);
    }
    for (int64_t round = open; round <= watch->max_rounds; round++) { /* past it: store went back */
        for (int64_t m = 0; m < clients; m++) {
            const uint64_t digest = *invariants_at_update(watch, watch->acknowledged, round, m);
            if (digest != 0 && (round > open || watch->stored[m] != digest)) {
                sim_violation("%s: the acknowledged update of client %" PRId64 " in round %" PRId64
                              " is lost; round %" PRId64 " is open",
                              watch->job->name, m, round, open);
            }
        }
    }
}

static bool is_open(enum tally_job_status status)
{
    return status == TALLY_JOB_RUNNING || status == TALLY_JOB_PAUSED;
}

static void check_progress(const struct invariants_job *watch)
{
    const struct sim_job *job = watch->job;
    const struct tally_progress *progress = &watch->row.progress;
    if (progress->round != watch->n_records ||
        memcmp(&progress->bits, &watch->sum, sizeof watch->sum) != 0) {
        sim_violation("%s: progress (round %" PRId64 ") is not the sum of %" PRId64 " records",
                      job->name, progress->round, watch->n_records);
    }
    const bool has_no_start =
        job->spec.initial_point.type == TALLY_INITIAL_FIRST && watch->row.started_ms == 0;
    if (!has_no_start && !invariants_is_point(watch, progress->iterate, progress->x_checksum)) {
        sim_violation("%s: x_checksum of iterate %" PRId64 " is not the expected one", job->name,
                      progress->iterate);
    }
}

/* Checks a kept model: its point is the expected one of its iterate. */
static enum tally_status check_model(void *context, const struct tally_store_model *model,
                                     struct tally_error *err)
{
    const struct invariants_job *watch = context;
    const struct tally_best *best = &watch->row.progress.best;
    (void)err;
    if (!invariants_is_point(watch, model->iterate, model->x_checksum)) {
        sim_violation("%s: the kept model of round %" PRId64
                      " is not the point of iterate %" PRId64,
                      watch->job->name, model->round, model->iterate);
    }
    if (model->slot == TALLY_STORE_BEST_MODEL &&
        (model->iterate != best->iterate || model->value != best->value)) {
        sim_violation("%s: the best model is not that of the progress", watch->job->name);
    }
    return TALLY_OK;
}

static enum tally_status count_model(void *context, const struct tally_store_model *model,
                                     struct tally_error *err)
{
    (void)model;
    (void)err;
    ++*(int64_t *)context;
    return TALLY_OK;
}

/* Checks that the models that the rounds so far should have kept are stored. */
static void check_models(struct invariants_job *watch, struct tally_store *store)
{
    const struct tally_keep *keep = &watch->job->spec.keep;
    const struct tally_progress *progress = &watch->row.progress;
    const int64_t n_expected = (keep->every > 0 ? progress->round / keep->every : 0) +
                               (progress->best.iterate > 0 ? 1 : 0);
    int64_t n = 0;
    struct tally_error err = TALLY_ERROR_INIT;
    if (store->ops->model_list(store, watch->row.key, count_model, &n, &err) != TALLY_OK ||
        store->ops->model_list(store, watch->row.key, check_model, watch, &err) != TALLY_OK) {
        note_unreadable(&err);
    } else if (n != n_expected) {
        sim_violation("%s: %" PRId64 " kept models after round %" PRId64 ", not %" PRId64,
                      watch->job->name, n, progress->round, n_expected);
    }
}

static bool may_fail(const struct invariants_job *watch)
{
    return watch->job->spec.policy == TALLY_POLICY_FAIL || watch->job->spec.job_deadline_ms > 0 ||
           (watch->replay != NULL && sim_replay_fails(watch->replay));
}

static void check_job(struct invariants_job *watch, struct tally_store *store,
                      const struct tally_store_job *row)
{
    const struct sim_job *job = watch->job;
    const struct tally_store_job old = watch->row;
    if (watch->is_known) {
        check_growth(watch, row);
        const struct tally_column *column = find_difference(&TALLY_JOB_COLUMNS, &old, row);
        if (tally_job_status_is_terminal(old.status) && column != NULL &&
            strncmp(column->name, "wire_", 5) != 0 && strcmp(column->name, "recovery_bits") != 0) {
            sim_violation("%s: %s changed after the job had ended", job->name, column->name);
        }
        if (old.status != TALLY_JOB_QUEUED && row->status == TALLY_JOB_QUEUED) {
            sim_violation("%s: queued again", job->name);
        }
    }
    if (row->progress.stopped.round != old.progress.stopped.round ||
        strcmp(row->progress.stopped.rule, old.progress.stopped.rule) != 0) {
        watch->moved_us = sim_now_us();
        sim_note("store", "%s stops by %s", job->name, row->progress.stopped.rule);
    }
    if (!watch->is_known || old.status != row->status) {
        watch->moved_us = sim_now_us();
        sim_note("store", "%s is %s, round %lld", job->name, tally_job_status_name(row->status),
                 (long long)row->progress.round);
    }
    const bool was_stopped = watch->is_known && invariants_is_stopped(watch);
    watch->is_known = true;
    watch->row = *row;
    if (invariants_is_stopped(watch) && !was_stopped) { /* the answers to the open round are void */
        memset(invariants_at_update(watch, watch->acknowledged, row->progress.round + 1, 0), 0,
               (size_t)job->spec.clients * sizeof *watch->acknowledged);
    }
    struct tally_error err = TALLY_ERROR_INIT;
    if (store->ops->round_list(store, row->key, watch->n_records, watch->max_rounds, check_record,
                               watch, &err) != TALLY_OK) {
        note_unreadable(&err);
        return;
    }
    const int64_t before_last = watch->n_records > 2 ? watch->n_records - 2 : 0;
    if (tally_job_spec_evaluates(&job->spec) &&
        store->ops->round_list(store, row->key, before_last, 2, check_evaluation, watch, &err) !=
            TALLY_OK) {
        note_unreadable(&err);
        return;
    }
    check_progress(watch);
    check_models(watch, store);
    check_provenance(watch, store);
    if (is_open(row->status)) {
        check_acknowledged(watch, store);
    }
    if (row->status == TALLY_JOB_FAILED && !may_fail(watch)) {
        sim_violation("%s: failed: %s", job->name, row->reason);
    }
    if (row->status == TALLY_JOB_CANCELLED && !watch->may_be_cancelled) {
        sim_violation("%s: cancelled by nobody", job->name);
    }
}

static enum tally_status see_row(void *context, const struct tally_store_job *row,
                                 struct tally_error *err)
{
    (void)err;
    struct invariants_job *watch = invariants_job_named(row->name);
    if (watch == NULL || watch->is_listed) {
        sim_violation("a job \"%s\" too many: a submission counted twice", row->name);
        return TALLY_OK;
    }
    watch->is_listed = true;
    check_job(watch, context, row);
    return TALLY_OK;
}

static void check_store(void)
{
    struct tally_store *store = seen.source.store();
    seen.n_changes = seen.source.n_changes();
    seen.is_stale = false;
    for (int i = 0; i < seen.n; i++) {
        seen.watches[i].is_listed = false;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    if (store->ops->job_list(store, -1, INT64_MAX, 100, see_row, store, &err) != TALLY_OK) {
        note_unreadable(&err);
        return;
    }
    for (int i = 0; i < seen.n && !seen.is_stale; i++) {
        if (seen.watches[i].is_known && !seen.watches[i].is_listed) {
            sim_violation("%s is lost", seen.watches[i].job->name);
        }
    }
}

void invariants_check(void)
{
    if (!seen.is_stale && seen.source.n_changes() == seen.n_changes) {
        return;
    }
    if (seen.source.hold_faults != NULL) { /* the observer's reads always succeed */
        seen.source.hold_faults(true);
    }
    check_store();
    if (seen.source.hold_faults != NULL) {
        seen.source.hold_faults(false);
    }
}

static void check_final(const struct invariants_job *watch)
{
    const struct sim_job *job = watch->job;
    if (!watch->is_known || !tally_job_status_is_terminal(watch->row.status)) {
        int64_t n_stored = 0;
        for (int64_t m = 0; m < job->spec.clients; m++) {
            n_stored += watch->stored[m] != 0;
        }
        sim_violation("%s hangs: %s in round %" PRId64 " with %" PRId64 " of %" PRId64
                      " updates, long after the last fault; it says that it waits for \"%s\"",
                      job->name,
                      watch->is_known ? tally_job_status_name(watch->row.status) : "unknown",
                      watch->row.progress.round + 1, n_stored, job->spec.clients, watch->waiting);
        return;
    }
    if (watch->row.status == TALLY_JOB_COMPLETED &&
        watch->row.progress.time_step != job->spec.horizon &&
        watch->row.progress.stopped.rule[0] == '\0') {
        sim_violation("%s: completed before its horizon", job->name);
    }
    const bool is_whole = !invariants_is_stopped(watch) &&
                          (job->spec.stop.seconds == 0 ||
                           watch->sum.telemetry_bits == job->progress.bits.telemetry_bits);
    if (watch->row.status == TALLY_JOB_COMPLETED && watch->dropped_in_round == INT64_MAX &&
        is_whole) {
        struct tally_store_job expected = watch->row;
        expected.progress = job->progress;
        memcpy(expected.progress.setback, watch->row.progress.setback,
               sizeof expected.progress.setback); /* the measure has none */
        const struct tally_column *column =
            find_difference(&TALLY_JOB_COLUMNS, &watch->row, &expected);
        if (column != NULL || watch->n_records != job->n_rounds) {
            sim_violation("%s: at the end %s is not that of the fault-free run", job->name,
                          column != NULL ? column->name : "the number of rounds");
        }
    }
}

void invariants_check_end(void)
{
    for (int i = 0; i < seen.n; i++) {
        check_final(&seen.watches[i]);
    }
}

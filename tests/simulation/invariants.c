#include "tests/simulation/invariants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/json.h"
#include "api/worker/worker_messages.h"
#include "storage/columns.h"
#include "storage/store.h"
#include "tests/simulation/lease_invariants.h"
#include "tests/simulation/sim.h"
#include "tests/simulation/sim_clock.h"
#include "tests/simulation/sim_replay.h"
#include "tests/simulation/sim_replica.h"

/* A job as the store has shown it so far. Digests of messages stand in [max_rounds][clients], 0 =
 * none. The fault-free run is what is expected up to the first round that closed without some
 * client; from there on it is the replay. What neither tells yet must stay as it was seen first. */
struct watch {
    const struct sim_job *job;
    bool is_known; /* has been seen in the store */
    struct tally_store_job row;
    int64_t n_records, max_rounds;
    struct tally_ledger sum;    /* of the records */
    int64_t dropped_in_round;   /* the first with a client missing; INT64_MAX = none */
    int64_t dropped_at_iterate; /* that it queried */
    uint64_t *acknowledged;     /* updates, once they are */
    uint64_t *sent;             /* updates, as expected or first seen */
    uint64_t *checksums;        /* of the point of iterate k, likewise */
    uint64_t *failing;          /* not 0: the client cannot go on in that round */
    struct sim_replay *replay;  /* NULL before that round */
    uint64_t *stored;           /* in the open round, [clients] */
    int64_t *payload_bits;      /* of the uplink, after round r */
    int64_t moved_us;           /* when a round last closed or the coordinator last failed */
    int64_t said_us;            /* when the job was last seen to say what it waits for */
    int64_t lost_rounds;        /* the most that had closed when a power cut took some back */
    bool has_two_histories;     /* rounds that a power cut took back closed with other clients */
    bool may_be_cancelled;
    char waiting[160]; /* what its last detail said that it waits for */
    bool is_listed;    /* in the walk under way */
};

static struct {
    struct watch watches[SIM_MAX_JOBS];
    int n;
    uint64_t n_changes;            /* of the disk, at the last check */
    bool has_gone_back;            /* a power cut has taken commits back */
    bool is_stale;                 /* the store could not be read when it had changed */
    int64_t age_us;                /* of the request that is answered */
    bool serves[SIM_MAX_REPLICAS]; /* the replica has not stepped down */
    struct invariants_source source;
} all;

/* Whether the coordinator that answers is to know what the store holds of the job by now; not if it
 * may pass on what its former leader has said. */
static bool is_current(const struct watch *watch)
{
    const struct sim_replica *replica = sim_replica_self();
    return !all.is_stale &&
           (!all.source.is_shared ||
            lease_invariants_leads(sim_replica_index(replica), watch->row.key, all.age_us));
}

static size_t n_updates(const struct watch *watch)
{
    return (size_t)watch->max_rounds * (size_t)watch->job->spec.clients;
}

/* Before the store is known: nothing is but the fault-free run. */
static void forget(struct watch *watch)
{
    const struct sim_job *job = watch->job;
    const size_t n = (size_t)job->n_rounds * (size_t)job->spec.clients;
    watch->is_known = false;
    watch->row = (struct tally_store_job){0};
    watch->n_records = 0;
    watch->sum = (struct tally_ledger){0};
    watch->dropped_in_round = INT64_MAX;
    watch->dropped_at_iterate = INT64_MAX;
    memset(watch->acknowledged, 0, n_updates(watch) * sizeof(uint64_t));
    memset(watch->failing, 0, n_updates(watch) * sizeof(uint64_t));
    sim_replay_free(watch->replay);
    watch->replay = NULL;
    memset(watch->sent, 0, n_updates(watch) * sizeof(uint64_t));
    memcpy(watch->sent, job->updates, n * sizeof(uint64_t));
    memset(watch->checksums, 0, ((size_t)watch->max_rounds + 2) * sizeof(uint64_t));
    memcpy(watch->checksums, job->checksums, sizeof job->checksums);
}

void invariants_begin(const struct sim_job *jobs, int n_jobs,
                      const struct invariants_source *source)
{
    memset(&all, 0, sizeof all);
    all.n = n_jobs;
    all.source = *source;
    for (int i = 0; i < n_jobs; i++) {
        struct watch *watch = &all.watches[i];
        watch->job = &jobs[i];
        watch->max_rounds = jobs[i].spec.horizon + SIM_MAX_ROUNDS; /* a round takes a step */
        watch->acknowledged = sim_new(n_updates(watch) * sizeof(uint64_t));
        watch->sent = sim_new(n_updates(watch) * sizeof(uint64_t));
        watch->failing = sim_new(n_updates(watch) * sizeof(uint64_t));
        watch->checksums = sim_new(((size_t)watch->max_rounds + 2) * sizeof(uint64_t));
        watch->stored = sim_new((size_t)jobs[i].spec.clients * sizeof(uint64_t));
        watch->payload_bits = sim_new(((size_t)watch->max_rounds + 1) * sizeof(int64_t));
        forget(watch);
    }
}

void invariants_end(void)
{
    for (int i = 0; i < all.n; i++) {
        free(all.watches[i].acknowledged);
        free(all.watches[i].sent);
        free(all.watches[i].failing);
        sim_replay_free(all.watches[i].replay);
        free(all.watches[i].checksums);
        free(all.watches[i].stored);
        free(all.watches[i].payload_bits);
    }
    all.n = 0;
}

static struct watch *watch_of_name(const char *name)
{
    for (int i = 0; i < all.n; i++) {
        if (strcmp(all.watches[i].job->name, name) == 0) {
            return &all.watches[i];
        }
    }
    return NULL;
}

static struct watch *watch_of_id(const char *id)
{
    for (int i = 0; i < all.n; i++) {
        if (all.watches[i].is_known && strcmp(all.watches[i].row.id, id) == 0) {
            return &all.watches[i];
        }
    }
    return NULL;
}

/* What cannot be read now is looked at after the next turn. */
static void note_unreadable(const struct tally_error *why)
{
    sim_note("invariants", "store not readable: %s", why->message);
    all.is_stale = true;
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

/* The first column in which two structs differ; NULL = none. Reals by their bits. */
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

static void check_growth(const struct watch *watch, const struct tally_store_job *row)
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

static uint64_t *at_update(const struct watch *watch, uint64_t *digests, int64_t round,
                           int64_t client)
{
    const bool is_there = round >= 1 && round <= watch->max_rounds && client >= 0 &&
                          client < watch->job->spec.clients;
    return is_there ? &digests[(round - 1) * watch->job->spec.clients + client] : NULL;
}

/* A round that closed without some clients lists them, had a quorum, and counts none of them. Only
 * under a budget may a client answer without a message. */
static void check_missing(struct watch *watch, const struct tally_round_record *record)
{
    const struct sim_job *job = watch->job;
    const int64_t n_missing = count_listed(record->missing);
    const int64_t n_expected = record->cut ? 0 : job->spec.clients - n_missing;
    const int64_t n_messages = (int64_t)record->bits.uplink.messages;
    const bool may_decline = job->spec.budget.uplink_bits > 0;
    if (record->received != n_expected ||
        (may_decline ? n_messages > n_expected : n_messages != n_expected)) {
        sim_violation("%s: round %" PRId64 " has %" PRId64 " answers and %" PRIu64
                      " messages, and says that \"%s\" are missing",
                      job->name, record->round, record->received, record->bits.uplink.messages,
                      record->missing);
    }
    if (n_missing > 0 && (job->spec.policy == TALLY_POLICY_WAIT ||
                          job->spec.clients - n_missing < job->spec.quorum)) {
        sim_violation("%s: round %" PRId64 " closed without \"%s\", against its policy", job->name,
                      record->round, record->missing);
    }
    for (int64_t m = 0; m < job->spec.clients; m++) {
        if (*at_update(watch, watch->acknowledged, record->round, m) != 0 &&
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
        uint64_t *rest = at_update(watch, watch->sent, record->round + 1, 0);
        memset(rest, 0, (n_updates(watch) - (size_t)(rest - watch->sent)) * sizeof(uint64_t));
    }
}

/* A round before any client was dropped. */
static void check_as_expected(const struct watch *watch, const struct tally_round_record *record)
{
    const struct sim_job *job = watch->job;
    if (record->round > job->n_rounds) {
        sim_violation("%s: round %" PRId64 " although the fault-free run has %" PRId64, job->name,
                      record->round, job->n_rounds);
        return;
    }
    const struct tally_column *column =
        find_difference(&TALLY_ROUND_COLUMNS, record, &job->records[record->round - 1]);
    if (column != NULL) {
        sim_violation("%s: round %" PRId64 ": %s is not that of the fault-free run", job->name,
                      record->round, column->name);
    }
}

/* What is expected from now on; what was seen of it already must be that. */
static void expect(const struct watch *watch, uint64_t *at, uint64_t expected, const char *what,
                   int64_t number)
{
    if (*at != 0 && *at != expected && !watch->has_two_histories) {
        sim_violation("%s: %s of %" PRId64 " is not that of the replay", watch->job->name, what,
                      number);
    }
    *at = expected;
}

/* The replay says what the open round asks and what each client answers. */
static void expect_open_round(struct watch *watch)
{
    int64_t iterate;
    const uint64_t checksum = sim_replay_checksum(watch->replay, &iterate);
    expect(watch, &watch->checksums[iterate], checksum, "the point of iterate", iterate);
    const int64_t round = sim_replay_open_round(watch->replay);
    for (uint32_t m = 0; round > 0 && m < watch->job->spec.clients; m++) {
        expect(watch, at_update(watch, watch->sent, round, m), sim_replay_update(watch->replay, m),
               "an update in round", round);
        if (sim_replay_diverges(watch->replay, m)) {
            *at_update(watch, watch->failing, round, m) = 1;
            sim_note("replay", "%s: client %u cannot go on in round %" PRId64, watch->job->name, m,
                     round);
        }
    }
}

/* A round that some client was missing in, or one after it. */
static void check_as_replayed(struct watch *watch, const struct tally_round_record *record)
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
    const struct tally_column *column = find_difference(&TALLY_ROUND_COLUMNS, record, expected);
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
    struct watch *watch = context;
    if (record->round != watch->n_records + 1 || record->round >= watch->max_rounds) {
        sim_violation("%s: record of round %" PRId64 " where %" PRId64 " should be",
                      watch->job->name, record->round, watch->n_records + 1);
        return TALLY_OK;
    }
    watch->n_records++;
    watch->moved_us = sim_now_us();
    tally_ledger_add(&watch->sum, &record->bits);
    watch->payload_bits[record->round] = (int64_t)watch->sum.uplink.payload_bits;
    check_missing(watch, record);
    if (record->round < watch->dropped_in_round) {
        check_as_expected(watch, record);
    } else if (sim_violated() == NULL) {
        check_as_replayed(watch, record);
    }
    return TALLY_OK;
}

static enum tally_status see_stored(void *context, const struct tally_store_update *stored,
                                    struct tally_error *err)
{
    struct watch *watch = context;
    struct tally_update update;
    if (tally_update_decode(stored->body, stored->n_body, &update, err) != TALLY_OK ||
        stored->client >= (uint32_t)watch->job->spec.clients || update.round != stored->round ||
        update.client != stored->client) {
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
    const struct watch *watch = context;
    sim_violation("%s: an update of round %" PRId64 ", which has closed, is still stored",
                  watch->job->name, stored->round);
    return TALLY_OK;
}

/* Every acknowledged update of the open round is stored, and none is acknowledged beyond it. */
static void check_acknowledged(struct watch *watch, struct tally_store *store)
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
    for (int64_t round = open; round <= watch->max_rounds; round++) { /* past it: it went back */
        for (int64_t m = 0; m < clients; m++) {
            const uint64_t digest = *at_update(watch, watch->acknowledged, round, m);
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

/* The point of iterate k is the expected one, or the one that was there first. */
static bool is_point(const struct watch *watch, int64_t iterate, uint64_t checksum)
{
    if (iterate < 1 || iterate > watch->max_rounds) {
        return false;
    }
    if (watch->checksums[iterate] == 0) {
        watch->checksums[iterate] = checksum;
    }
    return watch->checksums[iterate] == checksum;
}

static void check_progress(const struct watch *watch)
{
    const struct sim_job *job = watch->job;
    const struct tally_progress *progress = &watch->row.progress;
    if (progress->round != watch->n_records ||
        memcmp(&progress->bits, &watch->sum, sizeof watch->sum) != 0) {
        sim_violation("%s: progress (round %" PRId64 ") is not the sum of %" PRId64 " records",
                      job->name, progress->round, watch->n_records);
    }
    if (!is_point(watch, progress->iterate, progress->x_checksum)) {
        sim_violation("%s: x_checksum of iterate %" PRId64 " is not the expected one", job->name,
                      progress->iterate);
    }
}

static bool may_fail(const struct watch *watch)
{
    return watch->job->spec.policy == TALLY_POLICY_FAIL || watch->job->spec.job_deadline_ms > 0 ||
           watch->has_two_histories || (watch->replay != NULL && sim_replay_fails(watch->replay));
}

static void check_job(struct watch *watch, struct tally_store *store,
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
    if (!watch->is_known || old.status != row->status) {
        watch->moved_us = sim_now_us();
        sim_note("store", "%s is %s, round %lld", job->name, tally_job_status_name(row->status),
                 (long long)row->progress.round);
    }
    watch->is_known = true;
    watch->row = *row;
    struct tally_error err = TALLY_ERROR_INIT;
    if (store->ops->round_list(store, row->key, watch->n_records, watch->max_rounds, check_record,
                               watch, &err) != TALLY_OK) {
        note_unreadable(&err);
        return;
    }
    check_progress(watch);
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
    struct watch *watch = watch_of_name(row->name);
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
    struct tally_store *store = all.source.store();
    all.n_changes = all.source.n_changes();
    all.is_stale = false;
    for (int i = 0; i < all.n; i++) {
        all.watches[i].is_listed = false;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    if (store->ops->job_list(store, -1, INT64_MAX, 100, see_row, store, &err) != TALLY_OK) {
        note_unreadable(&err);
        return;
    }
    for (int i = 0; i < all.n && !all.is_stale; i++) {
        if (all.watches[i].is_known && !all.watches[i].is_listed) {
            sim_violation("%s is lost", all.watches[i].job->name);
        }
    }
}

void invariants_check(void)
{
    if (!all.is_stale && all.source.n_changes() == all.n_changes) {
        return;
    }
    if (all.source.hold_faults != NULL) { /* the observer's reads always succeed */
        all.source.hold_faults(true);
    }
    check_store();
    if (all.source.hold_faults != NULL) {
        all.source.hold_faults(false);
    }
}

static void begin_waits_anew(void)
{
    for (int i = 0; i < all.n; i++) {
        all.watches[i].moved_us = sim_now_us();
    }
}

void invariants_see_restart(void)
{
    const struct sim_replica *replica = sim_replica_self();
    if (replica != NULL) {
        all.serves[sim_replica_index(replica)] = false;
    }
    begin_waits_anew();
    all.is_stale = true;
    invariants_check();
}

/* Jobs are read back from the store, and their rounds begin anew. */
void invariants_see_coordinator_log(const char *event)
{
    static const char *const BEGINS[] = {"write failed",
                                         "job taken over",
                                         "stepping up",
                                         "job cannot be taken over yet",
                                         "cannot look for jobs to take over",
                                         "heartbeat failed"};
    const struct sim_replica *replica = sim_replica_self();
    if (replica != NULL && strncmp(event, "stepping ", 9) == 0) {
        all.serves[sim_replica_index(replica)] = strcmp(event, "stepping up") == 0;
    }
    for (size_t i = 0; i < sizeof BEGINS / sizeof BEGINS[0]; i++) {
        if (strcmp(event, BEGINS[i]) == 0) {
            begin_waits_anew();
        }
    }
}

void invariants_see_power_cut(bool power_loss_safe)
{
    if (power_loss_safe) {
        return;
    }
    all.has_gone_back = true;
    for (int i = 0; i < all.n; i++) {
        struct watch *watch = &all.watches[i];
        watch->has_two_histories |= watch->dropped_in_round != INT64_MAX;
        if (watch->n_records > watch->lost_rounds) {
            watch->lost_rounds = watch->n_records;
        }
        forget(watch);
    }
}

/* Messages. */

/* Whether it is what the client sends in that round: as expected, or as it was first seen. A worker
 * may still post from a history that is lost, in which other clients were missing. */
static bool is_message(const struct watch *watch, const struct tally_update *update)
{
    if (watch->has_two_histories) {
        return at_update(watch, watch->sent, update->round, update->client) != NULL;
    }
    uint64_t *sent = at_update(watch, watch->sent, update->round, update->client);
    if (sent != NULL && *sent == 0 && update->round > watch->dropped_in_round) {
        *sent = sim_update_digest(update);
    }
    return sent != NULL && *sent == sim_update_digest(update);
}

static void see_acknowledged(const struct sim_peer *peer, const uint8_t *body, size_t n_body)
{
    struct tally_update update;
    if (tally_update_decode(body, n_body, &update, NULL) != TALLY_OK) {
        sim_violation("%s: junk is acknowledged", peer->name);
        return;
    }
    struct watch *watch = watch_of_id(update.job_id);
    if (watch == NULL) {
        if (!all.has_gone_back) {
            sim_violation("%s: an update of unknown job %s is acknowledged", peer->name,
                          update.job_id);
        }
        return;
    }
    if (!is_message(watch, &update)) {
        sim_violation("%s: an update of %s, round %u, client %u is acknowledged that is not the "
                      "client's",
                      peer->name, watch->job->name, update.round, update.client);
        return;
    }
    sim_note("coordinator", "acknowledges %s round %u client %u", watch->job->name, update.round,
             update.client);
    *at_update(watch, watch->acknowledged, update.round, update.client) =
        sim_update_digest(&update);
    all.is_stale = true; /* look after this turn, whether it wrote or not */
}

static void see_task(const struct sim_peer *peer, const struct tally_task *task)
{
    const struct watch *watch = watch_of_id(task->job_id);
    if (watch == NULL) {
        sim_violation("%s: a task of job %s, which is not stored", peer->name, task->job_id);
        return;
    }
    sim_note("coordinator",
             "task for %s: %s round %u iterate %llu, %zu clients, %zu broadcasts%s%s", peer->name,
             watch->job->name, task->round, (unsigned long long)task->iterate, task->n_clients,
             task->n_broadcasts, task->snapshot.size > 0 ? ", snapshot" : "",
             task->job_document.size > 0 ? ", document" : "");
    const bool is_past = all.source.is_shared && !is_current(watch);
    if (!all.is_stale && (is_past ? task->round > watch->row.progress.round + 1
                                  : task->round != watch->row.progress.round + 1)) {
        sim_violation("%s: a task of round %u while round %" PRId64 " is open in the store",
                      watch->job->name, task->round, watch->row.progress.round + 1);
    }
    if (!all.is_stale && !is_past && watch->row.status != TALLY_JOB_RUNNING) {
        sim_violation("%s: a task although the job is %s", watch->job->name,
                      tally_job_status_name(watch->row.status));
    }
    if (!is_point(watch, (int64_t)task->iterate, task->x_checksum)) {
        sim_violation("%s: a task tells another checksum than the expected one", watch->job->name);
    }
}

static void see_poll_answer(const struct sim_peer *peer, const uint8_t *body, size_t n_body)
{
    static struct tally_poll_response response; /* large */
    if (tally_poll_response_decode(body, n_body, &response, NULL) != TALLY_OK) {
        sim_violation("%s: the answer to a poll does not decode", peer->name);
        return;
    }
    if (response.kind == TALLY_POLL_TASK) {
        see_task(peer, &response.task);
    }
    tally_poll_response_fini(&response);
}

/* An update's answer may hold that to a poll. */
static void see_next(const struct sim_peer *peer, const uint8_t *body, size_t n_body)
{
    struct tally_update_response response;
    if (tally_update_response_decode(body, n_body, &response, NULL) != TALLY_OK) {
        sim_violation("%s: the answer to an update does not decode", peer->name);
    } else if (response.has_next) {
        invariants_check(); /* what this turn has committed */
        see_poll_answer(peer, response.next.data, response.next.size);
    }
}

/* After one second in a round the coordinator says it. The second begins anew when the job has said
 * something else, as an outage of the store: a job that lost a write is read back, a second later
 * or two if that read fails, and its round then gives the workers 1.5 s to return. With several
 * coordinators such an outage may end unseen, and a call may last 3 s. */
enum { SAYS_IT_AFTER_US = 5000000, SAYS_IT_AFTER_SHARED_US = 10000000 };

/* A job that has not moved for a while says what it waits for; one that has ended waits for
 * nothing. */
static void check_waiting(struct watch *watch, const struct tally_json *waiting)
{
    const char *text = tally_json_is_object(waiting) ? tally_json_get_text(waiting, "text") : NULL;
    const bool says = text != NULL && text[0] != '\0';
    snprintf(watch->waiting, sizeof watch->waiting, "%s", says ? text : "");
    const bool has_ended = tally_job_status_is_terminal(watch->row.status);
    const struct sim_replica *replica = sim_replica_self();
    const bool serves = replica == NULL || all.serves[sim_replica_index(replica)];
    const int64_t after_us = all.source.is_shared ? SAYS_IT_AFTER_SHARED_US : SAYS_IT_AFTER_US;
    if (says) {
        watch->said_us = sim_now_us();
    }
    const int64_t silent_since_us =
        watch->moved_us > watch->said_us ? watch->moved_us : watch->said_us;
    const bool must_say = sim_now_us() > silent_since_us + after_us && serves && is_current(watch);
    if (!all.is_stale && !(all.source.is_shared && has_ended) &&
        (has_ended ? says : !says && must_say)) {
        sim_violation("%s: %s in round %" PRId64 ", and says that it waits for \"%s\"",
                      watch->job->name, tally_job_status_name(watch->row.status),
                      watch->row.progress.round + 1, says ? text : "");
    }
}

/* The detail of a job says what the store holds. */
static void see_detail(const uint8_t *body, size_t n_body)
{
    struct tally_json *detail;
    if (tally_json_parse((const char *)body, n_body, &detail, NULL) != TALLY_OK) {
        sim_violation("the detail of a job is no JSON");
        return;
    }
    const char *id = tally_json_get_text(detail, "id");
    struct watch *watch = id != NULL ? watch_of_id(id) : NULL;
    const struct tally_json *bits = tally_json_get(detail, "bits");
    const struct tally_json *uplink = bits != NULL ? tally_json_get(bits, "uplink") : NULL;
    if (watch == NULL || uplink == NULL) {
        sim_violation("the detail of job %s is incomplete, or it is not stored", id);
    } else {
        const struct tally_store_job *row = &watch->row;
        const int64_t round = tally_json_get_integer(detail, "round", -1);
        const int64_t payload_bits = tally_json_get_integer(uplink, "payload", -1);
        const bool same =
            all.is_stale ||
            (round == row->progress.round &&
             tally_json_get_integer(detail, "time_step", -1) == row->progress.time_step &&
             payload_bits == (int64_t)row->progress.bits.uplink.payload_bits &&
             strcmp(tally_json_get_text(detail, "status"), tally_job_status_name(row->status)) ==
                 0);
        const bool was_so = all.source.is_shared && !is_current(watch) && round >= 0 &&
                            round <= watch->n_records && payload_bits == watch->payload_bits[round];
        if (!same && !was_so) {
            sim_violation("%s: its detail says %s, round %" PRId64 ", %" PRId64
                          " payload bits; the store holds %s, round %" PRId64 ", %" PRIu64 " bits",
                          watch->job->name, tally_json_get_text(detail, "status"), round,
                          payload_bits, tally_job_status_name(row->status), row->progress.round,
                          row->progress.bits.uplink.payload_bits);
        }
        check_waiting(watch, tally_json_get(detail, "waiting"));
    }
    tally_json_free(detail);
}

void invariants_see_answer(const struct sim_peer *peer, const struct sim_message *message,
                           int64_t age_us, int status, const uint8_t *body, size_t n_body)
{
    all.age_us = age_us;
    if (status >= 300) {
        return;
    }
    if (all.source.is_shared) {
        invariants_check(); /* what others have committed */
    }
    const char *method = strrchr(message->path, '/');
    if (strcmp(method, "/PostUpdate") == 0) {
        see_next(peer, body, n_body);
        see_acknowledged(peer, message->body, message->n_body);
    } else if (strcmp(method, "/PollTask") == 0) {
        invariants_check(); /* what this turn has committed */
        see_poll_answer(peer, body, n_body);
    } else if (strcmp(message->method, "GET") == 0) {
        invariants_check();
        see_detail(body, n_body);
    }
}

/* A client cannot go on where the replay cannot, and nowhere else. */
static void check_failure(const struct watch *watch, const char *worker,
                          const struct tally_update *update)
{
    const uint64_t *failing = at_update(watch, watch->failing, update->round, update->client);
    if ((failing == NULL || *failing == 0) && !all.is_stale && !all.has_gone_back) {
        sim_violation("%s: %s says that client %u cannot go on in round %u: %s", watch->job->name,
                      worker, update->client, update->round, update->failure);
    }
}

void invariants_see_post(const char *worker, const uint8_t *body, size_t n_body)
{
    struct tally_update update;
    if (tally_update_decode(body, n_body, &update, NULL) != TALLY_OK) {
        sim_violation("%s posts junk", worker);
        return;
    }
    const struct watch *watch = watch_of_id(update.job_id);
    sim_note(worker, "posts %s round %u client %u",
             watch != NULL ? watch->job->name : update.job_id, update.round, update.client);
    if (watch != NULL && !is_message(watch, &update)) {
        sim_violation("%s: %s posts for round %u, client %u what the client does not send: %s",
                      watch->job->name, worker, update.round, update.client, update.failure);
    }
    if (watch != NULL && update.failure[0] != '\0') {
        check_failure(watch, worker, &update);
    }
}

void invariants_see_refusal(const char *worker, const char *method, const uint8_t *body,
                            size_t n_body, const struct tally_error *why)
{
    (void)body, (void)n_body;
    const enum tally_status status = why->status;
    if (strcmp(method, "PostUpdate") == 0 &&
        (status == TALLY_ALREADY_EXISTS || status == TALLY_INVALID_ARGUMENT ||
         status == TALLY_INTERNAL || status == TALLY_DATA_LOSS)) {
        sim_violation("%s: an honest update is refused: %s", worker, why->message);
    }
}

void invariants_see_worker_log(const char *worker, const char *event, const char *text)
{
    static const char *const NEVER[] = {"point lost, fetching it again", "job refused"};
    for (size_t i = 0; i < sizeof NEVER / sizeof NEVER[0]; i++) {
        if (strcmp(event, NEVER[i]) == 0 && !all.has_gone_back) {
            sim_violation("%s: %s", worker, text);
        }
    }
}

void invariants_see_worker_end(const char *worker, const struct tally_error *why)
{
    if (!all.has_gone_back) {
        sim_violation("%s gives up: %s", worker, why->message);
    }
}

void invariants_allow_cancel(const struct sim_job *job)
{
    watch_of_name(job->name)->may_be_cancelled = true;
}

bool invariants_all_ended(void)
{
    for (int i = 0; i < all.n; i++) {
        const struct watch *watch = &all.watches[i];
        if (!watch->is_known || !tally_job_status_is_terminal(watch->row.status)) {
            return false;
        }
    }
    return true;
}

static void check_final(const struct watch *watch)
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
        watch->row.progress.time_step != job->spec.horizon) {
        sim_violation("%s: completed before its horizon", job->name);
    }
    if (watch->row.status == TALLY_JOB_COMPLETED && watch->dropped_in_round == INT64_MAX) {
        struct tally_store_job expected = watch->row;
        expected.progress = job->progress;
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
    for (int i = 0; i < all.n; i++) {
        check_final(&all.watches[i]);
    }
}

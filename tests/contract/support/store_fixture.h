/* store_fixture: a fresh store for one test, sample rows with distinct members, and collectors.
 *
 * Helpers named "expect" check with CUnit. Do not call them in a forked child. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_STORE_FIXTURE_H
#define TALLY_TESTS_CONTRACT_SUPPORT_STORE_FIXTURE_H

#include "storage/backends.h"
#include "tests/harness.h"

struct store_fixture {
    struct tally_store *store;
    const struct tally_store_ops *ops;      /* of store */
    struct tally_memory_database *database; /* shared by store objects; NULL = none */
    struct tally_store *beside;             /* a second one, of suite "store_reference" */
    bool is_beside;                         /* another fixture owns the database */
    char folder[64];                        /* removed by close; "" = none; only for SQLite */
    char path[96];                          /* of the database in `folder` */
    char schema[64];                        /* in PostgreSQL, dropped by close; "" = none */
    char uri[512];
    struct tally_error err; /* of the last call that received it */
};

/* Opens the backend that the running suite is named after:
 *
 *     store_reference      a database of tests/simulation/storage/memory.h with this replica and
 *                          another one, which has a transaction open
 *     store_reference_...  such a database of its own
 *     store_memory         "memory:"
 *     store_sqlite...      a file of its own
 *     store_postgres...    a schema of its own in the database TALLY_POSTGRES, which is given as
 *                          "key=value ..."; the schema is also the connection's application_name */
void store_fixture_open(struct store_fixture *fixture);
void store_fixture_close(struct store_fixture *fixture);
/* As store_fixture_open(), but does not open the store, for tests of opening. */
void store_fixture_init(struct store_fixture *fixture);
/* Opens another store object on the database of `first`, which stays when this one is closed. */
void store_fixture_open_beside(struct store_fixture *fixture, const struct store_fixture *first);
/* Closes and reopens the store. */
void store_fixture_reopen(struct store_fixture *fixture);

/* Advances the clock of the store. On PostgreSQL the server then no longer knows any replica's
 * connection, and take() ends none. The fixture must be the one that owns the database. */
void store_fixture_pass_time(const struct store_fixture *fixture, int64_t ms);
/* Ends all connections to the store. The fixture must be the one that owns the database. */
void store_fixture_end_connections(const struct store_fixture *fixture);

/* Calls check() until the store, which has lost its connection, has reconnected. */
void expect_connection(struct store_fixture *fixture);

/* The final status of a write that returned `status`: a store may report an error only in
 * flush(). */
enum tally_status flushed(struct store_fixture *fixture, enum tally_status status);

void expect_begin(struct store_fixture *fixture);
void expect_commit(struct store_fixture *fixture);
/* Adds a job with the document "{}" and no idempotency key; returns its key. */
int64_t expect_job_insert(struct store_fixture *fixture, const struct tally_store_job *job);
/* Adds sample_job(id) with a status, in its own transaction; returns its key. */
int64_t expect_job(struct store_fixture *fixture, const char *id, enum tally_job_status status);
void expect_update(struct store_fixture *fixture, int64_t job_key, int64_t round, uint32_t client,
                   const char *body);

/* All members are set and differ; `salt` in [0, 99] shifts them all. */
struct tally_store_job sample_job(const char *id, int salt);
struct tally_round_record sample_record(int64_t round, int salt);

/* Compare every member; reals bit by bit. */
void expect_same_job(const struct tally_store_job *actual, const struct tally_store_job *expected);
void expect_same_record(const struct tally_round_record *actual,
                        const struct tally_round_record *expected);

/* n bytes without a short period; the caller frees. */
uint8_t *pattern_new(size_t n);

/* Everything that a store returns about its jobs, as text, for before/after comparisons. */
void describe_store(struct store_fixture *fixture, struct tally_buffer *out);

/* Contexts of the walk callbacks below: they keep the first CAPACITY rows, count all, and return
 * TALLY_CANCELLED at row number `stop_at` (0 = never). */
enum { COLLECT_CAPACITY = 40 };

struct job_walk {
    struct tally_store_job jobs[COLLECT_CAPACITY];
    int n;
    int stop_at;
};
struct update_walk {
    struct tally_store_update updates[COLLECT_CAPACITY]; /* body = NULL */
    char bodies[COLLECT_CAPACITY][16];                   /* the first 15 bytes, as text */
    int n;
    int stop_at;
};
struct record_walk {
    struct tally_round_record records[COLLECT_CAPACITY];
    int n;
    int stop_at;
};
enum tally_status collect_job(void *context, const struct tally_store_job *job,
                              struct tally_error *err);
enum tally_status collect_update(void *context, const struct tally_store_update *update,
                                 struct tally_error *err);
enum tally_status collect_record(void *context, const struct tally_round_record *record,
                                 struct tally_error *err);

/* "c,b,a": the ids collected. */
const char *collected_ids(const struct job_walk *walk);

/* Writes three updates, a state and a change of it in one transaction. */
enum tally_status write_transaction(struct store_fixture *f, int64_t key, int64_t round);
/* Checks that the state of a job is this text, and that state_get() appends it to a buffer. */
void expect_state_text(struct store_fixture *f, int64_t key, const char *text);

#endif

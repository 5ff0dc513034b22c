/* postgres_sql: the text of the statements, and how they are prepared and queued.
 *
 * {names}, {values} and {sets} in a statement are filled in from round_columns.c, so that SQL,
 * binding and reading cannot disagree. */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "storage/postgres/postgres_internal.h"

struct statement_text {
    const char *sql;
    const struct tally_columns *columns; /* NULL = no {...} */
    int first_parameter;
};

#define IS_LIVE "j.status NOT IN (" TALLY_SQL_TERMINAL_NAMES ")"

/* A write to a job that does not exist adds nothing, instead of failing and aborting the
 * transaction. Whether the job exists cannot change before the end of the transaction, which holds
 * the fence. */
#define IF_THERE " WHERE EXISTS (SELECT FROM job_leases WHERE job_key = $1::int8)"

/* The time by which leases expire. It stops half a lease after the last renewal by any replica:
 * then the store itself was down, and no replica could renew. */
#define LEASE_NOW   "least(clock_timestamp(), c.renewed_at + r.lease / 2)"
#define IS_ALIVE    "(r.is_member AND r.expires_at >= " LEASE_NOW ")"
#define MILLISECOND " * interval '1 ms'"

#define IS_LONG_DEAD "r.expires_at < clock_timestamp() - interval '7 days'"

/* Jobs that replica $1, which holds the jobs $2, may take. If it leads a job without holding it,
 * the job was handed over, or the result of a take() was lost. */
#define IS_TO_BE_TAKEN                                                                             \
    IS_LIVE " AND (l.leader IS NULL OR (l.leader <> $1::int8 AND NOT " IS_ALIVE                    \
            ") OR (l.leader = $1::int8 AND NOT l.job_key = ANY($2::int8[])))"
#define LEASES_AND_LEADERS                                                                         \
    "job_leases l JOIN jobs j ON j.job_key = l.job_key CROSS JOIN lease_clock c"                   \
    " LEFT JOIN replicas r ON r.number = l.leader"

static const struct statement_text STATEMENT_TEXT[TALLY_PG_N_SQL] = {
    [TALLY_PG_BEGIN] = {.sql = "BEGIN"},
    [TALLY_PG_COMMIT] = {.sql = "COMMIT"},
    [TALLY_PG_ROLLBACK] = {.sql = "ROLLBACK"},
    /* A change of a lease waits for this lock. In the order of the keys, so that two transactions
     * that lock several jobs do not deadlock. */
    [TALLY_PG_FENCE] = {.sql =
                            "SELECT job_key, token, leader IS NULL FROM job_leases"
                            " WHERE job_key = ANY($1::int8[]) ORDER BY job_key FOR NO KEY UPDATE"},
    /* $1: NULL, or the key that the job had before the transaction was run again. Transactions that
     * insert run one after the other, so that keys become visible in ascending order. */
    [TALLY_PG_JOB_INSERT] =
        {.sql =
             "WITH key AS (UPDATE job_keys SET last_key ="
             " CASE WHEN $1::int8 IS NULL THEN last_key + 1 ELSE greatest(last_key, $1::int8) END"
             " WHERE NOT EXISTS (SELECT FROM jobs WHERE id = $6::text OR idempotency_key = "
             "$2::text)"
             " RETURNING coalesce($1::int8, last_key) AS job_key),"
             " job AS (INSERT INTO jobs (job_key, idempotency_key, request_digest, {names})"
             " SELECT job_key, $2::text, $3::int8, {values} FROM key ON CONFLICT DO NOTHING"
             " RETURNING job_key),"
             " document AS (INSERT INTO job_documents (job_key, document)"
             " SELECT job_key, $4::bytea FROM job),"
             " lease AS (INSERT INTO job_leases (job_key, leader, token)"
             " SELECT job_key, $5::int8, 1 FROM job)"
             " SELECT job_key FROM job",
         .columns = &TALLY_JOB_COLUMNS,
         .first_parameter = 6},
    [TALLY_PG_JOB_UPDATE] = {.sql = "UPDATE jobs SET {sets} WHERE job_key = $1::int8",
                             .columns = &TALLY_JOB_COLUMNS,
                             .first_parameter = 2},
    [TALLY_PG_STATE_PUT] =
        {.sql = "WITH appended AS (DELETE FROM job_state_changes WHERE job_key = $1::int8)"
                " INSERT INTO job_states (job_key, state) SELECT $1::int8, $2::bytea" IF_THERE
                " ON CONFLICT (job_key) DO UPDATE SET state = excluded.state"},
    /* No row = there is no state; else whether this round was new. */
    [TALLY_PG_STATE_APPEND] =
        {.sql = "WITH appended AS (INSERT INTO job_state_changes (job_key, round, change)"
                " SELECT job_key, $2::int8, $3::bytea FROM job_states WHERE job_key = $1::int8"
                " ON CONFLICT DO NOTHING RETURNING job_key)"
                " SELECT EXISTS (SELECT FROM appended) FROM job_states WHERE job_key = $1::int8"},
    [TALLY_PG_UPDATE_INSERT] = {.sql = "INSERT INTO updates (job_key, round, client, body)"
                                       " SELECT $1::int8, $2::int8, $3::int8, $4::bytea" IF_THERE
                                       " ON CONFLICT DO NOTHING"},
    [TALLY_PG_UPDATES_DELETE] =
        {.sql = "DELETE FROM updates"
                " WHERE job_key = $1::int8 AND round BETWEEN $2::int8 AND $3::int8"},
    /* Rows of the other tables reference it with ON DELETE CASCADE. */
    [TALLY_PG_JOB_DELETE] =
        {.sql = "DELETE FROM jobs WHERE job_key = $1::int8 AND status IN (" TALLY_SQL_TERMINAL_NAMES
                ")"},
    [TALLY_PG_ROUND_INSERT] =
        {.sql = "INSERT INTO rounds (job_key, {names}) SELECT $1::int8, {values}" IF_THERE
                " ON CONFLICT DO NOTHING",
         .columns = &TALLY_ROUND_COLUMNS,
         .first_parameter = 2},
    [TALLY_PG_ROUND_UPDATE] =
        {.sql = "UPDATE rounds SET {sets} WHERE job_key = $1::int8 AND round = $2::int8",
         .columns = &TALLY_ROUND_COLUMNS,
         .first_parameter = 3},
    [TALLY_PG_MODEL_PUT] =
        {.sql = "INSERT INTO models (job_key, {names}) SELECT $1::int8, {values}" IF_THERE
                " ON CONFLICT (job_key, slot) DO UPDATE SET {sets}",
         .columns = &TALLY_MODEL_COLUMNS,
         .first_parameter = 2},
    [TALLY_PG_POINT_PUT] =
        {.sql = "INSERT INTO model_points (job_key, slot, point)"
                " SELECT $1::int8, $2::int8, $3::bytea" IF_THERE
                " ON CONFLICT (job_key, slot) DO UPDATE SET point = excluded.point"},
    [TALLY_PG_JOB_GET] = {.sql = "SELECT job_key, {names} FROM jobs WHERE id = $1::text",
                          .columns = &TALLY_JOB_COLUMNS},
    [TALLY_PG_JOB_BY_IDEMPOTENCY_KEY] =
        {.sql =
             "SELECT job_key, {names}, request_digest FROM jobs WHERE idempotency_key = $1::text",
         .columns = &TALLY_JOB_COLUMNS},
    [TALLY_PG_REQUEST_GET] = {.sql = "SELECT request_digest, idempotency_key FROM jobs"
                                     " WHERE job_key = $1::int8"},
    [TALLY_PG_JOB_LIST] = {.sql = "SELECT job_key, {names} FROM jobs WHERE job_key < $1::int8"
                                  " AND ($2::text IS NULL OR status = $2::text)"
                                  " ORDER BY job_key DESC LIMIT $3::int8",
                           .columns = &TALLY_JOB_COLUMNS},
    [TALLY_PG_JOB_LIST_LIVE] = {.sql =
                                    "SELECT job_key, {names} FROM jobs j WHERE job_key > $1::int8"
                                    " AND " IS_LIVE " ORDER BY job_key LIMIT $2::int8",
                                .columns = &TALLY_JOB_COLUMNS},
    [TALLY_PG_DOCUMENT_GET] = {.sql =
                                   "SELECT document FROM job_documents WHERE job_key = $1::int8"},
    [TALLY_PG_STATE_GET] =
        {.sql =
             "SELECT state || (SELECT CASE WHEN count(change) = count(*)" /* no NULL is skipped */
             " THEN coalesce(string_agg(change, ''::bytea ORDER BY round), ''::bytea) END"
             " FROM job_state_changes WHERE job_key = $1::int8) AS state"
             " FROM job_states WHERE job_key = $1::int8"},
    [TALLY_PG_UPDATE_LIST] = {.sql =
                                  "SELECT round, client, body FROM updates WHERE job_key = $1::int8"
                                  " AND round = $2::int8 AND client > $3::int8"
                                  " ORDER BY client LIMIT $4::int8"},
    [TALLY_PG_ROUND_LIST] = {.sql = "SELECT {names} FROM rounds WHERE job_key = $1::int8"
                                    " AND round > $2::int8 ORDER BY round LIMIT $3::int8",
                             .columns = &TALLY_ROUND_COLUMNS},
    [TALLY_PG_MODEL_LIST] = {.sql = "SELECT {names} FROM models WHERE job_key = $1::int8"
                                    " AND slot > $2::int8 ORDER BY slot LIMIT $3::int8",
                             .columns = &TALLY_MODEL_COLUMNS},
    [TALLY_PG_MODEL_GET] = {.sql = "SELECT point FROM model_points WHERE job_key = $1::int8"
                                   " AND slot = $2::int8"},
    [TALLY_PG_CHECK] = {.sql = "UPDATE job_keys SET last_key = last_key"},

    /* RETURN_TIME makes up for renewals that a crash of the database loses. */
    [TALLY_PG_BEGIN_RENEWAL] = {.sql = "SELECT set_config('synchronous_commit', 'off', true)"},
    [TALLY_PG_RETURN_TIME] =
        {.sql =
             "UPDATE replicas r SET expires_at = r.expires_at + (clock_timestamp() - c.renewed_at)"
             " FROM (SELECT renewed_at FROM lease_clock FOR UPDATE) c"
             " WHERE clock_timestamp() - c.renewed_at > r.lease / 2"},
    [TALLY_PG_TICK] = {.sql = "UPDATE lease_clock SET renewed_at = clock_timestamp()"},
    [TALLY_PG_RENEW] =
        {.sql = "UPDATE replicas SET expires_at = clock_timestamp() + lease, address = $3::text,"
                " jobs = $4::int8, slots = $5::int8, free_slots = $6::int8, wants_key = $7::int8,"
                " wants_slots = $8::int8"
                " WHERE number = $1::int8 AND incarnation = $2::int8 AND is_member"},
    [TALLY_PG_MY_LEASES] = {.sql = "SELECT l.job_key, l.token, " IS_LIVE
                                   " FROM job_leases l JOIN jobs j ON j.job_key = l.job_key"
                                   " WHERE l.job_key = ANY($2::int8[]) AND l.leader = $1::int8"},
    [TALLY_PG_REPLICAS] = {.sql = "SELECT r.number, r.id, r.address, r.jobs, r.slots, r.free_slots,"
                                  " r.wants_key, r.wants_slots, " IS_ALIVE
                                  " FROM replicas r CROSS JOIN lease_clock c WHERE r.is_member"
                                  " ORDER BY r.number"},
    [TALLY_PG_TURN] = {.sql = "SELECT FROM lease_turn FOR UPDATE"},
    /* A dead leader that is only paused, or cut off, may hold fences as long as its connection
     * exists. */
    [TALLY_PG_PREPARE_TAKE] =
        {.sql = "SELECT count(*), count(pg_terminate_backend(a.pid)) FROM " LEASES_AND_LEADERS
                " LEFT JOIN pg_stat_activity a ON a.pid = r.backend_pid"
                " AND a.backend_start = r.backend_start AND r.number <> $1::int8 AND NOT " IS_ALIVE
                " WHERE " IS_TO_BE_TAKEN},
    [TALLY_PG_TAKE] =
        {.sql = "WITH free AS (SELECT l.job_key FROM " LEASES_AND_LEADERS " WHERE " IS_TO_BE_TAKEN
                " AND EXISTS (SELECT FROM replicas"
                " WHERE number = $1::int8 AND incarnation = $3::int8 AND is_member)"
                " ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
                " UPDATE job_leases l SET leader = $1::int8, token = l.token + 1 FROM free"
                " WHERE l.job_key = free.job_key RETURNING l.job_key, l.token"},
    [TALLY_PG_TAKEN_JOBS] =
        {.sql = "SELECT job_key, {names} FROM jobs j WHERE job_key = ANY($1::int8[])"
                " AND " IS_LIVE " ORDER BY job_key",
         .columns = &TALLY_JOB_COLUMNS},
    [TALLY_PG_GIVE] =
        {.sql = "UPDATE job_leases SET leader = $3::int8, token = token + 1"
                " WHERE job_key = $1::int8 AND token = $2::int8"
                " AND EXISTS (SELECT FROM replicas WHERE number = $3::int8 AND is_member)"},
    [TALLY_PG_LEADER_OF] = {.sql = "SELECT j.job_key, " IS_LIVE
                                   ", r.number, r.id, r.address, " IS_ALIVE
                                   " FROM " LEASES_AND_LEADERS " WHERE j.id = $1::text"},
    [TALLY_PG_END_NAMESAKE] =
        {.sql = "SELECT count(pg_terminate_backend(a.pid)) FROM replicas r JOIN pg_stat_activity a"
                " ON a.pid = r.backend_pid AND a.backend_start = r.backend_start"
                " WHERE r.id = $1::text AND a.pid <> pg_backend_pid()"},
    /* A silent replica keeps its number for a week. Then the ended jobs that it led have no leader;
     * its live jobs were taken before. */
    [TALLY_PG_FORGET_LEADERS] =
        {.sql = "WITH ended AS (SELECT l.job_key FROM job_leases l JOIN replicas r ON r.number = "
                "l.leader"
                " JOIN jobs j ON j.job_key = l.job_key WHERE " IS_LONG_DEAD " AND NOT (" IS_LIVE ")"
                " ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
                " UPDATE job_leases l SET leader = NULL, token = l.token + 1 FROM ended"
                " WHERE l.job_key = ended.job_key"},
    [TALLY_PG_FORGET_REPLICAS] =
        {.sql = "DELETE FROM replicas r WHERE " IS_LONG_DEAD
                " AND NOT EXISTS (SELECT FROM job_leases WHERE leader = r.number)"},
    [TALLY_PG_JOIN] =
        {.sql =
             "INSERT INTO replicas AS r (number, id, address, jobs, slots, free_slots, wants_key,"
             " wants_slots, lease, expires_at, is_member, incarnation, backend_pid, backend_start)"
             " SELECT free.number, $1::text, $2::text, $3::int8, $4::int8, $5::int8, $6::int8,"
             " $7::int8, $8::int8" MILLISECOND ", clock_timestamp() + $8::int8" MILLISECOND
             ", true, 1,"
             " pid, backend_start FROM pg_stat_get_activity(pg_backend_pid()),"
             " (SELECT coalesce((SELECT number FROM replicas WHERE id = $1::text),"
             " (SELECT max(number) + 1 FROM replicas HAVING max(number) < $9::int8),"
             " (SELECT n FROM generate_series(1, $9::int8) n"
             " WHERE NOT EXISTS (SELECT FROM replicas WHERE number = n) ORDER BY n LIMIT 1))"
             " AS number) free"
             " WHERE free.number IS NOT NULL"
             " ON CONFLICT (id) DO UPDATE SET address = excluded.address, jobs = excluded.jobs,"
             " slots = excluded.slots, free_slots = excluded.free_slots,"
             " wants_key = excluded.wants_key, wants_slots = excluded.wants_slots,"
             " lease = excluded.lease, expires_at = excluded.expires_at, is_member = true,"
             " incarnation = r.incarnation + 1, backend_pid = excluded.backend_pid,"
             " backend_start = excluded.backend_start"
             " RETURNING number, incarnation"},
    /* No process holds the jobs of the replica any more; the replica still leads them. */
    [TALLY_PG_DISOWN] = {.sql = "WITH mine AS (SELECT l.job_key FROM job_leases l JOIN replicas r "
                                "ON r.number = l.leader"
                                " WHERE r.id = $1::text ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
                                " UPDATE job_leases l SET token = l.token + 1 FROM mine WHERE "
                                "l.job_key = mine.job_key"},
    [TALLY_PG_END_FORMER] =
        {.sql = "SELECT count(pg_terminate_backend(a.pid)) FROM replicas r JOIN pg_stat_activity a"
                " ON a.pid = r.backend_pid AND a.backend_start = r.backend_start"
                " WHERE r.number = $1::int8 AND r.incarnation = $2::int8 AND a.pid <> "
                "pg_backend_pid()"},
    [TALLY_PG_REANNOUNCE] =
        {.sql = "UPDATE replicas r SET backend_pid = a.pid, backend_start = a.backend_start"
                " FROM pg_stat_get_activity(pg_backend_pid()) a"
                " WHERE r.number = $1::int8 AND r.incarnation = $2::int8"},
    [TALLY_PG_RENEW_TOKENS] =
        {.sql =
             "WITH mine AS (SELECT l.job_key FROM job_leases l"
             " JOIN unnest($2::int8[], $3::int8[]) AS h (job_key, token)"
             " ON h.job_key = l.job_key AND h.token = l.token"
             " WHERE l.leader = $1::int8 ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
             " UPDATE job_leases l SET token = l.token + 1 FROM mine WHERE l.job_key = mine.job_key"
             " RETURNING l.job_key, l.token"},
    [TALLY_PG_LEAVE_JOBS] =
        {.sql = "WITH mine AS (SELECT l.job_key FROM job_leases l JOIN replicas r ON r.number = "
                "l.leader"
                " WHERE r.number = $1::int8 AND r.incarnation = $2::int8"
                " ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
                " UPDATE job_leases l SET leader = NULL, token = l.token + 1 FROM mine"
                " WHERE l.job_key = mine.job_key"},
    [TALLY_PG_LEAVE] = {.sql = "UPDATE replicas SET is_member = false"
                               " WHERE number = $1::int8 AND incarnation = $2::int8"},
};

static const char *type_name(enum tally_column_kind kind)
{
    switch (kind) {
    case TALLY_COLUMN_INT64:
    case TALLY_COLUMN_UINT64:
        return "int8";
    case TALLY_COLUMN_REAL:
        return "float8";
    case TALLY_COLUMN_BOOL:
        return "bool";
    case TALLY_COLUMN_TEXT:
    case TALLY_COLUMN_STATUS:
        return "text";
    }
    return "";
}

static enum tally_status append_parameter(struct tally_buffer *out, int number,
                                          enum tally_column_kind kind)
{
    return tally_buffer_printf(out, "$%d::%s", number, type_name(kind));
}

static void name_of(enum tally_pg_sql which, char name[static 16])
{
    snprintf(name, 16, "tally_%d", (int)which);
}

enum tally_status tally_pg_prepare(struct tally_postgres *pg, struct tally_error *err)
{
    struct tally_buffer sql = {0};
    enum tally_status status = TALLY_OK;
    for (int i = 0; i < TALLY_PG_N_SQL && status == TALLY_OK; i++) {
        char name[16];
        name_of((enum tally_pg_sql)i, name);
        sql.size = 0;
        const struct statement_text *text = &STATEMENT_TEXT[i];
        const struct tally_columns_dialect dialect = {.first_parameter = text->first_parameter,
                                                      .append_parameter = append_parameter};
        status = tally_columns_expand(&sql, text->sql, text->columns, &dialect);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the statements of a database");
        } else if (PQsendPrepare(pg->connection, name, (const char *)sql.data, 0, NULL) != 1) {
            pg->is_queue_broken = true;
        }
    }
    tally_buffer_fini(&sql);
    return status == TALLY_OK ? tally_pg_exchange(pg, NULL, NULL, err) : status;
}

/* More than any statement has. */
enum { MAX_PARAMETERS = 64 };

void tally_pg_queue(struct tally_postgres *pg, const struct tally_pg_call *call)
{
    const char *values[MAX_PARAMETERS];
    int lengths[MAX_PARAMETERS];
    int formats[MAX_PARAMETERS];
    assert(call->n_parameters <= MAX_PARAMETERS && call->status == TALLY_OK);
    const uint8_t *rest = call->parameters.data;
    for (int i = 0; i < call->n_parameters; i++) {
        int32_t length = 0;
        memcpy(&length, rest, sizeof length);
        rest += sizeof length;
        values[i] = length >= 0 ? (const char *)rest : NULL;
        lengths[i] = length >= 0 ? length : 0;
        formats[i] = 1;
        rest += lengths[i];
    }
    char name[16];
    name_of(call->which, name);
    if (PQsendQueryPrepared(pg->connection, name, call->n_parameters, values, lengths, formats,
                            1) != 1) {
        pg->is_queue_broken = true;
    }
}

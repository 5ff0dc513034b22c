#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "storage/postgres/postgres_internal.h"

/* Object ids of the types that we use; they are part of PostgreSQL's protocol and never change. */
enum { OID_BOOL = 16, OID_BYTEA = 17, OID_INT8 = 20, OID_TEXT = 25, OID_FLOAT8 = 701 };

/* Text of a statement. {names}, {values} and {sets} stand for the column list of `columns`, its
 * parameters from `first_parameter` on, and "column = parameter" of those that are not fixed. */
struct statement_text {
    const char *sql;
    const struct tally_columns *columns; /* NULL = no {...} */
    int first_parameter;
};

/* "'', 'completed', 'failed', 'cancelled'": a name per terminal status, from the table in record.h.
 * A status that this program does not know is live, so that start-up stumbles over it. */
#define NAME_IF_true(name) ", '" name "'"
#define NAME_IF_false(name)
#define TERMINAL_NAME(symbol, name, terminal) NAME_IF_##terminal(name)
#define TERMINAL_NAMES                        "''" TALLY_JOB_STATUS_TABLE(TERMINAL_NAME)
#define IS_LIVE                               "j.status NOT IN (" TERMINAL_NAMES ")"

/* A write to a job that is not there adds nothing, instead of failing and taking the transaction
 * with it. That it is there cannot change before the end of the transaction, which holds the fence.
 */
#define IF_THERE " WHERE EXISTS (SELECT FROM job_leases WHERE job_key = $1::int8)"

/* Time that counts for leases: it stands still while nobody can renew one because the store itself
 * is away, that is, from half a lease after the last renewal of anybody. */
#define LEASE_NOW   "least(clock_timestamp(), c.renewed_at + r.lease / 2)"
#define IS_ALIVE    "(r.is_member AND r.expires_at >= " LEASE_NOW ")"
#define MILLISECOND " * interval '1 ms'"

#define IS_LONG_DEAD "r.expires_at < clock_timestamp() - interval '7 days'"

/* Jobs that replica $1, which holds those of $2, may take. Leading one without holding it means
 * that it was given, or that the answer to a take() was lost. */
#define IS_TO_BE_TAKEN                                                                             \
    IS_LIVE " AND (l.leader IS NULL OR (l.leader <> $1::int8 AND NOT " IS_ALIVE                    \
            ") OR (l.leader = $1::int8 AND NOT l.job_key = ANY($2::int8[])))"
#define LEASES_AND_LEADERS                                                                         \
    "job_leases l JOIN jobs j ON j.job_key = l.job_key CROSS JOIN lease_clock c"                   \
    " LEFT JOIN replicas r ON r.number = l.leader"

static const struct statement_text STATEMENT_TEXT[TALLY_PG_N_SQL] = {
    [TALLY_PG_BEGIN] = {"BEGIN", NULL, 0},
    [TALLY_PG_COMMIT] = {"COMMIT", NULL, 0},
    [TALLY_PG_ROLLBACK] = {"ROLLBACK", NULL, 0},
    /* Whoever wants to change a lease waits for this lock. In the order of the keys, so that two
     * who lock several wait for each other only one way. */
    [TALLY_PG_FENCE] = {"SELECT job_key, token, leader IS NULL FROM job_leases"
                        " WHERE job_key = ANY($1::int8[]) ORDER BY job_key FOR NO KEY UPDATE",
                        NULL, 0},
    /* $1: NULL, or the key that the job got before the transaction had to be run again.
     * Transactions that insert follow each other, so that keys become visible in ascending order.
     */
    [TALLY_PG_JOB_INSERT] =
        {"WITH key AS (UPDATE job_keys SET last_key ="
         " CASE WHEN $1::int8 IS NULL THEN last_key + 1 ELSE greatest(last_key, $1::int8) END"
         " WHERE NOT EXISTS (SELECT FROM jobs WHERE id = $6::text OR idempotency_key = $2::text)"
         " RETURNING coalesce($1::int8, last_key) AS job_key),"
         " job AS (INSERT INTO jobs (job_key, idempotency_key, request_digest, {names})"
         " SELECT job_key, $2::text, $3::int8, {values} FROM key ON CONFLICT DO NOTHING"
         " RETURNING job_key),"
         " document AS (INSERT INTO job_documents (job_key, document)"
         " SELECT job_key, $4::bytea FROM job),"
         " lease AS (INSERT INTO job_leases (job_key, leader, token)"
         " SELECT job_key, $5::int8, 1 FROM job)"
         " SELECT job_key FROM job",
         &TALLY_JOB_COLUMNS, 6},
    [TALLY_PG_JOB_UPDATE] = {"UPDATE jobs SET {sets} WHERE job_key = $1::int8", &TALLY_JOB_COLUMNS,
                             2},
    [TALLY_PG_STATE_PUT] =
        {"WITH appended AS (DELETE FROM job_state_changes WHERE job_key = $1::int8)"
         " INSERT INTO job_states (job_key, state) SELECT $1::int8, $2::bytea" IF_THERE
         " ON CONFLICT (job_key) DO UPDATE SET state = excluded.state",
         NULL, 0},
    /* No row: there is no state. Else whether this round was new. */
    [TALLY_PG_STATE_APPEND] =
        {"WITH appended AS (INSERT INTO job_state_changes (job_key, round, change)"
         " SELECT job_key, $2::int8, $3::bytea FROM job_states WHERE job_key = $1::int8"
         " ON CONFLICT DO NOTHING RETURNING job_key)"
         " SELECT EXISTS (SELECT FROM appended) FROM job_states WHERE job_key = $1::int8",
         NULL, 0},
    [TALLY_PG_UPDATE_INSERT] = {"INSERT INTO updates (job_key, round, client, body)"
                                " SELECT $1::int8, $2::int8, $3::int8, $4::bytea" IF_THERE
                                " ON CONFLICT DO NOTHING",
                                NULL, 0},
    [TALLY_PG_UPDATES_DELETE] =
        {"DELETE FROM updates WHERE job_key = $1::int8 AND round <= $2::int8", NULL, 0},
    [TALLY_PG_ROUND_INSERT] =
        {"INSERT INTO rounds (job_key, {names}) SELECT $1::int8, {values}" IF_THERE
         " ON CONFLICT DO NOTHING",
         &TALLY_ROUND_COLUMNS, 2},
    [TALLY_PG_JOB_GET] = {"SELECT job_key, {names} FROM jobs WHERE id = $1::text",
                          &TALLY_JOB_COLUMNS, 0},
    [TALLY_PG_JOB_BY_IDEMPOTENCY_KEY] =
        {"SELECT job_key, {names}, request_digest FROM jobs WHERE idempotency_key = $1::text",
         &TALLY_JOB_COLUMNS, 0},
    [TALLY_PG_REQUEST_GET] = {"SELECT idempotency_key, request_digest FROM jobs"
                              " WHERE job_key = $1::int8",
                              NULL, 0},
    [TALLY_PG_JOB_LIST] = {"SELECT job_key, {names} FROM jobs WHERE job_key < $1::int8"
                           " AND ($2::text IS NULL OR status = $2::text)"
                           " ORDER BY job_key DESC LIMIT $3::int8",
                           &TALLY_JOB_COLUMNS, 0},
    [TALLY_PG_JOB_LIST_LIVE] = {"SELECT job_key, {names} FROM jobs j WHERE job_key > $1::int8"
                                " AND " IS_LIVE " ORDER BY job_key LIMIT $2::int8",
                                &TALLY_JOB_COLUMNS, 0},
    [TALLY_PG_DOCUMENT_GET] = {"SELECT document FROM job_documents WHERE job_key = $1::int8", NULL,
                               0},
    [TALLY_PG_STATE_GET] =
        {"SELECT state || (SELECT CASE WHEN count(change) = count(*)" /* no NULL is passed over */
         " THEN coalesce(string_agg(change, ''::bytea ORDER BY round), ''::bytea) END"
         " FROM job_state_changes WHERE job_key = $1::int8) AS state"
         " FROM job_states WHERE job_key = $1::int8",
         NULL, 0},
    [TALLY_PG_UPDATE_LIST] = {"SELECT round, client, body FROM updates WHERE job_key = $1::int8"
                              " AND round = $2::int8 AND client > $3::int8"
                              " ORDER BY client LIMIT $4::int8",
                              NULL, 0},
    [TALLY_PG_ROUND_LIST] = {"SELECT {names} FROM rounds WHERE job_key = $1::int8"
                             " AND round > $2::int8 ORDER BY round LIMIT $3::int8",
                             &TALLY_ROUND_COLUMNS, 0},
    [TALLY_PG_CHECK] = {"UPDATE job_keys SET last_key = last_key", NULL, 0},

    /* Renewals: what a crash of the database takes of them is made up for by RETURN_TIME. */
    [TALLY_PG_BEGIN_RENEWAL] = {"SELECT set_config('synchronous_commit', 'off', true)", NULL, 0},
    [TALLY_PG_RETURN_TIME] =
        {"UPDATE replicas r SET expires_at = r.expires_at + (clock_timestamp() - c.renewed_at)"
         " FROM (SELECT renewed_at FROM lease_clock FOR UPDATE) c"
         " WHERE clock_timestamp() - c.renewed_at > r.lease / 2",
         NULL, 0},
    [TALLY_PG_TICK] = {"UPDATE lease_clock SET renewed_at = clock_timestamp()", NULL, 0},
    [TALLY_PG_RENEW] =
        {"UPDATE replicas SET expires_at = clock_timestamp() + lease, address = $3::text,"
         " jobs = $4::int8, slots = $5::int8, free_slots = $6::int8, wants_key = $7::int8,"
         " wants_slots = $8::int8"
         " WHERE number = $1::int8 AND incarnation = $2::int8 AND is_member",
         NULL, 0},
    [TALLY_PG_MY_LEASES] = {"SELECT l.job_key, l.token, " IS_LIVE
                            " FROM job_leases l JOIN jobs j ON j.job_key = l.job_key"
                            " WHERE l.job_key = ANY($2::int8[]) AND l.leader = $1::int8",
                            NULL, 0},
    [TALLY_PG_REPLICAS] = {"SELECT r.number, r.id, r.address, r.jobs, r.slots, r.free_slots,"
                           " r.wants_key, r.wants_slots, " IS_ALIVE
                           " FROM replicas r CROSS JOIN lease_clock c WHERE r.is_member"
                           " ORDER BY r.number",
                           NULL, 0},
    [TALLY_PG_TURN] = {"SELECT FROM lease_turn FOR UPDATE", NULL, 0},
    /* A dead leader that is only paused, or cut off, may hold fences for as long as its connection
     * stands. */
    [TALLY_PG_PREPARE_TAKE] =
        {"SELECT count(*), count(pg_terminate_backend(a.pid)) FROM " LEASES_AND_LEADERS
         " LEFT JOIN pg_stat_activity a ON a.pid = r.backend_pid"
         " AND a.backend_start = r.backend_start AND r.number <> $1::int8 AND NOT " IS_ALIVE
         " WHERE " IS_TO_BE_TAKEN,
         NULL, 0},
    [TALLY_PG_TAKE] = {"WITH free AS (SELECT l.job_key FROM " LEASES_AND_LEADERS
                       " WHERE " IS_TO_BE_TAKEN " AND EXISTS (SELECT FROM replicas"
                       " WHERE number = $1::int8 AND incarnation = $3::int8 AND is_member)"
                       " ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
                       " UPDATE job_leases l SET leader = $1::int8, token = l.token + 1 FROM free"
                       " WHERE l.job_key = free.job_key RETURNING l.job_key, l.token",
                       NULL, 0},
    [TALLY_PG_TAKEN_JOBS] = {"SELECT job_key, {names} FROM jobs j WHERE job_key = ANY($1::int8[])"
                             " AND " IS_LIVE " ORDER BY job_key",
                             &TALLY_JOB_COLUMNS, 0},
    [TALLY_PG_GIVE] = {"UPDATE job_leases SET leader = $3::int8, token = token + 1"
                       " WHERE job_key = $1::int8 AND token = $2::int8"
                       " AND EXISTS (SELECT FROM replicas WHERE number = $3::int8 AND is_member)",
                       NULL, 0},
    [TALLY_PG_LEADER_OF] = {"SELECT j.job_key, " IS_LIVE ", r.number, r.id, r.address, " IS_ALIVE
                            " FROM " LEASES_AND_LEADERS " WHERE j.id = $1::text",
                            NULL, 0},
    [TALLY_PG_END_NAMESAKE] =
        {"SELECT count(pg_terminate_backend(a.pid)) FROM replicas r JOIN pg_stat_activity a"
         " ON a.pid = r.backend_pid AND a.backend_start = r.backend_start"
         " WHERE r.id = $1::text AND a.pid <> pg_backend_pid()",
         NULL, 0},
    /* Numbers are kept, but not for ever: where processes are made and named by the hundred, those
     * that were last heard of a week ago come back no more. Jobs that they led to the end are
     * nobody's then; live ones are taken from them first. */
    [TALLY_PG_FORGET_LEADERS] =
        {"WITH ended AS (SELECT l.job_key FROM job_leases l JOIN replicas r ON r.number = l.leader"
         " JOIN jobs j ON j.job_key = l.job_key WHERE " IS_LONG_DEAD " AND NOT (" IS_LIVE ")"
         " ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
         " UPDATE job_leases l SET leader = NULL, token = l.token + 1 FROM ended"
         " WHERE l.job_key = ended.job_key",
         NULL, 0},
    [TALLY_PG_FORGET_REPLICAS] =
        {"DELETE FROM replicas r WHERE " IS_LONG_DEAD
         " AND NOT EXISTS (SELECT FROM job_leases WHERE leader = r.number)",
         NULL, 0},
    [TALLY_PG_JOIN] =
        {"INSERT INTO replicas AS r (number, id, address, jobs, slots, free_slots, wants_key,"
         " wants_slots, lease, expires_at, is_member, incarnation, backend_pid, backend_start)"
         " SELECT free.number, $1::text, $2::text, $3::int8, $4::int8, $5::int8, $6::int8,"
         " $7::int8, $8::int8" MILLISECOND ", clock_timestamp() + $8::int8" MILLISECOND ", true, 1,"
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
         " RETURNING number, incarnation",
         NULL, 0},
    /* Nobody holds the jobs of a replica any more; they stay its own. */
    [TALLY_PG_DISOWN] =
        {"WITH mine AS (SELECT l.job_key FROM job_leases l JOIN replicas r ON r.number = l.leader"
         " WHERE r.id = $1::text ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
         " UPDATE job_leases l SET token = l.token + 1 FROM mine WHERE l.job_key = mine.job_key",
         NULL, 0},
    [TALLY_PG_END_FORMER] =
        {"SELECT count(pg_terminate_backend(a.pid)) FROM replicas r JOIN pg_stat_activity a"
         " ON a.pid = r.backend_pid AND a.backend_start = r.backend_start"
         " WHERE r.number = $1::int8 AND r.incarnation = $2::int8 AND a.pid <> pg_backend_pid()",
         NULL, 0},
    [TALLY_PG_REANNOUNCE] =
        {"UPDATE replicas r SET backend_pid = a.pid, backend_start = a.backend_start"
         " FROM pg_stat_get_activity(pg_backend_pid()) a"
         " WHERE r.number = $1::int8 AND r.incarnation = $2::int8",
         NULL, 0},
    [TALLY_PG_RENEW_TOKENS] =
        {"WITH mine AS (SELECT l.job_key FROM job_leases l"
         " JOIN unnest($2::int8[], $3::int8[]) AS h (job_key, token)"
         " ON h.job_key = l.job_key AND h.token = l.token"
         " WHERE l.leader = $1::int8 ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
         " UPDATE job_leases l SET token = l.token + 1 FROM mine WHERE l.job_key = mine.job_key"
         " RETURNING l.job_key, l.token",
         NULL, 0},
    [TALLY_PG_LEAVE_JOBS] =
        {"WITH mine AS (SELECT l.job_key FROM job_leases l JOIN replicas r ON r.number = l.leader"
         " WHERE r.number = $1::int8 AND r.incarnation = $2::int8"
         " ORDER BY l.job_key FOR NO KEY UPDATE OF l)"
         " UPDATE job_leases l SET leader = NULL, token = l.token + 1 FROM mine"
         " WHERE l.job_key = mine.job_key",
         NULL, 0},
    [TALLY_PG_LEAVE] = {"UPDATE replicas SET is_member = false"
                        " WHERE number = $1::int8 AND incarnation = $2::int8",
                        NULL, 0},
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

/* A column in the list that begins with `token`. */
static enum tally_status append_column(struct tally_buffer *out, char token,
                                       const struct tally_column *column, int parameter)
{
    switch (token) {
    case 'n':
        return tally_buffer_append_text(out, column->name);
    case 'v':
        return tally_buffer_printf(out, "$%d::%s", parameter, type_name(column->kind));
    default:
        return tally_buffer_printf(out, "%s = $%d::%s", column->name, parameter,
                                   type_name(column->kind));
    }
}

/* {names}, {values} or {sets}, told apart by the first letter. */
static enum tally_status append_list(struct tally_buffer *out, const struct statement_text *text,
                                     char token)
{
    enum tally_status status = TALLY_OK;
    int parameter = text->first_parameter;
    const char *comma = "";
    for (int i = 0; i < text->columns->n_columns && status == TALLY_OK; i++) {
        const struct tally_column *column = &text->columns->column[i];
        if (token == 's' && column->fixed) {
            continue;
        }
        status = tally_buffer_append_text(out, comma);
        if (status == TALLY_OK) {
            status = append_column(out, token, column, parameter++);
        }
        comma = ", ";
    }
    return status;
}

/* Writes the statement with its {...} filled in, and a NUL. */
static enum tally_status expand(struct tally_buffer *out, const struct statement_text *text)
{
    enum tally_status status = TALLY_OK;
    const char *rest = text->sql;
    while (rest[0] != '\0' && status == TALLY_OK) {
        size_t n = strcspn(rest, "{");
        status = tally_buffer_append(out, rest, n);
        rest += n;
        if (rest[0] == '{' && status == TALLY_OK) {
            status = append_list(out, text, rest[1]);
            rest += strcspn(rest, "}") + 1;
        }
    }
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
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
        status = expand(&sql, &STATEMENT_TEXT[i]);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the statements of a database");
        } else if (PQsendPrepare(pg->connection, name, (const char *)sql.data, 0, NULL) != 1) {
            pg->is_queue_broken = true;
        }
    }
    tally_buffer_fini(&sql);
    return status == TALLY_OK ? tally_pg_exchange(pg, NULL, NULL, err) : status;
}

struct tally_pg_call tally_pg_call(enum tally_pg_sql which)
{
    return (struct tally_pg_call){.which = which};
}

void tally_pg_call_fini(struct tally_pg_call *call)
{
    tally_buffer_fini(&call->parameters);
}

/* n < 0 is NULL. */
static void bind_value(struct tally_pg_call *call, const void *bytes, int64_t n)
{
    int32_t length = (int32_t)n;
    if (n > INT32_MAX && call->status == TALLY_OK) {
        call->status = TALLY_TOO_LARGE;
    }
    if (call->status == TALLY_OK) {
        call->status = tally_buffer_append(&call->parameters, &length, sizeof length);
    }
    if (call->status == TALLY_OK && n > 0) {
        call->status = tally_buffer_append(&call->parameters, bytes, (size_t)n);
    }
    call->n_parameters++;
}

void tally_pg_bind_int64(struct tally_pg_call *call, int64_t value)
{
    tally_pg_bind_uint64(call, (uint64_t)value);
}

void tally_pg_bind_uint64(struct tally_pg_call *call, uint64_t value)
{
    uint64_t bytes = htobe64(value);
    bind_value(call, &bytes, sizeof bytes);
}

void tally_pg_bind_null(struct tally_pg_call *call)
{
    bind_value(call, NULL, -1);
}

void tally_pg_bind_text(struct tally_pg_call *call, const char *text)
{
    if (text == NULL) {
        tally_pg_bind_null(call);
        return;
    }
    struct tally_buffer stored = {0};
    enum tally_status status = tally_pg_text_encode(&stored, text);
    if (status != TALLY_OK && call->status == TALLY_OK) {
        call->status = status;
    }
    bind_value(call, stored.data, (int64_t)stored.size);
    tally_buffer_fini(&stored);
}

void tally_pg_bind_bytes(struct tally_pg_call *call, const void *bytes, size_t n)
{
    bind_value(call, bytes, n <= INT32_MAX ? (int64_t)n : INT64_MAX);
}

/* An array of one dimension, counted from 1, without NULL. */
static void bind_array(struct tally_pg_call *call, const struct tally_lease_set *leases,
                       bool tokens)
{
    struct tally_buffer array = {0};
    size_t n = tally_lease_count(leases);
    const uint32_t head[5] = {htonl(n > 0 ? 1 : 0), 0, htonl(OID_INT8), htonl((uint32_t)n),
                              htonl(1)};
    enum tally_status status =
        tally_buffer_append(&array, head, n > 0 ? sizeof head : 3 * sizeof head[0]);
    for (size_t i = 0; i < leases->n && status == TALLY_OK; i++) {
        if (leases->leases[i].has_ended) {
            continue;
        }
        uint32_t length = htonl(8);
        uint64_t value =
            htobe64((uint64_t)(tokens ? leases->leases[i].token : leases->leases[i].job_key));
        status = tally_buffer_append(&array, &length, sizeof length);
        if (status == TALLY_OK) {
            status = tally_buffer_append(&array, &value, sizeof value);
        }
    }
    if (status != TALLY_OK && call->status == TALLY_OK) {
        call->status = status;
    }
    bind_value(call, array.data, (int64_t)array.size);
    tally_buffer_fini(&array);
}

void tally_pg_bind_keys(struct tally_pg_call *call, const struct tally_lease_set *leases)
{
    bind_array(call, leases, false);
}

void tally_pg_bind_tokens(struct tally_pg_call *call, const struct tally_lease_set *leases)
{
    bind_array(call, leases, true);
}

static void bind_member(struct tally_pg_call *call, enum tally_column_kind kind, const void *member)
{
    uint64_t bits = 0;
    char is_true = 0;
    switch (kind) {
    case TALLY_COLUMN_INT64:
    case TALLY_COLUMN_UINT64:
    case TALLY_COLUMN_REAL: /* all bits of it: the sign of zero, whichever NaN */
        memcpy(&bits, member, sizeof bits);
        tally_pg_bind_uint64(call, bits);
        break;
    case TALLY_COLUMN_BOOL:
        is_true = *(const bool *)member ? 1 : 0;
        bind_value(call, &is_true, 1);
        break;
    case TALLY_COLUMN_TEXT:
        tally_pg_bind_text(call, member);
        break;
    case TALLY_COLUMN_STATUS:
        tally_pg_bind_text(call, tally_job_status_name(*(const enum tally_job_status *)member));
        break;
    }
}

void tally_pg_bind_row(struct tally_pg_call *call, const struct tally_columns *columns,
                       const void *row, bool moving_only)
{
    for (int i = 0; i < columns->n_columns; i++) {
        const struct tally_column *column = &columns->column[i];
        if (!moving_only || !column->fixed) {
            bind_member(call, column->kind, (const char *)row + column->offset);
        }
    }
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

static enum tally_status fail_value(struct tally_postgres *pg, const PGresult *result, int column,
                                    const char *what, struct tally_error *err)
{
    return tally_fail(err, TALLY_DATA_LOSS, NULL, "database \"%s\": column %s %s", pg->label,
                      PQfname(result, column), what);
}

/* The bytes of a value of the type `oid`, n of them unless n < 0; NULL if it is another. */
static const char *value_of(const PGresult *result, int row, int column, Oid oid, int n)
{
    return PQftype(result, column) == oid && PQgetisnull(result, row, column) == 0 &&
                   (n < 0 || PQgetlength(result, row, column) == n)
               ? PQgetvalue(result, row, column)
               : NULL;
}

static enum tally_status read_bits(struct tally_postgres *pg, const PGresult *result, int row,
                                   int column, Oid oid, void *ret_value, struct tally_error *err)
{
    const char *bytes = value_of(result, row, column, oid, 8);
    if (bytes == NULL) {
        return fail_value(pg, result, column, "holds no number of 8 bytes", err);
    }
    uint64_t bits = 0;
    memcpy(&bits, bytes, sizeof bits);
    bits = be64toh(bits);
    memcpy(ret_value, &bits, sizeof bits);
    return TALLY_OK;
}

enum tally_status tally_pg_read_int64(struct tally_postgres *pg, const PGresult *result, int row,
                                      int column, int64_t *ret_value, struct tally_error *err)
{
    return read_bits(pg, result, row, column, OID_INT8, ret_value, err);
}

enum tally_status tally_pg_read_bool(struct tally_postgres *pg, const PGresult *result, int row,
                                     int column, bool *ret_value, struct tally_error *err)
{
    const char *bytes = value_of(result, row, column, OID_BOOL, 1);
    if (bytes == NULL) {
        return fail_value(pg, result, column, "holds no truth value", err);
    }
    *ret_value = bytes[0] != 0;
    return TALLY_OK;
}

enum tally_status tally_pg_read_text(struct tally_postgres *pg, const PGresult *result, int row,
                                     int column, char *ret_text, size_t capacity,
                                     struct tally_error *err)
{
    const char *bytes = value_of(result, row, column, OID_TEXT, -1);
    if (bytes == NULL) {
        return fail_value(pg, result, column, "holds no text", err);
    }
    return tally_pg_text_decode(bytes, (size_t)PQgetlength(result, row, column), ret_text, capacity)
               ? TALLY_OK
               : fail_value(pg, result, column, "holds too long a text", err);
}

enum tally_status tally_pg_read_bytes(struct tally_postgres *pg, const PGresult *result, int row,
                                      int column, const uint8_t **ret_bytes, size_t *ret_n,
                                      struct tally_error *err)
{
    const char *bytes = value_of(result, row, column, OID_BYTEA, -1);
    if (bytes == NULL) {
        return fail_value(pg, result, column, "holds no bytes", err);
    }
    *ret_bytes = (const uint8_t *)bytes;
    *ret_n = (size_t)PQgetlength(result, row, column);
    return TALLY_OK;
}

static enum tally_status read_status(struct tally_postgres *pg, const PGresult *result, int row,
                                     int column, enum tally_job_status *ret_status,
                                     struct tally_error *err)
{
    char name[32];
    enum tally_status status = tally_pg_read_text(pg, result, row, column, name, sizeof name, err);
    if (status == TALLY_OK && !tally_job_status_of_name(name, ret_status)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "database \"%s\": column %s holds \"%s\"",
                          pg->label, PQfname(result, column), name);
    }
    return status;
}

static enum tally_status read_member(struct tally_postgres *pg, const PGresult *result, int row,
                                     int column, const struct tally_column *what, void *member,
                                     struct tally_error *err)
{
    switch (what->kind) {
    case TALLY_COLUMN_INT64:
    case TALLY_COLUMN_UINT64: /* the same bits */
        return read_bits(pg, result, row, column, OID_INT8, member, err);
    case TALLY_COLUMN_REAL:
        return read_bits(pg, result, row, column, OID_FLOAT8, member, err);
    case TALLY_COLUMN_BOOL:
        return tally_pg_read_bool(pg, result, row, column, member, err);
    case TALLY_COLUMN_TEXT:
        return tally_pg_read_text(pg, result, row, column, member, what->capacity, err);
    case TALLY_COLUMN_STATUS:
        return read_status(pg, result, row, column, member, err);
    }
    return TALLY_INTERNAL;
}

enum tally_status tally_pg_read_row(struct tally_postgres *pg, const PGresult *result, int row,
                                    int first, const struct tally_columns *columns, void *ret_row,
                                    struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (int i = 0; i < columns->n_columns && status == TALLY_OK; i++) {
        const struct tally_column *column = &columns->column[i];
        status =
            read_member(pg, result, row, first + i, column, (char *)ret_row + column->offset, err);
    }
    return status;
}

enum tally_status tally_pg_read_job(struct tally_postgres *pg, const PGresult *result, int row,
                                    struct tally_store_job *ret_job, struct tally_error *err)
{
    struct tally_store_job job = {0};
    enum tally_status status = tally_pg_read_int64(pg, result, row, 0, &job.key, err);
    if (status == TALLY_OK) {
        status = tally_pg_read_row(pg, result, row, 1, &TALLY_JOB_COLUMNS, &job, err);
    }
    if (status == TALLY_OK) {
        *ret_job = job;
    }
    return status;
}

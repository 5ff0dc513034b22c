/* postgres_values: parameters of a statement, and the values of a row, in PostgreSQL's binary
 * format.
 *
 * Binary, so that -0.0, every NaN and all 64 bits of a counter come back as they were. */
#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "storage/postgres/postgres_internal.h"

/* Object ids of the types that we use; they are part of PostgreSQL's protocol and never change. */
enum { OID_BOOL = 16, OID_BYTEA = 17, OID_INT8 = 20, OID_TEXT = 25, OID_FLOAT8 = 701 };

struct tally_pg_call tally_pg_call(enum tally_pg_sql which)
{
    return (struct tally_pg_call){.which = which};
}

void tally_pg_call_fini(struct tally_pg_call *call)
{
    tally_buffer_fini(&call->parameters);
}

/* A negative n binds NULL. */
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

/* A one-dimensional array with indexes from 1, without NULLs. */
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
    case TALLY_COLUMN_REAL: /* with all bits, to keep the sign of zero and every NaN */
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

struct tally_pg_row tally_pg_row(struct tally_postgres *pg, const PGresult *result, int row,
                                 struct tally_error *err)
{
    return (struct tally_pg_row){.pg = pg, .result = result, .row = row, .err = err};
}

static void fail_value(struct tally_pg_row *row, const char *what)
{
    if (row->status == TALLY_OK) {
        row->status = tally_fail(row->err, TALLY_DATA_LOSS, NULL, "database \"%s\": column %s %s",
                                 row->pg->label, PQfname(row->result, row->column), what);
    }
}

bool tally_pg_is_null(const struct tally_pg_row *row)
{
    return PQgetisnull(row->result, row->row, row->column) != 0;
}

/* The bytes of the next value, which must be of the type `oid` and, unless n < 0, have n bytes.
 * NULL after a failure, including one of this call, which `what` describes. */
static const char *take_value(struct tally_pg_row *row, Oid oid, int n, const char *what,
                              size_t *ret_n)
{
    const int n_bytes = PQgetlength(row->result, row->row, row->column);
    if (PQftype(row->result, row->column) != oid || tally_pg_is_null(row) ||
        (n >= 0 && n_bytes != n)) {
        fail_value(row, what);
    }
    if (row->status != TALLY_OK) {
        return NULL;
    }
    *ret_n = (size_t)n_bytes;
    return PQgetvalue(row->result, row->row, row->column++);
}

static uint64_t take_bits(struct tally_pg_row *row, Oid oid)
{
    uint64_t bits = 0;
    size_t n = 0;
    const char *bytes = take_value(row, oid, sizeof bits, "holds no number of 8 bytes", &n);
    if (bytes != NULL) {
        memcpy(&bits, bytes, sizeof bits);
    }
    return be64toh(bits);
}

int64_t tally_pg_take_int64(struct tally_pg_row *row)
{
    return (int64_t)take_bits(row, OID_INT8);
}

bool tally_pg_take_bool(struct tally_pg_row *row)
{
    size_t n = 0;
    const char *bytes = take_value(row, OID_BOOL, 1, "holds no truth value", &n);
    return bytes != NULL && bytes[0] != 0;
}

void tally_pg_take_text(struct tally_pg_row *row, char *ret_text, size_t capacity)
{
    size_t n = 0;
    const char *bytes = take_value(row, OID_TEXT, -1, "holds no text", &n);
    if (bytes != NULL && !tally_pg_text_decode(bytes, n, ret_text, capacity)) {
        row->column--;
        fail_value(row, "holds text that is too long");
    }
}

const uint8_t *tally_pg_take_bytes(struct tally_pg_row *row, size_t *ret_n)
{
    return (const uint8_t *)take_value(row, OID_BYTEA, -1, "holds no bytes", ret_n);
}

static void take_status(struct tally_pg_row *row, enum tally_job_status *ret_status)
{
    char name[32];
    tally_pg_take_text(row, name, sizeof name);
    if (row->status == TALLY_OK && !tally_job_status_of_name(name, ret_status)) {
        row->status =
            tally_fail(row->err, TALLY_DATA_LOSS, NULL, "database \"%s\": column %s holds \"%s\"",
                       row->pg->label, PQfname(row->result, row->column - 1), name);
    }
}

static void take_member(struct tally_pg_row *row, const struct tally_column *column, void *member)
{
    uint64_t bits = 0;
    switch (column->kind) {
    case TALLY_COLUMN_INT64:
    case TALLY_COLUMN_UINT64: /* the same bits */
    case TALLY_COLUMN_REAL:
        bits = take_bits(row, column->kind == TALLY_COLUMN_REAL ? OID_FLOAT8 : OID_INT8);
        memcpy(member, &bits, sizeof bits);
        break;
    case TALLY_COLUMN_BOOL:
        *(bool *)member = tally_pg_take_bool(row);
        break;
    case TALLY_COLUMN_TEXT:
        tally_pg_take_text(row, member, column->capacity);
        break;
    case TALLY_COLUMN_STATUS:
        take_status(row, member);
        break;
    }
}

void tally_pg_take_columns(struct tally_pg_row *row, const struct tally_columns *columns,
                           void *ret_struct)
{
    for (int i = 0; i < columns->n_columns && row->status == TALLY_OK; i++) {
        const struct tally_column *column = &columns->column[i];
        take_member(row, column, (char *)ret_struct + column->offset);
    }
}

void tally_pg_take_job(struct tally_pg_row *row, struct tally_store_job *ret_job)
{
    *ret_job = (struct tally_store_job){.key = tally_pg_take_int64(row)};
    tally_pg_take_columns(row, &TALLY_JOB_COLUMNS, ret_job);
}

/* sqlite_checksum: the SQL function tally_checksum(value, ...). Every row has this checksum over
 * its own table, key and columns.
 *
 * SQLite has no page checksums: a bit that flips inside a value would be read as another value. So
 * the statement that writes a row computes its checksum in SQL, and every statement that reads rows
 * has a last column `damage`, which is NULL or names the row (sqlite_statement.c):
 *
 *     table, key   | columns                      | row_checksum
 *     'updates', 7 | round 12, client 3, body ... | tally_checksum('updates', 7, 12, 3, body)
 *
 * The key is covered, so that a row under another key counts as damaged, too. A row of `jobs` has
 * two sums: fixed_checksum over the columns that are written once, and row_checksum over
 * fixed_checksum and the others. With one sum each update would have to read the fixed columns
 * back, and so would accept damage to them.
 *
 * Each value adds two words, its type and length, and then its bytes: the 8 bytes of an integer or
 * a real, the content of a text or a blob. Of a content of LONG_BYTES or more it adds the digest,
 * which takes a quarter of the time. So two rows that differ in any bit of a value, or in
 * where a value ends, differ in what is summed. The result is the int64 of the same bits. It is
 * stored, so a change here needs a new schema version. */
#include <string.h>

#include "codec/numeric/checksum.h"
#include "storage/sqlite/sqlite_internal.h"

enum { LONG_BYTES = 4096 };

static uint64_t add_bytes(uint64_t sum, const void *bytes, size_t n)
{
    if (n < LONG_BYTES) {
        return tally_checksum64_more(sum, bytes, n);
    }
    const uint64_t digest = tally_digest64(bytes, n);
    return tally_checksum64_more(sum, &digest, sizeof digest);
}

static uint64_t add_value(uint64_t sum, sqlite3_value *value)
{
    const int type = sqlite3_value_type(value);
    int64_t integer = 0;
    double real = 0;
    const void *bytes = NULL;
    size_t n = 0;
    if (type == SQLITE_INTEGER) {
        integer = sqlite3_value_int64(value);
        bytes = &integer;
        n = sizeof integer;
    } else if (type == SQLITE_FLOAT) {
        real = sqlite3_value_double(value);
        bytes = &real;
        n = sizeof real;
    } else if (type != SQLITE_NULL) {
        bytes = sqlite3_value_blob(value);
        n = (size_t)sqlite3_value_bytes(value);
    }
    const uint64_t head[2] = {(uint64_t)type, n};
    sum = tally_checksum64_more(sum, head, sizeof head);
    return n > 0 && bytes != NULL ? add_bytes(sum, bytes, n) : sum;
}

static void checksum(sqlite3_context *context, int n_values, sqlite3_value **values)
{
    uint64_t sum = TALLY_CHECKSUM_SEED;
    for (int i = 0; i < n_values; i++) {
        sum = add_value(sum, values[i]);
    }
    int64_t same_bits = 0;
    memcpy(&same_bits, &sum, sizeof same_bits);
    sqlite3_result_int64(context, same_bits);
}

int tally_sqlite_add_checksum(sqlite3 *db)
{
    return sqlite3_create_function_v2(db, "tally_checksum", -1,
                                      SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, NULL,
                                      checksum, NULL, NULL, NULL);
}

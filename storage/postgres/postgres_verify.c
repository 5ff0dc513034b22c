/* postgres_verify: reads every row of a database in one snapshot. */
#include "storage/digest.h"
#include "storage/postgres/postgres.h"
#include "storage/postgres/postgres_internal.h"

static void count(const struct tally_store_digest *digest, struct tally_store_report *report)
{
    report->n_jobs = (int64_t)digest->n_jobs;
    report->n_rounds = tally_store_digest_table(digest, TALLY_TABLE_ROUNDS).n_rows;
    report->n_updates = tally_store_digest_table(digest, TALLY_TABLE_UPDATES).n_rows;
    report->n_models = tally_store_digest_table(digest, TALLY_TABLE_MODELS).n_rows;
    for (size_t i = 0; i < digest->n_jobs; i++) {
        report->n_live_jobs += digest->jobs[i].is_live;
        report->n_client_rows += digest->jobs[i].n_client_rows;
    }
}

enum tally_status tally_pg_verify(const char *conninfo, const struct tally_store_progress *progress,
                                  struct tally_store_report *ret_report, struct tally_error *err)
{
    const struct tally_store_options options = {.read_only = true};
    struct tally_store *store = NULL;
    *ret_report = (struct tally_store_report){0};
    enum tally_status status = TALLY_POSTGRES_BACKEND.open(conninfo, &options, &store, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_postgres *pg = (struct tally_postgres *)store;
    struct tally_store_digest digest = {0};
    ret_report->schema_version = TALLY_SCHEMA_VERSION;
    status =
        tally_pg_ask(pg, "SELECT pg_database_size(current_database())", &ret_report->n_bytes, err);
    if (status == TALLY_OK) {
        status = tally_store_digest_read(store, progress, "reading", 0, &digest, err);
    }
    count(&digest, ret_report);
    tally_store_digest_fini(&digest);
    store->ops->close(store);
    return status;
}

/* memory_database: the rows that several store objects share, and their connections to them. */
#include <assert.h>
#include <stdlib.h>

#include "codec/monotonic.h"
#include "tests/simulation/storage/memory_internal.h"

static int64_t monotonic_ms(void *context)
{
    (void)context;
    return tally_monotonic_ms();
}

enum tally_status tally_memory_database_new(const struct tally_memory_clock *clock,
                                            struct tally_memory_database **ret_database,
                                            struct tally_error *err)
{
    struct tally_memory_database *database = calloc(1, sizeof *database);
    if (database == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the in-memory database");
    }
    database->clock = clock != NULL ? *clock : (struct tally_memory_clock){monotonic_ms, NULL};
    database->renewed_ms = database->clock.now_ms(database->clock.context);
    *ret_database = database;
    return TALLY_OK;
}

void tally_memory_database_free(struct tally_memory_database *database)
{
    if (database == NULL) {
        return;
    }
    assert(database->first == NULL);
    for (size_t i = 0; i < database->n_jobs; i++) {
        tally_memory_job_free(database->jobs[i]);
    }
    while (database->deleted != NULL) {
        struct tally_memory_job *job = database->deleted;
        database->deleted = job->next_deleted;
        tally_memory_job_free(job);
    }
    free(database->jobs);
    free(database->replicas);
    free(database);
}

void tally_memory_database_disconnect(struct tally_store *store)
{
    memory_of(store)->is_lost = true;
}

void tally_memory_database_restart(struct tally_memory_database *database)
{
    for (struct tally_memory_store *memory = database->first; memory != NULL;
         memory = memory->next) {
        memory->is_lost = true;
    }
}

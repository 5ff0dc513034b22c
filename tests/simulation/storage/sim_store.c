#include "tests/simulation/storage/sim_store_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/leases.h"
#include "tests/simulation/checks/lease_invariants.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/storage/memory.h"
#include "tests/simulation/storage/sim_database.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_network.h"
#include "tests/simulation/world/sim_random.h"

/* As in storage/postgres/postgres_session.c and postgres_connection.c. */
enum {
    SILENCE_US = 3000000, /* until a silent connection is closed */
    PATIENCE_US = 20000,  /* of the call that begins a new connection */
    FIRST_BACKOFF_US = 50000,
    MAX_BACKOFF_US = 1000000
};

static struct sim_store_faults faults;

void sim_store_set_faults(const struct sim_store_faults *new_faults)
{
    faults = *new_faults;
}

static struct lease_holder holder_of(const struct sim_store *store)
{
    return (struct lease_holder){.replica = sim_replica_index(store->owner),
                                 .life = sim_replica_life(store->owner),
                                 .number = store->number};
}

enum tally_status sim_store_fail_lost(struct tally_error *err)
{
    return tally_fail(err, TALLY_STORE, NULL, "the connection to the database was lost");
}

static bool is_cut(const struct sim_store *store, bool to_database)
{
    const int place = sim_replica_index(store->owner);
    return !sim_database_is_up() ||
           (to_database ? sim_network_cut_left_us(place, SIM_DATABASE_PLACE)
                        : sim_network_cut_left_us(SIM_DATABASE_PLACE, place)) > 0;
}

/* Fails at once if the connection breaks, else after a silence that is too long. */
static enum tally_status lose_connection(struct sim_store *store, const char *what,
                                         struct tally_error *err)
{
    const bool is_silent = sim_database_is_up() && sim_chance(700);
    sim_note(sim_replica_name(store->owner), "loses the database: %s%s", what,
             is_silent ? ", silently" : "");
    store->is_connected = false;
    store->is_broken = store->in_transaction;
    tally_memory_database_disconnect(store->inner);
    (void)sim_replica_pass(store->owner, is_silent ? SILENCE_US : 0);
    return sim_store_fail_lost(err);
}

static enum tally_status reconnect(struct sim_store *store, struct tally_error *err)
{
    if (sim_now_us() < store->retry_at_us) {
        return sim_store_fail_lost(err);
    }
    const bool fails = is_cut(store, true) || is_cut(store, false);
    if (!sim_replica_pass(store->owner, fails ? PATIENCE_US : 2 * sim_around(faults.delay_us)) ||
        fails) {
        const int64_t twice_us = 2 * store->backoff_us;
        store->backoff_us = twice_us == 0               ? FIRST_BACKOFF_US
                            : twice_us < MAX_BACKOFF_US ? twice_us
                                                        : MAX_BACKOFF_US;
        store->retry_at_us = sim_now_us() + store->backoff_us;
        return sim_store_fail_lost(err);
    }
    sim_note(sim_replica_name(store->owner), "has a connection to the database again");
    store->is_connected = true;
    store->backoff_us = store->retry_at_us = 0;
    return TALLY_OK;
}

/* The way to the database. On error, the call has not arrived. */
enum tally_status sim_store_send(struct sim_store *store, struct tally_error *err)
{
    if (store->in_walk) {
        return TALLY_OK;
    }
    if (sim_replica_is_killed(store->owner) || store->is_broken) {
        return sim_store_fail_lost(err);
    }
    enum tally_status status = TALLY_OK;
    if (!store->is_connected) {
        status = reconnect(store, err);
    }
    if (status == TALLY_OK && !sim_replica_pass(store->owner, sim_around(faults.delay_us))) {
        status = sim_store_fail_lost(err);
    }
    if (status == TALLY_OK && (is_cut(store, true) || sim_chance(faults.lost_requests))) {
        status = lose_connection(store, "the call does not arrive", err);
    }
    return status;
}

/* The way back of a response. */
enum tally_status sim_store_hear(struct sim_store *store, enum tally_status status,
                                 struct tally_error *err)
{
    if (store->in_walk) {
        return status;
    }
    const bool is_lost = is_cut(store, false) || sim_chance(faults.lost_answers);
    if (is_lost || !sim_replica_pass(store->owner, sim_around(faults.delay_us))) {
        if (err != NULL) {
            tally_error_clear(err);
        }
        return is_lost ? lose_connection(store, "the answer does not arrive", err)
                       : sim_store_fail_lost(err);
    }
    return status;
}

/* Transactions. */

static void end_transaction(struct sim_store *store)
{
    store->in_transaction = store->is_broken = false;
    store->n_written = store->n_inserted = 0;
}

static enum tally_status sim_begin(struct tally_store *base, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    assert(!store->in_transaction);
    enum tally_status status = sim_store_send(store, err);
    if (status == TALLY_OK) {
        status = store->inner->ops->begin(store->inner, err);
        store->in_transaction = status == TALLY_OK;
    }
    return status;
}

static enum tally_status sim_flush(struct tally_store *base, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    enum tally_status status = sim_store_send(store, err);
    return status == TALLY_OK
               ? sim_store_hear(store, store->inner->ops->flush(store->inner, err), err)
               : status;
}

/* The database has made the transaction durable. */
static void see_commit(const struct sim_store *store)
{
    const struct lease_holder holder = holder_of(store);
    sim_database_note_change();
    for (int i = 0; i < store->n_inserted; i++) {
        lease_invariants_see_insert(&holder, store->inserted[i]);
    }
    for (int i = 0; i < store->n_written; i++) {
        lease_invariants_see_write(&holder, store->written[i]);
    }
}

static enum tally_status sim_commit(struct tally_store *base, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    sim_replica_note_commit(store->owner);
    enum tally_status status = sim_store_send(store, err);
    if (status == TALLY_OK) {
        status = store->inner->ops->commit(store->inner, err);
        if (status == TALLY_OK) {
            see_commit(store);
        }
        end_transaction(store);
        return sim_store_hear(store, status, err);
    }
    store->inner->ops->rollback(store->inner);
    end_transaction(store);
    return status;
}

static void sim_rollback(struct tally_store *base)
{
    struct sim_store *store = sim_store_of(base);
    store->inner->ops->rollback(store->inner);
    end_transaction(store);
}

static void sim_close(struct tally_store *base)
{
    struct sim_store *store = sim_store_of(base);
    if (store != NULL) {
        store->inner->ops->close(store->inner);
        free(store);
    }
}

/* Leases. */

static enum tally_status sim_join(struct tally_store *base, const struct tally_replica *self,
                                  int64_t lease_ms, int64_t *ret_number, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    enum tally_status status = sim_store_send(store, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = store->inner->leases->join(store->inner, self, lease_ms, ret_number, err);
    if (status == TALLY_OK) {
        store->number = *ret_number;
        const struct lease_holder holder = holder_of(store);
        lease_invariants_see_join(&holder);
    }
    return sim_store_hear(store, status, err);
}

static enum tally_status sim_renew(struct tally_store *base, const struct tally_replica *self,
                                   tally_replica_fn *each, void *context, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    enum tally_status status = sim_store_send(store, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = store->inner->leases->renew(store->inner, self, each, context, err);
    if (status == TALLY_OK) {
        const struct lease_holder holder = holder_of(store);
        lease_invariants_see_renew(&holder);
    }
    return sim_store_hear(store, status, err);
}

/* The rows in transit back. If they are lost, the caller sees none of them, and the connection
 * holds none of their jobs. */
struct taking {
    bool is_lost;
    tally_store_job_fn *each;
    void *context;
};

static enum tally_status hear_taken(void *context, const struct tally_store_job *job,
                                    struct tally_error *err)
{
    const struct taking *taking = context;
    return taking->is_lost ? sim_store_fail_lost(err) : taking->each(taking->context, job, err);
}

/* After take(): the replica leads the jobs that the database says, even if it does not know. */
static enum tally_status see_led(void *context, const struct tally_store_job *job,
                                 struct tally_error *err)
{
    const struct sim_store *store = context;
    struct tally_store *observer = sim_database_observe();
    struct tally_job_leader leader;
    const enum tally_status status = observer->leases->leader_of(observer, job->id, &leader, err);
    if (status == TALLY_OK && leader.has_leader && leader.replica.number == store->number &&
        !lease_invariants_leads(sim_replica_index(store->owner), job->key, 0)) {
        const struct lease_holder holder = holder_of(store);
        lease_invariants_see_take(&holder, job->key);
    }
    return status;
}

static enum tally_status sim_take(struct tally_store *base, tally_store_job_fn *each, void *context,
                                  struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    struct tally_store *observer = sim_database_observe();
    enum tally_status status = sim_store_send(store, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct taking taking = {.is_lost = is_cut(store, false) || sim_chance(faults.lost_answers),
                            .each = each,
                            .context = context};
    status = store->inner->leases->take(store->inner, hear_taken, &taking, err);
    if (status == TALLY_OK || taking.is_lost) {
        (void)observer->ops->job_list_live(observer, see_led, store, NULL);
    }
    if (taking.is_lost) {
        return status == TALLY_OK ? lose_connection(store, "nothing was taken", err)
                                  : lose_connection(store, "what was taken is not heard", NULL);
    }
    return sim_store_hear(store, status, err);
}

static enum tally_status sim_give(struct tally_store *base, int64_t job_key, int64_t replica_number,
                                  struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    enum tally_status status = sim_store_send(store, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = store->inner->leases->give(store->inner, job_key, replica_number, err);
    if (status == TALLY_OK) {
        const struct lease_holder holder = holder_of(store);
        lease_invariants_see_give(&holder, job_key, replica_number);
    }
    return sim_store_hear(store, status, err);
}

static bool sim_holds(const struct tally_store *base, int64_t job_key)
{
    const struct sim_store *store = sim_store_of(base);
    return store->inner->leases->holds(store->inner, job_key);
}

static enum tally_status sim_leader_of(struct tally_store *base, const char *job_id,
                                       struct tally_job_leader *ret_leader, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    const enum tally_status status = sim_store_send(store, err);
    return status == TALLY_OK
               ? sim_store_hear(
                     store, store->inner->leases->leader_of(store->inner, job_id, ret_leader, err),
                     err)
               : status;
}

static enum tally_status sim_leave(struct tally_store *base, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    enum tally_status status = sim_store_send(store, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = store->inner->leases->leave(store->inner, err);
    if (status == TALLY_OK) {
        const struct lease_holder holder = holder_of(store);
        lease_invariants_see_leave(&holder);
    }
    return sim_store_hear(store, status, err);
}

static const struct tally_store_leases LEASES = {
    .join = sim_join,
    .renew = sim_renew,
    .take = sim_take,
    .give = sim_give,
    .holds = sim_holds,
    .leader_of = sim_leader_of,
    .leave = sim_leave,
};

static const struct tally_store_ops OPS = {
    .close = sim_close,
    .begin = sim_begin,
    .flush = sim_flush,
    .commit = sim_commit,
    .rollback = sim_rollback,
};

enum tally_status sim_store_open(struct sim_replica *owner, struct tally_store **ret_store,
                                 struct tally_error *err)
{
    struct sim_store *store = sim_new(sizeof *store);
    store->ops = OPS;
    sim_store_add_calls(&store->ops);
    store->base = (struct tally_store){.ops = &store->ops, .leases = &LEASES};
    store->inner = sim_database_open();
    store->owner = owner;
    const enum tally_status status = reconnect(store, err);
    if (status != TALLY_OK) {
        sim_close(&store->base);
        return status;
    }
    *ret_store = &store->base;
    return TALLY_OK;
}

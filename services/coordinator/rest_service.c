/* rest_service: healthz, readyz. */
#include "services/base/time.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/rest_handlers.h"
#include "services/coordinator/rooms.h"

static enum tally_status answer_state(struct call *call, const char *state, struct tally_error *err)
{
    struct tally_json *answer = tally_json_object();
    if (answer != NULL && !tally_json_set_text(answer, "status", state)) {
        tally_json_free(answer);
        answer = NULL;
    }
    return answer_json(call, 200, answer, err);
}

enum tally_status get_healthz(struct tally_coordinator *coordinator, struct call *call,
                              struct tally_error *err)
{
    (void)coordinator; /* the response shows that the loop runs */
    return answer_state(call, "ok", err);
}

enum tally_status get_readyz(struct tally_coordinator *coordinator, struct call *call,
                             struct tally_error *err)
{
    if (coordinator->draining) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (coordinator->transaction->damage.status !=
        TALLY_OK) { /* until an operator has dealt with it */
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s",
                          coordinator->transaction->damage.message);
    }
    if (!may_serve(&coordinator->view, tally_monotonic_ms())) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "this coordinator has lost its leases: %s",
                          coordinator->transaction->error.message);
    }
    struct tally_store *store = coordinator->store;
    enum tally_status status = store->ops->check(store, err);
    if (status == TALLY_DATA_LOSS) {
        transaction_note_damage(coordinator->transaction, err);
        tally_error_clear(err);
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s",
                          coordinator->transaction->damage.message);
    }
    if (status != TALLY_OK) {
        return status;
    }
    transaction_note_store(coordinator->transaction,
                           &(struct tally_error)TALLY_ERROR_INIT); /* the check is a commit */
    return answer_state(call, "ready", err);
}

/* worker_undeliverable: the jobs of which this worker cannot post an update.
 *
 * A proxy may limit the length of bodies, or refuse the path of PostUpdate. It would give the same
 * answer to every attempt, so the job is left to other workers, as after a refusal. The coordinator
 * learns of it from the next poll, which passes where the long update does not. Later the worker
 * tries again, because the obstacle may be gone: after a pause that doubles with every attempt,
 * until an update of the job is accepted.
 *
 * A proxy also gives temporary answers, such as 503, or none: it closes the connection. If this
 * befalls updates while small calls pass (worker_posting.c), the same holds. If these fail too, the
 * coordinator is away, and the worker keeps the update. A small call that passes may also mean that
 * the coordinator is back. So after the first such failure the worker polls without a word of it,
 * and tries again.
 *
 *     NEW --poll with the reason--> TOLD --pause--> DUE --poll without a reason--> TRYING --> NEW
 *     SUSPECTED (temporary, the first failure) --any poll--> TRYING
 */
#ifndef TALLY_SERVICES_WORKER_WORKER_UNDELIVERABLE_H
#define TALLY_SERVICES_WORKER_WORKER_UNDELIVERABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "api/worker/worker_messages.h"

struct undeliverable; /* one such job */

struct undeliverables {
    struct undeliverable *first;
    struct undeliverable *asked; /* of which the poll in progress speaks; NULL = none */
};

/* Frees the list. */
void undeliverables_fini(struct undeliverables *list);
/* An attempt has failed. Returns the pause before the next, 0 if the job is only suspected. Errors:
 * NO_MEMORY (0 is returned, and the job is not noted). */
int64_t undeliverables_add(struct undeliverables *list, const char *job_id, bool is_temporary,
                           const char *reason);
/* The coordinator is away: forgets the jobs that are only suspected, and those whose attempts have
 * got a temporary answer since the last poll that passed. */
void undeliverables_forget_temporary(struct undeliverables *list);
/* An update of the job has been accepted. */
void undeliverables_remove(struct undeliverables *list, const char *job_id);
/* Whether an attempt has failed since the last poll. */
bool undeliverables_has_new(const struct undeliverables *list, const char *job_id);
/* Whether a task of the job has come although no attempt is due: the coordinator does not know, or
 * knows no longer, that the updates cannot be posted. Then the next poll says it again. */
bool undeliverables_repeat(struct undeliverables *list, const char *job_id);
/* Writes into a poll what is to be said, and shortens its wait to the next attempt. */
void undeliverables_ask(struct undeliverables *list, struct tally_poll_request *request);
/* That poll has been answered. */
void undeliverables_answered(struct undeliverables *list);

#endif

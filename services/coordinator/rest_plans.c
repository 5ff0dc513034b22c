#include "services/coordinator/rest_plans.h"
#include "services/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "services/coordinator/background.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/loop.h"
#include "services/job/document.h"
#include "services/job/job_local.h"
#include "services/job/step_suggestion.h"

struct plan {
    struct background_work work; /* must be first */
    struct tally_job_spec spec;
    char schedule[TALLY_SCHEDULE_CAPACITY];
    struct call *call;
    struct tally_suggestion suggestion;
    /* A copy of the data folder's name: reading may outlive it at the end of the process. */
    char data_dir[];
};

struct plans {
    struct background *background; /* NULL = no plan has been made yet */
    int n;                         /* in progress or waiting */
};

struct plans *plans_new(void)
{
    return tally_xcalloc(1, sizeof(struct plans));
}

static struct plan *plan_at(struct tally_list_node *node)
{
    return (struct plan *)TALLY_LIST_MEMBER(struct background_work, in_works, node);
}

void plans_free(struct tally_coordinator *coordinator)
{
    struct plans *plans = coordinator->plans;
    if (plans != NULL && plans->background != NULL) {
        TALLY_LIST_EACH(node, background_works(plans->background))
        {
            call_free(coordinator, plan_at(node)->call);
        }
        background_free(plans->background);
    }
    free(plans);
    coordinator->plans = NULL;
}

static void make(struct background_work *work)
{
    struct plan *plan = (struct plan *)work;
    tally_local_schedule(&plan->spec, plan->schedule);
    if (tally_suggest_from(&plan->spec, plan->data_dir, &work->stop, &plan->suggestion, NULL) !=
        TALLY_OK) {
        plan->suggestion = tally_suggestion_none(&plan->spec, "it could not be made");
    }
}

bool plans_take(struct tally_coordinator *coordinator, struct call *call,
                const struct tally_job_spec *spec)
{
    struct plans *plans = coordinator->plans;
    const char *dir = coordinator->config.data_dir != NULL ? coordinator->config.data_dir : "";
    const bool is_due = tally_planned_is_due(spec) || tally_suggestion_is_possible(spec);
    if (!is_due || plans->n == MAX_PLANS ||
        (plans->background == NULL &&
         background_new(coordinator->loop->wake_fd, &plans->background, NULL) != TALLY_OK)) {
        return false;
    }
    struct plan *plan = tally_xcalloc(1, sizeof *plan + strlen(dir) + 1);
    memcpy(plan->data_dir, dir, strlen(dir) + 1);
    plan->work.run = make;
    plan->spec = *spec;
    plan->call = call;
    call->is_held = true;
    background_add(plans->background, &plan->work);
    plans->n++;
    return true;
}

static void respond(struct tally_coordinator *coordinator, const struct plan *plan)
{
    struct call *call = plan->call;
    struct tally_planned planned;
    struct tally_error err = TALLY_ERROR_INIT;
    const bool is_planned = tally_planned_read(&plan->spec, plan->schedule, &planned);
    struct tally_json *preview =
        tally_document_preview(&plan->spec, is_planned ? &planned : NULL, &plan->suggestion);
    if (call_answer_json(call, 200, preview, &err) != TALLY_OK) {
        call_answer_error(call, &err);
    }
    call_send(coordinator, call);
}

void plans_serve(struct tally_coordinator *coordinator)
{
    struct plans *plans = coordinator->plans;
    struct background_work *work;
    if (plans->n == 0) {
        return;
    }
    TALLY_LIST_EACH(node, background_works(plans->background))
    {
        if (plan_at(node)->call->request == NULL) { /* its client has disconnected */
            atomic_store(&plan_at(node)->work.stop, true);
        }
    }
    while ((work = background_take(plans->background)) != NULL) {
        respond(coordinator, (struct plan *)work);
        free(work);
        plans->n--;
    }
}

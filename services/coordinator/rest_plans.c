/* The thread shares one plan with the loop. It reads `spec`, writes `schedule`, then sets `done`
 * and wakes the loop. All else belongs to the loop. */
#include "services/coordinator/rest_plans.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/loop.h"
#include "services/job/document.h"
#include "services/job/job_local.h"

struct plan {
    struct tally_job_spec spec;
    char schedule[TALLY_SCHEDULE_CAPACITY];
    int wake_fd;
    atomic_bool done;
    bool runs; /* its thread has begun */
    pthread_t thread;
    struct call *call;
    struct plan *next;
};

struct plans {
    struct plan *first, **last; /* only the first may run */
    int n;
};

enum tally_status plans_new(struct plans **ret_plans, struct tally_error *err)
{
    struct plans *plans = calloc(1, sizeof *plans);
    if (plans == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for plans");
    }
    plans->last = &plans->first;
    *ret_plans = plans;
    return TALLY_OK;
}

static struct plan *pop(struct plans *plans)
{
    struct plan *plan = plans->first;
    plans->first = plan->next;
    if (plans->first == NULL) {
        plans->last = &plans->first;
    }
    plans->n--;
    return plan;
}

void plans_free(struct tally_coordinator *coordinator)
{
    struct plans *plans = coordinator->plans;
    while (plans != NULL && plans->first != NULL) {
        struct plan *plan = pop(plans);
        call_free(coordinator, plan->call);
        if (plan->runs) {
            pthread_detach(plan->thread);
        } else {
            free(plan);
        }
    }
    free(plans);
    coordinator->plans = NULL;
}

static void *make(void *context)
{
    struct plan *plan = context;
    tally_local_schedule(&plan->spec, plan->schedule);
    atomic_store(&plan->done, true);
    const uint64_t one = 1;
    ssize_t n = write(plan->wake_fd, &one, sizeof one);
    (void)n; /* fails only when the counter is full, and then it is readable already */
    return NULL;
}

static void start(struct plan *plan)
{
    plan->runs = pthread_create(&plan->thread, NULL, make, plan) == 0;
}

bool plans_take(struct tally_coordinator *coordinator, struct call *call,
                const struct tally_job_spec *spec)
{
    struct plans *plans = coordinator->plans;
    if (!tally_planned_is_due(spec) || plans->n == MAX_PLANS) {
        return false;
    }
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return false;
    }
    plan->spec = *spec;
    plan->wake_fd = coordinator->loop->wake_fd;
    plan->call = call;
    if (plans->first == NULL) {
        start(plan);
        if (!plan->runs) {
            free(plan);
            return false;
        }
    }
    call->is_held = true;
    *plans->last = plan;
    plans->last = &plan->next;
    plans->n++;
    return true;
}

static void respond(struct tally_coordinator *coordinator, const struct plan *plan)
{
    struct call *call = plan->call;
    struct tally_planned planned;
    struct tally_error err = TALLY_ERROR_INIT;
    const bool is_planned = tally_planned_read(&plan->spec, plan->schedule, &planned);
    struct tally_json *preview = tally_document_preview(&plan->spec, is_planned ? &planned : NULL);
    if (call_answer_json(call, 200, preview, &err) != TALLY_OK) {
        call_answer_error(call, &err);
    }
    call_send(coordinator, call);
}

/* Whether the first plan has ended, or cannot be made for want of a thread. A plan whose client has
 * disconnected is not begun. */
static bool is_over(struct plan *plan)
{
    if (!plan->runs && plan->call->request != NULL) {
        start(plan);
        return !plan->runs;
    }
    return !plan->runs || atomic_load(&plan->done);
}

void plans_serve(struct tally_coordinator *coordinator)
{
    struct plans *plans = coordinator->plans;
    while (plans->first != NULL && is_over(plans->first)) {
        struct plan *plan = pop(plans);
        if (plan->runs) {
            pthread_join(plan->thread, NULL);
        }
        respond(coordinator, plan);
        free(plan);
    }
}

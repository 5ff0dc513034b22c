/* rest_routes: every address of the coordinator, with its handler. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_ROUTES_H
#define TALLY_SERVICES_COORDINATOR_REST_ROUTES_H

#include "services/coordinator/calls.h"

/* ---- The requests of the REST interface, one file per group of routes, and how they are
 * dispatched. */

handler_fn rest_post_job, rest_list_jobs, rest_get_job, rest_get_document, rest_cancel_job,
    rest_pause_job, rest_resume_job, rest_delete_job; /* rest_jobs.c */
handler_fn rest_get_rounds, rest_get_rounds_csv, rest_get_client_metrics, rest_get_client_traffic,
    rest_get_model, rest_list_models, rest_get_scaling; /* rest_results.c */
handler_fn rest_get_workers;                            /* rest_workers.c */
handler_fn rest_get_series;                             /* rest_series.c */
handler_fn rest_get_events;                             /* rest_events.c */
handler_fn rest_import_job;                             /* rest_imports.c */

/* Runs the reads that waited for the commit, for about a millisecond: first those that are brief,
 * then the others and the pieces of long responses in turn (rest_dispatch.c). What is left waits
 * for the next turn. */
void rest_run_reads(struct tally_coordinator *coordinator);
/* Runs the handler of a call again that has been held, in the open turn. */
void rest_run_again(struct tally_coordinator *coordinator, struct call *call);
/* Finds the call's route and checks that the caller may use it (rest_authorization.c). Errors:
 * NOT_FOUND, METHOD_NOT_ALLOWED, MISDIRECTED, UNAUTHENTICATED, PERMISSION_DENIED. */
enum tally_status rest_admit(const struct tally_coordinator *coordinator, struct call *call,
                             struct tally_error *err);

/* Ended by a NULL method. */
extern const struct route ROUTES[];

#endif

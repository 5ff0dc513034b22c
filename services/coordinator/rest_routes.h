/* rest_routes: every address of the coordinator, with its handler. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_ROUTES_H
#define TALLY_SERVICES_COORDINATOR_REST_ROUTES_H

#include "services/coordinator/calls.h"

/* ---- The requests of the REST interface, one file per group of routes, and how they are
 * dispatched. */

handler_fn post_job, list_jobs, get_job, cancel_job, pause_job, resume_job,
    delete_job; /* rest_jobs.c */
handler_fn get_rounds, get_rounds_csv, get_client_metrics, get_client_traffic,
    get_model;                      /* rest_results.c */
handler_fn get_healthz, get_readyz; /* rest_routes.c */
handler_fn get_workers;             /* rest_workers.c */
handler_fn get_series;              /* rest_series.c */
handler_fn get_events;              /* rest_events.c */
handler_fn get_asset;               /* rest_routes.c */

/* Runs the reads that waited for the commit, for about a millisecond: first those that are brief,
 * then the others and the pieces of long responses in turn (rest_dispatch.c). What is left waits
 * for the next turn. */
void run_reads(struct tally_coordinator *coordinator);
/* Finds the call's route and checks that the caller may use it (rest_authorization.c). Errors:
 * NOT_FOUND, METHOD_NOT_ALLOWED, MISDIRECTED, UNAUTHENTICATED, PERMISSION_DENIED. */
enum tally_status admit(const struct tally_coordinator *coordinator, struct call *call,
                        struct tally_error *err);

/* Ended by a NULL method. */
extern const struct route ROUTES[];

#endif

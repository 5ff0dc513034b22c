/* loss_report: the metrics that clients of a built-in objective report if the job asks for them.
 *
 * `accuracy` is the share of a client's own points that x classifies correctly, where x is the
 * point at which the round began. Every client reports it. `test_loss` and, if labels are classes,
 * `test_accuracy` are computed on held-out points. test_loss includes the ridge, to be comparable
 * with the loss. All clients of a round start from the same x, so only client 0 reports the test
 * metrics, except with sharding `local`, where each client reports those of its own file. Metrics
 * draw no random numbers and do not affect anything else that the job computes. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_LOSS_REPORT_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_LOSS_REPORT_H

#include "services/objectives/losses/loss_kind.h"

/* Adds a report to an objective made by `kind->make`, if the spec asks for one, and loads the
 * held-out points. Errors: as `make`, with the field of the held-out points. */
enum tally_status tally_report_add(struct tally_objective *objective,
                                   const struct tally_objective_kind *kind,
                                   const struct tally_objective_spec *spec,
                                   struct tally_rng_key key, const struct tally_data_source *source,
                                   struct tally_error *err);
void tally_report_free(struct tally_report *report); /* NULL is allowed */

/* As tally_objective_metrics(). Omits metrics that are not finite. Precondition: the objective has
 * a report. */
enum tally_status tally_report_metrics(const struct tally_objective *objective, uint32_t client,
                                       const double *x, struct tally_metric *ret_metrics,
                                       size_t *ret_n, struct tally_error *err);

#endif

/* report: the metrics that clients of a built-in objective report if the job asks for them.
 *
 * `accuracy` is the share of a client's own points that the round's point classifies right. Every
 * client reports it. `test_loss` and, of classes, `test_accuracy` are of held-out points, the ridge
 * included, so that test_loss compares with the loss. All clients of a round are at the same point,
 * so only client 0 reports them; with sharding `local` each client does, of its own file. They draw
 * nothing, and enter nothing that the job computes. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_REPORT_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_REPORT_H

#include "services/objectives/losses/kind.h"

/* Adds its report to an objective from `kind->make`, if the spec asks for one; loads the held-out
 * points. Errors: as `make`, with the field of the held-out points. */
enum tally_status tally_report_add(struct tally_objective *objective,
                                   const struct tally_objective_kind *kind,
                                   const struct tally_objective_spec *spec,
                                   struct tally_rng_key key, const struct tally_data_source *source,
                                   struct tally_error *err);
void tally_report_free(struct tally_report *report); /* NULL is allowed */

/* As tally_objective_metrics(); the objective has a report. A loss that is not finite is left out.
 */
enum tally_status tally_report_metrics(const struct tally_objective *objective, uint32_t client,
                                       const double *x, struct tally_metric *ret_metrics,
                                       size_t *ret_n, struct tally_error *err);

#endif

/* local_loss: returns f_m(x) directly, for tests whose objectives cannot fail. */
#ifndef TALLY_TESTS_UNIT_SERVICES_LOCAL_LOSS_H
#define TALLY_TESTS_UNIT_SERVICES_LOCAL_LOSS_H

#include <math.h>

#include "services/objectives/objective.h"

static inline double local_loss_of(const struct tally_objective *objective, uint32_t client,
                                   const double *x)
{
    double loss = NAN;
    return tally_objective_local_loss(objective, client, x, &loss, NULL) == TALLY_OK ? loss : NAN;
}

#endif

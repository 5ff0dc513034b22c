/* The synthetic job of [1] at its two noise levels, LOUD and quiet(), as the constants of CALM. */
#ifndef TALLY_TESTS_UNIT_SERVICES_ALGORITHMS_CALM_SYNTHETIC_JOB_H
#define TALLY_TESTS_UNIT_SERVICES_ALGORITHMS_CALM_SYNTHETIC_JOB_H

#include "services/algorithms/calm/calm_model.h"

static const struct tally_calm_constants LOUD = {
    .curvature = 1.0 / 3,
    .noise = 2.0 / 3,
    .noise_growth = 10.0 / 3,
    .client_spread = 0.03,
    .curvature_spread = 0.0144,
    .initial_variance = 5.0 / 30,
    .local_step_limit = 0.1,
    .clients = 10,
    .dim = 30,
    .horizon = 2000,
};

static inline struct tally_calm_constants quiet(void)
{
    struct tally_calm_constants constants = LOUD;
    constants.noise *= 0.0005;
    constants.client_spread *= 0.0005;
    constants.initial_variance = 2.0 / 30;
    return constants;
}

#endif

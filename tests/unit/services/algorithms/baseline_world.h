/* baseline_world: four clients with a least-squares objective, and the vectors that the baselines'
 * messages encode. The vectors are recomputed from the public parts: gradients from the documented
 * streams, the codec, and sums in long double. */
#ifndef TALLY_TESTS_UNIT_SERVICES_ALGORITHMS_BASELINE_WORLD_H
#define TALLY_TESTS_UNIT_SERVICES_ALGORITHMS_BASELINE_WORLD_H

#include "services/algorithms/baseline.h"

enum { BASELINE_DIM = 7, BASELINE_CLIENTS = 4, N_BASELINES = 4 };

extern const struct tally_algorithm *const BASELINES[N_BASELINES];

/* Shards of 11 and 10 points, 6 local steps of 2 points each. */
struct baseline_world {
    union tally_algorithm_params params;
    struct tally_setting setting;
    struct tally_round_plan plan;
    struct tally_objective *objective;
    struct tally_scratch scratch;
    struct tally_client_answer answer;
    struct tally_decision decision;
    double x[BASELINE_DIM];
};

void baseline_world_init(struct baseline_world *world);
void baseline_world_fini(struct baseline_world *world);

/* Runs the step of a client in a round, from world->x. */
enum tally_status baseline_step(struct baseline_world *world,
                                const struct tally_algorithm *algorithm, uint32_t client,
                                uint32_t round, bool evaluate, struct tally_error *err);
/* Runs a step that must succeed. */
void baseline_step_ok(struct baseline_world *world, const struct tally_algorithm *algorithm,
                      uint32_t client, uint32_t round, bool evaluate);

bool baseline_is_qsgd(const struct tally_algorithm *algorithm);

/* f from its definition: the mean of the local losses. */
double baseline_loss_at(const struct baseline_world *world, const double *x);

/* The client's own iterates x_0 .. x_K and f at the first K of them. */
void baseline_walk(const struct baseline_world *world, uint32_t client, uint32_t round, double *x,
                   double *losses);

/* The vector that the client's message encodes, before it is quantized. */
void baseline_expected_vector(const struct baseline_world *world,
                              const struct tally_algorithm *algorithm, uint32_t client,
                              uint32_t round, float *ret_vector);

#endif

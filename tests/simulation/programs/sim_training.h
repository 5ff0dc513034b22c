/* sim_training: a training loop for the jobs whose clients train. Each process of the simulation
 * has it as a plug-in. It depends on job, client, round and weights alone, so that every worker
 * gives the same update; and it says which model it has evaluated. */
#ifndef TALLY_TESTS_SIMULATION_PROGRAMS_SIM_TRAINING_H
#define TALLY_TESTS_SIMULATION_PROGRAMS_SIM_TRAINING_H

#include "services/objectives/objective.h"
#include "services/plugins/plugin_set.h"

/* Forgets the failures of the last seed. */
void sim_training_begin(void);

const struct tally_plugin_set *sim_training_plugins(void);

/* The objective of any job of the simulation. */
enum tally_status sim_objective_new(const struct tally_job_spec *spec,
                                    struct tally_objective **ret_objective,
                                    struct tally_error *err);

/* The metrics of an evaluation: whose model it was, and of which round. */
#define SIM_MODEL_METRIC "model"
#define SIM_ROUND_METRIC "model_round"
/* Telemetry of one: four metrics, the others are "score" and "own". */
enum { SIM_EVALUATION_BITS = 4 * 64 + 8 * (5 + 11 + 5 + 3) };
/* The value of SIM_MODEL_METRIC at a point. */
double sim_training_model(const double *x, size_t dim);

#endif

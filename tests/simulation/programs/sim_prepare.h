/* sim_prepare: solves what coordinators ask for, once per document and seed. */
#ifndef TALLY_TESTS_SIMULATION_PROGRAMS_SIM_PREPARE_H
#define TALLY_TESTS_SIMULATION_PROGRAMS_SIM_PREPARE_H

/* Forgets the solutions. To be called at the end of a seed. */
void sim_prepare_end(void);

#endif

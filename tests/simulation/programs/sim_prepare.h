/* sim_prepare: what coordinators ask to be solved, once per document and seed. */
#ifndef TALLY_TESTS_SIMULATION_PROGRAMS_SIM_PREPARE_H
#define TALLY_TESTS_SIMULATION_PROGRAMS_SIM_PREPARE_H

/* Forgets what was solved. At the end of a seed. */
void sim_prepare_end(void);

#endif

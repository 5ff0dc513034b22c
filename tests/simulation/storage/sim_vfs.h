/* sim_vfs: the simulated disk as SQLite's default file system. */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_SIM_VFS_H
#define TALLY_TESTS_SIMULATION_STORAGE_SIM_VFS_H

/* Once per program. */
void sim_vfs_install(void);
/* Makes SQLite reseed its random numbers from those of this seed. */
void sim_vfs_begin(void);

#endif

/* sim_disk: files in memory, and what is left of them when the process or the power fails.
 *
 * What a process has written is seen by the next process, as in the page cache of an operating
 * system. What it has not synced is at the mercy of a power cut: each 512-byte sector of each such
 * write, each truncation and each removal survives or not, independently of the others. So writes
 * are lost, reordered and torn. */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_SIM_DISK_H
#define TALLY_TESTS_SIMULATION_STORAGE_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_file;

void sim_disk_begin(void);
void sim_disk_end(void);

enum sim_disk_status { SIM_DISK_OK, SIM_DISK_FULL, SIM_DISK_ERROR };

/* NULL if there is no such file and `create` is false, or if the process is killed. */
struct sim_file *sim_disk_open(const char *path, bool create);
bool sim_disk_exists(const char *path);
size_t sim_disk_size(const struct sim_file *file);
/* Fills bytes past the end with zeros; *ret_n is the number of bytes that were there. */
enum sim_disk_status sim_disk_read(struct sim_file *file, size_t offset, void *bytes, size_t n,
                                   size_t *ret_n);
enum sim_disk_status sim_disk_write(struct sim_file *file, size_t offset, const void *bytes,
                                    size_t n);
enum sim_disk_status sim_disk_truncate(struct sim_file *file, size_t size);
enum sim_disk_status sim_disk_sync(struct sim_file *file);
enum sim_disk_status sim_disk_remove(const char *path, bool sync);

/* Kills the process that uses the disk, at once or in the n-th operation from now that changes the
 * disk. After that, nothing that the process does reaches the disk. */
void sim_disk_kill(void);
void sim_disk_kill_after(int64_t n_operations);
bool sim_disk_is_killed(void);
/* Starts a new process. */
void sim_disk_revive(void);

/* Loses un-synced data, in part. To be called after the process was killed. */
void sim_disk_cut_power(void);

/* From now on: how many of 1000 operations fail, and whether files cannot grow. */
void sim_disk_set_faults(int writes_per_mille, int syncs_per_mille, int reads_per_mille,
                         bool is_full);

/* While an observer looks, nothing fails. */
void sim_disk_hold_faults(bool hold);

/* Operations that changed something, so far. */
uint64_t sim_disk_n_changes(void);

#endif

/* Stands in for storage/sqlite/lock_file.h: no other machine uses the simulated disk, but a
 * coordinator that was killed must have released the lock before the next one starts. */
#include <stdlib.h>
#include <string.h>

#include "storage/sqlite/lock_file.h"
#include "tests/simulation/world/sim.h"

static bool is_held;

enum tally_status tally_lock_file_open(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err)
{
    if (is_held) {
        return tally_fail(err, TALLY_STORE, NULL, "in use by another process");
    }
    is_held = true;
    lock->fd = 0;
    lock->path = sim_copy(path, strlen(path));
    return TALLY_OK;
}

enum tally_status tally_lock_file_hold(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err)
{
    (void)lock, (void)path, (void)err;
    return TALLY_OK;
}

bool tally_lock_file_is_in_place(const struct tally_lock_file *lock)
{
    return lock->fd >= 0;
}

void tally_lock_file_close(struct tally_lock_file *lock)
{
    if (lock->fd >= 0) {
        free(lock->path);
        *lock = (struct tally_lock_file)TALLY_LOCK_FILE_INIT;
        is_held = false;
    }
}

enum tally_status tally_lock_file_owner(const char *path, int64_t *ret_process,
                                        struct tally_error *err)
{
    (void)path, (void)err;
    *ret_process = is_held ? 1 : 0;
    return TALLY_OK;
}

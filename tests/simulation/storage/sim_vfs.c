/* The only file of the simulation that knows SQLite. One process opens a database at a time
 * (sim_lock_file.c), with one connection, so locks are always granted; the shared memory beside the
 * log belongs to the process and dies with it. */
#include "tests/simulation/storage/sim_vfs.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"
#include "tests/simulation/storage/sim_disk.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_random.h"

enum { MAX_REGIONS = 64, MAX_NAME = 128, SECTOR_BYTES = 4096 /* as SQLite's own on Linux */ };

struct vfs_file {
    sqlite3_file base;
    struct sim_file *file;
    char remove_at_close[MAX_NAME]; /* "" = stays */
    void *regions[MAX_REGIONS];
};

static struct vfs_file *of(sqlite3_file *file)
{
    return (struct vfs_file *)file;
}

static void free_regions(struct vfs_file *file)
{
    for (int i = 0; i < MAX_REGIONS; i++) {
        free(file->regions[i]);
        file->regions[i] = NULL;
    }
}

static int do_close(sqlite3_file *base)
{
    struct vfs_file *file = of(base);
    free_regions(file);
    if (file->remove_at_close[0] != '\0') {
        sim_disk_remove(file->remove_at_close, false);
    }
    return SQLITE_OK;
}

static int do_read(sqlite3_file *base, void *bytes, int n, sqlite3_int64 offset)
{
    size_t got = 0;
    if (sim_disk_read(of(base)->file, (size_t)offset, bytes, (size_t)n, &got) != SIM_DISK_OK) {
        return SQLITE_IOERR_READ;
    }
    return got == (size_t)n ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int do_write(sqlite3_file *base, const void *bytes, int n, sqlite3_int64 offset)
{
    switch (sim_disk_write(of(base)->file, (size_t)offset, bytes, (size_t)n)) {
    case SIM_DISK_OK:
        return SQLITE_OK;
    case SIM_DISK_FULL:
        return SQLITE_FULL;
    case SIM_DISK_ERROR:
        break;
    }
    return SQLITE_IOERR_WRITE;
}

static int do_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    return sim_disk_truncate(of(base)->file, (size_t)size) == SIM_DISK_OK ? SQLITE_OK
                                                                          : SQLITE_IOERR_TRUNCATE;
}

static int do_sync(sqlite3_file *base, int flags)
{
    (void)flags;
    return sim_disk_sync(of(base)->file) == SIM_DISK_OK ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

static int do_size(sqlite3_file *base, sqlite3_int64 *ret_size)
{
    *ret_size = (sqlite3_int64)sim_disk_size(of(base)->file);
    return SQLITE_OK;
}

static int do_lock(sqlite3_file *base, int level)
{
    (void)base, (void)level;
    return SQLITE_OK;
}

static int do_check_reserved(sqlite3_file *base, int *ret_reserved)
{
    (void)base;
    *ret_reserved = 0;
    return SQLITE_OK;
}

static int do_control(sqlite3_file *base, int operation, void *argument)
{
    (void)base, (void)operation, (void)argument;
    return SQLITE_NOTFOUND;
}

static int get_sector_size(sqlite3_file *base)
{
    (void)base;
    return SECTOR_BYTES;
}

/* As SQLite's own on Linux: a write does not change the bytes beside it. */
static int get_characteristics(sqlite3_file *base)
{
    (void)base;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static int map_shared(sqlite3_file *base, int region, int n, int extend, void volatile **ret_at)
{
    struct vfs_file *file = of(base);
    SIM_REQUIRE(region < MAX_REGIONS, "the write-ahead log is longer than foreseen");
    if (file->regions[region] == NULL && extend) {
        file->regions[region] = sim_new((size_t)n);
    }
    *ret_at = file->regions[region];
    return SQLITE_OK;
}

static int lock_shared(sqlite3_file *base, int offset, int n, int flags)
{
    (void)base, (void)offset, (void)n, (void)flags;
    return SQLITE_OK;
}

static void shared_barrier(sqlite3_file *base)
{
    (void)base;
}

static int unmap_shared(sqlite3_file *base, int remove)
{
    (void)remove; /* no other process uses it */
    free_regions(of(base));
    return SQLITE_OK;
}

static const sqlite3_io_methods METHODS = {
    .iVersion = 2,
    .xClose = do_close,
    .xRead = do_read,
    .xWrite = do_write,
    .xTruncate = do_truncate,
    .xSync = do_sync,
    .xFileSize = do_size,
    .xLock = do_lock,
    .xUnlock = do_lock,
    .xCheckReservedLock = do_check_reserved,
    .xFileControl = do_control,
    .xSectorSize = get_sector_size,
    .xDeviceCharacteristics = get_characteristics,
    .xShmMap = map_shared,
    .xShmLock = lock_shared,
    .xShmBarrier = shared_barrier,
    .xShmUnmap = unmap_shared,
};

static int do_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags,
                   int *ret_flags)
{
    (void)vfs;
    struct vfs_file *file = of(base);
    memset(file, 0, sizeof *file);
    char temporary[MAX_NAME];
    if (name == NULL) {
        snprintf(temporary, sizeof temporary, "/temporary-%016llx",
                 (unsigned long long)sim_random());
        name = temporary;
    }
    file->file = sim_disk_open(name, (flags & SQLITE_OPEN_CREATE) != 0);
    if (file->file == NULL) {
        return SQLITE_CANTOPEN;
    }
    if ((flags & SQLITE_OPEN_DELETEONCLOSE) != 0) {
        snprintf(file->remove_at_close, sizeof file->remove_at_close, "%s", name);
    }
    file->base.pMethods = &METHODS;
    if (ret_flags != NULL) {
        *ret_flags = flags;
    }
    return SQLITE_OK;
}

static int do_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    if (!sim_disk_exists(name)) {
        return SQLITE_IOERR_DELETE_NOENT;
    }
    return sim_disk_remove(name, sync != 0) == SIM_DISK_OK ? SQLITE_OK : SQLITE_IOERR_DELETE;
}

static int do_access(sqlite3_vfs *vfs, const char *name, int flags, int *ret_there)
{
    (void)vfs, (void)flags;
    *ret_there = sim_disk_exists(name);
    return SQLITE_OK;
}

static int full_path(sqlite3_vfs *vfs, const char *name, int n, char *ret_path)
{
    (void)vfs;
    snprintf(ret_path, (size_t)n, "%s", name);
    return SQLITE_OK;
}

static int fill_random(sqlite3_vfs *vfs, int n, char *ret_bytes)
{
    (void)vfs;
    sim_random_fill(ret_bytes, (size_t)n);
    return n;
}

static int do_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

/* Milliseconds since noon of 24 November 4714 BC. */
static int current_time(sqlite3_vfs *vfs, sqlite3_int64 *ret_ms)
{
    (void)vfs;
    *ret_ms = 210866760000000 + tally_realtime_ms();
    return SQLITE_OK;
}

static int last_error(sqlite3_vfs *vfs, int n, char *text)
{
    (void)vfs, (void)n, (void)text;
    return 0;
}

void sim_vfs_install(void)
{
    static sqlite3_vfs vfs = {
        .iVersion = 2,
        .szOsFile = sizeof(struct vfs_file),
        .mxPathname = MAX_NAME - 1,
        .zName = "simulated",
        .xOpen = do_open,
        .xDelete = do_delete,
        .xAccess = do_access,
        .xFullPathname = full_path,
        .xRandomness = fill_random,
        .xSleep = do_sleep,
        .xCurrentTimeInt64 = current_time,
        .xGetLastError = last_error,
    };
    SIM_REQUIRE(sqlite3_vfs_register(&vfs, 1) == SQLITE_OK, "SQLite does not take the file system");
}

void sim_vfs_begin(void)
{
    sqlite3_randomness(0, NULL);
}

#include "tests/simulation/storage/sim_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_random.h"

enum { SECTOR_BYTES = 512, MAX_PATH_BYTES = 128 };

struct image {
    uint8_t *bytes;
    size_t size, capacity;
    bool exists; /* has a name */
};

/* A write or, without bytes, a truncation to `offset`. */
struct change {
    size_t offset, n;
    uint8_t *bytes;
};

struct sim_file {
    char path[MAX_PATH_BYTES];
    struct image seen;    /* by processes */
    struct image durable; /* what a power cut is sure to leave */
    struct change *changes;
    size_t n_changes, capacity;
    struct sim_file *next;
};

static struct {
    struct sim_file *files;
    bool is_killed;
    int64_t kill_after; /* 0 = not planned */
    int writes_per_mille, syncs_per_mille, reads_per_mille;
    bool is_full, is_observed;
    uint64_t n_changes;
} disk;

static void set_size(struct image *image, size_t size)
{
    if (size > image->capacity) {
        image->capacity = size > 2 * image->capacity ? size : 2 * image->capacity;
        image->bytes = sim_grow(image->bytes, image->capacity);
    }
    if (size > image->size) {
        memset(image->bytes + image->size, 0, size - image->size);
    }
    image->size = size;
}

static void put(struct image *image, size_t offset, const uint8_t *bytes, size_t n)
{
    if (offset + n > image->size) {
        set_size(image, offset + n);
    }
    memcpy(image->bytes + offset, bytes, n);
}

static void forget_changes(struct sim_file *file)
{
    for (size_t i = 0; i < file->n_changes; i++) {
        free(file->changes[i].bytes);
    }
    file->n_changes = 0;
}

void sim_disk_begin(void)
{
    memset(&disk, 0, sizeof disk);
}

void sim_disk_end(void)
{
    while (disk.files != NULL) {
        struct sim_file *file = disk.files;
        disk.files = file->next;
        forget_changes(file);
        free(file->changes);
        free(file->seen.bytes);
        free(file->durable.bytes);
        free(file);
    }
}

static struct sim_file *find(const char *path)
{
    struct sim_file *file = disk.files;
    while (file != NULL && strcmp(file->path, path) != 0) {
        file = file->next;
    }
    return file;
}

bool sim_disk_exists(const char *path)
{
    const struct sim_file *file = find(path);
    return file != NULL && file->seen.exists;
}

struct sim_file *sim_disk_open(const char *path, bool create)
{
    struct sim_file *file = find(path);
    if (file != NULL && file->seen.exists) {
        return file;
    }
    if (!create || disk.is_killed) {
        return NULL;
    }
    if (file == NULL) {
        file = sim_new(sizeof *file);
        SIM_REQUIRE(strlen(path) < sizeof file->path, "path too long");
        memcpy(file->path, path, strlen(path));
        file->next = disk.files;
        disk.files = file;
    }
    file->seen.exists = true;
    file->seen.size = 0;
    return file;
}

size_t sim_disk_size(const struct sim_file *file)
{
    return file->seen.size;
}

enum sim_disk_status sim_disk_read(struct sim_file *file, size_t offset, void *bytes, size_t n,
                                   size_t *ret_n)
{
    if (disk.is_killed || (!disk.is_observed && sim_chance(disk.reads_per_mille))) {
        return SIM_DISK_ERROR;
    }
    const size_t there = offset < file->seen.size ? file->seen.size - offset : 0;
    *ret_n = there < n ? there : n;
    memset(bytes, 0, n);
    if (*ret_n > 0) {
        memcpy(bytes, file->seen.bytes + offset, *ret_n);
    }
    return SIM_DISK_OK;
}

/* Whether the process is still alive and the disk accepts the operation. */
static enum sim_disk_status rest_admit(int errors_per_mille)
{
    if (disk.kill_after > 0 && --disk.kill_after == 0) {
        sim_note("disk", "the process is killed in this operation");
        disk.is_killed = true;
    }
    if (disk.is_killed || sim_chance(errors_per_mille)) {
        return SIM_DISK_ERROR;
    }
    disk.n_changes++;
    return SIM_DISK_OK;
}

static void remember(struct sim_file *file, size_t offset, const void *bytes, size_t n)
{
    if (file->n_changes == file->capacity) {
        file->capacity = file->capacity == 0 ? 16 : 2 * file->capacity;
        file->changes = sim_grow(file->changes, file->capacity * sizeof *file->changes);
    }
    file->changes[file->n_changes++] =
        (struct change){offset, n, bytes != NULL ? sim_copy(bytes, n) : NULL};
}

enum sim_disk_status sim_disk_write(struct sim_file *file, size_t offset, const void *bytes,
                                    size_t n)
{
    if (disk.is_full && offset + n > file->seen.size) {
        return SIM_DISK_FULL;
    }
    const enum sim_disk_status status = rest_admit(disk.writes_per_mille);
    if (status == SIM_DISK_OK) {
        put(&file->seen, offset, bytes, n);
        remember(file, offset, bytes, n);
    }
    return status;
}

enum sim_disk_status sim_disk_truncate(struct sim_file *file, size_t size)
{
    const enum sim_disk_status status = rest_admit(disk.writes_per_mille);
    if (status == SIM_DISK_OK && size < file->seen.size) {
        set_size(&file->seen, size);
        remember(file, size, NULL, 0);
    }
    return status;
}

static void apply(struct image *image, const struct change *change, int per_mille)
{
    if (change->bytes == NULL) {
        if (change->offset < image->size && sim_chance(per_mille)) {
            set_size(image, change->offset);
        }
        return;
    }
    size_t done = 0;
    while (done < change->n) { /* sectors are aligned to the file */
        const size_t at = change->offset + done;
        const size_t to_end = SECTOR_BYTES - at % SECTOR_BYTES;
        const size_t n = to_end < change->n - done ? to_end : change->n - done;
        if (per_mille == 1000 || sim_chance(per_mille)) {
            put(image, at, change->bytes + done, n);
        }
        done += n;
    }
}

/* Makes names and removals durable. */
static void sync_folder(void)
{
    for (struct sim_file *file = disk.files; file != NULL; file = file->next) {
        if (!file->seen.exists && file->durable.exists) {
            forget_changes(file);
            set_size(&file->durable, 0);
        }
        file->durable.exists = file->seen.exists;
    }
}

/* Syncs the whole file. The first sync of a new file also syncs the folder, as in SQLite's own file
 * system, which requests that with every journal and log that it creates. */
enum sim_disk_status sim_disk_sync(struct sim_file *file)
{
    const enum sim_disk_status status = rest_admit(disk.syncs_per_mille);
    if (status == SIM_DISK_OK) {
        for (size_t i = 0; i < file->n_changes; i++) {
            apply(&file->durable, &file->changes[i], 1000);
        }
        forget_changes(file);
        if (!file->durable.exists) {
            sync_folder();
        }
    }
    return status;
}

/* Without `sync`, a removal is durable only with the next sync of the folder. */
enum sim_disk_status sim_disk_remove(const char *path, bool sync)
{
    struct sim_file *file = find(path);
    const enum sim_disk_status status = rest_admit(disk.writes_per_mille);
    if (status == SIM_DISK_OK && file != NULL) {
        file->seen.exists = false;
        file->seen.size = 0;
        remember(file, 0, NULL, 0); /* a new file of that name begins empty */
        if (sync) {
            sync_folder();
        }
    }
    return status;
}

void sim_disk_kill(void)
{
    disk.is_killed = true;
}

void sim_disk_kill_after(int64_t n_operations)
{
    disk.kill_after = n_operations;
}

bool sim_disk_is_killed(void)
{
    return disk.is_killed;
}

void sim_disk_revive(void)
{
    disk.is_killed = false;
    disk.kill_after = 0;
}

void sim_disk_cut_power(void)
{
    static const int SHARES[] = {0, 500, 900, 1000};
    for (struct sim_file *file = disk.files; file != NULL; file = file->next) {
        struct image *image = &file->durable;
        const int share = SHARES[sim_between(0, 3)];
        const size_t n = file->n_changes;
        for (size_t i = 0; i < n; i++) {
            apply(image, &file->changes[i], share);
        }
        if (image->exists != file->seen.exists) {
            image->exists = sim_chance(500);
        }
        forget_changes(file);
        set_size(&file->seen, 0);
        put(&file->seen, 0, image->size > 0 ? image->bytes : (const uint8_t *)"", image->size);
        file->seen.exists = image->exists;
        sim_note("disk", "%s: %zu un-synced changes, %d of 1000 sectors kept, %zu bytes%s",
                 file->path, n, share, image->size, image->exists ? "" : ", gone");
    }
}

void sim_disk_set_faults(int writes_per_mille, int syncs_per_mille, int reads_per_mille,
                         bool is_full)
{
    disk.writes_per_mille = writes_per_mille;
    disk.syncs_per_mille = syncs_per_mille;
    disk.reads_per_mille = reads_per_mille;
    disk.is_full = is_full;
}

void sim_disk_hold_faults(bool hold)
{
    disk.is_observed = hold;
}

uint64_t sim_disk_n_changes(void)
{
    return disk.n_changes;
}

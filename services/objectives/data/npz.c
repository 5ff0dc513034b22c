/* npz: arrays in a .npz file, NumPy's zip of .npy files, plain or compressed. */
#include "services/objectives/data/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include "codec/utf8.h"

struct tally_npz {
    zip_t *zip;
    const struct tally_data_source *source;
    uint64_t total_bytes;
    char name[TALLY_DATA_NAME_CAPACITY];
};

enum tally_status tally_npz_open(const struct tally_data_source *source, const char *name,
                                 struct tally_npz **ret_npz, struct tally_error *err)
{
    int fd, code = 0;
    struct stat facts = {0};
    struct tally_npz *npz = calloc(1, sizeof *npz);
    if (npz == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to read %s", name);
    }
    enum tally_status status = tally_data_file_descriptor(source, name, &fd, err);
    if (status == TALLY_OK) {
        fstat(fd, &facts);
        npz->zip = zip_fdopen(fd, 0, &code);
        if (npz->zip == NULL) { /* otherwise zip owns fd */
            zip_error_t why;
            zip_error_init_with_code(&why, code);
            status = tally_fail(
                err, code == ZIP_ER_MEMORY ? TALLY_NO_MEMORY : TALLY_INVALID_ARGUMENT,
                "objective.data", "%s is not a .npz file: %s", name, zip_error_strerror(&why));
            zip_error_fini(&why);
            close(fd);
        }
    }
    if (status != TALLY_OK) {
        free(npz);
        return status;
    }
    npz->source = source;
    npz->total_bytes = (uint64_t)facts.st_size;
    snprintf(npz->name, sizeof npz->name, "%s", name);
    *ret_npz = npz;
    return TALLY_OK;
}

void tally_npz_close(struct tally_npz *npz)
{
    if (npz != NULL) {
        zip_discard(npz->zip);
        free(npz);
    }
}

/* An array in a .npz file, as it is read. */
struct member {
    zip_file_t *file;
    uint64_t done_bytes, unpacked_bytes, packed_bytes;
};

static int member_read(void *reader, void *ret_bytes, size_t n, const char **ret_why)
{
    struct member *member = reader;
    const zip_int64_t n_read = zip_fread(member->file, ret_bytes, n);
    if (n_read < 0) {
        *ret_why = zip_file_strerror(member->file);
        return -1;
    }
    member->done_bytes += (uint64_t)n_read;
    return (int)n_read;
}

/* An estimate: the position in the packed bytes is in proportion to that in the unpacked ones. */
static uint64_t member_offset(void *reader)
{
    const struct member *member = reader;
    const double part = member->unpacked_bytes > 0
                            ? (double)member->done_bytes / (double)member->unpacked_bytes
                            : 1;
    return part < 1 ? (uint64_t)(part * (double)member->packed_bytes) : member->packed_bytes;
}

static void member_close(void *reader)
{
    struct member *member = reader;
    zip_fclose(member->file);
    free(member);
}

static const struct tally_data_file_ops MEMBER_OPS = {member_read, member_offset, member_close};

/* "X, y, ..." of the arrays in a file. */
static void list_arrays(zip_t *zip, char *ret_list, size_t capacity)
{
    const zip_int64_t n = zip_get_num_entries(zip, 0);
    size_t length = 0;
    ret_list[0] = '\0';
    for (zip_int64_t i = 0; i < n && length < capacity; i++) {
        const char *name = zip_get_name(zip, (zip_uint64_t)i, 0);
        const char *text = name != NULL ? name : "?";
        const char *ending = strstr(text, ".npy");
        const size_t n_text = ending != NULL ? (size_t)(ending - text) : strlen(text);
        const int more = snprintf(ret_list + length, capacity - length, "%s%.*s", i > 0 ? ", " : "",
                                  n_text < 40 ? (int)n_text : 40, text);
        length += (size_t)(more > 0 ? more : 0);
    }
    tally_utf8_sanitize_line(ret_list);
}

static zip_int64_t find_array(zip_t *zip, const char *array)
{
    char name[TALLY_DATA_NAME_CAPACITY + 4];
    snprintf(name, sizeof name, "%s.npy", array);
    const zip_int64_t index = zip_name_locate(zip, name, 0);
    return index >= 0 ? index : zip_name_locate(zip, array, 0);
}

enum tally_status tally_npz_open_array(struct tally_npz *npz, const char *array,
                                       struct tally_data_file **ret_file, struct tally_error *err)
{
    const zip_int64_t index = find_array(npz->zip, array);
    if (index < 0) {
        char list[160];
        list_arrays(npz->zip, list, sizeof list);
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "%s has no array \"%s\", only %s", npz->name, array, list);
    }
    struct member *member = calloc(1, sizeof *member);
    if (member == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to read %s", npz->name);
    }
    zip_stat_t facts;
    zip_stat_init(&facts);
    if (zip_stat_index(npz->zip, (zip_uint64_t)index, 0, &facts) == 0) {
        member->unpacked_bytes = facts.size;
        member->packed_bytes = facts.comp_size;
    }
    member->file = zip_fopen_index(npz->zip, (zip_uint64_t)index, 0);
    if (member->file == NULL) {
        free(member);
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data", "%s: array %s: %s",
                          npz->name, array, zip_strerror(npz->zip));
    }
    char title[2 * TALLY_DATA_NAME_CAPACITY + 1];
    snprintf(title, sizeof title, "%s/%s", npz->name, array);
    return tally_data_file_of(npz->source, title, &MEMBER_OPS, member, npz->total_bytes, ret_file,
                              err);
}

#include "services/job/initial_point.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/load_data.h"

const char *const TALLY_INITIAL_POINT_NAMES[] = {"zeros", "random_sphere", "npy",
                                                 "job",   "first",         NULL};

static const char *const WHICH_NAMES[] = {"last", "best", NULL};

#define INITIAL(member) offsetof(struct tally_initial_point, member)
#define CHECKSUM(text)                                                                             \
    TALLY_TEXT("checksum", INITIAL(checksum), sizeof((struct tally_initial_point *)0)->checksum,   \
               .quiet = true, .doc = (text))

/* `zeros` has always taken a radius, which stored documents contain. */
static const struct tally_field SPHERE_FIELDS[] = {
    TALLY_REAL("radius", INITIAL(radius), 0, 1e9, .unit = "norm of x",
               .doc = "radius of the sphere"),
};
static const struct tally_field NPY_FIELDS[] = {
    TALLY_TEXT("file", INITIAL(file), sizeof((struct tally_initial_point *)0)->file,
               .required = true,
               .doc = ".npy file below the coordinator's data folder: float32 or float64, of shape "
                      "(dim,) or another of dim values in C order"),
    CHECKSUM("16 hexadecimal digits that the values must have; added when the job is submitted, so "
             "that a file that has changed since is noticed"),
};
static const struct tally_field JOB_FIELDS[] = {
    TALLY_TEXT("job", INITIAL(job), sizeof((struct tally_initial_point *)0)->job, .required = true,
               .doc = "id of a job of the same dimension that has ended"),
    TALLY_CHOICE(
        "which", INITIAL(which), WHICH_NAMES,
        .doc =
            "which of its models: that of its last round, or the best one, if its document has a "
            "`keep.best`"),
    CHECKSUM("`x_checksum` that the model must have; added when the job is submitted"),
};

const struct tally_initial_point_kind TALLY_INITIAL_POINT_KINDS[] = {
    [TALLY_INITIAL_ZEROS] = {TALLY_ROWS(SPHERE_FIELDS)},
    [TALLY_INITIAL_RANDOM_SPHERE] = {TALLY_ROWS(SPHERE_FIELDS)},
    [TALLY_INITIAL_NPY] = {TALLY_ROWS(NPY_FIELDS)},
    [TALLY_INITIAL_JOB] = {TALLY_ROWS(JOB_FIELDS)},
    [TALLY_INITIAL_FIRST] = {NULL, 0},
};

bool tally_initial_point_is_given(const struct tally_initial_point *initial)
{
    return initial->type >= TALLY_INITIAL_NPY;
}

enum tally_status tally_initial_point_validate(const struct tally_initial_point *initial,
                                               struct tally_error *err)
{
    const char *sum = initial->checksum;
    return sum[0] == '\0' || (strlen(sum) == 16 && strspn(sum, "0123456789abcdef") == 16)
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "initial_point.checksum",
                            "a checksum is 16 digits of 0-9 a-f");
}

enum tally_status tally_initial_point_read(const struct tally_initial_point *initial, size_t dim,
                                           const struct tally_data_source *source, double **ret_x,
                                           struct tally_error *err)
{
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status = tally_vector_load(source, initial->file, dim, ret_x, &why);
    return status == TALLY_OK ? status
                              : tally_fail(err, status, "initial_point.file", "%s", why.message);
}

enum tally_status tally_initial_point_match(struct tally_initial_point *initial, uint64_t checksum,
                                            struct tally_error *err)
{
    char text[sizeof initial->checksum];
    snprintf(text, sizeof text, "%016" PRIx64, checksum);
    if (initial->checksum[0] == '\0') {
        memcpy(initial->checksum, text, sizeof text);
    }
    return strcmp(initial->checksum, text) == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "initial_point.checksum",
                            "%s %s has changed: its checksum is %s, not %s",
                            initial->type == TALLY_INITIAL_NPY ? "file" : "the model of job",
                            initial->type == TALLY_INITIAL_NPY ? initial->file : initial->job, text,
                            initial->checksum);
}

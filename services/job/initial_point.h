/* initial_point: where a job starts from.
 *
 * Of the types, `zeros` and `random_sphere` follow from the document, and every process computes
 * them. The others are **given**: only the process that starts the job has the point, its state
 * contains it from then on, and workers receive it as a snapshot.
 *
 * A checksum in the document is that of the point's coordinates as float64, before the projection
 * onto the domain. The host adds it when it accepts the document; a point with another checksum is
 * refused from then on. */
#ifndef TALLY_SERVICES_JOB_INITIAL_POINT_H
#define TALLY_SERVICES_JOB_INITIAL_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/field.h"
#include "services/objectives/data/data_source.h"

enum tally_initial_point_type {
    TALLY_INITIAL_ZEROS,
    TALLY_INITIAL_RANDOM_SPHERE,
    TALLY_INITIAL_NPY,  /* a file below the data folder of the process that starts the job */
    TALLY_INITIAL_JOB,  /* the model of an earlier job of the same coordinator */
    TALLY_INITIAL_FIRST /* what the first worker offers */
};

enum tally_initial_point_which { TALLY_INITIAL_WHICH_LAST, TALLY_INITIAL_WHICH_BEST };

struct tally_initial_point {
    int type;          /* enum tally_initial_point_type */
    double radius;     /* of the sphere that the point is uniform on */
    char file[256];    /* of NPY */
    char job[33];      /* of JOB: its id */
    int which;         /* of JOB: enum tally_initial_point_which */
    char checksum[17]; /* of NPY and JOB: 16 hexadecimal digits; "" = not known yet */
};

extern const char *const TALLY_INITIAL_POINT_NAMES[]; /* NULL-terminated */

/* One row per type: the fields of its JSON object, besides "type". */
struct tally_initial_point_kind {
    const struct tally_field *fields; /* of struct tally_initial_point */
    size_t n_fields;
};
extern const struct tally_initial_point_kind TALLY_INITIAL_POINT_KINDS[];

/* Whether the point does not follow from the document alone. */
bool tally_initial_point_is_given(const struct tally_initial_point *initial);

/* Checks what the field tables cannot. Errors: INVALID_ARGUMENT, with the field's path. */
enum tally_status tally_initial_point_validate(const struct tally_initial_point *initial,
                                               struct tally_error *err);

/* Reads the file of a point of type NPY into a new double[dim]; free() frees it. Errors:
 * INVALID_ARGUMENT, with field "initial_point.file" (missing, outside the folder, not a .npy file
 * of dim finite float32 or float64 values in C order; the message names file and coordinate),
 * CANCELLED, NO_MEMORY. */
enum tally_status tally_initial_point_read(const struct tally_initial_point *initial, size_t dim,
                                           const struct tally_data_source *source, double **ret_x,
                                           struct tally_error *err);

/* Compares the checksum of a point with the document's, or sets the document's if it has none.
 * Errors: INVALID_ARGUMENT, with field "initial_point.checksum" (they differ). */
enum tally_status tally_initial_point_match(struct tally_initial_point *initial, uint64_t checksum,
                                            struct tally_error *err);

#endif

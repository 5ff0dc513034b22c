/* data: the data of an objective, as a job document describes them.
 *
 * `synthetic_linear` is drawn, the others are files below the data folder of
 * the process that reads them (load_data.h). */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_DATA_H
#define TALLY_SERVICES_OBJECTIVES_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/field.h"

enum {
    TALLY_DATA_NAME_CAPACITY = 256,       /* of a file's name, with its NUL */
    TALLY_DATA_MAX_FEATURES = 10000000,   /* of a point; as TALLY_MAX_DIM */
    TALLY_DATA_MAX_POINTS = 1 << 25,      /* of all files of a job: 0.5 GiB of labels and indices */
    TALLY_DATA_MAX_VALUES = 1 << 27,      /* stored numbers: 1 GiB of doubles */
    TALLY_DATA_MAX_BYTE_VALUES = 1 << 30, /* the same for pixels */
    TALLY_DATA_MAX_CLASSES = 1000000,
    TALLY_CSV_CLASSES_MOST = 256,           /* that are found in a file */
    TALLY_DATA_CLASS_NAMES_CAPACITY = 4096, /* of all names, each with its NUL, and one NUL more */
    TALLY_DATA_MAX_MATRIX_DIM = 8192,       /* 0.5 GiB of doubles */
};

/* A printf format for refusing a file name; the argument is the name. */
#define TALLY_DATA_NAME_REFUSAL                                                                    \
    "\"%s\" is not a name below the data folder: it must be relative and without \"..\""

/* In a file's name, with sharding `local`: the client's number, from 0. */
#define TALLY_DATA_CLIENT_MARK "{client}"

/* `synthetic_linear`: y_i = X_i . theta* + noise. X_i is Gaussian, scaled to length
 * frobenius_norm / sqrt(points) so that the whole matrix has that Frobenius norm; theta* is uniform
 * on the unit sphere. ([1] section V; services/algorithms/README.md says how it is read.) */
struct tally_synthetic_linear {
    int64_t dim;           /* d */
    int64_t points;        /* N */
    double frobenius_norm; /* of X */
    double noise_std;
};

/* `idx`: labelled images in the files of MNIST and its relatives. */
struct tally_idx_data {
    char images[TALLY_DATA_NAME_CAPACITY];
    char labels[TALLY_DATA_NAME_CAPACITY];
    int64_t features;         /* rows * columns of an image */
    int64_t classes;          /* labels are 0 .. classes - 1 */
    int64_t points_per_class; /* a balanced subset; 0 = all images */
    char test_images[TALLY_DATA_NAME_CAPACITY], test_labels[TALLY_DATA_NAME_CAPACITY];
};

/* `libsvm`, `csv`, `npy` and `npz`: points with a label each. */
struct tally_table_data {
    char file[TALLY_DATA_NAME_CAPACITY];   /* libsvm, csv, npz */
    char points[TALLY_DATA_NAME_CAPACITY]; /* npy: a file; npz: an array in it */
    char labels[TALLY_DATA_NAME_CAPACITY]; /* the same */
    char label[128];                       /* csv: the label's column */
    int64_t features;                      /* of a point */
    int64_t classes; /* labels are 0 .. classes - 1; 0 = they are not classes */
    /* csv: the labels of the classes, if they are names, in the order of the classes: each with its
     * NUL, then an empty one. Right behind `classes` (struct tally_field). */
    char class_names[TALLY_DATA_CLASS_NAMES_CAPACITY];
    char test_file[TALLY_DATA_NAME_CAPACITY]; /* as `file` */
    char test_points[TALLY_DATA_NAME_CAPACITY], test_labels[TALLY_DATA_NAME_CAPACITY]; /* npy */
    double test_fraction; /* of the points that are held out; 0 = none */
    bool standardize;     /* the features (scaling.h) */
    int missing;          /* enum tally_missing; csv */
    /* Not in documents, for test_fraction. */
    bool is_test_part; /* the data are the held-out points, not the others */
    bool hides_test;   /* the held-out points are left out, but not reported */
};

/* What happens to a point with a missing value (tally_number_is_missing()). */
enum tally_missing { TALLY_MISSING_ERROR, TALLY_MISSING_MEAN, TALLY_MISSING_DROP };
extern const char *const TALLY_MISSING_NAMES[]; /* NULL-terminated */

/* `matrix`: the A and b of `quadratic`. */
struct tally_matrix_data {
    char matrix[TALLY_DATA_NAME_CAPACITY]; /* .npy file of shape (dim, dim) */
    char vector[TALLY_DATA_NAME_CAPACITY]; /* .npy file of shape (dim,) */
    int64_t dim;
};

/* One row per type: enumerator, and the name in job documents. */
#define TALLY_DATA_TABLE(X)                                                                        \
    X(SYNTHETIC_LINEAR, synthetic_linear)                                                          \
    X(IDX, idx)                                                                                    \
    X(LIBSVM, libsvm)                                                                              \
    X(CSV, csv)                                                                                    \
    X(NPY, npy)                                                                                    \
    X(NPZ, npz)                                                                                    \
    X(MATRIX, matrix)

enum tally_data_type {
#define TALLY_DATA_ENUM(symbol, name) TALLY_DATA_##symbol,
    TALLY_DATA_TABLE(TALLY_DATA_ENUM)
#undef TALLY_DATA_ENUM
        TALLY_N_DATA_TYPES
};

/* How points are split over clients. Except with `local` and `dirichlet`, shards differ in size by
 * at most one. */
enum tally_sharding {
    TALLY_SHARDING_IID,        /* a permutation drawn from the seed, cut into shards */
    TALLY_SHARDING_BY_LABEL,   /* sorted by label, points of one label as in the file, then cut */
    TALLY_SHARDING_CONTIGUOUS, /* the order of the file, cut into shards */
    TALLY_SHARDING_LOCAL,      /* a file each, if its name has TALLY_DATA_CLIENT_MARK; otherwise
                                * every client has the whole file of its worker */
    TALLY_SHARDING_DIRICHLET,  /* each label in random proportions (sharding.h) */
};
extern const char *const TALLY_SHARDING_NAMES[];

struct tally_data_spec {
    int type;     /* enum tally_data_type */
    int sharding; /* enum tally_sharding; of files */
    double alpha; /* of DIRICHLET; 0 = not given */
    struct tally_synthetic_linear synthetic_linear;
    struct tally_idx_data idx;
    struct tally_table_data table;
    struct tally_matrix_data matrix;
};

/* Sets of data types that an objective takes: bit 1 << type. */
enum {
    TALLY_DATA_SET_TABLES =
        1 << TALLY_DATA_LIBSVM | 1 << TALLY_DATA_CSV | 1 << TALLY_DATA_NPY | 1 << TALLY_DATA_NPZ,
};

/* One row per type: its name in documents and the fields of its JSON object. */
struct tally_data_kind {
    const char *name;
    const struct tally_field *fields; /* of struct tally_data_spec */
    size_t n_fields;
};
extern const char *const TALLY_DATA_NAMES[]; /* NULL-terminated */
extern const struct tally_data_kind TALLY_DATA_KINDS[];

/* The kinds of labels that an objective may require. */
enum tally_labels {
    TALLY_LABELS_REAL,    /* any finite number */
    TALLY_LABELS_BINARY,  /* -1 and 1, or 0 and 1 */
    TALLY_LABELS_CLASSES, /* 0 .. classes - 1; given classes, the other kinds are that too */
};

/* Checks what the field tables cannot: names of files, that classes are given, and that there are
 * enough drawn points for the clients, but not too many. Errors: INVALID_ARGUMENT, with the field's
 * path below "objective.data". */
enum tally_status tally_data_spec_validate(const struct tally_data_spec *data,
                                           enum tally_labels labels, int64_t clients,
                                           struct tally_error *err);

/* The number of features of a point; the d of `matrix`. */
int64_t tally_data_spec_features(const struct tally_data_spec *data);
/* The number of data points that are cut into the clients' shards; 0 if the spec does not state it,
 * or if the points are not cut. */
uint32_t tally_data_spec_points(const struct tally_data_spec *data);
/* The name of a class; NULL = the classes have no names. */
const char *tally_data_spec_class_name(const struct tally_data_spec *data, int64_t class);
/* 0 if the labels are not classes. */
int64_t tally_data_spec_classes(const struct tally_data_spec *data);

/* The first file name of the data, which identifies them in messages; NULL = none. */
const char *tally_data_spec_file(const struct tally_data_spec *data);

/* Held-out points: files of the same type, with the same features, classes and arrays, or a part of
 * the same file. */
bool tally_data_spec_has_test(const struct tally_data_spec *data);
/* The spec of the held-out points: all of them in the order of the file, or, with `local`, sharded
 * as `data`. Precondition: the data have held-out points. */
struct tally_data_spec tally_data_spec_test(const struct tally_data_spec *data);
/* Path of the member of a document that asks for them. */
const char *tally_data_spec_test_field(const struct tally_data_spec *data);
/* No longer reports them. */
void tally_data_spec_drop_test(struct tally_data_spec *data);

/* Whether f, over the points of all clients, can be computed from the data folder of the
 * coordinator. With `local` and one name for all clients it cannot. */
bool tally_data_spec_is_shared(const struct tally_data_spec *data);

/* Whether the features are scaled by numbers that depend on the points of all clients, although no
 * process has all these points: the clients' surveys give the numbers (survey.h). */
bool tally_data_spec_is_surveyed(const struct tally_data_spec *data);

#endif

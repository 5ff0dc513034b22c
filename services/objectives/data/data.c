#include "services/objectives/data/data.h"

#include <string.h>

#include "services/objectives/data/open_below.h"

enum { MAX_DRAWN_POINTS = 100000000 };

const char *const TALLY_DATA_NAMES[] = {
#define TALLY_DATA_NAME(symbol, name) [TALLY_DATA_##symbol] = #name,
    TALLY_DATA_TABLE(TALLY_DATA_NAME) NULL
#undef TALLY_DATA_NAME
};
const char *const TALLY_SHARDING_NAMES[] = {"iid",   "by_label",  "contiguous",
                                            "local", "dirichlet", NULL};
const char *const TALLY_MISSING_NAMES[] = {"error", "mean", "drop", NULL};

#define NAME_FIELD(key, member, text)                                                              \
    TALLY_TEXT(key, member, TALLY_DATA_NAME_CAPACITY, .required = true, .doc = (text))

/* A file of held-out points; not written if the document has none. */
#define TEST_FIELD(key, member, text)                                                              \
    TALLY_TEXT(key, member, TALLY_DATA_NAME_CAPACITY, .quiet = true,                               \
               .doc = "held-out points: " text "; clients then report test_loss and, for "         \
                      "classes, test_accuracy")

#define SHARDING_FIELD                                                                             \
    TALLY_CHOICE(                                                                                  \
        "sharding", offsetof(struct tally_data_spec, sharding), TALLY_SHARDING_NAMES,              \
        .doc = "how data points are split over clients: at random; sorted by label; in the order " \
               "of the file; with `local`, each worker has its own files; with `dirichlet`, the "  \
               "points of each label in random proportions"),                                      \
        TALLY_REAL("alpha", offsetof(struct tally_data_spec, alpha), 0, 1e6, .omits_zero = true,   \
                   .doc = "parameter of the Dirichlet distribution of sharding `dirichlet`, "      \
                          "which needs it: 100 is nearly as even as `iid`, 0.1 gives most points " \
                          "of a label to few clients; 0 = not given")

#define SYNTHETIC(member) offsetof(struct tally_data_spec, synthetic_linear.member)
static const struct tally_field SYNTHETIC_LINEAR_FIELDS[] = {
    TALLY_INTEGER("dim", SYNTHETIC(dim), 1, TALLY_DATA_MAX_FEATURES, .required = true,
                  .unit = "coordinates", .doc = "number of coordinates d"),
    TALLY_INTEGER("points", SYNTHETIC(points), 1, MAX_DRAWN_POINTS, .required = true,
                  .unit = "data points", .doc = "number of data points N of all clients together"),
    TALLY_POSITIVE("frobenius_norm", SYNTHETIC(frobenius_norm), 1e12, .unit = "feature",
                   .doc = "Frobenius norm of the covariate matrix"),
    TALLY_REAL("noise_std", SYNTHETIC(noise_std), 0, 1e9, .unit = "response",
               .doc = "standard deviation of the response noise"),
};

#define IDX(member) offsetof(struct tally_data_spec, idx.member)
static const struct tally_field IDX_FIELDS[] = {
    NAME_FIELD("images", IDX(images), "IDX file of images, below the data folder"),
    NAME_FIELD("labels", IDX(labels), "IDX file of labels, below the data folder"),
    TALLY_INTEGER("features", IDX(features), 1, 1000000, .required = true, .unit = "features",
                  .doc = "pixels of an image"),
    TALLY_INTEGER("classes", IDX(classes), 2, 256, .required = true, .unit = "classes",
                  .doc = "number of classes; labels are 0 to classes - 1"),
    TALLY_INTEGER(
        "points_per_class", IDX(points_per_class), 0, 10000000, .unit = "images",
        .doc = "images of every class, of all clients together; 0 = all that the files have"),
    SHARDING_FIELD,
    TEST_FIELD("test_images", IDX(test_images), "IDX file of images"),
    TEST_FIELD("test_labels", IDX(test_labels), "IDX file of labels"),
};

#define TABLE(member) offsetof(struct tally_data_spec, table.member)
#define FEATURES_FIELD                                                                             \
    TALLY_INTEGER("features", TABLE(features), 1, TALLY_DATA_MAX_FEATURES, .required = true,       \
                  .unit = "features", .doc = "number of features of a point")
#define CLASSES_FIELD                                                                              \
    TALLY_INTEGER("classes", TABLE(classes), 0, TALLY_DATA_MAX_CLASSES, .unit = "classes",         \
                  .doc = "number of classes; labels are 0 to classes - 1; 0 = the labels are not " \
                         "classes")
#define FRACTION_FIELD                                                                             \
    TALLY_REAL("test_fraction", TABLE(test_fraction), 0, 1 - 0x1p-53, .omits_zero = true,          \
               .doc =                                                                              \
                   "fraction of the points, rounded up, that a permutation drawn from the seed "   \
                   "holds out, in place of a file of held-out points; 0 = none")
#define STANDARDIZE_FIELD                                                                          \
    TALLY_BOOL("standardize", TABLE(standardize), .quiet = true,                                   \
               .doc = "whether every feature is shifted and scaled to mean 0 and standard "        \
                      "deviation 1 over the training points, and held-out points by the same "     \
                      "numbers; constant features stay as they are. With sharding `local`, the "   \
                      "job begins with a survey of the points of all clients")
_Static_assert(offsetof(struct tally_table_data, class_names) ==
                   offsetof(struct tally_table_data, classes) + sizeof(int64_t),
               "a field with names has them behind its number");
static const struct tally_field LIBSVM_FIELDS[] = {
    NAME_FIELD("file", TABLE(file), "LIBSVM file, below the data folder"),
    FEATURES_FIELD,
    CLASSES_FIELD,
    SHARDING_FIELD,
    TEST_FIELD("test_file", TABLE(test_file), "LIBSVM file"),
    FRACTION_FIELD,
};
static const struct tally_field CSV_FIELDS[] = {
    NAME_FIELD("file", TABLE(file), "CSV file with a header line, below the data folder"),
    TALLY_TEXT(
        "label", TABLE(label), sizeof((struct tally_table_data *)0)->label, .required = true,
        .doc =
            "column of the label, by its name in the header; the other columns are the features"),
    TALLY_INTEGER("features", TABLE(features), 1, TALLY_DATA_MAX_FEATURES, .required = true,
                  .found = true, .unit = "features",
                  .doc = "number of features of a point; found in the header if it is absent"),
    TALLY_INTEGER("classes", TABLE(classes), 0, TALLY_DATA_MAX_CLASSES,
                  .names_capacity = TALLY_DATA_CLASS_NAMES_CAPACITY, .unit = "classes",
                  .doc = "the labels of the classes, as texts: the first is class 0; or the number "
                         "of classes, whose labels then are 0 to classes - 1; 0 = the labels are "
                         "numbers, not classes. With `\"auto\"`, or if this member is absent "
                         "and either `features` is absent, too, or the objective is "
                         "`softmax_regression`, they are those that the file has, in the order of "
                         "their bytes, at most 256; not for objectives without classes"),
    SHARDING_FIELD,
    TEST_FIELD("test_file", TABLE(test_file), "CSV file with the same columns, in any order"),
    FRACTION_FIELD,
    STANDARDIZE_FIELD,
    TALLY_CHOICE("missing", TABLE(missing), TALLY_MISSING_NAMES, .quiet = true,
                 .doc = "what happens if a value is missing, that is an empty field, `?`, `NA`, "
                        "`N/A`, `nan` or `null` in any case: an error; the mean of the column's "
                        "other values in the training points takes its place, with sharding "
                        "`local` after a survey of all clients; or the point is dropped"),
};
static const struct tally_field NPY_FIELDS[] = {
    NAME_FIELD("points", TABLE(points), ".npy file of shape (points, features)"),
    NAME_FIELD("labels", TABLE(labels), ".npy file of shape (points,)"),
    FEATURES_FIELD,
    CLASSES_FIELD,
    SHARDING_FIELD,
    TEST_FIELD("test_points", TABLE(test_points), ".npy file of points"),
    TEST_FIELD("test_labels", TABLE(test_labels), ".npy file of labels"),
    FRACTION_FIELD,
    STANDARDIZE_FIELD,
};
static const struct tally_field NPZ_FIELDS[] = {
    NAME_FIELD("file", TABLE(file), ".npz file, below the data folder"),
    NAME_FIELD("points", TABLE(points),
               "name of the array in the file, of shape (points, features)"),
    NAME_FIELD("labels", TABLE(labels), "name of the array in the file, of shape (points,)"),
    FEATURES_FIELD,
    CLASSES_FIELD,
    SHARDING_FIELD,
    TEST_FIELD("test_file", TABLE(test_file), ".npz file with the same arrays"),
    FRACTION_FIELD,
    STANDARDIZE_FIELD,
};

#define MATRIX(member) offsetof(struct tally_data_spec, matrix.member)
static const struct tally_field MATRIX_FIELDS[] = {
    NAME_FIELD("matrix", MATRIX(matrix), ".npy file of shape (dim, dim): A"),
    NAME_FIELD("vector", MATRIX(vector), ".npy file of shape (dim,): b"),
    TALLY_INTEGER("dim", MATRIX(dim), 1, TALLY_DATA_MAX_MATRIX_DIM, .required = true,
                  .unit = "coordinates", .doc = "number of coordinates d"),
};

const struct tally_data_kind TALLY_DATA_KINDS[] = {
#define TALLY_DATA_KIND(symbol, name) [TALLY_DATA_##symbol] = {#name, TALLY_ROWS(symbol##_FIELDS)},
    TALLY_DATA_TABLE(TALLY_DATA_KIND)
#undef TALLY_DATA_KIND
};

/* Where a type stores the names of its one or two files for a purpose; NULL = no such file. */
struct file_names {
    const char *fields[2]; /* in the document */
    size_t names[2];
};

/* Where each type stores its file names and its number of features. */
static const struct {
    struct file_names files, test;
    size_t features;
} PLACES[TALLY_N_DATA_TYPES] = {
    [TALLY_DATA_SYNTHETIC_LINEAR] = {.features = SYNTHETIC(dim)},
    [TALLY_DATA_IDX] = {{{"objective.data.images", "objective.data.labels"},
                         {IDX(images), IDX(labels)}},
                        {{"objective.data.test_images", "objective.data.test_labels"},
                         {IDX(test_images), IDX(test_labels)}},
                        IDX(features)},
    [TALLY_DATA_LIBSVM] = {{{"objective.data.file"}, {TABLE(file)}},
                           {{"objective.data.test_file"}, {TABLE(test_file)}},
                           TABLE(features)},
    [TALLY_DATA_CSV] = {{{"objective.data.file"}, {TABLE(file)}},
                        {{"objective.data.test_file"}, {TABLE(test_file)}},
                        TABLE(features)},
    [TALLY_DATA_NPY] = {{{"objective.data.points", "objective.data.labels"},
                         {TABLE(points), TABLE(labels)}},
                        {{"objective.data.test_points", "objective.data.test_labels"},
                         {TABLE(test_points), TABLE(test_labels)}},
                        TABLE(features)},
    [TALLY_DATA_NPZ] = {{{"objective.data.file"}, {TABLE(file)}},
                        {{"objective.data.test_file"}, {TABLE(test_file)}},
                        TABLE(features)},
    [TALLY_DATA_MATRIX] = {.files = {{"objective.data.matrix", "objective.data.vector"},
                                     {MATRIX(matrix), MATRIX(vector)}},
                           .features = MATRIX(dim)},
};

/* The name of file `i`, 0 or 1; NULL if the type has no such file. */
static const char *name_of(const struct tally_data_spec *data, const struct file_names *files,
                           int i)
{
    return files->fields[i] != NULL ? (const char *)data + files->names[i] : NULL;
}

static bool is_per_client(const char *name)
{
    return strstr(name, TALLY_DATA_CLIENT_MARK) != NULL;
}

static enum tally_status check_names(const struct tally_data_spec *data,
                                     const struct file_names *files, struct tally_error *err)
{
    const char *first = name_of(data, files, 0), *second = name_of(data, files, 1);
    for (int i = 0; i < 2 && name_of(data, files, i) != NULL; i++) {
        const char *name = name_of(data, files, i), *field = files->fields[i];
        if (!tally_is_name_below(name)) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, field, TALLY_DATA_NAME_REFUSAL, name);
        }
        if (is_per_client(name) && data->sharding != TALLY_SHARDING_LOCAL) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, field,
                              TALLY_DATA_CLIENT_MARK " in a name needs sharding local");
        }
    }
    if (second != NULL && is_per_client(first) != is_per_client(second)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, files->fields[1],
                          "either both names have " TALLY_DATA_CLIENT_MARK " or none has");
    }
    return TALLY_OK;
}

static bool is_table(const struct tally_data_spec *data)
{
    return (1 << data->type & TALLY_DATA_SET_TABLES) != 0;
}

/* Checks that both files of held-out points are named, or neither. */
static enum tally_status check_test(const struct tally_data_spec *data, struct tally_error *err)
{
    const struct file_names *test = &PLACES[data->type].test;
    const char *first = name_of(data, test, 0), *second = name_of(data, test, 1);
    if (second != NULL && (first[0] == '\0') != (second[0] == '\0')) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, test->fields[first[0] == '\0' ? 0 : 1],
                          "held-out points need both %s and %s", test->fields[0], test->fields[1]);
    }
    const bool has_file = first != NULL && first[0] != '\0';
    if (has_file && is_table(data) && data->table.test_fraction > 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.test_fraction",
                          "held-out points come from %s or from test_fraction, not from both",
                          strrchr(test->fields[0], '.') + 1);
    }
    return has_file ? check_names(data, test, err) : TALLY_OK;
}

/* With `local`, a process sees the points of its own clients only. */
static enum tally_status check_whole(const struct tally_data_spec *data, struct tally_error *err)
{
    const struct tally_table_data *table = &data->table;
    if (!is_table(data) || data->sharding != TALLY_SHARDING_LOCAL) {
        return TALLY_OK;
    }
    return table->test_fraction > 0
               ? tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.test_fraction",
                            "sharding local has no common file to hold points out of; name "
                            "files of held-out points instead")
               : TALLY_OK;
}

static enum tally_status check_dirichlet(const struct tally_data_spec *data,
                                         enum tally_labels labels, struct tally_error *err)
{
    const bool is_dirichlet = data->sharding == TALLY_SHARDING_DIRICHLET;
    if (is_dirichlet != (data->alpha > 0)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.alpha",
                          is_dirichlet ? "sharding dirichlet needs alpha above 0, such as 0.5"
                                       : "only sharding dirichlet takes alpha");
    }
    return !is_dirichlet || labels != TALLY_LABELS_REAL || tally_data_spec_classes(data) > 0
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.sharding",
                            "dirichlet splits the points of each class, but the labels are numbers "
                            "here");
}

static enum tally_status check_classes(const struct tally_data_spec *data, enum tally_labels labels,
                                       struct tally_error *err)
{
    const bool has_names = tally_data_spec_class_name(data, 0) != NULL;
    if (has_names && labels == TALLY_LABELS_REAL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.classes",
                          "the labels of this objective are numbers; classes with names are for "
                          "logistic_regression and softmax_regression");
    }
    if (has_names && labels == TALLY_LABELS_BINARY && data->table.classes != 2) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.classes",
                          "%lld names; logistic_regression has two classes, softmax_regression "
                          "any number",
                          (long long)data->table.classes);
    }
    return labels != TALLY_LABELS_CLASSES || tally_data_spec_classes(data) >= 2
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.classes",
                            "the number of classes, 2 or more, must be given");
}

/* Checks the number of data points for types whose documents state it. */
static enum tally_status check_points(const struct tally_data_spec *data, int64_t clients,
                                      struct tally_error *err)
{
    const bool is_idx = data->type == TALLY_DATA_IDX;
    const char *field = is_idx ? "objective.data.points_per_class" : "objective.data.points";
    const int64_t points =
        is_idx ? data->idx.classes * data->idx.points_per_class : data->synthetic_linear.points;
    const int64_t width = tally_data_spec_features(data);
    const int64_t most = is_idx ? TALLY_DATA_MAX_BYTE_VALUES : TALLY_DATA_MAX_VALUES;
    if (is_idx && points == 0) {
        return TALLY_OK;
    }
    if (points < clients && (!is_idx || data->sharding != TALLY_SHARDING_LOCAL)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field,
                          "%lld points cannot be split over %lld clients", (long long)points,
                          (long long)clients);
    }
    if (points > most / width) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field,
                          "%lld points of %lld values are more than %lld values", (long long)points,
                          (long long)width, (long long)most);
    }
    return TALLY_OK;
}

enum tally_status tally_data_spec_validate(const struct tally_data_spec *data,
                                           enum tally_labels labels, int64_t clients,
                                           struct tally_error *err)
{
    enum tally_status status = check_names(data, &PLACES[data->type].files, err);
    if (status == TALLY_OK) {
        status = check_test(data, err);
    }
    if (status == TALLY_OK) {
        status = check_whole(data, err);
    }
    if (status == TALLY_OK) {
        status = check_classes(data, labels, err);
    }
    if (status == TALLY_OK) {
        status = check_dirichlet(data, labels, err);
    }
    if (status == TALLY_OK &&
        (data->type == TALLY_DATA_SYNTHETIC_LINEAR || data->type == TALLY_DATA_IDX)) {
        status = check_points(data, clients, err);
    }
    return status;
}

int64_t tally_data_spec_features(const struct tally_data_spec *data)
{
    int64_t features;
    memcpy(&features, (const char *)data + PLACES[data->type].features, sizeof features);
    return features;
}

uint32_t tally_data_spec_points(const struct tally_data_spec *data)
{
    const int64_t n = data->type == TALLY_DATA_SYNTHETIC_LINEAR ? data->synthetic_linear.points
                      : data->type == TALLY_DATA_IDX && data->sharding != TALLY_SHARDING_LOCAL &&
                              data->sharding != TALLY_SHARDING_DIRICHLET
                          ? data->idx.points_per_class * data->idx.classes
                          : 0;
    return (uint32_t)n;
}

int64_t tally_data_spec_classes(const struct tally_data_spec *data)
{
    return data->type == TALLY_DATA_IDX ? data->idx.classes
           : is_table(data)             ? data->table.classes
                                        : 0;
}

const char *tally_data_spec_class_name(const struct tally_data_spec *data, int64_t class)
{
    const char *at = data->table.class_names;
    if (data->type != TALLY_DATA_CSV) {
        return NULL;
    }
    for (int64_t i = 0; i < class && at[0] != '\0'; i++) {
        at += strlen(at) + 1;
    }
    return at[0] != '\0' ? at : NULL;
}

bool tally_data_spec_is_shared(const struct tally_data_spec *data)
{
    const char *name = tally_data_spec_file(data);
    return data->sharding != TALLY_SHARDING_LOCAL || name == NULL || is_per_client(name);
}

bool tally_data_spec_is_surveyed(const struct tally_data_spec *data)
{
    const bool is_dense =
        is_table(data) && data->type != TALLY_DATA_LIBSVM; /* whose zeros are not stored */
    return is_dense && data->sharding == TALLY_SHARDING_LOCAL &&
           (data->table.standardize || data->table.missing == TALLY_MISSING_MEAN);
}

const char *tally_data_spec_file(const struct tally_data_spec *data)
{
    return name_of(data, &PLACES[data->type].files, 0);
}

static bool has_test_file(const struct tally_data_spec *data)
{
    const char *name = name_of(data, &PLACES[data->type].test, 0);
    return name != NULL && name[0] != '\0';
}

static bool has_test_part(const struct tally_data_spec *data)
{
    return is_table(data) && data->table.test_fraction > 0 && !data->table.is_test_part &&
           !data->table.hides_test;
}

const char *tally_data_spec_test_field(const struct tally_data_spec *data)
{
    return has_test_part(data) ? "objective.data.test_fraction" : PLACES[data->type].test.fields[0];
}

bool tally_data_spec_has_test(const struct tally_data_spec *data)
{
    return has_test_file(data) || has_test_part(data);
}

void tally_data_spec_drop_test(struct tally_data_spec *data)
{
    const struct file_names *test = &PLACES[data->type].test;
    for (int i = 0; i < 2 && test->fields[i] != NULL; i++) {
        ((char *)data)[test->names[i]] = '\0';
    }
    data->table.hides_test = true;
}

struct tally_data_spec tally_data_spec_test(const struct tally_data_spec *data)
{
    struct tally_data_spec held_out = *data;
    held_out.table.is_test_part = has_test_part(data);
    for (int i = 0; has_test_file(data) && i < 2 && PLACES[data->type].test.fields[i] != NULL;
         i++) {
        memcpy((char *)&held_out + PLACES[data->type].files.names[i],
               (const char *)data + PLACES[data->type].test.names[i], TALLY_DATA_NAME_CAPACITY);
    }
    tally_data_spec_drop_test(&held_out);
    held_out.idx.points_per_class = 0;
    if (data->sharding != TALLY_SHARDING_LOCAL) {
        held_out.sharding = TALLY_SHARDING_CONTIGUOUS;
    }
    return held_out;
}

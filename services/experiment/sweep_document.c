/* sweep_document: reads a sweep's document and makes the job documents that follow from it. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "codec/numeric/rng.h"
#include "services/base/nearest_name.h"
#include "services/base/whole_file.h"
#include "services/experiment/sweep.h"
#include "services/job/document.h"
#include "services/job/document_complete.h"
#include "services/job/document_faults.h"

/* A grid of the most trials has more values than a job document. */
static const struct tally_json_limits LIMITS = {.bytes = 1 << 20, .values = 10000, .depth = 16};

enum { MEMBERS_MOST = 16, VALUES_MOST = 1000, TEXT_CAPACITY = 160 };

/* ---- The tables. */

/* As in the tables of job documents; see there. */
#define MOST_REAL 1e12
#define MOST_SEED 9007199254740991.0

static const char *const SCALES[] = {"auto", "linear", "log", NULL};
static const char *const DISTANCES[] = {"linear", "log", NULL};
static const char *const UNITS[] = {"one", "inverse_smoothness", NULL};
static const char *const HALVINGS[] = {"seeds", "horizon", NULL};

static const struct tally_sweep TOP_DEFAULTS = {.n_seeds = 1};
static const struct tally_field TOP_FIELDS[] = {
    TALLY_TEXT("name", offsetof(struct tally_sweep, name), sizeof((struct tally_sweep *)0)->name,
               .quiet = true, .doc = "a name for people, the title of the page"),
    TALLY_INTEGER("tune_seeds", offsetof(struct tally_sweep, tune_seeds), 1, TALLY_MAX_SEEDS,
                  .unit = "seeds",
                  .doc = "how many of the seeds the grids of `tune` are searched with, from the "
                         "first; default: all. The best is then run with the others, too"),
};
static const char *const TOP_OTHERS[][3] = {
    {"base", "object or text",
     "the job document that every row starts from, or the file with it, relative to the folder of "
     "the sweep's document; rows may have their own"},
    {"rows", "array of objects",
     "variants of the base, at most 5000; each is run with every combination of `grid` and every "
     "draw of `random`. Default: one row, the base as it is"},
    {"grid", "object",
     "members of the job document and their values: an array, a range, or powers. Every "
     "combination becomes a row of its own. At most 16 members with 1000 values each, and 5000 "
     "rows in all"},
    {"random", "object", "a random search: draws become rows"},
    {"seeds", "text or integer",
     "the seeds that every row is run with, \"101-110\" or 7, at most 10000 of them; default: the "
     "seed of each job document. At most 1000000 runs in all"},
    {"best", "object", "how the best row, and the best trial of `tune`, are chosen"},
    {"halving", "object", "drops the worst rows early"},
    {"columns", "array of texts",
     "columns of the table, at most 48: results, metrics.NAME, members of the job document such "
     "as algorithm.step_size, or stage"},
    {"axes", "object", "what the picture shows"},
    {"reference_rows", "array of objects",
     "results known from elsewhere, shown below the rows and in the picture"},
    {NULL, NULL, NULL}};

struct row_entry {
    char name[sizeof((struct tally_sweep_row *)0)->name];
};
static const struct tally_field ROW_FIELDS[] = {
    TALLY_TEXT("name", offsetof(struct row_entry, name), sizeof((struct row_entry *)0)->name,
               .quiet = true, .doc = "the name of the row in tables and pictures"),
};
static const char *const ROW_OTHERS[][3] = {
    {"base", "object or text", "the job document of this row, in place of the sweep's"},
    {"set", "object",
     "members to replace, by their paths: {\"algorithm.step_size\": 0.1}. A value may be an "
     "object, "
     "{\"algorithm\": {\"type\": \"fedavg\", ...}}"},
    {"grid", "object",
     "members and values as in the top level's `grid`, with which this one is combined"},
    {"tune", "object",
     "a grid of which only the best combination becomes the row. Not together with `halving`"},
    {NULL, NULL, NULL}};

static const struct tally_sweep_range RANGE_DEFAULTS = {.scale = TALLY_SWEEP_RANGE_LINEAR};
static const struct tally_field RANGE_FIELDS[] = {
    TALLY_REAL("from", offsetof(struct tally_sweep_range, from), -MOST_REAL, MOST_REAL,
               .required = true, .doc = "the first value"),
    TALLY_REAL("to", offsetof(struct tally_sweep_range, to), -MOST_REAL, MOST_REAL,
               .required = true, .doc = "the last value, above `from`"),
    TALLY_INTEGER("count", offsetof(struct tally_sweep_range, count), 2, VALUES_MOST,
                  .unit = "values",
                  .doc = "number of values; required in a grid, not allowed in `random`"),
    TALLY_CHOICE("scale", offsetof(struct tally_sweep_range, scale), DISTANCES,
                 .doc = "the distance of the values: `linear`, or `log` for equal ratios, which "
                        "needs `from` above 0"),
    TALLY_BOOL("integers", offsetof(struct tally_sweep_range, integers),
               .doc = "whether values are rounded to integers, each of them once"),
};

static const struct tally_sweep_powers POWERS_DEFAULTS = {0};
static const struct tally_field POWERS_FIELDS[] = {
    TALLY_POSITIVE("around", offsetof(struct tally_sweep_powers, around), MOST_REAL,
                   .required = true, .doc = "the value for k = 0"),
    TALLY_REAL("factor", offsetof(struct tally_sweep_powers, factor), 1, 1000, .required = true,
               .min_exclusive = true, .doc = "values are around * factor^k"),
    TALLY_INTEGER("first", offsetof(struct tally_sweep_powers, first), -100, 100, .required = true,
                  .doc = "the least k"),
    TALLY_INTEGER("last", offsetof(struct tally_sweep_powers, last), -100, 100, .required = true,
                  .doc = "the greatest k, at least `first`"),
    TALLY_BOOL("widen", offsetof(struct tally_sweep_powers, widen),
               .doc = "whether three more values are tried, at most six times, while the best one "
                      "is at an end; only in `tune`, and for its only member"),
    TALLY_CHOICE("unit", offsetof(struct tally_sweep_powers, unit), UNITS,
                 .doc = "what the values are multiples of: `one`, or `inverse_smoothness`, "
                        "1 / smoothness of f at the first seed, the scale of step sizes; only in "
                        "`tune`, for its only member, and not on a coordinator"),
};

static const struct tally_sweep_random RANDOM_DEFAULTS = {.seed = 1};
static const struct tally_field RANDOM_FIELDS[] = {
    TALLY_INTEGER("count", offsetof(struct tally_sweep_random, count), 1, TALLY_SWEEP_ROWS_MOST,
                  .required = true, .unit = "draws", .doc = "number of draws"),
    TALLY_INTEGER("seed", offsetof(struct tally_sweep_random, seed), 0, MOST_SEED,
                  .doc = "seed of the draws, which do not depend on the seeds of the jobs"),
};
static const char *const RANDOM_OTHERS[][3] = {
    {"members", "object",
     "required: members of the job document, and an array to choose from or a range without "
     "`count`; at most 16"},
    {NULL, NULL, NULL}};

static const struct tally_sweep_rule RULE_DEFAULTS = {.by = ""};
static const struct tally_field RULE_FIELDS[] = {
    TALLY_TEXT("by", offsetof(struct tally_sweep_rule, by), TALLY_SWEEP_PATH_CAPACITY,
               .doc = "a result, or metrics.NAME, whose mean over the seeds is compared; default: "
                      "regret, or loss where a job has no regret"),
    TALLY_CHOICE("better", offsetof(struct tally_sweep_rule, better), TALLY_BETTER_NAMES,
                 .doc = "which value is better: `auto` is `lower` for results and a metric named "
                        "loss, and `higher` for other metrics"),
};

static const struct tally_sweep_halving HALVING_DEFAULTS = {.factor = 2};
static const struct tally_field HALVING_FIELDS[] = {
    TALLY_CHOICE("by", offsetof(struct tally_sweep_halving, by), HALVINGS,
                 .doc = "what grows from stage to stage: the number of `seeds`, whose runs are "
                        "kept, or the `horizon`, with new runs in each stage"),
    TALLY_INTEGER("stages", offsetof(struct tally_sweep_halving, stages), 2, 10, .required = true,
                  .doc = "number of stages; the last one has all seeds and the whole horizon"),
    TALLY_REAL("factor", offsetof(struct tally_sweep_halving, factor), 1, 100,
               .min_exclusive = true,
               .doc = "after each stage 1 / factor of the rows remain, and seeds or horizon are "
                      "multiplied by it"),
};

static const struct tally_sweep_axes AXES_DEFAULTS = {.x = ""};
static const struct tally_field AXES_FIELDS[] = {
    TALLY_TEXT("x", offsetof(struct tally_sweep_axes, x), TALLY_SWEEP_PATH_CAPACITY,
               .doc = "a result, metrics.NAME or a member that is a number; default: the member "
                      "with the most values, or bits if none that varies is a number"),
    TALLY_TEXT("y", offsetof(struct tally_sweep_axes, y), TALLY_SWEEP_PATH_CAPACITY,
               .doc = "the same; default: what `best` compares"),
    TALLY_CHOICE("x_scale", offsetof(struct tally_sweep_axes, x_scale), SCALES,
                 .doc = "`auto` is `log` if all values are above 0 and some are more than 20 "
                        "times others"),
    TALLY_CHOICE("y_scale", offsetof(struct tally_sweep_axes, y_scale), SCALES, .doc = "the same"),
};

struct reference_entry {
    char name[65];
};
static const struct tally_field REFERENCE_FIELDS[] = {
    TALLY_TEXT("name", offsetof(struct reference_entry, name), 65, .required = true,
               .doc = "the name of the row"),
};
static const char *const REFERENCE_OTHERS[][3] = {
    {"values", "object", "required: results, or metrics.NAME, and their numbers"},
    {NULL, NULL, NULL}};

const struct tally_sweep_part TALLY_SWEEP_PARTS[] = {
    {"", "", TALLY_ROWS(TOP_FIELDS), &TOP_DEFAULTS, TOP_OTHERS},
    {"rows", "Each entry of `rows`.", TALLY_ROWS(ROW_FIELDS), NULL, ROW_OTHERS},
    {"range", "A range, in place of an array of values.", TALLY_ROWS(RANGE_FIELDS), &RANGE_DEFAULTS,
     NULL},
    {"powers", "Powers, in place of an array of values.", TALLY_ROWS(POWERS_FIELDS),
     &POWERS_DEFAULTS, NULL},
    {"random", "", TALLY_ROWS(RANDOM_FIELDS), &RANDOM_DEFAULTS, RANDOM_OTHERS},
    {"best", "", TALLY_ROWS(RULE_FIELDS), &RULE_DEFAULTS, NULL},
    {"halving", "", TALLY_ROWS(HALVING_FIELDS), &HALVING_DEFAULTS, NULL},
    {"axes", "", TALLY_ROWS(AXES_FIELDS), &AXES_DEFAULTS, NULL},
    {"reference_rows", "Each entry of `reference_rows`.", TALLY_ROWS(REFERENCE_FIELDS), NULL,
     REFERENCE_OTHERS},
};
const size_t TALLY_N_SWEEP_PARTS = sizeof TALLY_SWEEP_PARTS / sizeof TALLY_SWEEP_PARTS[0];

static const struct tally_sweep_part *part_of(const char *name)
{
    size_t i = 0;
    while (strcmp(TALLY_SWEEP_PARTS[i].name, name) != 0) {
        i++;
    }
    return &TALLY_SWEEP_PARTS[i];
}

/* ---- Reading objects. */

static enum tally_status in_field(enum tally_status status, const char *key,
                                  struct tally_error *err)
{
    if (status != TALLY_OK) {
        tally_error_in_field(err, key);
    }
    return status;
}

static enum tally_status no_memory(struct tally_error *err)
{
    return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the sweep");
}

static bool has_member(const struct tally_sweep_part *part, const char *key,
                       struct tally_nearest_name *nearest)
{
    bool is_known = false;
    for (size_t i = 0; i < part->n_fields; i++) {
        is_known = is_known || strcmp(part->fields[i].name, key) == 0;
        tally_nearest_name_offer(nearest, part->fields[i].name);
    }
    for (size_t i = 0; part->others != NULL && part->others[i][0] != NULL; i++) {
        is_known = is_known || strcmp(part->others[i][0], key) == 0;
        tally_nearest_name_offer(nearest, part->others[i][0]);
    }
    return is_known;
}

static enum tally_status check_keys(const struct tally_json *object,
                                    const struct tally_sweep_part *part, struct tally_error *err)
{
    const char *key;
    for (size_t i = 0; (key = tally_json_key(object, i)) != NULL; i++) {
        struct tally_nearest_name nearest = {.typed = key};
        if (!has_member(part, key, &nearest)) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, key, "unknown key \"%.80s\"%s%s%s", key,
                              nearest.name != NULL ? "; did you mean " : "",
                              nearest.name != NULL ? nearest.name : "",
                              nearest.name != NULL ? "?" : "");
        }
    }
    return TALLY_OK;
}

/* Reads the fields of a part from an object. */
static enum tally_status read_part(const struct tally_json *object, const char *name,
                                   void *ret_struct, struct tally_error *err)
{
    const struct tally_sweep_part *part = part_of(name);
    if (!tally_json_is_object(object)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "must be an object");
    }
    enum tally_status status = check_keys(object, part, err);
    for (size_t i = 0; status == TALLY_OK && i < part->n_fields; i++) {
        status = tally_json_read_field(object, &part->fields[i], ret_struct, err);
    }
    return status;
}

/* As read_part(), for an optional member of the document with the part's name. */
static enum tally_status read_optional(const struct tally_json *document, const char *name,
                                       void *ret_struct, struct tally_error *err)
{
    const struct tally_json *object = tally_json_get(document, name);
    return object != NULL ? in_field(read_part(object, name, ret_struct, err), name, err)
                          : TALLY_OK;
}

/* Borrows an optional array. */
static enum tally_status get_array(const struct tally_json *document, const char *key, size_t most,
                                   const struct tally_json **ret_array, struct tally_error *err)
{
    *ret_array = tally_json_get(document, key);
    if (*ret_array == NULL) {
        return TALLY_OK;
    }
    if (!tally_json_is_array(*ret_array)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, key, "%s must be an array", key);
    }
    const size_t n = tally_json_size(*ret_array);
    return n >= 1 && n <= most ? TALLY_OK
                               : tally_fail(err, TALLY_OUT_OF_RANGE, key,
                                            "%s has %zu elements, outside [1, %zu]", key, n, most);
}

/* ---- Values of members. */

/* One member that varies, and its values. */
struct axis {
    const char *path;          /* borrowed from the document */
    struct tally_json *values; /* array */
    bool has_powers;
    struct tally_sweep_powers powers;
};

struct axes {
    struct axis at[2 * MEMBERS_MOST]; /* of the top level and of a row */
    size_t n;
};

static void fini_axes(struct axes *axes)
{
    for (size_t i = 0; i < axes->n; i++) {
        tally_json_free(axes->at[i].values);
    }
    axes->n = 0;
}

static enum tally_status append_value(struct tally_json *values, double value, bool is_integer,
                                      struct tally_error *err)
{
    const bool ok = is_integer ? tally_json_append_integer(values, (int64_t)llround(value))
                               : tally_json_append_real(values, value);
    return ok ? TALLY_OK : no_memory(err);
}

/* The value at a share of the range, in [0, 1]. */
static double value_at(const struct tally_sweep_range *range, double share)
{
    const double value = range->scale == TALLY_SWEEP_RANGE_LOG
                             ? range->from * pow(range->to / range->from, share)
                             : range->from + share * (range->to - range->from);
    return share == 1 ? range->to : value;
}

static enum tally_status read_range(const struct tally_json *object, bool is_drawn,
                                    struct tally_sweep_range *ret_range, struct tally_error *err)
{
    struct tally_sweep_range range = RANGE_DEFAULTS;
    enum tally_status status = read_part(object, "range", &range, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (!(range.to > range.from)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "to", "to %g is not above from %g", range.to,
                          range.from);
    }
    if (range.scale == TALLY_SWEEP_RANGE_LOG && range.from <= 0) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "from", "from %g outside (0, %g] with scale log",
                          range.from, MOST_REAL);
    }
    if (is_drawn != (range.count == 0)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "count", "%s",
                          is_drawn ? "a range to draw from takes no count"
                                   : "count is missing: the number of values of the range");
    }
    *ret_range = range;
    return TALLY_OK;
}

static enum tally_status add_range(const struct tally_json *object, struct tally_json *values,
                                   struct tally_error *err)
{
    struct tally_sweep_range range;
    enum tally_status status = read_range(object, false, &range, err);
    double before = NAN;
    for (int64_t i = 0; status == TALLY_OK && i < range.count; i++) {
        const double value = value_at(&range, (double)i / (double)(range.count - 1));
        if (!range.integers || round(value) != before) {
            status = append_value(values, value, range.integers, err);
            before = round(value);
        }
    }
    return status;
}

static double power_of(const struct tally_sweep_powers *powers, int64_t exponent)
{
    return powers->around * pow(powers->factor, (double)exponent);
}

static enum tally_status add_powers(const struct tally_json *object, bool is_tune,
                                    struct axis *axis, struct tally_error *err)
{
    struct tally_sweep_powers *powers = &axis->powers;
    enum tally_status status = read_part(object, "powers", powers, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (powers->last < powers->first) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "last", "last %lld is below first %lld",
                          (long long)powers->last, (long long)powers->first);
    }
    if (powers->widen && !is_tune) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "widen",
                          "only a grid of `tune` can be widened");
    }
    if (powers->unit != TALLY_SWEEP_UNIT_ONE && !is_tune) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "unit",
                          "only a grid of `tune` can have a unit");
    }
    axis->has_powers = true;
    for (int64_t k = powers->first; status == TALLY_OK && k <= powers->last; k++) {
        status = append_value(axis->values, power_of(powers, k), false, err);
    }
    return status;
}

static enum tally_status add_array(const struct tally_json *array, struct tally_json *values,
                                   struct tally_error *err)
{
    const size_t n = tally_json_size(array);
    if (n < 1 || n > VALUES_MOST) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "%zu values, outside [1, %d]", n,
                          VALUES_MOST);
    }
    for (size_t i = 0; i < n; i++) {
        if (!tally_json_append(values, tally_json_copy(tally_json_at(array, i)))) {
            return no_memory(err);
        }
    }
    return TALLY_OK;
}

static enum tally_status check_path(const char *path, struct tally_error *err)
{
    if (strlen(path) >= TALLY_SWEEP_PATH_CAPACITY) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "a path of %zu bytes, at most %d",
                          strlen(path), TALLY_SWEEP_PATH_CAPACITY - 1);
    }
    if (strcmp(path, "seed") == 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, path,
                          "the sweep's member `seeds` sets the seed of the jobs");
    }
    return TALLY_OK;
}

static enum tally_status read_axis(const struct tally_json *value, bool is_tune, struct axis *axis,
                                   struct tally_error *err)
{
    enum tally_status status = check_path(axis->path, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_json_is_array(value)) {
        status = add_array(value, axis->values, err);
    } else if (tally_json_is_object(value)) {
        status = tally_json_get(value, "around") != NULL ? add_powers(value, is_tune, axis, err)
                                                         : add_range(value, axis->values, err);
    } else {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "%s must be an array of values, a range or powers", axis->path);
    }
    return in_field(status, axis->path, err);
}

static enum tally_status count_members(const struct tally_json *object, struct tally_error *err)
{
    size_t n = 0;
    if (!tally_json_is_object(object)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "must be an object");
    }
    while (tally_json_key(object, n) != NULL) {
        n++;
    }
    return n >= 1 && n <= MEMBERS_MOST
               ? TALLY_OK
               : tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "%zu members, outside [1, %d]", n,
                            MEMBERS_MOST);
}

/* Reads `grid`, or `tune` of a row; NULL = none. */
static enum tally_status read_axes(const struct tally_json *object, bool is_tune,
                                   struct axes *ret_axes, struct tally_error *err)
{
    const char *path;
    ret_axes->n = 0;
    enum tally_status status = object != NULL ? count_members(object, err) : TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && (path = tally_json_key(object, i)) != NULL; i++) {
        struct axis *axis = &ret_axes->at[ret_axes->n++];
        *axis = (struct axis){.path = path, .values = tally_json_array()};
        status = axis->values != NULL ? read_axis(tally_json_get(object, path), is_tune, axis, err)
                                      : no_memory(err);
        if (status == TALLY_OK && axis->powers.widen && tally_json_key(object, 1) != NULL) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, path,
                                "widen needs %s to be the only member of `tune`", path);
        }
        if (status == TALLY_OK && axis->powers.unit != TALLY_SWEEP_UNIT_ONE &&
            tally_json_key(object, 1) != NULL) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, path,
                                "unit needs %s to be the only member of `tune`", path);
        }
    }
    if (status != TALLY_OK) {
        fini_axes(ret_axes);
    }
    return status;
}

/* The number of combinations, which is above `most` if there are too many. */
static size_t combinations(const struct axes *axes, size_t most)
{
    size_t n = 1;
    for (size_t i = 0; i < axes->n && n <= most; i++) {
        n *= tally_json_size(axes->at[i].values);
    }
    return n;
}

static enum tally_status set_copy(struct tally_json *document, const char *path,
                                  const struct tally_json *value, struct tally_error *err)
{
    struct tally_json *copy = tally_json_copy(value);
    if (copy == NULL) {
        return no_memory(err);
    }
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status = tally_json_set_path(document, path, copy, &why);
    return status == TALLY_OK ? status : tally_fail(err, status, path, "%s", why.message);
}

/* Sets the members of combination `index`; the last axis changes fastest. */
static enum tally_status set_combination(struct tally_json *document, const struct axes *axes,
                                         size_t index, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = axes->n; status == TALLY_OK && i-- > 0;) {
        const size_t n = tally_json_size(axes->at[i].values);
        status =
            set_copy(document, axes->at[i].path, tally_json_at(axes->at[i].values, index % n), err);
        index /= n;
    }
    return status;
}

/* ---- The random search. */

struct random {
    struct tally_sweep_random spec;
    const struct tally_json *members; /* NULL = none */
};

static enum tally_status check_drawn(const struct tally_json *members, const char *path,
                                     struct tally_error *err)
{
    const struct tally_json *value = tally_json_get(members, path);
    struct tally_sweep_range range;
    enum tally_status status = check_path(path, err);
    if (status == TALLY_OK && tally_json_is_array(value)) {
        const size_t n = tally_json_size(value);
        status = n >= 1 && n <= VALUES_MOST
                     ? TALLY_OK
                     : tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "%zu values, outside [1, %d]", n,
                                  VALUES_MOST);
    } else if (status == TALLY_OK) {
        status = tally_json_is_object(value)
                     ? read_range(value, true, &range, err)
                     : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                                  "%s must be an array to choose from, or a range", path);
    }
    return in_field(status, path, err);
}

static enum tally_status read_random(const struct tally_json *document, struct random *ret_random,
                                     struct tally_error *err)
{
    const struct tally_json *object = tally_json_get(document, "random");
    *ret_random = (struct random){.spec = RANDOM_DEFAULTS};
    if (object == NULL) {
        return TALLY_OK;
    }
    const struct tally_json *members = tally_json_get(object, "members");
    enum tally_status status = read_part(object, "random", &ret_random->spec, err);
    if (status == TALLY_OK && members == NULL) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "members", "members is missing");
    }
    if (status == TALLY_OK) {
        status = in_field(count_members(members, err), "members", err);
    }
    const char *path;
    for (size_t i = 0; status == TALLY_OK && (path = tally_json_key(members, i)) != NULL; i++) {
        status = in_field(check_drawn(members, path, err), "members", err);
    }
    ret_random->members = members;
    return in_field(status, "random", err);
}

static enum tally_status set_drawn(struct tally_json *document, const char *path,
                                   const struct tally_json *from, struct tally_rng *rng,
                                   struct tally_error *err)
{
    if (tally_json_is_array(from)) {
        const uint32_t index = tally_rng_below(rng, (uint32_t)tally_json_size(from));
        return set_copy(document, path, tally_json_at(from, index), err);
    }
    struct tally_sweep_range range;
    struct tally_json *value = tally_json_array();
    enum tally_status status = value != NULL ? read_range(from, true, &range, err) : no_memory(err);
    if (status == TALLY_OK) {
        status = append_value(value, value_at(&range, tally_rng_uniform(rng)), range.integers, err);
    }
    if (status == TALLY_OK) {
        status = set_copy(document, path, tally_json_at(value, 0), err);
    }
    tally_json_free(value);
    return status;
}

/* Sets the members of one draw. A member's stream depends only on its place and the draw, so that a
 * greater count keeps the draws of a smaller one. */
static enum tally_status set_draw(struct tally_json *document, const struct random *random,
                                  size_t draw, struct tally_error *err)
{
    const struct tally_rng_key key = tally_rng_key((uint64_t)random->spec.seed, 0);
    enum tally_status status = TALLY_OK;
    const char *path;
    for (size_t i = 0; status == TALLY_OK && (path = tally_json_key(random->members, i)) != NULL;
         i++) {
        struct tally_rng rng;
        tally_rng_init(&rng, key, (uint32_t)i, (uint32_t)draw, TALLY_RNG_SWEEP);
        status = set_drawn(document, path, tally_json_get(random->members, path), &rng, err);
    }
    return status;
}

/* ---- Which members vary. */

static bool is_varied(const struct tally_sweep *sweep, const char *path)
{
    for (size_t i = 0; i < sweep->n_varied; i++) {
        if (strcmp(sweep->varied[i], path) == 0) {
            return true;
        }
    }
    return false;
}

/* The name of a job is not one of the members that make a difference. */
static enum tally_status add_varied(struct tally_sweep *sweep, const char *path,
                                    struct tally_error *err)
{
    enum tally_status status = check_path(path, err);
    if (status != TALLY_OK || is_varied(sweep, path) || strcmp(path, "name") == 0) {
        return status;
    }
    char(*varied)[TALLY_SWEEP_PATH_CAPACITY] =
        realloc(sweep->varied, (sweep->n_varied + 1) * sizeof *varied);
    if (varied == NULL) {
        return no_memory(err);
    }
    sweep->varied = varied;
    snprintf(varied[sweep->n_varied++], TALLY_SWEEP_PATH_CAPACITY, "%s", path);
    return TALLY_OK;
}

/* Adds the keys of an object, NULL = none. */
static enum tally_status add_all_varied(struct tally_sweep *sweep, const struct tally_json *object,
                                        struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    const char *path;
    for (size_t i = 0;
         status == TALLY_OK && object != NULL && (path = tally_json_key(object, i)) != NULL; i++) {
        status = add_varied(sweep, path, err);
    }
    return status;
}

/* Refuses a member that two of these objects set. */
static enum tally_status check_disjoint(const struct tally_json *const *objects,
                                        const char *const *names, size_t n, struct tally_error *err)
{
    const char *path;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; objects[i] != NULL && (path = tally_json_key(objects[i], k)) != NULL;
             k++) {
            for (size_t other = 0; other < i; other++) {
                if (objects[other] != NULL && tally_json_get(objects[other], path) != NULL) {
                    return tally_fail(err, TALLY_INVALID_ARGUMENT, names[i],
                                      "%.80s is set by `%s` and by `%s`", path, names[other],
                                      names[i]);
                }
            }
        }
    }
    return TALLY_OK;
}

/* ---- Job documents. */

static enum tally_status parse_file(const char *path, struct tally_json **ret_document,
                                    struct tally_error *err)
{
    struct tally_buffer text = {.limit = LIMITS.bytes};
    enum tally_status status = tally_file_read(path, &text, err);
    if (status == TALLY_OK) {
        status = tally_json_check_limits((const char *)text.data, text.size, &TALLY_DOCUMENT_LIMITS,
                                         err);
    }
    if (status == TALLY_OK) {
        status = tally_json_parse((const char *)text.data, text.size, ret_document, err);
    }
    tally_buffer_fini(&text);
    if (status != TALLY_OK && err != NULL && strstr(err->message, path) == NULL) {
        tally_error_wrap(err, "%.120s", path);
    }
    return status;
}

/* Makes the base of a row, an object: a copy of the member, or the content of the file that it
 * names. */
static enum tally_status read_base(const struct tally_json *base, const char *folder,
                                   struct tally_json **ret_document, struct tally_error *err)
{
    const char *name = tally_json_as_text(base);
    if (base == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "base",
                          "base is missing: a job document, or the name of its file");
    }
    if (name == NULL && !tally_json_is_object(base)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "base",
                          "base must be a job document or the name of its file");
    }
    struct tally_json *document = NULL;
    enum tally_status status = TALLY_OK;
    if (name != NULL) {
        char path[PATH_MAX];
        const bool is_whole = name[0] == '/' || folder == NULL || folder[0] == '\0';
        const int n = snprintf(path, sizeof path, "%s%s%s", is_whole ? "" : folder,
                               is_whole ? "" : "/", name);
        status = n >= 0 && (size_t)n < sizeof path
                     ? parse_file(path, &document, err)
                     : tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "a name of %d bytes, at most %zu",
                                  n, sizeof path - 1);
        if (status == TALLY_OK && !tally_json_is_object(document)) {
            status = tally_fail(err, TALLY_MALFORMED, NULL, "%.200s is not an object", name);
        }
    } else {
        document = tally_json_copy(base);
        status = document != NULL ? TALLY_OK : no_memory(err);
    }
    if (status != TALLY_OK) {
        tally_json_free(document);
        return in_field(status, "base", err);
    }
    *ret_document = document;
    return TALLY_OK;
}

static struct tally_json *parse_text(const char *text)
{
    struct tally_json *json = NULL;
    return tally_json_parse(text, strlen(text), &json, NULL) == TALLY_OK ? json : NULL;
}

struct tally_json *tally_sweep_trial_document(const struct tally_sweep_trial *trial)
{
    return parse_text(trial->document);
}

struct tally_job_spec *tally_sweep_trial_spec(const struct tally_sweep_trial *trial)
{
    const char *text = trial->found != NULL ? trial->found : trial->document;
    struct tally_job_spec *spec = malloc(sizeof *spec);
    if (spec != NULL && tally_document_parse(text, strlen(text), spec, NULL) != TALLY_OK) {
        free(spec);
        spec = NULL;
    }
    return spec;
}

struct tally_json *tally_sweep_trial_complete(const struct tally_sweep_trial *trial)
{
    struct tally_job_spec *spec = tally_sweep_trial_spec(trial);
    struct tally_json *complete = spec != NULL ? tally_document_of(spec) : NULL;
    free(spec);
    return complete;
}

/* A copy of a buffer, which does not end with 0, as a string. NULL: no memory. */
static char *text_of(const struct tally_buffer *buffer)
{
    char *text = malloc(buffer->size + 1);
    if (text != NULL) {
        if (buffer->size > 0) {
            memcpy(text, buffer->data, buffer->size);
        }
        text[buffer->size] = '\0';
    }
    return text;
}

/* What runs with the same data and f(x*) have in common, as text; NULL = out of memory. */
static char *problem_of(const struct tally_job_spec *spec)
{
    static const char *const MEMBERS[] = {"clients", "weighting", "objective", "domain",
                                          "reference"};
    struct tally_json *complete = tally_document_of(spec);
    struct tally_buffer text = {0};
    enum tally_status status = complete != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    for (size_t i = 0; status == TALLY_OK && i < sizeof MEMBERS / sizeof MEMBERS[0]; i++) {
        const struct tally_json *member = tally_json_get(complete, MEMBERS[i]);
        status = member != NULL ? tally_json_dump(member, 0, &text) : TALLY_OK;
    }
    char *problem = status == TALLY_OK ? text_of(&text) : NULL;
    tally_buffer_fini(&text);
    tally_json_free(complete);
    return problem;
}

/* Keeps what is needed of a trial's spec. False = out of memory. */
static bool take_spec(const struct tally_sweep *sweep, struct tally_sweep_row *row,
                      const struct tally_job_spec *spec, struct tally_sweep_trial *trial)
{
    trial->algorithm = tally_job_spec_algorithm(spec);
    trial->is_compressed = tally_run_is_compressed(spec);
    trial->is_plugin = tally_objective_spec_is_plugin(&spec->objective);
    trial->has_regret = spec->reference.type != TALLY_REFERENCE_NONE;
    trial->seed = spec->seed;
    trial->horizon = spec->horizon;
    trial->cost = tally_run_cost(spec);
    trial->solve_cost = tally_run_solve_cost(spec);
    trial->runs = calloc(sweep->n_seeds, sizeof *trial->runs);
    trial->problem = problem_of(spec);
    if (row->problem == NULL) {
        row->problem = trial->problem;
    } else if (trial->problem != NULL && strcmp(trial->problem, row->problem) == 0) {
        free(trial->problem);
        trial->problem = row->problem;
    }
    return trial->runs != NULL && trial->problem != NULL;
}

/* Parses the document of a trial, with the first seed of the sweep. */
static enum tally_status parse_trial(const struct tally_sweep *sweep, struct tally_sweep_row *row,
                                     struct tally_json *document, struct tally_sweep_trial *trial,
                                     struct tally_json **ret_faults, struct tally_error *err)
{
    struct tally_buffer text = {0};
    struct tally_job_spec *spec = malloc(sizeof *spec);
    enum tally_status status = spec != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    if (sweep->has_seeds && !tally_json_set_integer(document, "seed", sweep->first_seed)) {
        status = TALLY_NO_MEMORY;
    }
    if (status == TALLY_OK) {
        status = tally_json_dump(document, 0, &text);
    }
    if (status == TALLY_OK) {
        trial->document = text_of(&text);
        status = trial->document != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    }
    if (status == TALLY_OK && sweep->data_dir != NULL) {
        const struct tally_data_source files = {.dir = sweep->data_dir};
        char found[TALLY_FOUND_CAPACITY];
        status = tally_document_complete(&text, &files, found, err);
        if (status == TALLY_OK && found[0] != '\0') {
            trial->found = text_of(&text);
            status = trial->found != NULL ? TALLY_OK : TALLY_NO_MEMORY;
        }
    }
    if (status == TALLY_OK) {
        status = tally_document_parse((const char *)text.data, text.size, spec, err);
        if (status != TALLY_OK && *ret_faults == NULL) {
            *ret_faults = tally_document_faults((const char *)text.data, text.size);
        }
    }
    if (status == TALLY_OK && !take_spec(sweep, row, spec, trial)) {
        status = TALLY_NO_MEMORY;
    }
    tally_buffer_fini(&text);
    free(spec);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for a job");
}

static void fini_trial(const struct tally_sweep_row *row, struct tally_sweep_trial *trial)
{
    for (size_t i = 0; i < trial->n_runs; i++) {
        tally_run_fini(&trial->runs[i]);
    }
    if (trial->problem != row->problem) {
        free(trial->problem);
    }
    free(trial->runs);
    free(trial->document);
    free(trial->found);
    *trial = (struct tally_sweep_trial){0};
}

/* "algorithm.step_size=0.1 clients=5" */
static void describe(const struct tally_sweep *sweep, const struct tally_json *document,
                     char *ret_text, size_t capacity)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < sweep->n_varied && used < capacity; i++) {
        const struct tally_json *value = tally_sweep_member(document, sweep->varied[i]);
        struct tally_buffer text = {0};
        if (value != NULL && tally_json_dump(value, 0, &text) == TALLY_OK) {
            used +=
                (size_t)snprintf(ret_text + used, capacity - used, "%s%s=%.*s", used > 0 ? " " : "",
                                 sweep->varied[i], (int)text.size, (const char *)text.data);
        }
        tally_buffer_fini(&text);
    }
}

void tally_sweep_describe(const struct tally_sweep *sweep, size_t row, char *ret_text,
                          size_t capacity)
{
    struct tally_json *document = tally_sweep_job(sweep, row);
    describe(sweep, document, ret_text, capacity);
    tally_json_free(document);
}

/* Prepends which job is wrong to the message. */
static enum tally_status name_row(const struct tally_sweep *sweep,
                                  const struct tally_sweep_row *row,
                                  const struct tally_json *document, enum tally_status status,
                                  struct tally_error *err)
{
    if (status != TALLY_OK) {
        char text[TEXT_CAPACITY];
        describe(sweep, document, text, sizeof text);
        tally_error_wrap(err, "row %td%s%s%s%s%s", row - sweep->rows + 1,
                         row->name[0] != '\0' ? " " : "", row->name, text[0] != '\0' ? " (" : "",
                         text, text[0] != '\0' ? ")" : "");
    }
    return status;
}

/* Adds a trial to a row. With `axes` it has combination `index`; with powers, that of exponent. */
static enum tally_status add_trial(const struct tally_sweep *sweep, struct tally_sweep_row *row,
                                   const struct axes *axes, size_t index,
                                   struct tally_json **ret_faults, struct tally_error *err)
{
    struct tally_sweep_trial *trials =
        realloc(row->trials, (row->n_trials + 1) * sizeof *row->trials);
    if (trials == NULL) {
        return no_memory(err);
    }
    row->trials = trials;
    struct tally_sweep_trial *trial = &trials[row->n_trials++];
    *trial = (struct tally_sweep_trial){0};
    struct tally_json *document = tally_json_copy(row->document);
    if (document == NULL) {
        return no_memory(err);
    }
    if (axes->n == 1 && axes->at[0].has_powers) {
        trial->exponent = (int)axes->at[0].powers.first + (int)index;
    }
    enum tally_status status = set_combination(document, axes, index, err);
    if (status == TALLY_OK) {
        status = parse_trial(sweep, row, document, trial, ret_faults, err);
    }
    status = name_row(sweep, row, document, status, err);
    tally_json_free(document);
    return status;
}

enum tally_status tally_sweep_widen(struct tally_sweep *sweep, struct tally_sweep_row *row,
                                    size_t n, bool *ret_widened, struct tally_error *err)
{
    struct axes axes = {.n = 0};
    *ret_widened = false;
    enum tally_status status = read_axes(row->tune, true, &axes, err);
    if (status != TALLY_OK) {
        return status;
    }
    const bool is_low = row->best == 0;
    struct axis *axis = &axes.at[0];
    if (axes.n != 1 || !axis->powers.widen || (!is_low && row->best + 1 < row->n_trials)) {
        fini_axes(&axes);
        return TALLY_OK;
    }
    const double unit = row->has_unit ? 1 / row->curvature.smoothness : 1;
    const int edge =
        is_low ? row->trials[0].exponent - (int)n : row->trials[row->n_trials - 1].exponent + 1;
    const size_t n_before = row->n_trials;
    struct tally_json *faults = NULL;
    axis->powers.first = edge;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        tally_json_free(axis->values);
        axis->values = tally_json_array();
        axis->powers.first = edge + (int)i;
        status =
            append_value(axis->values, unit * power_of(&axis->powers, edge + (int)i), false, err);
        if (status == TALLY_OK) {
            status = add_trial(sweep, row, &axes, 0, &faults, err);
        }
    }
    tally_json_free(faults);
    fini_axes(&axes);
    if (status == TALLY_INVALID_ARGUMENT || status == TALLY_OUT_OF_RANGE) {
        /* A member cannot be that small or large: the edge stays where it is. */
        while (row->n_trials > n_before) {
            fini_trial(row, &row->trials[--row->n_trials]);
        }
        tally_error_clear(err);
        return TALLY_OK;
    }
    if (status == TALLY_OK && is_low && n > 0) { /* by exponent */
        struct tally_sweep_trial *fresh = malloc(n * sizeof *fresh);
        if (fresh == NULL) {
            return no_memory(err);
        }
        memcpy(fresh, row->trials + n_before, n * sizeof *fresh);
        memmove(row->trials + n, row->trials, n_before * sizeof *fresh);
        memcpy(row->trials, fresh, n * sizeof *fresh);
        free(fresh);
    }
    *ret_widened = status == TALLY_OK;
    row->widened = row->widened || *ret_widened;
    return status;
}

enum tally_status tally_sweep_set_unit(struct tally_sweep *sweep, struct tally_sweep_row *row,
                                       double unit, struct tally_error *err)
{
    struct axes axes = {.n = 0};
    struct tally_json *faults = NULL;
    enum tally_status status = read_axes(row->tune, true, &axes, err);
    const size_t n = row->n_trials;
    while (status == TALLY_OK && row->n_trials > 0) {
        fini_trial(row, &row->trials[--row->n_trials]);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        struct axis *axis = &axes.at[0];
        const int64_t exponent = axis->powers.first;
        tally_json_free(axis->values);
        axis->values = tally_json_array();
        status =
            axis->values != NULL
                ? append_value(axis->values, unit * power_of(&axis->powers, exponent), false, err)
                : no_memory(err);
        if (status == TALLY_OK) {
            status = add_trial(sweep, row, &axes, 0, &faults, err);
        }
        axis->powers.first++;
    }
    tally_json_free(faults);
    fini_axes(&axes);
    return status;
}

/* ---- Rows. */

struct reader {
    struct tally_sweep *sweep;
    const char *folder;
    struct axes grid;
    struct random random;
    struct tally_json **ret_faults;
};

static size_t n_draws(const struct reader *reader)
{
    return reader->random.members != NULL ? (size_t)reader->random.spec.count : 1;
}

/* Appends an empty row, which borrows what `entry` has. */
static enum tally_status new_row(struct tally_sweep *sweep, struct tally_sweep_row **ret_row,
                                 struct tally_error *err)
{
    struct tally_sweep_row *rows = realloc(sweep->rows, (sweep->n_rows + 1) * sizeof *rows);
    if (rows == NULL) {
        return no_memory(err);
    }
    sweep->rows = rows;
    *ret_row = &rows[sweep->n_rows++];
    **ret_row = (struct tally_sweep_row){.stage = 1, .zero_gap = NAN};
    return TALLY_OK;
}

static size_t count_trials(const struct tally_sweep *sweep)
{
    size_t n = 0;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        n += sweep->rows[i].n_trials;
    }
    return n;
}

static enum tally_status add_trials(const struct reader *reader, struct tally_sweep_row *row,
                                    const struct axes *tune, struct tally_error *err)
{
    struct tally_sweep *sweep = reader->sweep;
    const size_t n = combinations(tune, TALLY_SWEEP_TRIALS_MOST);
    const size_t total = count_trials(sweep) + n;
    if (total > TALLY_SWEEP_TRIALS_MOST) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                          "more than %d job documents, the limit of a sweep",
                          TALLY_SWEEP_TRIALS_MOST);
    }
    if (total > TALLY_SWEEP_RUNS_MOST / sweep->n_seeds) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "seeds",
                          "%zu seeds for %zu job documents or more: above %d runs, the limit of a "
                          "sweep",
                          sweep->n_seeds, total, TALLY_SWEEP_RUNS_MOST);
    }
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = add_trial(sweep, row, tune, i, reader->ret_faults, err);
    }
    return status;
}

/* Sets the members of one entry of `rows`. */
static enum tally_status set_members(struct tally_json *document, const struct tally_json *set,
                                     struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    const char *path;
    for (size_t i = 0; status == TALLY_OK && set != NULL && (path = tally_json_key(set, i)) != NULL;
         i++) {
        status = set_copy(document, path, tally_json_get(set, path), err);
    }
    return status;
}

/* One entry of `rows`. */
struct entry {
    const struct tally_json *object; /* NULL = there are no entries */
    const char *name;
    const struct tally_json *base;
    struct axes own;  /* its grid */
    struct axes grid; /* the same after the top level's */
    struct axes tune;
};

/* Adds the row with one combination of the grid and one draw. */
static enum tally_status add_row(const struct reader *reader, const struct entry *entry,
                                 size_t index, struct tally_error *err)
{
    const size_t draws = n_draws(reader);
    struct tally_sweep_row *row = NULL;
    enum tally_status status = new_row(reader->sweep, &row, err);
    if (status != TALLY_OK) {
        return status;
    }
    snprintf(row->name, sizeof row->name, "%s", entry->name);
    row->tune = entry->object != NULL ? tally_json_get(entry->object, "tune") : NULL;
    row->has_unit = entry->tune.n == 1 && entry->tune.at[0].powers.unit != TALLY_SWEEP_UNIT_ONE;
    row->document = tally_json_copy(entry->base);
    status = row->document != NULL ? TALLY_OK : no_memory(err);
    if (status == TALLY_OK) {
        status = set_combination(row->document, &entry->grid, index / draws, err);
    }
    if (status == TALLY_OK && reader->random.members != NULL) {
        status = set_draw(row->document, &reader->random, index % draws, err);
    }
    if (status == TALLY_OK) {
        status = add_trials(reader, row, &entry->tune, err);
    }
    if (row->tune == NULL) { /* no trial will be added */
        tally_json_free(row->document);
        row->document = NULL;
    }
    return status;
}

/* Reads `grid` and `tune` of an entry. */
static enum tally_status read_entry_axes(const struct reader *reader, struct entry *entry,
                                         struct tally_error *err)
{
    enum tally_status status = in_field(
        read_axes(tally_json_get(entry->object, "grid"), false, &entry->own, err), "grid", err);
    if (status == TALLY_OK) {
        status = in_field(read_axes(tally_json_get(entry->object, "tune"), true, &entry->tune, err),
                          "tune", err);
    }
    if (status == TALLY_OK && entry->tune.n > 0 && reader->sweep->halving.stages > 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "tune",
                            "tune and halving cannot be used together");
    }
    entry->grid = reader->grid;
    memcpy(entry->grid.at + entry->grid.n, entry->own.at, entry->own.n * sizeof *entry->own.at);
    entry->grid.n += entry->own.n;
    return status;
}

/* Adds all rows of one entry of `rows`; NULL = there are no entries. */
static enum tally_status add_rows(const struct reader *reader, const struct tally_json *object,
                                  struct tally_error *err)
{
    struct tally_sweep *sweep = reader->sweep;
    const struct tally_json *set = object != NULL ? tally_json_get(object, "set") : NULL;
    const struct tally_json *own = object != NULL ? tally_json_get(object, "base") : NULL;
    const struct tally_json *const objects[] = {
        set, tally_json_get(sweep->source, "grid"), reader->random.members,
        object != NULL ? tally_json_get(object, "grid") : NULL,
        object != NULL ? tally_json_get(object, "tune") : NULL};
    static const char *const names[] = {"set", "grid", "random", "rows.grid", "tune"};
    struct row_entry row = {.name = ""};
    struct tally_json *base = NULL;
    struct entry entry = {.object = object, .name = row.name, .grid = reader->grid};
    enum tally_status status = object != NULL ? read_part(object, "rows", &row, err) : TALLY_OK;
    if (status == TALLY_OK && set != NULL) {
        status = in_field(count_members(set, err), "set", err);
    }
    if (status == TALLY_OK && object != NULL) {
        status = read_entry_axes(reader, &entry, err);
    }
    if (status == TALLY_OK) {
        status = check_disjoint(objects, names, sizeof names / sizeof names[0], err);
    }
    if (status == TALLY_OK) {
        status = read_base(own != NULL ? own : tally_json_get(sweep->source, "base"),
                           reader->folder, &base, err);
    }
    if (status == TALLY_OK) {
        status = in_field(set_members(base, set, err), "set", err);
    }
    entry.base = base;
    const size_t grid = combinations(&entry.grid, TALLY_SWEEP_ROWS_MOST);
    const size_t n = grid <= TALLY_SWEEP_ROWS_MOST ? grid * n_draws(reader) : grid;
    if (status == TALLY_OK && sweep->n_rows + n > TALLY_SWEEP_ROWS_MOST) {
        status = tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                            "more than %d rows, the limit of a sweep", TALLY_SWEEP_ROWS_MOST);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = add_row(reader, &entry, i, err);
    }
    tally_json_free(base);
    fini_axes(&entry.own);
    fini_axes(&entry.tune);
    return status;
}

/* Which members vary, in the order in which they are set. */
static enum tally_status list_varied(struct tally_sweep *sweep, const struct tally_json *rows,
                                     const struct random *random, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    const size_t n = rows != NULL ? tally_json_size(rows) : 0;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = add_all_varied(sweep, tally_json_get(tally_json_at(rows, i), "set"), err);
    }
    if (status == TALLY_OK) {
        status = add_all_varied(sweep, tally_json_get(sweep->source, "grid"), err);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = add_all_varied(sweep, tally_json_get(tally_json_at(rows, i), "grid"), err);
    }
    if (status == TALLY_OK) {
        status = add_all_varied(sweep, random->members, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = add_all_varied(sweep, tally_json_get(tally_json_at(rows, i), "tune"), err);
    }
    return status;
}

static enum tally_status read_rows(struct reader *reader, struct tally_error *err)
{
    const struct tally_json *rows = NULL, *source = reader->sweep->source;
    enum tally_status status = get_array(source, "rows", TALLY_SWEEP_ROWS_MOST, &rows, err);
    const size_t n = rows != NULL ? tally_json_size(rows) : 0;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        if (!tally_json_is_object(tally_json_at(rows, i))) {
            status =
                tally_fail(err, TALLY_INVALID_ARGUMENT, "rows", "rows[%zu] must be an object", i);
        }
    }
    if (status == TALLY_OK) {
        status = in_field(read_axes(tally_json_get(source, "grid"), false, &reader->grid, err),
                          "grid", err);
    }
    if (status == TALLY_OK) {
        status = read_random(source, &reader->random, err);
    }
    if (status == TALLY_OK) {
        status = list_varied(reader->sweep, rows, &reader->random, err);
    }
    if (status == TALLY_OK && rows == NULL) {
        status = add_rows(reader, NULL, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        char field[32];
        snprintf(field, sizeof field, "rows[%zu]", i);
        status = in_field(add_rows(reader, tally_json_at(rows, i), err), field, err);
    }
    fini_axes(&reader->grid);
    return status;
}

/* ---- Columns, the rule, the axes. */

const struct tally_json *tally_sweep_member(const struct tally_json *document, const char *path)
{
    const struct tally_json *at = document;
    while (at != NULL && tally_json_is_object(at)) {
        char key[TALLY_SWEEP_PATH_CAPACITY];
        const size_t n = strcspn(path, ".");
        if (n >= sizeof key) {
            return NULL;
        }
        memcpy(key, path, n);
        key[n] = '\0';
        at = tally_json_get(at, key);
        if (path[n] == '\0') {
            return at;
        }
        path += n + 1;
    }
    return NULL;
}

static bool is_member(const struct tally_sweep *sweep, const char *path)
{
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_trial *trial = &sweep->rows[i].trials[0];
        struct tally_json *complete = tally_sweep_trial_complete(trial);
        struct tally_json *document = tally_sweep_trial_document(trial);
        const bool is = tally_sweep_member(complete, path) != NULL ||
                        tally_sweep_member(document, path) != NULL;
        tally_json_free(complete);
        tally_json_free(document);
        if (is) {
            return true;
        }
    }
    return false;
}

static enum tally_status refuse_column(const struct tally_sweep *sweep, const char *name,
                                       struct tally_error *err)
{
    struct tally_nearest_name nearest = {.typed = name};
    char list[200] = "";
    size_t used = 0;
    for (size_t i = 0; i < TALLY_N_SWEEP_RESULTS; i++) {
        tally_nearest_name_offer(&nearest, TALLY_SWEEP_RESULTS[i].name);
        if (used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s, ",
                                     TALLY_SWEEP_RESULTS[i].name);
        }
    }
    for (size_t i = 0; i < sweep->n_varied; i++) {
        tally_nearest_name_offer(&nearest, sweep->varied[i]);
    }
    if (nearest.name != NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "\"%.80s\" is unknown; did you mean %s?", name, nearest.name);
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                      "\"%.60s\" is not one of %smetrics.NAME, and no job document has such a "
                      "member",
                      name, list);
}

struct tally_sweep_column tally_sweep_column_of(const char *name)
{
    static const char METRICS[] = "metrics.";
    struct tally_sweep_column column = {.kind = TALLY_SWEEP_MEMBER};
    snprintf(column.name, sizeof column.name, "%s", name);
    for (size_t i = 0; i < TALLY_N_SWEEP_RESULTS; i++) {
        if (strcmp(TALLY_SWEEP_RESULTS[i].name, name) == 0) {
            column.kind = TALLY_SWEEP_RESULT;
            column.result = i;
        }
    }
    if (strncmp(name, METRICS, sizeof METRICS - 1) == 0 &&
        tally_metric_is_name(name + sizeof METRICS - 1)) {
        column.kind = TALLY_SWEEP_METRIC;
    }
    return column;
}

static enum tally_status resolve(const struct tally_sweep *sweep, const char *name,
                                 struct tally_sweep_column *ret_column, struct tally_error *err)
{
    struct tally_sweep_column column = tally_sweep_column_of(name);
    if (strlen(name) >= sizeof column.name) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "a name of %zu bytes, at most %zu",
                          strlen(name), sizeof column.name - 1);
    }
    if (strcmp(name, "stage") == 0 && sweep->halving.stages > 0) {
        column.kind = TALLY_SWEEP_STAGE;
    } else if (column.kind == TALLY_SWEEP_MEMBER && !is_member(sweep, name)) {
        return refuse_column(sweep, name, err);
    }
    *ret_column = column;
    return TALLY_OK;
}

static enum tally_status read_columns(struct tally_sweep *sweep, struct tally_error *err)
{
    const struct tally_json *columns = NULL;
    enum tally_status status =
        get_array(sweep->source, "columns", TALLY_SWEEP_COLUMNS_MOST, &columns, err);
    const size_t n = columns != NULL ? tally_json_size(columns) : 0;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        const char *name = tally_json_as_text(tally_json_at(columns, i));
        status = name != NULL ? resolve(sweep, name, &sweep->columns[sweep->n_columns++], err)
                              : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                                           "columns[%zu] must be text", i);
        status = in_field(status, "columns", err);
    }
    return status;
}

static const struct tally_sweep_row *row_without_regret(const struct tally_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_rows; i++) {
        if (!sweep->rows[i].trials[0].has_regret) {
            return &sweep->rows[i];
        }
    }
    return NULL;
}

static enum tally_status resolve_rule(struct tally_sweep *sweep, struct tally_error *err)
{
    static const char REGRET[] = "regret";
    const struct tally_sweep_row *without = row_without_regret(sweep);
    const char *name = sweep->rule.by[0] != '\0' ? sweep->rule.by
                       : without == NULL         ? REGRET
                                                 : "loss";
    enum tally_status status = resolve(sweep, name, &sweep->by, err);
    if (status == TALLY_OK && sweep->by.kind != TALLY_SWEEP_RESULT &&
        sweep->by.kind != TALLY_SWEEP_METRIC) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "\"%.80s\" is a member of the job document, not a result", name);
    }
    if (status == TALLY_OK && without != NULL && strcmp(name, REGRET) == 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "row %td has no regret: its job has the reference none",
                            without - sweep->rows + 1);
    }
    return in_field(in_field(status, "by", err), "best", err);
}

static enum tally_status check_axis(const struct tally_sweep *sweep, const char *name,
                                    const char *field, struct tally_error *err)
{
    struct tally_sweep_column column;
    return name[0] != '\0'
               ? in_field(in_field(resolve(sweep, name, &column, err), field, err), "axes", err)
               : TALLY_OK;
}

static enum tally_status check_reference_values(const struct tally_sweep *sweep,
                                                const struct tally_json *values,
                                                struct tally_error *err)
{
    enum tally_status status = count_members(values, err);
    const char *name;
    for (size_t i = 0; status == TALLY_OK && (name = tally_json_key(values, i)) != NULL; i++) {
        const struct tally_field field = {
            .name = name, .kind = TALLY_FIELD_REAL, .offset = 0, .min = -INFINITY, .max = INFINITY};
        struct tally_sweep_column column;
        double value;
        status = in_field(resolve(sweep, name, &column, err), name, err);
        if (status == TALLY_OK) {
            status = tally_json_read_field(values, &field, &value, err);
        }
    }
    return in_field(status, "values", err);
}

static enum tally_status check_reference_rows(const struct tally_sweep *sweep,
                                              struct tally_error *err)
{
    const struct tally_json *rows = NULL;
    enum tally_status status =
        get_array(sweep->source, "reference_rows", TALLY_SWEEP_ROWS_MOST, &rows, err);
    const size_t n = rows != NULL ? tally_json_size(rows) : 0;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        const struct tally_json *entry = tally_json_at(rows, i);
        struct reference_entry reference;
        char field[48];
        snprintf(field, sizeof field, "reference_rows[%zu]", i);
        status = read_part(entry, "reference_rows", &reference, err);
        if (status == TALLY_OK && tally_json_get(entry, "values") == NULL) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, "values", "values is missing");
        }
        if (status == TALLY_OK) {
            status = check_reference_values(sweep, tally_json_get(entry, "values"), err);
        }
        status = in_field(status, field, err);
    }
    return status;
}

/* ---- The whole. */

static enum tally_status read_seeds(struct tally_sweep *sweep, const char *seeds,
                                    struct tally_error *err)
{
    const struct tally_json *member = tally_json_get(sweep->source, "seeds");
    char text[32];
    sweep->n_seeds = 1;
    if (seeds == NULL && member != NULL) {
        const int64_t number = tally_json_get_integer(sweep->source, "seeds", -1);
        seeds = tally_json_as_text(member);
        if (seeds == NULL && number >= 0) {
            snprintf(text, sizeof text, "%lld", (long long)number);
            seeds = text;
        }
        if (seeds == NULL) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "seeds",
                              "seeds must be text such as \"101-110\", or one integer from 0");
        }
    }
    sweep->has_seeds = seeds != NULL;
    return seeds != NULL ? tally_seeds_parse(seeds, &sweep->first_seed, &sweep->n_seeds, err)
                         : TALLY_OK;
}

/* Halving by horizon runs the jobs with shorter horizons, which must be possible as well. */
static enum tally_status check_halving(const struct tally_sweep *sweep, struct tally_error *err)
{
    const struct tally_sweep_halving *halving = &sweep->halving;
    if (halving->stages > 0 && halving->by == TALLY_SWEEP_HALVING_SEEDS && sweep->n_seeds < 2) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "halving.by",
                          "halving by seeds needs at least two seeds");
    }
    if (halving->stages == 0 || halving->by == TALLY_SWEEP_HALVING_SEEDS) {
        return TALLY_OK;
    }
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < sweep->n_rows; i++) {
        struct tally_job_spec *spec = tally_sweep_trial_spec(&sweep->rows[i].trials[0]);
        if (spec == NULL) {
            return no_memory(err);
        }
        spec->horizon = tally_sweep_stage_horizon(sweep, i, 1);
        status = tally_job_spec_validate(spec, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "row %zu in stage 1, with a horizon of %lld", i + 1,
                             (long long)spec->horizon);
            tally_error_in_field(err, "halving");
        }
        free(spec);
    }
    return status;
}

static enum tally_status read_all(struct reader *reader, const char *seeds, struct tally_error *err)
{
    struct tally_sweep *sweep = reader->sweep;
    enum tally_status status = read_part(sweep->source, "", sweep, err);
    if (status == TALLY_OK) {
        status = read_seeds(sweep, seeds, err);
    }
    if (status == TALLY_OK) {
        status = read_optional(sweep->source, "best", &sweep->rule, err);
    }
    if (status == TALLY_OK && tally_json_get(sweep->source, "halving") != NULL) {
        sweep->halving = HALVING_DEFAULTS;
        status = read_optional(sweep->source, "halving", &sweep->halving, err);
    }
    if (status == TALLY_OK) {
        status = read_optional(sweep->source, "axes", &sweep->axes, err);
    }
    if (status == TALLY_OK) {
        status = read_rows(reader, err);
    }
    if (status == TALLY_OK) {
        status = check_halving(sweep, err);
    }
    if (status == TALLY_OK) {
        status = resolve_rule(sweep, err);
    }
    if (status == TALLY_OK) {
        status = read_columns(sweep, err);
    }
    if (status == TALLY_OK) {
        status = check_axis(sweep, sweep->axes.x, "x", err);
    }
    if (status == TALLY_OK) {
        status = check_axis(sweep, sweep->axes.y, "y", err);
    }
    return status == TALLY_OK ? check_reference_rows(sweep, err) : status;
}

enum tally_status tally_sweep_read(const char *text, size_t n, const char *folder,
                                   const char *data_dir, const char *seeds,
                                   struct tally_sweep *ret_sweep, struct tally_json **ret_faults,
                                   struct tally_error *err)
{
    struct tally_sweep sweep = {.n_seeds = 1, .data_dir = data_dir};
    struct reader reader = {.sweep = &sweep, .folder = folder, .ret_faults = ret_faults};
    *ret_faults = NULL;
    enum tally_status status = tally_json_check_limits(text, n, &LIMITS, err);
    if (status == TALLY_OK) {
        status = tally_json_parse(text, n, &sweep.source, err);
    }
    if (status == TALLY_OK) {
        status = read_all(&reader, seeds, err);
    }
    if (status != TALLY_OK) {
        tally_sweep_fini(&sweep);
        return status;
    }
    *ret_sweep = sweep;
    return TALLY_OK;
}

void tally_sweep_fini(struct tally_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_rows; i++) {
        for (size_t k = 0; k < sweep->rows[i].n_trials; k++) {
            fini_trial(&sweep->rows[i], &sweep->rows[i].trials[k]);
        }
        free(sweep->rows[i].trials);
        free(sweep->rows[i].problem);
        tally_json_free(sweep->rows[i].document);
    }
    free(sweep->rows);
    free(sweep->varied);
    tally_json_free(sweep->source);
    *sweep = (struct tally_sweep){0};
}

uint64_t tally_sweep_digest(const struct tally_sweep *sweep)
{
    struct tally_buffer text = {0};
    tally_buffer_printf(&text, "%lld %zu", (long long)sweep->first_seed, sweep->n_seeds);
    for (size_t i = 0; i < sweep->n_rows; i++) {
        for (size_t k = 0; k < sweep->rows[i].n_trials; k++) {
            const char *document = sweep->rows[i].trials[k].document;
            tally_buffer_append(&text, document, strlen(document));
        }
    }
    const uint64_t digest = tally_checksum64(text.data, text.size);
    tally_buffer_fini(&text);
    return digest;
}

const struct tally_sweep_trial *tally_sweep_trial_of(const struct tally_sweep *sweep, size_t row)
{
    return &sweep->rows[row].trials[sweep->rows[row].best];
}

struct tally_json *tally_sweep_job(const struct tally_sweep *sweep, size_t row)
{
    return tally_sweep_trial_document(tally_sweep_trial_of(sweep, row));
}

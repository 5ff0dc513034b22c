/* sweep: many runs of variants of one job document, described by a document of its own
 * (SWEEP.md), in this process.
 *
 *     {"base": "synthetic-fedavg.json", "grid": {"algorithm.step_size": [0.003, 0.01, 0.03]},
 *      "seeds": "101-110"}
 *
 *     document  -->  rows x trials (sweep_document.c)  -->  runs[seed] (sweep_run.c)  -->  report
 *
 * A row is a line of the result: one of `rows` (or the base alone) with one combination of the grid
 * and the random draws. It has one trial, or with `tune` one for each combination of that grid; the
 * best of them becomes the row. A trial is a job document, which is run once with each seed.
 *
 * Runs are jobs of the engine. Which thread executes a run does not influence its result, and
 * neither does the number of threads. Runs with the same seed, objective and number of clients
 * share their data and f(x*). */
#ifndef TALLY_SERVICES_EXPERIMENT_SWEEP_H
#define TALLY_SERVICES_EXPERIMENT_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/json/json.h"
#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/field.h"
#include "services/experiment/run.h"
#include "services/job/job_spec.h"

enum {
    TALLY_SWEEP_ROWS_MOST = 5000,
    TALLY_SWEEP_TRIALS_MOST = 25000,
    TALLY_SWEEP_RUNS_MOST = 1000000,
    TALLY_SWEEP_COLUMNS_MOST = 48,  /* all results, and the metrics that a job may have */
    TALLY_SWEEP_PATH_CAPACITY = 97, /* of a member's path, or of a column, with NUL */
};

/* ---- The document. */

enum tally_sweep_range_scale { TALLY_SWEEP_RANGE_LINEAR, TALLY_SWEEP_RANGE_LOG };
struct tally_sweep_range { /* of numbers, with both ends */
    double from, to;
    int64_t count; /* in a random search it is not given */
    int scale;     /* enum tally_sweep_range_scale */
    bool integers; /* rounded, each one once */
};
enum tally_sweep_unit { TALLY_SWEEP_UNIT_ONE, TALLY_SWEEP_UNIT_INVERSE_SMOOTHNESS };
struct tally_sweep_powers { /* around * factor^k units for k = first .. last */
    double around, factor;
    int64_t first, last;
    bool widen;
    int unit; /* enum tally_sweep_unit */
};
struct tally_sweep_random {
    int64_t count, seed;
};
struct tally_sweep_rule {
    char by[TALLY_SWEEP_PATH_CAPACITY]; /* "" = regret, or loss if there is no regret */
    int better;                         /* enum tally_better */
};
enum tally_sweep_halving_by { TALLY_SWEEP_HALVING_SEEDS, TALLY_SWEEP_HALVING_HORIZON };
struct tally_sweep_halving {
    int by;         /* enum tally_sweep_halving_by */
    int64_t stages; /* 0 = no halving */
    double factor;
};
enum tally_sweep_scale { TALLY_SWEEP_SCALE_AUTO, TALLY_SWEEP_SCALE_LINEAR, TALLY_SWEEP_SCALE_LOG };
struct tally_sweep_axes {
    char x[TALLY_SWEEP_PATH_CAPACITY], y[TALLY_SWEEP_PATH_CAPACITY]; /* "" = chosen */
    int x_scale, y_scale;                                            /* enum tally_sweep_scale */
};

/* One object of the document: the tables that read it, and what is in the reference of the
 * document (SWEEP.md) and in `tally sweep --members`. */
struct tally_sweep_part {
    const char *name; /* "" = the top level */
    const char *doc;
    const struct tally_field *fields;
    size_t n_fields;
    const void *defaults;
    const char *const (*others)[3]; /* further members: name, type, meaning; ends with NULL */
};
extern const struct tally_sweep_part TALLY_SWEEP_PARTS[];
extern const size_t TALLY_N_SWEEP_PARTS;

/* A result of a run that a column, a rule or an axis can name. */
struct tally_sweep_result {
    const char *name;
    size_t place; /* offset of a double in struct tally_run, or one of those below */
    const char *doc;
};
enum { TALLY_SWEEP_SUM_OF_BITS = sizeof(struct tally_run), TALLY_SWEEP_LAST_GAP };
extern const struct tally_sweep_result TALLY_SWEEP_RESULTS[];
extern const size_t TALLY_N_SWEEP_RESULTS;

/* ---- A sweep. */

/* There may be thousands, so a trial keeps the text of its document, and what is needed of it
 * often. The functions below make the rest. */
struct tally_sweep_trial {
    char *document; /* heap; of the job, as text, with the members that vary and the first seed */
    char *found;    /* heap; the same with what data files have; NULL = it needs none of them */
    char *problem;  /* members that runs with the same data and f(x*) share; may be the row's */
    const struct tally_algorithm *algorithm;
    bool is_compressed; /* tally_run_is_compressed() */
    bool is_plugin;     /* the objective is one */
    bool has_regret;
    int64_t seed, horizon;
    double cost, solve_cost; /* tally_run_cost(), tally_run_solve_cost() */
    int exponent;            /* k of a tuned member with powers */
    struct tally_run *runs;  /* [n_seeds]; the first n_runs are filled */
    size_t n_runs;
};

/* The job document of a trial, the same with all defaults, and its spec. All are new; free() frees
 * the spec. NULL = out of memory. */
struct tally_json *tally_sweep_trial_document(const struct tally_sweep_trial *trial);
struct tally_json *tally_sweep_trial_complete(const struct tally_sweep_trial *trial);
struct tally_job_spec *tally_sweep_trial_spec(const struct tally_sweep_trial *trial);

struct tally_sweep_row {
    char name[65];                 /* of the entry in `rows`; "" = none */
    struct tally_json *document;   /* of its trials, without the members of `tune`; NULL without */
    const struct tally_json *tune; /* borrowed from the sweep's document; NULL = one trial */
    char *problem;                 /* heap; of the first trial that was made */
    struct tally_sweep_trial *trials;
    size_t n_trials;
    size_t best;   /* index of a trial; 0 before the runs */
    bool at_edge;  /* with powers: the best trial is the first or the last */
    bool widened;  /* with powers: the grid was widened */
    int64_t stage; /* of halving: the last one in which the row ran, from 1 */
    bool has_unit; /* with powers: their unit is 1 / smoothness */
    /* Of f at the first seed: if the row has such a unit, or gaps are recorded. */
    struct tally_curvature curvature;
    double zero_gap; /* f(0) - f(x*); NaN = gaps are not recorded */
};

/* What a column, an axis or the rule names. */
enum tally_sweep_column_kind {
    TALLY_SWEEP_MEMBER, /* a member of the job document */
    TALLY_SWEEP_RESULT, /* of TALLY_SWEEP_RESULTS */
    TALLY_SWEEP_METRIC, /* metrics.NAME */
    TALLY_SWEEP_STAGE   /* of halving */
};
struct tally_sweep_column {
    char name[TALLY_SWEEP_PATH_CAPACITY];
    enum tally_sweep_column_kind kind;
    size_t result; /* index into TALLY_SWEEP_RESULTS */
};

struct tally_sweep {
    char name[129];
    struct tally_json *source; /* the document */
    const char *data_dir;      /* where open members of documents are found; NULL = nowhere */
    bool has_seeds;            /* otherwise each job document has its own */
    int64_t first_seed;
    size_t n_seeds;
    int64_t tune_seeds; /* of the trials of `tune`; 0 = all */
    struct tally_sweep_rule rule;
    struct tally_sweep_column by; /* what the rule compares */
    struct tally_sweep_halving halving;
    struct tally_sweep_axes axes;
    char (*varied)[TALLY_SWEEP_PATH_CAPACITY]; /* heap; paths of the members that vary */
    size_t n_varied;
    struct tally_sweep_column columns[TALLY_SWEEP_COLUMNS_MOST];
    size_t n_columns;
    struct tally_sweep_row *rows; /* heap */
    size_t n_rows;
    size_t best; /* index of a row, once they have run */
};

/* Reads a sweep's document of n bytes, at most 1 MiB, 10,000 values and 16 levels, and every job
 * document that follows from it. `seeds` replaces the seeds of the document; NULL = it does not.
 * On failure *ret_faults has the faults of a job document (document_faults.h), which the caller
 * frees, or is NULL. Errors: MALFORMED (not JSON), INVALID_ARGUMENT, OUT_OF_RANGE, with the path of
 * the member in err->field and the limits in the message; NO_MEMORY. Names of files in the document
 * are relative to `folder`. `data_dir`, which is borrowed: the folder of data files, in which open
 * members of documents are found (services/job/document_complete.h); NULL = they are errors. */
enum tally_status tally_sweep_read(const char *text, size_t n, const char *folder,
                                   const char *data_dir, const char *seeds,
                                   struct tally_sweep *ret_sweep, struct tally_json **ret_faults,
                                   struct tally_error *err);
void tally_sweep_fini(struct tally_sweep *sweep);

/* The number of runs of the whole sweep, unless a grid is widened. */
size_t tally_sweep_count(const struct tally_sweep *sweep);

/* Halving: how many rows, seeds and time steps a stage has, from 1; without halving there is one
 * stage with all of them. */
size_t tally_sweep_stage_rows(const struct tally_sweep *sweep, int64_t stage);
size_t tally_sweep_stage_seeds(const struct tally_sweep *sweep, int64_t stage);
int64_t tally_sweep_stage_horizon(const struct tally_sweep *sweep, size_t row, int64_t stage);

/* Adds n trials to a row with powers that may be widened, beyond the end at which its best trial
 * is. *ret_widened is false if there is nothing to add. Errors: NO_MEMORY. */
enum tally_status tally_sweep_widen(struct tally_sweep *sweep, struct tally_sweep_row *row,
                                    size_t n, bool *ret_widened, struct tally_error *err);

/* Multiplies the values of a row's powers by their unit, now that it is known, before any run.
 * Errors: those of a job document, INVALID_ARGUMENT or OUT_OF_RANGE; NO_MEMORY. */
enum tally_status tally_sweep_set_unit(struct tally_sweep *sweep, struct tally_sweep_row *row,
                                       double unit, struct tally_error *err);

/* ---- Running it. */

/* A job that somebody else runs. */
struct tally_sweep_job {
    struct tally_json *document; /* with its seed and horizon; borrowed */
    struct tally_run *place;     /* receives the result, with a curve of one point or more */
    size_t row;                  /* from 0 */
    int64_t seed;
};

struct tally_sweep_config {
    /* Runs n jobs elsewhere, in place of what follows; NULL = in this process. A place that has a
     * result of an earlier stage is finished first. */
    enum tally_status (*execute)(void *context, const struct tally_sweep_job *jobs, size_t n,
                                 struct tally_error *err);
    unsigned threads;
    const char *data_dir;
    size_t curve_points; /* most points of the curve of a run; 0 = enough for a picture */
    bool with_entropy;   /* computes the estimates of run.h even if no column has them */
    bool with_gaps;      /* records gaps (run.h) even if no column has them */
    /* Makes the objective of a job, which borrows the spec. May be called by several threads. NULL:
     * as tally_objective_new(). */
    enum tally_status (*make_objective)(void *context, const struct tally_job_spec *spec,
                                        struct tally_objective **ret, struct tally_error *err);
    /* Called ten times a second with the share of all planned work that is done. Returning false
     * asks to stop. May be NULL. */
    bool (*watch)(void *context, double fraction, const char *what);
    void *context;
};

/* Estimates the processor time of the whole sweep: runs the first job for at most a fifth of a
 * second. Errors: those of the objective and of a run. */
enum tally_status tally_sweep_forecast(const struct tally_sweep *sweep,
                                       const struct tally_sweep_config *config, double *ret_seconds,
                                       struct tally_error *err);

/* Runs everything. Errors: those of the objective and of a run, wrapped with its row and seed;
 * CANCELLED, NO_MEMORY. */
enum tally_status tally_sweep_run(struct tally_sweep *sweep,
                                  const struct tally_sweep_config *config, struct tally_error *err);

/* The result, the metric or, if it is neither, the member of this name. */
struct tally_sweep_column tally_sweep_column_of(const char *name);
/* The trial that stands for a row. */
const struct tally_sweep_trial *tally_sweep_trial_of(const struct tally_sweep *sweep, size_t row);
/* What a column of results or metrics has for one run; NaN = nothing. */
double tally_sweep_value(const struct tally_run *run, const struct tally_sweep_column *column);
/* Mean and spread of a column of numbers over the runs of a trial; NaN if it has none. A member
 * that is a number has no spread. */
struct tally_summary tally_sweep_summary(const struct tally_sweep_trial *trial,
                                         const struct tally_sweep_column *column);
/* The member that a path names; NULL = there is none. */
const struct tally_json *tally_sweep_member(const struct tally_json *document, const char *path);
/* Whether `left` is better than `right` by the rule; NaN is the worst. */
bool tally_sweep_is_better(const struct tally_sweep *sweep, double left, double right);

/* A checksum of all job documents and seeds: the same for the same sweep. */
uint64_t tally_sweep_digest(const struct tally_sweep *sweep);

/* The job document of a row, which can be submitted: the base with the row's members and the first
 * seed. NULL = out of memory. */
struct tally_json *tally_sweep_job(const struct tally_sweep *sweep, size_t row);

/* "algorithm.step_size=0.1 clients=5": what is special about a row, cut if it is too long. */
void tally_sweep_describe(const struct tally_sweep *sweep, size_t row, char *ret_text,
                          size_t capacity);

/* ---- Results. Errors of all: NO_MEMORY. */

/* The columns of the table: those of the document, or what varies, the stage, regret or loss, bits
 * and metrics. Returns their number. */
size_t tally_sweep_columns(const struct tally_sweep *sweep,
                           struct tally_sweep_column ret_columns[TALLY_SWEEP_COLUMNS_MOST]);

/* One cell of a row, or its spread, as text. */
void tally_sweep_cell(const struct tally_sweep *sweep, size_t row,
                      const struct tally_sweep_column *column, bool is_spread, char *ret_text,
                      size_t capacity);
/* Whether the runs of any row differ in the column. */
bool tally_sweep_spreads(const struct tally_sweep *sweep, const struct tally_sweep_column *column);
/* A number in at most five digits; "-" for NaN, "diverged" for infinity. */
void tally_sweep_format(double value, char *ret_text, size_t capacity);
/* Entry `index` of `reference_rows`; NULL past the last. */
const struct tally_json *tally_sweep_reference_row(const struct tally_sweep *sweep, size_t index);
/* The value that it gives for a result; NaN = none. */
double tally_sweep_reference_value(const struct tally_json *row, const char *name);

/* What the picture shows. */
struct tally_sweep_picture {
    struct tally_sweep_column x, y;
    bool x_log, y_log;
};
void tally_sweep_choose_axes(const struct tally_sweep *sweep, struct tally_sweep_picture *ret);

/* As aligned text: a line for each row, then the reference rows. */
enum tally_status tally_sweep_table(const struct tally_sweep *sweep, struct tally_buffer *out);
/* {"name", "seeds", "by", "rows": [{"row", "name", "members": {PATH: value}, "runs", "results":
 *  {NAME: {"mean", "std", "min", "max"}}, "metrics": same, "stage", "trials": [{"members", BY:
 *  same, "best"}], "at_edge", "widened"}], "reference_rows", "best": {"row", "document"}}: `stage`
 * only with halving, `trials` and what follows only with `tune`. null stands for what a run does
 * not have, and for the results of runs that diverged. NULL when memory ran out. */
struct tally_json *tally_sweep_json(const struct tally_sweep *sweep);
/* A line for each row, with mean and standard deviation; and a line for each run. */
enum tally_status tally_sweep_rows_csv(const struct tally_sweep *sweep, struct tally_buffer *out);
enum tally_status tally_sweep_runs_csv(const struct tally_sweep *sweep, struct tally_buffer *out);
/* Draws sweep.svg and sweep.png. */
enum tally_status tally_sweep_script(const struct tally_sweep *sweep, struct tally_buffer *out);
/* One HTML page with the table, charts as inline SVG, and the best job document. No scripts, no
 * other files. */
enum tally_status tally_sweep_page(const struct tally_sweep *sweep, struct tally_buffer *out);

/* The members of a sweep's document, as text for a terminal. */
enum tally_status tally_sweep_members(struct tally_buffer *out);

#endif

#include "services/experiment/reproduction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/text.h"
#include "services/experiment/shipped.h"

static const char TUNED[] = "tuned";

static enum tally_status no_memory(struct tally_error *err)
{
    return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the experiment");
}

/* ---- The document. */

/* Parses the document deploy/FOLDER/NAME. */
static enum tally_status parse_shipped(const char *folder, const char *name,
                                       struct tally_json **ret_document, struct tally_error *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const char *text = tally_shipped_get(path);
    return text != NULL ? tally_json_parse(text, strlen(text), ret_document, err)
                        : tally_fail(err, TALLY_NOT_FOUND, NULL, "no document %s", path);
}

/* "paper" of "fedavg paper" */
static const char *preset_of(const char *name)
{
    const char *space = name != NULL ? strchr(name, ' ') : NULL;
    return space != NULL ? space + 1 : "";
}

static bool is_wanted(const void *context, const char *name, bool is_tuned)
{
    const struct tally_reproduction_config *config = context;
    const char *preset = preset_of(name);
    return (config->with_grid || !is_tuned) &&
           (config->only == NULL || tally_word_list_has(config->only, preset, strlen(preset)));
}

/* Adds a name to "paper, paper_bits, " unless it is there. */
static void add_name(const char *name, char *list, size_t capacity)
{
    char word[80];
    const size_t used = strlen(list), n = (size_t)snprintf(word, sizeof word, "%s, ", name);
    const char *at = list;
    while ((at = strstr(at, word)) != NULL && at > list && at[-1] != ' ') {
        at++;
    }
    if (at == NULL && used + n < capacity) {
        memcpy(list + used, word, n + 1);
    }
}

/* "paper, paper_bits, auto, tuned" */
static void list_names(const struct tally_json *rows, char *ret_list, size_t capacity)
{
    ret_list[0] = '\0';
    for (size_t i = 0; i < tally_json_size(rows); i++) {
        const char *preset = preset_of(tally_json_get_text(tally_json_at(rows, i), "name"));
        if (strcmp(preset, TUNED) != 0) {
            add_name(preset, ret_list, capacity);
        }
    }
    add_name(TUNED, ret_list, capacity);
    ret_list[strlen(ret_list) - 2] = '\0';
}

static enum tally_status check_names(const struct tally_reproduction_config *config,
                                     const struct tally_json *rows, struct tally_error *err)
{
    char names[256];
    const char *list = config->only;
    size_t n;
    list_names(rows, names, sizeof names);
    for (const char *at; (at = tally_word_list_next(&list, &n)) != NULL;) {
        bool is_known = false;
        for (size_t i = 0; i < tally_json_size(rows) && !is_known; i++) {
            const char *preset = preset_of(tally_json_get_text(tally_json_at(rows, i), "name"));
            is_known = strlen(preset) == n && strncmp(preset, at, n) == 0;
        }
        if (!is_known) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "preset",
                              "unknown preset \"%.*s\" for %.*s; choose from %s",
                              (int)(n < 60 ? n : 60), at, (int)strcspn(config->document, "-"),
                              config->document, names);
        }
    }
    return TALLY_OK;
}

static enum tally_status set_real(struct tally_json *document, const char *path, double value,
                                  struct tally_error *err)
{
    struct tally_json *number = tally_json_real(value);
    return number != NULL ? tally_json_set_path(document, path, number, err) : no_memory(err);
}

/* Lets a job start at another distance from 0. As |x*| is 1, the mean square of a coordinate of
 * x^(1) - x* is (radius^2 + 1) / dim, which CALM is told unless it is to estimate it. */
static enum tally_status set_radius(struct tally_json *document, double radius,
                                    struct tally_error *err)
{
    const struct tally_json *algorithm = tally_json_get(document, "algorithm");
    const struct tally_json *data = tally_sweep_member(document, "objective.data");
    if (isnan(radius) || tally_sweep_member(document, "initial_point.radius") == NULL) {
        return TALLY_OK;
    }
    enum tally_status status = set_real(document, "initial_point.radius", radius, err);
    if (status == TALLY_OK && tally_json_get_real(algorithm, "initial_variance", NAN) > 0) {
        status = set_real(document, "algorithm.initial_variance",
                          (radius * radius + 1) / tally_json_get_real(data, "dim", 1), err);
    }
    return status;
}

/* Appends an entry of `rows` whose base is a document instead of a file. */
static enum tally_status add_entry(const struct tally_json *entry, double radius,
                                   struct tally_json *rows, struct tally_error *err)
{
    static const char FOLDER[] = "../jobs/";
    const char *file = tally_json_get_text(entry, "base");
    struct tally_json *copy = tally_json_copy(entry), *base = NULL;
    enum tally_status status = copy != NULL ? TALLY_OK : no_memory(err);
    if (status == TALLY_OK && file != NULL && strncmp(file, FOLDER, sizeof FOLDER - 1) == 0) {
        status = parse_shipped("jobs", file + sizeof FOLDER - 1, &base, err);
    }
    if (status == TALLY_OK && base != NULL) {
        status = set_radius(base, radius, err);
    }
    if (status == TALLY_OK && base != NULL) {
        status = tally_json_set(copy, "base", base) ? TALLY_OK : no_memory(err);
        base = NULL;
    }
    if (status == TALLY_OK) {
        status = tally_json_append(rows, copy) ? TALLY_OK : no_memory(err);
        copy = NULL;
    }
    tally_json_free(base);
    tally_json_free(copy);
    return status;
}

/* Replaces `rows` by those that are kept. */
static enum tally_status select_rows(struct tally_json *document, tally_reproduction_keep_fn *keeps,
                                     const void *context, double radius, struct tally_error *err)
{
    const struct tally_json *all = tally_json_get(document, "rows");
    struct tally_json *rows = tally_json_array();
    enum tally_status status = rows != NULL ? TALLY_OK : no_memory(err);
    for (size_t i = 0; status == TALLY_OK && i < tally_json_size(all); i++) {
        const struct tally_json *entry = tally_json_at(all, i);
        if (keeps(context, tally_json_get_text(entry, "name"),
                  tally_json_get(entry, "tune") != NULL)) {
            status = add_entry(entry, radius, rows, err);
        }
    }
    if (status == TALLY_OK && tally_json_size(rows) == 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "preset", "no row is left");
    }
    if (status == TALLY_OK) {
        return tally_json_set(document, "rows", rows) ? TALLY_OK : no_memory(err);
    }
    tally_json_free(rows);
    return status;
}

static enum tally_status read_document(const struct tally_json *document, int64_t first_seed,
                                       size_t n_seeds, struct tally_sweep *ret_sweep,
                                       struct tally_error *err)
{
    char seeds[48];
    struct tally_json *faults = NULL;
    struct tally_buffer text = {0};
    snprintf(seeds, sizeof seeds, "%lld-%lld", (long long)first_seed,
             (long long)first_seed + (long long)n_seeds - 1);
    enum tally_status status = tally_json_dump(document, 0, &text);
    status = status == TALLY_OK ? tally_sweep_read((const char *)text.data, text.size, NULL, NULL,
                                                   seeds, ret_sweep, &faults, err)
                                : no_memory(err);
    tally_json_free(faults);
    tally_buffer_fini(&text);
    return status;
}

static enum tally_status parse_experiment(const char *name, struct tally_json **ret_document,
                                          struct tally_error *err)
{
    char file[64];
    snprintf(file, sizeof file, "%s.json", name);
    return parse_shipped("experiments", file, ret_document, err);
}

enum tally_status tally_reproduction_load(const char *name, tally_reproduction_keep_fn *keeps,
                                          const void *context, int64_t first_seed, size_t n_seeds,
                                          struct tally_sweep *ret_sweep, struct tally_error *err)
{
    struct tally_json *document = NULL;
    enum tally_status status = parse_experiment(name, &document, err);
    if (status == TALLY_OK) {
        status = select_rows(document, keeps, context, NAN, err);
    }
    if (status == TALLY_OK) {
        status = read_document(document, first_seed, n_seeds, ret_sweep, err);
    }
    tally_json_free(document);
    return status;
}

enum tally_status tally_reproduction_read(const struct tally_reproduction_config *config,
                                          struct tally_sweep *ret_sweep, struct tally_error *err)
{
    struct tally_json *document = NULL;
    enum tally_status status = parse_experiment(config->document, &document, err);
    if (status == TALLY_OK) {
        status = check_names(config, tally_json_get(document, "rows"), err);
    }
    if (status == TALLY_OK) {
        status = select_rows(document, is_wanted, config, config->radius, err);
    }
    if (status == TALLY_OK) {
        status = read_document(document, config->first_seed, config->n_seeds, ret_sweep, err);
    }
    tally_json_free(document);
    return status;
}

/* ---- Rows. */

double tally_reproduction_step_size(const struct tally_sweep_trial *trial)
{
    struct tally_json *complete = tally_sweep_trial_complete(trial);
    const double step_size =
        tally_json_get_real(tally_sweep_member(complete, "algorithm"), "step_size", NAN);
    tally_json_free(complete);
    return step_size;
}

size_t tally_reproduction_search_seeds(const struct tally_sweep *sweep)
{
    const size_t n = (size_t)sweep->tune_seeds;
    return n > 0 && n < sweep->n_seeds ? n : sweep->n_seeds;
}

struct tally_summary tally_reproduction_trial_regret(const struct tally_sweep *sweep,
                                                     const struct tally_sweep_trial *trial)
{
    return tally_summary_of_regret(trial->runs, tally_reproduction_search_seeds(sweep));
}

/* The bits of the algorithm in Table I; those of CEAL if it has none. */
static struct tally_bit_pair paper_bits(const struct tally_sweep *sweep, const char *algorithm)
{
    static const char TABLE[] = "Table I, ";
    struct tally_bit_pair bits = {NAN, NAN};
    const struct tally_json *row;
    for (size_t i = 0; (row = tally_sweep_reference_row(sweep, i)) != NULL; i++) {
        const char *name = tally_json_get_text(row, "name") + sizeof TABLE - 1;
        if (strcmp(name, algorithm) == 0 ||
            (strcmp(name, TALLY_CEAL.name) == 0 && isnan(bits.uplink))) {
            bits =
                (struct tally_bit_pair){tally_sweep_reference_value(row, "uplink_formula_bits"),
                                        tally_sweep_reference_value(row, "downlink_formula_bits")};
        }
    }
    return bits;
}

static struct tally_reproduction_row row_of(const struct tally_sweep *sweep, size_t row)
{
    const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, row);
    struct tally_reproduction_row result = {
        .trial = trial,
        .algorithm = trial->algorithm,
        .preset = preset_of(sweep->rows[row].name),
        .tuned = sweep->rows[row].tune != NULL,
        .step_size = tally_reproduction_step_size(trial),
        .regret = tally_summary_of_regret(trial->runs, trial->n_runs),
        .planned_regret = trial->n_runs > 0 ? trial->runs[0].planned_regret : (double)NAN,
        .bits = tally_summary_of_bits(trial->runs, trial->n_runs)};
    result.counted =
        tally_summary_counted_bits(trial->algorithm, trial->is_compressed, &result.bits);
    result.paper = paper_bits(sweep, result.algorithm->name);
    return result;
}

enum tally_status tally_reproduction_make(const struct tally_sweep *sweep,
                                          struct tally_reproduction *ret_table,
                                          struct tally_error *err)
{
    struct tally_reproduction table = {sweep, calloc(sweep->n_rows, sizeof *table.rows)};
    if (table.rows == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < sweep->n_rows; i++) {
        table.rows[i] = row_of(sweep, i);
    }
    *ret_table = table;
    return TALLY_OK;
}

void tally_reproduction_fini(struct tally_reproduction *table)
{
    free(table->rows);
    *table = (struct tally_reproduction){0};
}

void tally_reproduction_title(const struct tally_sweep *sweep, const char *to, char *ret_title,
                              size_t capacity)
{
    struct tally_job_spec *spec = tally_sweep_trial_spec(&sweep->rows[0].trials[0]);
    char radius[48] = "";
    if (spec != NULL && spec->initial_point.type == TALLY_INITIAL_RANDOM_SPHERE) {
        snprintf(radius, sizeof radius, ", start radius %g", spec->initial_point.radius);
    }
    free(spec);
    snprintf(ret_title, capacity, "%s%s, seeds %lld%s%lld", sweep->name, radius,
             (long long)sweep->first_seed, to,
             (long long)sweep->first_seed + (long long)sweep->n_seeds - 1);
}

/* ---- JSON. */

struct tally_json *tally_reproduction_bits_json(const struct tally_run_bits *bits)
{
    struct tally_json *json = tally_json_object();
    return tally_json_if_complete(
        json, tally_json_set_real(json, "formula", bits->formula) &&
                  tally_json_set_real(json, "payload", bits->payload) &&
                  tally_json_set_real(json, "control", bits->control) &&
                  tally_json_set_real(json, "entropy_payload", bits->entropy_payload));
}

static struct tally_json *pair_json(const char *key_a, double a, const char *key_b, double b)
{
    struct tally_json *json = tally_json_object();
    return tally_json_if_complete(json, tally_json_set_real(json, key_a, a) &&
                                            tally_json_set_real(json, key_b, b));
}

struct tally_json *tally_reproduction_regret_json(const struct tally_summary *regret)
{
    return pair_json("mean", regret->mean, "std", regret->std);
}

struct tally_json *tally_reproduction_seeds_json(int64_t first, size_t n)
{
    struct tally_json *seeds = tally_json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = tally_json_append_integer(seeds, first + (int64_t)i);
    }
    return tally_json_if_complete(seeds, ok);
}

static struct tally_json *row_json(const struct tally_reproduction_row *row)
{
    struct tally_json *json = tally_json_object();
    const bool ok =
        tally_json_set_text(json, "algorithm", row->algorithm->name) &&
        tally_json_set_text(json, "preset", row->preset) &&
        tally_json_set_real(json, "step_size", row->step_size) &&
        tally_json_set_bool(json, "tuned", row->tuned) &&
        tally_json_set(json, "regret", tally_reproduction_regret_json(&row->regret)) &&
        tally_json_set_real(json, "planned_regret", row->planned_regret) &&
        tally_json_set(json, "uplink", tally_reproduction_bits_json(&row->bits.uplink)) &&
        tally_json_set(json, "downlink", tally_reproduction_bits_json(&row->bits.downlink)) &&
        tally_json_set(json, "paper",
                       pair_json("uplink", row->paper.uplink, "downlink", row->paper.downlink));
    return tally_json_if_complete(json, ok);
}

struct tally_json *tally_reproduction_json(const struct tally_reproduction *table)
{
    const struct tally_sweep *sweep = table->sweep;
    struct tally_json *json = tally_json_object(), *rows = tally_json_array();
    char experiment[sizeof sweep->name];
    snprintf(experiment, sizeof experiment, "%.*s", (int)strcspn(sweep->name, ","), sweep->name);
    bool ok = tally_json_set_text(json, "experiment", experiment) &&
              tally_json_set(json, "seeds",
                             tally_reproduction_seeds_json(sweep->first_seed, sweep->n_seeds));
    for (size_t i = 0; ok && i < sweep->n_rows; i++) {
        ok = tally_json_append(rows, row_json(&table->rows[i]));
    }
    ok = tally_json_set(json, "rows", rows) && ok;
    return tally_json_if_complete(json, ok);
}

/* ---- CSV. */

enum tally_status tally_reproduction_rows_csv(const struct tally_reproduction *table,
                                              struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "algorithm,preset,step_size,tuned,regret_mean,regret_std,"
                          "uplink_formula,uplink_payload,uplink_entropy_payload,"
                          "downlink_formula,downlink_payload,downlink_entropy_payload,"
                          "paper_uplink,paper_downlink,uplink_control,downlink_control,"
                          "uplink_bits,downlink_bits,planned_regret\n");
    for (size_t i = 0; i < table->sweep->n_rows; i++) {
        const struct tally_reproduction_row *row = &table->rows[i];
        const struct tally_run_bits *uplink = &row->bits.uplink, *downlink = &row->bits.downlink;
        tally_text_printf(
            &text, "%s,%s,%.12g,%d,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g",
            row->algorithm->name, row->preset, row->step_size, row->tuned, row->regret.mean,
            row->regret.std, uplink->formula, uplink->payload, uplink->entropy_payload,
            downlink->formula, downlink->payload, downlink->entropy_payload, row->paper.uplink,
            row->paper.downlink);
        tally_text_printf(&text, ",%.12g,%.12g,%.12g,%.12g", uplink->control, downlink->control,
                          row->counted.uplink, row->counted.downlink);
        tally_text_printf(&text, isnan(row->planned_regret) ? ",\n" : ",%.12g\n",
                          row->planned_regret);
    }
    return text.status;
}

enum tally_status tally_reproduction_grids_csv(const struct tally_reproduction *table,
                                               struct tally_buffer *out)
{
    const struct tally_sweep *sweep = table->sweep;
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "algorithm,step_size,regret_mean,regret_std,best\n");
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_row *row = &sweep->rows[i];
        for (size_t k = 0; row->tune != NULL && k < row->n_trials; k++) {
            const struct tally_sweep_trial *trial = &row->trials[k];
            const struct tally_summary regret = tally_reproduction_trial_regret(sweep, trial);
            tally_text_printf(&text, "%s,%.12g,%.12g,%.12g,%d\n", trial->algorithm->name,
                              tally_reproduction_step_size(trial), regret.mean, regret.std,
                              k == row->best);
        }
    }
    return text.status;
}

#include "services/experiment/presets.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "services/algorithms/compression.h"
#include "services/job/document.h"
#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/local_run.h"

static struct tally_problem problem_of(enum tally_problem_kind kind)
{
    return (struct tally_problem){kind, tally_problem_usual_radius(kind)};
}

static void test_experiment_presets__all_are_valid_jobs(void)
{
    for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
        for (int kind = TALLY_PROBLEM_LOUD; kind <= TALLY_PROBLEM_MNIST; kind++) {
            if (!tally_preset_is_for(&TALLY_PRESETS[i], (enum tally_problem_kind)kind)) {
                continue;
            }
            const struct tally_problem problem = problem_of((enum tally_problem_kind)kind);
            const struct tally_job_spec spec =
                tally_preset_job(&TALLY_PRESETS[i], &problem, 0.5, 7);
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(tally_job_spec_validate(&spec, &err), TALLY_OK, &err);
            CU_ASSERT_PTR_EQUAL(tally_job_spec_algorithm(&spec), TALLY_PRESETS[i].algorithm);
            CU_ASSERT_EQUAL(spec.seed, 7);
            CU_ASSERT_EQUAL(spec.clients, 10);
        }
    }
}

static double step_size_of(const struct tally_algorithm *algorithm,
                           const union tally_algorithm_params *params)
{
    return algorithm == &TALLY_CEAL   ? params->ceal.step_size
           : algorithm == &TALLY_CALM ? params->calm.step_size
                                      : params->baseline.step_size;
}

static void test_experiment_presets__step_size_reaches_the_parameters(void)
{
    const struct tally_problem loud = problem_of(TALLY_PROBLEM_LOUD);
    for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
        const struct tally_preset *preset = &TALLY_PRESETS[i];
        CU_ASSERT_DOUBLE_EQUAL(tally_preset_step_size(preset),
                               step_size_of(preset->algorithm, &preset->params), 0);
        const struct tally_job_spec spec = tally_preset_job(preset, &loud, 0.625, 1);
        CU_ASSERT_DOUBLE_EQUAL(step_size_of(preset->algorithm, &spec.params), 0.625, 0);
    }
}

static void test_experiment_presets__calm_knows_how_far_it_starts(void)
{
    const struct tally_preset *preset =
        tally_preset_get(TALLY_PROBLEM_QUIET, &TALLY_CALM, "paper_bits");
    const struct tally_problem far = {TALLY_PROBLEM_QUIET, 3};
    const struct tally_job_spec spec = tally_preset_job(preset, &far, 3, 1);
    CU_ASSERT_DOUBLE_EQUAL(spec.params.calm.initial_variance, 10.0 / 30, 1e-15);
    CU_ASSERT_EQUAL(spec.budget.uplink_bits, preset->budget.uplink_bits);
    CU_ASSERT_EQUAL(spec.budget.downlink_bits, preset->budget.downlink_bits);
}

static void test_experiment_presets__every_problem_has_all_algorithms(void)
{
    for (int kind = TALLY_PROBLEM_LOUD; kind <= TALLY_PROBLEM_MNIST; kind++) {
        int n_paper = 0, n_ceal = 0, n_calm = 0;
        for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
            const struct tally_preset *preset = &TALLY_PRESETS[i];
            if (tally_preset_is_for(preset, (enum tally_problem_kind)kind)) {
                n_paper += strcmp(preset->name, "paper") == 0;
                n_ceal += preset->algorithm == &TALLY_CEAL;
                n_calm += preset->algorithm == &TALLY_CALM;
            }
        }
        CU_ASSERT_EQUAL(n_paper, 5);
        CU_ASSERT_EQUAL(n_ceal, kind == TALLY_PROBLEM_MNIST ? 2 : 3);
        CU_ASSERT_EQUAL(n_calm, kind == TALLY_PROBLEM_MNIST ? 3 : 4);
    }
}

static void expect_name(enum tally_problem_kind kind, const struct tally_algorithm *algorithm,
                        const char *preset, const char *name)
{
    const struct tally_problem problem = problem_of(kind);
    const struct tally_preset *found = tally_preset_get(kind, algorithm, preset);
    CU_ASSERT_PTR_NOT_NULL_FATAL(found);
    TALLY_ASSERT_TEXT(tally_preset_job(found, &problem, 1, 1).name, name);
}

static void test_experiment_presets__names_tell_what_they_are(void)
{
    expect_name(TALLY_PROBLEM_LOUD, &TALLY_MINIBATCH_SGD, "paper", "synthetic-minibatch-sgd-paper");
    expect_name(TALLY_PROBLEM_QUIET, &TALLY_FEDAVG, "paper", "synthetic-quiet-fedavg-paper");
    expect_name(TALLY_PROBLEM_LOUD, &TALLY_CEAL, "paper", "synthetic-ceal-paper");
    expect_name(TALLY_PROBLEM_QUIET, &TALLY_CEAL, "low_regret", "synthetic-quiet-ceal-low-regret");
    expect_name(TALLY_PROBLEM_MNIST, &TALLY_CEAL, "paper_bits", "mnist-ceal-paper-bits");
    expect_name(TALLY_PROBLEM_QUIET, &TALLY_CALM, "half_bits", "synthetic-quiet-calm-half-bits");
    expect_name(TALLY_PROBLEM_MNIST, &TALLY_CALM, "auto", "mnist-calm-auto");
    expect_name(TALLY_PROBLEM_QUIET, &TALLY_FEDPAQ, "scheduled",
                "synthetic-quiet-fedpaq-scheduled");
    expect_name(TALLY_PROBLEM_QUIET, &TALLY_FEDAVG, "scheduled_compressed",
                "synthetic-quiet-fedavg-scheduled-compressed");
    expect_name(TALLY_PROBLEM_MNIST, &TALLY_FEDAVG, "compressed", "mnist-fedavg-compressed");
    CU_ASSERT_PTR_NULL(tally_preset_get(TALLY_PROBLEM_MNIST, &TALLY_CEAL, "low_regret"));
    CU_ASSERT_PTR_NULL(tally_preset_get(TALLY_PROBLEM_MNIST, &TALLY_FEDAVG, "scheduled"));
    CU_ASSERT_PTR_NULL(tally_preset_get(TALLY_PROBLEM_LOUD, &TALLY_FEDAVG, "paper_bits"));
}

/* A compressed row has the constants of a row without compression, and is judged by what it sends.
 */
static void test_experiment_presets__compressed_rows_differ_only_by_compression(void)
{
    const struct tally_mean_bits bits = {{1, 20, 300, 4000}, {5, 60, 700, 8000}};
    int n = 0;
    for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
        const struct tally_preset *preset = &TALLY_PRESETS[i];
        for (int kind = TALLY_PROBLEM_LOUD; kind <= TALLY_PROBLEM_MNIST; kind++) {
            if (!tally_preset_is_for(preset, (enum tally_problem_kind)kind) ||
                !tally_preset_is_compressed(preset)) {
                continue;
            }
            const bool scheduled = strcmp(preset->name, "scheduled_compressed") == 0;
            const struct tally_preset *plain = tally_preset_get(
                (enum tally_problem_kind)kind, &TALLY_FEDAVG, scheduled ? "scheduled" : "paper");
            struct tally_baseline_params expected = plain->params.baseline;
            expected.step_size = scheduled ? expected.step_size : plain->tuned[kind];
            expected.compression.type = TALLY_COMPRESSION_AUTO;
            CU_ASSERT_EQUAL(memcmp(&expected, &preset->params.baseline, sizeof expected), 0);
            CU_ASSERT_DOUBLE_EQUAL(tally_preset_counted_bits(preset, &bits).uplink, 4020, 0);
            CU_ASSERT_DOUBLE_EQUAL(tally_preset_counted_bits(preset, &bits).downlink, 8060, 0);
            CU_ASSERT_DOUBLE_EQUAL(tally_preset_counted_bits(plain, &bits).uplink, 1, 0);
            n++;
        }
    }
    CU_ASSERT_EQUAL(n, 5);
}

/* The build defines TALLY_JOBS_DIR as deploy/jobs. These files there are not presets: the job of
 * the quickstart, a long one for the tests, and those of methods that are not in [1]. */
static const char *const OTHER_JOBS[] = {
    "synthetic-ceal",    "synthetic-ceal-long", "synthetic-fedprox",
    "synthetic-fedavgm", "synthetic-fedadam",   "synthetic-fedyogi",
    "synthetic-diana",   "synthetic-scaffold",  "synthetic-ef21"};

/* Returns the complete document of a spec as text, which the caller frees. */
static struct tally_buffer text_of(const struct tally_job_spec *spec)
{
    struct tally_buffer text = {0};
    struct tally_json *json = tally_document_of(spec);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    TALLY_ASSERT_STATUS(tally_json_dump(json, 2, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    tally_json_free(json);
    return text;
}

static struct tally_job_spec job_file(const char *name)
{
    char path[1024], text[8192];
    snprintf(path, sizeof path, "%s/%s.json", TALLY_JOBS_DIR, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        TALLY_ASSERT_TEXT("no such file", path);
        return tally_job_spec_default();
    }
    const size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    struct tally_job_spec spec = tally_job_spec_default();
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_document_parse(text, n, &spec, &err), TALLY_OK, &err);
    return spec;
}

/* Whether a job has this name; NULL matches any name. Checks that the file of that name contains
 * the same job. */
static bool is_job(const char *name, const struct tally_job_spec *spec)
{
    if (name != NULL && strcmp(spec->name, name) != 0) {
        return false;
    }
    const struct tally_job_spec file = job_file(spec->name);
    struct tally_buffer actual = text_of(&file), expected = text_of(spec);
    TALLY_ASSERT_TEXT((const char *)actual.data, (const char *)expected.data);
    tally_buffer_fini(&actual);
    tally_buffer_fini(&expected);
    return true;
}

/* The number of a preset's jobs with that name: its own, and the tuned job of a baseline. */
static size_t count_jobs(const char *name, const struct tally_preset *preset,
                         enum tally_problem_kind kind)
{
    const struct tally_problem problem = problem_of(kind);
    const struct tally_job_spec own =
        tally_preset_job(preset, &problem, tally_preset_step_size(preset), 1);
    size_t n = is_job(name, &own);
    if (preset->tuned[kind] > 0) {
        const struct tally_job_spec tuned =
            tally_preset_tuned_job(preset, &problem, preset->tuned[kind], 1);
        n += is_job(name, &tuned);
    }
    return n;
}

/* The number of jobs of all presets with that name; NULL matches any name. */
static size_t count_presets(const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
        for (int kind = TALLY_PROBLEM_LOUD; kind <= TALLY_PROBLEM_MNIST; kind++) {
            if (tally_preset_is_for(&TALLY_PRESETS[i], (enum tally_problem_kind)kind)) {
                n += count_jobs(name, &TALLY_PRESETS[i], (enum tally_problem_kind)kind);
            }
        }
    }
    return n;
}

static void test_experiment_presets__each_is_a_job_file(void)
{
    CU_ASSERT_EQUAL(count_presets(NULL), 52); /* 19 + 19 + 14 */
}

static bool is_other_job(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < sizeof OTHER_JOBS / sizeof OTHER_JOBS[0]; i++) {
        found = found || strcmp(name, OTHER_JOBS[i]) == 0;
    }
    return found;
}

static void test_experiment_presets__each_job_file_is_one(void)
{
    DIR *folder = opendir(TALLY_JOBS_DIR);
    CU_ASSERT_PTR_NOT_NULL_FATAL(folder);
    const struct dirent *entry;
    size_t n_presets = 0, n_others = 0;
    while ((entry = readdir(folder)) != NULL) {
        char name[sizeof entry->d_name];
        const char *end = strstr(entry->d_name, ".json");
        if (end == NULL) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(end - entry->d_name), entry->d_name);
        if (is_other_job(name)) {
            n_others++;
        } else if (count_presets(name) == 1) {
            n_presets++;
        } else {
            TALLY_ASSERT_TEXT(name, "the name of one preset's job");
        }
    }
    closedir(folder);
    CU_ASSERT_EQUAL(n_presets, 52);
    CU_ASSERT_EQUAL(n_others, sizeof OTHER_JOBS / sizeof OTHER_JOBS[0]);
}

/* Points that need no files, with MNIST's dimension and rounds, so that messages have the same
 * length. */
static void use_small_data(struct tally_job_spec *spec)
{
    spec->objective.type = TALLY_LEAST_SQUARES;
    spec->objective.data.type = TALLY_DATA_SYNTHETIC_LINEAR;
    spec->objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 7840, .points = 10, .frobenius_norm = 1, .noise_std = 0};
    spec->minibatch = 1;
    spec->evaluate_every = spec->horizon;
}

static void expect_bits(const struct tally_algorithm *algorithm, enum tally_problem_kind kind,
                        const uint64_t up_and_down[2])
{
    const uint64_t uplink = up_and_down[0], downlink = up_and_down[1];
    const struct tally_problem problem = problem_of(kind);
    const struct tally_preset *preset = tally_preset_get(kind, algorithm, "paper");
    struct tally_job_spec spec =
        tally_preset_job(preset, &problem, 1e-3 * tally_preset_step_size(preset), 1);
    if (kind == TALLY_PROBLEM_MNIST) {
        use_small_data(&spec);
    }
    spec.reference = (struct tally_reference){TALLY_REFERENCE_VALUE, 0};
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(local_run(&spec, NULL, NULL, &job, &err), TALLY_OK, &err);
    const struct tally_ledger *bits = &tally_job_progress(job)->bits;
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(bits->uplink.formula_bits, 10 * uplink);
    CU_ASSERT_EQUAL(bits->uplink.payload_bits, 10 * uplink);
    CU_ASSERT_EQUAL(bits->downlink.formula_bits, downlink);
    CU_ASSERT_EQUAL(bits->downlink.payload_bits, downlink);
    tally_job_free(job);
}

static void test_experiment_presets__baselines_have_the_bits_of_table_1(void)
{
    static const struct {
        const struct tally_algorithm *algorithm;
        uint64_t synthetic[2], mnist[2];
    } table[] = {{&TALLY_MINIBATCH_SGD, {38400, 38400}, {5017600, 5017600}},
                 {&TALLY_FEDAVG, {19200, 19200}, {5017600, 5017600}},
                 {&TALLY_FEDPAQ, {2440, 19200}, {627840, 5017600}},
                 {&TALLY_FEDCOM, {2440, 19200}, {627840, 5017600}}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        expect_bits(table[i].algorithm, TALLY_PROBLEM_LOUD, table[i].synthetic);
        expect_bits(table[i].algorithm, TALLY_PROBLEM_QUIET, table[i].synthetic);
        expect_bits(table[i].algorithm, TALLY_PROBLEM_MNIST, table[i].mnist);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_presets__all_are_valid_jobs),
    TALLY_TEST(test_experiment_presets__step_size_reaches_the_parameters),
    TALLY_TEST(test_experiment_presets__calm_knows_how_far_it_starts),
    TALLY_TEST(test_experiment_presets__every_problem_has_all_algorithms),
    TALLY_TEST(test_experiment_presets__names_tell_what_they_are),
    TALLY_TEST(test_experiment_presets__compressed_rows_differ_only_by_compression),
    TALLY_TEST(test_experiment_presets__each_is_a_job_file),
    TALLY_TEST(test_experiment_presets__each_job_file_is_one),
    TALLY_TEST(test_experiment_presets__baselines_have_the_bits_of_table_1),
};
TALLY_SUITE(experiment_presets, TESTS);

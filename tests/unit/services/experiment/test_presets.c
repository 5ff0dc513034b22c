#include "services/experiment/presets.h"

#include <string.h>

#include "services/job/local.h"
#include "tests/unit/services/experiment/suites.h"

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

static void test_experiment_presets__step_size_reaches_the_parameters(void)
{
    const struct tally_problem loud = problem_of(TALLY_PROBLEM_LOUD);
    for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
        const struct tally_preset *preset = &TALLY_PRESETS[i];
        const bool is_ceal = preset->algorithm == &TALLY_CEAL;
        const double own =
            is_ceal ? preset->params.ceal.step_size : preset->params.baseline.step_size;
        CU_ASSERT_DOUBLE_EQUAL(tally_preset_step_size(preset), own, 0);
        const struct tally_job_spec spec = tally_preset_job(preset, &loud, 0.625, 1);
        CU_ASSERT_DOUBLE_EQUAL(
            is_ceal ? spec.params.ceal.step_size : spec.params.baseline.step_size, 0.625, 0);
    }
}

static void test_experiment_presets__every_problem_has_all_algorithms(void)
{
    for (int kind = TALLY_PROBLEM_LOUD; kind <= TALLY_PROBLEM_MNIST; kind++) {
        int n_paper = 0, n_ceal = 0;
        for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
            const struct tally_preset *preset = &TALLY_PRESETS[i];
            if (tally_preset_is_for(preset, (enum tally_problem_kind)kind)) {
                n_paper += strcmp(preset->name, "paper") == 0;
                n_ceal += preset->algorithm == &TALLY_CEAL;
            }
        }
        CU_ASSERT_EQUAL(n_paper, 5);
        CU_ASSERT_EQUAL(n_ceal, 3);
    }
}

static void test_experiment_presets__names_tell_what_they_are(void)
{
    const struct tally_problem quiet = problem_of(TALLY_PROBLEM_QUIET);
    const struct tally_problem mnist = problem_of(TALLY_PROBLEM_MNIST);
    TALLY_ASSERT_TEXT(tally_preset_job(&TALLY_PRESETS[1], &quiet, 1, 1).name,
                      "synthetic-quiet-fedavg-paper");
    TALLY_ASSERT_TEXT(tally_preset_job(&TALLY_PRESETS[5], &mnist, 1, 1).name, "mnist-fedavg-paper");
}

/* MNIST's dimension and rounds on points that need no files; the messages are as long. */
static void use_small_data(struct tally_job_spec *spec)
{
    spec->objective.type = TALLY_LEAST_SQUARES;
    spec->objective.data.type = TALLY_DATA_SYNTHETIC_LINEAR;
    spec->objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 7840, .points = 10, .frobenius_norm = 1, .noise_std = 0};
    spec->minibatch = 1;
    spec->evaluate_every = spec->horizon;
}

static void expect_bits(const struct tally_preset *preset, enum tally_problem_kind kind,
                        uint64_t uplink, uint64_t downlink)
{
    const struct tally_problem problem = problem_of(kind);
    struct tally_job_spec spec =
        tally_preset_job(preset, &problem, 1e-3 * tally_preset_step_size(preset), 1);
    if (kind == TALLY_PROBLEM_MNIST) {
        use_small_data(&spec);
    }
    spec.reference = (struct tally_reference){TALLY_REFERENCE_VALUE, 0};
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_local_run(&spec, ".", NULL, NULL, &job, &err), TALLY_OK, &err);
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
    static const uint64_t synthetic[4][2] = {
        {38400, 38400}, {19200, 19200}, {2440, 19200}, {2440, 19200}};
    static const uint64_t mnist_bits[4][2] = {
        {5017600, 5017600}, {5017600, 5017600}, {627840, 5017600}, {627840, 5017600}};
    for (size_t i = 0; i < 4; i++) {
        expect_bits(&TALLY_PRESETS[i], TALLY_PROBLEM_LOUD, synthetic[i][0], synthetic[i][1]);
        expect_bits(&TALLY_PRESETS[i], TALLY_PROBLEM_QUIET, synthetic[i][0], synthetic[i][1]);
        expect_bits(&TALLY_PRESETS[4 + i], TALLY_PROBLEM_MNIST, mnist_bits[i][0], mnist_bits[i][1]);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_presets__all_are_valid_jobs),
    TALLY_TEST(test_experiment_presets__step_size_reaches_the_parameters),
    TALLY_TEST(test_experiment_presets__every_problem_has_all_algorithms),
    TALLY_TEST(test_experiment_presets__names_tell_what_they_are),
    TALLY_TEST(test_experiment_presets__baselines_have_the_bits_of_table_1),
};
TALLY_SUITE(experiment_presets_suite, "experiment_presets", TESTS);

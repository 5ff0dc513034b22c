#include "services/experiment/shipped.h"

#include "services/algorithms/compression.h"
#include "services/job/job_local.h"
#include "tests/unit/services/experiment/shipped_jobs.h"
#include "tests/unit/services/local_run.h"

static const char *const EXPERIMENTS[] = {"synthetic", "synthetic-quiet", "mnist"};
enum { N_EXPERIMENTS = sizeof EXPERIMENTS / sizeof EXPERIMENTS[0] };

/* These documents of deploy/jobs are no rows of an experiment: the job of the quickstart, a long
 * one for the tests, and those of methods that are not in [1]. */
static const char *const OTHER_JOBS[] = {
    "synthetic-ceal",    "synthetic-ceal-long", "synthetic-fedprox",
    "synthetic-fedavgm", "synthetic-fedadam",   "synthetic-fedyogi",
    "synthetic-diana",   "synthetic-scaffold",  "synthetic-ef21"};
enum { N_OTHER_JOBS = sizeof OTHER_JOBS / sizeof OTHER_JOBS[0] };

/* "jobs/NAME.json": the name; false for other documents. */
static bool job_name_of(const struct tally_shipped *shipped, char ret_name[128])
{
    ret_name[0] = '\0';
    return sscanf(shipped->name, "jobs/%127[^.].json", ret_name) == 1;
}

enum { N_ROWS_MOST = 100, NAME_CAPACITY = sizeof((struct tally_job_spec *)0)->name };

/* The names of the jobs of all rows of all experiments. Returns their number. */
static size_t list_rows(char ret_names[N_ROWS_MOST][NAME_CAPACITY])
{
    size_t n = 0;
    for (size_t e = 0; e < N_EXPERIMENTS; e++) {
        struct tally_sweep sweep = shipped_sweep(EXPERIMENTS[e], NULL, true, 1, 1);
        for (size_t i = 0; i < sweep.n_rows && n < N_ROWS_MOST; i++) {
            snprintf(ret_names[n++], NAME_CAPACITY, "%s", spec_of(&sweep.rows[i].trials[0]).name);
        }
        tally_sweep_fini(&sweep);
    }
    return n;
}

static void test_experiment_shipped__every_job_is_a_row_or_another(void)
{
    static char rows[N_ROWS_MOST][NAME_CAPACITY];
    const size_t n_all = list_rows(rows);
    size_t n_rows = 0, n_others = 0;
    for (const struct tally_shipped *at = TALLY_SHIPPED; at->name != NULL; at++) {
        char name[128];
        bool is_other = false;
        size_t n_same = 0;
        if (!job_name_of(at, name)) {
            continue;
        }
        for (size_t i = 0; i < N_OTHER_JOBS; i++) {
            is_other = is_other || strcmp(name, OTHER_JOBS[i]) == 0;
        }
        for (size_t i = 0; i < n_all; i++) {
            n_same += strcmp(name, rows[i]) == 0;
        }
        TALLY_ASSERT_TEXT(shipped_job(name, NAN, 1).name, name);
        if (is_other) {
            n_others++;
        } else if (n_same == 1) {
            n_rows++;
        } else {
            TALLY_ASSERT_TEXT(name, "the name of one row's job");
        }
    }
    CU_ASSERT_EQUAL(n_rows, 52); /* 19 + 19 + 14 */
    CU_ASSERT_EQUAL(n_others, N_OTHER_JOBS);
    CU_ASSERT_PTR_NULL(tally_shipped_get("jobs/synthetic"));
}

/* "synthetic-quiet-fedavg-paper" of the row "fedavg paper". The tuned row of a baseline has a job
 * without an ending, which is run at the step size of least regret. */
static void make_job_name(const char *document, const char *row, char *ret_name, size_t capacity)
{
    char words[96];
    snprintf(words, sizeof words, "%s", row);
    char *tuned = strncmp(row, "ceal", 4) != 0 ? strstr(words, " tuned") : NULL;
    if (tuned != NULL) {
        *tuned = '\0';
    }
    snprintf(ret_name, capacity, "%s-%s", document, words);
    for (char *at = ret_name; *at != '\0'; at++) {
        *at = *at == '_' || *at == ' ' ? '-' : *at;
    }
}

/* Every row is a job of its name, with the clients of [1], at the first seed. */
static void test_experiment_shipped__rows_are_jobs_of_their_names(void)
{
    for (size_t e = 0; e < N_EXPERIMENTS; e++) {
        struct tally_sweep sweep = shipped_sweep(EXPERIMENTS[e], NULL, true, 7, 1);
        int n_paper = 0, n_ceal = 0, n_calm = 0;
        for (size_t i = 0; i < sweep.n_rows; i++) {
            const struct tally_job_spec spec = spec_of(&sweep.rows[i].trials[0]);
            const char *row = sweep.rows[i].name;
            const char *algorithm = sweep.rows[i].trials[0].algorithm->name;
            char name[128];
            make_job_name(EXPERIMENTS[e], row, name, sizeof name);
            TALLY_ASSERT_TEXT(spec.name, name);
            CU_ASSERT_EQUAL(strncmp(row, algorithm, strlen(algorithm)), 0);
            CU_ASSERT_EQUAL(spec.seed, 7);
            CU_ASSERT_EQUAL(spec.clients, 10);
            n_paper += strstr(row, " paper") != NULL && strstr(row, " paper_") == NULL;
            n_ceal += strcmp(algorithm, "ceal") == 0 && sweep.rows[i].tune == NULL;
            n_calm += strcmp(algorithm, "calm") == 0;
        }
        CU_ASSERT_EQUAL(n_paper, 5);
        CU_ASSERT_EQUAL(n_ceal, strcmp(EXPERIMENTS[e], "mnist") == 0 ? 2 : 3);
        CU_ASSERT_EQUAL(n_calm, strcmp(EXPERIMENTS[e], "mnist") == 0 ? 3 : 4);
        tally_sweep_fini(&sweep);
    }
}

/* The step size of [1] is in the grid of each row, so that tuned rows are no worse. */
static void test_experiment_shipped__grids_have_the_papers_step_sizes(void)
{
    for (size_t e = 0; e < N_EXPERIMENTS; e++) {
        struct tally_sweep sweep = shipped_sweep(EXPERIMENTS[e], "paper,tuned", true, 1, 1);
        for (size_t i = 1; i < sweep.n_rows; i += 2) {
            const struct tally_sweep_row *row = &sweep.rows[i];
            const double own = tally_reproduction_step_size(&sweep.rows[i - 1].trials[0]);
            bool has_own = false;
            for (size_t k = 0; k < row->n_trials; k++) {
                has_own = has_own || tally_reproduction_step_size(&row->trials[k]) == own;
            }
            CU_ASSERT_TRUE(has_own);
        }
        tally_sweep_fini(&sweep);
    }
}

/* A compressed row has the constants of a row without compression. */
static void test_experiment_shipped__compressed_rows_differ_only_by_compression(void)
{
    static const char *const pairs[][2] = {
        {"synthetic-fedavg-compressed", "synthetic-fedavg"},
        {"synthetic-quiet-fedavg-compressed", "synthetic-quiet-fedavg"},
        {"synthetic-fedavg-scheduled-compressed", "synthetic-fedavg-scheduled"},
        {"synthetic-quiet-fedavg-scheduled-compressed", "synthetic-quiet-fedavg-scheduled"},
        {"mnist-fedavg-compressed", "mnist-fedavg"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct tally_json *compressed = shipped_document(pairs[i][0]);
        struct tally_json *plain = shipped_document(pairs[i][1]);
        CU_ASSERT_TRUE(tally_json_set_text(plain, "name", pairs[i][0]));
        TALLY_ASSERT_STATUS(
            tally_json_set_path(plain, "algorithm.compression", tally_json_text("auto"), NULL),
            TALLY_OK, NULL);
        const struct tally_job_spec left = job_of(compressed, NAN, 1),
                                    right = job_of(plain, NAN, 1);
        struct tally_json *a = tally_document_of(&left), *b = tally_document_of(&right);
        struct tally_buffer a_text = {0}, b_text = {0};
        TALLY_ASSERT_STATUS(tally_json_dump(a, 0, &a_text), TALLY_OK, NULL);
        TALLY_ASSERT_STATUS(tally_json_dump(b, 0, &b_text), TALLY_OK, NULL);
        tally_buffer_append(&a_text, "", 1);
        tally_buffer_append(&b_text, "", 1);
        TALLY_ASSERT_TEXT((const char *)a_text.data, (const char *)b_text.data);
        CU_ASSERT_EQUAL(left.params.baseline.compression.type, TALLY_COMPRESSION_AUTO);
        tally_buffer_fini(&a_text);
        tally_buffer_fini(&b_text);
        tally_json_free(a);
        tally_json_free(b);
    }
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

static void expect_bits(const char *experiment, const char *algorithm,
                        const uint64_t up_and_down[2])
{
    const uint64_t uplink = up_and_down[0], downlink = up_and_down[1];
    char name[128];
    snprintf(name, sizeof name, "%s-%s-paper", experiment, algorithm);
    const double step_size = shipped_job(name, NAN, 1).params.baseline.step_size;
    struct tally_job_spec spec = shipped_job(name, 1e-3 * step_size, 1);
    if (strcmp(experiment, "mnist") == 0) {
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

static void test_experiment_shipped__baselines_have_the_bits_of_table_1(void)
{
    static const struct {
        const char *algorithm;
        uint64_t synthetic[2], mnist[2];
    } table[] = {{"minibatch-sgd", {38400, 38400}, {5017600, 5017600}},
                 {"fedavg", {19200, 19200}, {5017600, 5017600}},
                 {"fedpaq", {2440, 19200}, {627840, 5017600}},
                 {"fedcom", {2440, 19200}, {627840, 5017600}}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        expect_bits("synthetic", table[i].algorithm, table[i].synthetic);
        expect_bits("synthetic-quiet", table[i].algorithm, table[i].synthetic);
        expect_bits("mnist", table[i].algorithm, table[i].mnist);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_shipped__every_job_is_a_row_or_another),
    TALLY_TEST(test_experiment_shipped__rows_are_jobs_of_their_names),
    TALLY_TEST(test_experiment_shipped__grids_have_the_papers_step_sizes),
    TALLY_TEST(test_experiment_shipped__compressed_rows_differ_only_by_compression),
    TALLY_TEST(test_experiment_shipped__baselines_have_the_bits_of_table_1),
};
TALLY_SUITE(experiment_shipped, TESTS);

#include "services/plugins/plugin_set.h"

#include <string.h>

#include "services/objectives/objective.h"
#include "tests/harness.h"
#include "tests/unit/services/plugins/stub_plugin.h"

static struct tally_plugin named(const char *name, bool has_loss)
{
    struct tally_plugin plugin = STUB_PLUGIN;
    plugin.name = name;
    plugin.loss = has_loss ? STUB_PLUGIN.loss : NULL;
    return plugin;
}

static void add(struct tally_plugin_set *set, const struct tally_plugin *plugin, bool is_override,
                uint64_t dim)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_plugin_set_add(set, plugin, is_override, dim, &err), TALLY_OK, &err);
}

/* A job of the built-in least_squares with the stub's dim. */
static struct tally_job_spec linear_job(void)
{
    struct tally_job_spec spec = tally_job_spec_default();
    spec.objective.data.synthetic_linear.dim = STUB_DIM;
    spec.objective.data.synthetic_linear.points = 20;
    spec.clients = 2;
    return spec;
}

static void expect_refused(const struct tally_plugin_set *set, const struct tally_job_spec *spec,
                           const char *field, const char *message)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_plugin_set_objective(set, spec, "4711",
                                                   &(const struct tally_data_source){.dir = "."},
                                                   &objective, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.field, field);
    TALLY_ASSERT_TEXT(err.message, message);
    CU_ASSERT_PTR_NULL(objective);
}

/* Checks that a plug-in serves the job and was opened `n_opened` times in all. */
static struct tally_objective *expect_opened(const struct tally_plugin_set *set,
                                             const struct tally_job_spec *spec, int n_opened)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_plugin_set_objective(
                            set, spec, "4711", &(const struct tally_data_source){.dir = "folder"},
                            &objective, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(stub.n_opened, n_opened);
    return objective;
}

static void test_plugins_set__a_job_gets_the_plug_in_of_its_name(void)
{
    const struct tally_plugin one = named("one", true), two = named("two", true);
    struct tally_plugin_set set = {0};
    struct tally_job_spec spec = stub_job();
    stub = (struct stub){0};
    expect_refused(NULL, &spec, "objective.name",
                   "plug-in stub is not loaded here (--plugin FILE); there is none");
    add(&set, &one, false, 0);
    add(&set, &two, false, STUB_DIM + 1);
    expect_refused(&set, &spec, "objective.name",
                   "plug-in stub is not loaded here (--plugin FILE); there is one, two");
    strcpy(spec.objective.plugin.name, "two");
    expect_refused(&set, &spec, "objective.dim", "plug-in two serves dim 4, the job has 3");
    strcpy(spec.objective.plugin.name, "one");
    spec.run = 6;
    struct tally_objective *objective = expect_opened(&set, &spec, 1);
    CU_ASSERT_EQUAL(stub.problem.size, sizeof stub.problem);
    CU_ASSERT_EQUAL(stub.problem.dim, STUB_DIM);
    CU_ASSERT_EQUAL(stub.problem.clients, 2);
    CU_ASSERT_EQUAL(stub.problem.seed, 5);
    CU_ASSERT_EQUAL(stub.problem.run, 6);
    TALLY_ASSERT_TEXT(stub.options, "shallow");
    TALLY_ASSERT_TEXT(stub.data_dir, "folder");
    tally_objective_free(objective);
    tally_plugin_set_fini(&set);
}

static void test_plugins_set__built_in_objectives_stay(void)
{
    struct tally_plugin_set set = {0};
    const struct tally_job_spec spec = linear_job();
    stub = (struct stub){0};
    add(&set, &STUB_PLUGIN, false, 0);
    tally_objective_free(expect_opened(&set, &spec, 0));
    tally_objective_free(expect_opened(NULL, &spec, 0));
    tally_plugin_set_fini(&set);
}

static void test_plugins_set__an_override_serves_any_job_of_its_dim(void)
{
    const struct tally_plugin plugin = named("mine", true);
    const struct tally_plugin other = named("stub", true);
    struct tally_plugin_set set = {0};
    struct tally_job_spec spec = linear_job();
    stub = (struct stub){0};
    add(&set, &plugin, true, STUB_DIM);
    tally_objective_free(expect_opened(&set, &spec, 1));
    spec.minibatch = 0; /* the plug-in must be told a number of points */
    expect_refused(&set, &spec, "minibatch",
                   "plug-in mine does not say how many points a client has, so its jobs need a "
                   "minibatch of at least 1");
    spec.minibatch = 1;
    spec.objective.data.synthetic_linear.dim = STUB_DIM + 1;
    tally_objective_free(expect_opened(&set, &spec, 1));
    spec = stub_job(); /* names a plug-in that is not loaded */
    tally_objective_free(expect_opened(&set, &spec, 2));
    tally_plugin_set_fini(&set);
    for (int other_first = 0; other_first < 2; other_first++) { /* a matching name has priority */
        add(&set, other_first ? &other : &plugin, !other_first, 0);
        add(&set, other_first ? &plugin : &other, other_first, 0);
        stub = (struct stub){.code = 1, .why = "asked"};
        expect_refused(&set, &spec, "", "plug-in stub: asked");
        tally_plugin_set_fini(&set);
    }
}

static void test_plugins_set__an_override_without_loss_leaves_it_to_the_job(void)
{
    const struct tally_plugin plugin = named("mine", false);
    struct tally_plugin_set set = {0};
    struct tally_job_spec spec = linear_job();
    stub = (struct stub){0};
    add(&set, &plugin, true, 0);
    struct tally_objective *objective = expect_opened(&set, &spec, 1);
    CU_ASSERT_TRUE(tally_objective_has_loss(objective));
    tally_objective_free(objective);
    /* A job whose data are missing here, with a regret and without. */
    spec.objective.data.type = TALLY_DATA_LIBSVM;
    strcpy(spec.objective.data.table.file, "none");
    spec.objective.data.table.features = STUB_DIM;
    expect_refused(&set, &spec, "reference.type",
                   "plug-in mine has no function \"loss\", so its jobs need a reference of type "
                   "none");
    CU_ASSERT_EQUAL(stub.n_closed, 2);
    spec.reference.type = TALLY_REFERENCE_NONE;
    objective = expect_opened(&set, &spec, 3);
    CU_ASSERT_FALSE(tally_objective_has_loss(objective));
    tally_objective_free(objective);
    tally_plugin_set_fini(&set);
}

static void test_plugins_set__names_are_unique(void)
{
    const struct tally_plugin one = named("one", true), two = named("two", true);
    struct tally_plugin_set set = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    add(&set, &one, true, 0);
    TALLY_ASSERT_STATUS(tally_plugin_set_add(&set, &one, false, 0, &err), TALLY_ALREADY_EXISTS,
                        &err);
    TALLY_ASSERT_TEXT(err.message, "a plug-in named one exists already");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_plugin_set_add(&set, &two, true, 0, &err), TALLY_ALREADY_EXISTS,
                        &err);
    TALLY_ASSERT_TEXT(err.message, "plug-in one overrides all jobs already, so two cannot");
    add(&set, &two, false, 0);
    tally_plugin_set_fini(&set);
    CU_ASSERT_PTR_NULL(set.first);
}

static void expect_loaded(const char *paths, enum tally_status status, const char *message)
{
    struct tally_plugin_set set = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_plugin_set_load_list(&set, paths, NULL, &err), status, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    tally_plugin_set_fini(&set);
}

#define MOODY  TEST_PLUGINS "/moody.so"
#define SILENT TEST_PLUGINS "/silent.so"

static void test_plugins_set__files_are_loaded(void)
{
    expect_loaded(NULL, TALLY_OK, "");
    expect_loaded("", TALLY_OK, "");
    expect_loaded(MOODY ":" TEST_PLUGINS "/least_squares.so", TALLY_OK, "");
    expect_loaded(MOODY ":" MOODY, TALLY_ALREADY_EXISTS,
                  MOODY ": a plug-in named moody exists already");
    expect_loaded(SILENT, TALLY_INVALID_ARGUMENT, SILENT ": it exports no function tally_plugin()");
    expect_loaded("no-such-file.so", TALLY_INVALID_ARGUMENT,
                  "no-such-file.so: No such file or directory");
    expect_loaded("/dev/null", TALLY_INVALID_ARGUMENT,
                  "/dev/null: it is not a shared object (ELF), which a plug-in must be");
}

/* A plug-in computes from points that it reads itself, which nobody has surveyed. */
static void test_plugins_set__jobs_with_a_survey_are_refused(void)
{
    const struct tally_plugin one = named("one", true);
    struct tally_plugin_set set = {0};
    struct tally_job_spec spec = linear_job();
    spec.objective.data.type = TALLY_DATA_CSV;
    spec.objective.data.sharding = TALLY_SHARDING_LOCAL;
    spec.objective.data.table.features = STUB_DIM;
    spec.objective.data.table.standardize = true;
    stub = (struct stub){0};
    add(&set, &one, true, 0);
    expect_refused(
        &set, &spec, "objective.data",
        "plug-in one does not survey its points, from which the features of this job are "
        "scaled");
    CU_ASSERT_EQUAL(stub.n_opened, 0);
    tally_plugin_set_fini(&set);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_plugins_set__a_job_gets_the_plug_in_of_its_name),
    TALLY_TEST(test_plugins_set__built_in_objectives_stay),
    TALLY_TEST(test_plugins_set__an_override_serves_any_job_of_its_dim),
    TALLY_TEST(test_plugins_set__an_override_without_loss_leaves_it_to_the_job),
    TALLY_TEST(test_plugins_set__jobs_with_a_survey_are_refused),
    TALLY_TEST(test_plugins_set__names_are_unique),
    TALLY_TEST(test_plugins_set__files_are_loaded),
};
TALLY_SUITE(plugins_set, TESTS);

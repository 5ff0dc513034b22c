#include "services/cli/cmd_reproduce.h"

#include <math.h>
#include <string.h>

#include "tests/unit/services/experiment/shipped_jobs.h"

enum { N_TRIALS = 3 };
static struct tally_run fedavg_runs[N_TRIALS][2], fedpaq_runs[2], ceal_runs[2];
static struct tally_json *tune, *references;
static struct tally_sweep_trial grid[N_TRIALS], fedpaq, ceal;
static struct tally_sweep_row rows[3];
static struct tally_sweep sweep;
static struct tally_reproduction table;

static void make_runs(void)
{
    static const double regrets[N_TRIALS][2] = {{29, 31}, {10, 14}, {INFINITY, INFINITY}};
    for (int seed = 0; seed < 2; seed++) {
        for (int k = 0; k < N_TRIALS; k++) {
            fedavg_runs[k][seed] = (struct tally_run){.regret = regrets[k][seed],
                                                      .planned_regret = NAN,
                                                      .uplink = {19200, 19200, 19200, 0},
                                                      .downlink = {19200, 19200, 19200, 0}};
        }
        fedpaq_runs[seed] =
            (struct tally_run){.regret = INFINITY, .diverged = true, .planned_regret = NAN};
        ceal_runs[seed] = (struct tally_run){.regret = 7,
                                             .planned_regret = 6.5,
                                             .uplink = {131.65, 200, 150.5, 0.5},
                                             .downlink = {144.3 * 2, 300, 260, 3}};
    }
}

static struct tally_json *parse(const char *text)
{
    struct tally_json *json = NULL;
    TALLY_ASSERT_STATUS(tally_json_parse(text, strlen(text), &json, NULL), TALLY_OK, NULL);
    return json;
}

static void begin(void)
{
    static const double steps[N_TRIALS] = {0.08, 0.1, 0.125};
    make_runs();
    tune = parse("{\"algorithm.step_size\": {\"around\": 0.1, \"factor\": 1.25, \"first\": -1, "
                 "\"last\": 1}}");
    references = parse("{\"reference_rows\": [{\"name\": \"Table I, fedavg\", \"values\": "
                       "{\"uplink_formula_bits\": 19200, \"downlink_formula_bits\": 19200}}, "
                       "{\"name\": \"Table I, fedpaq\", \"values\": "
                       "{\"uplink_formula_bits\": 2440, \"downlink_formula_bits\": 19200}}, "
                       "{\"name\": \"Table I, ceal\", \"values\": "
                       "{\"uplink_formula_bits\": 263.3, \"downlink_formula_bits\": 288.6}}]}");
    for (int k = 0; k < N_TRIALS; k++) {
        struct tally_json *document = shipped_document("synthetic-fedavg");
        tally_json_set_path(document, "algorithm.step_size", tally_json_real(steps[k]), NULL);
        grid[k] = trial_of(document, fedavg_runs[k], 2);
        grid[k].exponent = k - 1;
    }
    fedpaq = trial_of(shipped_document("synthetic-fedpaq-paper"), fedpaq_runs, 2);
    ceal = trial_of(shipped_document("synthetic-ceal-paper-bits"), ceal_runs, 2);
    rows[0] = (struct tally_sweep_row){
        .name = "fedavg tuned", .tune = tune, .trials = grid, .n_trials = N_TRIALS, .best = 1};
    rows[1] = (struct tally_sweep_row){.name = "fedpaq paper", .trials = &fedpaq, .n_trials = 1};
    rows[2] = (struct tally_sweep_row){.name = "ceal paper_bits", .trials = &ceal, .n_trials = 1};
    sweep = (struct tally_sweep){.name = "synthetic, loud reading",
                                 .source = references,
                                 .first_seed = 101,
                                 .n_seeds = 2,
                                 .rows = rows,
                                 .n_rows = 3};
    TALLY_ASSERT_STATUS(tally_reproduction_make(&sweep, &table, NULL), TALLY_OK, NULL);
    table.rows[1].step_size = 9;
    table.rows[2].step_size = 2;
}

static void end(void)
{
    tally_reproduction_fini(&table);
    for (int k = 0; k < N_TRIALS; k++) {
        free(grid[k].document);
    }
    free(fedpaq.document);
    free(ceal.document);
    tally_json_free(tune);
    tally_json_free(references);
}

static void expect(enum tally_status made, struct tally_buffer *text, const char *expected)
{
    TALLY_ASSERT_STATUS(made, TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text->data, expected);
    tally_buffer_fini(text);
}

static void test_cli_reproduce_table__has_bits_and_ratios(void)
{
    struct tally_buffer text = {0};
    begin();
    expect(tally_reproduce_table_render(&table, &text), &text,
           "synthetic, loud reading, start radius 2, seeds 101-102\n"
           "\n"
           "                                    regret                    bits         "
           "paper         ratio\n"
           "algorithm  preset      step size      mean  +- std  planned     up   down     "
           "up   down     up   down\n"
           "fedavg     tuned             0.1      12.0     2.8        -  19200  19200  "
           "19200  19200  1.000  1.000\n"
           "fedpaq     paper               9  diverged       -        -      0      0   "
           "2440  19200  0.000  0.000\n"
           "ceal       paper_bits          2       7.0     0.0      6.5  131.7  288.6  "
           "263.3  288.6  0.500  1.000\n"
           "\n"
           "                       payload bits         control bits        entropy (est.)\n"
           "algorithm  preset                up   down            up  down              "
           "up   down\n"
           "fedavg     tuned              19200  19200             0     0           "
           "19200  19200\n"
           "fedpaq     paper                  0      0             0     0               "
           "0      0\n"
           "ceal       paper_bits           200    300           0.5     3           "
           "150.5    260\n"
           "\n"
           "Bits are per client up and per broadcast down, over a whole job; means over "
           "the runs.\n"
           "bits: formula bits, as the paper counts; of calm and compressed presets those sent, "
           "payload and control.\n"
           "ratio: bits to the paper's, of ceal where the paper has no such algorithm.\n"
           "planned: the regret that calm's recursion expects before the job starts.\n"
           "entropy (est.): zero-order entropy of each message's levels, an estimate of "
           "the best coder.\n");
    end();
}

static void test_cli_reproduce_table__grids_tell_the_best_and_edges(void)
{
    struct tally_buffer text = {0};
    begin();
    expect(tally_reproduce_grids_render(&sweep, &text), &text,
           "Grid of step sizes, mean regret over seeds 101-102, best between asterisks:\n"
           "  fedavg\n"
           "    0.08: 30, *0.1: 12*, 0.125: diverged\n");
    rows[0].widened = true;
    expect(tally_reproduce_grids_render(&sweep, &text), &text,
           "Grid of step sizes, mean regret over seeds 101-102, best between asterisks:\n"
           "  fedavg\n"
           "    0.08: 30, *0.1: 12*, 0.125: diverged\n"
           "    (grid extended upwards: the best was at its edge)\n");
    grid[0].exponent = -4;
    expect(tally_reproduce_grids_render(&sweep, &text), &text,
           "Grid of step sizes, mean regret over seeds 101-102, best between asterisks:\n"
           "  fedavg\n"
           "    0.08: 30, *0.1: 12*, 0.125: diverged\n"
           "    (grid extended downwards: the best was at its edge)\n");
    rows[0].at_edge = true;
    sweep.tune_seeds = 1;
    expect(tally_reproduce_grids_render(&sweep, &text), &text,
           "Grid of step sizes, mean regret over seeds 101-101, best between asterisks:\n"
           "  fedavg\n"
           "    0.08: 29, *0.1: 10*, 0.125: diverged\n"
           "    (still at the edge of the grid)\n");
    rows[0].tune = NULL;
    expect(tally_reproduce_grids_render(&sweep, &text), &text, "");
    end();
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_reproduce_table__has_bits_and_ratios),
    TALLY_TEST(test_cli_reproduce_table__grids_tell_the_best_and_edges),
};
TALLY_SUITE(cli_reproduce_table, TESTS);

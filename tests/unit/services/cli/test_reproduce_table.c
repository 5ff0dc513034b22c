#include "services/cli/cmd_reproduce.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

static struct tally_run fedavg_runs[2], fedpaq_runs[2], ceal_runs[2];
static struct tally_campaign_row rows[3];
static struct tally_trial trials[3] = {{-1, 0.08, {30, 1}}, {0, 0.1, {20, 2}}, {1, 0.125, {0, 0}}};
static struct tally_search search;

static struct tally_campaign make_campaign(void)
{
    for (int seed = 0; seed < 2; seed++) {
        fedavg_runs[seed] = (struct tally_run){.regret = 10 + 4 * seed,
                                               .uplink = {19200, 19200, 19200, 0},
                                               .downlink = {19200, 19200, 19200, 0}};
        fedpaq_runs[seed] = (struct tally_run){.regret = INFINITY, .diverged = true};
        ceal_runs[seed] = (struct tally_run){
            .regret = 7, .uplink = {131.65, 200, 150.5, 0.5}, .downlink = {144.3 * 2, 300, 260, 3}};
    }
    const enum tally_problem_kind loud = TALLY_PROBLEM_LOUD;
    const struct tally_preset *fedavg = tally_preset_get(loud, &TALLY_FEDAVG, "paper");
    rows[0] = (struct tally_campaign_row){fedavg, 0.1, true, fedavg_runs, NAN};
    rows[1] = (struct tally_campaign_row){tally_preset_get(loud, &TALLY_FEDPAQ, "paper"), 9, false,
                                          fedpaq_runs, NAN};
    rows[2] = (struct tally_campaign_row){tally_preset_get(loud, &TALLY_CEAL, "paper_bits"), 2,
                                          false, ceal_runs, 6.5};
    trials[2].regret.mean = INFINITY;
    search = (struct tally_search){.preset = fedavg, .trials = trials, .n_trials = 3, .best = 1};
    return (struct tally_campaign){
        .config = {.runner = {.kind = TALLY_PROBLEM_LOUD, .first_seed = 101, .n_seeds = 2},
                   .problem = {TALLY_PROBLEM_LOUD, 2}},
        .rows = rows,
        .n_rows = 3,
        .searches = &search,
        .n_searches = 1,
        .n_search_seeds = 2};
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
    const struct tally_campaign campaign = make_campaign();
    struct tally_buffer text = {0};
    expect(tally_reproduce_table_render(&campaign, &text), &text,
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
}

static void test_cli_reproduce_table__grids_tell_the_best_and_edges(void)
{
    struct tally_campaign campaign = make_campaign();
    struct tally_buffer text = {0};
    expect(tally_reproduce_grids_render(&campaign, &text), &text,
           "Grid of step sizes, mean regret over seeds 101-102, best between asterisks:\n"
           "  fedavg\n"
           "    0.08: 30, *0.1: 20*, 0.125: diverged\n");
    search.widened_high = true;
    expect(tally_reproduce_grids_render(&campaign, &text), &text,
           "Grid of step sizes, mean regret over seeds 101-102, best between asterisks:\n"
           "  fedavg\n"
           "    0.08: 30, *0.1: 20*, 0.125: diverged\n"
           "    (grid extended upwards: the best was at its edge)\n");
    campaign.n_searches = 0;
    expect(tally_reproduce_grids_render(&campaign, &text), &text, "");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_reproduce_table__has_bits_and_ratios),
    TALLY_TEST(test_cli_reproduce_table__grids_tell_the_best_and_edges),
};
TALLY_SUITE(cli_reproduce_table, TESTS);

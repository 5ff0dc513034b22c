#include "services/cli/view/frontier_table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "services/cli/view/text_table.h"
#include "services/experiment/plot.h"

/* One line per problem and entry. */
static const struct {
    const struct tally_algorithm *algorithm;
    const char *within; /* for people */
    double max_uplink, max_downlink;
} ENTRIES[] = {
    {&TALLY_CEAL, "263.3 / 288.6", 263.3, 288.6}, {&TALLY_CEAL, "650 / 650", 650, 650},
    {&TALLY_CEAL, "any", INFINITY, INFINITY},     {&TALLY_MINIBATCH_SGD, "any", INFINITY, INFINITY},
    {&TALLY_FEDAVG, "any", INFINITY, INFINITY},   {&TALLY_FEDPAQ, "any", INFINITY, INFINITY},
    {&TALLY_FEDCOM, "any", INFINITY, INFINITY},
};
enum { N_ENTRIES = sizeof ENTRIES / sizeof ENTRIES[0] };

static void add(struct tally_text_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(struct tally_text_table *table, const char *format, ...)
{
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tally_text_table_add(table, text);
}

static void add_params(struct tally_text_table *table, const struct tally_frontier_point *point)
{
    if (point->algorithm == &TALLY_CEAL) {
        const struct tally_ceal_params *ceal = &point->params.ceal;
        add(table, "eta %.3g, c %.3g, j0 %lld, gamma0 %.3g, phi0 %.3g, L %.3g", ceal->step_size,
            ceal->sample_scale, (long long)ceal->first_stage, ceal->gamma0, ceal->phi0,
            ceal->gradient_bound);
    } else {
        add(table, "eta %.3g, K %lld", point->params.baseline.step_size,
            (long long)point->params.baseline.local_steps);
    }
}

static void add_entry(struct tally_text_table *table, const struct tally_frontier *frontier,
                      const struct tally_problem *problem, size_t entry)
{
    const struct tally_frontier_point *best =
        tally_frontier_best(frontier, problem, ENTRIES[entry].algorithm, ENTRIES[entry].max_uplink,
                            ENTRIES[entry].max_downlink);
    tally_text_table_add(table, tally_problem_reading(problem));
    add(table, "%g", problem->radius);
    tally_text_table_add(table, tally_plot_title(ENTRIES[entry].algorithm));
    tally_text_table_add(table, ENTRIES[entry].within);
    if (best == NULL) {
        tally_text_table_add(table, "none");
        tally_text_table_end_row(table);
        return;
    }
    add(table, "%.1f", best->regret.mean);
    add(table, "%.1f", best->regret.std);
    add(table, "%.1f", best->bits.uplink.formula);
    add(table, "%.1f", best->bits.downlink.formula);
    add_params(table, best);
}

enum tally_status tally_frontier_table_render(const struct tally_frontier *frontier,
                                              struct tally_buffer *out)
{
    static const char *const headings[] = {
        "reading", "radius", "algorithm", "within bits", "regret", "+- std", "up", "down", "with"};
    struct tally_text_table table;
    tally_text_table_init(&table, "lrllrrrrl");
    for (size_t c = 0; c < sizeof headings / sizeof headings[0]; c++) {
        tally_text_table_add(&table, headings[c]);
    }
    for (int i = 0; i < 6; i++) {
        const struct tally_problem problem = {i < 3 ? TALLY_PROBLEM_LOUD : TALLY_PROBLEM_QUIET,
                                              1 + i % 3};
        for (size_t entry = 0; entry < N_ENTRIES; entry++) {
            add_entry(&table, frontier, &problem, entry);
        }
    }
    enum tally_status status = tally_buffer_printf(
        out, "Frontier of the synthetic experiment, seeds %lld-%lld, %zu points; formula bits\n\n",
        (long long)frontier->first_seed,
        (long long)frontier->first_seed + (long long)frontier->n_seeds - 1, frontier->n_points);
    if (status == TALLY_OK) {
        status = tally_text_table_render(&table, out);
    }
    tally_text_table_fini(&table);
    return status;
}

#include "services/experiment/frontier_report.h"

#include <stdio.h>

#include "services/experiment/plot.h"
#include "services/experiment/report.h"

/* Constants of CEAL are empty in baselines' lines, and the other way round. */
static enum tally_status print_params(const struct tally_frontier_point *point,
                                      struct tally_buffer *out)
{
    if (point->algorithm == &TALLY_CEAL) {
        const struct tally_ceal_params *ceal = &point->params.ceal;
        return tally_buffer_printf(out, ",%.9g,,%.9g,%lld,%.9g,%.9g,%.9g,%.9g", ceal->step_size,
                                   ceal->sample_scale, (long long)ceal->first_stage, ceal->gamma0,
                                   ceal->phi0, ceal->gradient_bound, ceal->sigma);
    }
    const struct tally_baseline_params *baseline = &point->params.baseline;
    return tally_buffer_printf(out, ",%.9g,%lld,,,,,,", baseline->step_size,
                               (long long)baseline->local_steps);
}

enum tally_status tally_frontier_csv(const struct tally_frontier *frontier,
                                     struct tally_buffer *out)
{
    enum tally_status status = tally_buffer_append_text(
        out, "reading,radius,algorithm,step_size,local_steps,sample_scale,first_stage,gamma0,phi0,"
             "gradient_bound,sigma,regret_mean,regret_std,uplink_formula,downlink_formula,"
             "uplink_entropy_payload,downlink_entropy_payload,on_front\n");
    for (size_t i = 0; status == TALLY_OK && i < frontier->n_points; i++) {
        const struct tally_frontier_point *point = &frontier->points[i];
        status = tally_buffer_printf(out, "%s,%g,%s", tally_problem_reading(&point->problem),
                                     point->problem.radius, point->algorithm->name);
        if (status == TALLY_OK) {
            status = print_params(point, out);
        }
        if (status == TALLY_OK) {
            status = tally_buffer_printf(out, ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%d\n",
                                         point->regret.mean, point->regret.std,
                                         point->bits.uplink.formula, point->bits.downlink.formula,
                                         point->bits.uplink.entropy_payload,
                                         point->bits.downlink.entropy_payload, point->on_front);
        }
    }
    return status;
}

/* Takes `member`, which is NULL when memory ran out. */
static bool set(struct tally_json *object, const char *key, struct tally_json *member)
{
    return member != NULL && tally_json_set(object, key, member);
}

static struct tally_json *params_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    if (json == NULL || !tally_json_write_fields(json, point->algorithm->fields,
                                                 point->algorithm->n_fields, &point->params)) {
        tally_json_free(json);
        return NULL;
    }
    return json;
}

static struct tally_json *point_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    const bool ok = json != NULL &&
                    tally_json_set_text(json, "reading", tally_problem_reading(&point->problem)) &&
                    tally_json_set_real(json, "radius", point->problem.radius) &&
                    tally_json_set_text(json, "algorithm", point->algorithm->name) &&
                    set(json, "parameters", params_json(point)) &&
                    set(json, "regret", tally_report_regret(&point->regret)) &&
                    set(json, "uplink", tally_report_bits(&point->bits.uplink)) &&
                    set(json, "downlink", tally_report_bits(&point->bits.downlink)) &&
                    tally_json_set_bool(json, "on_front", point->on_front);
    if (!ok) {
        tally_json_free(json);
        return NULL;
    }
    return json;
}

struct tally_json *tally_frontier_json(const struct tally_frontier *frontier)
{
    struct tally_json *json = tally_json_object(), *points = tally_json_array();
    bool ok = json != NULL && points != NULL;
    for (size_t i = 0; ok && i < frontier->n_points; i++) {
        if (frontier->points[i].on_front) {
            struct tally_json *point = point_json(&frontier->points[i]);
            ok = point != NULL && tally_json_append(points, point);
        }
    }
    ok = ok && tally_json_set_text(json, "experiment", "synthetic") &&
         set(json, "seeds", tally_report_seeds(frontier->first_seed, frontier->n_seeds));
    if (ok) {
        ok = tally_json_set(json, "points", points);
    } else {
        tally_json_free(points);
    }
    if (!ok) {
        tally_json_free(json);
        return NULL;
    }
    return json;
}

/* Columns of the CSV: 1 reading, 2 radius, 3 algorithm, 12 regret, 14 and 15 bits, 18 front. A line
 * that is filtered out is NaN, which the script declares missing, so that a front is one line. */
static enum tally_status print_series(const char *reading, double radius,
                                      const struct tally_algorithm *algorithm, bool front,
                                      const char *style, const char *lead, struct tally_buffer *out)
{
    return tally_buffer_printf(out,
                               "%s\"frontier.csv\" skip 1 using (strcol(1) eq \"%s\" && $2 == %g "
                               "&& strcol(3) eq \"%s\"%s ? "
                               "$14 + $15 : NaN):12 %s",
                               lead, reading, radius, algorithm->name, front ? " && $18 == 1" : "",
                               style);
}

static enum tally_status print_panel(const char *reading, double radius, struct tally_buffer *out)
{
    static const struct tally_algorithm *const algorithms[] = {
        &TALLY_MINIBATCH_SGD, &TALLY_FEDAVG, &TALLY_FEDPAQ, &TALLY_FEDCOM, &TALLY_CEAL};
    enum tally_status status =
        tally_buffer_printf(out, "set title \"%s, start radius %g\"\n", reading, radius);
    if (status == TALLY_OK) {
        status = print_series(reading, radius, &TALLY_CEAL, false,
                              "with points pt 7 ps 0.25 lc rgb \"#f0c8a8\" notitle", "plot ", out);
    }
    for (size_t i = 0; status == TALLY_OK && i < sizeof algorithms / sizeof algorithms[0]; i++) {
        char style[160];
        const int shape = 5 + 2 * (int)i;
        snprintf(style, sizeof style,
                 "with linespoints lw 2 dt %d pt %d ps 0.9 lc rgb \"%s\" title \"%s\"",
                 algorithms[i] == &TALLY_CEAL ? 1 : 2 + (int)i, shape,
                 tally_plot_colour(algorithms[i]), tally_plot_title(algorithms[i]));
        status = print_series(reading, radius, algorithms[i], true, style, ", \\\n     ", out);
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

static enum tally_status print_panels(struct tally_buffer *out)
{
    static const char *const readings[] = {"loud", "quiet"};
    enum tally_status status =
        tally_buffer_append_text(out, "set key right top samplen 2\nset multiplot layout 2,3\n");
    for (int panel = 0; status == TALLY_OK && panel < 6; panel++) {
        status = print_panel(readings[panel / 3], 1 + panel % 3, out);
        if (status == TALLY_OK && panel == 0) {
            status = tally_buffer_append_text(out, "unset key\n"); /* one for all panels */
        }
    }
    return status == TALLY_OK ? tally_buffer_append(out, "unset multiplot\n", 17) : status;
}

enum tally_status tally_frontier_script(const struct tally_frontier *frontier,
                                        struct tally_buffer *out)
{
    struct tally_buffer panels = {0};
    (void)frontier;
    enum tally_status status = print_panels(&panels);
    if (status == TALLY_OK) {
        status = tally_plot_begin(out, "");
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(
            out, "set datafile missing NaN\nset logscale xy\nset xtics format \"%.0s%c\"\nset "
                 "ytics format \"%.0s%c\"\n"
                 "set xlabel \"bits up per client + down\"\n"
                 "set ylabel \"cumulative regret\"\n"
                 "# what Table I reports for CEAL: 263.3 up, 288.6 down\n"
                 "set arrow from 551.9, graph 0 to 551.9, graph 1 nohead dt 3 lc rgb "
                 "\"#888888\"\n");
    }
    if (status == TALLY_OK) {
        status = tally_plot_end(out, "frontier", 1500, 900, (const char *)panels.data);
    }
    tally_buffer_fini(&panels);
    return status;
}

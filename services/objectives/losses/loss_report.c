#include "services/objectives/losses/loss_report.h"

#include <stdlib.h>
#include <string.h>

struct tally_report {
    bool has_accuracy;            /* of a client's own points */
    bool is_local;                /* every client has held-out points of its own */
    struct tally_objective *test; /* f of the held-out points; NULL: there are none */
};

void tally_report_free(struct tally_report *report)
{
    if (report != NULL) {
        tally_objective_free(report->test);
        free(report);
    }
}

/* Errors name the held-out points, not the training data, although the loaders know only the
 * latter. */
static enum tally_status load_test(struct tally_report *report,
                                   const struct tally_objective_kind *kind,
                                   const struct tally_objective_spec *spec, uint32_t clients,
                                   struct tally_rng_key key, const struct tally_data_source *source,
                                   struct tally_error *err)
{
    struct tally_objective_spec held_out = *spec;
    struct tally_error why = TALLY_ERROR_INIT;
    held_out.data = tally_data_spec_test(&spec->data);
    const enum tally_status status = kind->make(kind, &held_out, report->is_local ? clients : 1,
                                                key, source, &report->test, &why);
    const char *field = tally_data_spec_test_field(&spec->data);
    return status == TALLY_OK ? TALLY_OK
                              : tally_fail(err, status, field, "held-out points (%s): %s",
                                           strrchr(field, '.') + 1, why.message);
}

enum tally_status tally_report_add(struct tally_objective *objective,
                                   const struct tally_objective_kind *kind,
                                   const struct tally_objective_spec *spec,
                                   struct tally_rng_key key, const struct tally_data_source *source,
                                   struct tally_error *err)
{
    const bool has_test = tally_data_spec_has_test(&spec->data);
    if (!spec->accuracy && !has_test) {
        return TALLY_OK;
    }
    struct tally_report *report = calloc(1, sizeof *report);
    if (report == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a report");
    }
    report->has_accuracy = spec->accuracy;
    report->is_local = spec->data.sharding == TALLY_SHARDING_LOCAL;
    objective->report = report;
    return has_test ? load_test(report, kind, spec, objective->clients, key, source, err)
                    : TALLY_OK;
}

static void put(struct tally_metric *metrics, size_t *n, const char *name, double value)
{
    if (isfinite(value)) {
        metrics[*n] = (struct tally_metric){.value = value};
        memcpy(metrics[*n].name, name, strlen(name) + 1);
        (*n)++;
    }
}

enum tally_status tally_report_metrics(const struct tally_objective *objective, uint32_t client,
                                       const double *x, struct tally_metric *ret_metrics,
                                       size_t *ret_n, struct tally_error *err)
{
    const struct tally_report *report = objective->report;
    const bool tests = report->test != NULL && (report->is_local || client == 0);
    struct tally_evaluation own = {NAN, NAN}, held_out = {NAN, NAN};
    enum tally_status status = TALLY_OK;
    if (report->has_accuracy) {
        status = objective->ops->evaluate(objective, client, x, &own, err);
    }
    if (status == TALLY_OK && tests) {
        status = report->test->ops->evaluate(report->test, client, x, &held_out, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    size_t n = 0;
    put(ret_metrics, &n, "accuracy", own.accuracy);
    put(ret_metrics, &n, "test_accuracy", held_out.accuracy);
    put(ret_metrics, &n, "test_loss", held_out.loss);
    *ret_n = n;
    return TALLY_OK;
}

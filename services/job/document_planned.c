#include "services/job/document_planned.h"

#include <math.h>

#include "services/algorithms/calm.h"

void tally_planned_make(const struct tally_setting *setting,
                        const struct tally_calm_schedule *schedule,
                        struct tally_planned *ret_planned)
{
    ret_planned->schedule = *schedule;
    calm_forecast(setting, schedule, &ret_planned->forecast);
}

bool tally_planned_is_due(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    return tally_job_spec_algorithm(spec) == &TALLY_CALM && calm_is_planned(&setting);
}

bool tally_planned_read(const struct tally_job_spec *spec, const char *schedule,
                        struct tally_planned *ret_planned)
{
    struct tally_calm_schedule read;
    if (!tally_planned_is_due(spec) || !calm_read_schedule(schedule, &read)) {
        return false;
    }
    const struct tally_setting setting = tally_job_spec_setting(spec);
    tally_planned_make(&setting, &read, ret_planned);
    const struct tally_calm_forecast *forecast = &ret_planned->forecast;
    return isfinite(forecast->regret + forecast->uplink_bits + forecast->downlink_bits);
}

static struct tally_json *epoch_json(const struct tally_calm_epoch_forecast *epoch,
                                     const struct tally_calm_epoch *planned)
{
    struct tally_json *object = tally_json_object();
    const bool sends = planned != NULL;
    return tally_json_if_complete(
        object, tally_json_set_integer(object, "samples", epoch->samples) &&
                    tally_json_set_real(object, "uplink_resolution",
                                        sends ? planned->uplink_resolution : NAN) &&
                    tally_json_set_real(object, "downlink_resolution",
                                        sends ? planned->downlink_resolution : NAN) &&
                    tally_json_set_real(object, "uplink_bits", epoch->uplink_bits) &&
                    tally_json_set_real(object, "downlink_bits", epoch->downlink_bits) &&
                    tally_json_set_real(object, "regret", epoch->regret) &&
                    tally_json_set_real(object, "variance", epoch->variance));
}

static struct tally_json *epochs_json(const struct tally_planned *planned)
{
    struct tally_json *list = tally_json_array();
    const struct tally_calm_schedule *schedule = &planned->schedule;
    bool ok = list != NULL;
    for (int k = 0; ok && k < planned->forecast.n; k++) {
        ok = tally_json_append(list, epoch_json(&planned->forecast.epochs[k],
                                                k < schedule->n ? &schedule->epochs[k] : NULL));
    }
    return tally_json_if_complete(list, ok);
}

bool tally_planned_add(struct tally_json *object, const struct tally_planned *planned)
{
    return tally_json_set_real(object, "regret", planned->forecast.regret) &&
           tally_json_set_real(object, "uplink_bits", planned->forecast.uplink_bits) &&
           tally_json_set_real(object, "downlink_bits", planned->forecast.downlink_bits) &&
           tally_json_set(object, "epochs", epochs_json(planned));
}

bool tally_planned_set(struct tally_json *object, const struct tally_planned *planned)
{
    if (planned == NULL) {
        return tally_json_set_null(object, "planned");
    }
    struct tally_json *value = tally_json_object();
    return tally_json_set(object, "planned",
                          tally_json_if_complete(value, tally_planned_add(value, planned)));
}

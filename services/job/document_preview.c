#include "services/job/document_preview.h"

#include "services/algorithms/weights.h"
#include "services/job/document.h"
#include "services/job/job_advice.h"
#include "services/job/job_footprint.h"

/* Bits of a whole job; 0 = not known. */
struct expected {
    uint64_t uplink_per_client, downlink;
    bool is_exact;
};

enum { MAX_ROUNDS = 1000000 }; /* that are counted one by one, in a few milliseconds */

static int64_t samples_after(const struct tally_algorithm *algorithm,
                             const struct tally_setting *setting, int64_t n_queries)
{
    struct tally_round_plan plan = {0};
    const bool ok = algorithm->plan(setting, n_queries, NULL, &plan, NULL) == TALLY_OK;
    return ok && plan.samples > 0 ? plan.samples : 1;
}

/* Counts the rounds that end within the horizon, and whether the horizon cuts one more. If a
 * baseline's rounds grow, their stage is the number of earlier queries. False: *ret_n is only an
 * upper bound, from the least number of queries of a round. */
static bool count_rounds(const struct tally_algorithm *algorithm,
                         const struct tally_setting *setting, int64_t *ret_n, bool *ret_is_cut)
{
    const int64_t horizon = setting->horizon;
    const int64_t least = samples_after(algorithm, setting, 0);
    *ret_n = horizon / least;
    *ret_is_cut = horizon % least != 0;
    if (*ret_n == 0 || samples_after(algorithm, setting, horizon) == least) {
        return true;
    }
    if (*ret_n > MAX_ROUNDS) {
        return false;
    }
    int64_t n = 0, last = 0;
    for (int64_t t = least; t <= horizon; t += samples_after(algorithm, setting, t)) {
        n++;
        last = t;
    }
    *ret_n = n;
    *ret_is_cut = last < horizon;
    return true;
}

/* A client's average bits, rounded up, given the `bits` of one that answers in every round: on
 * average, a client answers in answers / clients of the rounds. */
static uint64_t share_of(const struct tally_job_spec *spec, uint64_t bits)
{
    const uint64_t clients = (uint64_t)spec->clients, answers = tally_job_spec_answers(spec);
    return bits / clients * answers + (bits % clients * answers + clients - 1) / clients;
}

/* Every round has a message each way, except a last round cut by the horizon, which has only the
 * weights. A round that does not need all clients may have fewer messages. */
static struct expected baseline_bits(const struct tally_job_spec *spec,
                                     const struct tally_setting *setting)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_message_bits bits = algorithm->message_bits(setting);
    const uint64_t weight_bits = tally_weight_bits(setting);
    int64_t n;
    bool is_cut;
    const bool is_counted = count_rounds(algorithm, setting, &n, &is_cut);
    const uint64_t uplink = (uint64_t)n * (bits.uplink + weight_bits) + is_cut * weight_bits;
    return (struct expected){.uplink_per_client = share_of(spec, uplink),
                             .downlink = (uint64_t)n * bits.downlink,
                             .is_exact =
                                 is_counted && !bits.is_bound && spec->policy == TALLY_POLICY_WAIT};
}

static struct expected expect(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    if (tally_job_spec_algorithm(spec)->message_bits != NULL) {
        return baseline_bits(spec, &setting);
    }
    return (struct expected){.uplink_per_client = (uint64_t)spec->budget.uplink_bits,
                             .downlink = (uint64_t)spec->budget.downlink_bits};
}

static bool set_bits(struct tally_json *object, const char *key, uint64_t bits, bool is_known)
{
    return is_known ? tally_json_set_unsigned(object, key, bits) : tally_json_set_null(object, key);
}

static bool set_expected(struct tally_json *object, const struct tally_job_spec *spec)
{
    const struct expected bits = expect(spec);
    if (!bits.is_exact && bits.uplink_per_client == 0 && bits.downlink == 0) {
        return tally_json_set_null(object, "expected_bits");
    }
    struct tally_json *value = tally_json_object();
    const bool ok =
        set_bits(value, "uplink_per_client", bits.uplink_per_client,
                 bits.is_exact || bits.uplink_per_client > 0) &&
        set_bits(value, "downlink", bits.downlink, bits.is_exact || bits.downlink > 0) &&
        tally_json_set_bool(value, "is_exact", bits.is_exact);
    return tally_json_set(object, "expected_bits", tally_json_if_complete(value, ok));
}

static struct tally_json *texts(const char *const *list, size_t n)
{
    struct tally_json *array = tally_json_array();
    bool ok = array != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = tally_json_append(array, tally_json_text(list[i]));
    }
    return tally_json_if_complete(array, ok);
}

static struct tally_json *warnings_of(const struct tally_job_spec *spec)
{
    const struct tally_curvature unknown = TALLY_CURVATURE_UNKNOWN;
    const struct tally_advice advice = tally_advise(spec, &unknown);
    const char *list[TALLY_ADVICE_MOST];
    for (int i = 0; i < advice.n; i++) {
        list[i] = advice.texts[i];
    }
    return texts(list, (size_t)advice.n);
}

struct tally_json *tally_document_preview(const struct tally_job_spec *spec,
                                          const struct tally_planned *planned)
{
    static const char *const not_checked[] = {
        "whether data files exist and can be read",
        "step_size against the smoothness of f, which needs the data",
        "whether f(x*) can be solved for",
    };
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object,
        tally_json_set(object, "document", tally_document_of(spec)) &&
            tally_json_set(object, "warnings", warnings_of(spec)) && set_expected(object, spec) &&
            tally_planned_set(object, planned) &&
            tally_json_set_integer(object, "memory_bytes", tally_footprint_started(spec)) &&
            tally_json_set_integer(object, "solving_bytes", tally_footprint_solving(spec)) &&
            tally_json_set(object, "not_checked",
                           texts(not_checked, sizeof not_checked / sizeof not_checked[0])));
}

#include "services/experiment/host_entropy.h"

#include <math.h>
#include <stdlib.h>

#include "codec/quantize/qsgd.h"

static const double NORM_BITS = 32; /* of a QSGD message */

static int compare_levels(const void *a, const void *b)
{
    const int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

double tally_levels_entropy(int32_t *levels, size_t n)
{
    double bits = 0;
    qsort(levels, n, sizeof *levels, compare_levels);
    for (size_t start = 0; start < n;) {
        size_t end = start;
        while (end < n && levels[end] == levels[start]) {
            end++;
        }
        const double count = (double)(end - start);
        bits += count * log2((double)n / count);
        start = end;
    }
    return bits;
}

enum tally_status tally_message_entropy(const struct tally_job_spec *spec, bool is_uplink,
                                        const struct tally_message_view *message, int32_t *levels,
                                        double *ret_bits, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_setting setting = tally_job_spec_setting(spec);
    enum tally_status status = TALLY_OK;
    if (algorithm == &TALLY_CEAL) {
        struct tally_level_stats stats;
        status =
            setting.encoding->decode(message->payload, message->n_payload, message->payload_bits,
                                     setting.dim, &message->grid, levels, &stats, err);
        *ret_bits = status == TALLY_OK ? tally_levels_entropy(levels, setting.dim) : 0;
    } else if (is_uplink && (algorithm == &TALLY_FEDPAQ || algorithm == &TALLY_FEDCOM ||
                             algorithm == &TALLY_DIANA)) {
        struct tally_qsgd qsgd;
        status = tally_qsgd_decode(message->payload, message->n_payload, message->payload_bits,
                                   (uint32_t)spec->params.baseline.levels, setting.dim, &qsgd,
                                   levels, err);
        *ret_bits = status == TALLY_OK ? NORM_BITS + tally_levels_entropy(levels, setting.dim) : 0;
    } else {
        *ret_bits = (double)message->payload_bits;
    }
    return status;
}

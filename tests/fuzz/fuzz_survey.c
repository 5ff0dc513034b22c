/* Surveys of clients' points, from the bytes to the scaling. */
#include <math.h>
#include <string.h>

#include "services/objectives/data/survey.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_FEATURES = 4 };

/* Adds a survey to the total. A refusal leaves the total as it was. */
static bool add(struct tally_buffer *total, const uint8_t *bytes, size_t n, size_t features)
{
    const size_t before = total->size;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = tally_survey_add(total, bytes, n, features, &err);
    FUZZ_CHECK(status == TALLY_OK ||
               (status == TALLY_MALFORMED && strcmp(err.field, "payload") == 0));
    FUZZ_CHECK(status == TALLY_OK || total->size == before);
    return status == TALLY_OK;
}

/* Sums are compared with whole powers of two, so a hostile survey may exceed its limit by a factor.
 */
#define MOST_SCALE (2 * TALLY_SURVEY_MOST_VALUE)

static void check_scaling(const struct tally_buffer *total, size_t features)
{
    double numbers[3 * MOST_FEATURES];
    if (tally_survey_conclude(total, features, true, NULL, numbers, NULL) == TALLY_OK) {
        for (size_t j = 0; j < features; j++) {
            FUZZ_CHECK(fabs(numbers[j]) <= MOST_SCALE);
            FUZZ_CHECK(numbers[features + j] == 0 || numbers[features + j] == numbers[j]);
            FUZZ_CHECK(numbers[2 * features + j] > 0 && numbers[2 * features + j] <= MOST_SCALE);
        }
    }
}

/* Two surveys give the same total in either order, and one by itself is its own total. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) {
        return 0;
    }
    const size_t features = 1 + data[0] % MOST_FEATURES;
    const size_t cut = (data[1] | (size_t)data[2] << 8) % (size - 2);
    const uint8_t *first = data + 3, *second = first + cut;
    const size_t n_second = size - 3 - cut;
    struct tally_buffer total = {0}, other = {0};
    const bool has_first = add(&total, first, cut, features);
    if (has_first) {
        FUZZ_CHECK(total.size == cut && memcmp(total.data, first, cut) == 0);
        check_scaling(&total, features);
    }
    const bool has_second = add(&other, second, n_second, features);
    FUZZ_CHECK(add(&total, second, n_second, features) == has_second);
    FUZZ_CHECK(add(&other, first, cut, features) == has_first);
    FUZZ_CHECK(total.size == other.size &&
               (total.size == 0 || memcmp(total.data, other.data, total.size) == 0));
    if (total.size > 0) {
        check_scaling(&total, features);
    }
    tally_buffer_fini(&total);
    tally_buffer_fini(&other);
    return 0;
}

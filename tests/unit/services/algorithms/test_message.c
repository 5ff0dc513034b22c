#include "services/algorithms/algorithm.h"

#include <string.h>

#include "tests/harness.h"

/* Writes the message of a vector on the grid, whose levels do not depend on the stream. */
static enum tally_status write_message(const float *y, size_t dim, const struct tally_grid *grid,
                                       struct tally_message *message, struct tally_error *err)
{
    const struct tally_setting setting = {.dim = dim, .encoding = &TALLY_ENCODING_UNARY};
    struct tally_scratch scratch;
    CU_ASSERT_EQUAL_FATAL(tally_scratch_init(&scratch, dim, TALLY_SCRATCH_CLIENT, NULL), TALLY_OK);
    memcpy(scratch.vector, y, dim * sizeof *y);
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(1, 0), 0, 0, TALLY_RNG_UPLINK);
    enum tally_status status =
        tally_message_of_vector(&setting, grid, &rng, &scratch, message, err);
    tally_scratch_fini(&scratch);
    return status;
}

static void test_algorithms_message__replaces_the_old_payload(void)
{
    const struct tally_grid wide = {.step = 1, .intervals = 1800},
                            narrow = {.step = 2, .intervals = 4};
    const float large[4] = {1000, -1e6f, 1, 0}, small[4] = {0, 0, 0, -2};
    struct tally_message message = {0};
    CU_ASSERT_EQUAL(write_message(large, 4, &wide, &message, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(message.bits.formula_bits, 4 + 1801);
    CU_ASSERT_EQUAL(message.bits.payload_bits, 4 + 1801 + 3);
    CU_ASSERT_EQUAL(message.bits.clipped, 2);
    CU_ASSERT_EQUAL(message.bits.messages, 1);
    CU_ASSERT_EQUAL(message.payload.size, 226);
    CU_ASSERT_EQUAL(write_message(small, 4, &narrow, &message, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(message.payload.size, 1);
    CU_ASSERT_EQUAL(message.bits.payload_bits, 6);
    CU_ASSERT_EQUAL(message.bits.clipped, 0);
    struct tally_message_view view = tally_message_view(&message);
    CU_ASSERT_PTR_EQUAL(view.payload, message.payload.data);
    CU_ASSERT_EQUAL(view.n_payload, 1);
    CU_ASSERT_EQUAL(view.payload_bits, 6);
    CU_ASSERT_EQUAL(view.grid.step, 2);
    CU_ASSERT_EQUAL(view.grid.intervals, 4);
    tally_message_fini(&message);
    CU_ASSERT_PTR_NULL(message.payload.data);
}

static void test_algorithms_message__reports_what_does_not_fit(void)
{
    const struct tally_grid grid = {.step = 1, .intervals = 2000};
    const float y[2] = {900, 5};
    struct tally_message message = {.payload.limit = 10};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(write_message(y, 2, &grid, &message, &err), TALLY_TOO_LARGE, &err);
    TALLY_ASSERT_TEXT(err.message, "a message of 114 bytes or more: content too large");
    tally_message_fini(&message);
}

static void test_algorithms_message__scratch_can_be_released_twice(void)
{
    struct tally_scratch scratch;
    CU_ASSERT_EQUAL_FATAL(tally_scratch_init(&scratch, 3, TALLY_SCRATCH_CLIENT, NULL), TALLY_OK);
    tally_scratch_fini(&scratch);
    CU_ASSERT_PTR_NULL(scratch.levels);
    tally_scratch_fini(&scratch);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_message__replaces_the_old_payload),
    TALLY_TEST(test_algorithms_message__reports_what_does_not_fit),
    TALLY_TEST(test_algorithms_message__scratch_can_be_released_twice),
};
TALLY_SUITE(algorithms_message, TESTS);

/* A vector that both sides keep for a client: how messages move it, and how the last one is
 * undone. */
#include "services/algorithms/shift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { DIM = 3 };
static const double X[DIM] = {1, -0.5, 0.1};

static struct tally_shift *new_shift(const double *x)
{
    struct tally_shift *shift = malloc(tally_shift_bytes(DIM));
    CU_ASSERT_PTR_NOT_NULL_FATAL(shift);
    tally_shift_begin(shift, x, DIM);
    return shift;
}

static void expect(const float *vector, const float *expected)
{
    CU_ASSERT_EQUAL(memcmp(vector, expected, DIM * sizeof *vector), 0);
}

static void test_algorithms_shift__begins_at_the_point_or_at_zero(void)
{
    static const float point[DIM] = {1, -0.5F, 0.1F}, zero[DIM] = {0};
    for (int is_zero = 0; is_zero <= 1; is_zero++) {
        struct tally_shift *shift = new_shift(is_zero ? NULL : X);
        uint64_t round = 99;
        expect(tally_shift_in(shift, 1, DIM, &round), is_zero ? zero : point);
        CU_ASSERT_EQUAL(round, 0);
        expect(tally_shift_now(shift), is_zero ? zero : point);
        CU_ASSERT_TRUE(tally_shift_is_valid(shift, DIM));
        free(shift);
    }
}

/* Both kinds of message move the shift by the same numbers. Adding a message twice changes nothing,
 * and in the message's own round the shift is still the one before it. */
static void test_algorithms_shift__adds_a_message_once(void)
{
    static const float reals[DIM] = {8, -4, 0}, before[DIM] = {0}, after[DIM] = {2, -1, 0};
    static const int64_t integers[DIM] = {8, -4, 0};
    for (int is_integer = 0; is_integer <= 1; is_integer++) {
        struct tally_shift *shift = new_shift(NULL);
        for (int repeat = 0; repeat < 2; repeat++) {
            if (is_integer) {
                tally_shift_add_integers(shift, 7, integers, 0.25, DIM);
            } else {
                tally_shift_add(shift, 7, reals, 0.25, DIM);
            }
            uint64_t round;
            expect(tally_shift_now(shift), after);
            expect(tally_shift_in(shift, 7, DIM, &round), before);
            CU_ASSERT_EQUAL(round, 0);
            expect(tally_shift_in(shift, 8, DIM, &round), after);
            CU_ASSERT_EQUAL(round, 7);
        }
        free(shift);
    }
}

static void test_algorithms_shift__takes_the_last_message_back(void)
{
    static const float message[DIM] = {1, 1, 1}, one[DIM] = {1, 1, 1}, two[DIM] = {2, 2, 2};
    struct tally_shift *shift = new_shift(NULL);
    tally_shift_add(shift, 3, message, 1, DIM);
    tally_shift_add(shift, 5, message, 1, DIM);
    expect(tally_shift_now(shift), two);
    CU_ASSERT_FALSE(tally_shift_return(shift, 0, DIM)); /* two messages ago */
    CU_ASSERT_FALSE(tally_shift_return(shift, 4, DIM));
    CU_ASSERT_TRUE(tally_shift_return(shift, 5, DIM));
    expect(tally_shift_now(shift), two);
    CU_ASSERT_TRUE(tally_shift_return(shift, 3, DIM));
    expect(tally_shift_now(shift), one);
    CU_ASSERT_FALSE(tally_shift_return(shift, 5, DIM)); /* that message was undone */
    tally_shift_add(shift, 6, message, 1, DIM);
    expect(tally_shift_now(shift), two);
    free(shift);
}

static void test_algorithms_shift__is_loaded(void)
{
    static const float vector[DIM] = {3, 4, 5}, message[DIM] = {1, 0, 0}, after[DIM] = {4, 4, 5};
    uint8_t unaligned[1 + sizeof vector];
    struct tally_shift *shift = new_shift(X);
    memcpy(unaligned + 1, vector, sizeof vector);
    tally_shift_load(shift, 9, unaligned + 1, DIM);
    expect(tally_shift_in(shift, 9, DIM, NULL), vector);
    expect(tally_shift_in(shift, 10, DIM, NULL), vector);
    tally_shift_add(shift, 10, message, 1, DIM);
    expect(tally_shift_now(shift), after);
    expect(tally_shift_in(shift, 10, DIM, NULL), vector);
    free(shift);
}

static void test_algorithms_shift__damage_is_found(void)
{
    for (size_t i = 0; i < 2 * DIM; i++) {
        struct tally_shift *shift = new_shift(X);
        shift->vectors[i] = i % 2 == 0 ? NAN : INFINITY;
        CU_ASSERT_FALSE(tally_shift_is_valid(shift, DIM));
        free(shift);
    }
    struct tally_shift *shift = new_shift(X);
    shift->earlier = 2;
    CU_ASSERT_FALSE(tally_shift_is_valid(shift, DIM));
    shift->round = 2;
    CU_ASSERT_TRUE(tally_shift_is_valid(shift, DIM));
    free(shift);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_shift__begins_at_the_point_or_at_zero),
    TALLY_TEST(test_algorithms_shift__adds_a_message_once),
    TALLY_TEST(test_algorithms_shift__takes_the_last_message_back),
    TALLY_TEST(test_algorithms_shift__is_loaded),
    TALLY_TEST(test_algorithms_shift__damage_is_found),
};
TALLY_SUITE(algorithms_shift, TESTS);

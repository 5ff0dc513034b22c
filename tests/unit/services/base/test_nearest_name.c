#include "services/base/nearest_name.h"

#include <limits.h>

#include "tests/harness.h"

static void test_base_nearest_name__distance_counts_edits(void)
{
    CU_ASSERT_EQUAL(tally_name_distance("", ""), 0);
    CU_ASSERT_EQUAL(tally_name_distance("", "abc"), 3);
    CU_ASSERT_EQUAL(tally_name_distance("abc", ""), 3);
    CU_ASSERT_EQUAL(tally_name_distance("kitten", "sitting"), 3);
    CU_ASSERT_EQUAL(tally_name_distance("watch", "wacth"), 1); /* a swap is one edit */
    CU_ASSERT_EQUAL(tally_name_distance("ca", "abc"), 3);      /* restricted form: not 2 */
    CU_ASSERT_EQUAL(tally_name_distance("token_file", "token-file"), 0);
}

static void test_base_nearest_name__long_texts_are_far_from_all(void)
{
    char text[80];
    for (int i = 0; i < 79; i++) {
        text[i] = 'a';
    }
    text[79] = '\0';
    CU_ASSERT_EQUAL(tally_name_distance(text, "a"), INT_MAX);
    CU_ASSERT_EQUAL(tally_name_distance("a", text), INT_MAX);
    text[63] = '\0';
    CU_ASSERT_EQUAL(tally_name_distance(text, "a"), 62);
}

static void test_base_nearest_name__takes_the_nearest_if_near_enough(void)
{
    struct tally_nearest_name nearest = {.typed = "clinets"};
    tally_nearest_name_offer(&nearest, "listen");
    CU_ASSERT_PTR_NULL(nearest.name);
    tally_nearest_name_offer(&nearest, "client");
    TALLY_ASSERT_TEXT(nearest.name, "client");
    tally_nearest_name_offer(&nearest, "clients");
    TALLY_ASSERT_TEXT(nearest.name, "clients");
    CU_ASSERT_EQUAL(nearest.distance, 1);
}

static void test_base_nearest_name__short_names_need_to_be_nearer(void)
{
    struct tally_nearest_name nearest = {.typed = "ab"};
    tally_nearest_name_offer(&nearest, "ac");
    CU_ASSERT_PTR_NULL(nearest.name);
    nearest.typed = "lst";
    tally_nearest_name_offer(&nearest, "cast"); /* distance 2 of 3 */
    CU_ASSERT_PTR_NULL(nearest.name);
    tally_nearest_name_offer(&nearest, "list");
    TALLY_ASSERT_TEXT(nearest.name, "list");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_nearest_name__distance_counts_edits),
    TALLY_TEST(test_base_nearest_name__long_texts_are_far_from_all),
    TALLY_TEST(test_base_nearest_name__takes_the_nearest_if_near_enough),
    TALLY_TEST(test_base_nearest_name__short_names_need_to_be_nearer),
};
TALLY_SUITE(base_nearest_name, TESTS);

#include "services/job/job_broadcasts.h"

#include <stdint.h>

#include "tests/harness.h"

enum { KIBIBIT = 1024, SMALL_DIM = 10, LIMIT_KIBIBITS = 512 }; /* 64 KiB */

/* Adds a message that claims `kibibits` of payload; its actual payload is one byte, the iterate. */
static void add(struct job_broadcasts *broadcasts, size_t dim, uint64_t kibibits)
{
    struct tally_message message = {.bits = {.payload_bits = kibibits * KIBIBIT}};
    const uint8_t byte = (uint8_t)(broadcasts->newest + 1);
    CU_ASSERT_EQUAL(tally_buffer_append(&message.payload, &byte, 1), TALLY_OK);
    job_broadcasts_add(broadcasts, dim, &message);
    tally_message_fini(&message);
}

static void expect_kept(const struct job_broadcasts *broadcasts, int64_t oldest, int64_t newest)
{
    CU_ASSERT_EQUAL(broadcasts->oldest, oldest);
    CU_ASSERT_EQUAL(broadcasts->newest, newest);
    for (int64_t k = 0; k <= newest + 1; k++) {
        const struct tally_message *message = job_broadcasts_get(broadcasts, k);
        CU_ASSERT_EQUAL(message != NULL, k >= oldest && k <= newest);
        CU_ASSERT_TRUE(message == NULL || message->payload.data[0] == k);
    }
}

static void test_job_broadcast_ring__starts_empty_at_any_iterate(void)
{
    struct job_broadcasts broadcasts = {0};
    job_broadcasts_init(&broadcasts, 40);
    expect_kept(&broadcasts, 41, 40);
    add(&broadcasts, SMALL_DIM, 1);
    expect_kept(&broadcasts, 41, 41);
    job_broadcasts_fini(&broadcasts);
}

static void test_job_broadcast_ring__keeps_the_last_sixteen(void)
{
    struct job_broadcasts broadcasts = {0};
    job_broadcasts_init(&broadcasts, 1);
    for (int64_t k = 2; k < 60; k++) {
        add(&broadcasts, SMALL_DIM, 1);
        expect_kept(&broadcasts, k < 18 ? 2 : k - 15, k);
    }
    job_broadcasts_fini(&broadcasts);
}

/* An encoder makes room for the longest message. */
static void test_job_broadcast_ring__keeps_messages_in_no_more_room_than_they_need(void)
{
    struct job_broadcasts broadcasts = {0};
    struct tally_message message = {.bits = {.payload_bits = 8}};
    job_broadcasts_init(&broadcasts, 0);
    CU_ASSERT_EQUAL(tally_buffer_append(&message.payload, "1", 1), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_reserve(&message.payload, 100000), TALLY_OK);
    job_broadcasts_add(&broadcasts, SMALL_DIM, &message);
    CU_ASSERT_TRUE(job_broadcasts_get(&broadcasts, 1)->payload.capacity < 1000);
    CU_ASSERT_EQUAL(job_broadcasts_get(&broadcasts, 1)->payload.data[0], '1');
    tally_message_fini(&message);
    job_broadcasts_fini(&broadcasts);
}

static void test_job_broadcast_ring__drops_the_oldest_above_the_limit(void)
{
    struct job_broadcasts broadcasts = {0};
    job_broadcasts_init(&broadcasts, 1);
    add(&broadcasts, SMALL_DIM, LIMIT_KIBIBITS / 2 - 1);
    add(&broadcasts, SMALL_DIM, LIMIT_KIBIBITS / 2);
    expect_kept(&broadcasts, 2, 3); /* together just below the limit */
    add(&broadcasts, SMALL_DIM, LIMIT_KIBIBITS / 2);
    expect_kept(&broadcasts, 4, 4); /* together exactly the limit */
    add(&broadcasts, SMALL_DIM, 1);
    expect_kept(&broadcasts, 4, 5);
    add(&broadcasts, SMALL_DIM, 2 * LIMIT_KIBIBITS);
    expect_kept(&broadcasts, 6, 6); /* the newest is always kept */
    job_broadcasts_fini(&broadcasts);
}

static void test_job_broadcast_ring__a_long_point_raises_the_limit(void)
{
    enum { DIM = 2 * LIMIT_KIBIBITS * KIBIBIT / 64 };
    struct job_broadcasts broadcasts = {0};
    job_broadcasts_init(&broadcasts, 1);
    add(&broadcasts, DIM, LIMIT_KIBIBITS);
    add(&broadcasts, DIM, LIMIT_KIBIBITS - 1);
    expect_kept(&broadcasts, 2, 3);
    add(&broadcasts, DIM, 1);
    expect_kept(&broadcasts, 3, 4);
    job_broadcasts_fini(&broadcasts);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_broadcast_ring__starts_empty_at_any_iterate),
    TALLY_TEST(test_job_broadcast_ring__keeps_the_last_sixteen),
    TALLY_TEST(test_job_broadcast_ring__keeps_messages_in_no_more_room_than_they_need),
    TALLY_TEST(test_job_broadcast_ring__drops_the_oldest_above_the_limit),
    TALLY_TEST(test_job_broadcast_ring__a_long_point_raises_the_limit),
};
TALLY_SUITE(job_broadcast_ring, TESTS);

#include "services/job/engine/clients.h"

#include <stdlib.h>

#include "tests/harness.h"

enum { N = 6, ROUND = 7 };

static struct job_clients clients_new(void)
{
    struct job_clients clients = {.all = calloc(N, sizeof *clients.all), .n = N};
    CU_ASSERT_PTR_NOT_NULL_FATAL(clients.all);
    job_clients_open_round(&clients);
    return clients;
}

static void answer(struct job_clients *clients, uint32_t client)
{
    const struct job_client message = {.receipt = {.round = ROUND, .digest = client, 3, 4},
                                       .loss = client};
    job_clients_accept(clients, client, &message);
}

static void expect_list(const struct job_clients *clients, bool skip_absent, const char *expected)
{
    char text[TALLY_MISSING_CAPACITY];
    job_clients_list(clients, ROUND, skip_absent, text);
    TALLY_ASSERT_TEXT(text, expected);
}

static void test_job_clients__answers_and_absence_are_counted_once(void)
{
    struct job_clients clients = clients_new();
    CU_ASSERT_EQUAL(clients.n_awaited, N);
    answer(&clients, 2);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 1);
    job_clients_set_absent(&clients, 2, true, ROUND); /* has answered: not awaited before */
    job_clients_set_absent(&clients, 2, true, ROUND);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 1);
    job_clients_set_absent(&clients, 4, true, ROUND);
    job_clients_set_absent(&clients, 4, true, ROUND);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 2);
    answer(&clients, 4); /* and stays absent */
    CU_ASSERT_EQUAL(clients.n_awaited, N - 2);
    CU_ASSERT_TRUE(clients.all[4].absent);
    job_clients_set_absent(&clients, 2, false, ROUND);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 2);
    job_clients_open_round(&clients);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 1);
    free(clients.all);
}

static void test_job_clients__absent_ones_are_skipped_while_others_are_awaited(void)
{
    struct job_clients clients = clients_new();
    expect_list(&clients, true, "0-5");
    answer(&clients, 1);
    job_clients_set_absent(&clients, 3, true, ROUND);
    expect_list(&clients, false, "0 2-5");
    expect_list(&clients, true, "0 2 4-5");
    CU_ASSERT_FALSE(job_clients_lacks(&clients, 3, ROUND, true));
    CU_ASSERT_TRUE(job_clients_lacks(&clients, 3, ROUND, false));
    for (uint32_t m = 0; m < N; m++) {
        job_clients_set_absent(&clients, m, true, ROUND);
    }
    CU_ASSERT_EQUAL(clients.n_awaited, 0);
    expect_list(&clients, true, "0 2-5");
    free(clients.all);
}

static void test_job_clients__nobody_has_answered_before_the_start(void)
{
    const struct job_clients clients = {.n = N};
    CU_ASSERT_FALSE(job_clients_has_answered(&clients, 0, 0));
    expect_list(&clients, true, "0-5");
}

static void test_job_clients__receipts_survive_saving(void)
{
    struct job_clients clients = clients_new(), loaded = clients_new();
    struct tally_buffer bytes = {0};
    answer(&clients, 0);
    answer(&clients, 5);
    clients.all[3].receipt = (struct tally_receipt){ROUND - 1, 1, 2, 3};
    job_clients_set_absent(&loaded, 5, true, ROUND);
    job_clients_save(&clients, &bytes);
    CU_ASSERT_EQUAL_FATAL(bytes.size, N * JOB_CLIENT_SAVED_BYTES);
    job_clients_load(&loaded, bytes.data);
    for (uint32_t m = 0; m < N; m++) {
        const struct tally_receipt *a = &clients.all[m].receipt, *b = &loaded.all[m].receipt;
        CU_ASSERT_TRUE(a->round == b->round && a->digest == b->digest &&
                       a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits);
        CU_ASSERT_FALSE(loaded.all[m].absent);
    }
    job_clients_forget_after(&loaded, ROUND - 1);
    CU_ASSERT_EQUAL(loaded.all[5].receipt.round, 0);
    CU_ASSERT_EQUAL(loaded.all[3].receipt.round, ROUND - 1);
    tally_buffer_fini(&bytes);
    free(clients.all);
    free(loaded.all);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_clients__answers_and_absence_are_counted_once),
    TALLY_TEST(test_job_clients__absent_ones_are_skipped_while_others_are_awaited),
    TALLY_TEST(test_job_clients__nobody_has_answered_before_the_start),
    TALLY_TEST(test_job_clients__receipts_survive_saving),
};
TALLY_SUITE(job_clients, TESTS);

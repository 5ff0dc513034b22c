#include "services/job/job_clients.h"

#include <stdio.h>

#include "tests/harness.h"

enum { N = 6, ROUND = 7, COHORT = 3, MANY = 40 };

static struct job_clients clients_of(uint32_t n, uint32_t cohort)
{
    const struct tally_setting setting = {
        .clients = n, .cohort = cohort, .key = tally_rng_key(11, 0)};
    struct job_clients clients = {0};
    CU_ASSERT_EQUAL_FATAL(job_clients_init(&clients, &setting, NULL), TALLY_OK);
    job_clients_open_round(&clients, ROUND);
    return clients;
}

static struct job_clients clients_new(void)
{
    return clients_of(N, N);
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
    job_clients_set_absent(&clients, 2, true, ROUND); /* has answered, so it was not awaited */
    job_clients_set_absent(&clients, 2, true, ROUND);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 1);
    job_clients_set_absent(&clients, 4, true, ROUND);
    job_clients_set_absent(&clients, 4, true, ROUND);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 2);
    answer(&clients, 4); /* it stays absent */
    CU_ASSERT_EQUAL(clients.n_awaited, N - 2);
    CU_ASSERT_TRUE(clients.all[4].absent);
    job_clients_set_absent(&clients, 2, false, ROUND);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 2);
    job_clients_open_round(&clients, ROUND + 1);
    CU_ASSERT_EQUAL(clients.n_awaited, N - 1);
    job_clients_fini(&clients);
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
    job_clients_fini(&clients);
}

static void test_job_clients__nobody_has_answered_before_the_start(void)
{
    const struct job_clients clients = {.n = N};
    CU_ASSERT_FALSE(job_clients_has_answered(&clients, 0, 0));
    CU_ASSERT_FALSE(job_clients_is_drawn(&clients, 0));
    expect_list(&clients, true, "");
}

static void test_job_clients__receipts_survive_saving(void)
{
    struct job_clients clients = clients_new(), loaded = clients_new();
    struct tally_buffer bytes = {0};
    answer(&clients, 0);
    answer(&clients, 5);
    clients.all[3].receipt = (struct tally_receipt){ROUND - 1, 1, 2, 3};
    job_clients_set_absent(&loaded, 5, true, ROUND);
    job_clients_save(&clients, ROUND, ROUND, &bytes);
    CU_ASSERT_EQUAL_FATAL(bytes.size, N * JOB_RECEIPT_BYTES);
    CU_ASSERT_EQUAL(job_clients_saved_bytes(&clients, ROUND), bytes.size);
    job_clients_load(&loaded, ROUND, ROUND, bytes.data);
    for (uint32_t m = 0; m < N; m++) {
        const struct tally_receipt *a = &clients.all[m].receipt, *b = &loaded.all[m].receipt;
        CU_ASSERT_TRUE(a->round == b->round && a->digest == b->digest &&
                       a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits);
        CU_ASSERT_EQUAL(loaded.all[m].absent, m == 5); /* absence is not saved */
    }
    job_clients_forget_after(&loaded, ROUND - 1);
    CU_ASSERT_EQUAL(loaded.all[5].receipt.round, 0);
    CU_ASSERT_EQUAL(loaded.all[3].receipt.round, ROUND - 1);
    tally_buffer_fini(&bytes);
    job_clients_fini(&clients);
    job_clients_fini(&loaded);
}

static void test_job_clients__a_round_waits_for_its_cohort_alone(void)
{
    struct job_clients clients = clients_of(MANY, COHORT);
    const uint32_t *drawn = clients.cohort.drawn;
    CU_ASSERT_EQUAL(clients.n_awaited, COHORT);
    for (uint32_t m = 0; m < MANY; m++) {
        const bool is_drawn = m == drawn[0] || m == drawn[1] || m == drawn[2];
        CU_ASSERT_EQUAL(job_clients_is_drawn(&clients, m), is_drawn);
        CU_ASSERT_EQUAL(job_clients_lacks(&clients, m, ROUND, false), is_drawn);
        job_clients_set_absent(&clients, m, !is_drawn, ROUND);
    }
    CU_ASSERT_EQUAL(clients.n_awaited, COHORT); /* the absent clients are those not drawn */
    answer(&clients, drawn[1]);
    CU_ASSERT_EQUAL(clients.n_awaited, COHORT - 1);
    char left[64];
    snprintf(left, sizeof left, "%u %u", drawn[0], drawn[2]);
    expect_list(&clients, true, left);
    job_clients_set_absent(&clients, drawn[0], true, ROUND);
    CU_ASSERT_EQUAL(clients.n_awaited, 1);
    job_clients_fini(&clients);
}

/* The receipts of two rounds; a client may have taken part in both. */
static void test_job_clients__receipts_of_cohorts_survive_saving(void)
{
    struct job_clients clients = clients_of(MANY, COHORT), loaded = clients_of(MANY, COHORT);
    struct tally_buffer bytes = {0};
    for (int64_t round = ROUND; round <= ROUND + 1; round++) {
        job_clients_open_round(&clients, round);
        for (uint32_t i = round == ROUND; i < COHORT; i++) { /* one answer is missing */
            const uint32_t client = clients.cohort.drawn[i];
            const struct job_client message = {.receipt = {round, client, 3, 4}};
            job_clients_accept(&clients, client, &message);
        }
    }
    job_clients_save(&clients, ROUND + 1, 2, &bytes);
    CU_ASSERT_EQUAL_FATAL(bytes.size, 2 * COHORT * JOB_RECEIPT_BYTES);
    CU_ASSERT_EQUAL(job_clients_saved_bytes(&clients, 2), bytes.size);
    job_clients_load(&loaded, ROUND + 1, 2, bytes.data);
    int n = 0;
    for (uint32_t m = 0; m < MANY; m++) {
        CU_ASSERT_EQUAL(loaded.all[m].receipt.round, clients.all[m].receipt.round);
        CU_ASSERT_EQUAL(loaded.all[m].receipt.digest, clients.all[m].receipt.digest);
        n += loaded.all[m].receipt.round != 0;
    }
    CU_ASSERT_TRUE(n >= COHORT && n < 2 * COHORT);
    tally_buffer_fini(&bytes);
    job_clients_fini(&clients);
    job_clients_fini(&loaded);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_clients__answers_and_absence_are_counted_once),
    TALLY_TEST(test_job_clients__absent_ones_are_skipped_while_others_are_awaited),
    TALLY_TEST(test_job_clients__nobody_has_answered_before_the_start),
    TALLY_TEST(test_job_clients__receipts_survive_saving),
    TALLY_TEST(test_job_clients__a_round_waits_for_its_cohort_alone),
    TALLY_TEST(test_job_clients__receipts_of_cohorts_survive_saving),
};
TALLY_SUITE(job_clients, TESTS);

#include "services/job/job_reasons.h"

#include <string.h>

#include "tests/harness.h"

static void expect(enum tally_job_status status, const char *stored, const char *code,
                   const char *text)
{
    const char *found;
    const char *actual = tally_reason_read(status, stored, &found);
    TALLY_ASSERT_TEXT(actual != NULL ? actual : "null", code != NULL ? code : "null");
    TALLY_ASSERT_TEXT(found, text);
}

static void test_job_reasons__every_code_is_a_word_of_its_own(void)
{
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        const struct tally_reason_info *info = &TALLY_REASON_INFO[i];
        CU_ASSERT_EQUAL(strspn(info->code, "abcdefghijklmnopqrstuvwxyz_"), strlen(info->code));
        CU_ASSERT_TRUE(tally_job_status_is_terminal(info->status));
        CU_ASSERT_TRUE(info->meaning[0] != '\0' && info->file[0] != '\0');
        for (int j = 0; j < i; j++) {
            CU_ASSERT_NOT_EQUAL(strcmp(info->code, TALLY_REASON_INFO[j].code), 0);
        }
    }
}

static void test_job_reasons__what_is_written_is_read(void)
{
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        const struct tally_reason_info *info = &TALLY_REASON_INFO[i];
        char stored[TALLY_REASON_CAPACITY];
        tally_reason_write(stored, (enum tally_reason)i, "%s: %d", "a", 7);
        expect(info->status, stored, info->code, "a: 7");
    }
}

static void test_job_reasons__the_format_is_that_of_the_table(void)
{
    char stored[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(stored, CLIENT_FAILED, 3U, 7U, "norm is infinite");
    TALLY_ASSERT_TEXT(stored, "client_failed: client 3 in round 7: norm is infinite");
    TALLY_ASSERT_TEXT(TALLY_REASON_INFO[TALLY_REASON_CLIENT_FAILED].format,
                      "client %u in round %u: %s");
}

static void test_job_reasons__status_gives_the_code_where_there_is_no_text(void)
{
    expect(TALLY_JOB_COMPLETED, "", "horizon_reached", "");
    expect(TALLY_JOB_CANCELLED, "", "cancelled_by_request", "");
    expect(TALLY_JOB_QUEUED, "", NULL, "");
    expect(TALLY_JOB_RUNNING, "", NULL, "");
    expect(TALLY_JOB_PAUSED, "", NULL, "");
    expect(TALLY_JOB_FAILED, "", NULL, "");
}

static void test_job_reasons__a_text_of_an_earlier_release_has_no_code(void)
{
    static const char *const texts[] = {
        "client 3 in round 7: the steps of client 3 diverged; step_size 1 is too large",
        "diverged",
        "diverged:",
        "diverged :x",
        "diverge: x",
        "Diverged: x",
        "horizon_reached: x",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        expect(TALLY_JOB_FAILED, texts[i], NULL, texts[i]);
    }
}

static void test_job_reasons__a_long_text_is_cut_between_characters(void)
{
    char text[2 * TALLY_REASON_CAPACITY] = "";
    for (size_t i = 0; i + 2 < sizeof text; i += 2) {
        memcpy(text + i, "\xC3\xA4", 3);
    }
    for (int ascii = 0; ascii < 2; ascii++) {
        char stored[TALLY_REASON_CAPACITY];
        const char *found;
        tally_reason_write(stored, TALLY_REASON_DIVERGED, "%s%s", ascii ? "a" : "", text);
        TALLY_ASSERT_TEXT(tally_reason_read(TALLY_JOB_FAILED, stored, &found), "diverged");
        const size_t n = strlen(found);
        CU_ASSERT_TRUE(strlen(stored) >= TALLY_REASON_CAPACITY - 2);
        CU_ASSERT_EQUAL((n - (size_t)ascii) % 2, 0);
        CU_ASSERT_EQUAL(memcmp(found + ascii, text, n - (size_t)ascii), 0);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_reasons__every_code_is_a_word_of_its_own),
    TALLY_TEST(test_job_reasons__what_is_written_is_read),
    TALLY_TEST(test_job_reasons__the_format_is_that_of_the_table),
    TALLY_TEST(test_job_reasons__status_gives_the_code_where_there_is_no_text),
    TALLY_TEST(test_job_reasons__a_text_of_an_earlier_release_has_no_code),
    TALLY_TEST(test_job_reasons__a_long_text_is_cut_between_characters),
};
TALLY_SUITE(job_reasons, TESTS);

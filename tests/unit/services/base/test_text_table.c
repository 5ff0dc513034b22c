#include "services/base/text_table.h"

#include "tests/harness.h"

static void expect(const char *alignment, const char *const *cells, const char *expected)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    tally_text_table_init(&table, alignment, "");
    for (; *cells != NULL; cells++) {
        tally_text_table_add(&table, *cells);
    }
    tally_text_table_end_row(&table);
    TALLY_ASSERT_STATUS(tally_text_table_end(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text.data, expected);
    tally_buffer_fini(&text);
}

static void test_base_text_table__columns_are_aligned(void)
{
    static const char *const CELLS[] = {"a", "1", "x", "long", "12345", "yy", NULL};
    expect("lrl", CELLS, "a         1  x\nlong  12345  yy\n");
}

static void test_base_text_table__no_blanks_at_line_ends(void)
{
    static const char *const CELLS[] = {"a", "", "", "b", "1", "2", "c", NULL};
    expect("lrl", CELLS, "a\nb  1  2\nc\n");
    static const char *const RIGHT[] = {"a", "", "33", "b", "22", "", NULL};
    expect("lrr", RIGHT, "a      33\nb  22\n");
}

static void test_base_text_table__width_counts_characters(void)
{
    static const char *const CELLS[] = {"é€", "1", "abc", "2", NULL};
    expect("lr", CELLS, "é€   1\nabc  2\n");
}

static void test_base_text_table__width_counts_columns(void)
{
    static const char *const CELLS[] = {"中文", "1", "e\xCC\x81", "2", NULL}; /* two wide, one */
    expect("lr", CELLS, "中文  1\ne\xCC\x81     2\n");
}

static void expect_fit(int columns, const char *expected)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    tally_text_table_init(&table, "lrrl", "ID,ROUND,REGRET,NAME");
    tally_text_table_fit(&table, columns, "bd");
    tally_text_table_printf(&table, "ab12\t31\t412.3\tsynthetic");
    TALLY_ASSERT_STATUS(tally_text_table_end(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text.data, expected);
    tally_buffer_fini(&text);
}

static void test_base_text_table__columns_leave_whole_and_in_order(void)
{
    static const char ALL[] = "ID    ROUND  REGRET  NAME\nab12     31   412.3  synthetic\n";
    expect_fit(0, ALL);
    expect_fit(30, ALL); /* the table's full width */
    expect_fit(29, "ID    REGRET  NAME\nab12   412.3  synthetic\n");
    expect_fit(23, "ID    REGRET  NAME\nab12   412.3  synthetic\n");
    expect_fit(22, "ID    REGRET\nab12   412.3\n");
    expect_fit(1, "ID    REGRET\nab12   412.3\n"); /* columns a and c are never dropped */
}

static void expect_wrapped(int columns, const char *cell, const char *expected)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    tally_text_table_init(&table, "lw", "");
    tally_text_table_fit(&table, columns, "");
    tally_text_table_add(&table, "waiting");
    tally_text_table_add(&table, cell);
    TALLY_ASSERT_STATUS(tally_text_table_end(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text.data, expected);
    tally_buffer_fini(&text);
}

static void test_base_text_table__words_are_wrapped(void)
{
    expect_wrapped(0, "for client 3 (w3)", "waiting  for client 3 (w3)\n");
    expect_wrapped(26, "for client 3 (w3)", "waiting  for client 3 (w3)\n");
    expect_wrapped(25, "for client 3 (w3)", "waiting  for client 3\n         (w3)\n");
    expect_wrapped(12, "for 123456789 x", "waiting  for\n         123456789\n         x\n");
    expect_wrapped(14, "中文 中文", "waiting  中文\n         中文\n");
    expect_wrapped(12, "", "waiting\n");
}

static void test_base_text_table__cells_cannot_move_the_cursor(void)
{
    static const char *const CELLS[] = {"a\n\033[2J\x7F\xFF\xC2\x9Bz", "1", NULL};
    expect("lr", CELLS, "a??[2J????z  1\n");
}

static void test_base_text_table__an_empty_table_is_no_text(void)
{
    static const char *const CELLS[] = {NULL};
    expect("lr", CELLS, "");
}

static void test_base_text_table__a_tab_ends_a_cell(void)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    tally_text_table_init(&table, "lrl", ",of,both,a,b,c");
    tally_text_table_printf(&table, "%s\t%d\t%s", "", 1234, "x, y");
    tally_text_table_printf(&table, "%.1f\t", 0.5);
    tally_text_table_end_row(&table);
    TALLY_ASSERT_STATUS(tally_text_table_end(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text.data, "       of  both\n"
                                               "a       b  c\n"
                                               "     1234  x, y\n"
                                               "0.5\n");
    tally_buffer_fini(&text);
}

static void test_base_text_table__many_rows(void)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    tally_text_table_init(&table, "lr", "NAME,VALUE");
    for (int i = 0; i < 1000; i++) {
        tally_text_table_add(&table, "cell");
        tally_text_table_end_row(&table);
    }
    TALLY_ASSERT_STATUS(tally_text_table_end(&table, &text), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(text.size, 5000 + sizeof "NAME  VALUE");
    tally_buffer_fini(&text);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_text_table__columns_are_aligned),
    TALLY_TEST(test_base_text_table__no_blanks_at_line_ends),
    TALLY_TEST(test_base_text_table__width_counts_characters),
    TALLY_TEST(test_base_text_table__width_counts_columns),
    TALLY_TEST(test_base_text_table__columns_leave_whole_and_in_order),
    TALLY_TEST(test_base_text_table__words_are_wrapped),
    TALLY_TEST(test_base_text_table__cells_cannot_move_the_cursor),
    TALLY_TEST(test_base_text_table__an_empty_table_is_no_text),
    TALLY_TEST(test_base_text_table__a_tab_ends_a_cell),
    TALLY_TEST(test_base_text_table__many_rows),
};
TALLY_SUITE(base_text_table, TESTS);

#include "services/base/progress_bar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "tests/harness.h"

static void expect(struct tally_progress_bar bar, int columns, bool utf8, const char *expected)
{
    char line[TALLY_PROGRESS_LINE_CAPACITY];
    tally_progress_bar_format(&bar, columns, utf8, line);
    TALLY_ASSERT_TEXT(line, expected);
}

static int columns_of(const char *line)
{
    int columns = 0;
    uint32_t point;
    for (size_t n; (n = tally_utf8_next(line, &point)) > 0; line += n) {
        columns++;
    }
    return columns;
}

static void test_base_progress_bar__ascii_has_hashes(void)
{
    expect((struct tally_progress_bar){.fraction = 0.5, .elapsed_ms = 12000, .text = "round 3"}, 40,
           false, "[#####.....]  50%  0:12 left  round 3");
    expect((struct tally_progress_bar){.fraction = 0, .elapsed_ms = 0}, 40, false,
           "[..........]   0%  0:00");
    expect((struct tally_progress_bar){.fraction = 1, .elapsed_ms = 3723000, .text = ""}, 40, false,
           "[##########] 100%  1:02:03");
}

static void test_base_progress_bar__utf8_has_eighths_of_a_block(void)
{
    expect((struct tally_progress_bar){.fraction = 0.5625}, 40, true, "[█████▋    ]  56%  0:00");
    expect((struct tally_progress_bar){.fraction = 0.0125}, 40, true, "[▏         ]   1%  0:00");
    expect((struct tally_progress_bar){.fraction = 0.9875}, 40, true, "[█████████▉]  98%  0:00");
}

static void test_base_progress_bar__time_left_follows_the_pace_since_start(void)
{
    /* 30 percentage points in 30 s, 40 to go */
    expect((struct tally_progress_bar){.fraction = 0.6, .start = 0.3, .elapsed_ms = 30000}, 39,
           false, " 60%  0:40 left");
    /* no progress yet, or too early: shows the elapsed time */
    expect((struct tally_progress_bar){.fraction = 0.3, .start = 0.3, .elapsed_ms = 30000}, 39,
           false, " 30%  0:30");
    expect((struct tally_progress_bar){.fraction = 0.9, .elapsed_ms = 999}, 39, false,
           " 90%  0:00");
}

static void test_base_progress_bar__odd_fractions_are_taken_into_range(void)
{
    expect((struct tally_progress_bar){.fraction = NAN}, 39, false, "  0%  0:00");
    expect((struct tally_progress_bar){.fraction = -3}, 39, false, "  0%  0:00");
    expect((struct tally_progress_bar){.fraction = INFINITY}, 39, false, "100%  0:00");
}

static void test_base_progress_bar__never_exceeds_its_columns(void)
{
    static const char PAIR[] = "é€"; /* two and three bytes */
    char text[900 * sizeof PAIR] = "";
    for (size_t i = 0; i < 900; i++) {
        memcpy(text + i * (sizeof PAIR - 1), PAIR, sizeof PAIR);
    }
    struct tally_progress_bar bar = {.fraction = 0.77, .elapsed_ms = 5000, .text = text};
    for (int columns = 0; columns < 200; columns++) {
        for (int utf8 = 0; utf8 < 2; utf8++) {
            char line[TALLY_PROGRESS_LINE_CAPACITY];
            tally_progress_bar_format(&bar, columns, utf8 == 1, line);
            CU_ASSERT_EQUAL(columns_of(line), columns);
            CU_ASSERT_PTR_NULL(strstr(line, "\xEF\xBF\xBD"));
        }
    }
    char line[TALLY_PROGRESS_LINE_CAPACITY];
    tally_progress_bar_format(&bar, 5000, true, line);
    CU_ASSERT(strlen(line) < TALLY_PROGRESS_LINE_CAPACITY);
}

static void test_base_progress_bar__text_cannot_move_the_cursor(void)
{
    expect((struct tally_progress_bar){.text = "a\n\033[2Jb\xFF\xC2\x9B"}, 39, false,
           "  0%  0:00  a??[2Jb??");
}

/* Returns a painter for a pipe that it treats as a terminal. */
static struct tally_progress_painter new_painter(int fds[2])
{
    CU_ASSERT_FATAL(pipe(fds) == 0);
    struct tally_progress_painter painter;
    tally_progress_painter_init(&painter, fds[1]);
    CU_ASSERT_FALSE(painter.is_terminal);
    painter.is_terminal = true;
    painter.utf8 = false;
    return painter;
}

static void expect_painted(int fds[2], const char *expected)
{
    close(fds[1]);
    char got[4096] = "";
    size_t n = 0;
    for (ssize_t more; (more = read(fds[0], got + n, sizeof got - 1 - n)) > 0; n += (size_t)more) {
    }
    got[n] = '\0';
    close(fds[0]);
    TALLY_ASSERT_TEXT(got, expected);
}

static void test_base_progress_bar__paints_ten_times_a_second_at_most(void)
{
    int fds[2];
    struct tally_progress_painter painter = new_painter(fds);
    struct tally_progress_bar bar = {.fraction = 0};
    CU_ASSERT_TRUE(tally_progress_paint(&painter, &bar, 5000));
    bar.fraction = 0.25;
    CU_ASSERT_FALSE(tally_progress_paint(&painter, &bar, 5000));
    CU_ASSERT_FALSE(tally_progress_paint(&painter, &bar, 5099));
    bar.fraction = 0.5;
    CU_ASSERT_TRUE(tally_progress_paint(&painter, &bar, 5100));
    expect_painted(fds, "\r\033[K[...................]   0%  0:00"
                        "\r\033[K[#########..........]  50%  0:00");
}

static void test_base_progress_bar__clear_leaves_an_empty_line_once(void)
{
    int fds[2];
    struct tally_progress_painter painter = new_painter(fds);
    struct tally_progress_bar bar = {.fraction = 1};
    tally_progress_clear(&painter);
    CU_ASSERT_TRUE(tally_progress_paint(&painter, &bar, 0));
    tally_progress_clear(&painter);
    tally_progress_clear(&painter);
    CU_ASSERT_TRUE(tally_progress_paint(&painter, &bar, 1)); /* a new line is painted at once */
    expect_painted(fds, "\r\033[K[###################] 100%  0:00\r\033[K"
                        "\r\033[K[###################] 100%  0:00");
}

static void test_base_progress_bar__paints_nothing_into_a_pipe(void)
{
    int fds[2];
    struct tally_progress_painter painter = new_painter(fds);
    painter.is_terminal = false;
    struct tally_progress_bar bar = {.fraction = 1};
    CU_ASSERT_FALSE(tally_progress_paint(&painter, &bar, 0));
    tally_progress_clear(&painter);
    expect_painted(fds, "");
}

static void test_base_progress_bar__first_locale_variable_decides(void)
{
    struct tally_progress_painter painter;
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    setenv("LANG", "en_GB.UTF-8", 1);
    tally_progress_painter_init(&painter, STDOUT_FILENO);
    CU_ASSERT_TRUE(painter.utf8);
    setenv("LC_ALL", "C", 1);
    tally_progress_painter_init(&painter, STDOUT_FILENO);
    CU_ASSERT_FALSE(painter.utf8);
    setenv("LC_ALL", "C.utf8", 1);
    tally_progress_painter_init(&painter, STDOUT_FILENO);
    CU_ASSERT_TRUE(painter.utf8);
    unsetenv("LC_ALL");
    unsetenv("LANG");
    tally_progress_painter_init(&painter, STDOUT_FILENO);
    CU_ASSERT_FALSE(painter.utf8);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_progress_bar__ascii_has_hashes),
    TALLY_TEST(test_base_progress_bar__utf8_has_eighths_of_a_block),
    TALLY_TEST(test_base_progress_bar__time_left_follows_the_pace_since_start),
    TALLY_TEST(test_base_progress_bar__odd_fractions_are_taken_into_range),
    TALLY_TEST(test_base_progress_bar__never_exceeds_its_columns),
    TALLY_TEST(test_base_progress_bar__text_cannot_move_the_cursor),
    TALLY_TEST(test_base_progress_bar__paints_ten_times_a_second_at_most),
    TALLY_TEST(test_base_progress_bar__clear_leaves_an_empty_line_once),
    TALLY_TEST(test_base_progress_bar__paints_nothing_into_a_pipe),
    TALLY_TEST(test_base_progress_bar__first_locale_variable_decides),
};
TALLY_SUITE(base_progress_bar, TESTS);

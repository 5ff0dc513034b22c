#include <string.h>

#include "services/base/options.h"
#include "tests/harness.h"

static const struct tally_option OPTIONS[] = {
    {"listen", "ADDR:PORT", "127.0.0.1:8080", "address to serve on", NULL},
    {"exit-when-idle", NULL, NULL,
     "leave as soon as no job is running and none is queued, which is what scripts want", NULL},
    {"a-name-that-is-rather-long", "WITH:A:LONG:VALUE", NULL, "help on its own line", "Extra"},
    {0},
};

static const struct tally_options_spec SPEC = {
    .program = "prog",
    .synopsis = "FILE [OPTION]...",
    .description = "First paragraph, which is so long that it has to be broken into two lines "
                   "somewhere near here.\n\nSecond.",
    .tables = {OPTIONS},
    .epilogue = "The end.\n",
};

static void test_base_options_help__is_aligned_and_wrapped(void)
{
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_options_help(&SPEC, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT(
        (const char *)text.data,
        "Usage: prog FILE [OPTION]...\n"
        "\n"
        "First paragraph, which is so long that it has to be broken into two lines\n"
        "somewhere near here.\n"
        "\n"
        "Second.\n"
        "\n"
        "Options:\n"
        "  --listen ADDR:PORT  address to serve on (default 127.0.0.1:8080)\n"
        "  --exit-when-idle    leave as soon as no job is running and none is queued,\n"
        "                      which is what scripts want\n"
        "\n"
        "Extra:\n"
        "  --a-name-that-is-rather-long WITH:A:LONG:VALUE\n"
        "                      help on its own line\n"
        "\n"
        "General:\n"
        "  --config FILE       read options from FILE, lines `name = value`\n"
        "  --help              print this and exit\n"
        "  --version           print the version and exit\n"
        "\n"
        "Options are also read from the environment, --listen from TALLY_LISTEN and so\n"
        "on, and from the file of --config. The command line overrides the environment,\n"
        "which overrides the file.\n"
        "\n"
        "The end.\n");
    for (const char *line = (const char *)text.data; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        CU_ASSERT(n <= 79);
        line += n + 1;
    }
    tally_buffer_fini(&text);
}

static void test_base_options_help__running_out_of_room_is_an_error(void)
{
    struct tally_buffer text = {.limit = 100};
    TALLY_ASSERT_STATUS(tally_options_help(&SPEC, &text), TALLY_TOO_LARGE, NULL);
    tally_buffer_fini(&text);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_options_help__is_aligned_and_wrapped),
    TALLY_TEST(test_base_options_help__running_out_of_room_is_an_error),
};
TALLY_SUITE(base_options_help, TESTS);

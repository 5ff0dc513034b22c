#include "services/base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/base/scratch_file.h"

static const struct tally_option OPTIONS[] = {
    {"listen", "ADDR", "127.0.0.1:8080", "address", NULL},
    {"clients", "N", "1", "how many", NULL},
    {"token-file", "F", NULL, "token", NULL},
    {"json", NULL, NULL, "machine readable", NULL},
    {"level", "L", "info", "least level", NULL},
    {"part", "F...", "none", "of several", NULL},
    {0},
};
static const struct tally_option MORE[] = {{"insecure", NULL, NULL, "no tokens", NULL}, {0}};
static const struct tally_option OTHER[] = {{"timeout", "S", NULL, "of another command", NULL},
                                            {0}};
static const struct tally_option *const OTHERS[] = {OTHER, NULL};

static const struct tally_options_spec SPEC = {
    .program = "prog",
    .synopsis = "FILE",
    .description = "d",
    .tables = {OPTIONS, MORE},
    .other_tables = OTHERS,
    .max_positionals = 2,
};

enum { MAX_WORDS = 16 };

/* Command lines are split at blanks, so no word is empty. The words exist as long as the
 * options. */
struct parsed {
    char words[512];
    char *argv[MAX_WORDS + 1];
    struct tally_options *options;
    struct tally_error err;
    enum tally_status status;
};

static int split(struct parsed *parsed, const char *command_line)
{
    snprintf(parsed->words, sizeof parsed->words, "prog %s", command_line);
    int argc = 0;
    char *rest = parsed->words;
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL && argc < MAX_WORDS;) {
        parsed->argv[argc++] = word;
    }
    parsed->argv[argc] = NULL;
    return argc;
}

static void parse(struct parsed *parsed, const char *command_line, char *const *environment)
{
    memset(parsed, 0, sizeof *parsed);
    int argc = split(parsed, command_line);
    parsed->status =
        tally_options_new(&SPEC, argc, parsed->argv, environment, &parsed->options, &parsed->err);
}

/* Parses `--config PATH` followed by `command_line`; the file at PATH holds `content`. */
static void parse_config(struct parsed *parsed, struct scratch_file *file, const char *content,
                         const char *command_line, char *const *environment)
{
    scratch_file_init_text(file, content);
    char line[256];
    snprintf(line, sizeof line, "--config %s %s", file->path, command_line);
    parse(parsed, line, environment);
    scratch_file_fini(file);
}

static void expect_refused(const char *command_line, char *const *environment, const char *message)
{
    struct parsed parsed;
    parse(&parsed, command_line, environment);
    TALLY_ASSERT_STATUS(parsed.status, TALLY_INVALID_ARGUMENT, &parsed.err);
    TALLY_ASSERT_TEXT(parsed.err.message, message);
    tally_options_free(parsed.options);
}

/* The error is the path of the config file followed by `message`. */
static void expect_config_refused(const char *content, const char *message)
{
    struct parsed parsed;
    struct scratch_file file;
    parse_config(&parsed, &file, content, "", NULL);
    TALLY_ASSERT_STATUS(parsed.status, TALLY_INVALID_ARGUMENT, &parsed.err);
    size_t n = strlen(file.path);
    CU_ASSERT_EQUAL(strncmp(parsed.err.message, file.path, n), 0);
    TALLY_ASSERT_TEXT(parsed.err.message + n, message);
    tally_options_free(parsed.options);
}

static void test_base_options__defaults_stand_alone(void)
{
    struct parsed p;
    parse(&p, "", NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "listen"), "127.0.0.1:8080");
    CU_ASSERT_PTR_NULL(tally_options_text(p.options, "token-file"));
    CU_ASSERT_FALSE(tally_options_has(p.options, "token-file"));
    CU_ASSERT_TRUE(tally_options_has(p.options, "listen"));
    CU_ASSERT_FALSE(tally_options_is_given(p.options, "listen"));
    CU_ASSERT_FALSE(tally_options_bool(p.options, "json"));
    CU_ASSERT_PTR_NULL(tally_options_positional(p.options, 0));
    CU_ASSERT_EQUAL(tally_options_request(p.options), TALLY_OPTIONS_RUN);
    tally_options_free(p.options);
}

static void test_base_options__both_spellings_of_a_value(void)
{
    struct parsed p;
    parse(&p, "--listen a:1 --clients=7 --json --token_file=x=y --insecure=no --level=", NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "listen"), "a:1");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "clients"), "7");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "token-file"), "x=y");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "level"), "");
    CU_ASSERT_TRUE(tally_options_bool(p.options, "json"));
    CU_ASSERT_FALSE(tally_options_bool(p.options, "insecure"));
    CU_ASSERT_TRUE(tally_options_is_given(p.options, "insecure"));
    tally_options_free(p.options);
}

static void test_base_options__last_one_on_the_command_line_wins(void)
{
    struct parsed p;
    parse(&p, "--clients 1 --clients 2", NULL);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "clients"), "2");
    tally_options_free(p.options);
}

static void expect_parts(const char *command_line, char *const *environment, const char *parts)
{
    struct parsed p;
    parse(&p, command_line, environment);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "part"), parts);
    tally_options_free(p.options);
}

static void test_base_options__lists_take_all_that_the_command_line_names(void)
{
    char *environment[] = {"TALLY_PART=e:f", NULL};
    struct parsed p;
    struct scratch_file file;
    expect_parts("", NULL, "none");
    expect_parts("--part a", NULL, "a");
    expect_parts("--part a --json --part=b --part c:d", NULL, "a:b:c:d");
    expect_parts("", environment, "e:f");
    expect_parts("--part a --part b", environment, "a:b"); /* sources are not combined */
    parse_config(&p, &file, "part = g:h\n", "", NULL);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "part"), "g:h");
    tally_options_free(p.options);
    expect_config_refused("part = g\npart = h\n", ":2: part is already set in line 1");
}

static void expect_item(const struct parsed *p, size_t index, const char *item)
{
    const char *found = tally_options_item(p->options, "part", index);
    TALLY_ASSERT_TEXT(found != NULL ? found : "none", item);
}

static void test_base_options__items_of_a_list_are_told_apart(void)
{
    char *environment[] = {"TALLY_PART=e:f", NULL};
    struct parsed p;
    parse(&p, "--part a:b --json --part=c --part d", environment);
    expect_item(&p, 0, "a:b");
    expect_item(&p, 1, "c");
    expect_item(&p, 2, "d");
    expect_item(&p, 3, "none");
    tally_options_free(p.options);
    parse(&p, "", environment);
    expect_item(&p, 0, "e:f");
    expect_item(&p, 1, "none");
    tally_options_free(p.options);
    parse(&p, "", NULL);
    expect_item(&p, 0, "none");
    tally_options_free(p.options);
}

static void test_base_options__positionals_stand_anywhere(void)
{
    struct parsed p;
    parse(&p, "one --json -", NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    TALLY_ASSERT_TEXT(tally_options_positional(p.options, 0), "one");
    TALLY_ASSERT_TEXT(tally_options_positional(p.options, 1), "-");
    CU_ASSERT_PTR_NULL(tally_options_positional(p.options, 2));
    tally_options_free(p.options);
    parse(&p, "-- --json -x", NULL);
    TALLY_ASSERT_TEXT(tally_options_positional(p.options, 0), "--json");
    TALLY_ASSERT_TEXT(tally_options_positional(p.options, 1), "-x");
    CU_ASSERT_FALSE(tally_options_bool(p.options, "json"));
    tally_options_free(p.options);
    expect_refused("a b c", NULL, "unexpected argument \"c\"");
}

static void test_base_options__too_few_positionals_show_the_usage(void)
{
    struct tally_options_spec spec = SPEC;
    spec.min_positionals = 1;
    struct parsed p = {0};
    int argc = split(&p, "--json");
    TALLY_ASSERT_STATUS(tally_options_new(&spec, argc, p.argv, NULL, &p.options, &p.err),
                        TALLY_INVALID_ARGUMENT, &p.err);
    TALLY_ASSERT_TEXT(p.err.message, "too few arguments; usage: prog FILE");
}

static void test_base_options__stronger_sources_win(void)
{
    char variable[] = "TALLY_CLIENTS=3", level[] = "TALLY_LEVEL=warn";
    char *environment[] = {variable, level, NULL};
    const char *content = "clients = 2\nlevel = debug\ntoken_file = t\n";
    struct parsed p;
    struct scratch_file file;
    parse_config(&p, &file, content, "--level error", environment);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "listen"), "127.0.0.1:8080");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "token-file"), "t");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "clients"), "3");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "level"), "error");
    tally_options_free(p.options);
}

static void test_base_options__environment_names_the_config_file(void)
{
    struct scratch_file file;
    scratch_file_init_text(&file, "clients = 9\n");
    char variable[128];
    snprintf(variable, sizeof variable, "TALLY_CONFIG=%s", file.path);
    char *environment[] = {variable, NULL};
    struct parsed p;
    parse(&p, "", environment);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "clients"), "9");
    tally_options_free(p.options);
    scratch_file_fini(&file);
}

static void test_base_options__environment_knows_only_its_own(void)
{
    char empty[] = "TALLY_CLIENTS=", version[] = "TALLY_VERSION=1", help[] = "TALLY_HELP=1";
    char unknown[] = "TALLY_WHATEVER=1", longer[] = "TALLY_LEVELS=x", on[] = "TALLY_JSON=on";
    char *environment[] = {empty, version, help, unknown, longer, on, NULL};
    struct parsed p;
    parse(&p, "", environment);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    CU_ASSERT_EQUAL(tally_options_request(p.options), TALLY_OPTIONS_RUN);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "clients"), "1"); /* empty = unset */
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "level"), "info");
    CU_ASSERT_FALSE(
        tally_options_bool(p.options, "json")); /* flags are not read from the environment */
    tally_options_free(p.options);
}

static void test_base_options__config_grammar(void)
{
    struct parsed p;
    struct scratch_file file;
    parse_config(&p, &file,
                 "# comment = 1\r\n"
                 "\n"
                 "  listen=a#b   # trailing\r\n"
                 "token-file = \" quoted # text \" # comment\n"
                 "json = yes\n"
                 "\ttimeout = 5\n" /* an option of another command: ignored */
                 "level =\n"
                 "clients = 4", /* no newline at the end */
                 "", NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "listen"), "a#b");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "token-file"), " quoted # text ");
    CU_ASSERT_TRUE(tally_options_bool(p.options, "json"));
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "level"), "");
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "clients"), "4");
    tally_options_free(p.options);
    parse_config(&p, &file, "\xEF\xBB\xBFjson = yes\n", "", NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    CU_ASSERT_TRUE(tally_options_bool(p.options, "json"));
    tally_options_free(p.options);
}

static void test_base_options__config_errors_name_the_line(void)
{
    expect_config_refused("\nclients\n", ":2: \"clients\" is not key = value");
    expect_config_refused("= 3\n", ":1: \"= 3\" is not key = value");
    expect_config_refused("#\n#\nclinets = 3\n",
                          ":3: unknown option clinets; did you mean clients?");
    expect_config_refused("zzz = 3\n", ":1: unknown option zzz");
    expect_config_refused("json = maybe\n", ":1: json: \"maybe\" is neither true nor false");
    expect_config_refused("clients = 1\n\nclients = 2\n", ":3: clients is already set in line 1");
    expect_config_refused("token-file = 1\ntoken_file = 2\n",
                          ":2: token-file is already set in line 1");
    expect_config_refused("level = \"a\n",
                          ":1: a quoted value must end with \" and nothing after it");
    expect_config_refused("level = \"a\" b\n",
                          ":1: a quoted value must end with \" and nothing after it");
    expect_config_refused("config = other\n",
                          ":1: config: is for the command line, not for a config file");
    expect_config_refused("help = true\n",
                          ":1: help: is for the command line, not for a config file");
}

static void test_base_options__config_that_cannot_be_read(void)
{
    expect_refused("--config /nonexistent", NULL, "/nonexistent: No such file or directory");
    expect_refused("--config /tmp", NULL, "/tmp: Is a directory");
    expect_refused("--config /dev/zero", NULL, "/dev/zero: longer than 1048576 bytes");
    struct scratch_file file;
    scratch_file_init(&file, "a\0b", 3);
    char line[128], message[128];
    snprintf(line, sizeof line, "--config %s", file.path);
    snprintf(message, sizeof message, "%s: holds a NUL byte", file.path);
    expect_refused(line, NULL, message);
    scratch_file_fini(&file);
}

static void test_base_options__unknown_flags_get_a_suggestion(void)
{
    expect_refused("--clinets 3", NULL, "unknown option --clinets; did you mean --clients?");
    expect_refused("--client=3", NULL, "unknown option --client; did you mean --clients?");
    expect_refused("--hepl", NULL, "unknown option --hepl; did you mean --help?");
    expect_refused("--zzz", NULL, "unknown option --zzz");
    expect_refused("-x", NULL, "unknown option -x");
    expect_refused("--timeout=1", NULL, "unknown option --timeout"); /* only a config key */
}

static void test_base_options__a_value_must_follow(void)
{
    expect_refused("--clients", NULL, "--clients needs a value, N");
    expect_refused("--clients --json", NULL, "--clients needs a value, N");
    struct parsed p;
    parse(&p, "--clients -5", NULL);
    TALLY_ASSERT_TEXT(tally_options_text(p.options, "clients"), "-5");
    tally_options_free(p.options);
}

static void expect_integer(const char *text, enum tally_status status, int64_t expected,
                           const char *message)
{
    char line[128];
    snprintf(line, sizeof line, "--clients=%s", text);
    struct parsed p;
    parse(&p, line, NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    int64_t value = -77;
    TALLY_ASSERT_STATUS(tally_options_integer(p.options, "clients", -5, 4096, &value, &p.err),
                        status, &p.err);
    CU_ASSERT_EQUAL(value, expected);
    TALLY_ASSERT_TEXT(p.err.message, message);
    TALLY_ASSERT_TEXT(p.err.field, status == TALLY_OK ? "" : "clients");
    tally_options_free(p.options);
}

static void test_base_options__integers_have_limits(void)
{
    expect_integer("-5", TALLY_OK, -5, "");
    expect_integer("4096", TALLY_OK, 4096, "");
    expect_integer("+7", TALLY_OK, 7, "");
    expect_integer("007", TALLY_OK, 7, "");
    expect_integer("-6", TALLY_OUT_OF_RANGE, -77, "--clients: -6 outside [-5, 4096]");
    expect_integer("4097", TALLY_OUT_OF_RANGE, -77, "--clients: 4097 outside [-5, 4096]");
    expect_integer("99999999999999999999", TALLY_OUT_OF_RANGE, -77,
                   "--clients: 99999999999999999999 outside [-5, 4096]");
    expect_integer("", TALLY_INVALID_ARGUMENT, -77, "--clients: \"\" is not an integer");
    expect_integer("12x", TALLY_INVALID_ARGUMENT, -77, "--clients: \"12x\" is not an integer");
    expect_integer("1.5", TALLY_INVALID_ARGUMENT, -77, "--clients: \"1.5\" is not an integer");
    expect_integer("0x10", TALLY_INVALID_ARGUMENT, -77, "--clients: \"0x10\" is not an integer");
    expect_integer("-+1", TALLY_INVALID_ARGUMENT, -77, "--clients: \"-+1\" is not an integer");
}

static void expect_real(const char *text, enum tally_status status, double expected,
                        const char *message)
{
    char line[128];
    snprintf(line, sizeof line, "--clients=%s", text);
    struct parsed p;
    parse(&p, line, NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    double value = -77;
    TALLY_ASSERT_STATUS(tally_options_real(p.options, "clients", -5, 1e6, &value, &p.err), status,
                        &p.err);
    CU_ASSERT_DOUBLE_EQUAL(value, expected, 0);
    TALLY_ASSERT_TEXT(p.err.message, message);
    TALLY_ASSERT_TEXT(p.err.field, status == TALLY_OK ? "" : "clients");
    tally_options_free(p.options);
}

static void test_base_options__reals_have_limits(void)
{
    expect_real("-5", TALLY_OK, -5, "");
    expect_real("2.5", TALLY_OK, 2.5, "");
    expect_real("1e6", TALLY_OK, 1e6, "");
    expect_real(".5", TALLY_OK, 0.5, "");
    expect_real("-5.01", TALLY_OUT_OF_RANGE, -77, "--clients: -5.01 outside [-5, 1e+06]");
    expect_real("1e999", TALLY_OUT_OF_RANGE, -77, "--clients: 1e999 outside [-5, 1e+06]");
    expect_real("", TALLY_INVALID_ARGUMENT, -77, "--clients: \"\" is not a number");
    expect_real("2x", TALLY_INVALID_ARGUMENT, -77, "--clients: \"2x\" is not a number");
    expect_real("nan", TALLY_INVALID_ARGUMENT, -77, "--clients: \"nan\" is not a number");
    expect_real("0x10", TALLY_INVALID_ARGUMENT, -77, "--clients: \"0x10\" is not a number");
    expect_real("1.2.3", TALLY_INVALID_ARGUMENT, -77, "--clients: \"1.2.3\" is not a number");
}

static void test_base_options__integers_past_64_bits_are_out_of_range(void)
{
    struct parsed p;
    int64_t value = 0;
    parse(&p, "--clients=9223372036854775807", NULL);
    TALLY_ASSERT_STATUS(
        tally_options_integer(p.options, "clients", INT64_MIN, INT64_MAX, &value, &p.err), TALLY_OK,
        &p.err);
    CU_ASSERT_EQUAL(value, INT64_MAX);
    tally_options_free(p.options);
    parse(&p, "--clients=9223372036854775808", NULL);
    TALLY_ASSERT_STATUS(
        tally_options_integer(p.options, "clients", INT64_MIN, INT64_MAX, &value, &p.err),
        TALLY_OUT_OF_RANGE, &p.err);
    tally_options_free(p.options);
}

static void test_base_options__errors_name_their_source(void)
{
    char variable[] = "TALLY_CLIENTS=0", wrong[] = "TALLY_INSECURE=perhaps";
    char *environment[] = {variable, NULL}, *wrong_environment[] = {wrong, NULL};
    struct parsed p;
    int64_t value;
    parse(&p, "", environment);
    tally_options_integer(p.options, "clients", 1, 10, &value, &p.err);
    TALLY_ASSERT_TEXT(p.err.message, "TALLY_CLIENTS: 0 outside [1, 10]");
    tally_options_free(p.options);
    struct scratch_file file;
    parse_config(&p, &file, "\n\nclients = 0", "", NULL);
    tally_options_integer(p.options, "clients", 1, 10, &value, &p.err);
    char message[128];
    snprintf(message, sizeof message, "%s:3: clients: 0 outside [1, 10]", file.path);
    TALLY_ASSERT_TEXT(p.err.message, message);
    tally_options_free(p.options);
    expect_refused("", wrong_environment, "TALLY_INSECURE: \"perhaps\" is neither true nor false");
    expect_refused("--json=2", NULL, "--json: \"2\" is neither true nor false");
    parse(&p, "", NULL);
    tally_options_refuse(p.options, "token-file", &p.err, "is needed for %s", "0.0.0.0");
    TALLY_ASSERT_TEXT(p.err.message, "--token-file: is needed for 0.0.0.0");
    tally_error_clear(&p.err);
    TALLY_ASSERT_STATUS(tally_options_integer(p.options, "token-file", 1, 10, &value, &p.err),
                        TALLY_INVALID_ARGUMENT, &p.err);
    TALLY_ASSERT_TEXT(p.err.message, "--token-file: is required");
    tally_options_free(p.options);
}

static void test_base_options__choices(void)
{
    static const char *const LEVELS[] = {"debug", "info", NULL};
    struct parsed p;
    int index = -1;
    parse(&p, "", NULL);
    TALLY_ASSERT_STATUS(tally_options_choice(p.options, "level", LEVELS, &index, &p.err), TALLY_OK,
                        &p.err);
    CU_ASSERT_EQUAL(index, 1);
    tally_options_free(p.options);
    parse(&p, "--level inf", NULL);
    TALLY_ASSERT_STATUS(tally_options_choice(p.options, "level", LEVELS, &index, &p.err),
                        TALLY_INVALID_ARGUMENT, &p.err);
    TALLY_ASSERT_TEXT(p.err.message, "--level: \"inf\" is not one of debug, info");
    tally_options_free(p.options);
}

static void expect_request(const char *command_line, enum tally_options_request request)
{
    struct parsed p;
    parse(&p, command_line, NULL);
    TALLY_ASSERT_STATUS(p.status, TALLY_OK, &p.err);
    CU_ASSERT_EQUAL(tally_options_request(p.options), request);
    tally_options_free(p.options);
}

static void test_base_options__help_and_version_stop_reading(void)
{
    expect_request("--help", TALLY_OPTIONS_HELP);
    expect_request("-h", TALLY_OPTIONS_HELP);
    expect_request("--version --zzz a b c d", TALLY_OPTIONS_VERSION);
    expect_request("--config /nonexistent --help", TALLY_OPTIONS_HELP);
    expect_request("--help=false", TALLY_OPTIONS_RUN);
    expect_request("-- --help", TALLY_OPTIONS_RUN);
}

static int first_positional(const char *command_line)
{
    struct parsed p = {0};
    int argc = split(&p, command_line);
    int index = tally_options_first_positional(&SPEC, argc, p.argv);
    return index == argc ? -1 : index;
}

static void test_base_options__first_positional_is_the_sub_command(void)
{
    CU_ASSERT_EQUAL(first_positional("list --json"), 1);
    CU_ASSERT_EQUAL(first_positional("--listen a list"), 3);
    CU_ASSERT_EQUAL(first_positional("--listen=a --json list"), 3);
    CU_ASSERT_EQUAL(first_positional("--zzz list"), 2);
    CU_ASSERT_EQUAL(first_positional("--help list"), -1);
    CU_ASSERT_EQUAL(first_positional("--listen"), -1);
    CU_ASSERT_EQUAL(first_positional(""), -1);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_options__defaults_stand_alone),
    TALLY_TEST(test_base_options__both_spellings_of_a_value),
    TALLY_TEST(test_base_options__last_one_on_the_command_line_wins),
    TALLY_TEST(test_base_options__lists_take_all_that_the_command_line_names),
    TALLY_TEST(test_base_options__items_of_a_list_are_told_apart),
    TALLY_TEST(test_base_options__positionals_stand_anywhere),
    TALLY_TEST(test_base_options__too_few_positionals_show_the_usage),
    TALLY_TEST(test_base_options__stronger_sources_win),
    TALLY_TEST(test_base_options__environment_names_the_config_file),
    TALLY_TEST(test_base_options__environment_knows_only_its_own),
    TALLY_TEST(test_base_options__config_grammar),
    TALLY_TEST(test_base_options__config_errors_name_the_line),
    TALLY_TEST(test_base_options__config_that_cannot_be_read),
    TALLY_TEST(test_base_options__unknown_flags_get_a_suggestion),
    TALLY_TEST(test_base_options__a_value_must_follow),
    TALLY_TEST(test_base_options__integers_have_limits),
    TALLY_TEST(test_base_options__reals_have_limits),
    TALLY_TEST(test_base_options__integers_past_64_bits_are_out_of_range),
    TALLY_TEST(test_base_options__errors_name_their_source),
    TALLY_TEST(test_base_options__choices),
    TALLY_TEST(test_base_options__help_and_version_stop_reading),
    TALLY_TEST(test_base_options__first_positional_is_the_sub_command),
};
TALLY_SUITE(base_options, TESTS);

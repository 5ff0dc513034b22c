#include "services/objectives/data/open_below.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"

static struct idx_files FILES;

static void make_link(const char *target, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", FILES.folder, name);
    CU_ASSERT_EQUAL(symlink(target, path), 0);
}

static void make_folder(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", FILES.folder, name);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
}

/* Makes files a, sub/b and sub/deep/c, links within the folder and out of it, a pipe, and
 * folders. */
static void init(void)
{
    char path[400];
    idx_files_init(&FILES);
    make_folder("sub");
    make_folder("sub/deep");
    data_files_text(&FILES, "a", "a");
    data_files_text(&FILES, "sub/b", "b");
    data_files_text(&FILES, "sub/deep/c", "c");
    make_link("a", "link-to-a");
    make_link("../a", "sub/link-to-a");
    make_link("sub", "link-to-sub");
    make_link("/etc/passwd", "link-out");
    make_link("../../../../../../../../etc", "sub/link-up");
    make_link("/", "link-root");
    make_link("loop", "loop");
    snprintf(path, sizeof path, "%s/pipe", FILES.folder);
    CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
}

typedef int open_fn(int folder, const char *name);

/* Returns the file's only byte, or the negative errno. */
static int first_byte(open_fn *open_it, const char *name)
{
    const int folder = open(FILES.folder, O_PATH | O_DIRECTORY);
    CU_ASSERT_FATAL(folder >= 0);
    const int fd = open_it(folder, name);
    close(folder);
    if (fd < 0) {
        return fd;
    }
    char byte = '?';
    CU_ASSERT_EQUAL(read(fd, &byte, 1), 1);
    close(fd);
    return byte;
}

static const struct {
    const char *name;
    int expected, expected_walking; /* a byte, or a negative errno */
} ROWS[] = {
    {"a", 'a', 'a'},
    {"./a", 'a', 'a'},
    {"sub/b", 'b', 'b'},
    {"sub//b", 'b', 'b'},
    {"sub/deep/c", 'c', 'c'},
    {"sub/./deep/./c", 'c', 'c'},
    {"none", -ENOENT, -ENOENT},
    {"sub/none", -ENOENT, -ENOENT},
    {"a/b", -ENOTDIR, -ENOTDIR},
    {"", -EXDEV, -EXDEV},
    {"..", -EXDEV, -EXDEV},
    {"../etc/passwd", -EXDEV, -EXDEV},
    {"sub/../a", -EXDEV, -EXDEV},
    {"sub/..", -EXDEV, -EXDEV},
    {"/etc/passwd", -EXDEV, -EXDEV},
    {"link-out", -EXDEV, -ELOOP},
    {"link-root/etc/passwd", -EXDEV, -ENOTDIR},
    {"sub/link-up/passwd", -EXDEV, -ENOTDIR},
    {"loop", -ELOOP, -ELOOP},
    /* Links that stay inside are followed only if the kernel can check them. */
    {"link-to-a", 'a', -ELOOP},
    {"sub/link-to-a", 'a', -ELOOP},
    {"link-to-sub/b", 'b', -ENOTDIR},
    /* Not regular files. */
    {"sub", -EINVAL, -EINVAL},
    {".", -EINVAL, -EINVAL},
    {"pipe", -EINVAL, -EINVAL},
};

static void test_objectives_open_below__nothing_leads_out(void)
{
    init();
    const bool has_openat2 = first_byte(tally_open_below, "link-to-a") == 'a';
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const int walking = first_byte(tally_open_below_walking, ROWS[i].name);
        const int found = first_byte(tally_open_below, ROWS[i].name);
        const int expected = has_openat2 ? ROWS[i].expected : ROWS[i].expected_walking;
        if (walking != ROWS[i].expected_walking || found != expected) {
            fprintf(stderr, "\n\"%s\": %d, %d walking\n", ROWS[i].name, found, walking);
        }
        CU_ASSERT_EQUAL(walking, ROWS[i].expected_walking);
        CU_ASSERT_EQUAL(found, expected);
    }
    idx_files_fini(&FILES);
}

static void test_objectives_open_below__long_names_are_refused(void)
{
    init();
    char name[400];
    memset(name, 'x', 399);
    name[399] = '\0';
    CU_ASSERT_EQUAL(first_byte(tally_open_below, name), -ENAMETOOLONG);
    CU_ASSERT_EQUAL(first_byte(tally_open_below_walking, name), -ENAMETOOLONG);
    name[200] = '/'; /* two components of allowed length */
    CU_ASSERT_EQUAL(first_byte(tally_open_below_walking, name), -ENOENT);
    idx_files_fini(&FILES);
}

/* No descriptor is left open, whether a name is accepted or not. */
static void test_objectives_open_below__closes_what_it_opens(void)
{
    init();
    const int before = dup(0);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        first_byte(tally_open_below, ROWS[i].name);
        first_byte(tally_open_below_walking, ROWS[i].name);
    }
    const int after = dup(0);
    CU_ASSERT_EQUAL(after, before + 1);
    close(before);
    close(after);
    idx_files_fini(&FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_open_below__nothing_leads_out),
    TALLY_TEST(test_objectives_open_below__long_names_are_refused),
    TALLY_TEST(test_objectives_open_below__closes_what_it_opens),
};
TALLY_SUITE(objectives_open_below, TESTS);

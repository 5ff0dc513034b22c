#include "services/base/whole_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness.h"

/* A temporary directory for one test, and one path in it. */
struct scratch {
    char directory[64];
    char path[96];
};

static void scratch_init(struct scratch *scratch)
{
    strcpy(scratch->directory, "/tmp/tally-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(scratch->directory));
    snprintf(scratch->path, sizeof scratch->path, "%s/file", scratch->directory);
}

static void scratch_fini(struct scratch *scratch)
{
    unlink(scratch->path);
    CU_ASSERT_EQUAL(rmdir(scratch->directory), 0); /* fails if a temporary file was left */
}

static void expect_content(const char *path, const char *expected)
{
    struct tally_buffer got = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_whole_file_read(path, &got, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_buffer_append(&got, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)got.data, expected);
    tally_buffer_fini(&got);
}

static void test_base_whole_file__writes_and_replaces(void)
{
    struct scratch scratch;
    scratch_init(&scratch);
    mode_t mask = umask(022);
    TALLY_ASSERT_STATUS(tally_whole_file_write(scratch.path, "one", 3, NULL), TALLY_OK, NULL);
    expect_content(scratch.path, "one");
    TALLY_ASSERT_STATUS(tally_whole_file_write(scratch.path, "", 0, NULL), TALLY_OK, NULL);
    expect_content(scratch.path, "");
    struct stat info = {0};
    CU_ASSERT_EQUAL(stat(scratch.path, &info), 0);
    CU_ASSERT_EQUAL(info.st_mode & 0777, 0644);
    umask(mask);
    scratch_fini(&scratch);
}

static void test_base_whole_file__follows_symbolic_links(void)
{
    struct scratch scratch;
    char link_path[96];
    scratch_init(&scratch);
    snprintf(link_path, sizeof link_path, "%s/link", scratch.directory);
    TALLY_ASSERT_STATUS(tally_whole_file_write(scratch.path, "one", 3, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL_FATAL(symlink(scratch.path, link_path), 0);
    TALLY_ASSERT_STATUS(tally_whole_file_write(link_path, "two", 3, NULL), TALLY_OK, NULL);
    expect_content(scratch.path, "two");
    unlink(link_path);
    scratch_fini(&scratch);
}

/* Uses a pipe in the test's own folder, not a device, because a defect in the code could, when
 * run as root, replace /dev/null with a file. */
static void test_base_whole_file__what_is_no_regular_file_is_written_through(void)
{
    struct scratch scratch;
    struct stat info = {0};
    char got[8] = "";
    scratch_init(&scratch);
    CU_ASSERT_EQUAL_FATAL(mkfifo(scratch.path, 0600), 0);
    int fd = open(scratch.path, O_RDWR | O_NONBLOCK);
    CU_ASSERT_FATAL(fd >= 0);
    TALLY_ASSERT_STATUS(tally_whole_file_write(scratch.path, "one", 3, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(read(fd, got, sizeof got - 1), 3);
    TALLY_ASSERT_TEXT(got, "one");
    CU_ASSERT_EQUAL(stat(scratch.path, &info), 0);
    CU_ASSERT_TRUE(S_ISFIFO(info.st_mode));
    close(fd);
    scratch_fini(&scratch);
}

/* A limit on the file size simulates a full disk. */
static void test_base_whole_file__a_write_that_breaks_off_keeps_the_old_file(void)
{
    struct scratch scratch;
    struct tally_error err = TALLY_ERROR_INIT;
    struct rlimit before, small;
    scratch_init(&scratch);
    TALLY_ASSERT_STATUS(tally_whole_file_write(scratch.path, "old", 3, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 2, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    enum tally_status status = tally_whole_file_write(scratch.path, "new content", 11, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    TALLY_ASSERT_STATUS(status, TALLY_UNAVAILABLE, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "/file: File too large"));
    expect_content(scratch.path, "old");
    scratch_fini(&scratch);
}

static void test_base_whole_file__errors_name_the_file_and_leave_nothing(void)
{
    struct scratch scratch;
    struct tally_error err = TALLY_ERROR_INIT;
    scratch_init(&scratch);
    TALLY_ASSERT_STATUS(tally_whole_file_write("/nonexistent/x", "x", 1, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "/nonexistent/x: No such file or directory");
    tally_error_clear(&err);
    CU_ASSERT_EQUAL_FATAL(mkdir(scratch.path, 0700), 0);
    TALLY_ASSERT_STATUS(tally_whole_file_write(scratch.path, "x", 1, &err), TALLY_INVALID_ARGUMENT,
                        &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "/file: Is a directory"));
    rmdir(scratch.path);
    scratch_fini(&scratch);
}

static void test_base_whole_file__reading_has_a_limit(void)
{
    struct scratch scratch;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_buffer got = {.limit = 2};
    scratch_init(&scratch);
    TALLY_ASSERT_STATUS(tally_whole_file_write(scratch.path, "one", 3, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_whole_file_read(scratch.path, &got, &err), TALLY_TOO_LARGE, &err);
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_whole_file_read("/tmp", &got, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "/tmp: Is a directory");
    tally_buffer_fini(&got);
    scratch_fini(&scratch);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_whole_file__writes_and_replaces),
    TALLY_TEST(test_base_whole_file__follows_symbolic_links),
    TALLY_TEST(test_base_whole_file__what_is_no_regular_file_is_written_through),
    TALLY_TEST(test_base_whole_file__a_write_that_breaks_off_keeps_the_old_file),
    TALLY_TEST(test_base_whole_file__errors_name_the_file_and_leave_nothing),
    TALLY_TEST(test_base_whole_file__reading_has_a_limit),
};
TALLY_SUITE(base_whole_file, TESTS);

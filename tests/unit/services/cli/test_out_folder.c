#include "services/cli/out_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/base/whole_file.h"
#include "tests/harness.h"

struct place {
    char parent[64], folder[128], file[192];
};

static void place_init(struct place *place)
{
    snprintf(place->parent, sizeof place->parent, "/tmp/tally-test-out.XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(place->parent));
    snprintf(place->folder, sizeof place->folder, "%s/out", place->parent);
    snprintf(place->file, sizeof place->file, "%s/a.csv", place->folder);
}

static void place_fini(const struct place *place)
{
    unlink(place->file);
    rmdir(place->folder);
    rmdir(place->parent);
}

static void test_cli_out_folder__is_made_once_and_used_again(void)
{
    struct place place;
    struct stat found;
    struct tally_error err = TALLY_ERROR_INIT;
    place_init(&place);
    TALLY_ASSERT_STATUS(tally_out_folder_make(place.folder, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_out_folder_make(place.folder, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(stat(place.folder, &found) == 0 && S_ISDIR(found.st_mode));
    place_fini(&place);
}

static void test_cli_out_folder__refuses_what_is_no_folder(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_out_folder_make("/dev/null", &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, "out");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_out_folder_make("/nonexistent/a/b", &err), TALLY_INVALID_ARGUMENT,
                        &err);
}

static void test_cli_out_folder__writes_whole_files(void)
{
    struct place place;
    struct tally_buffer text = {0}, read = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    place_init(&place);
    tally_out_folder_make(place.folder, NULL);
    tally_buffer_append_text(&text, "a,b\n1,2\n");
    TALLY_ASSERT_STATUS(tally_out_folder_write(place.folder, "a.csv", TALLY_NO_MEMORY, &text, &err),
                        TALLY_NO_MEMORY, &err);
    CU_ASSERT_NOT_EQUAL(access(place.file, F_OK), 0);
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_out_folder_write(place.folder, "a.csv", TALLY_OK, &text, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_whole_file_read(place.file, &read, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(read.size == text.size && memcmp(read.data, text.data, read.size) == 0);
    tally_buffer_fini(&text);
    tally_buffer_fini(&read);
    place_fini(&place);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_out_folder__is_made_once_and_used_again),
    TALLY_TEST(test_cli_out_folder__refuses_what_is_no_folder),
    TALLY_TEST(test_cli_out_folder__writes_whole_files),
};
TALLY_SUITE(cli_out_folder, TESTS);

#include "services/cli/event_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/whole_file.h"
#include "tests/harness.h"

struct place {
    char folder[64], file[128];
};

static void place_init(struct place *place)
{
    snprintf(place->folder, sizeof place->folder, "/tmp/tally-test-events.XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(place->folder));
    snprintf(place->file, sizeof place->file, "%s/events", place->folder);
}

static void place_fini(const struct place *place)
{
    unlink(place->file);
    rmdir(place->folder);
}

static struct tally_event_file *open_file(const struct place *place)
{
    struct tally_event_file *file = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_event_file_open(place->file, 1.5, &file, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    return file;
}

static void test_cli_event_file__crc_is_that_of_rfc_3720(void)
{
    /* Appendix B.4. */
    uint8_t bytes[32] = {0};
    CU_ASSERT_EQUAL(tally_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    CU_ASSERT_EQUAL(tally_crc32c(bytes, 32), 0x62a8ab43);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)i;
    }
    CU_ASSERT_EQUAL(tally_crc32c(bytes, 32), 0x46dd794e);
    CU_ASSERT_EQUAL(tally_crc32c("", 0), 0);
}

/* The first record, byte for byte: its checksums are those that any other writer gives. */
static void test_cli_event_file__begins_with_its_version(void)
{
    struct place place;
    struct tally_buffer read = {0};
    static const uint8_t PAYLOAD[] = {0x09, 0,    0,   0,   0,   0,   0,   0xf8,
                                      0x3f, 0x1a, 13,  'b', 'r', 'a', 'i', 'n',
                                      '.',  'E',  'v', 'e', 'n', 't', ':', '2'};
    place_init(&place);
    struct tally_event_file *file = open_file(&place);
    CU_ASSERT_EQUAL(tally_event_file_last_step(file), -1);
    tally_event_file_close(file);
    tally_file_read(place.file, &read, NULL);
    CU_ASSERT_EQUAL_FATAL(read.size, 12 + sizeof PAYLOAD + 4);
    CU_ASSERT_EQUAL(read.data[0], sizeof PAYLOAD);
    CU_ASSERT_EQUAL(memcmp(read.data + 12, PAYLOAD, sizeof PAYLOAD), 0);
    tally_buffer_fini(&read);
    place_fini(&place);
}

static void test_cli_event_file__steps_are_found_again(void)
{
    static const int64_t STEPS[] = {0, 1, 127, 128, 1 << 20, INT64_C(1) << 40};
    struct place place;
    struct tally_error err = TALLY_ERROR_INIT;
    place_init(&place);
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        struct tally_event_file *file = open_file(&place);
        CU_ASSERT_EQUAL(tally_event_file_last_step(file), i > 0 ? STEPS[i - 1] : -1);
        TALLY_ASSERT_STATUS(tally_event_begin(file, 2, STEPS[i], &err), TALLY_OK, &err);
        CU_ASSERT_EQUAL(tally_event_scalar(file, "loss", 0.5), TALLY_OK);
        TALLY_ASSERT_STATUS(tally_event_file_flush(file, &err), TALLY_OK, &err);
        tally_event_file_close(file);
    }
    place_fini(&place);
}

static void test_cli_event_file__only_one_program_writes(void)
{
    struct place place;
    struct tally_event_file *second = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    place_init(&place);
    struct tally_event_file *first = open_file(&place);
    TALLY_ASSERT_STATUS(tally_event_file_open(place.file, 1, &second, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    tally_event_file_close(first);
    tally_event_file_close(open_file(&place));
    place_fini(&place);
}

/* Every length to which a file may have been cut, and every byte that may be damaged. */
static void test_cli_event_file__no_damage_is_taken_for_data(void)
{
    struct place place;
    struct tally_buffer whole = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    place_init(&place);
    struct tally_event_file *file = open_file(&place);
    for (int step = 1; step <= 2; step++) {
        tally_event_begin(file, step, step, &err);
        tally_event_scalar(file, "loss", step);
        tally_event_file_flush(file, &err);
    }
    tally_event_file_close(file);
    tally_file_read(place.file, &whole, NULL);
    const size_t n_first = 12 + 24 + 4, n_step = (whole.size - n_first) / 2;
    for (size_t n = 0; n <= whole.size; n++) {
        struct tally_buffer read = {0};
        tally_whole_file_write(place.file, whole.data, n, NULL);
        file = open_file(&place);
        const size_t n_steps = n < n_first ? 0 : (n - n_first) / n_step;
        CU_ASSERT_EQUAL(tally_event_file_last_step(file), n_steps > 0 ? (int64_t)n_steps : -1);
        tally_event_file_close(file);
        tally_file_read(place.file, &read, NULL);
        CU_ASSERT_EQUAL(read.size, n_first + n_steps * n_step);
        tally_buffer_fini(&read);
    }
    for (size_t i = 0; i < whole.size; i++) {
        struct tally_event_file *none = NULL;
        tally_error_clear(&err);
        whole.data[i] ^= 0x10;
        tally_whole_file_write(place.file, whole.data, whole.size, NULL);
        TALLY_ASSERT_STATUS(tally_event_file_open(place.file, 1, &none, &err),
                            TALLY_INVALID_ARGUMENT, &err);
        whole.data[i] ^= 0x10;
    }
    tally_buffer_fini(&whole);
    place_fini(&place);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_event_file__crc_is_that_of_rfc_3720),
    TALLY_TEST(test_cli_event_file__begins_with_its_version),
    TALLY_TEST(test_cli_event_file__steps_are_found_again),
    TALLY_TEST(test_cli_event_file__only_one_program_writes),
    TALLY_TEST(test_cli_event_file__no_damage_is_taken_for_data),
};
TALLY_SUITE(cli_event_file, TESTS);

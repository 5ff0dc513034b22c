#include "services/base/bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/whole_file.h"
#include "tests/harness.h"

/* A bundle of three members, one of them empty and one of a whole block, and SHA256SUMS. */
static void write_bundle(struct tally_buffer *ret_bytes)
{
    char path[] = "/tmp/tally-test-XXXXXX";
    uint8_t block[512];
    uint64_t n_bytes = 0;
    struct tally_bundle_writer *writer;
    struct tally_error err = TALLY_ERROR_INIT;
    const int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    memset(block, 'b', sizeof block);
    TALLY_ASSERT_STATUS(tally_bundle_create(path, 1, &writer, &err), TALLY_OK, &err);
    tally_bundle_begin(writer, "bundle.json");
    tally_bundle_write(writer, "{", 1);
    tally_bundle_write(writer, "}", 1);
    tally_bundle_add(writer, "none", NULL, 0);
    tally_bundle_add(writer, "block", block, sizeof block);
    TALLY_ASSERT_STATUS(tally_bundle_commit(writer, TALLY_OK, &n_bytes, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_file_read(path, ret_bytes, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(ret_bytes->size, n_bytes);
    unlink(path);
}

static enum tally_status list(const struct tally_buffer *bundle, struct tally_error *err)
{
    struct tally_bundle_member *members = NULL;
    size_t n = 0;
    const enum tally_status status =
        tally_bundle_list(bundle->data, bundle->size, &members, &n, err);
    free(members);
    return status;
}

static void test_base_bundle__lists_what_was_written(void)
{
    static const char SUMS[] =
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a  bundle.json\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  none\n";
    static const char *const NAMES[] = {"bundle.json", "none", "block", "SHA256SUMS"};
    static const size_t SIZES[] = {2, 0, 512, sizeof SUMS - 1 + 64 + 2 + 6};
    struct tally_buffer bundle = {0};
    struct tally_bundle_member *members = NULL, found;
    struct tally_error err = TALLY_ERROR_INIT;
    size_t n = 0;
    write_bundle(&bundle);
    TALLY_ASSERT_STATUS(tally_bundle_list(bundle.data, bundle.size, &members, &n, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL_FATAL(n, 4);
    for (size_t i = 0; i < n; i++) {
        TALLY_ASSERT_TEXT(members[i].name, NAMES[i]);
        CU_ASSERT_EQUAL(members[i].n, SIZES[i]);
    }
    CU_ASSERT_EQUAL(memcmp(members[0].bytes, "{}", 2), 0);
    CU_ASSERT_EQUAL(memcmp(members[3].bytes, SUMS, sizeof SUMS - 1), 0);
    CU_ASSERT_TRUE(tally_bundle_find(bundle.data, bundle.size, "block", &found));
    CU_ASSERT_PTR_EQUAL(found.bytes, members[2].bytes);
    CU_ASSERT_FALSE(tally_bundle_find(bundle.data, bundle.size, "bloc", &found));
    free(members);
    tally_buffer_fini(&bundle);
}

/* Every bit of every byte, and every length. */
static void test_base_bundle__refuses_every_damage(void)
{
    struct tally_buffer bundle = {0};
    struct tally_error err;
    write_bundle(&bundle);
    for (size_t i = 0; i < 8 * bundle.size; i++) {
        bundle.data[i / 8] ^= (uint8_t)(1U << i % 8);
        err = (struct tally_error)TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(list(&bundle, &err), TALLY_INVALID_ARGUMENT, &err);
        CU_ASSERT_NOT_EQUAL(err.field[0], '\0');
        bundle.data[i / 8] ^= (uint8_t)(1U << i % 8);
    }
    TALLY_ASSERT_STATUS(list(&bundle, NULL), TALLY_OK, NULL);
    const size_t n = bundle.size;
    for (bundle.size = 0; bundle.size < n; bundle.size++) {
        TALLY_ASSERT_STATUS(list(&bundle, NULL), TALLY_INVALID_ARGUMENT, NULL);
    }
    TALLY_ASSERT_STATUS(tally_buffer_append(&bundle, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(list(&bundle, NULL), TALLY_INVALID_ARGUMENT, NULL);
    tally_buffer_fini(&bundle);
}

/* Whoever damages a header on purpose computes its checksum anew. */
static void sum_header(uint8_t header[512])
{
    char text[8];
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++) {
        sum += header[i];
    }
    snprintf(text, sizeof text, "%06o", sum % (1U << 18));
    memcpy(header + 148, text, 7);
}

static void test_base_bundle__refuses_other_headers_with_right_checksums(void)
{
    enum { SECOND = 1024, MTIME = 136, CHECKSUM = 148, AFTER = 156 };
    struct tally_buffer bundle = {0};
    write_bundle(&bundle);
    uint8_t *const header = bundle.data + SECOND;
    sum_header(header);
    TALLY_ASSERT_STATUS(list(&bundle, NULL), TALLY_OK, NULL);
    for (size_t i = 0; i < 512; i++) {
        static const uint8_t OTHERS[] = {1, 'x', '7', ' ', 0x80, 0xff};
        for (size_t j = 0; j < sizeof OTHERS && (i < CHECKSUM || i >= AFTER); j++) {
            const uint8_t before = header[i];
            const bool is_time = i >= MTIME && i < CHECKSUM - 1 && OTHERS[j] == '7';
            header[i] = OTHERS[j];
            sum_header(header);
            if (header[i] != before) {
                TALLY_ASSERT_STATUS(list(&bundle, NULL),
                                    is_time ? TALLY_OK : TALLY_INVALID_ARGUMENT, NULL);
            }
            header[i] = before;
        }
    }
    tally_buffer_fini(&bundle);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_bundle__lists_what_was_written),
    TALLY_TEST(test_base_bundle__refuses_every_damage),
    TALLY_TEST(test_base_bundle__refuses_other_headers_with_right_checksums),
};
TALLY_SUITE(base_bundle, TESTS);

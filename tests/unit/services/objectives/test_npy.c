#include "services/objectives/data/npy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

/* Makes a file of this header, version 1.0, and n bytes of data. The file fills its heap block
 * exactly. */
static uint8_t *file_of(const char *header, const void *data, size_t n, size_t *ret_n)
{
    const size_t length = strlen(header);
    uint8_t *file = malloc(10 + length + n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + 10, header, length);
    if (n > 0) {
        memcpy(file + 10 + length, data, n);
    }
    *ret_n = 10 + length + n;
    return file;
}

#define NO_NUMBER                                                                                  \
    "is not a little-endian integer or float of 8 to 64 bits (<f8, <f4, <f2, |i1, <i2, <i4, <i8, " \
    "|u1, "                                                                                        \
    "<u2, <u4, <u8); convert it with astype()"

static void expect_refused(const uint8_t *file, size_t n, const char *message)
{
    struct tally_npy npy = {.dim = 42};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_npy_parse(file, n, &npy, &err), TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    CU_ASSERT_EQUAL(npy.dim, 42);
}

static void test_objectives_npy__reads_what_it_writes(void)
{
    for (int type = 0; type < TALLY_NPY_N_TYPES; type++) {
        for (size_t dim = 0; dim < 20; dim++) {
            uint8_t values[160];
            for (size_t i = 0; i < sizeof values; i++) {
                values[i] = (uint8_t)(i * 7 + 1);
            }
            struct tally_buffer out = {0};
            struct tally_npy npy;
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(tally_npy_append((enum tally_npy_type)type, values, dim, &out),
                                TALLY_OK, NULL);
            TALLY_ASSERT_STATUS(tally_npy_parse(out.data, out.size, &npy, &err), TALLY_OK, &err);
            CU_ASSERT_EQUAL((int)npy.type, type);
            CU_ASSERT_EQUAL(npy.dim, dim);
            CU_ASSERT_EQUAL((npy.data - out.data) % 64, 0);
            CU_ASSERT_EQUAL(memcmp(npy.data, values, dim * tally_npy_type_bytes(npy.type)), 0);
            tally_buffer_fini(&out);
        }
    }
}

static void test_objectives_npy__reads_other_spellings(void)
{
    static const char *const HEADERS[] = {
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }      \n",
        "{\"shape\":(2,),\"fortran_order\":True,\"descr\":\"<i4\"}",
        "  { 'fortran_order' : False , 'shape' : ( 2 , ) , 'descr' : '<i4' } \n\n",
    };
    const int32_t values[2] = {-5, 7};
    for (size_t i = 0; i < sizeof HEADERS / sizeof HEADERS[0]; i++) {
        size_t n;
        struct tally_npy npy;
        struct tally_error err = TALLY_ERROR_INIT;
        uint8_t *file = file_of(HEADERS[i], values, sizeof values, &n);
        TALLY_ASSERT_STATUS(tally_npy_parse(file, n, &npy, &err), TALLY_OK, &err);
        CU_ASSERT_EQUAL(npy.dim, 2);
        CU_ASSERT_EQUAL(memcmp(npy.data, values, sizeof values), 0);
        free(file);
    }
}

/* In versions 2.0 and 3.0 the header length has four bytes. */
static void test_objectives_npy__reads_later_versions(void)
{
    static const char HEADER[] = "{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }";
    for (uint8_t version = 2; version <= 4; version++) {
        uint8_t file[200] = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0, sizeof HEADER - 1};
        memcpy(file + 12, HEADER, sizeof HEADER - 1);
        memcpy(file + 12 + sizeof HEADER - 1, "abc", 3);
        const size_t n = 12 + sizeof HEADER - 1 + 3;
        struct tally_npy npy;
        if (version == 4) {
            expect_refused(file, n, ".npy version 4.0 is not one of 1.0, 2.0, 3.0");
        } else {
            CU_ASSERT_EQUAL(tally_npy_parse(file, n, &npy, NULL), TALLY_OK);
            CU_ASSERT_EQUAL(npy.dim, 3);
            file[11] = 0xff; /* a header of almost 4 GiB */
            expect_refused(file, n, "the .npy file ends in its header");
        }
    }
}

static void test_objectives_npy__half_precision_is_exact(void)
{
    static const struct {
        uint16_t bits;
        double value;
    } rows[] = {{0x3C00, 1},       {0xC000, -2},        {0x7BFF, 65504},     {0x0400, 0x1p-14},
                {0x0001, 0x1p-24}, {0x03FF, 0x3FFp-24}, {0x3555, 0x555p-12}, {0x0000, 0}};
    double value = 7;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CU_ASSERT_TRUE(
            tally_npy_value(TALLY_NPY_FLOAT16, (const uint8_t *)&rows[i].bits, 0, &value));
        CU_ASSERT_EQUAL(value, rows[i].value);
    }
    const uint16_t others[] = {0x8000, 0x7C00, 0xFC00, 0x7E00};
    for (size_t i = 0; i < 4; i++) {
        CU_ASSERT_TRUE(tally_npy_value(TALLY_NPY_FLOAT16, (const uint8_t *)others, i, &value));
        CU_ASSERT_TRUE(i == 0   ? value == 0 && signbit(value)
                       : i == 3 ? isnan(value)
                                : isinf(value) && (value < 0) == (i == 2));
    }
}

static void test_objectives_npy__refuses_by_name(void)
{
    static const struct {
        const char *header;
        size_t n_data;
        const char *message;
    } rows[] = {
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", 7,
         "7 bytes of data for 2 values of 4"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", 9,
         "9 bytes of data for 2 values of 4"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693953,), }", 8,
         "8 bytes of data for 2305843009213693953 values of 8"}, /* 2^61 + 1: times 8 is 8 */
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 8,
         "the .npy header is not one of NumPy's, at its byte 71"},
        {"{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }", 8, "dtype >i4 " NO_NUMBER},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8, "dtype |O " NO_NUMBER},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (), }", 4,
         "an array of 0 dimensions; a vector has 1"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }", 8,
         "an array of 2 dimensions; a vector has 1"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2), }", 8,
         "the .npy header is not one of NumPy's, at its byte 52"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (-2,), }", 8,
         "the .npy header is not one of NumPy's, at its byte 51"},
        {"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,), }", 8,
         "the .npy header is not one of NumPy's, at its byte 10"},
        {"{'descr': '<i4', 'shape': (2,), }", 8,
         "the .npy header is not one of NumPy's, at its byte 33"},
        {"{'descr': '<i4', 'descr': '<i4', 'shape': (2,), 'fortran_order': False}", 8,
         "the .npy header is not one of NumPy's, at its byte 25"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), 'more': 1}", 8,
         "the .npy header is not one of NumPy's, at its byte 63"},
        {"{'descr': '<i4', 'fortran_order': 0, 'shape': (2,), }", 8,
         "the .npy header is not one of NumPy's, at its byte 34"},
        {"{'descr': '<i4' 'fortran_order': False, 'shape': (2,), }", 8,
         "the .npy header is not one of NumPy's, at its byte 16"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), } x", 8,
         "the .npy header is not one of NumPy's, at its byte 58"},
        {"{'descr': '<i4", 0, "the .npy header is not one of NumPy's, at its byte 14"},
        {"", 0, "the .npy header is not one of NumPy's, at its byte 0"},
    };
    const uint8_t data[16] = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n;
        uint8_t *file = file_of(rows[i].header, data, rows[i].n_data, &n);
        expect_refused(file, n, rows[i].message);
        free(file);
    }
    expect_refused(data, 0, "not a .npy file");
    expect_refused((const uint8_t *)"\x93NUMPY", 6, "not a .npy file");
    expect_refused((const uint8_t *)"PK\x03\x04 an .npz is a zip", 20, "not a .npy file");
    expect_refused((const uint8_t *)"\x93NUMPY\x01\x00", 8, "the .npy file ends in its header");
    expect_refused((const uint8_t *)"\x93NUMPY\x01\x00\x01\x00", 10,
                   "the .npy file ends in its header");
}

/* Every truncation, and every byte of the file replaced by every value: refused, or still a vector
 * within the file. The address sanitizer checks the accesses. */
static void test_objectives_npy__damage_stays_within_the_file(void)
{
    static const char HEADER[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n";
    const int32_t values[2] = {1, 2};
    size_t n;
    uint8_t *file = file_of(HEADER, values, sizeof values, &n);
    struct tally_npy npy;
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *part = malloc(cut + (cut == 0)); /* exact size for the address sanitizer */
        if (part == NULL) {
            CU_FAIL("no memory");
            break;
        }
        memcpy(part, file, cut);
        CU_ASSERT_EQUAL(tally_npy_parse(part, cut, &npy, NULL), TALLY_MALFORMED);
        free(part);
    }
    bool inside = true;
    for (size_t at = 0; at < n; at++) {
        const uint8_t before = file[at];
        for (int value = 0; value < 256; value++) {
            file[at] = (uint8_t)value;
            if (tally_npy_parse(file, n, &npy, NULL) == TALLY_OK) {
                inside =
                    inside && npy.data >= file + 10 && npy.dim <= (size_t)(file + n - npy.data);
            }
        }
        file[at] = before;
    }
    CU_ASSERT_TRUE(inside);
    free(file);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_npy__reads_what_it_writes),
    TALLY_TEST(test_objectives_npy__reads_other_spellings),
    TALLY_TEST(test_objectives_npy__reads_later_versions),
    TALLY_TEST(test_objectives_npy__half_precision_is_exact),
    TALLY_TEST(test_objectives_npy__refuses_by_name),
    TALLY_TEST(test_objectives_npy__damage_stays_within_the_file),
};
TALLY_SUITE(objectives_npy, TESTS);

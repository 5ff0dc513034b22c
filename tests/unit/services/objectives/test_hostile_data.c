/* Data files that are damaged or of the wrong form are refused with file, line and reason. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/objectives/data/dataset.h"
#include "services/objectives/data/load_data.h"
#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"
#include "tests/unit/services/objectives/hostile_files.h"

#define FROM_ONE "; if they count from 1, subtract 1 from every label"

static void expect_refused(const struct tally_data_spec *spec, enum tally_labels labels,
                           const char *message)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(hostile_try_load(spec, labels, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    TALLY_ASSERT_TEXT(err.field, "objective.data");
}

enum { REAL = TALLY_LABELS_REAL, BINARY = TALLY_LABELS_BINARY, CLASSES = TALLY_LABELS_CLASSES };

struct text_row {
    int labels;
    const char *text, *message;
};

/* Expects that the texts, which should have two features, are refused. */
static void expect_texts_refused(int type, const struct text_row *rows, size_t n)
{
    idx_files_init(&HOSTILE_FILES);
    struct tally_data_spec spec = hostile_spec_of(type, 2);
    for (size_t i = 0; i < n; i++) {
        data_files_text(&HOSTILE_FILES, "file", rows[i].text);
        spec.table.classes = rows[i].labels == CLASSES ? 3 : 0;
        expect_refused(&spec, (enum tally_labels)rows[i].labels, rows[i].message);
    }
    idx_files_fini(&HOSTILE_FILES);
}

#define LONG_WORD                                                                                  \
    "1111111111111111111111111111111111111111111111111111111111111111"                             \
    "1111111111111111111111111111111111111111111111111111111111111111"

static void test_objectives_hostile_data__libsvm_is_refused_by_line(void)
{
    static const struct text_row rows[] = {
        {REAL, "", "file has no points"},
        {REAL, "# nothing\n\n", "file has no points"},
        {REAL, "1 1:2\nabc 1:2\n", "file:2: label \"abc\" is not a number"},
        {REAL, "1 1:2\n\n# comment\nnan 1:2\n", "file:4: label \"nan\" is not finite"},
        {REAL, "1e999 1:2\n", "file:1: label \"1e999\" is too large for a double"},
        {REAL, "1:2 2:3\n", "file:1: the line has no label before \"1:\""},
        {REAL, "1 1:x\n", "file:1: value \"x\" of index 1 is not a number"},
        {REAL, "1 1:inf\n", "file:1: value \"inf\" of index 1 is not finite"},
        {REAL, "1 1:\n", "file:1: value \"\" of index 1 is empty"},
        {REAL, "1 1: 2\n", "file:1: value \"\" of index 1 is empty"},
        {REAL, "1 1:2:3\n", "file:1: value \"2\" of index 1 is followed by another colon"},
        {REAL, "1 0:2\n", "file:1: index 0: indices count from 1"},
        {REAL, "1 3:2\n", "file:1: index 3 is above features 2"},
        {REAL, "1 1:1\n2 1000000000:2\n", "file:2: index 1000000000 is above features 2"},
        {REAL, "1 99999999999999999999999999:2\n",
         "file:1: index 999999999999999999999999 is above features 2"},
        {REAL, "1 18446744073709551617:2\n", /* 2^64 + 1 */
         "file:1: index 18446744073709551617 is above features 2"},
        {REAL, "1 2:1 1:1\n", "file:1: index 1 does not ascend after 2"},
        {REAL, "1 2:1 2:1\n", "file:1: index 2 does not ascend after 2"},
        {REAL, "1 -1:2\n", "file:1: index \"-1\" is not an integer"},
        {REAL, "1 1.5:2\n", "file:1: index \"1.5\" is not an integer"},
        {REAL, "1 :2\n", "file:1: index \"\" is not an integer"},
        {REAL, "1 qid:3 1:2\n", "file:1: qid: is for ranking, which no objective does; remove it"},
        {REAL, "1 2\n", "file:1: \"2\" is not INDEX:VALUE"},
        {REAL, "1,2,3\n", "file:1: label \"1,2,3\" is not a number"},
        {REAL, "1 1:1,2:2\n", "file:1: value \"1,2\" of index 1 is followed by another colon"},
        {REAL, LONG_WORD " 1:2\n", "file:1: label \"111111111111111111111111...\" is too long"},
        {REAL, "1 1:" LONG_WORD "\n", "file:1: value \"111111111111111111111111...\" is too long"},
        {REAL, "1 1:1\n\x01\x02 1:2\n", "file:2: label \"  \" is not a number"},
        {BINARY, "1 1:1\n-1\n2\n",
         "file:3: label 2 is neither -1 nor 1 (nor 0 and 1); write 1 and 2 as 0 and 1"},
        {BINARY, "0.5\n", "file:1: label 0.5 is neither -1 nor 1 (nor 0 and 1)"},
        {BINARY, "1\n0\n-1\n", "file:3: label -1 makes both 0 and -1 appear"},
        {CLASSES, "0\n1\n2\n3 1:1\n",
         "file:4: label 3 is not a class: classes are 0 to 2" FROM_ONE},
        {CLASSES, "-1\n", "file:1: label -1 is not a class: classes are 0 to 2"},
        {CLASSES, "0.5\n", "file:1: label 0.5 is not a class: classes are 0 to 2"},
        {CLASSES, "1e300\n", "file:1: label 1e+300 is not a class: classes are 0 to 2"},
    };
    expect_texts_refused(TALLY_DATA_LIBSVM, rows, sizeof rows / sizeof rows[0]);
}

static void test_objectives_hostile_data__csv_is_refused_by_line_and_column(void)
{
    static const struct text_row rows[] = {
        {REAL, "", "file:1: the file is empty: there is no header"},
        {REAL, "a,b,y", "file has no points"},
        {REAL, "a,b,y\n\n", "file has no points"},
        {REAL, "a,b,c\n1,2,3\n", "file:1: no column \"y\", only a, b, c"},
        {REAL, "a,y,y\n1,2,3\n", "file:1: two columns \"y\""},
        {REAL, "a,y\n1,2\n", "file:1: 1 columns beside the label \"y\", but features is 2"},
        {REAL, "a,b,c,y\n1,2\n", "file:1: 3 columns beside the label \"y\", but features is 2"},
        {REAL, "a;b;y\n1;2;3\n", "file:1: one column only; columns must be separated by commas"},
        {REAL, "a\tb\ty\n", "file:1: one column only; columns must be separated by commas"},
        {REAL, "1,2,3\n4,5,6\n", "file:1: no column \"y\", only 1, 2, 3"},
        {REAL, ",a,y\n0,2,3\n",
         "file:1: column 1 has no name (the index that pandas writes without index=False?): "
         "number 1, a, y"},
        {REAL, "a,\"\",y,\n1,2,3,\n",
         "file:1: column 2 has no name (the index that pandas writes without index=False?): "
         "a, number 2, y, number 4"},
        {REAL, "a,b,y\n1,2,3\n1,2\n", "file:3: 2 columns, not the header's 3"},
        {REAL, "a,b,y\n1,2,3,4\n", "file:2: more than the header's 3 columns"},
        {REAL, "a,b,y\n1,2,3,\n", "file:2: more than the header's 3 columns"},
        {REAL, "a,b,y\n1,two,3\n", "file:2: column b: \"two\" is not a number"},
        {REAL, "a,b,y\n1,,3\n",
         "file:2: column b: \"\" is empty"
         "; \"missing\": \"mean\" or \"drop\" would accept a missing value"},
        {REAL, "a,b,y\n,2,3\n",
         "file:2: column a: \"\" is empty"
         "; \"missing\": \"mean\" or \"drop\" would accept a missing value"},
        {REAL, "a,b,y\n1,NA,3\n",
         "file:2: column b: \"NA\" is not finite"
         "; \"missing\": \"mean\" or \"drop\" would accept a missing value"},
        {REAL, "a,b,y\n1,2,cat\n", "file:2: column y: \"cat\" is not a number"},
        {REAL, "a,b,y\n1,\"2\n\",3\n", "file:3: column b: \"2 \" is not a number"},
        {REAL, "a,b,y\n1,\"2,3\n", "file:3: the file ends within quotes"},
        {REAL, "a,b,y\n1,\"2\"x,3\n", "file:2: text after a closing quote"},
        {REAL, "a,b,y\n1,2\"2,3\n", "file:2: a quote within a field that does not begin with one"},
        {REAL, "a,b,y\r1,2,3\r", "file:1: a carriage return without a newline"},
        {REAL, "a,b,y\n1,2,3\n# comment\n", "file:3: 1 columns, not the header's 3"},
        {REAL, "a,b,y\n1," LONG_WORD ",3\n",
         "file:2: a field of more than 127 bytes, \"111111111111111111111111...\""},
        {REAL, "a\xff,b,y\n\xfe,2,3\n", "file:2: column a?: \"?\" is not a number"},
        {BINARY, "y,a,b\n1,2,3\n5,6,7\n", "file:3: label 5 is neither -1 nor 1 (nor 0 and 1)"},
        {CLASSES, "y,a,b\n1,2,3\n\n\n3,6,7\n",
         "file:5: label 3 is not a class: classes are 0 to 2" FROM_ONE},
    };
    expect_texts_refused(TALLY_DATA_CSV, rows, sizeof rows / sizeof rows[0]);
}

/* A NUL byte does not end the text early. */
static void test_objectives_hostile_data__nul_bytes_are_refused(void)
{
    static const char *const messages[] = {"file:2: label \"1\" has a NUL byte",
                                           "file:2: a NUL byte: is it a text file?"};
    static const char libsvm[] = "1 1:1\n1\0 2\n", csv[] = "a,b,y\n1,2\0,3\n";
    idx_files_init(&HOSTILE_FILES);
    for (int i = 0; i < 2; i++) {
        const struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_LIBSVM + i, 2);
        idx_files_write(&HOSTILE_FILES, "file", (const uint8_t *)(i == 0 ? libsvm : csv),
                        i == 0 ? sizeof libsvm - 1 : sizeof csv - 1);
        expect_refused(&spec, TALLY_LABELS_REAL, messages[i]);
    }
    idx_files_fini(&HOSTILE_FILES);
}

static void test_objectives_hostile_data__npy_is_refused_by_row(void)
{
    static const double with_nan[6] = {1, 2, 3, 4, NAN, 6}, with_inf[6] = {1, 2, -INFINITY};
    static const int64_t inexact[6] = {1, 2, 3, (INT64_C(1) << 53) + 1};
    static const uint64_t inexact_u8[6] = {1, UINT64_MAX};
    static const struct {
        const char *points;
        const void *values;
        size_t n;
        const char *labels;
        const char *message;
    } rows[] = {
        {HOSTILE_NPY("(3, 2)"), HOSTILE_NUMBERS, 40, HOSTILE_NPY("(3,)"),
         "X: row 2: the file ends there, 1 values too early"},
        {HOSTILE_NPY("(3, 2)"), HOSTILE_NUMBERS, 47, HOSTILE_NPY("(3,)"),
         "X: row 2: the file ends there, 1 values too early"},
        {HOSTILE_NPY("(3, 2)"), HOSTILE_NUMBERS, 0, HOSTILE_NPY("(3,)"),
         "X: row 0: the file ends there, 6 values too early"},
        {HOSTILE_NPY("(2, 2)"), HOSTILE_NUMBERS, 40, HOSTILE_NPY("(2,)"),
         "X: has data after its 4 values"},
        {HOSTILE_NPY("(3, 2)"), with_nan, 48, HOSTILE_NPY("(3,)"),
         "X: row 2: the value of column 0 is not finite"},
        {HOSTILE_NPY("(3, 2)"), with_inf, 48, HOSTILE_NPY("(3,)"),
         "X: row 1: the value of column 0 is not finite"},
        {"{'descr': '<f8', 'fortran_order': True, 'shape': (3, 2)}", with_nan, 48,
         HOSTILE_NPY("(3,)"), "X: row 1: the value of column 1 is not finite"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (3, 2)}", inexact, 48,
         HOSTILE_NPY("(3,)"), "X: row 1: the integer of column 1 is above 2^53"},
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (3, 2)}", inexact_u8, 48,
         HOSTILE_NPY("(3,)"), "X: row 0: the integer of column 1 is above 2^53"},
        {HOSTILE_NPY("(2, 3)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(2,)"),
         "X: has shape (2, 3), not (points, 2), as features says"},
        {HOSTILE_NPY("(1, 1000000000)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(2,)"),
         "X: has shape (1, 1000000000), not (points, 2), as features says"},
        {HOSTILE_NPY("(6,)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(6,)"),
         "X: has shape (6,), not (points, 2), as features says"},
        {HOSTILE_NPY("(3, 2, 1)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(3,)"),
         "X: has 3 dimensions, not (points, 2), as features says"},
        {HOSTILE_NPY("()"), HOSTILE_NUMBERS, 8, HOSTILE_NPY("(3,)"),
         "X: has 0 dimensions, not (points, 2), as features says"},
        {HOSTILE_NPY("(1000000000, 2)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(3,)"),
         "X: 1000000000 points of 2 numbers are more than 33554432 points or 134217728 numbers, "
         "the "
         "most that a job's data may hold"},
        {HOSTILE_NPY("(9223372036854775808, 2)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(3,)"),
         "X: 9223372036854775808 points of 2 numbers are more than 33554432 points or 134217728 "
         "numbers, the most that a job's data may hold"},
        {HOSTILE_NPY("(33554432, 2)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(3,)"),
         "X: row 3: the file ends there, 67108858 values too early"},
        {HOSTILE_NPY("(0, 2)"), HOSTILE_NUMBERS, 0, HOSTILE_NPY("(0,)"),
         "y: has data after its 0 values"},
        {"{'descr': '>f8', 'fortran_order': False, 'shape': (3, 2)}", HOSTILE_NUMBERS, 48,
         HOSTILE_NPY("(3,)"),
         "X: dtype >f8 is not a little-endian integer or float of 8 to 64 bits (<f8, <f4, <f2, "
         "|i1, "
         "<i2, "
         "<i4, <i8, |u1, <u2, <u4, <u8); convert it with astype()"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3, 2)}", HOSTILE_NUMBERS, 48,
         HOSTILE_NPY("(3,)"),
         "X: dtype |O is not a little-endian integer or float of 8 to 64 bits (<f8, <f4, <f2, |i1, "
         "<i2, "
         "<i4, <i8, |u1, <u2, <u4, <u8); convert it with astype()"},
        {"", HOSTILE_NUMBERS, 0, HOSTILE_NPY("(3,)"),
         "X: the .npy header is not one of NumPy's, at its byte 0"},
        {"garbage that is no dictionary", HOSTILE_NUMBERS, 48, HOSTILE_NPY("(3,)"),
         "X: the .npy header is not one of NumPy's, at its byte 0"},
        {HOSTILE_NPY("(3, 2)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(2,)"),
         "y: has shape (2,), not (3,), a label for each point"},
        {HOSTILE_NPY("(3, 2)"), HOSTILE_NUMBERS, 48, HOSTILE_NPY("(3, 2)"),
         "y: has shape (3, 2), not (3,), a label for each point"},
        {HOSTILE_NPY("(1, 2)"), HOSTILE_NUMBERS, 16, HOSTILE_NPY("(1,)"),
         "y: has data after its 1 values"},
    };
    idx_files_init(&HOSTILE_FILES);
    struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_NPY, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        data_files_npy(&HOSTILE_FILES, "X", rows[i].points, rows[i].values, rows[i].n);
        data_files_npy(&HOSTILE_FILES, "y", rows[i].labels, HOSTILE_NUMBERS, 24);
        expect_refused(&spec, TALLY_LABELS_REAL, rows[i].message);
    }
    data_files_npy(&HOSTILE_FILES, "X", HOSTILE_NPY("(3, 2)"), HOSTILE_NUMBERS, 48);
    data_files_npy(&HOSTILE_FILES, "y", HOSTILE_NPY("(3,)"), HOSTILE_NUMBERS, 24);
    CU_ASSERT_EQUAL(hostile_try_load(&spec, TALLY_LABELS_REAL, NULL), TALLY_OK);
    spec.table.classes = 3;
    expect_refused(&spec, TALLY_LABELS_REAL,
                   "y: row 2: label 3 is not a class: classes are 0 to 2" FROM_ONE);
    expect_refused(&spec, TALLY_LABELS_CLASSES,
                   "y: row 2: label 3 is not a class: classes are 0 to 2" FROM_ONE);
    static const double signs[] = {1, -1, 1};
    data_files_npy(&HOSTILE_FILES, "y", HOSTILE_NPY("(3,)"), signs, 24);
    expect_refused(&spec, TALLY_LABELS_CLASSES,
                   "y: row 1: label -1 is not a class: classes are 0 to 2");
    spec.table.classes = 2;
    expect_refused(&spec, TALLY_LABELS_CLASSES,
                   "y: row 1: label -1 is not a class: classes are 0 to 1; write -1 and 1 as 0 "
                   "and 1");
    data_files_npy(&HOSTILE_FILES, "y", HOSTILE_NPY("(3,)"), HOSTILE_NUMBERS, 24);
    spec.table.classes = 0;
    data_files_text(&HOSTILE_FILES, "X", "no array");
    expect_refused(&spec, TALLY_LABELS_REAL, "X: not a .npy file");
    static const uint8_t huge[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0xff, 0xff, 0xff, 0xff};
    idx_files_write(&HOSTILE_FILES, "X", huge, sizeof huge);
    expect_refused(&spec, TALLY_LABELS_REAL, "X: a header of 4294967307 bytes, more than 10000");
    idx_files_fini(&HOSTILE_FILES);
}

/* Writes a .npz file of three points and returns all its bytes. */
static size_t write_npz(const char *name, int is_compressed, uint8_t ret_bytes[IDX_MAX_BYTES])
{
    uint8_t points[200], labels[200];
    const struct zip_member members[] = {
        {.name = "X.npy",
         .bytes = points,
         .n = data_files_npy_bytes(HOSTILE_NPY("(3, 2)"), HOSTILE_NUMBERS, 48, points)},
        {.name = "y.npy",
         .bytes = labels,
         .n = data_files_npy_bytes(HOSTILE_NPY("(3,)"), HOSTILE_NUMBERS, 24, labels)}};
    char path[400];
    data_files_zip(&HOSTILE_FILES, name, members, 2, is_compressed);
    snprintf(path, sizeof path, "%s/%s", HOSTILE_FILES.folder, name);
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    const size_t n = fread(ret_bytes, 1, IDX_MAX_BYTES, file);
    fclose(file);
    return n;
}

/* Cut anywhere, the file is refused. With any byte changed it is refused too, unless no reader uses
 * that byte. */
static void test_objectives_hostile_data__damaged_npz_and_gzip_are_refused(void)
{
    static uint8_t bytes[IDX_MAX_BYTES];
    idx_files_init(&HOSTILE_FILES);
    const struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_NPZ, 2);
    for (int is_compressed = 0; is_compressed < 2; is_compressed++) {
        const size_t n = write_npz("file", is_compressed, bytes);
        CU_ASSERT_EQUAL(hostile_try_load(&spec, TALLY_LABELS_REAL, NULL), TALLY_OK);
        for (size_t cut = 0; cut < n; cut++) {
            idx_files_write(&HOSTILE_FILES, "file", bytes, cut);
            CU_ASSERT_EQUAL(hostile_try_load(&spec, TALLY_LABELS_REAL, NULL),
                            TALLY_INVALID_ARGUMENT);
        }
        size_t n_refused = 0;
        for (size_t at = 0; at < n; at++) {
            bytes[at] ^= 0x41;
            idx_files_write(&HOSTILE_FILES, "file", bytes, n);
            struct tally_error err = TALLY_ERROR_INIT;
            const enum tally_status status = hostile_try_load(&spec, TALLY_LABELS_REAL, &err);
            CU_ASSERT_TRUE(status == TALLY_OK || (status == TALLY_INVALID_ARGUMENT &&
                                                  strncmp(err.message, "file", 4) == 0));
            n_refused += status != TALLY_OK;
            bytes[at] ^= 0x41;
        }
        CU_ASSERT_TRUE(n_refused > n / 2);
    }
    struct tally_data_spec other = spec;
    strcpy(other.table.points, "Z");
    write_npz("file", 0, bytes);
    expect_refused(&other, TALLY_LABELS_REAL, "file has no array \"Z\", only X, y");
    data_files_text(&HOSTILE_FILES, "file", "a,b,y\n1,2,3\n");
    expect_refused(&spec, TALLY_LABELS_REAL, "file is not a .npz file: Not a zip archive");
    /* gzip: the checksum covers everything. */
    const struct tally_data_spec text = hostile_spec_of(TALLY_DATA_LIBSVM, 2);
    const size_t n = idx_gzip((const uint8_t *)"1 1:1\n2 2:2\n", 12, bytes);
    for (size_t cut = 11; cut < n; cut++) {
        idx_files_write(&HOSTILE_FILES, "file", bytes, cut);
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(hostile_try_load(&text, TALLY_LABELS_REAL, &err), TALLY_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "the gzip file ends early"));
    }
    for (size_t at = 15; at < n; at++) {
        bytes[at] ^= 1;
        idx_files_write(&HOSTILE_FILES, "file", bytes, n);
        CU_ASSERT_EQUAL(hostile_try_load(&text, TALLY_LABELS_REAL, NULL), TALLY_INVALID_ARGUMENT);
        bytes[at] ^= 1;
    }
    idx_files_fini(&HOSTILE_FILES);
}

/* An error names what is missing or not a regular file. A pipe without a writer does not block. */
static void test_objectives_hostile_data__what_is_no_file_is_refused(void)
{
    static const int types[] = {TALLY_DATA_LIBSVM, TALLY_DATA_CSV, TALLY_DATA_NPZ};
    char path[400], message[300];
    idx_files_init(&HOSTILE_FILES);
    for (int kind = 0; kind < 4; kind++) {
        snprintf(path, sizeof path, "%s/file", HOSTILE_FILES.folder);
        if (kind == 0) {
            CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
        } else if (kind == 1) {
            CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
        } else if (kind == 2) {
            CU_ASSERT_EQUAL(symlink("/etc/passwd", path), 0);
        }
        snprintf(message, sizeof message,
                 kind == 2   ? "file leads out of the data folder %s; copy the file into it"
                 : kind == 3 ? "file (or .gz) is not in the data folder %s; put it there, or name "
                               "another folder with --data-dir"
                             : "file in the data folder %s is not a regular file",
                 HOSTILE_FILES.folder);
        for (size_t i = 0; i < 3; i++) {
            const struct tally_data_spec spec = hostile_spec_of(types[i], 2);
            expect_refused(&spec, TALLY_LABELS_REAL, message);
        }
        if (kind < 3) {
            CU_ASSERT_EQUAL(remove(path), 0);
        }
    }
    struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_CSV, 2);
    strcpy(spec.table.file, "../x");
    expect_refused(&spec, TALLY_LABELS_REAL,
                   "\"../x\" is not a name below the data folder: it must be relative and without "
                   "\"..\"");
    idx_files_fini(&HOSTILE_FILES);
}

/* Overlong messages are cut, and remain valid UTF-8 on one line. */
static void test_objectives_hostile_data__messages_stay_one_line(void)
{
    idx_files_init(&HOSTILE_FILES);
    struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_CSV, 2);
    char header[4000] = "";
    for (int i = 0; i < 100; i++) {
        strcat(header, "\"c\xc3\xa4\x1b[31m\n\",");
    }
    strcat(header, "z\n");
    data_files_text(&HOSTILE_FILES, "file", header);
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(hostile_try_load(&spec, TALLY_LABELS_REAL, &err), TALLY_INVALID_ARGUMENT);
    for (const char *at = err.message; *at != '\0'; at++) {
        CU_ASSERT_TRUE((unsigned char)*at >= ' ');
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "..."));
    CU_ASSERT_TRUE(strlen(err.message) < 250);
    idx_files_fini(&HOSTILE_FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_hostile_data__libsvm_is_refused_by_line),
    TALLY_TEST(test_objectives_hostile_data__csv_is_refused_by_line_and_column),
    TALLY_TEST(test_objectives_hostile_data__nul_bytes_are_refused),
    TALLY_TEST(test_objectives_hostile_data__npy_is_refused_by_row),
    TALLY_TEST(test_objectives_hostile_data__damaged_npz_and_gzip_are_refused),
    TALLY_TEST(test_objectives_hostile_data__what_is_no_file_is_refused),
    TALLY_TEST(test_objectives_hostile_data__messages_stay_one_line),
};
TALLY_SUITE(objectives_hostile_data, TESTS);

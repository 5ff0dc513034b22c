/* Files that are not what they should be: refused with file, line and reason, in bounded memory. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/objectives/data/dataset_builder.h"
#include "services/objectives/data/loaders/load.h"
#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"

static struct idx_files FILES;
static const struct tally_data_source SOURCE = {.dir = FILES.folder};

static struct tally_data_spec spec_of(int type, int64_t features)
{
    return (struct tally_data_spec){
        .type = type,
        .sharding = TALLY_SHARDING_CONTIGUOUS,
        .table = {
            .file = "file", .points = "X", .labels = "y", .label = "y", .features = features}};
}

static enum tally_status try_load(const struct tally_data_spec *spec, enum tally_labels labels,
                                  struct tally_error *err)
{
    struct tally_dataset *dataset = NULL;
    if (spec->type == TALLY_DATA_MATRIX) {
        double *values;
        const size_t dim = (size_t)spec->matrix.dim;
        return tally_matrix_load(&SOURCE, spec->matrix.matrix, dim, dim, &values, err);
    }
    const enum tally_status status =
        tally_dataset_load(spec, labels, 1, tally_rng_key(1, 0), &SOURCE, &dataset, err);
    CU_ASSERT_EQUAL(dataset != NULL, status == TALLY_OK);
    tally_dataset_free(dataset);
    return status;
}

static void expect_refused(const struct tally_data_spec *spec, enum tally_labels labels,
                           const char *message)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(try_load(spec, labels, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    TALLY_ASSERT_TEXT(err.field, "objective.data");
}

enum { REAL = TALLY_LABELS_REAL, BINARY = TALLY_LABELS_BINARY, CLASSES = TALLY_LABELS_CLASSES };

struct text_row {
    int labels;
    const char *text, *message;
};

/* Of two features. */
static void expect_texts_refused(int type, const struct text_row *rows, size_t n)
{
    idx_files_init(&FILES);
    struct tally_data_spec spec = spec_of(type, 2);
    for (size_t i = 0; i < n; i++) {
        data_files_text(&FILES, "file", rows[i].text);
        spec.table.classes = rows[i].labels == CLASSES ? 3 : 0;
        expect_refused(&spec, (enum tally_labels)rows[i].labels, rows[i].message);
    }
    idx_files_fini(&FILES);
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
        {BINARY, "1 1:1\n-1\n2\n", "file:3: label 2 is neither -1 nor 1 (nor 0 and 1)"},
        {BINARY, "0.5\n", "file:1: label 0.5 is neither -1 nor 1 (nor 0 and 1)"},
        {BINARY, "1\n0\n-1\n", "file:3: label -1 makes both 0 and -1 appear"},
        {CLASSES, "0\n1\n2\n3 1:1\n", "file:4: label 3 is not a class: they are 0 to 2"},
        {CLASSES, "-1\n", "file:1: label -1 is not a class: they are 0 to 2"},
        {CLASSES, "0.5\n", "file:1: label 0.5 is not a class: they are 0 to 2"},
        {CLASSES, "1e300\n", "file:1: label 1e+300 is not a class: they are 0 to 2"},
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
        {REAL, "a,b,y\n1,2,3\n1,2\n", "file:3: 2 columns, not the header's 3"},
        {REAL, "a,b,y\n1,2,3,4\n", "file:2: more than the header's 3 columns"},
        {REAL, "a,b,y\n1,2,3,\n", "file:2: more than the header's 3 columns"},
        {REAL, "a,b,y\n1,two,3\n", "file:2: column b: \"two\" is not a number"},
        {REAL, "a,,y\n1,two,3\n", "file:2: column number 2: \"two\" is not a number"},
        {REAL, "a,b,y\n1,,3\n", "file:2: column b: \"\" is empty"},
        {REAL, "a,b,y\n,2,3\n", "file:2: column a: \"\" is empty"},
        {REAL, "a,b,y\n1,NA,3\n", "file:2: column b: \"NA\" is not finite"},
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
        {CLASSES, "y,a,b\n1,2,3\n\n\n3,6,7\n", "file:5: label 3 is not a class: they are 0 to 2"},
    };
    expect_texts_refused(TALLY_DATA_CSV, rows, sizeof rows / sizeof rows[0]);
}

/* A NUL does not end a text early. */
static void test_objectives_hostile_data__nul_bytes_are_refused(void)
{
    static const char *const messages[] = {"file:2: label \"1\" has a NUL byte",
                                           "file:2: a NUL byte: is it a text file?"};
    static const char libsvm[] = "1 1:1\n1\0 2\n", csv[] = "a,b,y\n1,2\0,3\n";
    idx_files_init(&FILES);
    for (int i = 0; i < 2; i++) {
        const struct tally_data_spec spec = spec_of(TALLY_DATA_LIBSVM + i, 2);
        idx_files_write(&FILES, "file", (const uint8_t *)(i == 0 ? libsvm : csv),
                        i == 0 ? sizeof libsvm - 1 : sizeof csv - 1);
        expect_refused(&spec, TALLY_LABELS_REAL, messages[i]);
    }
    idx_files_fini(&FILES);
}

#define NPY(shape) "{'descr': '<f8', 'fortran_order': False, 'shape': " shape "}"
static const double NUMBERS[6] = {1, 2, 3, 4, 5, 6};

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
        {NPY("(3, 2)"), NUMBERS, 40, NPY("(3,)"),
         "X: row 2: the file ends there, 1 values too early"},
        {NPY("(3, 2)"), NUMBERS, 47, NPY("(3,)"),
         "X: row 2: the file ends there, 1 values too early"},
        {NPY("(3, 2)"), NUMBERS, 0, NPY("(3,)"),
         "X: row 0: the file ends there, 6 values too early"},
        {NPY("(2, 2)"), NUMBERS, 40, NPY("(2,)"), "X: goes on after its 4 values"},
        {NPY("(3, 2)"), with_nan, 48, NPY("(3,)"), "X: row 2: the value of column 0 is not finite"},
        {NPY("(3, 2)"), with_inf, 48, NPY("(3,)"), "X: row 1: the value of column 0 is not finite"},
        {"{'descr': '<f8', 'fortran_order': True, 'shape': (3, 2)}", with_nan, 48, NPY("(3,)"),
         "X: row 1: the value of column 1 is not finite"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (3, 2)}", inexact, 48, NPY("(3,)"),
         "X: row 1: the integer of column 1 is above 2^53"},
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (3, 2)}", inexact_u8, 48, NPY("(3,)"),
         "X: row 0: the integer of column 1 is above 2^53"},
        {NPY("(2, 3)"), NUMBERS, 48, NPY("(2,)"),
         "X: has shape (2, 3), not (points, 2), as features says"},
        {NPY("(1, 1000000000)"), NUMBERS, 48, NPY("(2,)"),
         "X: has shape (1, 1000000000), not (points, 2), as features says"},
        {NPY("(6,)"), NUMBERS, 48, NPY("(6,)"),
         "X: has shape (6,), not (points, 2), as features says"},
        {NPY("(3, 2, 1)"), NUMBERS, 48, NPY("(3,)"),
         "X: has 3 dimensions, not (points, 2), as features says"},
        {NPY("()"), NUMBERS, 8, NPY("(3,)"),
         "X: has 0 dimensions, not (points, 2), as features says"},
        {NPY("(1000000000, 2)"), NUMBERS, 48, NPY("(3,)"),
         "X: 1000000000 points of 2 numbers are more than 33554432 points or 134217728 numbers, "
         "the "
         "most that a job's data may hold"},
        {NPY("(9223372036854775808, 2)"), NUMBERS, 48, NPY("(3,)"),
         "X: 9223372036854775808 points of 2 numbers are more than 33554432 points or 134217728 "
         "numbers, the most that a job's data may hold"},
        {NPY("(33554432, 2)"), NUMBERS, 48, NPY("(3,)"),
         "X: row 3: the file ends there, 67108858 values too early"},
        {NPY("(0, 2)"), NUMBERS, 0, NPY("(0,)"), "y: goes on after its 0 values"},
        {"{'descr': '>f8', 'fortran_order': False, 'shape': (3, 2)}", NUMBERS, 48, NPY("(3,)"),
         "X: dtype >f8 is not a little-endian integer or float of 8 to 64 bits (<f8, <f4, |i1, "
         "<i2, "
         "<i4, <i8, |u1, <u2, <u4, <u8); convert it with astype()"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3, 2)}", NUMBERS, 48, NPY("(3,)"),
         "X: dtype |O is not a little-endian integer or float of 8 to 64 bits (<f8, <f4, |i1, <i2, "
         "<i4, <i8, |u1, <u2, <u4, <u8); convert it with astype()"},
        {"", NUMBERS, 0, NPY("(3,)"), "X: the .npy header is not one of NumPy's, at its byte 0"},
        {"garbage that is no dictionary", NUMBERS, 48, NPY("(3,)"),
         "X: the .npy header is not one of NumPy's, at its byte 0"},
        {NPY("(3, 2)"), NUMBERS, 48, NPY("(2,)"),
         "y: has shape (2,), not (3,), a label for each point"},
        {NPY("(3, 2)"), NUMBERS, 48, NPY("(3, 2)"),
         "y: has shape (3, 2), not (3,), a label for each point"},
        {NPY("(1, 2)"), NUMBERS, 16, NPY("(1,)"), "y: goes on after its 1 values"},
    };
    idx_files_init(&FILES);
    struct tally_data_spec spec = spec_of(TALLY_DATA_NPY, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        data_files_npy(&FILES, "X", rows[i].points, rows[i].values, rows[i].n);
        data_files_npy(&FILES, "y", rows[i].labels, NUMBERS, 24);
        expect_refused(&spec, TALLY_LABELS_REAL, rows[i].message);
    }
    data_files_npy(&FILES, "X", NPY("(3, 2)"), NUMBERS, 48);
    data_files_npy(&FILES, "y", NPY("(3,)"), NUMBERS, 24);
    CU_ASSERT_EQUAL(try_load(&spec, TALLY_LABELS_REAL, NULL), TALLY_OK);
    spec.table.classes = 3;
    expect_refused(&spec, TALLY_LABELS_REAL, "y: row 2: label 3 is not a class: they are 0 to 2");
    expect_refused(&spec, TALLY_LABELS_CLASSES,
                   "y: row 2: label 3 is not a class: they are 0 to 2");
    spec.table.classes = 0;
    data_files_text(&FILES, "X", "no array");
    expect_refused(&spec, TALLY_LABELS_REAL, "X: not a .npy file");
    static const uint8_t huge[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0xff, 0xff, 0xff, 0xff};
    idx_files_write(&FILES, "X", huge, sizeof huge);
    expect_refused(&spec, TALLY_LABELS_REAL, "X: a header of 4294967307 bytes, more than 10000");
    idx_files_fini(&FILES);
}

/* A .npz file of three points, all of it in memory. */
static size_t write_npz(const char *name, int is_compressed, uint8_t ret_bytes[IDX_MAX_BYTES])
{
    uint8_t points[200], labels[200];
    const struct zip_member members[] = {
        {.name = "X.npy",
         .bytes = points,
         .n = data_files_npy_bytes(NPY("(3, 2)"), NUMBERS, 48, points)},
        {.name = "y.npy",
         .bytes = labels,
         .n = data_files_npy_bytes(NPY("(3,)"), NUMBERS, 24, labels)}};
    char path[400];
    data_files_zip(&FILES, name, members, 2, is_compressed);
    snprintf(path, sizeof path, "%s/%s", FILES.folder, name);
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    const size_t n = fread(ret_bytes, 1, IDX_MAX_BYTES, file);
    fclose(file);
    return n;
}

/* Cut anywhere, or with any byte changed: refused, or the same as before where nobody looks. */
static void test_objectives_hostile_data__damaged_npz_and_gzip_are_refused(void)
{
    static uint8_t bytes[IDX_MAX_BYTES];
    idx_files_init(&FILES);
    const struct tally_data_spec spec = spec_of(TALLY_DATA_NPZ, 2);
    for (int is_compressed = 0; is_compressed < 2; is_compressed++) {
        const size_t n = write_npz("file", is_compressed, bytes);
        CU_ASSERT_EQUAL(try_load(&spec, TALLY_LABELS_REAL, NULL), TALLY_OK);
        for (size_t cut = 0; cut < n; cut++) {
            idx_files_write(&FILES, "file", bytes, cut);
            CU_ASSERT_EQUAL(try_load(&spec, TALLY_LABELS_REAL, NULL), TALLY_INVALID_ARGUMENT);
        }
        size_t n_refused = 0;
        for (size_t at = 0; at < n; at++) {
            bytes[at] ^= 0x41;
            idx_files_write(&FILES, "file", bytes, n);
            struct tally_error err = TALLY_ERROR_INIT;
            const enum tally_status status = try_load(&spec, TALLY_LABELS_REAL, &err);
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
    data_files_text(&FILES, "file", "a,b,y\n1,2,3\n");
    expect_refused(&spec, TALLY_LABELS_REAL, "file is not a .npz file: Not a zip archive");
    /* gzip: its checksum is of everything. */
    const struct tally_data_spec text = spec_of(TALLY_DATA_LIBSVM, 2);
    const size_t n = idx_gzip((const uint8_t *)"1 1:1\n2 2:2\n", 12, bytes);
    for (size_t cut = 11; cut < n; cut++) {
        idx_files_write(&FILES, "file", bytes, cut);
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(try_load(&text, TALLY_LABELS_REAL, &err), TALLY_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "the gzip file ends early"));
    }
    for (size_t at = 15; at < n; at++) {
        bytes[at] ^= 1;
        idx_files_write(&FILES, "file", bytes, n);
        CU_ASSERT_EQUAL(try_load(&text, TALLY_LABELS_REAL, NULL), TALLY_INVALID_ARGUMENT);
        bytes[at] ^= 1;
    }
    idx_files_fini(&FILES);
}

/* What is no file, or is not here, is named; a pipe without a writer does not hang. */
static void test_objectives_hostile_data__what_is_no_file_is_refused(void)
{
    static const int types[] = {TALLY_DATA_LIBSVM, TALLY_DATA_CSV, TALLY_DATA_NPZ};
    char path[400], message[300];
    idx_files_init(&FILES);
    for (int kind = 0; kind < 4; kind++) {
        snprintf(path, sizeof path, "%s/file", FILES.folder);
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
                 FILES.folder);
        for (size_t i = 0; i < 3; i++) {
            const struct tally_data_spec spec = spec_of(types[i], 2);
            expect_refused(&spec, TALLY_LABELS_REAL, message);
        }
        if (kind < 3) {
            CU_ASSERT_EQUAL(remove(path), 0);
        }
    }
    struct tally_data_spec spec = spec_of(TALLY_DATA_CSV, 2);
    strcpy(spec.table.file, "../x");
    expect_refused(&spec, TALLY_LABELS_REAL,
                   "\"../x\" is not a name below the data folder: it must be relative and without "
                   "\"..\"");
    idx_files_fini(&FILES);
}

/* Memory. A child loads, and its peak is compared with that of one that does nothing. */

static long peak_kib(const struct tally_data_spec *spec, const char *message)
{
    const pid_t child = fork();
    if (child == 0) {
        struct tally_error err = TALLY_ERROR_INIT;
        if (spec != NULL && try_load(spec, TALLY_LABELS_REAL, &err) == TALLY_OK) {
            _exit(1);
        }
        if (spec != NULL && strstr(err.message, message) == NULL) {
            fprintf(stderr, "\n%s\n", err.message);
            _exit(2);
        }
        _exit(0);
    }
    int status = -1;
    struct rusage used;
    CU_ASSERT_EQUAL_FATAL(wait4(child, &status, 0, &used), child);
    CU_ASSERT_EQUAL(status, 0);
    return used.ru_maxrss;
}

/* 32 MiB: zlib, libzip and the windows take one or two. */
static void expect_small(const struct tally_data_spec *spec, const char *message)
{
    const long before = peak_kib(NULL, "");
    const long peak = peak_kib(spec, message);
    if (peak > before + 32768) {
        fprintf(stderr, "\n%s: %ld KiB, %ld before\n", message, peak, before);
    }
    CU_ASSERT_TRUE(peak <= before + 32768);
}

static uint8_t MEGABYTE[1 << 20];

/* Some hundred KiB that unpack to 64 MiB and more. */
static void test_objectives_hostile_data__bombs_take_no_memory(void)
{
    idx_files_init(&FILES);
    struct tally_data_spec spec = spec_of(TALLY_DATA_LIBSVM, 10000000);
    static const struct {
        int type;
        char fill;
        const char *message;
    } texts[] = {
        {TALLY_DATA_LIBSVM, ' ', "file has no points"},
        {TALLY_DATA_LIBSVM, '\n', "file has no points"},
        {TALLY_DATA_LIBSVM, '#', "file has no points"},
        {TALLY_DATA_LIBSVM, '1', "file:1: label \"111111111111111111111111...\" is too long"},
        {TALLY_DATA_LIBSVM, '\0', "file:1: label \"\" has a NUL byte"},
        {TALLY_DATA_CSV, ' ', "file:1: no column \"y\", only number 1"},
        {TALLY_DATA_CSV, ',', "file:1: no column \"y\", only number 1, number 2"},
        {TALLY_DATA_CSV, '"', "file:1: a field of more than 127 bytes"},
        {TALLY_DATA_CSV, 'y', "file:1: a field of more than 127 bytes"},
        {TALLY_DATA_CSV, '\n', "file:1: no column \"y\""},
        {TALLY_DATA_NPY, '\0', "X: not a .npy file"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memset(MEGABYTE, texts[i].fill, sizeof MEGABYTE);
        data_files_gzip(&FILES, texts[i].type == TALLY_DATA_NPY ? "X.gz" : "file.gz", MEGABYTE,
                        sizeof MEGABYTE, 64);
        spec.type = texts[i].type;
        expect_small(&spec, texts[i].message);
    }
    /* A zip whose array is longer than it says, or says that it is as large as it is. */
    memset(MEGABYTE, 0, sizeof MEGABYTE);
    uint8_t *bytes = malloc(sizeof MEGABYTE + 200);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    static const struct {
        const char *header, *message;
        int64_t features;
    } arrays[] = {
        {NPY("(2, 3)"), "file/X: goes on after its 6 values", 3},
        {NPY("(16777216, 100)"), "file/X: 16777216 points of 100 numbers are more than", 100},
        {NPY("(1, 10000000)"), "file/X: row 0: the value of column 0 is not finite", 10000000},
    };
    for (size_t i = 0; i < 3; i++) {
        if (i == 2) {
            memset(MEGABYTE, 0xff, sizeof MEGABYTE);
        }
        const size_t n = data_files_npy_bytes(arrays[i].header, MEGABYTE, sizeof MEGABYTE, bytes);
        const struct zip_member member = {
            .name = "X.npy", .bytes = bytes, .n = n, .n_tail = sizeof MEGABYTE, .n_times = 64};
        data_files_zip(&FILES, "file", &member, 1, 1);
        spec = spec_of(TALLY_DATA_NPZ, arrays[i].features);
        expect_small(&spec, arrays[i].message);
    }
    free(bytes);
    idx_files_fini(&FILES);
}

/* A file of `size` bytes that begins with `n` of them; the rest is a hole. */
static void write_sparse(const char *name, const void *bytes, size_t n, off_t size)
{
    char path[400];
    idx_files_write(&FILES, name, bytes, n);
    snprintf(path, sizeof path, "%s/%s", FILES.folder, name);
    CU_ASSERT_EQUAL_FATAL(truncate(path, size), 0);
}

#define BYTES(shape)   "{'descr': '|i1', 'fortran_order': False, 'shape': " shape "}"
#define FORTRAN(shape) "{'descr': '|i1', 'fortran_order': True, 'shape': " shape "}"

/* Some KiB that unpack to 64 MiB, which were 512 MiB of doubles; and a mistake after them. */
static void test_objectives_hostile_data__a_late_mistake_takes_no_memory(void)
{
    static const struct {
        const char *points, *labels, *message;
    } arrays[] = {
        {BYTES("(8388608, 8)"), NPY("(3,)"), "file/y: has shape (3,), not (8388608,), a label"},
        {FORTRAN("(8388608, 8)"), NPY("(3,)"), "file/y: has shape (3,), not (8388608,), a label"},
        {BYTES("(8388607, 8)"), NPY("(8388607,)"), "file/X: goes on after its 67108856 values"},
        {BYTES("(8388609, 8)"), NPY("(8388609,)"),
         "file/X: row 8388608: the file ends there, 8 values too early"},
        {BYTES("(8388608, 8)"), NPY("(8388608,)"),
         "file/y: row 3: the file ends there, 8388605 values too early"},
    };
    uint8_t *bytes = malloc(sizeof MEGABYTE + 200), labels[200];
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    idx_files_init(&FILES);
    memset(MEGABYTE, 0, sizeof MEGABYTE);
    struct tally_data_spec spec = spec_of(TALLY_DATA_NPZ, 8);
    size_t n = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        n = data_files_npy_bytes(arrays[i].points, MEGABYTE, sizeof MEGABYTE, bytes);
        const struct zip_member members[] = {
            {.name = "X.npy", .bytes = bytes, .n = n, .n_tail = sizeof MEGABYTE, .n_times = 64},
            {.name = "y.npy",
             .bytes = labels,
             .n = data_files_npy_bytes(arrays[i].labels, NUMBERS, 24, labels)}};
        data_files_zip(&FILES, "file", members, 2, 1);
        expect_small(&spec, arrays[i].message);
    }
    /* A hole instead of a compression. */
    spec.type = TALLY_DATA_NPY;
    n = data_files_npy_bytes(BYTES("(8388608, 8)"), NUMBERS, 0, bytes);
    write_sparse("X", bytes, n, (off_t)n + (64 << 20));
    data_files_npy(&FILES, "y", NPY("(3,)"), NUMBERS, 24);
    expect_small(&spec, "y: has shape (3,), not (8388608,), a label for each point");
    spec =
        (struct tally_data_spec){.type = TALLY_DATA_MATRIX, .matrix = {.matrix = "A", .dim = 8192}};
    n = data_files_npy_bytes(FORTRAN("(8192, 8192)"), NUMBERS, 0, bytes);
    write_sparse("A", bytes, n, (off_t)n + (64 << 20) + 1);
    expect_small(&spec, "A: goes on after its 67108864 values");
    /* Text: one point more than there may be, after 2^25 of them. */
    for (size_t i = 0; i < sizeof MEGABYTE; i++) {
        MEGABYTE[i] = i % 2 == 0 ? '1' : '\n';
    }
    data_files_gzip(&FILES, "points.gz", MEGABYTE, sizeof MEGABYTE, 65);
    spec = spec_of(TALLY_DATA_LIBSVM, 8);
    strcpy(spec.table.file, "points");
    expect_small(&spec, "points:33554433: more than 33554432 points in all");
    /* Images: a pixel too few, and labels a byte too many. */
    spec = (struct tally_data_spec){
        .type = TALLY_DATA_IDX,
        .idx = {.images = "X", .labels = "y", .features = 1 << 20, .classes = 2}};
    memcpy(bytes, (const uint8_t[16]){0, 0, 8, 3, 0, 0, 0, 64, 0, 0, 4, 0, 0, 0, 4, 0}, 16);
    write_sparse("X", bytes, 16, 16 + (64 << 20) - 1);
    n = idx_labels(64, MEGABYTE + sizeof MEGABYTE - 200, bytes);
    memset(bytes + 8, 0, 64);
    idx_files_write(&FILES, "y", bytes, n);
    expect_small(&spec, "X: ends before its 64 images");
    memcpy(bytes, (const uint8_t[8]){0, 0, 8, 1, 2, 0, 0, 0}, 8); /* 2^25 labels */
    write_sparse("y", bytes, 8, 8 + (1 << 25) + 1);
    expect_small(&spec, "y: goes on after its 33554432 labels");
    free(bytes);
    idx_files_fini(&FILES);
}

/* Headers of a few bytes that claim gigabytes. */
static void test_objectives_hostile_data__claims_are_not_allocated(void)
{
    idx_files_init(&FILES);
    struct tally_data_spec spec = spec_of(TALLY_DATA_NPY, 10000000);
    data_files_npy(&FILES, "X", NPY("(13, 10000000)"), NUMBERS, 48);
    expect_small(&spec, "X: row 0: the file ends there, 129999994 values too early");
    data_files_npy(&FILES, "X", "{'descr': '<f8', 'fortran_order': True, 'shape': (13, 10000000)}",
                   NUMBERS, 48);
    expect_small(&spec, "X: row 6: the file ends there, 129999994 values too early");
    spec = (struct tally_data_spec){.type = TALLY_DATA_IDX,
                                    .idx = {.images = "X",
                                            .labels = "y",
                                            .features = 1000000,
                                            .classes = 2,
                                            .points_per_class = 500}};
    static uint8_t bytes[IDX_MAX_BYTES], labels[1000];
    for (size_t i = 0; i < sizeof labels; i++) {
        labels[i] = i % 2;
    }
    size_t n = idx_labels(1000, labels, bytes);
    idx_files_write(&FILES, "y", bytes, n);
    n = idx_images(1, 1, 4, labels, bytes);
    bytes[6] = 1000 >> 8;
    bytes[7] = 1000 & 255;
    memcpy(bytes + 8, (const uint8_t[8]){0, 0, 1000 >> 8, 1000 & 255, 0, 0, 1000 >> 8, 1000 & 255},
           8);
    idx_files_write(&FILES, "X", bytes, n);
    expect_small(&spec, "X: ends in image 0 of 1000");
    memcpy(bytes, (const uint8_t[8]){0, 0, 8, 1, 2, 0, 0, 0}, 8); /* 2^25 labels */
    idx_files_write(&FILES, "y", bytes, 8);
    expect_small(&spec, "X has 1000 images of 1000 x 1000, not 33554432 of 1000000 pixels");
    data_files_npy(&FILES, "A", NPY("(8192, 8192)"), NUMBERS, 48);
    spec =
        (struct tally_data_spec){.type = TALLY_DATA_MATRIX, .matrix = {.matrix = "A", .dim = 8192}};
    expect_small(&spec, "A: row 0: the file ends there, 67108858 values too early");
    idx_files_fini(&FILES);
}

/* The limits of all that is kept. The builder is told that it is almost there. */
static void test_objectives_hostile_data__there_is_an_end(void)
{
    idx_files_init(&FILES);
    data_files_text(&FILES, "file", "");
    for (int i = 0; i < 2; i++) {
        struct tally_data_file *file = NULL;
        struct tally_dataset dataset = {.points = TALLY_DATA_MAX_POINTS};
        struct tally_dataset_builder builder = {.dataset = &dataset,
                                                .n_values = TALLY_DATA_MAX_VALUES};
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL_FATAL(tally_data_file_open(&SOURCE, "file", &file, &err), TALLY_OK);
        file->place = TALLY_DATA_LINE;
        file->line = 77;
        CU_ASSERT_EQUAL(i == 0 ? tally_builder_value(&builder, file, 0, 1)
                               : tally_builder_point(&builder, file, 1),
                        TALLY_INVALID_ARGUMENT);
        TALLY_ASSERT_TEXT(
            err.message,
            i == 0 ? "file:77: more than 134217728 numbers in all, the most that a job's data may "
                     "hold"
                   : "file:77: more than 33554432 points in all, the most that a job may have");
        tally_data_file_close(file);
    }
    idx_files_fini(&FILES);
}

/* What says too much is cut, and stays valid UTF-8 on one line. */
static void test_objectives_hostile_data__messages_stay_one_line(void)
{
    idx_files_init(&FILES);
    struct tally_data_spec spec = spec_of(TALLY_DATA_CSV, 2);
    char header[4000] = "";
    for (int i = 0; i < 100; i++) {
        strcat(header, "\"c\xc3\xa4\x1b[31m\n\",");
    }
    strcat(header, "z\n");
    data_files_text(&FILES, "file", header);
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(try_load(&spec, TALLY_LABELS_REAL, &err), TALLY_INVALID_ARGUMENT);
    for (const char *at = err.message; *at != '\0'; at++) {
        CU_ASSERT_TRUE((unsigned char)*at >= ' ');
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "..."));
    CU_ASSERT_TRUE(strlen(err.message) < 250);
    idx_files_fini(&FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_hostile_data__libsvm_is_refused_by_line),
    TALLY_TEST(test_objectives_hostile_data__csv_is_refused_by_line_and_column),
    TALLY_TEST(test_objectives_hostile_data__nul_bytes_are_refused),
    TALLY_TEST(test_objectives_hostile_data__npy_is_refused_by_row),
    TALLY_TEST(test_objectives_hostile_data__damaged_npz_and_gzip_are_refused),
    TALLY_TEST(test_objectives_hostile_data__what_is_no_file_is_refused),
    TALLY_TEST(test_objectives_hostile_data__bombs_take_no_memory),
    TALLY_TEST(test_objectives_hostile_data__a_late_mistake_takes_no_memory),
    TALLY_TEST(test_objectives_hostile_data__claims_are_not_allocated),
    TALLY_TEST(test_objectives_hostile_data__there_is_an_end),
    TALLY_TEST(test_objectives_hostile_data__messages_stay_one_line),
};
TALLY_SUITE(objectives_hostile_data, TESTS);

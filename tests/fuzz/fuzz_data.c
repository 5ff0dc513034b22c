#include "tests/fuzz/fuzz_data.h"

#include <math.h>
#include <string.h>

static const struct tally_data_source NOBODY = {.dir = "."};

struct pieces {
    const uint8_t *bytes;
    size_t n, at, n_reads;
};

static int read_piece(void *reader, void *ret_bytes, size_t n, const char **ret_why)
{
    struct pieces *pieces = reader;
    (void)ret_why;
    const size_t left = pieces->n - pieces->at;
    const size_t piece = 1 + 5 * pieces->n_reads++ % 17;
    const size_t some = piece < left ? piece : left;
    FUZZ_CHECK(some <= n);
    memcpy(ret_bytes, pieces->bytes + pieces->at, some);
    pieces->at += some;
    return (int)some;
}

static uint64_t offset_of(void *reader)
{
    return ((struct pieces *)reader)->at;
}

static const struct tally_data_file_ops PIECE_OPS = {read_piece, offset_of, free};

bool fuzz_data_init(struct fuzz_data *fuzz, bool is_sparse, const uint8_t *data, size_t size,
                    struct tally_data_file **ret_file)
{
    if (size < FUZZ_DATA_HEAD) {
        return false;
    }
    *fuzz = (struct fuzz_data){.dataset = {.features = 1U + data[0] % 32U},
                               .builder = {.rule = (enum tally_labels)(data[1] % 3),
                                           .classes = data[1] / 16,
                                           .is_sparse = is_sparse},
                               .err = TALLY_ERROR_INIT};
    fuzz->builder.dataset = &fuzz->dataset;
    struct pieces *pieces = fuzz_allocate(1, sizeof *pieces);
    *pieces = (struct pieces){.bytes = data + FUZZ_DATA_HEAD, .n = size - FUZZ_DATA_HEAD};
    FUZZ_CHECK(tally_data_file_of(&NOBODY, "file", &PIECE_OPS, pieces, size, ret_file,
                                  &fuzz->err) == TALLY_OK);
    return true;
}

static void check_rows(const struct tally_dataset *dataset)
{
    FUZZ_CHECK(dataset->points == 0 || dataset->row_first[0] == 0);
    for (uint32_t i = 0; i < dataset->points; i++) {
        FUZZ_CHECK(dataset->row_first[i] <= dataset->row_first[i + 1]);
        for (size_t v = dataset->row_first[i]; v < dataset->row_first[i + 1]; v++) {
            FUZZ_CHECK(dataset->columns[v] < dataset->features && dataset->values[v] != 0);
            FUZZ_CHECK(v == dataset->row_first[i] || dataset->columns[v] > dataset->columns[v - 1]);
        }
    }
}

void fuzz_data_fini(struct fuzz_data *fuzz, struct tally_data_file *file, enum tally_status status)
{
    struct tally_dataset *dataset = &fuzz->dataset;
    FUZZ_CHECK(status == file->status && status == fuzz->err.status);
    if (status != TALLY_OK) {
        FUZZ_CHECK(status == TALLY_INVALID_ARGUMENT);
        FUZZ_CHECK(strncmp(fuzz->err.message, "file:", 5) == 0);
    } else {
        FUZZ_CHECK(file->at == file->n);
        if (fuzz->builder.is_sparse) {
            check_rows(dataset);
        }
        for (size_t v = 0; v < fuzz->builder.n_values; v++) {
            FUZZ_CHECK(isfinite(dataset->values[v]));
        }
        for (uint32_t i = 0; i < dataset->points; i++) {
            const double label = dataset->labels[i];
            FUZZ_CHECK(isfinite(label));
            FUZZ_CHECK(fuzz->builder.classes == 0 ||
                       (label >= 0 && label < (double)fuzz->builder.classes));
            FUZZ_CHECK(fuzz->builder.rule != TALLY_LABELS_BINARY || label == 0 || fabs(label) == 1);
        }
    }
    tally_data_file_close(file);
    free(dataset->values);
    free(dataset->columns);
    free(dataset->row_first);
    free(dataset->labels);
}

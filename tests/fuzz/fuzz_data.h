/* fuzz_data: shared by the targets of data files. An input is
 *
 *     byte 0    features = 1 + byte 0 mod 32
 *     byte 1    kind of labels: byte 1 mod 3; classes = byte 1 / 16
 *     the rest  the file */
#ifndef TALLY_TESTS_FUZZ_FUZZ_DATA_H
#define TALLY_TESTS_FUZZ_FUZZ_DATA_H

#include "services/objectives/data/dataset.h"
#include "tests/fuzz/fuzz.h"

enum { FUZZ_DATA_HEAD = 2 };

struct fuzz_data {
    struct tally_dataset dataset;
    struct tally_dataset_builder builder;
    struct tally_error err;
};

/* Opens the input as a file that is read in pieces of varying sizes. Returns false if there are
 * fewer bytes than a head. */
bool fuzz_data_init(struct fuzz_data *fuzz, bool is_sparse, const uint8_t *data, size_t size,
                    struct tally_data_file **ret_file);
/* Checks that a failure has a reason that begins with the file's name, and that the points read are
 * finite and lie where the dataset says. Frees everything. */
void fuzz_data_fini(struct fuzz_data *fuzz, struct tally_data_file *file, enum tally_status status);

#endif

/* npz: arrays in a .npz file, NumPy's zip of .npy files, plain or compressed. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_NPZ_H
#define TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_NPZ_H

#include "services/objectives/data/data_file.h"

struct tally_npz;

/* Errors: INVALID_ARGUMENT (no such file, or no zip), NO_MEMORY. */
enum tally_status tally_npz_open(const struct tally_data_source *source, const char *name,
                                 struct tally_npz **ret_npz, struct tally_error *err);
void tally_npz_close(struct tally_npz *npz);

/* The bytes of an array's .npy file; to be closed before the .npz is. Errors: INVALID_ARGUMENT (no
 * such array; the message names those there are), NO_MEMORY. */
enum tally_status tally_npz_open_array(struct tally_npz *npz, const char *array,
                                       struct tally_data_file **ret_file, struct tally_error *err);

#endif

/* data_source: the folder of a job's data files, a callback for the progress of reading, and what
 * the files have in common. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_DATA_SOURCE_H
#define TALLY_SERVICES_OBJECTIVES_DATA_DATA_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct tally_load_progress {
    const char *file;        /* its name below the data folder */
    uint64_t read_bytes;     /* of the file as it is, compressed or not */
    uint64_t total_bytes;    /* its size */
    uint64_t unpacked_bytes; /* length of what was read so far, without compression */
    uint64_t points;         /* read of it so far */
};

struct tally_columns;
struct tally_scaling;
struct tally_surveys;

struct tally_data_source {
    const char *dir; /* the data folder */
    /* Called after every few MiB. Packed files are read, and therefore reported, twice. There is no
     * clock here, so a callback that prints must limit its own rate. Returning false stops the
     * reading. May be NULL. */
    bool (*on_progress)(void *context, const struct tally_load_progress *progress);
    /* Called with each of the first errors in a text file: "flats.csv:3: ...", a line for people.
     * The error of the call names only the first. May be NULL. */
    void (*on_fault)(void *context, const char *fault);
    void *context; /* of both */
    /* The columns of the job's CSV files, set by the first one and matched by the others; NULL =
     * they are matched only within one tally_dataset_load(). */
    struct tally_columns *columns;
    /* The scaling of the features (scaling.h), fitted to the first data that are loaded with
     * `standardize` or `missing` and applied to the others; NULL = each are scaled by
     * themselves. */
    struct tally_scaling *scaling;
    /* Where the clients' surveys go, if the data are surveyed (survey.h); zeroed. NULL = they are
     * not kept. Such data are scaled by `scaling` if that is fitted, or else by what the surveys
     * give if the points of all clients are here. Otherwise they stay as they are; with `surveys`
     * NULL they are refused. */
    struct tally_surveys *surveys;
    /* Where the digest of the data goes (tally_dataset_digest()); may be NULL. */
    uint64_t *ret_digest;
};

#endif

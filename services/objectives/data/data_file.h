/* data_file: the bytes of a file below the data folder, as a stream, unpacked if it is gzip.
 *
 * Only a window of some KiB is kept, so reading takes the same memory whatever a file claims or
 * unpacks to. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_DATA_FILE_H
#define TALLY_SERVICES_OBJECTIVES_DATA_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/objectives/data/data.h"
#include "services/objectives/data/data_source.h"

enum { TALLY_DATA_WINDOW = 1 << 16 };

/* The most unpacked bytes of a file: TALLY_DATA_MAX_VALUES of the longest numbers. The limit stops
 * files that unpack to endless blanks. */
#define TALLY_DATA_MAX_BYTES (UINT64_C(1) << 34)

struct tally_data_file;

/* A source of bytes. */
struct tally_data_file_ops {
    /* Up to n bytes, n <= TALLY_DATA_WINDOW; 0 at the end. -1: *ret_why says why, borrowed. */
    int (*read)(void *reader, void *ret_bytes, size_t n, const char **ret_why);
    uint64_t (*offset)(void *reader); /* bytes of the file used up */
    void (*close)(void *reader);
};

enum { TALLY_DATA_FAULT_LINES = 64 };

enum tally_data_place { TALLY_DATA_NOWHERE, TALLY_DATA_LINE, TALLY_DATA_ROW };

struct tally_data_file {
    const struct tally_data_source *source;
    const struct tally_data_file_ops *ops;
    void *reader;
    uint64_t total_bytes;
    uint64_t unpacked_bytes;
    uint64_t untold_bytes;       /* unpacked since on_progress was called last */
    uint64_t points;             /* for on_progress; the loader counts them */
    enum tally_data_place place; /* the word for a place in messages */
    uint64_t line;               /* lines from 1, rows from 0; the loader counts */
    enum tally_status status;    /* why there are no more bytes; OK at the end */
    struct tally_error *err;     /* borrowed */
    bool is_at_end;
    bool is_packed; /* compressed or with holes: its content may be far larger than its space on the
                       disk */
    size_t at, n;   /* of the window */
    char name[300]; /* for messages: as found, and the array in it */
    /* Errors after which reading went on (tally_data_file_note()). */
    uint32_t n_faults;
    char first_fault[256]; /* without the file's name */
    /* Of the others: "; also in line 4, 7"; with room for ", ..." at the end. */
    char fault_lines[TALLY_DATA_FAULT_LINES + sizeof ", ..."];
    uint8_t window[TALLY_DATA_WINDOW];
};

/* Opens dir/name or, if that does not exist, dir/name.gz. Errors: INVALID_ARGUMENT (the message
 * names the file and a remedy), NO_MEMORY. `err` is kept for reading. */
enum tally_status tally_data_file_open(const struct tally_data_source *source, const char *name,
                                       struct tally_data_file **ret_file, struct tally_error *err);
/* Whether the name exists, so that tally_data_file_open() opens or refuses it. */
bool tally_data_file_exists(const struct tally_data_source *source, const char *name);
/* Opens only the descriptor, for libraries that read by themselves. */
enum tally_status tally_data_file_descriptor(const struct tally_data_source *source,
                                             const char *name, int *ret_fd,
                                             struct tally_error *err);
/* A file whose bytes come from `reader`, which is closed with it, or at once on failure. Errors:
 * NO_MEMORY. */
enum tally_status tally_data_file_of(const struct tally_data_source *source, const char *name,
                                     const struct tally_data_file_ops *ops, void *reader,
                                     uint64_t total_bytes, struct tally_data_file **ret_file,
                                     struct tally_error *err);
void tally_data_file_close(struct tally_data_file *file);

/* Fills the window; false at the end and on failure: see file->status. */
bool tally_data_file_fill(struct tally_data_file *file);

enum { TALLY_DATA_END = -1 };

/* The next byte, or TALLY_DATA_END. */
static inline int tally_data_file_next(struct tally_data_file *file)
{
    return file->at < file->n || tally_data_file_fill(file) ? file->window[file->at++]
                                                            : TALLY_DATA_END;
}
/* The same without consuming it. */
static inline int tally_data_file_peek(struct tally_data_file *file)
{
    return file->at < file->n || tally_data_file_fill(file) ? file->window[file->at]
                                                            : TALLY_DATA_END;
}
/* Reads n bytes and returns how many there were. */
size_t tally_data_file_read(struct tally_data_file *file, void *ret_bytes, size_t n);

/* Skips a UTF-8 byte order mark, which some editors put at the start of a text. */
void tally_data_file_skip_mark(struct tally_data_file *file);

/* Reads n bytes and keeps none; false if there are fewer. */
bool tally_data_file_skip(struct tally_data_file *file, uint64_t n);

/* Fails with "NAME:LINE: ..." unless reading failed already; always file->status afterwards. */
enum tally_status tally_data_file_refuse(struct tally_data_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

enum { TALLY_DATA_FAULTS_MOST = 20 };

/* Notes an error, after which the caller goes on with the next line if it returns true: a file that
 * fails then reports several errors at once. False: there are TALLY_DATA_FAULTS_MOST, or reading
 * failed. Text files only. */
bool tally_data_file_note(struct tally_data_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* To be called at the end: fails if errors were noted. Returns file->status. */
enum tally_status tally_data_file_settle(struct tally_data_file *file);

#endif

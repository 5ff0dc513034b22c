/* codec_bench: measures the codec's speed and its bits, next to yardsticks in the same run.
 *
 * Speed: measured on a vector of Gaussians of standard deviation 1 step, all coordinates different
 * (the branch predictor learns a small buffer that is reused, which makes it 2 to 3 times too
 * fast), on one thread, in CPU time of that thread, so that other load distorts less. Every
 * repetition runs each operation once, in order; the first one warms up and does not count.
 *
 * Yardsticks: memcpy of the same float32 bytes; a plain loop that adds int8 levels to the same
 * int64 accumulators; zstd level 1 on int8 levels, if the build has zstd. The yardstick of
 * `dithered` is `entropy`. */
#ifndef TALLY_TESTS_BENCH_CODEC_BENCH_H
#define TALLY_TESTS_BENCH_CODEC_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/buffer.h"
#include "codec/encoding.h"
#include "codec/error.h"
#include "codec/numeric/cpu.h"

enum tally_bench_operation {
    TALLY_BENCH_MEMCPY,
    TALLY_BENCH_ADD,             /* the plain loop */
    TALLY_BENCH_QUANTIZE_ENCODE, /* random numbers included */
    TALLY_BENCH_DECODE_ACCUMULATE,
    TALLY_BENCH_ENCODE, /* of int32 levels */
    TALLY_BENCH_DECODE, /* to int32 levels */
    TALLY_BENCH_ZSTD_COMPRESS,
    TALLY_BENCH_ZSTD_DECOMPRESS,
    TALLY_BENCH_DITHERED_ENCODE, /* dither included */
    TALLY_BENCH_DITHERED_ACCUMULATE,
};

enum { TALLY_BENCH_MAX_ENCODINGS = 8, TALLY_BENCH_MAX_METERS = 80, TALLY_BENCH_MAX_SAMPLES = 200 };

/* Length of TALLY_ENCODINGS, TALLY_BENCH_MAX_ENCODINGS at most. */
size_t tally_bench_n_encodings(void);

/* One operation with one instruction set. */
struct tally_bench_meter {
    enum tally_bench_operation operation;
    const struct tally_encoding *encoding; /* NULL for yardsticks and `dithered` */
    enum tally_cpu cpu;
    double samples[TALLY_BENCH_MAX_SAMPLES]; /* seconds; ascending when the run is over */
};

struct tally_bench {
    size_t dim;
    size_t n_samples;
    size_t n_meters;
    struct tally_bench_meter meters[TALLY_BENCH_MAX_METERS];
};

/* Runs for about `seconds`, at least three repetitions. Errors: NO_MEMORY, CANCELLED (a signal),
 * INTERNAL (the decoded levels differ from the encoded ones). */
enum tally_status tally_bench_run(size_t dim, double seconds, struct tally_bench *ret_bench,
                                  struct tally_error *err);

/* The meter, or NULL. */
const struct tally_bench_meter *tally_bench_find(const struct tally_bench *bench,
                                                 enum tally_bench_operation operation,
                                                 const struct tally_encoding *encoding,
                                                 enum tally_cpu cpu);

/* Costs of messages of `dim` stochastically rounded Gaussians, standard deviation in steps. */
struct tally_bench_bits {
    size_t dim;
    double std;
    double entropy; /* bits per coordinate: zero order, over the levels of all messages */
    double formula; /* [1]'s count */
    double zstd;    /* 0 without zstd */
    double encodings[TALLY_BENCH_MAX_ENCODINGS]; /* in the order of TALLY_ENCODINGS */
};

/* Measures messages with the given bits->dim and bits->std, and fills in the other members: means
 * over enough messages to make chance small. Errors: NO_MEMORY. */
enum tally_status tally_bench_bits(struct tally_bench_bits *bits, struct tally_error *err);

/* `tests/bench/run codec` (codec_bench_report.c): measures vectors of dim >= 64 coordinates for
 * about `seconds` of CPU time, and appends two tables, or JSON with a newline. Errors: those of
 * tally_bench_run(). */
enum tally_status tally_codec_bench_report(size_t dim, double seconds, bool as_json,
                                           struct tally_buffer *out, struct tally_error *err);

#endif

/* tally: Tally as a library: the codec, and a worker in a process of your own.
 *
 * libtally is made of the same code as the programs, so the same input gives the same bits. All
 * functions are safe to call from several threads at once; an object belongs to one thread at a
 * time, except where its functions say otherwise. Strings are UTF-8 and end with NUL. Arguments are
 * borrowed for the call unless the comment says otherwise. The library installs no signal handler,
 * writes to no standard stream, and does not end the process.
 *
 * A function that can fail returns TALLY_CODE_OK, which is 0, or another code. With another code it
 * also fills *failure, unless `failure` is NULL. Results (ret_*) are written only on success.
 *
 * ABI: symbols have the version LIBTALLY_1. Members may be added at the end of structs that begin
 * with `size` and of structs that the library allocates, and codes may be added. Nothing else
 * changes while the library is libtally.so.1. */
#ifndef TALLY_TALLY_H
#define TALLY_TALLY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TALLY_API __attribute__((visibility("default")))
#else
#define TALLY_API
#endif

/* ---- Version, errors ---- */

/* The version of the library, such as "0.5.0". */
TALLY_API const char *tally_version(void);

enum tally_code {
    TALLY_CODE_OK = 0,
    TALLY_CODE_INVALID_ARGUMENT = 1, /* a name or combination that does not exist */
    TALLY_CODE_MALFORMED = 2,        /* bytes that are not a message */
    TALLY_CODE_OUT_OF_RANGE = 3,     /* a number outside its limits */
    TALLY_CODE_NOT_FINITE = 4,       /* NaN or infinity */
    TALLY_CODE_NO_MEMORY = 5,
    TALLY_CODE_UNAUTHENTICATED = 6,   /* the coordinator asks for a token, or for a different one */
    TALLY_CODE_PERMISSION_DENIED = 7, /* the token is for something else, or the name is taken */
    TALLY_CODE_NOT_FOUND = 8,         /* no such job */
    TALLY_CODE_UNAVAILABLE = 9,       /* the network, or a file that cannot be read */
    TALLY_CODE_FAILED_PRECONDITION = 10,
    TALLY_CODE_DATA_LOSS = 11, /* this worker and the coordinator do not agree on the bits */
    TALLY_CODE_INTERNAL = 12,  /* anything else */
};

/* "INVALID_ARGUMENT"; "INTERNAL" for a number that is not a code. */
TALLY_API const char *tally_code_name(int code);

struct tally_failure {
    int code;          /* enum tally_code */
    char field[96];    /* what is wrong, such as "intervals"; "" = nothing in particular */
    char message[512]; /* one sentence that names the value and the limit, no newline */
};

/* ---- Codec: codec/FORMAT.md is the specification of the bits ---- */

/* Limits. */
enum {
    TALLY_CODEC_DIM_MAX = 1 << 28,       /* coordinates of a vector, at least 1 */
    TALLY_CODEC_INTERVALS_MAX = 1 << 22, /* p, even, at least 2 */
    TALLY_CODEC_QSGD_MAX = 32767,        /* s, at least 1 */
};

/* The encodings of levels, by index 0, 1, ...; NULL after the last. `dithered`, the encoding of
 * calm, is not among them: its messages cannot be decoded without the job's seed, client and round.
 */
TALLY_API const char *tally_encoding_name(size_t index);

/* The grid of the paper's quantizer for vectors of length up to `radius` and an error of at most
 * `eps`: p = ceil(2 radius sqrt(dim) / eps), rounded up to even, and the step 2 radius / p.
 * Errors: INVALID_ARGUMENT (not positive and finite), OUT_OF_RANGE (finer than the codec's limit).
 */
TALLY_API enum tally_code tally_grid_for(double radius, double eps, size_t dim, double *ret_step,
                                         uint32_t *ret_intervals, struct tally_failure *failure);

/* Selects the random numbers that round a vector: those of one client in one round of one job, so
 * that the same message can be made again. `tally encode` sets all but the seed to zero. */
struct tally_rounding {
    uint64_t seed; /* of the job */
    uint32_t run;  /* 0, except in "tally reproduce" */
    uint32_t client;
    uint32_t round;
};

/* A message, made by the functions below. */
struct tally_payload {
    const uint8_t *data; /* uint8_t[size]; the last byte is padded with zero bits */
    size_t size;
    uint64_t payload_bits; /* exact length of the bit string */
    uint64_t formula_bits; /* what the paper counts: dim + sum |level|; see FORMAT.md */
    uint64_t nonzeros;     /* coordinates whose level is not 0 */
    uint64_t clipped;      /* coordinates outside the grid, moved to its end */
};
TALLY_API void tally_payload_free(struct tally_payload *payload); /* NULL is fine */

/* Encodes levels (int32[dim]), |level| <= intervals / 2. Errors: INVALID_ARGUMENT (encoding),
 * OUT_OF_RANGE (dim, grid, a level), NO_MEMORY. The caller frees *ret_payload. */
TALLY_API enum tally_code tally_encode_levels(const char *encoding, uint32_t intervals, double step,
                                              const int32_t *levels, size_t dim,
                                              struct tally_payload **ret_payload,
                                              struct tally_failure *failure);

/* Quantizes values (float[dim]) to multiples of `step`, at random so that the mean is right, and
 * encodes the levels. Errors: those above, NOT_FINITE (names the coordinate). */
TALLY_API enum tally_code tally_encode_values(const char *encoding, uint32_t intervals, double step,
                                              const float *values, size_t dim,
                                              const struct tally_rounding *rounding,
                                              struct tally_payload **ret_payload,
                                              struct tally_failure *failure);

/* Reads levels (int32[dim]) from exactly `size` bytes that hold `payload_bits` bits. On failure the
 * content of ret_levels is undefined. A value is level * step. Errors: those of
 * tally_encode_levels(), MALFORMED (the bytes are not such a message). */
TALLY_API enum tally_code tally_decode_levels(const char *encoding, uint32_t intervals, double step,
                                              const uint8_t *data, size_t size,
                                              uint64_t payload_bits, size_t dim,
                                              int32_t *ret_levels, struct tally_failure *failure);

/* Values as they are, 32 bits each. Errors: OUT_OF_RANGE (dim), NOT_FINITE, MALFORMED, NO_MEMORY.
 */
TALLY_API enum tally_code tally_encode_float32(const float *values, size_t dim,
                                               struct tally_payload **ret_payload,
                                               struct tally_failure *failure);
TALLY_API enum tally_code tally_decode_float32(const uint8_t *data, size_t size,
                                               uint64_t payload_bits, size_t dim, float *ret_values,
                                               struct tally_failure *failure);

/* QSGD with s levels: a norm, and per coordinate a sign and a level of fixed width. A value is
 * norm * level / s. Errors: OUT_OF_RANGE (dim, s), NOT_FINITE, MALFORMED, NO_MEMORY. */
TALLY_API enum tally_code tally_encode_qsgd(uint32_t s, const float *values, size_t dim,
                                            const struct tally_rounding *rounding,
                                            struct tally_payload **ret_payload,
                                            struct tally_failure *failure);
TALLY_API enum tally_code tally_decode_qsgd(uint32_t s, const uint8_t *data, size_t size,
                                            uint64_t payload_bits, size_t dim, float *ret_norm,
                                            int32_t *ret_levels, struct tally_failure *failure);

/* ---- Data: a job's points, split over its clients as its workers have them ---- */

struct tally_job_data;

/* What a client holds. */
struct tally_points {
    size_t n, features;   /* not counting the constant 1 that "bias" adds */
    const double *values; /* double[n][features] */
    const double *labels; /* double[n] */
};
enum { TALLY_POINTS_VALUES_MAX = 1 << 27 }; /* limit of n times features */

/* Draws or reads the data of a job document (`size` bytes of JSON), whose files are below data_dir
 * (NULL = "data"). Members that the document leaves open are found in the file, as a coordinator
 * finds them. Points held out by `test_fraction` belong to no client. Errors: INVALID_ARGUMENT,
 * OUT_OF_RANGE, MALFORMED (the document, or a file: the message names it and its line),
 * FAILED_PRECONDITION (an objective without points), NO_MEMORY. */
TALLY_API enum tally_code tally_job_data_load(const char *document, size_t size,
                                              const char *data_dir,
                                              struct tally_job_data **ret_data,
                                              struct tally_failure *failure);
TALLY_API void tally_job_data_free(struct tally_job_data *data); /* NULL is fine */

/* M, the number of clients in the document. */
TALLY_API uint32_t tally_job_data_clients(const struct tally_job_data *data);

/* Copies the points of a client in [0, M), zeros included, in the order in which the built-in
 * objectives number them. Errors: OUT_OF_RANGE (client; more than TALLY_POINTS_VALUES_MAX),
 * FAILED_PRECONDITION (with sharding "local": its file is not here), NO_MEMORY. */
TALLY_API enum tally_code tally_job_data_points(const struct tally_job_data *data, uint32_t client,
                                                struct tally_points **ret_points,
                                                struct tally_failure *failure);
TALLY_API void tally_points_free(struct tally_points *points); /* NULL is fine */

/* ---- Worker: serves clients of a coordinator's jobs, as tally-worker does ---- */

struct tally_plugin; /* <tally/plugin.h>: gradients of your own */
struct tally_worker;

enum { TALLY_LOG_LEVEL_DEBUG, TALLY_LOG_LEVEL_INFO, TALLY_LOG_LEVEL_WARN, TALLY_LOG_LEVEL_ERROR };

/* Filled by tally_worker_config_init() and then by the caller. Texts, plug-in and contexts are
 * borrowed until tally_worker_free(). */
struct tally_worker_config {
    size_t size;             /* of this struct in the caller's version of this header */
    const char *coordinator; /* "http://127.0.0.1:8080", or https:// */
    const char *name;        /* 1 to 64 bytes, unique at the coordinator: a worker that returns
                              * with the same name gets its clients back; NULL = HOST-PID-NUMBER-DIGEST */
    const char *token;       /* bearer token; NULL = none */
    const char *token_file;  /* or a file that holds it; read again when the token is refused */
    const char *tls_ca;      /* PEM file of the authorities to trust; NULL = the system's */
    const char *data_dir;    /* where the data files of jobs are; "data" */
    const char *job;         /* serve this job only, and end with it; NULL = any */
    uint32_t clients;        /* that it serves at once, 1 .. 8,192; 1 */
    uint32_t wait_ms;        /* how long a poll for work may wait, 1 .. 30,000; 10,000 */
    int exit_when_idle;      /* end when the coordinator has no job left */

    /* Computes gradients of your own, for the jobs whose objective has type "plugin" and the name
     * of this plug-in. Its functions are called in the thread of tally_worker_run(). NULL = none.
     */
    const struct tally_plugin *plugin;
    uint64_t dim; /* `plugin` serves only jobs of this dimension; 0 = any */
    /* Not 0: `plugin` also serves all other jobs of dimension `dim`, whatever their objective is.
     * For a process that holds the data, or computes the gradient, in a different form from the
     * other workers. If the plug-in has no function `loss`, the job's own objective is evaluated.
     */
    int override;

    /* Receives each log line, without its time, level and newline. Called in the thread of
     * tally_worker_run(). NULL = nothing is logged. */
    void (*log)(void *context, int level, const char *line);
    void *log_context;

    /* Which code `plugin` calls, for the provenance of the jobs that it serves: a name of at most
     * 64 bytes, and a SHA-256 digest in hexadecimal digits. NULL = the name of `plugin`; no digest.
     */
    const char *code_name, *code_sha256;
};

/* Sets the defaults, which are the last values in the comments above. `size` is sizeof *ret_config.
 */
TALLY_API void tally_worker_config_init(struct tally_worker_config *ret_config, size_t size);

/* The worker's own counts; they agree with the coordinator's. */
struct tally_worker_totals {
    uint64_t rounds;                                        /* tasks done */
    uint64_t messages, formula_bits, payload_bits, clipped; /* of acknowledged messages */
    uint64_t wire_out_bytes, wire_in_bytes;                 /* of HTTP exchanges */
};

/* Checks the configuration, without connecting. Errors: INVALID_ARGUMENT and OUT_OF_RANGE (`field`
 * names the option), NO_MEMORY, UNAVAILABLE (out of file descriptors). */
TALLY_API enum tally_code tally_worker_new(const struct tally_worker_config *config,
                                           struct tally_worker **ret_worker,
                                           struct tally_failure *failure);
/* Must not be called while tally_worker_run() runs. NULL is fine. */
TALLY_API void tally_worker_free(struct tally_worker *worker);

/* Serves jobs until tally_worker_stop() is called, until `job` has ended or, with exit_when_idle,
 * until the coordinator has no job left; all are success. It may be called only once. While the
 * coordinator cannot be reached, it keeps trying. Errors, none of which trying again would remove:
 * UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND (there is no `job`), FAILED_PRECONDITION (this
 * process cannot serve `job`), INVALID_ARGUMENT, DATA_LOSS, NO_MEMORY. *ret_totals is written in
 * any case; ret_totals may be NULL. */
TALLY_API enum tally_code tally_worker_run(struct tally_worker *worker,
                                           struct tally_worker_totals *ret_totals,
                                           struct tally_failure *failure);

/* Asks the worker to finish the update that it is posting and to leave, which takes seconds at
 * most. It may be called before tally_worker_run(), from any thread, and from a signal handler. */
TALLY_API void tally_worker_stop(struct tally_worker *worker);

#ifdef __cplusplus
}
#endif

#endif

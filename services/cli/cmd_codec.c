/* tally encode FILE: encodes a vector, or levels, in .npy as the payload of a message.
 * tally decode FILE: decodes a payload to levels, or values, in .npy. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "codec/encoding.h"
#include "services/base/whole_file.h"
#include "services/cli/commands.h"
#include "services/job/job_spec.h"
#include "services/objectives/data/npy.h"

enum { MAX_DIM = 1 << 28 };

const struct tally_option TALLY_CLI_ENCODE_OPTIONS[] = {
    {"out", "FILE", NULL,
     "file for the payload (- = standard output); by default it is not written", NULL},
    {"encoding", "NAME", "entropy", "encoding of the levels (codec/FORMAT.md)", NULL},
    {"intervals", "P", NULL, "number of intervals of the grid, even; levels are in [-P/2, P/2]",
     NULL},
    {"step", "S", "1", "step of the grid", NULL},
    {"scale", "N", "128",
     "dithered only: assumed standard deviation of a coordinate, 2^(N/16 - 8) steps", NULL},
    {"seed", "N", "1", "seed of the random numbers that round a vector of floats", NULL},
    {0},
};

const struct tally_option TALLY_CLI_DECODE_OPTIONS[] = {
    {"out", "FILE", NULL,
     "file for the .npy array (- = standard output); by default it is not written", NULL},
    {"encoding", "NAME", "entropy", "encoding of the levels (codec/FORMAT.md)", NULL},
    {"dim", "N", NULL, "coordinates of the message", NULL},
    {"payload-bits", "B", NULL, "bits of the message, without padding", NULL},
    {"intervals", "P", NULL, "number of intervals of the grid, even; levels are in [-P/2, P/2]",
     NULL},
    {"step", "S", "1", "step of the grid", NULL},
    {"scale", "N", "128",
     "dithered only: assumed standard deviation of a coordinate, 2^(N/16 - 8) steps", NULL},
    {"seed", "N", "1", "dithered only: seed of the random numbers that rounded the vector", NULL},
    {"values", NULL, NULL, "write float64 values instead of int32 levels", NULL},
    {0},
};

/* One message: what its receiver must know, and its size in bits. */
struct message {
    const char *name;
    const struct tally_encoding *encoding; /* NULL = dithered */
    size_t dim;
    struct tally_grid grid;
    struct tally_rng rng; /* rounds a vector */
    int64_t seed;
    struct tally_level_stats stats;
    uint64_t clipped;
};

/* Reads --scale, which completes a dithered grid. */
static void read_dithered(const struct tally_options *options, struct message *message,
                          struct tally_error *err)
{
    int64_t scale = 0;
    tally_options_integer(options, "scale", 0, TALLY_DITHERED_SCALES - 1, &scale, err);
    message->grid.scale = (uint32_t)scale;
    if (err->status == TALLY_OK && !tally_dithered_grid_is_valid(&message->grid)) {
        tally_options_refuse(options, "intervals", err, "dithered takes at most %d intervals",
                             2 * TALLY_DITHERED_MAX_TOP);
    }
}

/* --encoding, --intervals, --step, --scale and --seed. */
static void read_format(const struct tally_options *options, struct message *message,
                        struct tally_error *err)
{
    int index = 0;
    int64_t intervals = 0;
    double step = 0;
    tally_options_choice(options, "encoding", TALLY_JOB_ENCODING_NAMES, &index, err);
    tally_options_integer(options, "intervals", 2, TALLY_MAX_INTERVALS, &intervals, err);
    tally_options_real(options, "step", 1e-30, 1e30, &step, err);
    tally_options_integer(options, "seed", 0, INT64_MAX, &message->seed, err);
    message->name = TALLY_JOB_ENCODING_NAMES[index];
    message->encoding = TALLY_ENCODINGS[index]; /* ends with NULL */
    tally_rng_init(&message->rng, tally_rng_key((uint64_t)message->seed, 0), 0, 0,
                   TALLY_RNG_UPLINK);
    message->grid = (struct tally_grid){.step = step, .intervals = (uint32_t)intervals};
    if (!tally_grid_is_valid(&message->grid)) {
        tally_options_refuse(
            options, "intervals", err,
            "%lld intervals of step %g do not make a quantizer: the number must be even",
            (long long)intervals, step);
    } else if (message->encoding == NULL) {
        read_dithered(options, message, err);
    }
}

/* Prints the message as JSON on stdout, or on stderr if `out` is "-" and the bytes go to stdout. */
static int print_message(const struct message *message, const char *out)
{
    struct tally_json *object = tally_json_object();
    struct tally_buffer text = {0};
    bool ok = tally_json_set_text(object, "encoding", message->name);
    ok = tally_json_set_unsigned(object, "dim", message->dim) && ok;
    ok = tally_json_set_unsigned(object, "intervals", message->grid.intervals) && ok;
    ok = tally_json_set_real(object, "step", message->grid.step) && ok;
    if (message->encoding == NULL) {
        ok = tally_json_set_unsigned(object, "scale", message->grid.scale) && ok;
        ok = tally_json_set_unsigned(object, "seed", (uint64_t)message->seed) && ok;
    }
    ok = tally_json_set_unsigned(object, "payload_bits", message->stats.payload_bits) && ok;
    ok = tally_json_set_unsigned(object, "formula_bits", message->stats.formula_bits) && ok;
    ok = tally_json_set_unsigned(object, "nonzeros", message->stats.nonzeros) && ok;
    ok = tally_json_set_unsigned(object, "clipped", message->clipped) && ok;
    int exit_code = TALLY_EXIT_OK;
    if (!ok || out == NULL || strcmp(out, "-") != 0) {
        exit_code = tally_cli_print_json(ok ? object : NULL, 0);
    } else if (tally_json_dump(object, 0, &text) == TALLY_OK) {
        fprintf(stderr, "%.*s\n", (int)text.size, (const char *)text.data);
    }
    tally_buffer_fini(&text);
    tally_json_free(object);
    return exit_code;
}

/* The end of both commands: writes and frees `bytes`, prints the message or the error. */
static int finish(const struct tally_options *options, const struct message *message,
                  struct tally_buffer *bytes, struct tally_error *err)
{
    const char *out = tally_options_text(options, "out");
    int exit_code;
    if (err->status != TALLY_OK) {
        exit_code = tally_cli_report_usage(err);
    } else if (out != NULL &&
               tally_whole_file_write(out, bytes->data, bytes->size, err) != TALLY_OK) {
        exit_code = tally_cli_report(err);
    } else {
        exit_code = print_message(message, out);
    }
    tally_buffer_fini(bytes);
    return exit_code;
}

/* ---- encode ---- */

static enum tally_status encode_levels(const struct tally_npy *npy, int32_t *levels,
                                       struct message *message, struct tally_buffer *payload,
                                       struct tally_error *err)
{
    for (size_t i = 0; i < npy->dim; i++) {
        if (npy->type == TALLY_NPY_INT8) {
            const uint8_t byte = npy->data[i];
            levels[i] = byte < 128 ? byte : byte - 256;
        } else {
            memcpy(&levels[i], npy->data + 4 * i, sizeof levels[i]);
        }
    }
    return tally_levels_encode(message->encoding, &message->grid, levels, npy->dim, payload,
                               &message->stats, err);
}

static enum tally_status encode_vector(const struct tally_npy *npy, int32_t *scratch,
                                       struct message *message, struct tally_buffer *payload,
                                       struct tally_error *err)
{
    float *y = malloc(npy->dim * sizeof *y + 1);
    if (y == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu values", npy->dim);
    }
    for (size_t i = 0; i < npy->dim; i++) {
        double value;
        if (npy->type == TALLY_NPY_FLOAT32) {
            memcpy(&y[i], npy->data + 4 * i, sizeof y[i]);
        } else {
            memcpy(&value, npy->data + 8 * i, sizeof value);
            y[i] = (float)value;
        }
    }
    const struct tally_vector vector = {
        .y = y, .dim = npy->dim, .grid = &message->grid, .rng = &message->rng};
    enum tally_status status =
        message->encoding == NULL
            ? tally_dithered_encode(&vector, scratch, payload, &message->stats, &message->clipped,
                                    err)
            : tally_quantize_encode(message->encoding, &vector, scratch, payload, &message->stats,
                                    &message->clipped, err);
    free(y);
    return status;
}

static enum tally_status encode_array(const struct tally_npy *npy, struct message *message,
                                      struct tally_buffer *payload, struct tally_error *err)
{
    const bool holds_levels = npy->type == TALLY_NPY_INT8 || npy->type == TALLY_NPY_INT32;
    if (!holds_levels && npy->type != TALLY_NPY_FLOAT32 && npy->type != TALLY_NPY_FLOAT64) {
        return tally_fail(err, TALLY_MALFORMED, NULL,
                          "levels must be int8 or int32, vectors float32 or float64; convert the "
                          "array with astype()");
    }
    if (holds_levels && message->encoding == NULL) {
        return tally_fail(err, TALLY_MALFORMED, NULL,
                          "dithered rounds vectors, float32 or float64; it takes no levels");
    }
    if (npy->dim == 0 || npy->dim > MAX_DIM) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "%zu coordinates outside [1, %d]",
                          npy->dim, MAX_DIM);
    }
    int32_t *levels = malloc(npy->dim * sizeof *levels);
    if (levels == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu coordinates", npy->dim);
    }
    message->dim = npy->dim;
    enum tally_status status = holds_levels ? encode_levels(npy, levels, message, payload, err)
                                            : encode_vector(npy, levels, message, payload, err);
    free(levels);
    return status;
}

static enum tally_status encode_file(const char *path, struct message *message,
                                     struct tally_buffer *payload, struct tally_error *err)
{
    struct tally_buffer file = {.limit = (size_t)8 * MAX_DIM + 4096};
    struct tally_npy npy;
    enum tally_status status = tally_whole_file_read(path, &file, err);
    if (status == TALLY_OK) {
        status = tally_npy_parse(file.data, file.size, &npy, err);
        if (status == TALLY_OK) {
            status = encode_array(&npy, message, payload, err);
        }
        if (status != TALLY_OK) {
            tally_error_wrap(err, "%.200s", path);
        }
    }
    tally_buffer_fini(&file);
    return status;
}

int tally_cli_encode(struct tally_cli *cli)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct message message = {.clipped = 0};
    struct tally_buffer payload = {0};
    read_format(cli->options, &message, &err);
    if (err.status == TALLY_OK) {
        encode_file(tally_options_positional(cli->options, 0), &message, &payload, &err);
    }
    return finish(cli->options, &message, &payload, &err);
}

/* ---- decode ---- */

/* A decoded message, in the requested form. */
struct decoded {
    int32_t *levels; /* [dim] */
    double *values;  /* [dim]; NULL if levels are requested */
};

static enum tally_status decode_levels(const struct tally_buffer *file, struct message *message,
                                       struct decoded *decoded, struct tally_error *err)
{
    const enum tally_status status =
        message->encoding->decode(file->data, file->size, message->stats.payload_bits, message->dim,
                                  &message->grid, decoded->levels, &message->stats, err);
    for (size_t i = 0; status == TALLY_OK && decoded->values != NULL && i < message->dim; i++) {
        decoded->values[i] = decoded->levels[i] * message->grid.step;
    }
    return status;
}

/* The decoder returns a coordinate as q 2^32 - U, with U in [-2^31, 2^31). */
static enum tally_status decode_dithered(const struct tally_buffer *file, struct message *message,
                                         struct decoded *decoded, struct tally_error *err)
{
    int64_t *fixed = malloc(message->dim * sizeof *fixed);
    if (fixed == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu coordinates",
                          message->dim);
    }
    const enum tally_status status =
        tally_dithered_decode(file->data, file->size, message->stats.payload_bits, message->dim,
                              &message->grid, &message->rng, fixed, &message->stats, err);
    for (size_t i = 0; status == TALLY_OK && i < message->dim; i++) {
        if (decoded->values != NULL) {
            decoded->values[i] = (double)fixed[i] * 0x1p-32 * message->grid.step;
        }
        decoded->levels[i] = (int32_t)ceil(((double)fixed[i] - 0x1p31) * 0x1p-32);
    }
    free(fixed);
    return status;
}

/* Decodes the file at `path`, of message->stats.payload_bits bits, and appends its .npy. */
static enum tally_status decode_file(const char *path, struct message *message, bool as_values,
                                     struct tally_buffer *npy, struct tally_error *err)
{
    struct tally_buffer file = {.limit = (size_t)1 << 32};
    struct decoded decoded = {malloc(message->dim * sizeof *decoded.levels),
                              as_values ? malloc(message->dim * sizeof *decoded.values) : NULL};
    enum tally_status status = tally_whole_file_read(path, &file, err);
    if (status == TALLY_OK && (decoded.levels == NULL || (as_values && decoded.values == NULL))) {
        status =
            tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu coordinates", message->dim);
    }
    if (status == TALLY_OK) {
        status = message->encoding == NULL ? decode_dithered(&file, message, &decoded, err)
                                           : decode_levels(&file, message, &decoded, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "%.200s", path);
        }
    }
    if (status == TALLY_OK) {
        status = as_values ? tally_npy_append(TALLY_NPY_FLOAT64, decoded.values, message->dim, npy)
                           : tally_npy_append(TALLY_NPY_INT32, decoded.levels, message->dim, npy);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "%zu values: %s", message->dim,
                       tally_status_info(status)->title);
        }
    }
    free(decoded.levels);
    free(decoded.values);
    tally_buffer_fini(&file);
    return status;
}

int tally_cli_decode(struct tally_cli *cli)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct message message = {.clipped = 0};
    struct tally_buffer npy = {0};
    int64_t dim = 0, payload_bits = 0;
    read_format(cli->options, &message, &err);
    tally_options_integer(cli->options, "dim", 1, MAX_DIM, &dim, &err);
    tally_options_integer(cli->options, "payload-bits", 0, INT64_MAX, &payload_bits, &err);
    if (err.status == TALLY_OK) {
        message.dim = (size_t)dim;
        message.stats.payload_bits = (uint64_t)payload_bits;
        decode_file(tally_options_positional(cli->options, 0), &message,
                    tally_options_bool(cli->options, "values"), &npy, &err);
    }
    return finish(cli->options, &message, &npy, &err);
}

/* tally encode FILE: a vector or levels in .npy to the bits of a message. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/cli/codec_options.h"
#include "services/cli/commands/commands.h"
#include "services/cli/whole_file.h"
#include "services/objectives/data/loaders/npy.h"

const struct tally_option TALLY_CLI_ENCODE_OPTIONS[] = {
    {"out", "FILE", NULL, "where the payload goes; - is standard output; without it, nowhere",
     NULL},
    {"encoding", "NAME", "entropy", "encoding of the levels (codec/FORMAT.md)", NULL},
    {"intervals", "P", NULL, "intervals of the grid: levels are in [-P/2, P/2]; even", NULL},
    {"step", "S", "1", "step of the grid", NULL},
    {"seed", "N", "1", "seed of the random numbers that round a vector of floats", NULL},
    {0},
};

struct encoder {
    struct tally_codec_facts facts;
    int64_t seed;
    struct tally_buffer payload;
};

static enum tally_status encode_levels(struct encoder *encoder, const struct tally_npy *npy,
                                       int32_t *levels, struct tally_error *err)
{
    struct tally_codec_facts *facts = &encoder->facts;
    for (size_t i = 0; i < npy->dim; i++) {
        if (npy->type == TALLY_NPY_INT8) {
            const uint8_t byte = npy->data[i];
            levels[i] = byte < 128 ? byte : byte - 256;
        } else {
            memcpy(&levels[i], npy->data + 4 * i, sizeof levels[i]);
        }
    }
    return tally_levels_encode(facts->encoding, &facts->grid, levels, npy->dim, &encoder->payload,
                               &facts->stats, err);
}

static enum tally_status encode_vector(struct encoder *encoder, const struct tally_npy *npy,
                                       int32_t *scratch, struct tally_error *err)
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
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key((uint64_t)encoder->seed, 0), 0, 0, TALLY_RNG_UPLINK);
    struct tally_codec_facts *facts = &encoder->facts;
    const struct tally_vector vector = {.y = y, .dim = npy->dim, .grid = &facts->grid, .rng = &rng};
    enum tally_status status = tally_quantize_encode(
        facts->encoding, &vector, scratch, &encoder->payload, &facts->stats, &facts->clipped, err);
    free(y);
    return status;
}

static enum tally_status encode_file(struct encoder *encoder, const char *path,
                                     struct tally_error *err)
{
    struct tally_buffer file = {.limit = (size_t)8 * TALLY_CODEC_MAX_DIM + 4096};
    struct tally_npy npy;
    int32_t *levels = NULL;
    enum tally_status status = tally_whole_file_read(path, &file, err);
    if (status != TALLY_OK) {
        goto out;
    }
    status = tally_npy_parse(file.data, file.size, &npy, err);
    if (status == TALLY_OK && npy.type != TALLY_NPY_INT8 && npy.type != TALLY_NPY_INT32 &&
        npy.type != TALLY_NPY_FLOAT32 && npy.type != TALLY_NPY_FLOAT64) {
        status = tally_fail(err, TALLY_MALFORMED, NULL,
                            "levels are int8 or int32, vectors float32 or float64; convert the "
                            "array with astype()");
    }
    if (status == TALLY_OK && (npy.dim == 0 || npy.dim > TALLY_CODEC_MAX_DIM)) {
        status = tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "%zu coordinates outside [1, %d]",
                            npy.dim, TALLY_CODEC_MAX_DIM);
    }
    if (status == TALLY_OK) {
        levels = malloc(npy.dim * sizeof *levels);
        status = levels != NULL ? TALLY_OK
                                : tally_fail(err, TALLY_NO_MEMORY, NULL,
                                             "no memory for %zu coordinates", npy.dim);
    }
    if (status == TALLY_OK) {
        encoder->facts.dim = npy.dim;
        status = npy.type == TALLY_NPY_INT8 || npy.type == TALLY_NPY_INT32
                     ? encode_levels(encoder, &npy, levels, err)
                     : encode_vector(encoder, &npy, levels, err);
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "%.200s", path);
    }
out:
    free(levels);
    tally_buffer_fini(&file);
    return status;
}

int tally_cli_encode(struct tally_cli *cli)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct encoder encoder = {.seed = 0};
    enum tally_status status = tally_codec_encoding_of(cli->options, &encoder.facts.encoding, &err);
    if (status == TALLY_OK) {
        status = tally_codec_grid_of(cli->options, &encoder.facts.grid, &err);
    }
    if (status == TALLY_OK) {
        status = tally_options_integer(cli->options, "seed", 0, INT64_MAX, &encoder.seed, &err);
    }
    if (status == TALLY_OK) {
        status = encode_file(&encoder, tally_options_positional(cli->options, 0), &err);
    }
    int exit_code = TALLY_EXIT_OK;
    const char *out = tally_options_text(cli->options, "out");
    if (status != TALLY_OK) {
        exit_code = tally_cli_report_usage(&err);
    } else if (out != NULL && tally_whole_file_write(out, encoder.payload.data,
                                                     encoder.payload.size, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else {
        exit_code = tally_codec_print_facts(&encoder.facts, out);
    }
    tally_buffer_fini(&encoder.payload);
    return exit_code;
}

/* tally decode FILE: the bits of a message to levels, or values, in .npy. */
#include <stdlib.h>
#include <string.h>

#include "services/cli/codec_options.h"
#include "services/cli/commands/commands.h"
#include "services/cli/whole_file.h"
#include "services/objectives/data/loaders/npy.h"

const struct tally_option TALLY_CLI_DECODE_OPTIONS[] = {
    {"out", "FILE", NULL, "where the .npy goes; - is standard output; without it, nowhere", NULL},
    {"encoding", "NAME", "entropy", "encoding of the levels (codec/FORMAT.md)", NULL},
    {"dim", "N", NULL, "coordinates of the message", NULL},
    {"payload-bits", "B", NULL, "bits of the message, without padding", NULL},
    {"intervals", "P", NULL, "intervals of the grid: levels are in [-P/2, P/2]; even", NULL},
    {"step", "S", "1", "step of the grid", NULL},
    {"values", NULL, NULL, "write float64 values, level * step, in place of int32 levels", NULL},
    {0},
};

static enum tally_status append_levels(const struct tally_codec_facts *facts, bool as_values,
                                       const int32_t *levels, struct tally_buffer *npy)
{
    if (!as_values) {
        return tally_npy_append(TALLY_NPY_INT32, levels, facts->dim, npy);
    }
    double *values = malloc(facts->dim * sizeof *values);
    if (values == NULL) {
        return TALLY_NO_MEMORY;
    }
    for (size_t i = 0; i < facts->dim; i++) {
        values[i] = levels[i] * facts->grid.step;
    }
    enum tally_status status = tally_npy_append(TALLY_NPY_FLOAT64, values, facts->dim, npy);
    free(values);
    return status;
}

/* Decodes the file at `path`, of facts->stats.payload_bits bits, and appends its .npy. */
static enum tally_status decode_file(const char *path, struct tally_codec_facts *facts,
                                     bool as_values, struct tally_buffer *npy,
                                     struct tally_error *err)
{
    struct tally_buffer file = {.limit = (size_t)1 << 32};
    int32_t *levels = malloc(facts->dim * sizeof *levels);
    enum tally_status status = tally_whole_file_read(path, &file, err);
    if (status == TALLY_OK && levels == NULL) {
        status =
            tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu coordinates", facts->dim);
    }
    if (status == TALLY_OK) {
        status = facts->encoding->decode(file.data, file.size, facts->stats.payload_bits,
                                         facts->dim, &facts->grid, levels, &facts->stats, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "%.200s", path);
        }
    }
    if (status == TALLY_OK) {
        status = append_levels(facts, as_values, levels, npy);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "%zu values: %s", facts->dim,
                       tally_status_info(status)->title);
        }
    }
    free(levels);
    tally_buffer_fini(&file);
    return status;
}

static enum tally_status read_facts(const struct tally_options *options,
                                    struct tally_codec_facts *facts, struct tally_error *err)
{
    int64_t dim = 0, payload_bits = 0;
    enum tally_status status = tally_codec_encoding_of(options, &facts->encoding, err);
    if (status == TALLY_OK) {
        status = tally_codec_grid_of(options, &facts->grid, err);
    }
    if (status == TALLY_OK) {
        status = tally_options_integer(options, "dim", 1, TALLY_CODEC_MAX_DIM, &dim, err);
    }
    if (status == TALLY_OK) {
        status = tally_options_integer(options, "payload-bits", 0, INT64_MAX, &payload_bits, err);
    }
    facts->dim = (size_t)dim;
    facts->stats.payload_bits = (uint64_t)payload_bits;
    return status;
}

int tally_cli_decode(struct tally_cli *cli)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_codec_facts facts = {.clipped = 0};
    struct tally_buffer npy = {0};
    const char *out = tally_options_text(cli->options, "out");
    enum tally_status status = read_facts(cli->options, &facts, &err);
    if (status == TALLY_OK) {
        status = decode_file(tally_options_positional(cli->options, 0), &facts,
                             tally_options_bool(cli->options, "values"), &npy, &err);
    }
    int exit_code = TALLY_EXIT_OK;
    if (status != TALLY_OK) {
        exit_code = tally_cli_report_usage(&err);
    } else if (out != NULL && tally_whole_file_write(out, npy.data, npy.size, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else {
        exit_code = tally_codec_print_facts(&facts, out);
    }
    tally_buffer_fini(&npy);
    return exit_code;
}

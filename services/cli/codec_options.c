#include "services/cli/codec_options.h"

#include <stdio.h>
#include <string.h>

enum tally_status tally_codec_encoding_of(const struct tally_options *options,
                                          const struct tally_encoding **ret_encoding,
                                          struct tally_error *err)
{
    int index = 0;
    enum tally_status status =
        tally_options_choice(options, "encoding", TALLY_ENCODING_NAMES, &index, err);
    if (status == TALLY_OK) {
        *ret_encoding = TALLY_ENCODINGS[index];
    }
    return status;
}

enum tally_status tally_codec_grid_of(const struct tally_options *options,
                                      struct tally_grid *ret_grid, struct tally_error *err)
{
    int64_t intervals;
    double step;
    enum tally_status status =
        tally_options_integer(options, "intervals", 2, TALLY_MAX_INTERVALS, &intervals, err);
    if (status == TALLY_OK) {
        status = tally_options_real(options, "step", 1e-30, 1e30, &step, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_grid grid = {.step = step, .intervals = (uint32_t)intervals};
    if (!tally_grid_is_valid(&grid)) {
        return tally_options_refuse(
            options, "intervals", err,
            "%lld intervals of step %g are no quantizer: intervals are even", (long long)intervals,
            step);
    }
    *ret_grid = grid;
    return TALLY_OK;
}

static bool set_facts(struct tally_json *object, const struct tally_codec_facts *facts)
{
    bool ok = tally_json_set_text(object, "encoding", facts->encoding->name);
    ok = ok && tally_json_set_unsigned(object, "dim", facts->dim);
    ok = ok && tally_json_set_unsigned(object, "intervals", facts->grid.intervals);
    ok = ok && tally_json_set_real(object, "step", facts->grid.step);
    ok = ok && tally_json_set_unsigned(object, "payload_bits", facts->stats.payload_bits);
    ok = ok && tally_json_set_unsigned(object, "formula_bits", facts->stats.formula_bits);
    ok = ok && tally_json_set_unsigned(object, "nonzeros", facts->stats.nonzeros);
    return ok && tally_json_set_unsigned(object, "clipped", facts->clipped);
}

int tally_codec_print_facts(const struct tally_codec_facts *facts, const char *out)
{
    struct tally_json *object = tally_json_object();
    struct tally_buffer text = {0};
    bool ok = object != NULL && set_facts(object, facts);
    ok = ok && tally_json_dump(object, 0, &text) == TALLY_OK;
    ok = ok && tally_buffer_append(&text, "\n", 2) == TALLY_OK;
    int exit_code = TALLY_EXIT_OK;
    if (ok && out != NULL && strcmp(out, "-") == 0) {
        fputs((const char *)text.data, stderr);
    } else {
        text.size -= ok; /* the NUL */
        exit_code = tally_cli_print(ok ? TALLY_OK : TALLY_NO_MEMORY, &text);
    }
    tally_json_free(object);
    tally_buffer_fini(&text);
    return exit_code;
}

#include "services/base/options.h"

#include <stdlib.h>

#include "services/base/options_internal.h"

static bool allocate(struct tally_options *options, int argc)
{
    int table = 0, row = 0, n = 0;
    while (tally_options_next(options->spec, &table, &row) != NULL) {
        n++;
    }
    options->values = calloc((size_t)n + 1, sizeof options->values[0]);
    options->positionals = calloc((size_t)argc + 1, sizeof options->positionals[0]);
    if (options->values == NULL || options->positionals == NULL) {
        return false;
    }
    table = row = 0;
    for (options->n_values = 0; options->n_values < n; options->n_values++) {
        const struct tally_option *option = tally_options_next(options->spec, &table, &row);
        options->values[options->n_values] = (struct tally_option_value){
            .option = option,
            .text = option->fallback,
            .source = option->fallback != NULL ? TALLY_OPTION_DEFAULT : TALLY_OPTION_NONE,
        };
    }
    return true;
}

enum tally_status tally_options_new(const struct tally_options_spec *spec, int argc,
                                    char *const *argv, char *const *environment,
                                    struct tally_options **ret_options, struct tally_error *err)
{
    struct tally_options *options = calloc(1, sizeof *options);
    if (options == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    options->spec = spec;
    enum tally_status status = TALLY_OK;
    if (!allocate(options, argc)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    } else {
        status = tally_options_read_sources(options, argc, argv, environment, err);
    }
    if (status != TALLY_OK) {
        tally_options_free(options);
        return status;
    }
    *ret_options = options;
    return TALLY_OK;
}

void tally_options_free(struct tally_options *options)
{
    if (options != NULL) {
        for (int i = 0; i < options->n_values; i++) {
            free(options->values[i].joined);
            free(options->values[i].items);
        }
        free(options->values);
        free(options->positionals);
        free(options->config_text);
        free(options);
    }
}

enum tally_options_request tally_options_request(const struct tally_options *options)
{
    return options->request;
}

const char *tally_options_positional(const struct tally_options *options, int index)
{
    return index >= 0 && index < options->n_positionals ? options->positionals[index] : NULL;
}

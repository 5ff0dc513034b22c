/* What main() needs: errors, help and version printed, an exit code. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "services/base/options_internal.h"

enum { EXIT_USAGE = 2 };

int tally_options_usage_error(const struct tally_options_spec *spec, const struct tally_error *err)
{
    fprintf(stderr, "%s: %s\nTry '%s --help'.\n", spec->program, err->message, spec->program);
    return EXIT_USAGE;
}

static int print_help(const struct tally_options_spec *spec)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_options_help(spec, &text);
    bool ok = status == TALLY_OK && fwrite(text.data, 1, text.size, stdout) == text.size &&
              fflush(stdout) == 0;
    tally_buffer_fini(&text);
    return ok ? 0 : 1;
}

static int print_version(const struct tally_options_spec *spec)
{
    size_t n = strcspn(spec->program, " "); /* the program of "tally submit" is "tally" */
    bool ok = printf("%.*s %s\n", (int)n, spec->program, TALLY_VERSION) > 0 && fflush(stdout) == 0;
    return ok ? 0 : 1;
}

bool tally_options_start(const struct tally_options_spec *spec, int argc, char *const *argv,
                         struct tally_options **ret_options, int *ret_exit_code)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_options *options = NULL;
    if (tally_options_new(spec, argc, argv, environ, &options, &err) != TALLY_OK) {
        *ret_exit_code = tally_options_usage_error(spec, &err);
        return false;
    }
    if (options->request == TALLY_OPTIONS_RUN) {
        *ret_options = options;
        return true;
    }
    *ret_exit_code =
        options->request == TALLY_OPTIONS_HELP ? print_help(spec) : print_version(spec);
    tally_options_free(options);
    return false;
}

int tally_options_first_positional(const struct tally_options_spec *spec, int argc,
                                   char *const *argv)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1] != '\0') {
        const char *name = argv[i] + (argv[i][1] == '-' ? 2 : 1);
        if (strcmp(name, "h") == 0 || strcmp(name, "help") == 0 || strcmp(name, "version") == 0) {
            return argc;
        }
        size_t n = strcspn(name, "=");
        const struct tally_option *option = tally_options_find(spec, name, n);
        i += strcmp(argv[i], "-o") == 0                                  ? 2
             : option != NULL && option->value != NULL && name[n] != '=' ? 2
                                                                         : 1;
    }
    return i < argc ? i : argc;
}

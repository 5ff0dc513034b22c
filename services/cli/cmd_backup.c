/* tally backup FILE, tally restore FILE: copies a coordinator's database to a file and back. */
#include <stdio.h>

#include "services/base/progress_bar.h"
#include "services/cli/commands.h"
#include "storage/backends.h"

const struct tally_option TALLY_CLI_STORE_OPTIONS[] = {
    {"store", "URI", "sqlite:tally.db", "the coordinator's store, as its own --store", NULL},
    {"force", NULL, NULL, "replace an existing file or database", NULL},
    {0},
};

typedef enum tally_status copy_fn(const char *uri, const char *path, bool replace,
                                  const struct tally_store_progress *progress,
                                  struct tally_error *err);

/* Backup and restore differ only in the direction. */
static int run(struct tally_cli *cli, copy_fn *copy, const char *verb)
{
    const char *uri = tally_options_text(cli->options, "store");
    const char *path = tally_options_positional(cli->options, 0);
    struct tally_store_bar bar;
    struct tally_error err = TALLY_ERROR_INIT;
    tally_store_bar_init(&bar);
    enum tally_status status =
        copy(uri, path, tally_options_bool(cli->options, "force"), &bar.base, &err);
    tally_store_bar_end(&bar);
    if (status == TALLY_INVALID_ARGUMENT) {
        return tally_cli_report_usage(&err);
    }
    if (status != TALLY_OK) {
        return tally_cli_report(&err);
    }
    struct tally_buffer text = {0};
    return tally_cli_print(tally_buffer_printf(&text, "%s %s\n", verb, path), &text);
}

int tally_cli_backup(struct tally_cli *cli)
{
    return run(cli, tally_store_backup, "backed up to");
}

int tally_cli_restore(struct tally_cli *cli)
{
    return run(cli, tally_store_restore, "restored from");
}

/* cli: what every sub-command of `tally` is given, and how it talks to the coordinator and to
 * people.
 *
 * Results go to stdout, everything else to stderr. */
#ifndef TALLY_SERVICES_CLI_CLI_H
#define TALLY_SERVICES_CLI_CLI_H

#include "api/client/http_client.h"
#include "api/json/json.h"
#include "codec/base/buffer.h"
#include "codec/base/error.h"
#include "services/base/options/options.h"

/* Exit codes of `tally`; after a signal it is 128 + its number, as in a shell. */
enum {
    TALLY_EXIT_OK = 0,     /* done; the job completed */
    TALLY_EXIT_FAILED = 1, /* the job failed or was cancelled, the coordinator refused or is away */
    TALLY_EXIT_USAGE = 2,  /* the command line, a file it names, or the environment is wrong */
    TALLY_EXIT_TIMEOUT = 3, /* time ran out */
};

struct tally_cli {
    const struct tally_options *options;
    struct tally_http_client *client; /* NULL for sub-commands that need no coordinator */
    struct tally_buffer body;         /* of the last answer */
};

/* --coordinator and --token-file. */
extern const struct tally_option TALLY_CLI_COORDINATOR_OPTIONS[];

/* Makes the client that the options describe; nothing is sent yet. Errors: INVALID_ARGUMENT (URL,
 * token file), NO_MEMORY. */
enum tally_status tally_cli_init(struct tally_cli *cli, const struct tally_options *options,
                                 bool needs_coordinator, struct tally_error *err);
void tally_cli_fini(struct tally_cli *cli);

/* Sends and receives into cli->body. An answer outside 2xx is an error: that of the problem
 * document. Other errors: those of tally_http_perform(). */
enum tally_status tally_cli_call(struct tally_cli *cli, struct tally_http_exchange *exchange,
                                 struct tally_error *err);
/* The same, and parses the answer; the caller frees *ret_value. Further errors: MALFORMED. */
enum tally_status tally_cli_call_json(struct tally_cli *cli, struct tally_http_exchange *exchange,
                                      struct tally_json **ret_value, struct tally_error *err);
/* GET `path` as JSON. */
enum tally_status tally_cli_get_json(struct tally_cli *cli, const char *path,
                                     struct tally_json **ret_value, struct tally_error *err);

/* Prints "field: message", or "tally: message" where there is no field, on stderr, and returns the
 * exit code that the status means. */
int tally_cli_report(const struct tally_error *err);
/* The same for a mistake of the user's: returns TALLY_EXIT_USAGE. */
int tally_cli_report_usage(const struct tally_error *err);

/* Writes `text` to stdout at once if `made`, the status of making it, is OK, and reports it
 * otherwise. Returns an exit code. A reader that left (EPIPE) is not worth a message. */
int tally_cli_print(enum tally_status made, const struct tally_buffer *text);
/* Prints JSON and a newline; `indent` as tally_json_dump(). */
int tally_cli_print_json(const struct tally_json *value, int indent);

#endif

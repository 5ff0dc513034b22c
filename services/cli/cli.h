/* cli: what each sub-command of `tally` receives, how it prints, and its exit codes.
 *
 * Results go to stdout, everything else to stderr. */
#ifndef TALLY_SERVICES_CLI_CLI_H
#define TALLY_SERVICES_CLI_CLI_H

#include "codec/buffer.h"
#include "services/base/options.h"
#include "services/base/progress_bar.h"
#include "services/base/rest_client.h"

struct tally_job_spec;

/* Exit codes of `tally`; after a signal it is 128 + its number, as in a shell. */
enum {
    TALLY_EXIT_OK = 0,      /* done; the job completed */
    TALLY_EXIT_FAILED = 1,  /* the job failed or was cancelled; the coordinator rejected the request
                             * or is unreachable */
    TALLY_EXIT_USAGE = 2,   /* the command line, a file it names, or the environment is wrong */
    TALLY_EXIT_TIMEOUT = 3, /* the time limit passed */
};

struct tally_cli {
    const struct tally_options *options;
    struct tally_rest_client rest;         /* zeroed for sub-commands that need no coordinator */
    char job[TALLY_JOB_WORD_CAPACITY];     /* the first argument, if it is a job's name */
    struct tally_progress_painter sending; /* of a long request; on stderr */
};

/* --coordinator, --token-file, --tls-ca. */
extern const struct tally_option TALLY_CLI_COORDINATOR_OPTIONS[];

/* Creates the client that the options describe; sends nothing. Errors: INVALID_ARGUMENT (URL, token
 * file), NO_MEMORY. */
enum tally_status tally_cli_init(struct tally_cli *cli, const struct tally_options *options,
                                 bool needs_coordinator, struct tally_error *err);
void tally_cli_fini(struct tally_cli *cli);

/* Parses the job document in the file that the first argument names (- is standard input), with the
 * edits of --set. *ret_faults: the faults of an invalid document, which the caller frees; else
 * NULL. Members that the document leaves open are found in the folder of --data-dir. Errors: those
 * of tally_document_text_read(), tally_cli_complete() and tally_document_parse(). */
enum tally_status tally_cli_read_document(const struct tally_cli *cli,
                                          struct tally_job_spec *ret_spec,
                                          struct tally_json **ret_faults, struct tally_error *err);
/* Completes a document from its CSV file in the folder (document_complete.h), and prints what was
 * found, and the errors of the file, on stderr. Errors: those of tally_document_complete(). */
enum tally_status tally_cli_complete(const char *data_dir, struct tally_buffer *text,
                                     struct tally_error *err);
/* Prints an error in a data file on stderr, for struct tally_data_source. */
void tally_cli_report_fault(void *context, const char *fault);
/* Prints faults on stderr, if they say more than the error that was reported. NULL = none. */
void tally_cli_report_faults(const struct tally_json *faults);
/* Calls tally_cli_report_usage(), prints the faults and frees them. */
int tally_cli_refuse_document(struct tally_json *faults, const struct tally_error *err);

/* Prints "field: message", or "tally: message" if there is no field, on stderr. Returns the exit
 * code for the status. */
int tally_cli_report(const struct tally_error *err);
/* As tally_cli_report(), for a usage error: returns TALLY_EXIT_USAGE. */
int tally_cli_report_usage(const struct tally_error *err);

/* Writes `text` to stdout if `made`, the status of making it, is OK; else reports that status.
 * Frees the text. Returns an exit code. If the reader has closed the pipe (EPIPE), prints no
 * message. */
int tally_cli_print(enum tally_status made, struct tally_buffer *text);
/* Prints JSON and a newline; `indent` as tally_json_dump(). A NULL value is reported as out of
 * memory. */
int tally_cli_print_json(const struct tally_json *value, int indent);
/* Prints JSON over several lines and frees the value. */
int tally_cli_take_json(struct tally_json *value);

#endif

/* job_source: a job that a command is given: at the coordinator, in a bundle, or as the detail that
 * `tally show --json` or `tally simulate --json` has printed. */
#ifndef TALLY_SERVICES_CLI_JOB_SOURCE_H
#define TALLY_SERVICES_CLI_JOB_SOURCE_H

#include "services/cli/cli.h"
#include "services/job/job_spec.h"

struct tally_job_source {
    struct tally_json *detail;   /* owned */
    struct tally_json *document; /* owned */
};

/* Whether a command's argument is a file: one of this name exists, other than a folder. */
bool tally_job_source_is_file(const char *word);

/* Reads the job that `word` names: a file, or else a job of the coordinator. The caller calls fini,
 * also on failure. Errors: INVALID_ARGUMENT and MALFORMED (neither a bundle nor a detail), those of
 * tally_bundle_read() and of tally_job_get_json(). */
enum tally_status tally_job_source_read(struct tally_cli *cli, const char *word,
                                        struct tally_job_source *ret_source,
                                        struct tally_error *err);
/* Parses its document. Errors: those of tally_document_parse(), NO_MEMORY. */
enum tally_status tally_job_source_spec(const struct tally_job_source *source,
                                        struct tally_job_spec *ret_spec, struct tally_error *err);
void tally_job_source_fini(struct tally_job_source *source);

/* Whether the member of a detail belongs to the document. */
bool tally_job_source_is_of_document(const char *key);

/* ---- What the results of two runs of a job have in common. */

/* A difference. `a`, `b`: the member at `path` of either value; NULL = there is none. */
typedef void tally_difference_fn(void *context, const char *path, const struct tally_json *a,
                                 const struct tally_json *b);

/* Calls `each` for every member, on all levels of objects, that the values do not share. Returns
 * how many there are. Numbers differ if their texts do. */
int tally_differences(const struct tally_json *a, const struct tally_json *b,
                      tally_difference_fn *each, void *context);
/* The same for the results in two details: what depends on neither time nor network. */
int tally_result_differences(const struct tally_json *a, const struct tally_json *b,
                             tally_difference_fn *each, void *context);
/* The same for the programs, machines and code in two details, apart from data and rounds. */
int tally_program_differences(const struct tally_json *a, const struct tally_json *b,
                              tally_difference_fn *each, void *context);
/* The digest of the data that the coordinator of a detail has read, or else all of its workers;
 * NULL = not known. */
const char *tally_detail_data(const struct tally_json *detail);

/* One cell of a table: a text without quotes, "-" for NULL and null, any other value as JSON. */
enum { TALLY_DIFFERENCE_CAPACITY = 160 };
void tally_difference_cell(const struct tally_json *value,
                           char ret_text[TALLY_DIFFERENCE_CAPACITY]);

#endif

/* document_text: the job document that a command is given, as text: the file that the first
 * argument names, with the edits of --set; and the list of its faults, for people.
 *
 *     tally simulate job.json --set algorithm.step_size=0.1 --set name=trial
 *
 * A value that is valid JSON is taken as JSON, any other as text: `--set 'name="7"'` is the text 7.
 * All that follows "labels." is one key, dots included, and the value is always a text.
 * Missing objects on the path of a member are created. */
#ifndef TALLY_SERVICES_CLI_DOCUMENT_DOCUMENT_TEXT_H
#define TALLY_SERVICES_CLI_DOCUMENT_DOCUMENT_TEXT_H

#include "api/json/json.h"
#include "codec/base/buffer.h"
#include "services/base/options/options.h"

/* A row for the options of a command. Edits are separated by ':' in the environment and in config
 * files; a ':' begins an edit only if "path=" follows it. */
#define TALLY_DOCUMENT_SET_OPTION                                                                  \
    {                                                                                              \
        "set", "PATH=VALUE...", NULL,                                                              \
            "replace a member of the document, such as algorithm.step_size=0.1; may be given "     \
            "several times",                                                                       \
            NULL                                                                                   \
    }

/* Reads the file that the first argument names, - is standard input, and edits it. Appends at most
 * out->limit bytes. Errors: those of tally_whole_file_read(); of the edits, INVALID_ARGUMENT;
 * MALFORMED if there are edits and the file is not a JSON object. */
enum tally_status tally_document_text_read(const struct tally_options *options,
                                           struct tally_buffer *out, struct tally_error *err);

/* The same edits on a text. `edits` has the form of the option's text. Replaces *text. */
enum tally_status tally_document_text_edit(const char *edits, struct tally_buffer *text,
                                           struct tally_error *err);

/* Appends one line per fault, "  field: detail\n", if they say more than `err` does alone: an array
 * as of tally_document_faults(), or NULL. */
enum tally_status tally_document_text_faults(const struct tally_json *faults,
                                             struct tally_buffer *out);

#endif

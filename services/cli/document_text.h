/* document_text: the text of a command's job document, which is the file that the first argument
 * names, with the edits of --set; and a readable list of its faults.
 *
 *     tally simulate job.json --set algorithm.step_size=0.1 --set name=trial
 *
 * A value that is valid JSON is used as JSON, any other as text. For a member that is a text, such
 * as `name`, a number is a text, too. Everything after "labels." is one key, dots included, and the
 * value is always a text. Missing objects along a path are created. */
#ifndef TALLY_SERVICES_CLI_DOCUMENT_TEXT_H
#define TALLY_SERVICES_CLI_DOCUMENT_TEXT_H

#include "api/json/json.h"
#include "codec/buffer.h"
#include "services/base/options.h"

/* An entry for a command's table of options. Edits are separated by ':' in the environment and in
 * config files; a ':' begins an edit only if "path=" follows it. */
#define TALLY_DOCUMENT_SET_OPTION                                                                  \
    {                                                                                              \
        "set", "PATH=VALUE...", NULL,                                                              \
            "replace a member of the document, such as algorithm.step_size=0.1; may be given "     \
            "several times",                                                                       \
            NULL                                                                                   \
    }

/* Reads the file that the first argument names (- is standard input) and applies the edits. Appends
 * at most out->limit bytes. Errors: those of tally_whole_file_read(); INVALID_ARGUMENT (a bad
 * edit); MALFORMED if there are edits and the file is not a JSON object. */
enum tally_status tally_document_text_read(const struct tally_options *options,
                                           struct tally_buffer *out, struct tally_error *err);

/* Applies edits to a text, which it replaces. `edits` has the form of the option's text. */
enum tally_status tally_document_text_edit(const char *edits, struct tally_buffer *text,
                                           struct tally_error *err);

/* Appends one line per fault, "  field: detail\n", if the faults say more than the error itself.
 * `faults` is an array as of tally_document_faults(), or NULL. */
enum tally_status tally_document_text_faults(const struct tally_json *faults,
                                             struct tally_buffer *out);

#endif

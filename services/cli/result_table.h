/* result_table: a job's detail as a table.
 *
 *   job         ab12  synthetic-ceal
 *   status      completed
 *   algorithm   ceal, encoding unary, 10 clients
 *   time step   2000 / 2000
 *   ...
 *                formula  payload  messages  clipped
 *   uplink          2633     2890        40        0
 *
 * Numbers are written as in the JSON, so that they can be compared digit by digit. */
#ifndef TALLY_SERVICES_CLI_RESULT_TABLE_H
#define TALLY_SERVICES_CLI_RESULT_TABLE_H

#include "api/json/json.h"

/* Appends the table of a job detail (services/job/job_detail.h). Members that are missing or null
 * are shown as "-", `reason` only if there is one. Errors: NO_MEMORY. */
enum tally_status tally_result_table_render(const struct tally_json *detail,
                                            struct tally_buffer *out);
/* The same table in lines of at most `columns`, if the numbers allow it: words are wrapped, and
 * from the bits first `clipped` and then `messages` is omitted. 0 = lines of any length. */
enum tally_status tally_result_table_fit(const struct tally_json *detail, int columns,
                                         struct tally_buffer *out);

enum { TALLY_RESULT_CELL_CAPACITY = 400 };
/* One member as shown in tables: texts without quotes, "-" for missing and null, other values as
 * JSON; truncated at the capacity. */
void tally_result_cell(const struct tally_json *object, const char *key,
                       char ret_text[TALLY_RESULT_CELL_CAPACITY]);

#endif

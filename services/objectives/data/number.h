/* number: decimal text to double, strictly and whatever the locale.
 *
 *     [+-] digits [. digits] [e [+-] digits]      at least one digit before the e, only ASCII
 *
 * No blanks, no hexadecimal, no NaN or infinity. Rounds correctly to nearest. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_NUMBER_H
#define TALLY_SERVICES_OBJECTIVES_DATA_NUMBER_H

#include <stdbool.h>

enum { TALLY_NUMBER_CAPACITY = 128 }; /* of a number's text, with its NUL */

/* NULL, or what is wrong with the text: "is not a number", "is too large for a double" ... */
const char *tally_number_parse(const char *text, double *ret_value);

/* Whether a field of a table stands for no value: empty, "?", or NA, N/A, nan or null in any case,
 * nan also with a sign. */
bool tally_number_is_missing(const char *text);

#endif

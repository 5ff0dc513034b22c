#include "services/objectives/data/number.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>

static const char *skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9') {
        at++;
    }
    return at;
}

static bool is_number(const char *text)
{
    const char *begin = text + (*text == '+' || *text == '-');
    const char *at = skip_digits(begin);
    long n_digits = at - begin;
    if (*at == '.') {
        begin = at + 1;
        at = skip_digits(begin);
        n_digits += at - begin;
    }
    if (n_digits > 0 && (*at == 'e' || *at == 'E')) {
        begin = at + 1 + (at[1] == '+' || at[1] == '-');
        at = skip_digits(begin);
        n_digits = at - begin;
    }
    return n_digits > 0 && *at == '\0';
}

static bool is_not_finite(const char *text)
{
    static const char *const words[] = {"nan", "inf", "infinity", "na", "n/a", "null"};
    text += *text == '+' || *text == '-';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool tally_number_is_missing(const char *text)
{
    static const char *const words[] = {"", "?", "na", "n/a", "null", "nan", "+nan", "-nan"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

const char *tally_number_parse(const char *text, double *ret_value)
{
    if (!is_number(text)) {
        return *text == '\0'         ? "is empty"
               : is_not_finite(text) ? "is not finite"
                                     : "is not a number";
    }
    /* The C locale is a constant of the library: this allocates nothing. */
    const double value = strtod_l(text, NULL, newlocale(LC_ALL_MASK, "C", (locale_t)0));
    if (!isfinite(value)) {
        return "is too large for a double";
    }
    *ret_value = value;
    return NULL;
}

/* json_limits: the size of a JSON text, measured without parsing it into values. */
#include "api/json/json.h"

/* Returns the end of the text whose opening quote precedes text[at]. */
static size_t skip_text(const char *text, size_t n, size_t at)
{
    while (at < n && text[at] != '"') {
        at += text[at] == '\\' ? 2 : 1;
    }
    return at;
}

enum tally_status tally_json_check_limits(const char *text, size_t n,
                                          const struct tally_json_limits *limits,
                                          struct tally_error *err)
{
    size_t n_values = 0, depth = 0;
    if (n > limits->bytes) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "the document has %zu bytes, the limit is %zu", n, limits->bytes);
    }
    for (size_t at = 0; at < n; at++) {
        switch (text[at]) {
        case '"':
            at = skip_text(text, n, at + 1);
            break;
        case '{':
        case '[': /* the bracket begins the first value; commas begin the others */
            depth++;
            n_values++;
            break;
        case '}':
        case ']':
            depth -= depth > 0;
            break;
        case ',':
            n_values++;
            break;
        default:
            break;
        }
        if (n_values > limits->values) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "the document has more than %zu members and elements, the limit",
                              limits->values);
        }
        if (depth > limits->depth) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "the document nests more than %zu objects and arrays, the limit",
                              limits->depth);
        }
    }
    return TALLY_OK;
}

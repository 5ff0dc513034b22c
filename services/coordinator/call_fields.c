/* call_fields: what a handler reads of its request. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "services/coordinator/call.h"

enum tally_status read_body(struct call *call, const char *content_type, const uint8_t **ret_body,
                            size_t *ret_size, struct tally_error *err)
{
    const char *type = tally_http_header(call->request, "Content-Type");
    size_t n = type != NULL ? strcspn(type, "; \t") : 0;
    if (type == NULL || n != strlen(content_type) || strncasecmp(type, content_type, n) != 0) {
        return tally_fail(err, TALLY_UNSUPPORTED_MEDIA_TYPE, "Content-Type",
                          "Content-Type must be %s", content_type);
    }
    const char *encoding = tally_http_header(call->request, "Content-Encoding");
    if (encoding != NULL && strcasecmp(encoding, "identity") != 0) {
        return tally_fail(err, TALLY_UNSUPPORTED_MEDIA_TYPE, "Content-Encoding",
                          "the body is compressed (%.16s); send it uncompressed", encoding);
    }
    *ret_body = tally_http_body(call->request, ret_size);
    return TALLY_OK;
}

enum tally_status read_query_integer(struct call *call, const char *name, int64_t min, int64_t max,
                                     int64_t otherwise, int64_t *ret_value, struct tally_error *err)
{
    const char *text = tally_http_query(call->request, name);
    if (text == NULL) {
        *ret_value = otherwise;
        return TALLY_OK;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    /* strtoll() would also take " 5" and "+5". */
    const bool is_plain = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
    if (!is_plain || end == text || *end != '\0' || errno != 0 || value < min || value > max) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, name, "%s %.64s outside [%lld, %lld]", name,
                          text, (long long)min, (long long)max);
    }
    *ret_value = value;
    return TALLY_OK;
}

bool accepts(const char *list, const char *name)
{
    const size_t n_wanted = strlen(name);
    const char *at = list;
    while (*at != '\0') {
        at += strspn(at, ", \t");
        const size_t n = strcspn(at, ",");
        const size_t n_name = strcspn(at, "; \t,");
        const char *q = memmem(at, n, "q=", 2);
        const bool is_refused = q != NULL && strtod(q + 2, NULL) <= 0;
        if (n_name == n_wanted && strncasecmp(at, name, n_wanted) == 0 && !is_refused) {
            return true;
        }
        at += n;
    }
    return false;
}

/* postgres_text: encodes any bytes but NUL as text that PostgreSQL accepts, and back.
 *
 * A reason that was cut in the middle of a character must not keep a job from being marked as
 * failed. Valid UTF-8 is stored as it is. A byte b in 0x80 to 0xff that is not part of a valid
 * sequence is stored as the character U+10FF00 + b of the last private area. The bytes of such a
 * character in the text itself count as an invalid sequence, so that decoding is unique:
 *
 *     "M\xfcller"  ->  "M", U+10FFFC, "ller" */
#include <string.h>

#include "codec/utf8.h"
#include "storage/postgres/postgres_internal.h"

enum { N_ESCAPED = 4 }; /* bytes of U+10FF80 to U+10FFFF: f4 8f be|bf 80..bf */

static bool is_escaped(const unsigned char *bytes, size_t n)
{
    return n >= N_ESCAPED && bytes[0] == 0xf4 && bytes[1] == 0x8f &&
           (bytes[2] == 0xbe || bytes[2] == 0xbf) && (bytes[3] & 0xc0) == 0x80;
}

enum tally_status tally_pg_text_encode(struct tally_buffer *out, const char *text)
{
    const unsigned char *rest = (const unsigned char *)text;
    enum tally_status status = TALLY_OK;
    while (rest[0] != '\0' && status == TALLY_OK) {
        uint32_t point;
        const size_t n = tally_utf8_next((const char *)rest, &point);
        const bool is_valid = n > 1 || point != TALLY_UTF8_INVALID;
        if (is_valid && !is_escaped(rest, n)) {
            status = tally_buffer_append(out, rest, n);
            rest += n;
        } else {
            unsigned char escaped[N_ESCAPED] = {0xf4, 0x8f, (unsigned char)(0xbc | (rest[0] >> 6)),
                                                (unsigned char)(0x80 | (rest[0] & 0x3f))};
            status = tally_buffer_append(out, escaped, N_ESCAPED);
            rest++;
        }
    }
    return status;
}

bool tally_pg_text_decode(const char *stored, size_t n, char *ret_text, size_t capacity)
{
    const unsigned char *rest = (const unsigned char *)stored;
    size_t n_text = 0;
    while (n > 0) {
        bool escaped = is_escaped(rest, n);
        if (n_text + 1 >= capacity || rest[0] == '\0') {
            return false;
        }
        ret_text[n_text++] =
            escaped ? (char)(((rest[2] & 3) << 6) | (rest[3] & 0x3f)) : (char)rest[0];
        rest += escaped ? N_ESCAPED : 1;
        n -= escaped ? N_ESCAPED : 1;
    }
    memset(ret_text + n_text, 0, capacity - n_text);
    return true;
}

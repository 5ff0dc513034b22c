#include "codec/utf8.h"

#include <string.h>

/* Length of the valid character at p[n], 0 if there is none. The limits of the second byte exclude
 * overlong forms (E0, F0), surrogates (ED) and what lies past U+10FFFF (F4): RFC 3629, section 4.
 */
static size_t character_bytes(const uint8_t *p, size_t n)
{
    if (p[0] < 0x80) {
        return 1;
    }
    size_t size = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n < size) {
        return 0;
    }
    uint8_t low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if (p[i] < 0x80 || p[i] > 0xBF) {
            return 0;
        }
    }
    return size;
}

size_t tally_utf8_mark(const void *text, size_t n)
{
    return n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

size_t tally_utf8_valid_prefix(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        size_t size = character_bytes((const uint8_t *)text + at, n - at);
        if (size == 0) {
            return at;
        }
        at += size;
    }
    return n;
}

size_t tally_utf8_next(const char *text, uint32_t *ret_code_point)
{
    const uint8_t *p = (const uint8_t *)text;
    /* Four bytes at most; the NUL ends a character that is cut short. */
    size_t size = p[0] != 0 ? character_bytes(p, strnlen(text, 4)) : 0;
    uint32_t point = TALLY_UTF8_INVALID;
    if (size <= 1) {
        *ret_code_point = size == 1 || p[0] == 0 ? p[0] : point;
        return p[0] != 0;
    }
    point = p[0] & (0x7FU >> size);
    for (size_t i = 1; i < size; i++) {
        point = point << 6 | (p[i] & 0x3FU);
    }
    *ret_code_point = point;
    return size;
}

bool tally_utf8_is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7F && point < 0xA0) ||
           (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

size_t tally_utf8_find_control(const char *text)
{
    const char *at = text;
    uint32_t point;
    for (size_t n; (n = tally_utf8_next(at, &point)) > 0; at += n) {
        if (tally_utf8_is_control(point)) {
            break;
        }
    }
    return (size_t)(at - text);
}

void tally_utf8_sanitize_line(char *text)
{
    uint32_t point;
    for (size_t n; (n = tally_utf8_next(text, &point)) > 0; text += n) {
        if (tally_utf8_is_control(point)) {
            memset(text, ' ', n);
        } else if (n == 1 && point == TALLY_UTF8_INVALID) {
            *text = '?';
        }
    }
}

#include "services/program/utf8.h"

size_t tally_utf8_next(const char *text, uint32_t *ret_code_point)
{
    const unsigned char *b = (const unsigned char *)text;
    uint32_t lead = b[0];
    *ret_code_point = lead;
    if (lead < 0x80) {
        return lead != 0 ? 1 : 0;
    }
    size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    static const uint32_t LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
    *ret_code_point = TALLY_UTF8_INVALID;
    if (lead < 0xC2 || lead > 0xF4) {
        return 1;
    }
    uint32_t point = lead & (0x7FU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((b[i] & 0xC0) != 0x80) {
            return 1;
        }
        point = point << 6 | (b[i] & 0x3FU);
    }
    if (point < LEAST[n] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
        return 1;
    }
    *ret_code_point = point;
    return n;
}

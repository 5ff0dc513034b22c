#include "tests/bench/zstd_yardstick.h"

#ifdef TALLY_HAVE_ZSTD

#include <zstd.h>

enum { LEVEL = 1 };

bool tally_zstd_is_there(void)
{
    return true;
}

size_t tally_zstd_bound(size_t n)
{
    return ZSTD_compressBound(n);
}

size_t tally_zstd_compress(const void *bytes, size_t n, void *out, size_t capacity)
{
    const size_t written = ZSTD_compress(out, capacity, bytes, n, LEVEL);
    return ZSTD_isError(written) ? 0 : written;
}

size_t tally_zstd_decompress(const void *bytes, size_t n, void *out, size_t capacity)
{
    const size_t written = ZSTD_decompress(out, capacity, bytes, n);
    return ZSTD_isError(written) ? 0 : written;
}

#else

bool tally_zstd_is_there(void)
{
    return false;
}

size_t tally_zstd_bound(size_t n)
{
    (void)n;
    return 0;
}

size_t tally_zstd_compress(const void *bytes, size_t n, void *out, size_t capacity)
{
    (void)bytes;
    (void)n;
    (void)out;
    (void)capacity;
    return 0;
}

size_t tally_zstd_decompress(const void *bytes, size_t n, void *out, size_t capacity)
{
    return tally_zstd_compress(bytes, n, out, capacity);
}

#endif

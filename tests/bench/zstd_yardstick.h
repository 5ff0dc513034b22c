/* zstd_yardstick: zstd's fastest ordinary level, as a yardstick for tests/bench. The only user of
 * zstd.h; a build without the library has no such yardstick. */
#ifndef TALLY_TESTS_BENCH_ZSTD_YARDSTICK_H
#define TALLY_TESTS_BENCH_ZSTD_YARDSTICK_H

#include <stdbool.h>
#include <stddef.h>

bool tally_zstd_is_there(void);

/* Bytes that compress() may need for n. */
size_t tally_zstd_bound(size_t n);

/* Both return the bytes written, 0 on failure. */
size_t tally_zstd_compress(const void *bytes, size_t n, void *out, size_t capacity);
size_t tally_zstd_decompress(const void *bytes, size_t n, void *out, size_t capacity);

#endif

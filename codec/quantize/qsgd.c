#include "codec/quantize/qsgd.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "codec/numeric/bits.h"
#include "codec/numeric/fixed_point.h"
#include "codec/quantize/qsgd_kernels.h"
#include "codec/quantize/quantizer_kernels.h"

/* ceil(log2(s + 1)): the bits of s itself. */
static unsigned level_width(uint32_t s)
{
    return 32 - (unsigned)__builtin_clz(s);
}

uint64_t tally_qsgd_bits(uint32_t s, size_t dim)
{
    return 32 + (uint64_t)dim * (1 + level_width(s));
}

/* The norm rounded up, so that no coordinate exceeds it. Fills words[dim] with the coordinates'
 * draws: the sum has to wait for each addition, and there is time to draw. */
static enum tally_status norm_of(const float *y, size_t dim, const struct tally_rng *rng,
                                 uint32_t *words, float *ret_norm, struct tally_error *err)
{
    double square = 0; /* finite if all coordinates are: it has room for all squares of floats */
    for (size_t at = 0, n; at < dim; at += n) {
        uint32_t last[TALLY_RNG_LANES];
        n = dim - at < TALLY_RNG_LANES ? dim - at : TALLY_RNG_LANES;
        tally_rng_lanes(rng, (uint32_t)(at / TALLY_RNG_LANES),
                        n == TALLY_RNG_LANES ? words + at : last);
        if (n < TALLY_RNG_LANES) {
            memcpy(words + at, last, n * sizeof *words);
        }
        for (size_t i = at; i < at + n; i++) {
            square += (double)y[i] * (double)y[i];
        }
    }
    for (size_t i = 0; !isfinite(square) && i < dim; i++) {
        if (!isfinite(y[i])) {
            return tally_quantize_refuse(y, i, dim, err);
        }
    }
    const double exact = sqrt(square);
    float norm = (float)exact;
    if ((double)norm < exact) {
        norm = nextafterf(norm, INFINITY);
    }
    if (!isfinite(norm)) {
        return tally_fail(err, TALLY_NOT_FINITE, NULL, "the norm %g is not a float32", exact);
    }
    *ret_norm = norm;
    return TALLY_OK;
}

void tally_qsgd_round_ref(uint32_t s, double scale, const float *y, size_t n, int32_t *levels)
{
    tally_qsgd_round(s, scale, y, n, levels);
}

tally_qsgd_kernel *tally_qsgd_kernel_for(enum tally_cpu cpu)
{
    static tally_qsgd_kernel *const kernels[TALLY_N_CPUS] = {
        [TALLY_CPU_PORTABLE] = tally_qsgd_round_ref,
#ifdef TALLY_X86_64
        [TALLY_CPU_AVX2] = tally_qsgd_round_avx2,
        [TALLY_CPU_AVX512] = tally_qsgd_round_avx512,
#endif
    };
    return kernels[cpu];
}

enum tally_status tally_qsgd_quantize(uint32_t s, const float *y, size_t dim,
                                      const struct tally_rng *rng, struct tally_qsgd *ret_qsgd,
                                      int32_t *levels, struct tally_error *err)
{
    struct tally_qsgd qsgd = {.levels = s};
    enum tally_status status = norm_of(y, dim, rng, (uint32_t *)levels, &qsgd.norm, err);
    if (status != TALLY_OK) {
        return status;
    }
    const double scale = qsgd.norm > 0 ? (double)s / (double)qsgd.norm : 0;
    tally_qsgd_kernel_for(tally_cpu_used())(s, scale, y, dim, levels);
    *ret_qsgd = qsgd;
    return TALLY_OK;
}

enum tally_status tally_qsgd_encode(const struct tally_qsgd *qsgd, const int32_t *levels,
                                    size_t dim, uint8_t *data, size_t capacity)
{
    const unsigned width = 1 + level_width(qsgd->levels);
    const size_t most = 64 / width; /* codes in a word */
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, data, capacity);
    uint32_t norm_bits;
    memcpy(&norm_bits, &qsgd->norm, sizeof norm_bits);
    tally_bit_write(&writer, norm_bits, 32);
    for (size_t at = 0, n; at < dim; at += n) {
        uint64_t codes = 0;
        n = dim - at < most ? dim - at : most;
        for (size_t i = 0; i < n; i++) {
            const int32_t level = levels[at + i];
            codes |= (uint64_t)(tally_magnitude(level) << 1 | (level < 0)) << i * width;
        }
        tally_bit_write(&writer, codes, (unsigned)n * width);
    }
    tally_bit_writer_finish(&writer);
    return writer.overflow ? TALLY_OUT_OF_RANGE : TALLY_OK;
}

enum { BLOCK = 256, NORM_BITS = 32 };

/* Reads whole blocks of levels, each level with one load, up to the last bytes of the message or a
 * block with a fault, which is left to read_levels(). Returns how many levels it has read. */
static size_t read_blocks(struct tally_bit_reader *reader, const uint8_t *data, size_t n_bytes,
                          uint32_t s, size_t dim, float norm, int32_t *levels)
{
    const unsigned width = 1 + level_width(s);
    const uint64_t mask = (UINT64_C(1) << width) - 1;
    const int32_t top = norm > 0 ? (int32_t)s : 0;
    size_t n = 0;
    while (dim - n >= BLOCK && (reader->position + (uint64_t)BLOCK * width) / 8 + 8 <= n_bytes) {
        uint32_t n_faults = 0;
        uint64_t position = reader->position;
        for (size_t i = n; i < n + BLOCK; i++, position += width) {
            uint64_t word = 0;
            for (unsigned b = 0; b < 8; b++) { /* one load, where the processor has that order */
                word |= (uint64_t)data[position / 8 + b] << 8 * b;
            }
            const uint32_t bits = (uint32_t)(word >> position % 8 & mask);
            const int32_t magnitude = (int32_t)(bits >> 1);
            n_faults += magnitude > top || bits == 1;
            levels[i] = (bits & 1) != 0 ? -magnitude : magnitude;
        }
        if (n_faults > 0) {
            break;
        }
        reader->position = position;
        n += BLOCK;
    }
    return n;
}

/* Reads the levels of coordinates `first` .. dim - 1 into levels[dim - first]. */
static enum tally_status read_levels(struct tally_bit_reader *reader, uint32_t s, size_t first,
                                     size_t dim, float norm, int32_t *levels,
                                     struct tally_error *err)
{
    const unsigned width = level_width(s);
    for (size_t i = first; i < dim; i++) {
        const uint64_t bits = tally_bit_read(reader, 1 + width);
        const int32_t magnitude = (int32_t)(bits >> 1);
        if (magnitude > (int32_t)s) {
            return tally_fail(err, TALLY_MALFORMED, "payload",
                              "level %d of coordinate %zu is above %u", magnitude, i, s);
        }
        if (bits == 1) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "coordinate %zu is a negative zero",
                              i);
        }
        if (norm == 0 && magnitude != 0) {
            return tally_fail(err, TALLY_MALFORMED, "payload",
                              "coordinate %zu is not zero though the norm is", i);
        }
        levels[i - first] = (bits & 1) != 0 ? -magnitude : magnitude;
    }
    return TALLY_OK;
}

/* Reads what is before the levels, and checks that they can follow. */
static enum tally_status read_norm(struct tally_bit_reader *reader, const uint8_t *data,
                                   size_t n_bytes, uint64_t payload_bits, uint32_t s, size_t dim,
                                   struct tally_qsgd *ret_qsgd, struct tally_error *err)
{
    const uint64_t wanted = tally_qsgd_bits(s, dim);
    if (payload_bits != wanted || !tally_bits_are_framed(data, n_bytes, payload_bits)) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "%zu bytes with %llu bits; expected %llu bits with zero padding", n_bytes,
                          (unsigned long long)payload_bits, (unsigned long long)wanted);
    }
    tally_bit_reader_init(reader, data, payload_bits);
    const uint32_t norm_bits = (uint32_t)tally_bit_read(reader, NORM_BITS);
    struct tally_qsgd qsgd = {.levels = s};
    memcpy(&qsgd.norm, &norm_bits, sizeof qsgd.norm);
    if (!isfinite(qsgd.norm) || signbit(qsgd.norm)) {
        return tally_fail(err, TALLY_MALFORMED, "payload", "the norm is not a number >= 0");
    }
    *ret_qsgd = qsgd;
    return TALLY_OK;
}

enum tally_status tally_qsgd_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                    uint32_t s, size_t dim, struct tally_qsgd *ret_qsgd,
                                    int32_t *levels, struct tally_error *err)
{
    struct tally_bit_reader reader;
    struct tally_qsgd qsgd;
    enum tally_status status = read_norm(&reader, data, n_bytes, payload_bits, s, dim, &qsgd, err);
    if (status != TALLY_OK) {
        return status;
    }
    const size_t n = read_blocks(&reader, data, n_bytes, s, dim, qsgd.norm, levels);
    status = read_levels(&reader, s, n, dim, qsgd.norm, levels + n, err);
    if (status == TALLY_OK) {
        *ret_qsgd = qsgd;
    }
    return status;
}

/* Coordinates that can be loaded eight at a time, with 8 bytes each, which begin at whole bytes. */
static size_t n_grouped(size_t n_bytes, unsigned width, size_t dim)
{
    enum { LOADED = 8, FIRST = NORM_BITS / 8 };
    if (n_bytes < FIRST + LOADED) {
        return 0;
    }
    const size_t n_loads = (n_bytes - FIRST - LOADED) / width + 1;
    return 8 * (n_loads < dim / 8 ? n_loads : dim / 8);
}

bool tally_qsgd_add(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, uint32_t s,
                    size_t dim, double bound, int64_t *sums)
{
    enum { MOST_LEFT = 64 }; /* 8 bytes of the shortest codes, and less than a group */
    struct tally_bit_reader reader;
    struct tally_qsgd qsgd;
    int32_t left[MOST_LEFT];
    if (s > TALLY_QSGD_MAX_ADDED ||
        read_norm(&reader, data, n_bytes, payload_bits, s, dim, &qsgd, NULL) != TALLY_OK ||
        (double)qsgd.norm > bound) {
        return false;
    }
    const unsigned width = 1 + level_width(s);
    const size_t n = n_grouped(n_bytes, width, dim);
    const uint8_t *codes = data + NORM_BITS / 8;
    assert(dim - n <= MOST_LEFT);
    reader.position += (uint64_t)n * width;
    if (tally_fixed_point_count_faults(codes, n, width, qsgd.norm > 0 ? (int32_t)s : 0) > 0 ||
        read_levels(&reader, s, n, dim, qsgd.norm, left, NULL) != TALLY_OK) {
        return false;
    }
    const double scale = (double)qsgd.norm / (double)qsgd.levels;
    tally_fixed_point_add_codes(codes, n, width, scale, sums);
    for (size_t i = n; i < dim; i++) {
        sums[i] += tally_fixed_point_of(scale * left[i - n]);
    }
    return true;
}

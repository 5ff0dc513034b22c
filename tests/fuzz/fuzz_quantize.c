/* A vector quantized and encoded, on every instruction set, in one pass and in two.
 *
 *     byte 0     p = 2^(1 + byte 0 mod 22); up to 2^8 for unary, whose messages would be large
 *     byte 1     step = 2^(byte 1 mod 64 - 32)
 *     byte 2     random numbers
 *     the rest   float32, little-endian */
#include <math.h>
#include <string.h>

#include "codec/cpu.h"
#include "tests/fuzz/fuzz.h"

struct result {
    enum tally_status status;
    struct tally_buffer payload;
    struct tally_level_stats stats;
    uint64_t clipped;
};

static struct result quantize_encode(const struct tally_encoding *encoding,
                                     const struct tally_vector *vector)
{
    struct result result = {.clipped = 0};
    int32_t *scratch = fuzz_allocate(vector->dim, sizeof *scratch);
    result.status = tally_quantize_encode(encoding, vector, scratch, &result.payload, &result.stats,
                                          &result.clipped, NULL);
    free(scratch);
    return result;
}

/* Whether it is what quantizing and encoding, one after the other, give. */
static void check_result(const struct tally_encoding *encoding, const struct tally_vector *vector,
                         const struct result *result)
{
    int32_t *levels = fuzz_allocate(vector->dim, sizeof *levels);
    uint64_t clipped;
    FUZZ_CHECK(tally_quantize(vector->grid, vector->y, vector->dim, vector->rng, levels, &clipped,
                              NULL) == result->status);
    if (result->status == TALLY_OK) {
        const size_t n = encoding->bound(levels, vector->dim);
        uint8_t *bytes = fuzz_allocate(n, 1);
        struct tally_level_stats stats;
        FUZZ_CHECK(encoding->encode(levels, vector->dim, vector->grid, bytes, n, &stats) ==
                   TALLY_OK);
        FUZZ_CHECK(clipped == result->clipped);
        FUZZ_CHECK(stats.payload_bits == result->stats.payload_bits);
        FUZZ_CHECK(stats.formula_bits == result->stats.formula_bits);
        FUZZ_CHECK(stats.nonzeros == result->stats.nonzeros);
        FUZZ_CHECK(result->payload.size == (stats.payload_bits + 7) / 8);
        FUZZ_CHECK(memcmp(bytes, result->payload.data, result->payload.size) == 0);
        free(bytes);
    }
    free(levels);
}

static bool is_finite(const struct tally_vector *vector)
{
    bool finite = true;
    for (size_t i = 0; i < vector->dim; i++) {
        finite = finite && isfinite(vector->y[i]);
    }
    return finite;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 7) {
        return 0;
    }
    const struct tally_grid grid = {.step = ldexp(1, data[1] % 64 - 32),
                                    .intervals = 2u << (data[0] % 22)};
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(data[2], 0), 3, 4, TALLY_RNG_UPLINK);
    const size_t dim = (size - 3) / 4;
    float *y = fuzz_allocate(dim, sizeof *y);
    memcpy(y, data + 3, dim * sizeof *y);
    const struct tally_vector vector = {.y = y, .dim = dim, .grid = &grid, .rng = &rng};
    for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
        if (TALLY_ENCODINGS[e] == &TALLY_ENCODING_UNARY && grid.intervals > 256) {
            continue;
        }
        tally_cpu_set_limit(TALLY_CPU_PORTABLE);
        struct result plain = quantize_encode(TALLY_ENCODINGS[e], &vector);
        FUZZ_CHECK(plain.status == (is_finite(&vector) ? TALLY_OK : TALLY_NOT_FINITE));
        for (int cpu = TALLY_CPU_PORTABLE; cpu <= (int)tally_cpu_best(); cpu++) {
            tally_cpu_set_limit((enum tally_cpu)cpu);
            struct result result = quantize_encode(TALLY_ENCODINGS[e], &vector);
            check_result(TALLY_ENCODINGS[e], &vector, &result);
            FUZZ_CHECK(result.status == plain.status);
            FUZZ_CHECK(plain.status != TALLY_OK ||
                       (result.payload.size == plain.payload.size &&
                        memcmp(result.payload.data, plain.payload.data, plain.payload.size) == 0));
            tally_buffer_fini(&result.payload);
        }
        tally_buffer_fini(&plain.payload);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(y);
    return 0;
}

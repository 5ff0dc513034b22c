/* Checks that quantizing and encoding a vector in one pass, on an instruction set, gives the same
 * message as two passes in plain C.
 *
 *     byte 0     mod 22: p = 2^(1 + it), up to 2^8 for unary, whose messages would be large;
 *                div 22: fuzz_cpu(); div 66 mod 2: unary, entropy
 *     byte 1, 2  step = (1 + byte 2 / 256) 2^(byte 1 mod 198 - 99)
 *     byte 2     also selects the random numbers
 *     the rest   float32, little-endian */
#include <math.h>
#include <string.h>

#include "codec/numeric/cpu.h"
#include "tests/fuzz/fuzz.h"

/* The result of tally_quantize() on one instruction set. */
struct result {
    enum tally_status status;
    int32_t *levels; /* heap */
    uint64_t clipped;
    struct tally_error err;
};

static struct result quantize(const struct tally_vector *vector, enum tally_cpu cpu)
{
    struct result result = {.levels = fuzz_allocate(vector->dim, sizeof *result.levels)};
    tally_cpu_set_limit(cpu);
    result.status = tally_quantize(vector->grid, vector->y, vector->dim, vector->rng, result.levels,
                                   &result.clipped, &result.err);
    return result;
}

/* Checks that plain C rounds each coordinate to the level below or above, up to the float32
 * precision of the ratio, and clips those beyond the range to the outermost level. */
static void check_rounding(const struct tally_vector *vector, const struct result *plain)
{
    const double top = vector->grid->intervals / 2;
    const float radius = (float)(top * vector->grid->step);
    uint64_t clipped = 0;
    bool finite = true;
    for (size_t i = 0; i < vector->dim; i++) {
        finite = finite && isfinite(vector->y[i]);
    }
    FUZZ_CHECK(plain->status == (finite ? TALLY_OK : TALLY_NOT_FINITE));
    for (size_t i = 0; finite && i < vector->dim; i++) {
        const double exact = (double)vector->y[i] / vector->grid->step;
        const double level = plain->levels[i];
        FUZZ_CHECK(fabs(level) <= top);
        if (fabsf(vector->y[i]) > radius) {
            clipped++;
            FUZZ_CHECK(level == copysign(top, exact));
        } else {
            FUZZ_CHECK(fabs(level - exact) < 1 + fabs(exact) * 0x1p-22);
        }
    }
    FUZZ_CHECK(!finite || plain->clipped == clipped);
}

/* Checks that encoding the levels of plain C, in plain C, gives the payload. */
static void check_payload(const struct tally_encoding *encoding, const struct tally_vector *vector,
                          const int32_t *levels, const struct tally_buffer *payload,
                          const struct tally_level_stats *found)
{
    tally_cpu_set_limit(TALLY_CPU_PORTABLE);
    const size_t n = encoding->bound(levels, vector->dim);
    uint8_t *bytes = fuzz_allocate(n, 1);
    struct tally_level_stats stats;
    FUZZ_CHECK(encoding->encode(levels, vector->dim, vector->grid, bytes, n, &stats) == TALLY_OK);
    FUZZ_CHECK(stats.payload_bits == found->payload_bits);
    FUZZ_CHECK(stats.formula_bits == found->formula_bits);
    FUZZ_CHECK(stats.nonzeros == found->nonzeros);
    FUZZ_CHECK(payload->size == (stats.payload_bits + 7) / 8);
    FUZZ_CHECK(memcmp(bytes, payload->data, payload->size) == 0);
    free(bytes);
}

static void check_one_pass(const struct tally_encoding *encoding, const struct tally_vector *vector,
                           enum tally_cpu cpu, const struct result *plain)
{
    tally_cpu_set_limit(cpu);
    int32_t *scratch = fuzz_allocate(vector->dim, sizeof *scratch);
    struct tally_buffer payload = {0};
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    uint64_t clipped;
    FUZZ_CHECK(tally_quantize_encode(encoding, vector, scratch, &payload, &stats, &clipped, &err) ==
               plain->status);
    FUZZ_CHECK(strcmp(err.message, plain->err.message) == 0);
    if (plain->status == TALLY_OK) {
        FUZZ_CHECK(clipped == plain->clipped);
        check_payload(encoding, vector, plain->levels, &payload, &stats);
    }
    tally_buffer_fini(&payload);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 7) {
        return 0;
    }
    const struct tally_encoding *encoding = TALLY_ENCODINGS[data[0] / 66 % 2];
    const enum tally_cpu cpu = fuzz_cpu(data[0] / 22);
    const unsigned power = data[0] % 22;
    const struct tally_grid grid = {
        .step = ldexp(1 + data[2] / 256.0, data[1] % 198 - 99),
        .intervals = 2u << (encoding == &TALLY_ENCODING_UNARY && power > 7 ? 7 : power)};
    FUZZ_CHECK(tally_grid_is_valid(&grid));
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(data[2], 0), 3, 4, TALLY_RNG_UPLINK);
    const size_t dim = (size - 3) / 4;
    float *y = fuzz_allocate(dim, sizeof *y);
    memcpy(y, data + 3, dim * sizeof *y);
    const struct tally_vector vector = {.y = y, .dim = dim, .grid = &grid, .rng = &rng};

    struct result plain = quantize(&vector, TALLY_CPU_PORTABLE);
    check_rounding(&vector, &plain);
    struct result other = quantize(&vector, cpu);
    FUZZ_CHECK(other.status == plain.status);
    FUZZ_CHECK(plain.status != TALLY_OK ||
               (other.clipped == plain.clipped &&
                memcmp(other.levels, plain.levels, dim * sizeof *plain.levels) == 0));
    check_one_pass(encoding, &vector, cpu, &plain);
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(other.levels);
    free(plain.levels);
    free(y);
    return 0;
}

/* entropy: levels through an arithmetic coder, close to their entropy; FORMAT.md section 6.
 *
 * Idea: a level with probability p costs -log2 p bits. Sender and receiver estimate the same
 * probabilities from the preceding levels (entropy_model.h), so no table is sent. An arithmetic
 * coder turns the probabilities into bits: one that ends on a bit for short messages (arith.h), one
 * that runs in vector registers for long ones (entropy_kernels.h). The encoder makes no choice that
 * the decoder does not repeat: a message that decodes encodes to the same bytes again.
 *
 * Example: thirty zeros have scale 0, under which a zero takes 4087 of 4096 shares. The message is
 * the scale, 0000, and a string for an interval of width (4087/4096)^30 = 0.94: the single bit 0. 5
 * bits, where `unary` takes 30.
 *
 * Left out: a table in the message, adaptation within a block, contexts of neighbouring levels
 * (DESIGN.md has the figures). */
#include "codec/entropy/entropy.h"

#include "codec/entropy/entropy_message.h"

/* 12 bits of an improbable symbol, 5 of its number, 1 of sign, at most 22 of offset and low bits.
 */
enum { WORST_BYTES = 5 };

size_t tally_entropy_bound(const int32_t *levels, size_t dim)
{
    (void)levels;
    return WORST_BYTES * dim + 2 * (dim / TALLY_ENTROPY_LONG_BLOCK) +
           TALLY_ENTROPY_LONG_HEAD_BYTES + 64;
}

const struct tally_entropy_kernel *tally_entropy_kernel_for(enum tally_cpu cpu)
{
#ifdef TALLY_X86_64
    if (tally_cpu_with_vbmi2(cpu) == TALLY_CPU_AVX512) {
        return &TALLY_ENTROPY_AVX512;
    }
    return cpu >= TALLY_CPU_AVX2 ? &TALLY_ENTROPY_AVX2 : &TALLY_ENTROPY_PORTABLE;
#else
    (void)cpu;
    return &TALLY_ENTROPY_PORTABLE;
#endif
}

void tally_entropy_table_before(const int32_t *block, size_t start, unsigned scale,
                                struct tally_entropy_table *ret_table)
{
    const size_t n = start < TALLY_ENTROPY_WINDOW ? start : TALLY_ENTROPY_WINDOW;
    uint32_t counts[TALLY_ENTROPY_SYMBOLS] = {0};
    tally_entropy_kernel_for(tally_cpu_used())
        ->count(block - n, n, tally_entropy_shift(scale), counts);
    tally_entropy_table(scale, counts, ret_table);
}

void tally_entropy_count_bits(struct tally_level_stats *stats,
                              const struct tally_entropy_scan *scan, size_t n)
{
    stats->formula_bits += n + scan->sum;
    stats->nonzeros += scan->nonzeros;
}

static bool is_long(size_t dim)
{
    return dim >= TALLY_ENTROPY_LONG_MESSAGE;
}

static enum tally_status encode(const int32_t *levels, size_t dim, const struct tally_grid *grid,
                                uint8_t *data, size_t capacity, struct tally_level_stats *ret_stats)
{
    (void)grid;
    return tally_entropy_encode(levels, dim, is_long(dim), data, capacity, ret_stats);
}

static enum tally_status decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                size_t dim, const struct tally_grid *grid, int32_t *levels,
                                struct tally_level_stats *ret_stats, struct tally_error *err)
{
    return tally_entropy_decode(data, n_bytes, payload_bits, dim, is_long(dim), grid, levels,
                                ret_stats, err);
}

static enum tally_status accumulate(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                    size_t dim, const struct tally_grid *grid, int64_t *sums,
                                    struct tally_level_stats *ret_stats, struct tally_error *err)
{
    return tally_entropy_accumulate(data, n_bytes, payload_bits, dim, is_long(dim), grid, sums,
                                    ret_stats, err);
}

const struct tally_encoding TALLY_ENCODING_ENTROPY = {
    .name = "entropy",
    .bound = tally_entropy_bound,
    .encode = encode,
    .decode = decode,
    .accumulate = accumulate,
};

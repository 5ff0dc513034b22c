/* unary: the encoding of [1], with an end mark for each number; FORMAT.md section 3.
 *
 * Idea: most levels of a quantized gradient are 0 or +-1, so a level costs about its magnitude. A
 * coordinate has |level| ones, a zero, and where level != 0 a sign bit (1 = negative):
 *
 *     payload = d + sum |level| + nonzeros = formula + nonzeros
 *
 * The bits are not sent coordinate by coordinate. A block of 64 coordinates sends all first bits,
 * then the second bits of those that have one, and so on, the signs last (unary_kernels.h): a plane
 * of up to 64 bits is one operation on a word.
 *
 * Example: levels 0, 1, -1, 2, -3, 0, 4
 *
 *     plane 1   0 1 1 1 1 0 1     > 0?
 *     plane 2     0 0 1 1   1     > 1?
 *     plane 3         0 1   1     > 2?
 *     plane 4           0   1     > 3?
 *     plane 5               0     > 4?
 *     signs       0 1 0 1   0             23 bits; formula 7 + 11 = 18; 5 nonzeros
 *
 * Departs from [1], which sends a sign and |level| ones without an end mark. That cannot be
 * decoded: 11111 is 4, or +0 and +3. Hence formula and payload are two numbers.
 *
 * Left out: a plane order per message, runs of zeros. `entropy` is the encoding for fewer bits. */
#include "codec/unary/unary.h"

#include "codec/quantize/payload.h"
#include "codec/quantize/quantizer_kernels.h"
#include "codec/unary/unary_kernels.h"

enum {
    BLOCK = TALLY_UNARY_BLOCK,
    /* Bytes that a payload gets beyond the next block: enough for a kernel to continue. The buffer
     * itself grows by half, so a long message seldom needs this. */
    ROOM = 64,
};
_Static_assert((int)BLOCK == (int)TALLY_RNG_LANES, "a block takes a group of random words");

const struct tally_unary_kernel *tally_unary_kernel_for(enum tally_cpu cpu)
{
    static const struct tally_unary_kernel *const kernels[TALLY_N_CPUS] = {
        [TALLY_CPU_PORTABLE] = &TALLY_UNARY_PORTABLE,
#ifdef TALLY_X86_64
        [TALLY_CPU_AVX2] = &TALLY_UNARY_AVX2,
        [TALLY_CPU_AVX512] = &TALLY_UNARY_AVX512,
#endif
    };
    return kernels[cpu];
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct tally_level_stats stats_of(uint64_t payload_bits, uint64_t nonzeros)
{
    return (struct tally_level_stats){.formula_bits = payload_bits - nonzeros,
                                      .payload_bits = payload_bits,
                                      .nonzeros = nonzeros};
}

static uint64_t bits_of(const int32_t *levels, size_t n)
{
    uint64_t nonzeros;
    const uint64_t sum = tally_unary_kernel_for(tally_cpu_used())->count(levels, n, &nonzeros);
    return n + sum + nonzeros;
}

static size_t unary_bound(const int32_t *levels, size_t dim)
{
    return (size_t)((bits_of(levels, dim) + 7) / 8);
}

/* Appends levels[n], which start a new block; may overflow the writer. */
static void append(const int32_t *levels, size_t n, struct tally_bit_writer *writer,
                   uint64_t *nonzeros)
{
    const struct tally_unary_kernel *kernel = tally_unary_kernel_for(tally_cpu_used());
    for (size_t i = 0; i < n;) {
        if (kernel->encode != NULL) {
            i += BLOCK * kernel->encode(levels + i, (n - i) / BLOCK, writer, nonzeros);
        }
        if (i < n) {
            const size_t rest = smaller(BLOCK, n - i);
            tally_unary_encode_block_ref(levels + i, rest, writer, nonzeros);
            i += rest;
        }
    }
}

static enum tally_status unary_encode(const int32_t *levels, size_t dim,
                                      const struct tally_grid *grid, uint8_t *data, size_t capacity,
                                      struct tally_level_stats *ret_stats)
{
    (void)grid;
    struct tally_bit_writer writer;
    uint64_t nonzeros = 0;
    tally_bit_writer_init(&writer, data, capacity);
    append(levels, dim, &writer, &nonzeros);
    const uint64_t payload_bits = tally_bit_writer_tell(&writer);
    tally_bit_writer_finish(&writer);
    if (writer.overflow) {
        return TALLY_OUT_OF_RANGE;
    }
    *ret_stats = stats_of(payload_bits, nonzeros);
    return TALLY_OK;
}

/* Makes room for n bits more than the writer has written to the payload. */
static enum tally_status grow(struct tally_buffer *payload, struct tally_bit_writer *writer,
                              uint64_t n, struct tally_error *err)
{
    const uint64_t written = tally_bit_writer_tell(writer);
    const size_t n_bytes = (size_t)((written % 64 + n + 7) / 8);
    payload->size = (size_t)(written / 64 * 8); /* what realloc() keeps */
    enum tally_status status = tally_buffer_reserve(payload, n_bytes + ROOM);
    if (status == TALLY_TOO_LARGE) {
        status = tally_buffer_reserve(payload, n_bytes); /* enough if this is the last block */
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "a message of %zu bytes or more: %s",
                          payload->size + n_bytes, tally_status_info(status)->title);
    }
    writer->data = payload->data;
    writer->capacity = payload->capacity;
    return TALLY_OK;
}

/* A message while a vector is encoded into its payload. */
struct passage {
    const struct tally_vector *vector;
    struct tally_rounding rounding;
    struct tally_buffer *payload;
    struct tally_bit_writer writer; /* into the payload */
    uint64_t nonzeros, clipped;
};

/* Encodes the block that begins with coordinate i, in the plain form. */
static enum tally_status pass_block(struct passage *passage, size_t i, struct tally_error *err)
{
    const struct tally_vector *vector = passage->vector;
    const size_t n = smaller(BLOCK, vector->dim - i);
    int32_t levels[BLOCK];
    const size_t done = tally_quantize_kernel_for(tally_cpu_used())(
        &passage->rounding, vector->rng, (uint32_t)(i / BLOCK), vector->y + i, n, levels,
        &passage->clipped);
    if (done < n) {
        return tally_quantize_refuse(vector->y, i + done, vector->dim, err);
    }
    enum tally_status status = grow(passage->payload, &passage->writer, bits_of(levels, n), err);
    if (status == TALLY_OK) {
        tally_unary_encode_block_ref(levels, n, &passage->writer, &passage->nonzeros);
    }
    return status;
}

static enum tally_status unary_quantize_encode(const struct tally_vector *vector, int32_t *scratch,
                                               struct tally_buffer *payload,
                                               struct tally_level_stats *ret_stats,
                                               uint64_t *ret_clipped, struct tally_error *err)
{
    (void)scratch;
    const struct tally_unary_kernel *kernel = tally_unary_kernel_for(tally_cpu_used());
    struct passage passage = {
        .vector = vector, .rounding = tally_rounding_of(vector->grid), .payload = payload};
    tally_bit_writer_init(&passage.writer, payload->data, payload->capacity);
    for (size_t i = 0; i < vector->dim;) {
        if (kernel->quantize_encode != NULL && passage.writer.capacity > 0) {
            i += BLOCK * kernel->quantize_encode(&passage.rounding, vector->rng,
                                                 (uint32_t)(i / BLOCK), vector->y + i,
                                                 (vector->dim - i) / BLOCK, &passage.writer,
                                                 &passage.nonzeros, &passage.clipped);
        }
        if (i < vector->dim) {
            enum tally_status status = pass_block(&passage, i, err);
            if (status != TALLY_OK) {
                return status;
            }
            i += smaller(BLOCK, vector->dim - i);
        }
    }
    const uint64_t payload_bits = tally_bit_writer_tell(&passage.writer);
    payload->size = tally_bit_writer_finish(&passage.writer);
    *ret_stats = stats_of(payload_bits, passage.nonzeros);
    *ret_clipped = passage.clipped;
    return TALLY_OK;
}

/* Where decoded levels go: one of the two. */
struct target {
    int32_t *levels;
    int64_t *sums;
};

/* Reads the next block, from coordinate `first` on. */
static enum tally_status take_block(struct tally_bit_reader *reader, size_t first, size_t dim,
                                    uint32_t top, const struct target *target, uint64_t *nonzeros,
                                    struct tally_error *err)
{
    const struct tally_unary_kernel *kernel = tally_unary_kernel_for(tally_cpu_used());
    int32_t levels[BLOCK];
    const size_t n = smaller(BLOCK, dim - first);
    enum tally_status status = TALLY_OK;
    if (kernel->decode_last == NULL || !kernel->decode_last(reader, n, top, levels, nonzeros)) {
        status = tally_unary_decode_block_ref(reader, first, n, dim, top, levels, nonzeros, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        if (target->levels != NULL) {
            target->levels[first + i] = levels[i];
        } else {
            target->sums[first + i] += levels[i];
        }
    }
    return status;
}

/* Reads whole blocks from coordinate i on while they are ordinary; returns the coordinates read. */
static size_t take_ordinary(struct tally_bit_reader *reader, size_t i, size_t dim, uint32_t top,
                            const struct target *target, uint64_t *nonzeros)
{
    const struct tally_unary_kernel *kernel = tally_unary_kernel_for(tally_cpu_used());
    const size_t n_blocks = (dim - i) / BLOCK;
    if (target->levels != NULL && kernel->decode != NULL) {
        return BLOCK * kernel->decode(reader, n_blocks, top, target->levels + i, nonzeros);
    }
    if (target->sums != NULL && kernel->accumulate != NULL) {
        return BLOCK * kernel->accumulate(reader, n_blocks, top, target->sums + i, nonzeros);
    }
    return 0;
}

/* Reads a message. *ret_taken: how many coordinates reached the target, also on failure. */
static enum tally_status take(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                              size_t dim, uint32_t top, const struct target *target,
                              size_t *ret_taken, struct tally_level_stats *ret_stats,
                              struct tally_error *err)
{
    *ret_taken = 0;
    enum tally_status status = tally_payload_check_frame(data, n_bytes, payload_bits, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_bit_reader reader;
    uint64_t nonzeros = 0;
    tally_bit_reader_init(&reader, data, payload_bits);
    while (*ret_taken < dim) {
        *ret_taken += take_ordinary(&reader, *ret_taken, dim, top, target, &nonzeros);
        if (*ret_taken < dim) {
            status = take_block(&reader, *ret_taken, dim, top, target, &nonzeros, err);
            if (status != TALLY_OK) {
                return status;
            }
            *ret_taken += smaller(BLOCK, dim - *ret_taken);
        }
    }
    status = tally_payload_check_length(payload_bits, dim, tally_bit_reader_tell(&reader), err);
    if (status == TALLY_OK) {
        *ret_stats = stats_of(payload_bits, nonzeros);
    }
    return status;
}

static enum tally_status unary_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                      size_t dim, const struct tally_grid *grid, int32_t *levels,
                                      struct tally_level_stats *ret_stats, struct tally_error *err)
{
    size_t taken;
    return take(data, n_bytes, payload_bits, dim, grid->intervals / 2,
                &(struct target){.levels = levels}, &taken, ret_stats, err);
}

/* Subtracts the first n coordinates of a message, which were added, from the sums again. */
static void undo(const uint8_t *data, uint64_t payload_bits, size_t n, size_t dim, uint32_t top,
                 int64_t *sums)
{
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, data, payload_bits);
    for (size_t first = 0; first < n; first += BLOCK) {
        int32_t levels[BLOCK];
        uint64_t nonzeros = 0;
        const size_t n_block = smaller(BLOCK, n - first);
        tally_unary_decode_block_ref(&reader, first, n_block, dim, top, levels, &nonzeros, NULL);
        for (size_t i = 0; i < n_block; i++) {
            sums[first + i] -= levels[i];
        }
    }
}

/* One pass: with a check before it, every message would pay for what only a broken one needs. */
static enum tally_status unary_accumulate(const uint8_t *data, size_t n_bytes,
                                          uint64_t payload_bits, size_t dim,
                                          const struct tally_grid *grid, int64_t *sums,
                                          struct tally_level_stats *ret_stats,
                                          struct tally_error *err)
{
    const uint32_t top = grid->intervals / 2;
    size_t taken;
    enum tally_status status = take(data, n_bytes, payload_bits, dim, top,
                                    &(struct target){.sums = sums}, &taken, ret_stats, err);
    if (status != TALLY_OK) {
        undo(data, payload_bits, taken, dim, top, sums);
    }
    return status;
}

const struct tally_encoding TALLY_ENCODING_UNARY = {
    .name = "unary",
    .bound = unary_bound,
    .encode = unary_encode,
    .decode = unary_decode,
    .accumulate = unary_accumulate,
    .quantize_encode = unary_quantize_encode,
};

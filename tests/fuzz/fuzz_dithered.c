/* Messages of `dithered`. The last five bytes choose the scale and the stream.
 *
 *     the front   as in fuzz.h; `twice` selects the long form
 *     the end     scale mod 385, two bytes; run and direction, client, round of the stream, one
 *                 byte each */
#include <string.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_message.h"
#include "tests/fuzz/fuzz.h"

enum { TAIL = 2 + FUZZ_STREAM };

static bool same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}

/* Checks that the values encode to the same message. Rounding them to float32 does no harm, since
 * |q| <= 2^20. */
static void check_again(const struct fuzz_message *message, const struct tally_rng *rng,
                        const int64_t *values, const struct tally_level_stats *stats)
{
    float *y = fuzz_allocate(message->dim, sizeof *y);
    int32_t *levels = fuzz_allocate(message->dim, sizeof *levels);
    struct tally_buffer payload = {0};
    struct tally_level_stats again;
    uint64_t clipped;
    for (size_t i = 0; i < message->dim; i++) {
        y[i] = (float)((double)values[i] * 0x1p-32 * message->grid.step);
    }
    const struct tally_vector vector = {
        .y = y, .dim = message->dim, .grid = &message->grid, .rng = rng};
    FUZZ_CHECK(tally_dithered_encode_as(message->twice, &vector, levels, &payload, &again, &clipped,
                                        NULL) == TALLY_OK);
    FUZZ_CHECK(clipped == 0 && same_stats(&again, stats));
    FUZZ_CHECK(payload.size == message->n_payload &&
               (payload.size == 0 || memcmp(payload.data, message->payload, payload.size) == 0));
    tally_buffer_fini(&payload);
    free(levels);
    free(y);
}

static void check(const struct fuzz_message *message, const struct tally_rng *rng)
{
    int64_t *values = fuzz_allocate(message->dim, sizeof *values);
    int64_t *sums = fuzz_allocate(message->dim, sizeof *sums);
    struct tally_level_stats stats, again;
    struct tally_error err = TALLY_ERROR_INIT;
    for (size_t i = 0; i < message->dim; i++) {
        sums[i] = (int64_t)i;
    }
    const struct tally_dithered_message from = {message->twice,
                                                message->payload,
                                                message->n_payload,
                                                message->payload_bits,
                                                message->dim,
                                                &message->grid,
                                                rng};
    const enum tally_status status = tally_dithered_decode_as(&from, values, &stats, &err);
    FUZZ_CHECK(status == TALLY_OK || (status == TALLY_MALFORMED && err.message[0] != '\0'));
    FUZZ_CHECK(tally_dithered_accumulate_as(&from, sums, &again, NULL) == status);
    for (size_t i = 0; i < message->dim; i++) {
        FUZZ_CHECK(sums[i] == (int64_t)i + (status == TALLY_OK ? values[i] : 0));
    }
    if (status == TALLY_OK) {
        FUZZ_CHECK(same_stats(&stats, &again));
        check_again(message, rng, values, &stats);
    }
    free(values);
    free(sums);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (size < FUZZ_MESSAGE_HEAD + TAIL || !fuzz_message_read(data, size - TAIL, &message)) {
        return 0;
    }
    const uint8_t *tail = data + size - TAIL;
    const struct tally_rng rng = fuzz_stream(tail + 2);
    message.grid.scale = (tail[0] + 256u * tail[1]) % TALLY_DITHERED_SCALES;
    if (message.grid.intervals > 2 * TALLY_DITHERED_MAX_TOP) {
        message.grid.intervals = 2 * TALLY_DITHERED_MAX_TOP;
    }
    tally_cpu_set_limit(message.cpu);
    check(&message, &rng);
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    return 0;
}

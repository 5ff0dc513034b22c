/* Messages of `adaptive`, in the short or the long form, with as few coordinates as the head says.
 * The last four bytes choose stream and form.
 *
 *     the front   as in fuzz.h; `twice` means without dither
 *     the end     run and direction, client, round of the stream, one byte each; a byte, of which
 * an odd one means the long form */
#include <string.h>

#include "codec/adaptive/adaptive_long.h"
#include "tests/adaptive_long_form.h"
#include "tests/fuzz/fuzz.h"

enum { TAIL = FUZZ_STREAM + 1 };

static bool same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}

static enum tally_status decode(const struct fuzz_message *message, bool is_long,
                                enum tally_cpu cpu, const struct tally_rng *dither, int32_t *levels,
                                struct tally_level_stats *ret_stats, struct tally_error *err)
{
    tally_cpu_set_limit(cpu);
    return (is_long ? adaptive_long_decode : tally_adaptive_decode)(
        message->payload, message->n_payload, message->payload_bits, message->dim, dither, levels,
        ret_stats, err);
}

/* Checks that the levels are within the limit, are counted, and encode to the same message. */
static void check_again(const struct fuzz_message *message, bool is_long,
                        const struct tally_rng *dither, const int32_t *levels,
                        const struct tally_level_stats *stats)
{
    struct tally_buffer payload = {0};
    struct tally_level_stats again,
        counted = {.formula_bits = message->dim, .payload_bits = message->payload_bits};
    for (size_t i = 0; i < message->dim; i++) {
        FUZZ_CHECK(abs(levels[i]) <= TALLY_ADAPTIVE_MAX_LEVEL);
        counted.formula_bits += (uint64_t)abs(levels[i]);
        counted.nonzeros += levels[i] != 0;
    }
    FUZZ_CHECK(same_stats(stats, &counted));
    FUZZ_CHECK((is_long ? tally_adaptive_long_encode : tally_adaptive_encode)(
                   levels, message->dim, dither, &payload, &again, NULL) == TALLY_OK);
    FUZZ_CHECK(same_stats(&again, stats));
    FUZZ_CHECK(payload.size == message->n_payload &&
               (payload.size == 0 || memcmp(payload.data, message->payload, payload.size) == 0));
    tally_buffer_fini(&payload);
}

static void check(const struct fuzz_message *message, bool is_long, const struct tally_rng *dither)
{
    int32_t *levels = fuzz_allocate(message->dim, sizeof *levels);
    int32_t *plain = fuzz_allocate(message->dim, sizeof *plain);
    struct tally_level_stats stats, plain_stats;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status =
        decode(message, is_long, message->cpu, dither, levels, &stats, &err);
    FUZZ_CHECK(status == TALLY_OK || (status == TALLY_MALFORMED && err.message[0] != '\0'));
    FUZZ_CHECK(!is_long || adaptive_long_adds_alike(message->payload, message->n_payload,
                                                    message->payload_bits, message->dim, dither));
    FUZZ_CHECK(decode(message, is_long, TALLY_CPU_PORTABLE, dither, plain, &plain_stats, NULL) ==
               status);
    if (status == TALLY_OK) {
        FUZZ_CHECK(same_stats(&stats, &plain_stats) &&
                   memcmp(levels, plain, message->dim * sizeof *levels) == 0);
        check_again(message, is_long, dither, levels, &stats);
    }
    free(levels);
    free(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (size < FUZZ_MESSAGE_HEAD + TAIL || !fuzz_message_read(data, size - TAIL, &message)) {
        return 0;
    }
    const struct tally_rng rng = fuzz_stream(data + size - TAIL);
    check(&message, data[size - 1] % 2 != 0, message.twice ? NULL : &rng);
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    return 0;
}

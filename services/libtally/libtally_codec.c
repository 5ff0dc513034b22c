/* The codec as the library offers it: with names and plain numbers, which are checked here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/buffer.h"
#include "codec/encoding.h"
#include "codec/numeric/float32.h"
#include "codec/quantize/qsgd.h"
#include "services/libtally/libtally_internal.h"

_Static_assert((int)TALLY_CODEC_INTERVALS_MAX == (int)TALLY_MAX_INTERVALS, "the header says so");
_Static_assert((int)TALLY_CODEC_QSGD_MAX == (int)TALLY_QSGD_MAX_LEVELS, "the header says so");

const char *tally_encoding_name(size_t index)
{
    for (size_t i = 0; TALLY_ENCODINGS[i] != NULL; i++) {
        if (i == index) {
            return TALLY_ENCODINGS[i]->name;
        }
    }
    return NULL;
}

/* A message in the making: what both sides have to know, and its bytes. */
struct draft {
    const struct tally_encoding *encoding;
    struct tally_grid grid;
    size_t dim;
    struct tally_buffer bytes;
    struct tally_level_stats stats;
    uint64_t clipped;
};

static enum tally_status check_dim(size_t dim, struct tally_error *err)
{
    return dim >= 1 && dim <= TALLY_CODEC_DIM_MAX
               ? TALLY_OK
               : tally_fail(err, TALLY_OUT_OF_RANGE, "dim", "dim %zu outside [1, %d]", dim,
                            (int)TALLY_CODEC_DIM_MAX);
}

static enum tally_status check_qsgd(uint32_t s, size_t dim, struct tally_error *err)
{
    return s >= 1 && s <= TALLY_QSGD_MAX_LEVELS
               ? check_dim(dim, err)
               : tally_fail(err, TALLY_OUT_OF_RANGE, "s", "s %u outside [1, %d]", s,
                            (int)TALLY_QSGD_MAX_LEVELS);
}

/* A job document can name `dithered` too, so that deserves a reason. */
static enum tally_status refuse_encoding(const char *encoding, struct tally_error *err)
{
    const char *name = encoding != NULL ? encoding : "";
    return strcmp(name, "dithered") == 0
               ? tally_fail(err, TALLY_INVALID_ARGUMENT, "encoding",
                            "\"dithered\" cannot be coded by itself: its levels mean nothing "
                            "without the job's seed, client and round")
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "encoding", "\"%.40s\" is not an encoding",
                            name);
}

/* Reads what the functions for levels have in common. */
static enum tally_status begin(struct draft *draft, const char *encoding, uint32_t intervals,
                               double step, size_t dim, struct tally_error *err)
{
    *draft = (struct draft){.grid = {.step = step, .intervals = intervals}, .dim = dim};
    for (size_t i = 0; encoding != NULL && TALLY_ENCODINGS[i] != NULL; i++) {
        if (strcmp(TALLY_ENCODINGS[i]->name, encoding) == 0) {
            draft->encoding = TALLY_ENCODINGS[i];
        }
    }
    if (draft->encoding == NULL) {
        return refuse_encoding(encoding, err);
    }
    if (!tally_grid_is_valid(&draft->grid)) {
        return tally_fail(
            err, TALLY_OUT_OF_RANGE, "intervals",
            "%u intervals of step %g are not a quantizer: intervals are even, 2 to %d", intervals,
            step, (int)TALLY_MAX_INTERVALS);
    }
    return check_dim(dim, err);
}

/* Hands the bytes over to the caller, or what went wrong. */
static enum tally_code finish(struct draft *draft, enum tally_status status,
                              const struct tally_error *err, struct tally_payload **ret_payload,
                              struct tally_failure *failure)
{
    struct tally_payload *payload = status == TALLY_OK ? calloc(1, sizeof *payload) : NULL;
    if (payload == NULL) {
        tally_buffer_fini(&draft->bytes);
        return tally_failure_of(status != TALLY_OK ? status : TALLY_NO_MEMORY, err, failure);
    }
    *payload = (struct tally_payload){.data = draft->bytes.data,
                                      .size = draft->bytes.size,
                                      .payload_bits = draft->stats.payload_bits,
                                      .formula_bits = draft->stats.formula_bits,
                                      .nonzeros = draft->stats.nonzeros,
                                      .clipped = draft->clipped};
    *ret_payload = payload;
    return TALLY_CODE_OK;
}

void tally_payload_free(struct tally_payload *payload)
{
    if (payload != NULL) {
        free((void *)(uintptr_t)payload->data);
        free(payload);
    }
}

static struct tally_rng stream_of(const struct tally_rounding *rounding)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(rounding->seed, rounding->run), rounding->client,
                   rounding->round, TALLY_RNG_UPLINK);
    return rng;
}

enum tally_code tally_grid_for(double radius, double eps, size_t dim, double *ret_step,
                               uint32_t *ret_intervals, struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_grid grid;
    const enum tally_status status = tally_grid_init(radius, eps, dim, &grid, &err);
    if (status == TALLY_OK) {
        *ret_step = grid.step;
        *ret_intervals = grid.intervals;
    }
    return tally_failure_of(status, &err, failure);
}

enum tally_code tally_encode_levels(const char *encoding, uint32_t intervals, double step,
                                    const int32_t *levels, size_t dim,
                                    struct tally_payload **ret_payload,
                                    struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct draft draft;
    enum tally_status status = begin(&draft, encoding, intervals, step, dim, &err);
    if (status == TALLY_OK) {
        status = tally_levels_encode(draft.encoding, &draft.grid, levels, dim, &draft.bytes,
                                     &draft.stats, &err);
    }
    return finish(&draft, status, &err, ret_payload, failure);
}

enum tally_code tally_encode_values(const char *encoding, uint32_t intervals, double step,
                                    const float *values, size_t dim,
                                    const struct tally_rounding *rounding,
                                    struct tally_payload **ret_payload,
                                    struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct draft draft;
    enum tally_status status = begin(&draft, encoding, intervals, step, dim, &err);
    if (status == TALLY_OK) {
        const struct tally_rng rng = stream_of(rounding);
        const struct tally_vector vector = {values, dim, &draft.grid, &rng};
        int32_t *scratch = malloc(dim * sizeof *scratch);
        status = scratch == NULL
                     ? TALLY_NO_MEMORY
                     : tally_quantize_encode(draft.encoding, &vector, scratch, &draft.bytes,
                                             &draft.stats, &draft.clipped, &err);
        free(scratch);
    }
    return finish(&draft, status, &err, ret_payload, failure);
}

enum tally_code tally_decode_levels(const char *encoding, uint32_t intervals, double step,
                                    const uint8_t *data, size_t size, uint64_t payload_bits,
                                    size_t dim, int32_t *ret_levels, struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct draft draft;
    enum tally_status status = begin(&draft, encoding, intervals, step, dim, &err);
    if (status == TALLY_OK) {
        status = draft.encoding->decode(data, size, payload_bits, dim, &draft.grid, ret_levels,
                                        &draft.stats, &err);
    }
    return tally_failure_of(status, &err, failure);
}

enum tally_code tally_encode_float32(const float *values, size_t dim,
                                     struct tally_payload **ret_payload,
                                     struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct draft draft = {.dim = dim};
    enum tally_status status = check_dim(dim, &err);
    if (status == TALLY_OK) {
        status = tally_buffer_reserve(&draft.bytes, tally_float32_bound(dim));
    }
    if (status == TALLY_OK) {
        status = tally_float32_encode(values, dim, draft.bytes.data, tally_float32_bound(dim),
                                      &draft.stats.payload_bits, &err);
    }
    if (status == TALLY_OK) {
        draft.bytes.size = tally_float32_bound(dim);
        draft.stats.formula_bits = draft.stats.payload_bits;
        for (size_t i = 0; i < dim; i++) {
            draft.stats.nonzeros += values[i] != 0;
        }
    }
    return finish(&draft, status, &err, ret_payload, failure);
}

enum tally_code tally_decode_float32(const uint8_t *data, size_t size, uint64_t payload_bits,
                                     size_t dim, float *ret_values, struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = check_dim(dim, &err);
    if (status == TALLY_OK) {
        status = tally_float32_decode(data, size, payload_bits, dim, ret_values, &err);
    }
    return tally_failure_of(status, &err, failure);
}

/* Quantizes into levels (int32[dim]) and encodes them. */
static enum tally_status encode_qsgd(uint32_t s, const float *values,
                                     const struct tally_rounding *rounding, int32_t *levels,
                                     struct draft *draft, struct tally_error *err)
{
    const struct tally_rng rng = stream_of(rounding);
    const uint64_t bits = tally_qsgd_bits(s, draft->dim);
    const size_t n = (size_t)((bits + 7) / 8);
    struct tally_qsgd qsgd;
    enum tally_status status = tally_qsgd_quantize(s, values, draft->dim, &rng, &qsgd, levels, err);
    if (status == TALLY_OK) {
        status = tally_buffer_reserve(&draft->bytes, n);
    }
    if (status == TALLY_OK) {
        status = tally_qsgd_encode(&qsgd, levels, draft->dim, draft->bytes.data, n);
    }
    if (status == TALLY_OK) {
        draft->bytes.size = n;
        draft->stats.payload_bits = bits;
        draft->stats.formula_bits = bits;
        for (size_t i = 0; i < draft->dim; i++) {
            draft->stats.nonzeros += levels[i] != 0;
        }
    }
    return status;
}

enum tally_code tally_encode_qsgd(uint32_t s, const float *values, size_t dim,
                                  const struct tally_rounding *rounding,
                                  struct tally_payload **ret_payload, struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct draft draft = {.dim = dim};
    enum tally_status status = check_qsgd(s, dim, &err);
    if (status == TALLY_OK) {
        int32_t *levels = malloc(dim * sizeof *levels);
        status = levels == NULL ? TALLY_NO_MEMORY
                                : encode_qsgd(s, values, rounding, levels, &draft, &err);
        free(levels);
    }
    return finish(&draft, status, &err, ret_payload, failure);
}

enum tally_code tally_decode_qsgd(uint32_t s, const uint8_t *data, size_t size,
                                  uint64_t payload_bits, size_t dim, float *ret_norm,
                                  int32_t *ret_levels, struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_qsgd qsgd;
    enum tally_status status = check_qsgd(s, dim, &err);
    if (status == TALLY_OK) {
        status = tally_qsgd_decode(data, size, payload_bits, s, dim, &qsgd, ret_levels, &err);
    }
    if (status == TALLY_OK) {
        *ret_norm = qsgd.norm;
    }
    return tally_failure_of(status, &err, failure);
}

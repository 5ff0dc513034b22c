#include "tests/bench/codec_bench.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "tests/bench/zstd_yardstick.h"

enum { TOP = 32, MIN_SAMPLES = 3 };

/* Fine enough for every measured spread; nothing within 10 standard deviations is clipped. */
static const struct tally_grid GRID = {.step = 1, .intervals = 2 * TOP};

size_t tally_bench_n_encodings(void)
{
    size_t n = 0;
    while (TALLY_ENCODINGS[n] != NULL) {
        n++;
    }
    assert(n <= TALLY_BENCH_MAX_ENCODINGS);
    return n;
}

/* float[dim] of N(0, std). */
static void fill_normal(struct tally_rng *rng, double std, float *y, size_t dim)
{
    for (size_t i = 0; i < dim;) {
        double normal[64];
        tally_rng_normal(rng, normal, 64);
        for (size_t j = 0; j < 64 && i < dim; j++) {
            y[i++] = (float)(std * normal[j]);
        }
    }
}

/* Everything that the operations work on. */
struct workload {
    size_t dim;
    float *y, *copy;          /* float[dim] */
    int32_t *levels, *output; /* int32[dim] */
    int8_t *bytes;            /* int8[dim], the levels */
    int64_t *sums;            /* int64[dim] */
    struct tally_rng rng;
    struct tally_buffer payloads[TALLY_BENCH_MAX_ENCODINGS]; /* of each encoding */
    struct tally_level_stats stats[TALLY_BENCH_MAX_ENCODINGS];
    struct tally_buffer dithered; /* payload */
    struct tally_level_stats dithered_stats;
    uint8_t *zstd;
    size_t zstd_capacity, n_zstd;
};

static void workload_fini(struct workload *work)
{
    free(work->y);
    free(work->copy);
    free(work->levels);
    free(work->output);
    free(work->bytes);
    free(work->sums);
    free(work->zstd);
    tally_buffer_fini(&work->dithered);
    for (size_t i = 0; i < TALLY_BENCH_MAX_ENCODINGS; i++) {
        tally_buffer_fini(&work->payloads[i]);
    }
}

static enum tally_status workload_init(struct workload *work, size_t dim, double std,
                                       struct tally_error *err)
{
    *work = (struct workload){.dim = dim,
                              .y = malloc(dim * sizeof *work->y),
                              .copy = malloc(dim * sizeof *work->copy),
                              .levels = malloc(dim * sizeof *work->levels),
                              .output = malloc(dim * sizeof *work->output),
                              .bytes = malloc(dim),
                              .sums = calloc(dim, sizeof *work->sums),
                              .zstd_capacity = tally_zstd_bound(dim)};
    work->zstd = malloc(work->zstd_capacity + 1);
    if (work->y == NULL || work->copy == NULL || work->levels == NULL || work->output == NULL ||
        work->bytes == NULL || work->sums == NULL || work->zstd == NULL) {
        workload_fini(work);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu coordinates", dim);
    }
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(1, 0), 0, 0, TALLY_RNG_NOISE);
    fill_normal(&rng, std, work->y, dim);
    return TALLY_OK;
}

/* Reserves room for the current levels in every encoding. */
static enum tally_status reserve_payloads(struct workload *work, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < tally_bench_n_encodings() && status == TALLY_OK; i++) {
        work->payloads[i].size = 0;
        status = tally_buffer_reserve(&work->payloads[i],
                                      TALLY_ENCODINGS[i]->bound(work->levels, work->dim));
    }
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "a message of %zu coordinates: %s",
                                           work->dim, tally_status_info(status)->title);
}

/* Quantizes y again, with a different stream for each message. */
static enum tally_status next_levels(struct workload *work, uint32_t message,
                                     struct tally_error *err)
{
    uint64_t clipped;
    tally_rng_init(&work->rng, tally_rng_key(1, 0), 0, message, TALLY_RNG_UPLINK);
    enum tally_status status =
        tally_quantize(&GRID, work->y, work->dim, &work->rng, work->levels, &clipped, err);
    for (size_t i = 0; status == TALLY_OK && i < work->dim; i++) {
        work->bytes[i] = (int8_t)work->levels[i];
    }
    return status;
}

/* The loop that accumulation is compared with, as the compiler optimizes it. */
static __attribute__((noinline)) void add_levels(int64_t *restrict sums,
                                                 const int8_t *restrict levels, size_t dim)
{
    for (size_t i = 0; i < dim; i++) {
        sums[i] += levels[i];
    }
}

static size_t index_of(const struct tally_encoding *encoding)
{
    size_t i = 0;
    while (TALLY_ENCODINGS[i] != encoding) {
        i++;
    }
    return i;
}

static enum tally_status run_codec(struct workload *work, const struct tally_bench_meter *meter,
                                   struct tally_error *err)
{
    const struct tally_encoding *encoding = meter->encoding;
    const size_t i = index_of(encoding);
    struct tally_buffer *payload = &work->payloads[i];
    struct tally_level_stats *stats = &work->stats[i];
    if (meter->operation == TALLY_BENCH_QUANTIZE_ENCODE) {
        const struct tally_vector vector = {
            .y = work->y, .dim = work->dim, .grid = &GRID, .rng = &work->rng};
        uint64_t clipped;
        return tally_quantize_encode(encoding, &vector, work->output, payload, stats, &clipped,
                                     err);
    }
    if (meter->operation == TALLY_BENCH_DECODE_ACCUMULATE) {
        return encoding->accumulate(payload->data, payload->size, stats->payload_bits, work->dim,
                                    &GRID, work->sums, stats, err);
    }
    if (meter->operation == TALLY_BENCH_ENCODE) {
        return encoding->encode(work->levels, work->dim, &GRID, payload->data, payload->capacity,
                                stats);
    }
    return encoding->decode(payload->data, payload->size, stats->payload_bits, work->dim, &GRID,
                            work->output, stats, err);
}

/* The scale is that of the vector: one step. */
static enum tally_status run_dithered(struct workload *work, const struct tally_bench_meter *meter,
                                      struct tally_error *err)
{
    const struct tally_grid grid = {
        .step = 1, .intervals = 2 * TOP, .scale = tally_dithered_scale_of(1)};
    const struct tally_vector vector = {
        .y = work->y, .dim = work->dim, .grid = &grid, .rng = &work->rng};
    struct tally_buffer *payload = &work->dithered;
    struct tally_level_stats *stats = &work->dithered_stats;
    uint64_t clipped;
    return meter->operation == TALLY_BENCH_DITHERED_ENCODE
               ? tally_dithered_encode(&vector, work->output, payload, stats, &clipped, err)
               : tally_dithered_accumulate(payload->data, payload->size, stats->payload_bits,
                                           work->dim, &grid, &work->rng, work->sums, stats, err);
}

static enum tally_status run_once(struct workload *work, const struct tally_bench_meter *meter,
                                  struct tally_error *err)
{
    switch (meter->operation) {
    case TALLY_BENCH_MEMCPY:
        memcpy(work->copy, work->y, work->dim * sizeof *work->y);
        return TALLY_OK;
    case TALLY_BENCH_ADD:
        add_levels(work->sums, work->bytes, work->dim);
        return TALLY_OK;
    case TALLY_BENCH_ZSTD_COMPRESS:
        work->n_zstd = tally_zstd_compress(work->bytes, work->dim, work->zstd, work->zstd_capacity);
        return work->n_zstd > 0 ? TALLY_OK : tally_fail(err, TALLY_INTERNAL, NULL, "zstd failed");
    case TALLY_BENCH_ZSTD_DECOMPRESS:
        return tally_zstd_decompress(work->zstd, work->n_zstd, work->copy, work->dim) == work->dim
                   ? TALLY_OK
                   : tally_fail(err, TALLY_INTERNAL, NULL, "zstd failed");
    case TALLY_BENCH_DITHERED_ENCODE:
    case TALLY_BENCH_DITHERED_ACCUMULATE:
        return run_dithered(work, meter, err);
    case TALLY_BENCH_QUANTIZE_ENCODE:
    case TALLY_BENCH_DECODE_ACCUMULATE:
    case TALLY_BENCH_ENCODE:
    case TALLY_BENCH_DECODE:
        break;
    }
    return run_codec(work, meter, err);
}

static void add_meter(struct tally_bench *bench, enum tally_bench_operation operation,
                      const struct tally_encoding *encoding, enum tally_cpu cpu)
{
    assert(bench->n_meters < TALLY_BENCH_MAX_METERS);
    struct tally_bench_meter *meter = &bench->meters[bench->n_meters++];
    meter->operation = operation;
    meter->encoding = encoding;
    meter->cpu = cpu;
}

/* Plans encoding before decoding, which reads the messages that it made. */
static void plan_meters(struct tally_bench *bench)
{
    const enum tally_cpu best = tally_cpu_best();
    add_meter(bench, TALLY_BENCH_MEMCPY, NULL, best);
    add_meter(bench, TALLY_BENCH_ADD, NULL, best);
    for (size_t i = 0; i < tally_bench_n_encodings(); i++) {
        for (int cpu = (int)best; cpu >= 0; cpu--) {
            add_meter(bench, TALLY_BENCH_QUANTIZE_ENCODE, TALLY_ENCODINGS[i], (enum tally_cpu)cpu);
            add_meter(bench, TALLY_BENCH_DECODE_ACCUMULATE, TALLY_ENCODINGS[i],
                      (enum tally_cpu)cpu);
        }
        add_meter(bench, TALLY_BENCH_ENCODE, TALLY_ENCODINGS[i], best);
        add_meter(bench, TALLY_BENCH_DECODE, TALLY_ENCODINGS[i], best);
    }
    for (int cpu = (int)best; cpu >= 0; cpu--) {
        add_meter(bench, TALLY_BENCH_DITHERED_ENCODE, NULL, (enum tally_cpu)cpu);
        add_meter(bench, TALLY_BENCH_DITHERED_ACCUMULATE, NULL, (enum tally_cpu)cpu);
    }
    if (tally_zstd_is_there()) {
        add_meter(bench, TALLY_BENCH_ZSTD_COMPRESS, NULL, best);
        add_meter(bench, TALLY_BENCH_ZSTD_DECOMPRESS, NULL, best);
    }
}

/* Runs every meter once; sample < 0 warms up and checks the decoded levels. */
static enum tally_status run_all(struct tally_bench *bench, struct workload *work, int64_t sample,
                                 struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < bench->n_meters && status == TALLY_OK; i++) {
        struct tally_bench_meter *meter = &bench->meters[i];
        tally_cpu_set_limit(meter->cpu);
        const double begin = tally_thread_cpu_s();
        status = run_once(work, meter, err);
        if (sample >= 0) {
            meter->samples[sample] = tally_thread_cpu_s() - begin;
        } else if (status == TALLY_OK && meter->operation == TALLY_BENCH_DECODE &&
                   memcmp(work->output, work->levels, work->dim * sizeof *work->levels) != 0) {
            status = tally_fail(err, TALLY_INTERNAL, NULL, "%s decodes to other levels",
                                meter->encoding->name);
        }
        if (status == TALLY_OK && *tally_signals_stop() != 0) {
            status = tally_fail(err, TALLY_CANCELLED, NULL, "interrupted");
        }
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum tally_status tally_bench_run(size_t dim, double seconds, struct tally_bench *ret_bench,
                                  struct tally_error *err)
{
    struct workload work;
    enum tally_status status = workload_init(&work, dim, 1, err);
    if (status != TALLY_OK) {
        return status;
    }
    ret_bench->dim = dim;
    ret_bench->n_samples = ret_bench->n_meters = 0;
    plan_meters(ret_bench);
    status = next_levels(&work, 0, err);
    if (status == TALLY_OK) {
        status = reserve_payloads(&work, err);
    }
    if (status == TALLY_OK) {
        status = run_all(ret_bench, &work, -1, err);
    }
    const double begin = tally_thread_cpu_s();
    size_t n = 0;
    while (status == TALLY_OK && n < TALLY_BENCH_MAX_SAMPLES &&
           (n < MIN_SAMPLES || tally_thread_cpu_s() - begin < seconds)) {
        status = run_all(ret_bench, &work, (int64_t)n++, err);
    }
    ret_bench->n_samples = n;
    for (size_t i = 0; i < ret_bench->n_meters; i++) {
        qsort(ret_bench->meters[i].samples, n, sizeof(double), compare);
    }
    workload_fini(&work);
    return status;
}

const struct tally_bench_meter *tally_bench_find(const struct tally_bench *bench,
                                                 enum tally_bench_operation operation,
                                                 const struct tally_encoding *encoding,
                                                 enum tally_cpu cpu)
{
    for (size_t i = 0; i < bench->n_meters; i++) {
        const struct tally_bench_meter *meter = &bench->meters[i];
        if (meter->operation == operation && meter->encoding == encoding && meter->cpu == cpu) {
            return meter;
        }
    }
    return NULL;
}

/* Entropy in bits per level, from the count of each of the 2 TOP + 1 levels. */
static double entropy_of(const uint64_t counts[2 * TOP + 1])
{
    double n = 0, sum = 0;
    for (size_t i = 0; i <= 2 * TOP; i++) {
        const double count = (double)counts[i];
        n += count;
        sum += count > 0 ? count * log2(count) : 0;
    }
    return log2(n) - sum / n;
}

/* Adds the costs of the current levels to `bits`, and the levels to `counts`. */
static enum tally_status add_costs(struct workload *work, struct tally_bench_bits *bits,
                                   uint64_t counts[2 * TOP + 1], struct tally_error *err)
{
    enum tally_status status = reserve_payloads(work, err);
    for (size_t i = 0; i < work->dim; i++) {
        counts[work->levels[i] + TOP]++;
        bits->formula += 1 + fabs((double)work->levels[i]);
    }
    for (size_t e = 0; e < tally_bench_n_encodings() && status == TALLY_OK; e++) {
        const struct tally_buffer *payload = &work->payloads[e];
        status = TALLY_ENCODINGS[e]->encode(work->levels, work->dim, &GRID, payload->data,
                                            payload->capacity, &work->stats[e]);
        bits->encodings[e] += (double)work->stats[e].payload_bits;
    }
    if (tally_zstd_is_there()) {
        bits->zstd += 8 * (double)tally_zstd_compress(work->bytes, work->dim, work->zstd,
                                                      work->zstd_capacity);
    }
    return status == TALLY_OK
               ? status
               : tally_fail(err, status, NULL, "encoding: %s", tally_status_info(status)->title);
}

enum tally_status tally_bench_bits(struct tally_bench_bits *bits, struct tally_error *err)
{
    enum { ENOUGH = 300000 }; /* coordinates, so that means vary by less than 1% */
    const uint32_t n_messages = (uint32_t)(1 + ENOUGH / bits->dim);
    uint64_t counts[2 * TOP + 1] = {0};
    struct workload work;
    enum tally_status status = workload_init(&work, bits->dim, bits->std, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(2, 0), 0, 0, TALLY_RNG_NOISE);
    *bits = (struct tally_bench_bits){.dim = bits->dim, .std = bits->std};
    for (uint32_t i = 0; i < n_messages && status == TALLY_OK; i++) {
        fill_normal(&rng, bits->std, work.y, work.dim);
        status = next_levels(&work, i, err);
        if (status == TALLY_OK) {
            status = add_costs(&work, bits, counts, err);
        }
    }
    workload_fini(&work);
    const double n = (double)n_messages * (double)bits->dim;
    bits->entropy = entropy_of(counts);
    bits->formula /= n;
    bits->zstd /= n;
    for (size_t e = 0; e < tally_bench_n_encodings(); e++) {
        bits->encodings[e] /= n;
    }
    return status;
}

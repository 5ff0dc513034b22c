#include "tests/bench/codec_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/json.h"
#include "services/base/text_table.h"
#include "tests/bench/zstd_yardstick.h"

static const size_t BITS_DIMS[] = {30, 7840, 1000000};
static const double BITS_STDS[] = {0.3, 0.5, 1, 1.6, 3};
enum {
    N_DIMS = sizeof BITS_DIMS / sizeof BITS_DIMS[0],
    N_STDS = sizeof BITS_STDS / sizeof BITS_STDS[0],
};

struct outcome {
    struct tally_bench bench;
    struct tally_bench_bits bits[N_DIMS * N_STDS];
    size_t n_bits;
};

static enum tally_status measure(size_t dim, double seconds, struct outcome *outcome,
                                 struct tally_error *err)
{
    enum tally_status status = tally_bench_run(dim, seconds, &outcome->bench, err);
    for (size_t d = 0; d < N_DIMS && BITS_DIMS[d] <= dim; d++) {
        for (size_t s = 0; s < N_STDS && status == TALLY_OK; s++) {
            struct tally_bench_bits *bits = &outcome->bits[outcome->n_bits++];
            *bits = (struct tally_bench_bits){.dim = BITS_DIMS[d], .std = BITS_STDS[s]};
            status = tally_bench_bits(bits, err);
        }
    }
    return status;
}

/* Time of the yardstick divided by that of the meter, both at their best; 0 if one is missing. */
static double ratio(const struct tally_bench_meter *meter,
                    const struct tally_bench_meter *yardstick)
{
    return meter == NULL || yardstick == NULL ? 0 : yardstick->samples[0] / meter->samples[0];
}

static bool is_dithered(const struct tally_bench_meter *meter)
{
    return meter->operation == TALLY_BENCH_DITHERED_ENCODE ||
           meter->operation == TALLY_BENCH_DITHERED_ACCUMULATE;
}

/* The same operation of `entropy`. */
static const struct tally_bench_meter *entropy_beside(const struct tally_bench *bench,
                                                      enum tally_bench_operation operation,
                                                      enum tally_cpu cpu)
{
    return tally_bench_find(bench,
                            operation == TALLY_BENCH_DITHERED_ENCODE
                                ? TALLY_BENCH_QUANTIZE_ENCODE
                                : TALLY_BENCH_DECODE_ACCUMULATE,
                            &TALLY_ENCODING_ENTROPY, cpu);
}

static const struct tally_bench_meter *yardstick_of(const struct tally_bench *bench,
                                                    enum tally_bench_operation operation)
{
    static const enum tally_bench_operation YARDSTICKS[] = {
        [TALLY_BENCH_MEMCPY] = TALLY_BENCH_MEMCPY,
        [TALLY_BENCH_ADD] = TALLY_BENCH_ADD,
        [TALLY_BENCH_QUANTIZE_ENCODE] = TALLY_BENCH_MEMCPY,
        [TALLY_BENCH_DECODE_ACCUMULATE] = TALLY_BENCH_ADD,
        [TALLY_BENCH_ENCODE] = TALLY_BENCH_ZSTD_COMPRESS,
        [TALLY_BENCH_DECODE] = TALLY_BENCH_ZSTD_DECOMPRESS,
        [TALLY_BENCH_ZSTD_COMPRESS] = TALLY_BENCH_ZSTD_COMPRESS,
        [TALLY_BENCH_ZSTD_DECOMPRESS] = TALLY_BENCH_ZSTD_DECOMPRESS,
    };
    return tally_bench_find(bench, YARDSTICKS[operation], NULL, tally_cpu_best());
}

/* Ratio of an operation with the best instruction set. */
static double best_ratio(const struct tally_bench *bench, enum tally_bench_operation operation,
                         const struct tally_encoding *encoding)
{
    return ratio(tally_bench_find(bench, operation, encoding, tally_cpu_best()),
                 yardstick_of(bench, operation));
}

static bool set_ratios(struct tally_json *answer, const char *key, const struct tally_bench *bench,
                       enum tally_bench_operation operation)
{
    struct tally_json *ratios = tally_json_object();
    bool ok = ratios != NULL;
    for (size_t i = 0; ok && TALLY_ENCODINGS[i] != NULL; i++) {
        ok = tally_json_set_real(ratios, TALLY_ENCODINGS[i]->name,
                                 best_ratio(bench, operation, TALLY_ENCODINGS[i]));
    }
    return tally_json_set(answer, key, ratios) && ok;
}

/* null if the build lacks zstd or the encoding. */
static bool set_over_zstd(struct tally_json *object, const char *key,
                          const struct tally_bench *bench, enum tally_bench_operation operation)
{
    double value = 0;
    for (size_t i = 0; TALLY_ENCODINGS[i] != NULL; i++) {
        if (strcmp(TALLY_ENCODINGS[i]->name, "entropy") == 0) {
            value = best_ratio(bench, operation, TALLY_ENCODINGS[i]);
        }
    }
    return value > 0 ? tally_json_set_real(object, key, value) : tally_json_set_null(object, key);
}

static bool set_over_entropy(struct tally_json *object, const char *key,
                             const struct tally_bench *bench, enum tally_bench_operation operation)
{
    const enum tally_cpu cpu = tally_cpu_best();
    return tally_json_set_real(object, key,
                               ratio(tally_bench_find(bench, operation, NULL, cpu),
                                     entropy_beside(bench, operation, cpu)));
}

static bool append_bits(struct tally_json *rows, const struct tally_bench_bits *bits)
{
    bool ok = true;
    for (size_t i = 0; ok && TALLY_ENCODINGS[i] != NULL; i++) {
        struct tally_json *row = tally_json_object();
        ok = row != NULL && tally_json_set_text(row, "encoding", TALLY_ENCODINGS[i]->name);
        ok = ok && tally_json_set_unsigned(row, "dim", bits->dim);
        ok = ok && tally_json_set_real(row, "std", bits->std);
        ok = ok && tally_json_set_real(row, "bits_per_coordinate", bits->encodings[i]);
        ok = ok && tally_json_set_real(row, "entropy_per_coordinate", bits->entropy);
        ok = tally_json_append(rows, row) && ok;
    }
    return ok;
}

static enum tally_status render_json(const struct outcome *outcome, struct tally_buffer *out)
{
    struct tally_json *answer = tally_json_object(), *over_zstd = tally_json_object();
    struct tally_json *over_entropy = tally_json_object();
    struct tally_json *rows = tally_json_array();
    const struct tally_bench *bench = &outcome->bench;
    bool ok =
        set_ratios(answer, "quantize_encode_over_memcpy", bench, TALLY_BENCH_QUANTIZE_ENCODE) &&
        set_ratios(answer, "decode_accumulate_over_add", bench, TALLY_BENCH_DECODE_ACCUMULATE) &&
        set_over_zstd(over_zstd, "encode", bench, TALLY_BENCH_ENCODE) &&
        set_over_zstd(over_zstd, "decode", bench, TALLY_BENCH_DECODE) &&
        set_over_entropy(over_entropy, "encode", bench, TALLY_BENCH_DITHERED_ENCODE) &&
        set_over_entropy(over_entropy, "decode", bench, TALLY_BENCH_DITHERED_ACCUMULATE);
    for (size_t i = 0; ok && i < outcome->n_bits; i++) {
        ok = append_bits(rows, &outcome->bits[i]);
    }
    ok = tally_json_set(answer, "entropy_over_zstd1", over_zstd) && ok;
    ok = tally_json_set(answer, "dithered_over_entropy", over_entropy) && ok;
    ok = tally_json_set(answer, "bits", rows) && ok;
    enum tally_status status = ok ? tally_json_dump(answer, 2, out) : TALLY_NO_MEMORY;
    tally_json_free(answer);
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

static void add_number(struct tally_text_table *table, double value, int digits)
{
    char text[32] = "-";
    if (value > 0) {
        snprintf(text, sizeof text, "%.*f", digits, value);
    }
    tally_text_table_add(table, text);
}

static void add_speed_row(struct tally_text_table *table, const struct tally_bench *bench,
                          const struct tally_bench_meter *meter)
{
    static const char *const NAMES[] = {
        [TALLY_BENCH_MEMCPY] = "memcpy",
        [TALLY_BENCH_ADD] = "add int8 levels",
        [TALLY_BENCH_QUANTIZE_ENCODE] = "quantize + encode",
        [TALLY_BENCH_DECODE_ACCUMULATE] = "decode + accumulate",
        [TALLY_BENCH_ENCODE] = "encode",
        [TALLY_BENCH_DECODE] = "decode",
        [TALLY_BENCH_ZSTD_COMPRESS] = "zstd -1",
        [TALLY_BENCH_ZSTD_DECOMPRESS] = "zstd -d",
        [TALLY_BENCH_DITHERED_ENCODE] = "quantize + encode",
        [TALLY_BENCH_DITHERED_ACCUMULATE] = "decode + accumulate",
    };
    static const char *const YARDSTICKS[] = {
        [TALLY_BENCH_QUANTIZE_ENCODE] = " memcpy",  [TALLY_BENCH_DECODE_ACCUMULATE] = " add",
        [TALLY_BENCH_ENCODE] = " zstd -1",          [TALLY_BENCH_DECODE] = " zstd -d",
        [TALLY_BENCH_DITHERED_ENCODE] = " entropy", [TALLY_BENCH_DITHERED_ACCUMULATE] = " entropy"};
    const bool has_encoding = meter->encoding != NULL || is_dithered(meter);
    const double bytes = 4 * (double)bench->dim;
    tally_text_table_add(table, NAMES[meter->operation]);
    tally_text_table_add(table, is_dithered(meter)        ? "dithered"
                                : meter->encoding != NULL ? meter->encoding->name
                                                          : "");
    tally_text_table_add(table, has_encoding ? TALLY_CPU_NAMES[meter->cpu] : "");
    add_number(table, 1e-9 * bytes / meter->samples[0], 2);
    add_number(table, 1e-9 * bytes / meter->samples[bench->n_samples / 2], 2);
    if (has_encoding) {
        const double over =
            ratio(meter, is_dithered(meter) ? entropy_beside(bench, meter->operation, meter->cpu)
                                            : yardstick_of(bench, meter->operation));
        char text[48] = "-";
        if (over > 0) {
            snprintf(text, sizeof text, "%.2f%s", over, YARDSTICKS[meter->operation]);
        }
        tally_text_table_add(table, text);
    }
    tally_text_table_end_row(table);
}

static enum tally_status render_speed(const struct tally_bench *bench, struct tally_buffer *out)
{
    struct tally_text_table table;
    tally_text_table_init(&table, "lllrrl", "OPERATION,ENCODING,INSTRUCTIONS,GB/S,MEDIAN,RATIO");
    for (size_t i = 0; i < bench->n_meters; i++) {
        add_speed_row(&table, bench, &bench->meters[i]);
    }
    enum tally_status status = tally_buffer_printf(
        out,
        "One core, %zu coordinates of standard deviation 1 step, %zu repetitions.\n"
        "GB/s of float32 input, the best repetition and the median one; ratios are of the "
        "best.\n\n",
        bench->dim, bench->n_samples);
    const enum tally_status ended = tally_text_table_end(&table, out);
    return status == TALLY_OK ? ended : status;
}

static enum tally_status render_bits(const struct outcome *outcome, struct tally_buffer *out)
{
    static const char RIGHT[] = "rrrrrrrrrrrrr"; /* 5 columns and the encodings */
    _Static_assert(sizeof RIGHT - 1 >= 5 + TALLY_BENCH_MAX_ENCODINGS, "a column has no alignment");
    char alignment[sizeof RIGHT];
    snprintf(alignment, sizeof alignment, "%.*s", 5 + (int)tally_bench_n_encodings(), RIGHT);
    struct tally_text_table table;
    tally_text_table_init(&table, alignment, "DIM,STD,ENTROPY,FORMULA");
    for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
        tally_text_table_add(&table, TALLY_ENCODINGS[e]->name);
    }
    tally_text_table_add(&table, "zstd -1");
    for (size_t i = 0; i < outcome->n_bits; i++) {
        const struct tally_bench_bits *bits = &outcome->bits[i];
        tally_text_table_printf(&table, "%zu\t%.1f\t%.4f\t%.4f", bits->dim, bits->std,
                                bits->entropy, bits->formula);
        for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
            add_number(&table, bits->encodings[e], 4);
        }
        add_number(&table, bits->zstd, 4);
    }
    enum tally_status status = tally_buffer_printf(
        out,
        "\nTotal bits per coordinate of rounded Gaussian vectors (standard deviation in "
        "steps).\n%s\n",
        tally_zstd_is_there() ? "" : "This build has no zstd to compare with.\n");
    const enum tally_status ended = tally_text_table_end(&table, out);
    return status == TALLY_OK ? ended : status;
}

enum tally_status tally_codec_bench_report(size_t dim, double seconds, bool as_json,
                                           struct tally_buffer *out, struct tally_error *err)
{
    struct outcome *outcome = calloc(1, sizeof *outcome);
    if (outcome == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    enum tally_status status = measure(dim, seconds, outcome, err);
    if (status == TALLY_OK) {
        status = as_json ? render_json(outcome, out) : render_speed(&outcome->bench, out);
        if (status == TALLY_OK && !as_json) {
            status = render_bits(outcome, out);
        }
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the result");
        }
    }
    free(outcome);
    return status;
}

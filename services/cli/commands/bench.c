/* tally bench: `codec`, speed and bits of the codec, beside yardsticks in the same run; and
 * `coordinator`, which is in coordinator_bench_report.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/bench/codec_bench.h"
#include "services/bench/coordinator_bench_report.h"
#include "services/bench/zstd_yardstick.h"
#include "services/cli/commands/commands.h"
#include "services/cli/view/text_table.h"

/* Of dim and seconds each benchmark has defaults of its own. */
const struct tally_option TALLY_CLI_BENCH_OPTIONS[] = {
    {"dim", "N", NULL,
     "codec: coordinates of the vector whose speed is measured (default 10000000); coordinator: "
     "dimensions, a list N,N (default 30,7840)",
     NULL},
    {"seconds", "S", NULL,
     "codec: how long to measure, in seconds of CPU time (default 5); coordinator: how long each "
     "run is (default 2)",
     NULL},
    {"json", NULL, NULL, "print what was measured as JSON", NULL},
    {"clients", "LIST", "64", "numbers of clients, N,N", "Of coordinator"},
    {"store", "LIST", NULL, "sqlite, memory or both (default sqlite,memory)", "Of coordinator"},
    {"encoding", "NAME", "unary", "of the messages: unary or entropy", "Of coordinator"},
    {"runs", "R", "5", "repetitions, echo server and coordinators in turn", "Of coordinator"},
    {"rounds", "N", "0", "rounds of a run's job; 0 = as many as take --seconds", "Of coordinator"},
    {"idle", "N", "0", "measure with N further workers, too, that poll and have nothing to do",
     "Of coordinator"},
    {0},
};

enum { MIN_DIM = 64, MAX_DIM = 1 << 28, DEFAULT_DIM = 10000000 };
static const double DEFAULT_SECONDS = 5;

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

/* Time of the yardstick over that of the meter, both at their best; 0 where one is missing. */
static double ratio(const struct tally_bench_meter *meter,
                    const struct tally_bench_meter *yardstick)
{
    return meter == NULL || yardstick == NULL ? 0 : yardstick->samples[0] / meter->samples[0];
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

/* null where the build lacks one of the two. */
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

static int print_json(const struct outcome *outcome)
{
    struct tally_json *answer = tally_json_object(), *over_zstd = tally_json_object();
    struct tally_json *rows = tally_json_array();
    const struct tally_bench *bench = &outcome->bench;
    bool ok = answer != NULL && over_zstd != NULL && rows != NULL;
    ok =
        ok && set_ratios(answer, "quantize_encode_over_memcpy", bench, TALLY_BENCH_QUANTIZE_ENCODE);
    ok = ok &&
         set_ratios(answer, "decode_accumulate_over_add", bench, TALLY_BENCH_DECODE_ACCUMULATE);
    ok = ok && set_over_zstd(over_zstd, "encode", bench, TALLY_BENCH_ENCODE);
    ok = ok && set_over_zstd(over_zstd, "decode", bench, TALLY_BENCH_DECODE);
    for (size_t i = 0; ok && i < outcome->n_bits; i++) {
        ok = append_bits(rows, &outcome->bits[i]);
    }
    /* set() takes its value in any case. */
    ok = tally_json_set(answer, "entropy_over_zstd1", over_zstd) && ok;
    ok = tally_json_set(answer, "bits", rows) && ok;
    struct tally_error err = TALLY_ERROR_INIT;
    if (!ok) {
        tally_fail(&err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    const int exit_code = ok ? tally_cli_print_json(answer, 2) : tally_cli_report(&err);
    tally_json_free(answer);
    return exit_code;
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
    };
    static const char *const YARDSTICKS[] = {[TALLY_BENCH_QUANTIZE_ENCODE] = " memcpy",
                                             [TALLY_BENCH_DECODE_ACCUMULATE] = " add",
                                             [TALLY_BENCH_ENCODE] = " zstd -1",
                                             [TALLY_BENCH_DECODE] = " zstd -d"};
    const double bytes = 4 * (double)bench->dim;
    tally_text_table_add(table, NAMES[meter->operation]);
    tally_text_table_add(table, meter->encoding != NULL ? meter->encoding->name : "");
    tally_text_table_add(table, meter->encoding != NULL ? TALLY_CPU_NAMES[meter->cpu] : "");
    add_number(table, 1e-9 * bytes / meter->samples[0], 2);
    add_number(table, 1e-9 * bytes / meter->samples[bench->n_samples / 2], 2);
    if (meter->encoding != NULL) {
        const double over = ratio(meter, yardstick_of(bench, meter->operation));
        char text[48] = "-";
        if (over > 0) {
            snprintf(text, sizeof text, "%.2f%s", over, YARDSTICKS[meter->operation]);
        }
        tally_text_table_add(table, text);
    }
    tally_text_table_end_row(table);
}

static enum tally_status render_speed(const struct tally_bench *bench, struct tally_buffer *text)
{
    static const char *const HEADS[] = {"OPERATION", "ENCODING", "INSTRUCTIONS",
                                        "GB/S",      "MEDIAN",   "RATIO"};
    struct tally_text_table table;
    tally_text_table_init(&table, "lllrrl");
    for (size_t i = 0; i < sizeof HEADS / sizeof HEADS[0]; i++) {
        tally_text_table_add(&table, HEADS[i]);
    }
    for (size_t i = 0; i < bench->n_meters; i++) {
        add_speed_row(&table, bench, &bench->meters[i]);
    }
    enum tally_status status = tally_buffer_printf(
        text,
        "One core, %zu coordinates of standard deviation 1 step, %zu repetitions.\n"
        "GB/s of float32 input, the best repetition and the median one; ratios are of the "
        "best.\n\n",
        bench->dim, bench->n_samples);
    if (status == TALLY_OK) {
        status = tally_text_table_render(&table, text);
    }
    tally_text_table_fini(&table);
    return status;
}

static enum tally_status render_bits(const struct outcome *outcome, struct tally_buffer *text)
{
    static const char RIGHT[] = "rrrrrrrrrrrrr"; /* 5 columns and the encodings */
    _Static_assert(sizeof RIGHT - 1 >= 5 + TALLY_BENCH_MAX_ENCODINGS, "a column has no alignment");
    const int n_columns = 5 + (int)tally_bench_n_encodings();
    char alignment[sizeof RIGHT];
    snprintf(alignment, sizeof alignment, "%.*s", n_columns, RIGHT);
    struct tally_text_table table;
    tally_text_table_init(&table, alignment);
    tally_text_table_add(&table, "DIM");
    tally_text_table_add(&table, "STD");
    tally_text_table_add(&table, "ENTROPY");
    tally_text_table_add(&table, "FORMULA");
    for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
        tally_text_table_add(&table, TALLY_ENCODINGS[e]->name);
    }
    tally_text_table_add(&table, "zstd -1");
    for (size_t i = 0; i < outcome->n_bits; i++) {
        const struct tally_bench_bits *bits = &outcome->bits[i];
        add_number(&table, (double)bits->dim, 0);
        add_number(&table, bits->std, 1);
        add_number(&table, bits->entropy, 4);
        add_number(&table, bits->formula, 4);
        for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
            add_number(&table, bits->encodings[e], 4);
        }
        add_number(&table, bits->zstd, 4);
    }
    enum tally_status status = tally_buffer_printf(
        text,
        "\nBits per coordinate, everything included, of rounded Gaussians (standard deviation in "
        "steps).\n%s\n",
        tally_zstd_is_there() ? "" : "This build has no zstd to compare with.\n");
    if (status == TALLY_OK) {
        status = tally_text_table_render(&table, text);
    }
    tally_text_table_fini(&table);
    return status;
}

static int print_text(const struct outcome *outcome)
{
    struct tally_buffer text = {0};
    enum tally_status status = render_speed(&outcome->bench, &text);
    if (status == TALLY_OK) {
        status = render_bits(outcome, &text);
    }
    const int exit_code = tally_cli_print(status, &text);
    tally_buffer_fini(&text);
    return exit_code;
}

static int bench_codec(const struct tally_options *options)
{
    struct tally_error err = TALLY_ERROR_INIT;
    int64_t dim = DEFAULT_DIM;
    double seconds = DEFAULT_SECONDS;
    enum tally_status status = TALLY_OK;
    if (tally_options_has(options, "dim")) {
        status = tally_options_integer(options, "dim", MIN_DIM, MAX_DIM, &dim, &err);
    }
    if (status == TALLY_OK && tally_options_has(options, "seconds")) {
        status = tally_options_real(options, "seconds", 0, 3600, &seconds, &err);
    }
    if (status != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    struct outcome *outcome = calloc(1, sizeof *outcome);
    int exit_code = TALLY_EXIT_OK;
    if (outcome == NULL) {
        tally_fail(&err, TALLY_NO_MEMORY, NULL, "out of memory");
        exit_code = tally_cli_report(&err);
    } else if (measure((size_t)dim, seconds, outcome, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else {
        exit_code = tally_options_bool(options, "json") ? print_json(outcome) : print_text(outcome);
    }
    free(outcome);
    return exit_code;
}

int tally_cli_bench(struct tally_cli *cli)
{
    const char *subject = tally_options_positional(cli->options, 0);
    if (strcmp(subject, "codec") == 0) {
        return bench_codec(cli->options);
    }
    if (strcmp(subject, "coordinator") == 0) {
        return tally_coordinator_bench_report(cli->options);
    }
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL,
               "no benchmark \"%.60s\"; there are: codec, coordinator", subject);
    return tally_cli_report_usage(&err);
}

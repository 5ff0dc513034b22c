/* uplink_bits: the bits of one message for a grid of (encoding, dim, std, seed), as CSV.
 *
 *     tally-test-uplink-bits            prints the table
 *     tally-test-uplink-bits FILE       compares it with FILE; exit status 1 if a row differs
 *
 * A vector of independent N(0, std^2) is rounded to a grid of step 1, as an uplink message is; the
 * table in the repository, uplink_bits.csv, is what the first form printed. A change of it is a
 * change of what clients send:
 *
 *     build/release/bin/tally-test-uplink-bits >tests/regression/uplink_bits.csv
 *
 * and say in the commit why. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/buffer.h"
#include "codec/encoding.h"
#include "codec/numeric/rng.h"

static const size_t DIMS[] = {30, 7840, 300000};
static const double STDS[] = {0.05, 0.3, 0.5, 1, 1.6, 3, 40};
enum { N_DIMS = sizeof DIMS / sizeof DIMS[0], N_STDS = sizeof STDS / sizeof STDS[0], N_SEEDS = 3 };

/* Memory for the largest vector. */
struct scratch {
    double *normal;
    float *y;
    int32_t *levels;
};

static bool add_row(const struct tally_encoding *encoding, size_t dim, double std, uint64_t seed,
                    struct scratch *scratch, struct tally_buffer *table)
{
    const struct tally_grid grid = {.step = 1, .intervals = 1 << 12};
    struct tally_rng normal, rounding;
    const struct tally_rng_key key = tally_rng_key(seed, 0);
    tally_rng_init(&normal, key, 0, 0, TALLY_RNG_COVARIATES);
    tally_rng_init(&rounding, key, 0, 0, TALLY_RNG_UPLINK);
    tally_rng_normal(&normal, scratch->normal, dim);
    for (size_t i = 0; i < dim; i++) {
        scratch->y[i] = (float)(std * scratch->normal[i]);
    }
    const struct tally_vector vector = {
        .y = scratch->y, .dim = dim, .grid = &grid, .rng = &rounding};
    struct tally_buffer payload = {0};
    struct tally_level_stats stats;
    uint64_t clipped;
    bool ok = tally_quantize_encode(encoding, &vector, scratch->levels, &payload, &stats, &clipped,
                                    NULL) == TALLY_OK;
    tally_buffer_fini(&payload);
    return ok && tally_buffer_printf(table, "%s,%zu,%g,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n",
                                     encoding->name, dim, std, seed, stats.payload_bits,
                                     stats.formula_bits) == TALLY_OK;
}

static bool make_table(struct scratch *scratch, struct tally_buffer *table)
{
    bool ok = tally_buffer_append_text(
                  table, "encoding,dim,std,seed,payload_bits,formula_bits\n") == TALLY_OK;
    for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
        for (size_t i = 0; i < (size_t)N_DIMS * N_STDS * N_SEEDS; i++) {
            ok = ok && add_row(TALLY_ENCODINGS[e], DIMS[i / N_SEEDS / N_STDS],
                               STDS[i / N_SEEDS % N_STDS], 1 + i % N_SEEDS, scratch, table);
        }
    }
    return ok;
}

/* Names the lines that differ. */
static bool is_same(FILE *file, const char *table)
{
    char line[256];
    bool same = true;
    for (; *table != '\0'; table += strcspn(table, "\n") + 1) {
        const int n = (int)strcspn(table, "\n");
        if (fgets(line, sizeof line, file) == NULL) {
            line[0] = '\0';
        }
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, table, (size_t)n) != 0 || line[n] != '\0') {
            printf("now %.*s\nwas %s\n", n, table, line);
            same = false;
        }
    }
    return same && fgets(line, sizeof line, file) == NULL;
}

int main(int argc, char **argv)
{
    const size_t most = DIMS[N_DIMS - 1];
    struct scratch scratch = {.normal = malloc(most * sizeof(double)),
                              .y = malloc(most * sizeof(float)),
                              .levels = malloc(most * sizeof(int32_t))};
    struct tally_buffer table = {0};
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    bool ok = scratch.normal != NULL && scratch.y != NULL && scratch.levels != NULL &&
              make_table(&scratch, &table) && tally_buffer_append(&table, "", 1) == TALLY_OK;
    if (ok && argc > 1) {
        ok = file != NULL && is_same(file, (const char *)table.data);
    } else if (ok) {
        fputs((const char *)table.data, stdout);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(scratch.normal);
    free(scratch.y);
    free(scratch.levels);
    tally_buffer_fini(&table);
    return ok ? 0 : 1;
}

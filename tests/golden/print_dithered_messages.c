/* tally-dithered-messages N SEED [long]: prints N random messages of `dithered`, each as a golden
 * file on one line (README.md), for the second decoder. They have all scales. Levels may or may not
 * suit the scale, have one width or runs of several widths, and may be clipped. With `long`,
 * messages have the form of long ones although they have fewer coordinates. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_message.h"

enum { MOST_DIM = 300 };

/* A random number whose logarithm is uniform. */
static double octave(struct tally_rng *rng, double low, double high)
{
    return exp2(low + (high - low) * tally_rng_uniform(rng));
}

static void draw_vector(struct tally_rng *rng, double ratio, float *y, size_t dim)
{
    const bool has_runs = tally_rng_below(rng, 3) == 0;
    const double wrong = tally_rng_below(rng, 3) == 0 ? octave(rng, -4, 5) : 1;
    double normal[MOST_DIM], width = ratio * wrong;
    tally_rng_normal(rng, normal, dim);
    for (size_t i = 0; i < dim; i++) {
        if (has_runs && i % 10 == 0) {
            width = ratio * wrong * octave(rng, -6, 1);
        }
        y[i] = (float)(width * normal[i]);
    }
}

static bool print_message(struct tally_rng *rng, uint64_t seed, uint32_t k, bool is_long)
{
    float y[MOST_DIM];
    int32_t levels[MOST_DIM], dithers[MOST_DIM + TALLY_RNG_LANES];
    const size_t dim = (size_t)octave(rng, 0, log2(MOST_DIM));
    const double ratio = octave(rng, -9, tally_rng_below(rng, 4) == 0 ? 16 : 4);
    draw_vector(rng, ratio, y, dim);
    const uint32_t top = tally_rng_below(rng, 4) == 0 ? 1 + (uint32_t)(2 * ratio) : 1 << 20;
    const uint32_t client = tally_rng_below(rng, 20);
    const enum tally_rng_purpose purpose = k % 2 == 0 ? TALLY_RNG_UPLINK : TALLY_RNG_DOWNLINK;
    const struct tally_grid grid = {.step = 1,
                                    .intervals = 2 * (top < 1 << 20 ? top : 1 << 20),
                                    .scale = tally_dithered_scale_of(ratio)};
    struct tally_rng stream;
    tally_rng_init(&stream, tally_rng_key(seed, k % 3), client, k, purpose);
    const struct tally_vector vector = {.y = y, .dim = dim, .grid = &grid, .rng = &stream};
    struct tally_buffer payload = {0};
    struct tally_level_stats stats;
    uint64_t clipped;
    if (tally_dithered_encode_as(is_long, &vector, levels, &payload, &stats, &clipped, NULL) !=
        TALLY_OK) {
        return false;
    }
    if (is_long) {
        TALLY_DITHERED_PORTABLE.dithers(&stream, 0, dim, dithers);
        TALLY_DITHERED_PORTABLE.quantize(&grid, y, dithers, dim, levels, &clipped);
    }
    printf("{\"encoding\": \"dithered\", \"dim\": %zu, \"intervals\": %lu, \"scale\": %lu, "
           "\"seed\": %llu, \"run\": %lu, \"client\": %lu, \"round\": %lu, \"purpose\": %d, "
           "\"payload_bits\": %llu, \"formula_bits\": %llu, \"payload\": [[1, \"",
           dim, (unsigned long)grid.intervals, (unsigned long)grid.scale, (unsigned long long)seed,
           (unsigned long)(k % 3), (unsigned long)client, (unsigned long)k, (int)purpose,
           (unsigned long long)stats.payload_bits, (unsigned long long)stats.formula_bits);
    for (size_t i = 0; i < payload.size; i++) {
        printf("%02x", payload.data[i]);
    }
    printf("\"]], \"levels\": [[1, [");
    for (size_t i = 0; i < dim; i++) {
        printf("%s%ld", i > 0 ? ", " : "", (long)levels[i]);
    }
    printf("]]]}\n");
    tally_buffer_fini(&payload);
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "tally-dithered-messages N SEED [long]\n");
        return 2;
    }
    const uint32_t n = (uint32_t)strtoul(argv[1], NULL, 10);
    const uint64_t seed = strtoull(argv[2], NULL, 10);
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(seed, 9), 0, 0, TALLY_RNG_SAMPLING);
    for (uint32_t k = 0; k < n; k++) {
        if (!print_message(&rng, seed, k, argc == 4)) {
            return 1;
        }
    }
    return 0;
}

#include "services/objectives/losses/softmax_losses.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/sharding.h"

enum { BLOCK = 256 }; /* rows: 0.8 MB of floats at 784 features, within the L2 cache */

static const double MAX_PRODUCT = 1e280; /* of sums of exponentials, each in [1, 256] */

static const float ROUND = 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer */

/* exp(x) = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is subtracted in two parts, the
 * first of which has 12 bits, so that n times it is exact (Cody and Waite); e^r is its Taylor
 * polynomial of degree 7, whose remainder of 0.35^8 / 8! = 6e-9 vanishes in the rounding. */
static inline float exp_of_negative(float x)
{
    const float clamped = x < -87.0f ? -87.0f : x;
    const float shifted = clamped * 1.44269504f + ROUND;
    const float n = shifted - ROUND;
    const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* the low bits of `shifted` are n: this is the float 2^n */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

void tally_exp_of_negatives(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = exp_of_negative(values[i]);
    }
}

/* One block of rows and the products of all points with it. */
struct block {
    float *rows;     /* float[BLOCK][features] */
    float *logits;   /* float[BLOCK][n][classes] */
    double *linear;  /* double[n]: sum of z_iy - min_k z_ik */
    double *product; /* double[n]: of the sums of exponentials */
    double *sums;    /* double[n]: losses of a shard */
};

static void block_fini(struct block *block)
{
    free(block->rows);
    free(block->logits);
    free(block->linear);
    free(block->product);
    free(block->sums);
}

static bool block_init(struct block *block, size_t features, size_t classes, size_t n)
{
    *block = (struct block){.rows = malloc(BLOCK * features * sizeof *block->rows),
                            .logits = malloc(BLOCK * n * classes * sizeof *block->logits),
                            .linear = malloc(n * sizeof *block->linear),
                            .product = malloc(n * sizeof *block->product),
                            .sums = malloc(n * sizeof *block->sums)};
    return block->rows != NULL && block->logits != NULL && block->linear != NULL &&
           block->product != NULL && block->sums != NULL;
}

/* The weights of all points side by side, divided by 255, so that one product per block suffices.
 */
static float *pack(const double *points, size_t n, size_t features, size_t classes)
{
    float *packed = malloc(features * n * classes * sizeof *packed);
    for (size_t p = 0; packed != NULL && p < n; p++) {
        const double *point = points + p * features * classes;
        for (size_t f = 0; f < features; f++) {
            for (size_t k = 0; k < classes; k++) {
                packed[(f * n + p) * classes + k] = (float)(point[f * classes + k] / 255);
            }
        }
    }
    return packed;
}

/* Subtracts the least of a row's logits at one point from all of them. Returns the difference of
 * the true class: z_iy - min. */
static float shift(float *z, size_t classes, uint8_t label)
{
    float least = z[0];
    for (size_t k = 1; k < classes; k++) {
        least = z[k] < least ? z[k] : least;
    }
    const float gap = z[label] - least;
    for (size_t k = 0; k < classes; k++) {
        z[k] = least - z[k];
    }
    return gap;
}

static double sum_of(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
    }
    return sum;
}

/* Adds the losses of rows first .. first + n_rows - 1 to block->sums. */
static void add_block(struct block *block, const struct tally_idx_set *set, size_t classes,
                      const float *packed, size_t n, size_t first, size_t n_rows)
{
    const size_t features = set->features, columns = n * classes;
    const uint8_t *pixels = set->pixels + first * features;
    for (size_t i = 0; i < n_rows * features; i++) {
        block->rows[i] = (float)pixels[i];
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n_rows, (int)columns, (int)features,
                1.0f, block->rows, (int)features, packed, (int)columns, 0.0f, block->logits,
                (int)columns);
    for (size_t p = 0; p < n; p++) {
        block->linear[p] = 0;
        block->product[p] = 1;
    }
    for (size_t i = 0; i < n_rows; i++) {
        float *row = block->logits + i * columns;
        for (size_t p = 0; p < n; p++) {
            block->linear[p] += (double)shift(row + p * classes, classes, set->labels[first + i]);
        }
        tally_exp_of_negatives(row, columns);
        for (size_t p = 0; p < n; p++) {
            block->product[p] *= sum_of(row + p * classes, classes);
            if (block->product[p] > MAX_PRODUCT) {
                block->linear[p] += log(block->product[p]);
                block->product[p] = 1;
            }
        }
    }
    for (size_t p = 0; p < n; p++) {
        block->sums[p] += block->linear[p] + log(block->product[p]);
    }
}

bool tally_softmax_losses(const struct tally_idx_set *set, size_t classes, uint32_t clients,
                          const double *points, size_t n, double *ret_losses)
{
    struct block block;
    if (openblas_get_num_threads() != 1) { /* as the objective set it before it started threads */
        openblas_set_num_threads(1);
    }
    float *packed = pack(points, n, set->features, classes);
    const bool ok = block_init(&block, set->features, classes, n) && packed != NULL;
    for (size_t p = 0; ok && p < n; p++) {
        ret_losses[p] = 0;
    }
    for (uint32_t m = 0; ok && m < clients; m++) {
        const struct tally_shard shard = tally_shard_of(set->points, clients, m);
        const size_t end = shard.first + shard.size;
        memset(block.sums, 0, n * sizeof *block.sums);
        for (size_t at = shard.first; at < end; at += BLOCK) {
            const size_t n_rows = end - at < BLOCK ? end - at : BLOCK;
            add_block(&block, set, classes, packed, n, at, n_rows);
        }
        for (size_t p = 0; p < n; p++) {
            ret_losses[p] += block.sums[p] / ((double)clients * shard.size);
        }
    }
    free(packed);
    block_fini(&block);
    return ok;
}

/* The loss of one row. */
static double row_loss_ref(const struct tally_idx_set *set, size_t row, size_t classes,
                           const double *point, double *z)
{
    const uint8_t *pixels = set->pixels + row * set->features;
    double least = INFINITY, sum = 0;
    for (size_t k = 0; k < classes; k++) {
        z[k] = 0;
        for (size_t f = 0; f < set->features; f++) {
            z[k] += pixels[f] / 255.0 * point[f * classes + k];
        }
        least = z[k] < least ? z[k] : least;
    }
    for (size_t k = 0; k < classes; k++) {
        sum += exp(least - z[k]);
    }
    return z[set->labels[row]] - least + log(sum);
}

bool tally_softmax_losses_ref(const struct tally_idx_set *set, size_t classes, uint32_t clients,
                              const double *points, size_t n, double *ret_losses)
{
    double *z = malloc(classes * sizeof *z);
    for (size_t p = 0; z != NULL && p < n; p++) {
        const double *point = points + p * set->features * classes;
        ret_losses[p] = 0;
        for (uint32_t m = 0; m < clients; m++) {
            const struct tally_shard shard = tally_shard_of(set->points, clients, m);
            double sum = 0;
            for (size_t i = shard.first; i < shard.first + shard.size; i++) {
                sum += row_loss_ref(set, i, classes, point, z);
            }
            ret_losses[p] += sum / ((double)clients * shard.size);
        }
    }
    const bool ok = z != NULL;
    free(z);
    return ok;
}

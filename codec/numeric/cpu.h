/* cpu: which instruction sets the kernels may use.
 *
 * Kernels exist in up to three forms that give the same bits: plain C, AVX2 and AVX-512. A call
 * uses the best one that the processor, the operating system and the limit allow. */
#ifndef TALLY_CODEC_NUMERIC_CPU_H
#define TALLY_CODEC_NUMERIC_CPU_H

/* Each includes those before it. */
enum tally_cpu {
    TALLY_CPU_PORTABLE, /* what the compiler makes of C */
    TALLY_CPU_AVX2,   /* and BMI2, POPCNT; pext and pdep are correct but slow on AMD before Zen 3 */
    TALLY_CPU_AVX512, /* F, BW, DQ, VL */
    TALLY_N_CPUS,
};

/* "portable", "avx2", "avx512"; NULL-terminated. */
extern const char *const TALLY_CPU_NAMES[];

/* The best that this machine has. */
enum tally_cpu tally_cpu_best(void);

/* The one in use: the best up to the limit. */
enum tally_cpu tally_cpu_used(void);

/* For kernels whose AVX-512 form also needs VBMI and VBMI2: AVX2 in place of AVX-512 without them.
 */
enum tally_cpu tally_cpu_with_vbmi2(enum tally_cpu cpu);

/* Sets the limit of the whole process, initially TALLY_CPU_AVX512: no limit. For tests and
 * benchmarks, which visit every form on one machine: results do not depend on it. */
void tally_cpu_set_limit(enum tally_cpu most);

#endif

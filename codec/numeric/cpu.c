#include "codec/numeric/cpu.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

const char *const TALLY_CPU_NAMES[] = {"portable", "avx2", "avx512", NULL};

static atomic_int limit = TALLY_CPU_AVX512;

enum tally_cpu tally_cpu_best(void)
{
#ifdef TALLY_X86_64
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("popcnt")) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                   ? TALLY_CPU_AVX512
                   : TALLY_CPU_AVX2;
    }
#endif
    return TALLY_CPU_PORTABLE;
}

enum tally_cpu tally_cpu_used(void)
{
    const enum tally_cpu best = tally_cpu_best();
    const int most = atomic_load_explicit(&limit, memory_order_relaxed);
    return (int)best < most ? best : (enum tally_cpu)most;
}

enum tally_cpu tally_cpu_with_vbmi2(enum tally_cpu cpu)
{
#ifdef TALLY_X86_64
    const bool has_it =
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
    return cpu == TALLY_CPU_AVX512 && !has_it ? TALLY_CPU_AVX2 : cpu;
#else
    return cpu;
#endif
}

void tally_cpu_set_limit(enum tally_cpu most)
{
    atomic_store_explicit(&limit, (int)most, memory_order_relaxed);
}

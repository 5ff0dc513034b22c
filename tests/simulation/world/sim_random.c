#include "tests/simulation/world/sim_random.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

static uint64_t state;

void sim_random_begin(uint64_t seed)
{
    state = seed;
    sim_random(); /* neighbouring seeds part here */
}

/* SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014). */
uint64_t sim_random(void)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t sim_between(int64_t low, int64_t high)
{
    const uint64_t n = (uint64_t)(high - low) + 1; /* small: the bias of % is far below 2^-32 */
    return low + (int64_t)(sim_random() % n);
}

bool sim_chance(int per_mille)
{
    return sim_between(0, 999) < per_mille;
}

int64_t sim_draw_of(const int64_t *values, int n)
{
    return values[sim_between(0, n - 1)];
}

int64_t sim_around(int64_t mean)
{
    const double u = (double)(sim_random() >> 11) * 0x1p-53;
    const double share = -log1p(-u);
    return (int64_t)((share < 10 ? share : 10) * (double)mean);
}

void sim_random_fill(void *bytes, size_t n)
{
    uint8_t *at = bytes;
    for (size_t done = 0; done < n; done += sizeof(uint64_t)) {
        const uint64_t word = sim_random();
        memcpy(at + done, &word, n - done < sizeof word ? n - done : sizeof word);
    }
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's are reserved names */
ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    (void)flags;
    sim_random_fill(buffer, length);
    return (ssize_t)length;
}

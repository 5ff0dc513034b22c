/* sim_random: the one source of chance in a simulation. Everything that a seed draws comes from
 * here in the order of events, so the same seed gives the same run. Also stands in for
 * getrandom(2), from which the coordinator draws its ids. */
#ifndef TALLY_TESTS_SIMULATION_WORLD_SIM_RANDOM_H
#define TALLY_TESTS_SIMULATION_WORLD_SIM_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void sim_random_begin(uint64_t seed);
uint64_t sim_random(void);
/* Uniform on [low, high]. */
int64_t sim_between(int64_t low, int64_t high);
/* True with probability per_mille / 1000. */
bool sim_chance(int per_mille);
/* One of n values. */
int64_t sim_draw_of(const int64_t *values, int n);
#define SIM_DRAW_OF(...)                                                                           \
    sim_draw_of((const int64_t[]){__VA_ARGS__},                                                    \
                (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
/* Exponential with this mean, at most 10 times it. */
int64_t sim_around(int64_t mean);
void sim_random_fill(void *bytes, size_t n);

#endif

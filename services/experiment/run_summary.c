#include "services/experiment/run_summary.h"

#include <math.h>

/* Value i of n runs, for the two passes below. */
typedef double value_fn(const void *from, size_t i, double argument);

static struct tally_summary summarise(value_fn *value, const void *from, size_t n, double argument)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += value(from, i, argument);
    }
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double distance = value(from, i, argument) - mean;
        squares += distance * distance;
    }
    return (struct tally_summary){mean, n > 1 ? sqrt(squares / (double)(n - 1)) : 0};
}

static double plain(const void *from, size_t i, double argument)
{
    (void)argument;
    return ((const double *)from)[i];
}

static double regret(const void *from, size_t i, double argument)
{
    (void)argument;
    return ((const struct tally_run *)from)[i].regret;
}

static double regret_at(const void *from, size_t i, double time_step)
{
    return tally_run_regret_at((const struct tally_run *)from + i, time_step);
}

struct tally_summary tally_summary_of(const double *values, size_t n)
{
    return summarise(plain, values, n, 0);
}

struct tally_summary tally_summary_of_regret(const struct tally_run *runs, size_t n)
{
    return summarise(regret, runs, n, 0);
}

struct tally_summary tally_summary_of_regret_at(const struct tally_run *runs, size_t n,
                                                double time_step)
{
    return summarise(regret_at, runs, n, time_step);
}

static void add(struct tally_run_bits *sum, const struct tally_run_bits *more, double n)
{
    sum->formula += more->formula / n;
    sum->payload += more->payload / n;
    sum->entropy_payload += more->entropy_payload / n;
    sum->control += more->control / n;
}

struct tally_mean_bits tally_summary_of_bits(const struct tally_run *runs, size_t n)
{
    /* Summed first and divided once: the mean of ten equal integers is that integer exactly. */
    struct tally_mean_bits sum = {0}, mean = {0};
    for (size_t i = 0; i < n; i++) {
        add(&sum.uplink, &runs[i].uplink, 1);
        add(&sum.downlink, &runs[i].downlink, 1);
    }
    add(&mean.uplink, &sum.uplink, (double)n);
    add(&mean.downlink, &sum.downlink, (double)n);
    return mean;
}

struct tally_bit_pair tally_summary_counted_bits(const struct tally_algorithm *algorithm,
                                                 const struct tally_mean_bits *bits)
{
    if (algorithm == &TALLY_CALM) {
        return (struct tally_bit_pair){bits->uplink.payload + bits->uplink.control,
                                       bits->downlink.payload + bits->downlink.control};
    }
    return (struct tally_bit_pair){bits->uplink.formula, bits->downlink.formula};
}

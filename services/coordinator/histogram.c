#include "services/coordinator/histogram.h"

void histogram_observe(struct histogram *histogram, double value)
{
    int i = 0;
    while (i < histogram->n_bounds && value > histogram->bounds[i]) {
        i++;
    }
    histogram->counts[i]++;
    histogram->sum += value;
}

uint64_t histogram_total(const struct histogram *histogram)
{
    uint64_t total = 0;
    for (int i = 0; i <= histogram->n_bounds; i++) {
        total += histogram->counts[i];
    }
    return total;
}

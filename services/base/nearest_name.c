#include "services/base/nearest_name.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

enum { MAX_LENGTH = 63, MAX_DISTANCE = 2 };

static char folded(char c)
{
    return c == '_' ? '-' : c;
}

static int min2(int a, int b)
{
    return a < b ? a : b;
}

/* Three rows of the table of dynamic programming: before last, last, current. */
int tally_name_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > MAX_LENGTH || n_b > MAX_LENGTH) {
        return INT_MAX;
    }
    int rows[3][MAX_LENGTH + 1];
    for (size_t j = 0; j <= n_b; j++) {
        rows[0][j] = (int)j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        int *present = rows[i % 3];
        const int *last = rows[(i + 2) % 3], *before_last = rows[(i + 1) % 3];
        present[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int replaced = last[j - 1] + (folded(a[i - 1]) != folded(b[j - 1]));
            present[j] = min2(replaced, min2(last[j], present[j - 1]) + 1);
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                folded(a[i - 2]) == folded(b[j - 1])) {
                present[j] = min2(present[j], before_last[j - 2] + 1);
            }
        }
    }
    return rows[n_a % 3][n_b];
}

void tally_nearest_name_offer(struct tally_nearest_name *nearest, const char *known)
{
    int distance = tally_name_distance(nearest->typed, known);
    if (distance > MAX_DISTANCE || 2 * (size_t)distance >= strlen(nearest->typed)) {
        return;
    }
    if (nearest->name == NULL || distance < nearest->distance) {
        nearest->name = known;
        nearest->distance = distance;
    }
}

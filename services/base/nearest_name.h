/* nearest_name: the known name that a mistyped one most likely stands for.
 *
 * Restricted Damerau-Levenshtein distance ("optimal string alignment"): the least number of
 * insertions, deletions, replacements and swaps of adjacent characters. '_' equals '-'. */
#ifndef TALLY_SERVICES_BASE_NEAREST_NAME_H
#define TALLY_SERVICES_BASE_NEAREST_NAME_H

/* The distance of two texts of at most 63 characters; a large number for longer ones. */
int tally_name_distance(const char *a, const char *b);

/* The nearest name seen so far. Initialize with `= {.typed = ...}`. */
struct tally_nearest_name {
    const char *typed;
    const char *name; /* NULL until one is near enough */
    int distance;
};
/* Offers a known name. A name is near enough if its distance is at most 2 and less than half the
 * typed length: one slip in a short name, two in a longer one. Among equals the first wins. */
void tally_nearest_name_offer(struct tally_nearest_name *nearest, const char *known);

#endif

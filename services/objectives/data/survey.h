/* survey: sums over the points of a client, from which the scaling (scaling.h) of the features of
 * all clients follows exactly.
 *
 * With sharding `local` no process sees the points of all clients. So each client sends a survey:
 * its number of points N and, of each feature, the number n of values that are not missing, their
 * sum S and the sum Q of their squares. S is an integer in units of 2^-1074, of which every double
 * is a multiple, and Q in units of 2^-2148. So they are exact and adding is associative: neither
 * the order of the clients, nor how the points are split over them, nor the processor changes a
 * bit. From the totals follow
 *
 *     fill = S / n        mean = S / n        s^2 = (n Q - S^2) / (n N)
 *
 * each rounded once, to the nearest double. n Q - S^2 is an integer, so nothing cancels, and it is
 * 0 exactly if all values are equal: such a feature stays as it is. (Missing values become the
 * mean, so they add to N and not to the deviations.)
 *
 * The bytes of a survey; varints are those of protobuf, and the shortest, so equal sums have equal
 * bytes:
 *
 *     varint N, at least 1
 *     per feature:  varint N - n
 *                   number S, number Q
 *
 *     number 0      varint 0
 *     number else   varint 2 k, or 2 k + 1 if the number is negative
 *                   varint: how many of its least significant bytes are 0
 *                   the k other bytes, the least significant first; the first and the last of
 *                   them are not 0
 *
 * A typical feature takes 35 bytes. The answer to the survey is the scaling: fill of all features,
 * then mean, then s, as little-endian float64. Without `standardize`, and for a feature that is
 * constant, mean and s are 0 and 1. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_SURVEY_H
#define TALLY_SERVICES_OBJECTIVES_DATA_SURVEY_H

#include "codec/buffer.h"
#include "services/objectives/data/dataset.h"

/* Values must be smaller, so that their squares do not overflow. */
#define TALLY_SURVEY_MOST_VALUE 0x1p511
/* Largest N of a survey, and of the total over all clients. */
#define TALLY_SURVEY_MOST_POINTS ((uint64_t)UINT32_MAX)
#define TALLY_SURVEY_MOST_TOTAL  ((uint64_t)1 << 52)

/* Appends the survey of a shard of a dense dataset, in which NaN is a missing value. `columns` has
 * the names of the features for messages, if it is not NULL. Precondition: the shard has points.
 * Errors: INVALID_ARGUMENT (a value is too large), NO_MEMORY. */
enum tally_status tally_survey_make(const struct tally_dataset *dataset, struct tally_shard shard,
                                    const struct tally_columns *columns, struct tally_buffer *out,
                                    struct tally_error *err);

/* Adds the survey of n bytes, which may come from anywhere, to the total, which is a survey itself;
 * an empty buffer = there is none yet. Errors, after which the total is as it was: MALFORMED (the
 * bytes are no survey of as many features, or no numbers can have these sums), NO_MEMORY. */
enum tally_status tally_survey_add(struct tally_buffer *total, const uint8_t *bytes, size_t n,
                                   size_t features, struct tally_error *err);

/* Computes the scaling from a total that tally_survey_add() has made: double[3][features], of fill,
 * mean and s. Without `standardizes`, and for a feature that is constant, mean and s are 0 and 1.
 * Errors: INVALID_ARGUMENT (a feature has no value at any point). */
enum tally_status tally_survey_conclude(const struct tally_buffer *total, size_t features,
                                        bool standardizes, const struct tally_columns *columns,
                                        double *ret_numbers, struct tally_error *err);

/* The surveys of the clients whose points a process has. */
struct tally_surveys {
    uint32_t n;              /* 1 if all clients share the points, otherwise that of the clients */
    struct tally_buffer *of; /* [n]; empty: the points of the client are not here */
};

/* Makes them from a dataset; `surveys` is zeroed. Errors: as tally_survey_make(). */
enum tally_status tally_surveys_make(const struct tally_dataset *dataset,
                                     const struct tally_columns *columns,
                                     struct tally_surveys *surveys, struct tally_error *err);
void tally_surveys_fini(struct tally_surveys *surveys);
/* The same, and frees the object itself; NULL is ignored. */
void tally_surveys_free(struct tally_surveys *surveys);
/* Borrows the survey of a client, which is empty if its points are not here. */
const struct tally_buffer *tally_surveys_of(const struct tally_surveys *surveys, uint32_t client);

#endif

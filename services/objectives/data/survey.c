#include "services/objectives/data/survey.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- wide integers ----------------------------------------------------------------------------
 *
 * Natural numbers of up to 52 words, which is enough for all: with at most 2^52 points,
 * |S| < 2^(511 + 1074 + 52) and Q < 2^(2 (511 + 1074) + 52), so n Q and S^2 are below 2^3274. */

__extension__ typedef unsigned __int128 uint128;

enum {
    WORD_BITS = 64,
    WORDS = 52,
    UNIT_EXPONENT = -1074,                 /* of S; Q has twice that */
    VALUE_MOST_BITS = 511 - UNIT_EXPONENT, /* of a value in that unit */
    POINTS_BITS = 52,
    SUM_MOST_BITS = VALUE_MOST_BITS + POINTS_BITS,
    SQUARES_MOST_BITS = 2 * VALUE_MOST_BITS + POINTS_BITS,
    VARINT_BYTES = 10,
};

struct wide {
    size_t n; /* words in use: words[n - 1] != 0 */
    uint64_t words[WORDS + 2];
};

static void trim(struct wide *wide)
{
    while (wide->n > 0 && wide->words[wide->n - 1] == 0) {
        wide->n--;
    }
}

/* Words from `n` on, up to `to`, become 0. */
static void extend(struct wide *wide, size_t to)
{
    for (; wide->n < to; wide->n++) {
        wide->words[wide->n] = 0;
    }
}

/* wide += value << shift */
static void add_shifted(struct wide *wide, uint128 value, unsigned shift)
{
    size_t at = shift / WORD_BITS;
    const unsigned by = shift % WORD_BITS;
    uint128 carry = value << by; /* what leaves at the top comes after two words */
    uint64_t rest = by == 0 ? 0 : (uint64_t)(value >> (2 * WORD_BITS - by));
    extend(wide, at + 2);
    while (carry != 0 || rest != 0) {
        extend(wide, at + 1);
        const uint128 sum = (uint128)wide->words[at] + (uint64_t)carry;
        wide->words[at] = (uint64_t)sum;
        carry = (carry >> WORD_BITS) + ((uint128)rest << WORD_BITS) + (sum >> WORD_BITS);
        rest = 0;
        at++;
    }
}

static int compare(const struct wide *a, const struct wide *b)
{
    if (a->n != b->n) {
        return a->n > b->n ? 1 : -1;
    }
    for (size_t i = a->n; i-- > 0;) {
        if (a->words[i] != b->words[i]) {
            return a->words[i] > b->words[i] ? 1 : -1;
        }
    }
    return 0;
}

static void add(struct wide *a, const struct wide *b)
{
    uint64_t carry = 0;
    extend(a, b->n);
    for (size_t i = 0; i < a->n; i++) {
        const uint128 sum = (uint128)a->words[i] + (i < b->n ? b->words[i] : 0) + carry;
        a->words[i] = (uint64_t)sum;
        carry = (uint64_t)(sum >> WORD_BITS);
    }
    if (carry != 0) {
        a->words[a->n++] = carry;
    }
}

/* a -= b; precondition: a >= b. */
static void subtract(struct wide *a, const struct wide *b)
{
    uint64_t borrow = 0;
    for (size_t i = 0; i < a->n; i++) {
        const uint128 less = (uint128)(i < b->n ? b->words[i] : 0) + borrow;
        borrow = a->words[i] < less;
        a->words[i] -= (uint64_t)less;
    }
    trim(a);
}

static void multiply(struct wide *a, uint64_t factor)
{
    uint64_t carry = 0;
    for (size_t i = 0; i < a->n; i++) {
        const uint128 product = (uint128)a->words[i] * factor + carry;
        a->words[i] = (uint64_t)product;
        carry = (uint64_t)(product >> WORD_BITS);
    }
    if (carry != 0) {
        a->words[a->n++] = carry;
    }
    trim(a);
}

static void square(const struct wide *a, struct wide *ret)
{
    ret->n = 0;
    extend(ret, 2 * a->n);
    for (size_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        if (a->words[i] == 0) { /* as most of the low ones are */
            continue;
        }
        for (size_t j = 0; j < a->n; j++) {
            const uint128 sum = (uint128)a->words[i] * a->words[j] + ret->words[i + j] + carry;
            ret->words[i + j] = (uint64_t)sum;
            carry = (uint64_t)(sum >> WORD_BITS);
        }
        ret->words[i + a->n] = carry;
    }
    trim(ret);
}

/* a /= divisor. Returns whether there is a remainder. */
static bool divide(struct wide *a, uint64_t divisor)
{
    uint64_t remainder = 0;
    for (size_t i = a->n; i-- > 0;) {
        const uint128 part = (uint128)remainder << WORD_BITS | a->words[i];
        a->words[i] = (uint64_t)(part / divisor);
        remainder = (uint64_t)(part % divisor);
    }
    trim(a);
    return remainder != 0;
}

static unsigned bits_of(const struct wide *a)
{
    return a->n == 0 ? 0
                     : (unsigned)a->n * WORD_BITS - (unsigned)__builtin_clzll(a->words[a->n - 1]);
}

static unsigned bits_of_word(uint64_t word)
{
    return word == 0 ? 0 : WORD_BITS - (unsigned)__builtin_clzll(word);
}

static void shift_left(struct wide *a, unsigned by)
{
    const size_t words = by / WORD_BITS;
    const unsigned bits = by % WORD_BITS;
    const size_t n = a->n;
    if (n == 0 || by == 0) {
        return;
    }
    extend(a, n + words + 1);
    for (size_t i = n + words + 1; i-- > 0;) {
        const uint64_t high = i >= words && i - words < n ? a->words[i - words] : 0;
        const uint64_t low = i > words ? a->words[i - words - 1] : 0;
        a->words[i] = bits == 0 ? high : high << bits | low >> (WORD_BITS - bits);
    }
    trim(a);
}

/* The bits of a from `from` on, of which there are at most 128. *sticky: whether one below is set
 * is or-ed into it. */
static uint128 top_of(const struct wide *a, unsigned from, bool *sticky)
{
    const size_t words = from / WORD_BITS;
    const unsigned bits = from % WORD_BITS;
    uint128 top = 0;
    for (size_t i = 0; i < words && i < a->n; i++) {
        *sticky |= a->words[i] != 0;
    }
    for (size_t i = a->n; i-- > words;) {
        if (i > words) {
            top = top << WORD_BITS | a->words[i];
        } else {
            top = bits == 0 ? top << WORD_BITS | a->words[i]
                            : top << (WORD_BITS - bits) | a->words[i] >> bits;
            *sticky |= bits != 0 && (a->words[i] << (WORD_BITS - bits)) != 0;
        }
    }
    return top;
}

/* The double nearest to (top + part) 2^exponent, ties to even; 0 < part < 1 if `sticky`, else 0.
 * Precondition: the highest bit of `top` is set. */
static double round_once(uint64_t top, bool sticky, int exponent)
{
    enum { MANTISSA_BITS = 53, LEAST_EXPONENT = -1074 };
    int drop = WORD_BITS - MANTISSA_BITS;
    if (exponent + drop < LEAST_EXPONENT) { /* subnormal */
        drop = LEAST_EXPONENT - exponent;
    }
    if (drop > WORD_BITS) {
        return 0;
    }
    const uint64_t kept = drop == WORD_BITS ? 0 : top >> drop;
    const uint64_t half = (uint64_t)1 << (drop - 1), below = top & (half - 1);
    const bool up = (top & half) != 0 && (below != 0 || sticky || (kept & 1) != 0);
    return ldexp((double)(kept + up), exponent + drop); /* exact */
}

/* The double nearest to a / divisor times 2^exponent; `a` is used up. */
static double quotient(struct wide *a, uint64_t divisor, int exponent)
{
    bool sticky;
    if (a->n == 0) {
        return 0;
    }
    const unsigned least = WORD_BITS + 1 + bits_of_word(divisor);
    const unsigned by = bits_of(a) < least ? least - bits_of(a) : 0;
    shift_left(a, by);
    sticky = divide(a, divisor);
    const unsigned from = bits_of(a) - WORD_BITS;
    const uint64_t top = (uint64_t)top_of(a, from, &sticky);
    return round_once(top, sticky, exponent - (int)by + (int)from);
}

/* The largest integer whose square is at most `value`, which is at least 2^126. */
static uint64_t root_of(uint128 value)
{
    uint64_t root = 0;
    for (int i = WORD_BITS - 1; i >= 0; i--) {
        const uint64_t next = root | (uint64_t)1 << i;
        root = (uint128)next * next <= value ? next : root;
    }
    return root;
}

/* The double nearest to the root of a / (n m), times 2^exponent; `a` is used up. */
static double root_of_quotient(struct wide *a, uint64_t n, uint64_t m, int exponent)
{
    enum { ROOTED_BITS = 2 * WORD_BITS };
    if (a->n == 0) {
        return 0;
    }
    const unsigned least = ROOTED_BITS + 1 + bits_of_word(n) + bits_of_word(m);
    const unsigned lacks = bits_of(a) < least ? least - bits_of(a) : 0;
    const unsigned by = lacks + lacks % 2; /* the root moves by half of it */
    shift_left(a, by);
    bool sticky = divide(a, n);
    sticky |= divide(a, m);
    /* Its highest 127 or 128 bits, so that the root has 64. */
    const unsigned over = bits_of(a) - ROOTED_BITS, from = over + over % 2;
    const uint128 top = top_of(a, from, &sticky);
    const uint64_t root = root_of(top);
    sticky |= (uint128)root * root != top;
    return round_once(root, sticky, exponent + ((int)from - (int)by) / 2);
}

/* --- one feature ------------------------------------------------------------------------------ */

struct sums {
    uint64_t missing;
    bool is_negative;
    struct wide sum, squares; /* |S| and Q */
};

/* |S| += value, with its sign. */
static void add_signed(struct sums *sums, const struct wide *value, bool is_negative)
{
    if (sums->is_negative == is_negative || value->n == 0) {
        add(&sums->sum, value);
    } else if (compare(&sums->sum, value) >= 0) {
        subtract(&sums->sum, value);
    } else {
        struct wide other = *value;
        subtract(&other, &sums->sum);
        sums->sum = other;
        sums->is_negative = is_negative;
    }
    sums->is_negative = sums->is_negative && sums->sum.n > 0;
}

/* |value| = mantissa 2^(exponent - 1074) */
static uint64_t take_apart(double value, unsigned *ret_exponent)
{
    enum { FRACTION_BITS = 52, EXPONENTS = 0x7ff };
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint64_t fraction = bits & (((uint64_t)1 << FRACTION_BITS) - 1);
    const unsigned exponent = (unsigned)(bits >> FRACTION_BITS) & EXPONENTS;
    *ret_exponent = exponent == 0 ? 0 : exponent - 1;
    return exponent == 0 ? fraction : fraction | (uint64_t)1 << FRACTION_BITS;
}

/* Adds a value to the sums. False if it is too large. */
static bool add_value(struct sums *sums, struct wide *below, double x)
{
    unsigned exponent;
    if (isnan(x)) {
        sums->missing++;
        return true;
    }
    if (!(fabs(x) < TALLY_SURVEY_MOST_VALUE)) {
        return false;
    }
    const uint64_t mantissa = take_apart(x, &exponent);
    add_shifted(x < 0 ? below : &sums->sum, mantissa, exponent);
    add_shifted(&sums->squares, (uint128)mantissa * mantissa, 2 * exponent);
    return true;
}

/* The values of so many neighbouring features are read together, because they share a cache line.
 */
enum { BLOCK = 8 };

/* Sums n features from `first` on over the shard. Returns the first with a value that is too large,
 * or n. */
static size_t sum_block(const struct tally_dataset *dataset, struct tally_shard shard, size_t first,
                        size_t n, struct sums ret_sums[BLOCK])
{
    struct wide below[BLOCK]; /* the sums of the negative values */
    for (size_t k = 0; k < n; k++) {
        ret_sums[k].missing = 0;
        ret_sums[k].is_negative = false;
        ret_sums[k].sum.n = ret_sums[k].squares.n = below[k].n = 0;
    }
    for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
        const double *values = dataset->values + (size_t)i * dataset->features + first;
        for (size_t k = 0; k < n; k++) {
            if (!add_value(&ret_sums[k], &below[k], values[k])) {
                return k;
            }
        }
    }
    for (size_t k = 0; k < n; k++) {
        trim(&ret_sums[k].sum);
        trim(&ret_sums[k].squares);
        trim(&below[k]);
        add_signed(&ret_sums[k], &below[k], true);
    }
    return n;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static size_t put_varint(uint64_t value, uint8_t *ret)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) {
        ret[n++] = (uint8_t)(value | 0x80);
    }
    ret[n++] = (uint8_t)value;
    return n;
}

static size_t put_number(const struct wide *number, bool is_negative, uint8_t *ret)
{
    uint8_t bytes[sizeof number->words];
    size_t end = 0, begin = 0;
    for (size_t i = 0; i < number->n; i++) {
        for (unsigned k = 0; k < sizeof(uint64_t); k++) {
            bytes[end++] = (uint8_t)(number->words[i] >> 8 * k);
        }
    }
    while (end > 0 && bytes[end - 1] == 0) {
        end--;
    }
    while (begin < end && bytes[begin] == 0) {
        begin++;
    }
    size_t n = put_varint(2 * (end - begin) + is_negative, ret);
    if (end > begin) {
        n += put_varint(begin, ret + n);
        memcpy(ret + n, bytes + begin, end - begin);
    }
    return n + end - begin;
}

static enum tally_status put_feature(const struct sums *sums, struct tally_buffer *out)
{
    uint8_t bytes[2 * (sizeof sums->sum.words + 3 * VARINT_BYTES)];
    size_t n = put_varint(sums->missing, bytes);
    n += put_number(&sums->sum, sums->is_negative, bytes + n);
    n += put_number(&sums->squares, false, bytes + n);
    return tally_buffer_append(out, bytes, n);
}

struct reader {
    const uint8_t *at, *end;
};

/* `bytes` may be NULL if there are none. */
static struct reader reader_of(const uint8_t *bytes, size_t n)
{
    return (struct reader){bytes, n > 0 ? bytes + n : bytes};
}

static bool take_varint(struct reader *reader, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned shift = 0; reader->at < reader->end && shift < 63; shift += 7) {
        const uint8_t byte = *reader->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret = value;
            return byte != 0 || shift == 0;
        }
    }
    return false;
}

static bool take_number(struct reader *reader, unsigned most_bits, struct wide *ret,
                        bool *ret_is_negative)
{
    uint64_t head, zeros;
    ret->n = 0;
    *ret_is_negative = false;
    if (!take_varint(reader, &head)) {
        return false;
    }
    const uint64_t n = head / 2;
    if (n == 0) {
        return head == 0;
    }
    const uint64_t most = (most_bits + 7) / 8;
    if (!take_varint(reader, &zeros) || zeros > most || n > most - zeros ||
        n > (uint64_t)(reader->end - reader->at) || reader->at[0] == 0 || reader->at[n - 1] == 0) {
        return false;
    }
    ret->n = (size_t)(zeros + n + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    memset(ret->words, 0, ret->n * sizeof *ret->words);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t place = zeros + i;
        ret->words[place / 8] |= (uint64_t)reader->at[i] << 8 * (place % 8);
    }
    reader->at += n;
    *ret_is_negative = head % 2 != 0;
    return bits_of(ret) <= most_bits;
}

/* What is wrong with the sums of a feature of N points; NULL = nothing. */
static const char *fault_of(const struct sums *sums, uint64_t points)
{
    if (sums->missing > points) {
        return "more missing values than points";
    }
    const uint64_t n = points - sums->missing;
    struct wide left = sums->squares, right;
    const unsigned more = bits_of_word(n);
    if (bits_of(&sums->sum) > VALUE_MOST_BITS + more ||
        bits_of(&sums->squares) > 2 * VALUE_MOST_BITS + more) {
        return "sums that are too large for its points";
    }
    multiply(&left, n);
    square(&sums->sum, &right);
    return n == 0 && (sums->sum.n > 0 || sums->squares.n > 0) ? "sums without a value"
           : compare(&left, &right) < 0 ? "squares that are too small for the sum"
                                        : NULL;
}

/* `points`: 0 = the survey is our own total, whose sums are not checked again. */
static enum tally_status take_feature(struct reader *reader, uint64_t points, size_t j,
                                      struct sums *ret_sums, struct tally_error *err)
{
    bool is_negative;
    if (!take_varint(reader, &ret_sums->missing) ||
        !take_number(reader, SUM_MOST_BITS, &ret_sums->sum, &ret_sums->is_negative) ||
        !take_number(reader, SQUARES_MOST_BITS, &ret_sums->squares, &is_negative) || is_negative) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "the survey is cut short or malformed at feature %zu", j);
    }
    const char *fault = points > 0 ? fault_of(ret_sums, points) : NULL;
    return fault == NULL ? TALLY_OK
                         : tally_fail(err, TALLY_MALFORMED, "payload",
                                      "feature %zu of the survey has %s", j, fault);
}

static enum tally_status take_points(struct reader *reader, uint64_t most, uint64_t *ret_points,
                                     struct tally_error *err)
{
    return take_varint(reader, ret_points) && *ret_points >= 1 && *ret_points <= most
               ? TALLY_OK
               : tally_fail(err, TALLY_MALFORMED, "payload",
                            "a survey begins with its number of points, 1 to %llu",
                            (unsigned long long)most);
}

/* --- surveys ---------------------------------------------------------------------------------- */

static const char *title_of(const struct tally_columns *columns, size_t j, char room[48])
{
    const char *name = columns != NULL ? tally_columns_name(columns, j) : NULL;
    snprintf(room, 48, "%zu (counted from 0)", j);
    return name != NULL ? name : room;
}

enum tally_status tally_survey_make(const struct tally_dataset *dataset, struct tally_shard shard,
                                    const struct tally_columns *columns, struct tally_buffer *out,
                                    struct tally_error *err)
{
    uint8_t points[VARINT_BYTES];
    struct sums sums[BLOCK];
    char room[48];
    enum tally_status status = tally_buffer_append(out, points, put_varint(shard.size, points));
    for (size_t j = 0; status == TALLY_OK && j < dataset->features; j += BLOCK) {
        const size_t left = dataset->features - j, n = left < BLOCK ? left : BLOCK;
        const size_t bad = sum_block(dataset, shard, j, n, sums);
        if (bad < n) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                              "the values of column %.40s are too large to be added and squared",
                              title_of(columns, j + bad, room));
        }
        for (size_t k = 0; status == TALLY_OK && k < n; k++) {
            status = put_feature(&sums[k], out);
        }
    }
    return status == TALLY_OK
               ? status
               : tally_fail(err, status, NULL, "no memory for a survey of %zu features",
                            dataset->features);
}

/* Reads the survey and, unless it is NULL, the total along with it, and appends their sum. */
static enum tally_status add_all(struct reader *total, struct reader *reader, size_t features,
                                 struct tally_buffer *out, struct tally_error *err)
{
    struct sums sums, more;
    uint8_t bytes[VARINT_BYTES];
    uint64_t n, before = 0;
    enum tally_status status = take_points(reader, TALLY_SURVEY_MOST_POINTS, &n, err);
    if (status == TALLY_OK && total != NULL) {
        status = take_points(total, TALLY_SURVEY_MOST_TOTAL, &before, err);
    }
    if (status == TALLY_OK && n > TALLY_SURVEY_MOST_TOTAL - before) {
        status =
            tally_fail(err, TALLY_MALFORMED, "payload", "all clients have more than 2^52 points");
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(out, bytes, put_varint(before + n, bytes));
    }
    for (size_t j = 0; status == TALLY_OK && j < features; j++) {
        status = take_feature(reader, n, j, &sums, err);
        if (status == TALLY_OK && total != NULL) {
            status = take_feature(total, 0, j, &more, err);
        }
        if (status == TALLY_OK && total != NULL) {
            sums.missing += more.missing;
            add_signed(&sums, &more.sum, more.is_negative);
            add(&sums.squares, &more.squares);
        }
        if (status == TALLY_OK) {
            status = put_feature(&sums, out);
        }
    }
    if (status == TALLY_OK && reader->at != reader->end) {
        status = tally_fail(err, TALLY_MALFORMED, "payload",
                            "the survey is longer than its %zu features", features);
    }
    return status;
}

enum tally_status tally_survey_add(struct tally_buffer *total, const uint8_t *bytes, size_t n,
                                   size_t features, struct tally_error *err)
{
    struct tally_buffer sum = {0};
    struct reader reader = reader_of(bytes, n), before = reader_of(total->data, total->size);
    const enum tally_status status =
        add_all(total->size > 0 ? &before : NULL, &reader, features, &sum, err);
    if (status != TALLY_OK) {
        tally_buffer_fini(&sum);
        return tally_fail(err, status, NULL, "no memory for a survey");
    }
    tally_buffer_fini(total);
    *total = sum;
    return TALLY_OK;
}

/* Sets the three numbers of a feature of which there are values. */
static void scale_feature(struct sums *sums, uint64_t points, bool standardizes, double *ret_fill,
                          double *ret_mean, double *ret_s)
{
    const uint64_t n = points - sums->missing;
    struct wide squared;
    square(&sums->sum, &squared);
    multiply(&sums->squares, n);
    subtract(&sums->squares, &squared);
    const double mean = quotient(&sums->sum, n, UNIT_EXPONENT);
    const double s = root_of_quotient(&sums->squares, n, points, UNIT_EXPONENT);
    *ret_fill = sums->is_negative ? -mean : mean;
    *ret_mean = standardizes && s > 0 ? *ret_fill : 0;
    *ret_s = standardizes && s > 0 ? s : 1;
}

enum tally_status tally_survey_conclude(const struct tally_buffer *total, size_t features,
                                        bool standardizes, const struct tally_columns *columns,
                                        double *ret_numbers, struct tally_error *err)
{
    struct reader reader = reader_of(total->data, total->size);
    struct sums sums;
    uint64_t points;
    char room[48];
    enum tally_status status = take_points(&reader, TALLY_SURVEY_MOST_TOTAL, &points, err);
    for (size_t j = 0; status == TALLY_OK && j < features; j++) {
        status = take_feature(&reader, 0, j, &sums, err);
        if (status == TALLY_OK && sums.missing == points) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.missing",
                                "column %.40s has no value at any training point; remove it",
                                title_of(columns, j, room));
        }
        if (status == TALLY_OK) {
            scale_feature(&sums, points, standardizes, &ret_numbers[j], &ret_numbers[features + j],
                          &ret_numbers[2 * features + j]);
        }
    }
    return status;
}

void tally_surveys_fini(struct tally_surveys *surveys)
{
    for (uint32_t m = 0; m < surveys->n; m++) {
        tally_buffer_fini(&surveys->of[m]);
    }
    free(surveys->of);
    *surveys = (struct tally_surveys){0};
}

void tally_surveys_free(struct tally_surveys *surveys)
{
    if (surveys != NULL) {
        tally_surveys_fini(surveys);
        free(surveys);
    }
}

enum tally_status tally_surveys_make(const struct tally_dataset *dataset,
                                     const struct tally_columns *columns,
                                     struct tally_surveys *surveys, struct tally_error *err)
{
    const uint32_t n = tally_dataset_n_shards(dataset);
    enum tally_status status = TALLY_OK;
    surveys->of = calloc(n, sizeof *surveys->of);
    if (surveys->of == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u surveys", n);
    }
    surveys->n = n;
    for (uint32_t m = 0; status == TALLY_OK && m < n; m++) {
        if (dataset->shards[m].size > 0) {
            status = tally_survey_make(dataset, dataset->shards[m], columns, &surveys->of[m], err);
            tally_buffer_fit(&surveys->of[m]);
        }
    }
    return status;
}

const struct tally_buffer *tally_surveys_of(const struct tally_surveys *surveys, uint32_t client)
{
    return &surveys->of[surveys->n == 1 ? 0 : client];
}

#include "services/objectives/data/data_columns.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"

enum { WHY_CAPACITY = 200 };

static bool keep(struct tally_columns *columns, const char *name, size_t n_bytes)
{
    if (columns->size + n_bytes > columns->capacity) {
        const size_t capacity = 2 * (columns->size + n_bytes);
        char *text = realloc(columns->text, capacity);
        if (text == NULL) {
            return false;
        }
        columns->text = text;
        columns->capacity = capacity;
    }
    memcpy(columns->text + columns->size, name, n_bytes);
    columns->size += n_bytes;
    columns->n_kept++;
    return true;
}

bool tally_columns_add(struct tally_columns *columns, const char *name)
{
    const size_t n_bytes = strlen(name) + 1;
    const bool is_kept =
        columns->n_kept == columns->n && columns->size + n_bytes <= (size_t)TALLY_COLUMNS_MAX_BYTES;
    columns->sum =
        tally_checksum64_more(columns->n == 0 ? TALLY_CHECKSUM_SEED : columns->sum, name, n_bytes);
    columns->n++;
    return !is_kept || keep(columns, name, n_bytes);
}

void tally_columns_fini(struct tally_columns *columns)
{
    free(columns->text);
    *columns = (struct tally_columns){.n = 0};
}

const char *tally_columns_name(const struct tally_columns *columns, size_t i)
{
    if (i >= columns->n_kept) {
        return NULL;
    }
    const char *at = columns->text;
    for (; i > 0; i--) {
        at += strlen(at) + 1;
    }
    return at;
}

uint32_t tally_columns_digest(const struct tally_columns *columns)
{
    enum { N_DIGESTS = (1 << 28) - 1 };
    return columns->n == 0 ? 0 : 1 + (uint32_t)(columns->sum % N_DIGESTS);
}

/* A column, to be sorted by name. */
struct entry {
    const char *name;
    uint32_t place;
};

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Returns a new array; NULL if memory ran out. */
static struct entry *sort_by_name(const struct tally_columns *columns)
{
    struct entry *entries = malloc(columns->n * sizeof *entries);
    const char *at = columns->text;
    for (size_t i = 0; entries != NULL && i < columns->n; i++, at += strlen(at) + 1) {
        entries[i] = (struct entry){at, (uint32_t)i};
    }
    if (entries != NULL) {
        qsort(entries, columns->n, sizeof *entries, compare_entries);
    }
    return entries;
}

/* Appends as much as fits into `capacity` bytes. */
__attribute__((format(printf, 3, 4))) static void add_text(char *text, size_t capacity,
                                                           const char *format, ...)
{
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, capacity - n, format, args);
    va_end(args);
}

/* Lists the names that only one of two sorted arrays of the same length has. */
static void write_difference(const struct entry *earlier, const struct entry *entries, size_t n,
                             const char *file, char *ret_why)
{
    char only_there[60] = "", only_here[60] = "";
    for (size_t i = 0, k = 0; i < n || k < n;) {
        const int order = i == n ? 1 : k == n ? -1 : strcmp(earlier[i].name, entries[k].name);
        char *list = order < 0 ? only_there : only_here;
        if (order != 0) {
            add_text(list, sizeof only_here, "%s%.40s", list[0] != '\0' ? ", " : "",
                     order < 0 ? earlier[i].name : entries[k].name);
        }
        i += order <= 0;
        k += order >= 0;
    }
    snprintf(ret_why, WHY_CAPACITY,
             "are not those of %.40s: only this file has %s, only that has %s", file, only_here,
             only_there);
}

/* Pairs the columns of two sorted arrays. */
static enum tally_columns_match pair(const struct entry *earlier, const struct entry *entries,
                                     size_t n, const char *file, uint32_t *ret_places,
                                     char *ret_why)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(earlier[i].name, entries[i].name) != 0) {
            write_difference(earlier, entries, n, file, ret_why);
            return TALLY_COLUMNS_DIFFERENT;
        }
        if (i > 0 && strcmp(entries[i - 1].name, entries[i].name) == 0) {
            snprintf(ret_why, WHY_CAPACITY,
                     "have another order than in %.40s, and two of them are called \"%.40s\"", file,
                     entries[i].name);
            return TALLY_COLUMNS_DIFFERENT;
        }
        ret_places[entries[i].place] = earlier[i].place;
    }
    return TALLY_COLUMNS_REORDERED;
}

enum tally_columns_match tally_columns_match(const struct tally_columns *earlier,
                                             const struct tally_columns *columns,
                                             uint32_t **ret_places, char ret_why[200])
{
    const size_t n = columns->n;
    if (earlier->sum == columns->sum && earlier->n == n) {
        return TALLY_COLUMNS_EQUAL;
    }
    if (earlier->n_kept < n || columns->n_kept < n || earlier->n != n) {
        snprintf(ret_why, WHY_CAPACITY,
                 "are not those of %.40s in the same order, and their names take more than %d "
                 "bytes, too many to match them by name",
                 earlier->file, TALLY_COLUMNS_MAX_BYTES);
        return TALLY_COLUMNS_DIFFERENT;
    }
    struct entry *there = sort_by_name(earlier), *here = sort_by_name(columns);
    uint32_t *places = malloc(n * sizeof *places);
    enum tally_columns_match match = TALLY_COLUMNS_NO_MEMORY;
    if (there != NULL && here != NULL && places != NULL) {
        match = pair(there, here, n, earlier->file, places, ret_why);
    }
    free(there);
    free(here);
    if (match == TALLY_COLUMNS_REORDERED) {
        *ret_places = places;
    } else {
        free(places);
    }
    return match;
}

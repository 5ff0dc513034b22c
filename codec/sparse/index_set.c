#include "codec/sparse/index_set.h"

#include <stdbool.h>

/* What both sides know of a set. */
struct shape {
    bool complement; /* the indices outside the set are written */
    size_t n;        /* number of indices written */
    unsigned r;
};

static struct shape shape_of(size_t dim, size_t k)
{
    struct shape shape = {.complement = k > dim - k};
    shape.n = shape.complement ? dim - k : k;
    while (((uint64_t)4 * (shape.n + 1)) << shape.r < 2 * (uint64_t)dim - shape.n + 1) {
        shape.r++;
    }
    return shape;
}

uint64_t tally_index_set_bound(size_t dim, size_t k)
{
    const struct shape shape = shape_of(dim, k);
    return (uint64_t)shape.n * (shape.r + 1) + ((dim - shape.n) >> shape.r);
}

static void write_gap(struct tally_bit_writer *writer, uint64_t gap, unsigned r)
{
    for (uint64_t quotient = gap >> r; quotient > 0; quotient--) {
        tally_bit_write(writer, 1, 1);
    }
    tally_bit_write(writer, (gap & ((UINT64_C(1) << r) - 1)) << 1, r + 1);
}

void tally_index_set_write(const uint32_t *indices, size_t k, size_t dim,
                           struct tally_bit_writer *writer)
{
    const struct shape shape = shape_of(dim, k);
    uint64_t first = 0, gap_from = 0; /* not looked at yet; one past the last index written */
    for (size_t i = 0; i <= k; i++) {
        const uint64_t end = i < k ? indices[i] : dim;
        if (!shape.complement && i < k) {
            write_gap(writer, end - gap_from, shape.r);
            gap_from = end + 1;
        }
        for (; shape.complement && first < end; first++) {
            write_gap(writer, first - gap_from, shape.r);
            gap_from = first + 1;
        }
        first = end + 1;
    }
}

/* Reads the index whose gap begins at gap_from. A result above `last` is invalid and partly
 * read. */
static uint64_t read_index(struct tally_bit_reader *reader, uint64_t gap_from, uint64_t last,
                           unsigned r)
{
    uint64_t index = gap_from;
    while (index <= last && tally_bit_read(reader, 1) == 1) {
        index += UINT64_C(1) << r;
    }
    return index <= last ? index + tally_bit_read(reader, r) : index;
}

enum tally_status tally_index_set_read(struct tally_bit_reader *reader, size_t dim, size_t k,
                                       uint32_t *ret_indices, struct tally_error *err)
{
    const struct shape shape = shape_of(dim, k);
    uint64_t from = 0; /* one past the last index read */
    size_t n = 0;
    for (size_t i = 0; i < shape.n; i++) {
        const size_t last = dim - shape.n + i; /* leaves room for the indices that follow */
        const uint64_t index = read_index(reader, from, last, shape.r);
        if (reader->overrun) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "ends in index %zu of %zu", i,
                              shape.n);
        }
        if (index > last) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "index %zu of %zu is above %zu", i,
                              shape.n, last);
        }
        for (; shape.complement && from < index; from++) {
            ret_indices[n++] = (uint32_t)from;
        }
        if (!shape.complement) {
            ret_indices[n++] = (uint32_t)index;
        }
        from = index + 1;
    }
    for (; shape.complement && from < dim; from++) {
        ret_indices[n++] = (uint32_t)from;
    }
    return TALLY_OK;
}

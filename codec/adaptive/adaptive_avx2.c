/* The loops over the lanes eight at a time: shares are gathered by context. The other loops are
 * those of adaptive_loops.h. */
#include <immintrin.h>

#include "codec/adaptive/adaptive_loops.h"
#include "codec/entropy/rans_avx2.h"

enum { WIDTH = 8, LEAST = 1 << (TALLY_ADAPTIVE_LOWEST_DENSITY - 1) };

/* The first shares of a context's symbols: plain + 2^16 special. */
struct table {
    uint32_t entry[TALLY_ADAPTIVE_CONTEXTS];
};

static struct table table_of(const struct tally_adaptive_shares *shares)
{
    struct table table;
    for (size_t x = 0; x < TALLY_ADAPTIVE_CONTEXTS; x++) {
        table.entry[x] = shares->plain[x] | (uint32_t)shares->special[x] << 16;
    }
    return table;
}

/* Eight lanes before a coordinate: its entries of the table, and what the lanes have learnt. */
struct eight {
    __m256i density, last, first_plain, first_special;
};

/* The class of a density is the exponent of the density as a float, less 3, and at least 0. */
static inline struct eight load_eight(const struct table *table, bool is_dithered,
                                      const struct tally_adaptive_lanes *lanes, size_t l,
                                      const uint8_t *classes, uint8_t *contexts)
{
    const __m256i density = _mm256_load_si256((const void *)(lanes->density + l));
    const __m256i last = _mm256_load_si256((const void *)(lanes->last + l));
    const __m256i class =
        is_dithered ? _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(classes + l))) : last;
    const __m256i real =
        _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_or_si256(density, _mm256_set1_epi32(LEAST))));
    const __m256i of_density = _mm256_sub_epi32(
        _mm256_srli_epi32(real, 23), _mm256_set1_epi32(127 + TALLY_ADAPTIVE_LOWEST_DENSITY - 1));
    const __m256i context = _mm256_or_si256(_mm256_slli_epi32(of_density, 4), class);
    const __m256i entry =
        _mm256_i32gather_epi32((const int *)(const void *)table->entry, context, 4);
    const __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(context), _mm256_extracti128_si256(context, 1));
    _mm_storel_epi64((void *)(contexts + l), _mm_packus_epi16(half, half));
    return (struct eight){density, last, _mm256_and_si256(entry, _mm256_set1_epi32(0xffff)),
                          _mm256_srli_epi32(entry, 16)};
}

/* Learns symbols, whose masks are all ones or zeros in each lane. */
static inline void pass_eight(const struct eight *eight, bool is_dithered, __m256i nonzero,
                              __m256i special, struct tally_adaptive_lanes *lanes, size_t l)
{
    const __m256i one = _mm256_set1_epi32(TALLY_ADAPTIVE_DENSITY_ONE);
    __m256i here = _mm256_and_si256(nonzero, one);
    if (is_dithered) {
        here = _mm256_add_epi32(here, _mm256_and_si256(special, one));
    } else {
        const __m256i both = _mm256_sub_epi32(_mm256_add_epi32(eight->last, eight->last), nonzero);
        _mm256_store_si256((void *)(lanes->last + l), _mm256_and_si256(both, _mm256_set1_epi32(3)));
    }
    const __m256i change =
        _mm256_srai_epi32(_mm256_sub_epi32(here, eight->density), TALLY_ADAPTIVE_DENSITY_RATE);
    _mm256_store_si256((void *)(lanes->density + l), _mm256_add_epi32(eight->density, change));
}

/* First shares and numbers of shares of eight symbols. */
static inline void shares_of(const struct eight *eight, __m256i nonzero, __m256i special,
                             __m256i *ret_first, __m256i *ret_number)
{
    const __m256i first = _mm256_blendv_epi8(_mm256_and_si256(nonzero, eight->first_plain),
                                             eight->first_special, special);
    const __m256i next =
        _mm256_blendv_epi8(_mm256_blendv_epi8(eight->first_plain, eight->first_special, nonzero),
                           _mm256_set1_epi32(TOTAL), special);
    *ret_first = first;
    *ret_number = _mm256_sub_epi32(next, first);
}

/* May read 16 bytes. */
static inline const uint8_t *decode_eight(const struct table *table, bool is_dithered,
                                          const uint8_t *data, struct tally_adaptive_lanes *lanes,
                                          size_t l, size_t t, struct tally_adaptive_tile *tile)
{
    const struct eight eight =
        load_eight(table, is_dithered, lanes, l, tile->classes[t], tile->contexts[t]);
    const __m256i state = tally_rans_load_eight(lanes->rans.lane + l);
    const __m256i share = _mm256_and_si256(state, _mm256_set1_epi32(TOTAL - 1));
    const __m256i ones = _mm256_set1_epi32(-1);
    const __m256i nonzero = _mm256_xor_si256(_mm256_cmpgt_epi32(eight.first_plain, share), ones);
    const __m256i special = _mm256_xor_si256(_mm256_cmpgt_epi32(eight.first_special, share), ones);
    __m256i first, number;
    shares_of(&eight, nonzero, special, &first, &number);
    pass_eight(&eight, is_dithered, nonzero, special, lanes, l);
    tile->nonzero[t] |= (uint64_t)tally_rans_mask_of(nonzero) << l;
    tile->special[t] |= (uint64_t)tally_rans_mask_of(special) << l;
    const __m256i quotient = _mm256_srli_epi32(state, TALLY_ADAPTIVE_SHARE_BITS);
    return tally_rans_refill_eight(
        lanes->rans.lane + l,
        _mm256_add_epi32(_mm256_mullo_epi32(number, quotient), _mm256_sub_epi32(share, first)),
        data);
}

static inline const uint8_t *decode_tile(const struct tally_adaptive_shares *shares,
                                         bool is_dithered, const uint8_t *data, const uint8_t *end,
                                         struct tally_adaptive_lanes *lanes,
                                         struct tally_adaptive_tile *tile)
{
    const struct table table = table_of(shares);
    size_t t = 0;
    for (; t < STEPS && end - data >= 2 * LANES; t++) {
        tile->nonzero[t] = tile->special[t] = 0;
        for (size_t l = 0; l < LANES; l += WIDTH) {
            data = decode_eight(&table, is_dithered, data, lanes, l, t, tile);
        }
    }
    for (; data != NULL && t < STEPS; t++) {
        data = plain_decode_step(shares, is_dithered, data, end, lanes, t, tile);
    }
    return data;
}

static const uint8_t *decode(const struct tally_adaptive_shares *shares, bool is_dithered,
                             const uint8_t *data, const uint8_t *end,
                             struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile)
{
    return is_dithered ? decode_tile(shares, true, data, end, lanes, tile)
                       : decode_tile(shares, false, data, end, lanes, tile);
}

/* Eight bits as masks of all ones or zeros. */
static inline __m256i spread(uint64_t bits)
{
    const __m256i place = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(bits & 0xff)), place),
                              place);
}

static inline void model_tile(const struct tally_adaptive_shares *shares, bool is_dithered,
                              struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile,
                              tally_adaptive_symbol symbols[STEPS][LANES])
{
    const struct table table = table_of(shares);
    for (size_t t = 0; t < STEPS; t++) {
        for (size_t l = 0; l < LANES; l += WIDTH) {
            const struct eight eight =
                load_eight(&table, is_dithered, lanes, l, tile->classes[t], tile->contexts[t]);
            const __m256i nonzero = spread(tile->nonzero[t] >> l);
            const __m256i special = spread(tile->special[t] >> l);
            __m256i first, number;
            shares_of(&eight, nonzero, special, &first, &number);
            pass_eight(&eight, is_dithered, nonzero, special, lanes, l);
            _mm256_storeu_si256((void *)&symbols[t][l],
                                _mm256_or_si256(first, _mm256_slli_epi32(number, 16)));
        }
    }
}

static void model(const struct tally_adaptive_shares *shares, bool is_dithered,
                  struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile,
                  tally_adaptive_symbol symbols[STEPS][LANES])
{
    if (is_dithered) {
        model_tile(shares, true, lanes, tile, symbols);
    } else {
        model_tile(shares, false, lanes, tile, symbols);
    }
}

const struct tally_adaptive_kernel TALLY_ADAPTIVE_AVX2 = {
    .halves = plain_halves,
    .classes = plain_classes,
    .transpose = plain_transpose,
    .count = plain_count,
    .levels = plain_levels,
    .add = plain_add,
    .masks = plain_masks,
    .round_change = plain_round_change,
    .move = plain_move,
    .settle = plain_settle,
    .learn = plain_learn,
    .decode = decode,
    .model = model,
    .encode = plain_encode,
};

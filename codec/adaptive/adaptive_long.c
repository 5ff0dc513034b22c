#include "codec/adaptive/adaptive_long.h"

#include <stdlib.h>
#include <string.h>

#include "codec/adaptive/adaptive_dithers.h"
#include "codec/adaptive/adaptive_kernels.h"
#include "codec/adaptive/adaptive_units.h"
#include "codec/quantize/payload.h"

enum {
    LANES = TALLY_ADAPTIVE_LANES,
    STEPS = TALLY_ADAPTIVE_STEPS,
    DITHERS = TALLY_ADAPTIVE_DITHERS,
    CONTEXTS = TALLY_ADAPTIVE_CONTEXTS,
    PRIOR = TALLY_ADAPTIVE_PRIOR_COUNT * TALLY_ADAPTIVE_COUNT_ONE,
    STATE_BITS = 15, /* of the string in the final state of a lane */
    IN_STATES = STATE_BITS * LANES,
    IN_STATES_BYTES = IN_STATES / 8,
    LEAST_STATE_BITS = 16, /* the length of a state in the message: 16 to 31 bits */
    LENGTH_BITS = 4,
    MOST_STATES_BYTES = LANES * (LENGTH_BITS + TALLY_RANS_STATE_BITS - 1) / 8,
};

/* --- what is learnt -------------------------------------------------------------------------- */

struct model {
    const struct tally_adaptive_kernel *kernel;
    const struct tally_rng *dither;
    struct tally_adaptive_words words[LANES];
    struct tally_adaptive_shares shares;
    struct tally_adaptive_counts counts;
    struct tally_adaptive_lanes lanes;
};

static void model_init(struct model *model, const struct tally_rng *dither)
{
    model->kernel = tally_adaptive_kernel_for(tally_cpu_used());
    model->dither = dither;
    for (size_t l = 0; l < LANES; l++) {
        tally_adaptive_words_init(&model->words[l], dither);
    }
    for (size_t x = 0; x < CONTEXTS; x++) {
        const size_t class_of_dither = dither != NULL ? x % DITHERS : 0;
        const uint32_t zero = TALLY_ADAPTIVE_ZERO[x / DITHERS][class_of_dither];
        model->counts.total[x] = model->counts.all[x] = PRIOR;
        model->counts.nonzero[x] = ((1u << TALLY_ARITH_BITS) - zero) * PRIOR >> TALLY_ARITH_BITS;
        model->counts.special[x] = dither != NULL ? PRIOR / 10 : PRIOR / 2;
    }
    model->kernel->settle(&model->counts, &model->shares);
    for (size_t l = 0; l < LANES; l++) {
        model->lanes.density[l] = TALLY_ADAPTIVE_DENSITY_START;
        model->lanes.last[l] = 0;
    }
}

static void learn(struct model *model, const struct tally_adaptive_tile *tile)
{
    model->kernel->learn(model->dither != NULL, tile, &model->counts, &model->shares);
}

/* --- the order of the coordinates ------------------------------------------------------------ */

/* A vector is cut into rows of 64 coordinates, and lane l takes rows l n_tiles to (l + 1) n_tiles -
 * 1, one in each tile. Coordinates from `dim` on have level 0. */
static size_t tiles_of(size_t dim)
{
    return (dim + TALLY_ADAPTIVE_TILE - 1) / TALLY_ADAPTIVE_TILE;
}

/* The dithers of a row of 64 coordinates, of which others are not needed. */
static void dithers_of(const struct tally_rng *dither, size_t row, int32_t dithers[STEPS])
{
    struct tally_adaptive_words words;
    tally_adaptive_words_init(&words, dither);
    tally_adaptive_dithers(&words, row, dithers);
}

static void begin_tile(struct model *model, size_t n_tiles, size_t k, int32_t dithers[LANES][STEPS],
                       struct tally_adaptive_tile *tile)
{
    if (model->dither == NULL && k > 0) {
        return; /* they are as before */
    }
    for (size_t l = 0; l < LANES; l++) {
        tally_adaptive_dithers(&model->words[l], l * n_tiles + k, dithers[l]);
    }
    model->kernel->classes((const int32_t(*)[STEPS])dithers, tile->classes);
}

/* How many of the 64 coordinates of a row there are. */
static size_t present(size_t row, size_t dim)
{
    const size_t first = STEPS * row, left = first < dim ? dim - first : 0;
    return left < STEPS ? left : STEPS;
}

/* --- special levels -------------------------------------------------------------------------- */

/* A special level is either against the dither or above 1, so that a level on the side of the
 * dither is at least 2. */
struct special_model {
    struct tally_adaptive_decision against[DITHERS], more[TALLY_ADAPTIVE_UNARY];
};

static void special_init(struct special_model *model)
{
    for (size_t i = 0; i < DITHERS; i++) {
        model->against[i] = TALLY_ADAPTIVE_EVEN;
    }
    for (size_t i = 0; i < TALLY_ADAPTIVE_UNARY; i++) {
        model->more[i] = TALLY_ADAPTIVE_EVEN;
    }
}

/* --- encoder --------------------------------------------------------------------------------- */

/* Working memory, all on the heap. */
struct encoding {
    tally_adaptive_symbol (*symbols)[STEPS][LANES]; /* of each tile */
    uint64_t *special;                              /* bit j of word i: coordinate 64 i + j */
    uint8_t *string;                                /* of the special levels */
    uint64_t string_bits, n_decisions, n_large;
};

static void encoding_fini(struct encoding *encoding)
{
    free(encoding->symbols);
    free(encoding->special);
    free(encoding->string);
}

/* Reads the levels of row l of a tile into the columns' masks. */
static void survey_row(const struct model *model, const int32_t *levels, size_t n,
                       const int32_t dithers[STEPS], uint64_t *ret_nonzero, uint64_t *ret_special,
                       struct tally_level_stats *stats)
{
    int32_t padded[STEPS] = {0};
    if (n < STEPS) {
        memcpy(padded, levels, n * sizeof *levels);
        levels = padded;
    }
    stats->formula_bits += model->kernel->masks(levels, dithers, ret_nonzero, ret_special);
    stats->nonzeros += (unsigned)__builtin_popcountll(*ret_nonzero);
}

/* Asks for the levels of the next tile: 64 stretches are too many for the processor to foresee. */
static void fetch_row(const int32_t levels[STEPS])
{
    enum { LINE = 64 / sizeof *levels };
    for (size_t i = 0; i < STEPS; i += LINE) {
        __builtin_prefetch(levels + i);
    }
}

static void survey_tile(struct model *model, const int32_t *levels, size_t dim, size_t k,
                        int32_t dithers[LANES][STEPS], struct tally_adaptive_tile *tile,
                        struct encoding *encoding, struct tally_level_stats *stats)
{
    const size_t n_tiles = tiles_of(dim);
    begin_tile(model, n_tiles, k, dithers, tile);
    for (size_t l = 0; l < LANES; l++) {
        const size_t row = l * n_tiles + k, n = present(row, dim);
        if (present(row + 1, dim) == STEPS) {
            fetch_row(levels + STEPS * (row + 1));
        }
        survey_row(model, n > 0 ? levels + STEPS * row : levels, n, dithers[l], &tile->nonzero[l],
                   &tile->special[l], stats);
        encoding->special[row] = tile->special[l];
        for (uint64_t left = tile->special[l]; left != 0; left &= left - 1) {
            const uint32_t magnitude =
                tally_magnitude(levels[STEPS * row + (size_t)__builtin_ctzll(left)]);
            encoding->n_decisions +=
                1 + (magnitude < TALLY_ADAPTIVE_UNARY ? magnitude : TALLY_ADAPTIVE_UNARY);
            encoding->n_large += magnitude > TALLY_ADAPTIVE_UNARY;
        }
    }
    model->kernel->transpose(tile->nonzero);
    model->kernel->transpose(tile->special);
    model->kernel->model(&model->shares, model->dither != NULL, &model->lanes, tile,
                         encoding->symbols[k]);
    learn(model, tile);
}

static enum tally_status allocate(size_t n_tiles, struct encoding *ret_encoding)
{
    *ret_encoding = (struct encoding){
        .symbols = malloc(n_tiles * sizeof *ret_encoding->symbols),
        .special = malloc(n_tiles * LANES * sizeof *ret_encoding->special),
    };
    return ret_encoding->symbols != NULL && ret_encoding->special != NULL ? TALLY_OK
                                                                          : TALLY_NO_MEMORY;
}

static void write_special(struct tally_arith_encoder *encoder, struct special_model *model,
                          int32_t level, int32_t dither)
{
    const bool against = (level < 0) != (dither < 0);
    tally_adaptive_write_decision(encoder, &model->against[tally_adaptive_dither_class(dither)],
                                  against);
    tally_adaptive_write_magnitude(encoder, model->more, against ? 1 : 2, tally_magnitude(level));
}

/* Encodes the special levels, in the order of the coordinates. */
static enum tally_status write_string(const int32_t *levels, size_t dim,
                                      const struct tally_rng *dither, struct encoding *encoding)
{
    const uint64_t bits = encoding->n_decisions * TALLY_ADAPTIVE_MOST_DECISION_BITS +
                          4 * TALLY_ADAPTIVE_GAMMA_BITS * encoding->n_large;
    const size_t capacity = (size_t)(bits / 8) + IN_STATES_BYTES + 32;
    struct special_model model;
    struct tally_bit_writer writer;
    struct tally_arith_encoder encoder;
    encoding->string = calloc(capacity, 1);
    if (encoding->string == NULL) {
        return TALLY_NO_MEMORY;
    }
    special_init(&model);
    tally_bit_writer_init(&writer, encoding->string, capacity);
    tally_arith_encoder_init(&encoder, &writer);
    for (size_t row = 0; STEPS * row < dim; row++) {
        int32_t dithers[STEPS];
        if (encoding->special[row] != 0) {
            dithers_of(dither, row, dithers);
        }
        for (uint64_t left = encoding->special[row]; left != 0; left &= left - 1) {
            const size_t j = (size_t)__builtin_ctzll(left);
            write_special(&encoder, &model, levels[STEPS * row + j], dithers[j]);
        }
    }
    tally_arith_encoder_finish(&encoder);
    tally_bit_writer_finish(&writer);
    encoding->string_bits = tally_bit_writer_tell(&writer);
    return TALLY_OK;
}

/* States that hold the beginning of the string. */
static void begin_states(const uint8_t *string, struct tally_rans_states *ret_states)
{
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, string, IN_STATES);
    for (size_t l = 0; l < LANES; l++) {
        ret_states->lane[l] = TALLY_RANS_LOWEST + (uint32_t)tally_bit_read(&reader, STATE_BITS);
    }
}

/* A state takes 4 bits for its length, and those after its leading one, lowest first: 26 in the
 * mean. All together are filled up with zeros to whole bytes. Returns the number of bytes. */
static size_t write_states(const struct tally_rans_states *states, uint8_t *data)
{
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, data, MOST_STATES_BYTES);
    for (size_t l = 0; l < LANES; l++) {
        const unsigned more = tally_bit_length(states->lane[l]) - LEAST_STATE_BITS;
        tally_bit_write(&writer, more, LENGTH_BITS);
        tally_bit_write(&writer, states->lane[l], more + LEAST_STATE_BITS - 1);
    }
    return tally_bit_writer_finish(&writer);
}

/* Appends states, words and the rest of the string. */
static enum tally_status write_payload(const struct encoding *encoding, size_t n_tiles,
                                       struct tally_buffer *payload, uint64_t *ret_bits)
{
    const size_t string_bytes = (size_t)((encoding->string_bits + 7) / 8);
    const size_t rest = string_bytes > IN_STATES_BYTES ? string_bytes - IN_STATES_BYTES : 0;
    const size_t most = MOST_STATES_BYTES + n_tiles * 2 * TALLY_ADAPTIVE_TILE + 64 + rest;
    const enum tally_status status = tally_buffer_reserve(payload, most);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_rans_states states;
    uint8_t *const to = payload->data + payload->size, *const end = to + most - rest;
    uint8_t *words = end;
    begin_states(encoding->string, &states);
    for (size_t k = n_tiles; k-- > 0;) {
        words = tally_adaptive_kernel_for(tally_cpu_used())
                    ->encode((const tally_adaptive_symbol(*)[LANES])encoding->symbols[k], &states,
                             words);
    }
    const size_t n_words = (size_t)(end - words), n_states = write_states(&states, to);
    memmove(to + n_states, words, n_words);
    memcpy(to + n_states + n_words, encoding->string + IN_STATES_BYTES, rest);
    payload->size += n_states + n_words + rest;
    *ret_bits = 8 * (n_states + n_words) +
                (encoding->string_bits > IN_STATES ? encoding->string_bits - IN_STATES : 0);
    return TALLY_OK;
}

enum tally_status tally_adaptive_long_encode(const int32_t *levels, size_t dim,
                                             const struct tally_rng *dither,
                                             struct tally_buffer *payload,
                                             struct tally_level_stats *ret_stats,
                                             struct tally_error *err)
{
    const size_t n_tiles = tiles_of(dim);
    struct tally_level_stats stats = {.formula_bits = dim};
    struct tally_adaptive_tile tile;
    int32_t dithers[LANES][STEPS];
    struct encoding encoding;
    struct model model;
    enum tally_status status = allocate(n_tiles, &encoding);
    if (status != TALLY_OK) {
        goto out;
    }
    model_init(&model, dither);
    for (size_t k = 0; k < n_tiles; k++) {
        survey_tile(&model, levels, dim, k, dithers, &tile, &encoding, &stats);
    }
    status = write_string(levels, dim, dither, &encoding);
    if (status == TALLY_OK) {
        status = write_payload(&encoding, n_tiles, payload, &stats.payload_bits);
    }
out:
    encoding_fini(&encoding);
    *ret_stats = stats;
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "a message of %zu coordinates: %s",
                                           dim, tally_status_info(status)->title);
}

/* --- decoder --------------------------------------------------------------------------------- */

struct decoding {
    const struct tally_adaptive_kernel *kernel;
    const uint8_t *data, *end; /* what is not yet read, in whole bytes */
    uint64_t payload_bits;
    struct tally_adaptive_message *message;
    struct tally_adaptive_units *units; /* NULL: none */
    size_t n_added;                     /* rows in the sums, in the order of tiles and lanes */
    struct tally_level_stats *stats;
};

/* The values of n > 0 coordinates whose levels are zero or plain; 0 for the others of the row. */
static void values_of_row(const struct tally_adaptive_kernel *kernel, uint64_t nonzero,
                          const int32_t dithers[STEPS], size_t n, int32_t values[STEPS],
                          uint64_t squares[TALLY_FIXED_POINT_LANES])
{
    int32_t padded[STEPS] = {0};
    memcpy(padded, dithers, n * sizeof *dithers);
    memset(values, 0, STEPS * sizeof *values);
    kernel->add(nonzero, padded, values, squares);
}

/* Adds n > 0 coordinates whose levels are zero or plain. */
static void add_row(const struct tally_adaptive_kernel *kernel, size_t row, uint64_t nonzero,
                    const int32_t dithers[STEPS], size_t n, struct tally_adaptive_units *units)
{
    if (n == STEPS && !tally_adaptive_is_wide(units)) {
        kernel->add(nonzero, dithers, (int32_t *)units->sums + STEPS * row, units->squares);
    } else {
        int32_t values[STEPS];
        values_of_row(kernel, nonzero, dithers, n, values, units->squares);
        for (size_t j = 0; j < n; j++) {
            tally_adaptive_units_add(units, STEPS * row + j, values[j]);
        }
    }
}

/* Takes the symbols of a row, and adds them to the sums as if no level were special. */
static enum tally_status take_row(struct decoding *decoding, size_t row, uint64_t nonzero,
                                  uint64_t special, const int32_t dithers[STEPS],
                                  struct tally_error *err)
{
    struct tally_adaptive_message *message = decoding->message;
    const size_t n = present(row, message->dim);
    if (n < STEPS && nonzero >> n != 0) {
        return tally_fail(err, TALLY_MALFORMED, "payload", "a level beyond coordinate %zu",
                          message->dim);
    }
    message->nonzero[row] = nonzero;
    message->special[row] = special;
    if (decoding->units != NULL && n > 0) {
        add_row(decoding->kernel, row, nonzero, dithers, n, decoding->units);
        decoding->n_added++;
    }
    return TALLY_OK;
}

/* Takes from the sums what take_row() has added to them. */
static void take_back(const struct decoding *decoding)
{
    const struct tally_adaptive_message *message = decoding->message;
    const size_t n_tiles = tiles_of(message->dim);
    size_t left = decoding->n_added;
    for (size_t i = 0; left > 0; i++) {
        const size_t row = i % LANES * n_tiles + i / LANES, n = present(row, message->dim);
        int32_t dithers[STEPS], values[STEPS];
        uint64_t unused[TALLY_FIXED_POINT_LANES] = {0};
        if (n == 0) {
            continue;
        }
        dithers_of(message->dither, row, dithers);
        values_of_row(decoding->kernel, message->nonzero[row], dithers, n, values, unused);
        for (size_t j = 0; j < n; j++) {
            tally_adaptive_units_add(decoding->units, STEPS * row + j, -values[j]);
        }
        left--;
    }
}

/* Asks for the next row of sums. */
static void fetch_sums(const struct decoding *decoding, size_t row)
{
    enum { LINE = 64 / sizeof(int32_t) };
    if (decoding->units != NULL && present(row, decoding->message->dim) == STEPS) {
        for (size_t i = 0; i < STEPS; i += LINE) {
            __builtin_prefetch((const int32_t *)decoding->units->sums + STEPS * row + i, 1);
        }
    }
}

static enum tally_status read_tiles(struct decoding *decoding, struct model *model,
                                    struct tally_error *err)
{
    const size_t dim = decoding->message->dim, n_tiles = tiles_of(dim);
    struct tally_adaptive_tile tile;
    int32_t dithers[LANES][STEPS];
    enum tally_status status = TALLY_OK;
    for (size_t k = 0; status == TALLY_OK && k < n_tiles; k++) {
        begin_tile(model, n_tiles, k, dithers, &tile);
        decoding->data = model->kernel->decode(&model->shares, model->dither != NULL,
                                               decoding->data, decoding->end, &model->lanes, &tile);
        if (decoding->data == NULL) {
            return tally_payload_ends_early(STEPS * k, dim, decoding->payload_bits, err);
        }
        learn(model, &tile);
        const uint32_t nonzeros = model->kernel->count(tile.nonzero);
        decoding->stats->nonzeros += nonzeros;
        decoding->stats->formula_bits += nonzeros - model->kernel->count(tile.special);
        model->kernel->transpose(tile.nonzero);
        model->kernel->transpose(tile.special);
        for (size_t l = 0; status == TALLY_OK && l < LANES; l++) {
            const size_t row = l * n_tiles + k;
            fetch_sums(decoding, row + 1);
            status = take_row(decoding, row, tile.nonzero[l], tile.special[l], dithers[l], err);
        }
    }
    return status;
}

/* Returns 0 if the level is too large. */
static int32_t read_special(struct tally_arith_decoder *decoder, struct special_model *model,
                            int32_t dither)
{
    const bool against =
        tally_adaptive_read_decision(decoder, &model->against[tally_adaptive_dither_class(dither)]);
    const uint32_t magnitude = tally_adaptive_read_magnitude(decoder, model->more, against ? 1 : 2);
    if (magnitude > TALLY_ADAPTIVE_MAX_LEVEL) {
        return 0;
    }
    return against != (dither < 0) ? -(int32_t)magnitude : (int32_t)magnitude;
}

/* Replaces the plain values of all special levels, whose range is checked first. */
static enum tally_status add_specials(const struct decoding *decoding, struct tally_error *err)
{
    const struct tally_adaptive_message *message = decoding->message;
    struct tally_adaptive_units *const units = decoding->units;
    const int32_t *level = message->levels;
    const enum tally_status status =
        tally_adaptive_check_range(message, units->step, units->bound, err);
    if (status == TALLY_OK) {
        tally_adaptive_units_reach(units, message->dim, message->largest);
    }
    for (size_t row = 0; status == TALLY_OK && STEPS * row < message->dim; row++) {
        int32_t dithers[STEPS];
        if (message->special[row] != 0) {
            dithers_of(message->dither, row, dithers);
        }
        for (uint64_t left = message->special[row]; left != 0; left &= left - 1) {
            const size_t j = (size_t)__builtin_ctzll(left);
            tally_adaptive_units_replace(units, STEPS * row + j, *level++, dithers[j]);
        }
    }
    return status;
}

/* Counts the special levels before each row, and makes room for all of them. */
static enum tally_status count_specials(struct tally_adaptive_message *message,
                                        struct tally_error *err)
{
    uint32_t n = 0;
    for (size_t row = 0; STEPS * row < message->dim; row++) {
        message->before[row] = n;
        if (message->special[row] != 0) { /* in few rows */
            n += (uint32_t)__builtin_popcountll(message->special[row]);
        }
    }
    message->levels = malloc((n + 1) * sizeof *message->levels);
    return message->levels != NULL ? TALLY_OK
                                   : tally_fail(err, TALLY_NO_MEMORY, NULL,
                                                "no memory for %lu levels", (unsigned long)n);
}

static enum tally_status read_specials(struct decoding *decoding,
                                       struct tally_arith_decoder *decoder, struct tally_error *err)
{
    struct tally_adaptive_message *message = decoding->message;
    struct special_model model;
    size_t n_read = 0;
    special_init(&model);
    for (size_t row = 0; STEPS * row < message->dim; row++) {
        int32_t dithers[STEPS];
        if (message->special[row] == 0) {
            continue;
        }
        dithers_of(message->dither, row, dithers);
        for (uint64_t left = message->special[row]; left != 0; left &= left - 1) {
            const size_t j = (size_t)__builtin_ctzll(left);
            const int32_t level = read_special(decoder, &model, dithers[j]);
            if (level == 0) {
                return tally_payload_level_above(STEPS * row + j, TALLY_ADAPTIVE_MAX_LEVEL, err);
            }
            const uint32_t magnitude = tally_magnitude(level);
            message->levels[n_read++] = level;
            message->largest = magnitude > message->largest ? magnitude : message->largest;
            decoding->stats->formula_bits += magnitude;
        }
    }
    return TALLY_OK;
}

/* Whether bits first .. n - 1 are all 0. */
static bool are_zero(const uint8_t *data, uint64_t first, uint64_t n)
{
    bool ok = true;
    for (uint64_t i = first; i < n; i++) {
        ok = ok && (data[i / 8] >> i % 8 & 1) == 0;
    }
    return ok;
}

/* Puts the string together from the final states and what follows the words. */
static enum tally_status join_string(const struct tally_rans_states *states, const uint8_t *rest,
                                     size_t n_rest, uint8_t *string, struct tally_error *err)
{
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, string, IN_STATES_BYTES);
    for (size_t l = 0; l < LANES; l++) {
        const uint32_t bits = states->lane[l] - TALLY_RANS_LOWEST;
        if (bits >> STATE_BITS != 0) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "state %zu ends as %lu", l,
                              (unsigned long)states->lane[l]);
        }
        tally_bit_write(&writer, bits, STATE_BITS);
    }
    tally_bit_writer_finish(&writer);
    memcpy(string + IN_STATES_BYTES, rest, n_rest);
    return TALLY_OK;
}

/* Reads the special levels from the string that the final states and the rest of the message hold.
 */
static enum tally_status read_string(struct decoding *decoding,
                                     const struct tally_rans_states *states, uint64_t rest_bits,
                                     struct tally_error *err)
{
    const uint64_t before = decoding->payload_bits - rest_bits, n = IN_STATES + rest_bits;
    struct tally_bit_reader reader;
    struct tally_arith_decoder decoder;
    bool is_exact;
    uint8_t *string = NULL;
    enum tally_status status = count_specials(decoding->message, err);
    if (status != TALLY_OK) {
        return status;
    }
    string = malloc(IN_STATES_BYTES + (size_t)((rest_bits + 7) / 8));
    if (string == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a message");
    }
    status = join_string(states, decoding->data, (size_t)((rest_bits + 7) / 8), string, err);
    if (status != TALLY_OK) {
        goto out;
    }
    tally_bit_reader_init(&reader, string, n);
    tally_arith_decoder_init(&decoder, &reader);
    status = read_specials(decoding, &decoder, err);
    if (status != TALLY_OK) {
        goto out;
    }
    const uint64_t taken = tally_arith_decoder_finish(&decoder, &is_exact);
    const uint64_t bits = before + (taken > IN_STATES ? taken - IN_STATES : 0);
    status = tally_payload_check_string(decoding->payload_bits, decoding->message->dim, bits,
                                        is_exact && are_zero(string, taken, IN_STATES), err);
out:
    free(string);
    return status;
}

/* Reads what write_states() has written; sets decoding->data to what follows. */
static enum tally_status read_states(struct decoding *decoding,
                                     struct tally_rans_states *ret_states, struct tally_error *err)
{
    const uint64_t n_bits = 8 * (uint64_t)(decoding->end - decoding->data);
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, decoding->data, n_bits);
    for (size_t l = 0; l < LANES; l++) {
        const unsigned more = (unsigned)tally_bit_read(&reader, LENGTH_BITS);
        const unsigned n = more + LEAST_STATE_BITS - 1;
        ret_states->lane[l] = 1u << n | (uint32_t)tally_bit_read(&reader, n);
    }
    const uint64_t taken = tally_bit_reader_tell(&reader);
    if (reader.overrun) {
        return tally_payload_ends_early(0, decoding->message->dim, decoding->payload_bits, err);
    }
    if (!are_zero(decoding->data, taken, (taken + 7) / 8 * 8)) {
        return tally_fail(err, TALLY_MALFORMED, "payload", "a bit after the states is not zero");
    }
    decoding->data += (taken + 7) / 8;
    return TALLY_OK;
}

static enum tally_status allocate_rows(struct tally_adaptive_message *message,
                                       struct tally_error *err)
{
    const size_t n_rows = tiles_of(message->dim) * LANES;
    message->nonzero = malloc(n_rows * sizeof *message->nonzero);
    message->special = malloc(n_rows * sizeof *message->special);
    message->before = malloc(n_rows * sizeof *message->before);
    return message->nonzero != NULL && message->special != NULL && message->before != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu coordinates",
                            message->dim);
}

enum tally_status tally_adaptive_long_read(const uint8_t *data, uint64_t payload_bits,
                                           struct tally_adaptive_message *message,
                                           struct tally_adaptive_units *units,
                                           struct tally_level_stats *ret_stats,
                                           struct tally_error *err)
{
    struct decoding decoding = {.kernel = tally_adaptive_kernel_for(tally_cpu_used()),
                                .data = data,
                                .end = data + payload_bits / 8,
                                .payload_bits = payload_bits,
                                .message = message,
                                .units = units,
                                .stats = ret_stats};
    struct model model;
    enum tally_status status = allocate_rows(message, err);
    model_init(&model, message->dither);
    message->largest = 1;
    if (status == TALLY_OK && units != NULL) {
        tally_adaptive_units_reserve(units, message->dim, message->largest);
    }
    if (status == TALLY_OK) {
        status = read_states(&decoding, &model.lanes.rans, err);
    }
    if (status == TALLY_OK) {
        status = read_tiles(&decoding, &model, err);
    }
    if (status == TALLY_OK) {
        const uint64_t rest_bits = payload_bits - 8 * (uint64_t)(decoding.data - data);
        status = read_string(&decoding, &model.lanes.rans, rest_bits, err);
    }
    if (status == TALLY_OK && units != NULL) {
        status = add_specials(&decoding, err);
    }
    if (status != TALLY_OK) {
        take_back(&decoding);
    }
    return status;
}

void tally_adaptive_long_levels(const struct tally_adaptive_message *message, size_t row,
                                const int32_t dithers[STEPS], int32_t levels[STEPS])
{
    const int32_t *special = message->levels + message->before[row];
    tally_adaptive_kernel_for(tally_cpu_used())->levels(message->nonzero[row], dithers, levels);
    for (uint64_t left = message->special[row]; left != 0; left &= left - 1) {
        levels[__builtin_ctzll(left)] = *special++;
    }
}

const struct tally_adaptive_kernel *tally_adaptive_kernel_for(enum tally_cpu cpu)
{
    static const struct tally_adaptive_kernel *const kernels[TALLY_N_CPUS] = {
        [TALLY_CPU_PORTABLE] = &TALLY_ADAPTIVE_PORTABLE,
#ifdef TALLY_X86_64
        [TALLY_CPU_AVX2] = &TALLY_ADAPTIVE_AVX2,
        [TALLY_CPU_AVX512] = &TALLY_ADAPTIVE_AVX512,
#endif
    };
    return kernels[tally_cpu_with_vbmi2(cpu)];
}

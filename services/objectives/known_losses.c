#include "services/objectives/known_losses.h"

#include <stdlib.h>

#include "codec/numeric/checksum.h"

enum { SLOTS = 2 * KNOWN_LOSSES_MOST };

struct tally_known_loss {
    struct tally_point_key key;
    double loss;
};

void tally_known_losses_fini(struct tally_known_losses *known)
{
    free(known->newer);
    free(known->older);
    *known = (struct tally_known_losses){0};
}

struct tally_point_key tally_point_key(const double *x, size_t dim)
{
    return (struct tally_point_key){tally_digest64(x, dim * sizeof *x),
                                    tally_checksum64(x, dim * sizeof *x)};
}

/* The slot of the key, or the free one where it belongs. Half of the slots are free. */
static struct tally_known_loss *slot_of(struct tally_known_loss *table,
                                        const struct tally_point_key *key)
{
    size_t i = key->digest % SLOTS;
    while ((table[i].key.digest != key->digest || table[i].key.checksum != key->checksum) &&
           (table[i].key.digest != 0 || table[i].key.checksum != 0)) {
        i = (i + 1) % SLOTS;
    }
    return &table[i];
}

bool tally_known_losses_get(const struct tally_known_losses *known,
                            const struct tally_point_key *key, double *ret_loss)
{
    struct tally_known_loss *const tables[] = {known->newer, known->older};
    for (size_t i = 0; i < 2; i++) {
        const struct tally_known_loss *slot = tables[i] != NULL ? slot_of(tables[i], key) : NULL;
        if (slot != NULL && (slot->key.digest != 0 || slot->key.checksum != 0)) {
            *ret_loss = slot->loss;
            return true;
        }
    }
    return false;
}

void tally_known_losses_put(struct tally_known_losses *known, const struct tally_point_key *key,
                            double loss)
{
    if (known->n_newer == KNOWN_LOSSES_MOST) {
        free(known->older);
        known->older = known->newer;
        known->newer = NULL;
        known->n_newer = 0;
    }
    if (known->newer == NULL) {
        known->newer = calloc(SLOTS, sizeof *known->newer);
    }
    if (known->newer != NULL) {
        *slot_of(known->newer, key) = (struct tally_known_loss){*key, loss};
        known->n_newer++;
    }
}

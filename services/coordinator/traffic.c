#include "services/coordinator/traffic.h"

#include <string.h>

#include "codec/buffer.h"

/* Words of a client in a block, each 8 bytes, little-endian: client, updates, payload bits, bytes
 * in, bytes out. */
enum { N_WORDS = 5, BLOCK = 4096 };

void traffic_share(struct client_traffic *clients, const struct traffic_part *parts, size_t n,
                   enum traffic_way way, uint64_t bytes)
{
    uint64_t own = 0;
    for (size_t i = 0; i < n; i++) {
        own += parts[i].own_bytes[way];
    }
    for (size_t i = 0; bytes > 0 && i < n; i++) {
        const uint64_t share = (bytes - own) / n + (i < (bytes - own) % n);
        clients[parts[i].client].wire_bytes[way] += parts[i].own_bytes[way] + share;
    }
}

void traffic_add_updates(struct client_traffic *clients, const struct traffic_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (parts[i].is_accepted) {
            clients[parts[i].client].updates++;
            clients[parts[i].client].payload_bits += parts[i].payload_bits;
        }
    }
}

/* Appends the block of the clients from `first` on; appends nothing if none of them has traffic. */
static enum tally_status encode_block(const struct client_traffic *clients, uint32_t n,
                                      uint32_t first, struct tally_buffer *out)
{
    const struct client_traffic none = {0};
    enum tally_status status = TALLY_OK;
    for (uint32_t m = first; status == TALLY_OK && m < n && m - first < BLOCK; m++) {
        const struct client_traffic *traffic = &clients[m];
        if (memcmp(traffic, &none, sizeof none) == 0) {
            continue;
        }
        const uint64_t words[N_WORDS] = {m, traffic->updates, traffic->payload_bits,
                                         traffic->wire_bytes[TRAFFIC_IN],
                                         traffic->wire_bytes[TRAFFIC_OUT]};
        status = tally_buffer_append(out, words, sizeof words);
    }
    return status;
}

enum tally_status traffic_put(struct tally_store *store, const struct tally_store_job *row,
                              const struct client_traffic *clients, struct tally_error *err)
{
    struct tally_buffer body = {0};
    const int64_t round = TALLY_STORE_TRAFFIC_ROUND;
    const uint32_t n = (uint32_t)row->clients;
    enum tally_status status = store->ops->updates_delete(store, row->key, round, round, err);
    for (uint32_t first = 0; status == TALLY_OK && first < n; first += BLOCK) {
        body.size = 0;
        status = encode_block(clients, n, first, &body);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the clients' traffic");
        } else if (body.size > 0) {
            const struct tally_store_update block = {
                .round = round, .client = first, .body = body.data, .n_body = body.size};
            status = store->ops->update_insert(store, row->key, &block, err);
        }
    }
    tally_buffer_fini(&body);
    return status;
}

struct reading {
    struct client_traffic *clients;
    uint32_t n;
};

static enum tally_status decode_block(void *context, const struct tally_store_update *block,
                                      struct tally_error *err)
{
    const struct reading *reading = context;
    uint64_t words[N_WORDS];
    if (block->n_body % sizeof words != 0) {
        return tally_fail(
            err, TALLY_DATA_LOSS, NULL,
            "stored traffic of clients from %u on has %zu bytes, not a multiple of %zu",
            block->client, block->n_body, sizeof words);
    }
    for (size_t at = 0; at < block->n_body; at += sizeof words) {
        memcpy(words, block->body + at, sizeof words);
        if (words[0] >= reading->n) {
            return tally_fail(err, TALLY_DATA_LOSS, NULL, "stored traffic of client %llu of %u",
                              (unsigned long long)words[0], reading->n);
        }
        reading->clients[words[0]] =
            (struct client_traffic){words[1], words[2], {words[3], words[4]}};
    }
    return TALLY_OK;
}

enum tally_status traffic_get(struct tally_store *store, const struct tally_store_job *row,
                              struct client_traffic *clients, struct tally_error *err)
{
    struct reading reading = {clients, (uint32_t)row->clients};
    return store->ops->update_list(store, row->key, TALLY_STORE_TRAFFIC_ROUND, decode_block,
                                   &reading, err);
}

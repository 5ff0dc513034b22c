/* traffic: what each client of a job has sent and received.
 *
 * An exchange carries messages of several clients and bytes that belong to no single client:
 * headers, and fields that are sent once for all clients. Each client is charged for its own bytes
 * and for an equal share of the rest; if the rest does not divide evenly, the first clients get one
 * extra byte each. So the shares of an exchange add up to its bytes:
 *
 *     request of 300 bytes   client 4: 50 of its own   client 9: 71 of its own   179 shared
 *     share                  50 + 90 = 140             71 + 89 = 160
 */
#ifndef TALLY_SERVICES_COORDINATOR_TRAFFIC_H
#define TALLY_SERVICES_COORDINATOR_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "storage/store.h"

enum traffic_way { TRAFFIC_IN, TRAFFIC_OUT, N_TRAFFIC_WAYS }; /* as the coordinator sees it */

struct client_traffic {
    uint64_t updates; /* accepted ones */
    uint64_t payload_bits;
    uint64_t wire_bytes[N_TRAFFIC_WAYS];
};

/* One client in an exchange. */
struct traffic_part {
    uint32_t client;
    uint32_t own_bytes[N_TRAFFIC_WAYS]; /* of all parts, at most the bytes of the exchange */
    bool is_accepted;      /* the exchange brought an accepted update that is not a repetition */
    uint64_t payload_bits; /* of that update */
};

/* Adds the bytes that an exchange had in one direction to the traffic of its clients. Each part's
 * client is a valid index of `clients`; a client may have several parts. `bytes` may be 0. */
void traffic_share(struct client_traffic *clients, const struct traffic_part *parts, size_t n,
                   enum traffic_way way, uint64_t bytes);
/* Adds the accepted updates. */
void traffic_add_updates(struct client_traffic *clients, const struct traffic_part *parts,
                         size_t n);

/* Replaces the stored traffic of the job's clients. It is stored among the updates, under the round
 * TALLY_STORE_TRAFFIC_ROUND, in one row for each block of 4,096 clients, under the block's first
 * client; clients without traffic are left out. Needs an open transaction. Errors: NO_MEMORY, those
 * of the writes. */
enum tally_status traffic_put(struct tally_store *store, const struct tally_store_job *row,
                              const struct client_traffic *clients, struct tally_error *err);
/* Reads stored traffic into clients[row->clients]; clients without any are left unchanged. Errors:
 * DATA_LOSS, those of the read. */
enum tally_status traffic_get(struct tally_store *store, const struct tally_store_job *row,
                              struct client_traffic *clients, struct tally_error *err);

#endif

/* traffic: what each client of a job has sent and been sent.
 *
 * An exchange carries messages of several clients and bytes that belong to none of them: headers,
 * and what a request or a task says once for all. Each client is charged with its own bytes, and
 * with an equal share of the rest; where the rest does not divide, the first clients have one byte
 * more. So the shares of an exchange add up to its bytes:
 *
 *     request of 300 bytes | client 4: 61 of its own | client 9: 80 of its own | 159 shared
 *                          | 61 + 80 = 141           | 80 + 79 = 159           |
 */
#ifndef TALLY_SERVICES_COORDINATOR_TRAFFIC_TRAFFIC_H
#define TALLY_SERVICES_COORDINATOR_TRAFFIC_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "storage/store.h"

enum traffic_way { TRAFFIC_IN, TRAFFIC_OUT, N_TRAFFIC_WAYS }; /* as the coordinator sees it */

struct client_traffic {
    uint64_t updates; /* that were accepted */
    uint64_t payload_bits;
    uint64_t wire_bytes[N_TRAFFIC_WAYS];
};

/* One client in an exchange. */
struct traffic_part {
    uint32_t client;
    uint32_t own_bytes[N_TRAFFIC_WAYS]; /* altogether at most those of the exchange */
    bool is_accepted;      /* the exchange brought an update of the client, and it is a new one */
    uint64_t payload_bits; /* of that update */
};

/* Adds the bytes that an exchange had in one direction to the traffic of its clients, who all have
 * a place in `clients`; 0 = it had none. A client may stand twice. */
void traffic_share(struct client_traffic *clients, const struct traffic_part *parts, size_t n,
                   enum traffic_way way, uint64_t bytes);
/* Adds the accepted updates. */
void traffic_add_updates(struct client_traffic *clients, const struct traffic_part *parts,
                         size_t n);

/* Stores the traffic of the job's clients in place of what was stored before: blocks of up to 4096
 * clients that have any, among the updates, under TALLY_STORE_TRAFFIC_ROUND and the block's first
 * place. Needs an open transaction. Errors: NO_MEMORY, those of the writes. */
enum tally_status traffic_put(struct tally_store *store, const struct tally_store_job *row,
                              const struct client_traffic *clients, struct tally_error *err);
/* Reads it back into clients[row->clients]; the others stay as they are. Errors: DATA_LOSS, those
 * of the read. */
enum tally_status traffic_get(struct tally_store *store, const struct tally_store_job *row,
                              struct client_traffic *clients, struct tally_error *err);

#endif

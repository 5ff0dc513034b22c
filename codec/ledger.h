/* ledger: how many bits a job has cost, in three numbers that are never mixed.
 *
 *   formula  what [1] would count: d + sum |level| for CEAL, 32 d for floats;
 *   payload  exact length of the decodable bit string that was sent, before byte padding;
 *   wire     bytes of the HTTP messages that carried it, headers included.
 *
 * Uplink is client to server, downlink server to client. A broadcast counts once in `downlink`; the
 * copies owed to the clients count in `delivered_payload_bits`. All counters only grow. */
#ifndef TALLY_CODEC_LEDGER_H
#define TALLY_CODEC_LEDGER_H

#include <stdint.h>

struct tally_bits {
    uint64_t formula_bits;
    uint64_t payload_bits;
    uint64_t messages;
    uint64_t clipped; /* coordinates outside the quantizer's range */
};

struct tally_ledger {
    struct tally_bits uplink;   /* summed over clients */
    struct tally_bits downlink; /* each broadcast once */
    uint64_t delivered_payload_bits;
    /* Down besides broadcasts: for CEAL, 1 per round whose norm test failed and 32 per estimate;
     * other algorithms state theirs in their files. Up: 1 per client that declined. */
    uint64_t control_bits;
    uint64_t telemetry_bits; /* reports of losses, clipping and metrics: no part of any algorithm */
};

void tally_bits_add(struct tally_bits *sum, const struct tally_bits *more);
void tally_ledger_add(struct tally_ledger *sum, const struct tally_ledger *more);

#endif

#include "codec/ledger.h"

void tally_bits_add(struct tally_bits *sum, const struct tally_bits *more)
{
    sum->formula_bits += more->formula_bits;
    sum->payload_bits += more->payload_bits;
    sum->messages += more->messages;
    sum->clipped += more->clipped;
}

void tally_ledger_add(struct tally_ledger *sum, const struct tally_ledger *more)
{
    tally_bits_add(&sum->uplink, &more->uplink);
    tally_bits_add(&sum->downlink, &more->downlink);
    sum->delivered_payload_bits += more->delivered_payload_bits;
    sum->control_bits += more->control_bits;
    sum->telemetry_bits += more->telemetry_bits;
}

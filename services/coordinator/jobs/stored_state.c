#include "services/coordinator/jobs/stored_state.h"

enum { SHORTER = 4, MOST_CHANGES = 64, MOST_WHOLES = 2, MOST_BYTES = 900 * 1000 * 1000 };

bool stored_state_takes(const struct stored_state *stored, size_t n)
{
    const size_t changes = stored->change_bytes + n;
    return stored->n_changes < MOST_CHANGES && n <= stored->whole_bytes / SHORTER &&
           changes <= MOST_WHOLES * stored->whole_bytes &&
           stored->whole_bytes + changes <= MOST_BYTES;
}

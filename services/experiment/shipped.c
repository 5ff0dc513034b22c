#include "services/experiment/shipped.h"

#include <stddef.h>
#include <string.h>

const char *tally_shipped_get(const char *name)
{
    const struct tally_shipped *shipped = TALLY_SHIPPED;
    while (shipped->name != NULL && strcmp(shipped->name, name) != 0) {
        shipped++;
    }
    return shipped->text;
}

#include "services/objectives/blas_version.h"

#include <cblas.h>

const char *tally_blas_version(void)
{
    return openblas_get_config();
}

/* blas_version: which OpenBLAS computes here. */
#ifndef TALLY_SERVICES_OBJECTIVES_BLAS_VERSION_H
#define TALLY_SERVICES_OBJECTIVES_BLAS_VERSION_H

/* Its version, how it was built, and the processor whose kernels it uses: "OpenBLAS 0.3.21
 * NO_AFFINITY Haswell MAX_THREADS=64". Static text. */
const char *tally_blas_version(void);

#endif

/* suites: one per module of codec/, each in its own file. */
#ifndef TALLY_TESTS_UNIT_CODEC_SUITES_H
#define TALLY_TESTS_UNIT_CODEC_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite codec_bits_suite;
extern const struct tally_suite codec_buffer_suite;
extern const struct tally_suite codec_checksum_suite;
extern const struct tally_suite codec_entropy_suite;
extern const struct tally_suite codec_entropy_kernels_suite;
extern const struct tally_suite codec_error_suite;
extern const struct tally_suite codec_fixed_point_suite;
extern const struct tally_suite codec_float32_suite;
extern const struct tally_suite codec_ledger_suite;
extern const struct tally_suite codec_qsgd_suite;
extern const struct tally_suite codec_quantizer_suite;
extern const struct tally_suite codec_quantizer_kernels_suite;
extern const struct tally_suite codec_record_suite;
extern const struct tally_suite codec_rng_suite;
extern const struct tally_suite codec_unary_suite;
extern const struct tally_suite codec_unary_kernels_suite;

#endif

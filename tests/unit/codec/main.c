#include "tests/unit/codec/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &codec_bits_suite,
    &codec_buffer_suite,
    &codec_checksum_suite,
    &codec_entropy_suite,
    &codec_entropy_kernels_suite,
    &codec_error_suite,
    &codec_fixed_point_suite,
    &codec_float32_suite,
    &codec_ledger_suite,
    &codec_qsgd_suite,
    &codec_quantizer_suite,
    &codec_quantizer_kernels_suite,
    &codec_record_suite,
    &codec_rng_suite,
    &codec_unary_suite,
    &codec_unary_kernels_suite,
    NULL,
};

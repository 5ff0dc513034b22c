#include "codec/encoding.h"

const struct tally_encoding *const TALLY_ENCODINGS[] = {&TALLY_ENCODING_UNARY, &TALLY_ENCODING_ENTROPY,
                                                        NULL};
const char *const TALLY_ENCODING_NAMES[] = {"unary", "entropy", NULL};

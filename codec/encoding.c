#include "codec/encoding.h"

const struct tally_encoding *const TALLY_ENCODINGS[] = {&TALLY_ENCODING_UNARY, NULL};
const char *const TALLY_ENCODING_NAMES[] = {"unary", NULL};

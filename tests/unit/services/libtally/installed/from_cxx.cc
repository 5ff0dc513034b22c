// The headers are C++ as well, and the codec goes round.
#include <tally/plugin.h>
#include <tally/tally.h>

#include <cstdio>
#include <vector>

int main()
{
    std::vector<int32_t> levels = {0, 1, -2, 3}, back(4);
    tally_payload *payload = nullptr;
    tally_failure failure;
    if (tally_encode_levels("entropy", 8, 0.5, levels.data(), levels.size(), &payload, &failure) ||
        tally_decode_levels("entropy", 8, 0.5, payload->data, payload->size, payload->payload_bits,
                            back.size(), back.data(), &failure)) {
        std::puts(failure.message);
        return 1;
    }
    std::printf("%s %llu %llu %d\n", tally_version(), (unsigned long long)payload->formula_bits,
                (unsigned long long)payload->payload_bits, levels == back);
    tally_payload_free(payload);
    return tally_encode_levels("entropy", 4, 0.5, levels.data(), levels.size(), &payload, nullptr) ==
                   TALLY_CODE_OUT_OF_RANGE
               ? 0
               : 1;
}

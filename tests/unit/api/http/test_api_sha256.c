#include "api/http/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

static void expect(const void *bytes, size_t n, const char *hex)
{
    uint8_t digest[TALLY_SHA256_BYTES];
    char got[2 * TALLY_SHA256_BYTES + 1];
    tally_sha256(bytes, n, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        snprintf(got + 2 * i, 3, "%02x", digest[i]);
    }
    TALLY_ASSERT_TEXT(got, hex);
}

/* The examples of FIPS 180-4 (and of its predecessor, 180-2). */
static void test_api_sha256__examples_of_the_standard(void)
{
    static const char TWO_BLOCKS[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect(TWO_BLOCKS, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = malloc(1000000);
    CU_ASSERT_PTR_NOT_NULL_FATAL(million);
    memset(million, 'a', 1000000);
    expect(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

/* Lengths around those at which the padding takes one more block; digests from sha256sum(1). */
static void test_api_sha256__padding(void)
{
    char text[128];
    memset(text, 'x', sizeof text);
    static const struct {
        size_t n;
        const char *hex;
    } CASES[] = {
        {1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},
        {55, "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072"},
        {56, "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e"},
        {57, "ae14a2563ccf969d99aca69ce6bb74981f734bbf9f655f73b8f06db68cab5217"},
        {63, "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2"},
        {64, "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c"},
        {65, "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9"},
        {119, "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c"},
        {120, "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98"},
        {128, "24da1b81d0b16df6428eee73c69fcb2a93c76bc6df706f0c6670fe6bfe800464"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        expect(text, CASES[i].n, CASES[i].hex);
    }
}

/* Test cases 2 and 6 of RFC 4231. */
static void test_api_sha256__signatures(void)
{
    static const char LONG[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    char text[TALLY_HMAC_TEXT_CAPACITY], key[131];
    CU_ASSERT_EQUAL(tally_hmac_sha256_base64("Jefe", 4, "what do ya want for nothing?", 28, text),
                    TALLY_OK);
    TALLY_ASSERT_TEXT(text, "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM=");
    memset(key, 0xaa, sizeof key);
    CU_ASSERT_EQUAL(tally_hmac_sha256_base64(key, sizeof key, LONG, sizeof LONG - 1, text),
                    TALLY_OK);
    TALLY_ASSERT_TEXT(text, "YOQxWR7gtn8Niiaqy/W3f44LxiE3KMUUBUYEDw7jf1Q=");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_sha256__examples_of_the_standard),
    TALLY_TEST(test_api_sha256__padding),
    TALLY_TEST(test_api_sha256__signatures),
};
TALLY_SUITE(api_sha256, TESTS);

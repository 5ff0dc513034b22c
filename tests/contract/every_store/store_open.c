/* tally_store_open: which URI opens which backend. */
#include <string.h>
#include <unistd.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

void test_store_open__scheme_chooses_the_backend(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store *memory = NULL;
    struct tally_store_options options = {.power_loss_safe = true};
    TALLY_ASSERT_STATUS(tally_store_open("memory:", &options, &memory, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
    CU_ASSERT_EQUAL(access("memory:", F_OK), -1);
    memory->ops->close(memory);
    store_fixture_close(&f);
}

void test_store_open__unknown_scheme_is_an_invalid_argument(void)
{
    static const char *const URIS[] = {"",       "tally.db", "mysql:x", "SQLITE:x",
                                       "memory", "memory:x", "sqlite:"};
    for (int i = 0; i < 7; i++) {
        struct tally_store *store = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_store_open(URIS[i], NULL, &store, &err), TALLY_INVALID_ARGUMENT,
                            &err);
        CU_ASSERT_PTR_NULL(store);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.message, URIS[i]));
        TALLY_ASSERT_STATUS(tally_store_open(URIS[i], NULL, &store, NULL), TALLY_INVALID_ARGUMENT,
                            NULL);
    }
}

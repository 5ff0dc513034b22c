/* JSON job documents. An accepted document is written with its defaults, and the result is a
 * document of the same job. */
#include <string.h>

#include "services/job/document.h"
#include "tests/fuzz/fuzz.h"

static void write_document(const struct tally_job_spec *spec, struct tally_buffer *out)
{
    struct tally_json *document = tally_document_of(spec);
    FUZZ_CHECK(document != NULL && tally_json_dump(document, 0, out) == TALLY_OK);
    tally_json_free(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tally_job_spec spec, again;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_document_parse((const char *)data, size, &spec, &err) != TALLY_OK) {
        FUZZ_CHECK(err.message[0] != '\0');
        return 0;
    }
    struct tally_buffer once = {0}, twice = {0};
    write_document(&spec, &once);
    FUZZ_CHECK(tally_document_parse((const char *)once.data, once.size, &again, NULL) == TALLY_OK);
    write_document(&again, &twice);
    FUZZ_CHECK(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0);
    tally_buffer_fini(&once);
    tally_buffer_fini(&twice);
    return 0;
}

/* Changes after the stored state of a job, as a damaged or hostile database might hold them.
 *
 *     byte 0      algorithm and encoding; fuzz_cpu() of the rest
 *     byte 1      dim - 1, mod 128; from 128 on, the bytes get the checksum of one change
 *     byte 2      clients - 1, mod 4
 *     byte 3, 4   round and iterate of the progress
 *     the rest    the changes
 *
 * They are accepted, or refused as DATA_LOSS with a reason. Without changes the saved state is
 * accepted. */
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/job/job.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD = 5, N_KINDS = 3 };

static struct tally_job_spec spec_of(const uint8_t *data)
{
    struct tally_job_spec spec = tally_job_spec_default();
    spec.encoding =
        data[0] % N_KINDS == 1 ? TALLY_ENCODING_INDEX_ENTROPY : TALLY_ENCODING_INDEX_UNARY;
    while (strcmp(tally_job_spec_algorithm(&spec)->name,
                  data[0] % N_KINDS == 2 ? "minibatch_sgd" : "ceal") != 0) {
        spec.algorithm++;
    }
    spec.params = tally_job_spec_algorithm(&spec)->defaults();
    if (data[0] % N_KINDS != 2) { /* leaves nothing to estimate */
        spec.params.ceal.sigma = 1;
        spec.params.ceal.gradient_bound = 1;
    }
    spec.objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 1 + data[1] % 128, .points = 16, .frobenius_norm = 1};
    spec.clients = 1 + data[2] % 4;
    spec.horizon = 1000000;
    spec.reference.type = TALLY_REFERENCE_NONE;
    return spec;
}

static void append(struct tally_buffer *out, const void *bytes, size_t n)
{
    FUZZ_CHECK(tally_buffer_append(out, bytes, n) == TALLY_OK);
}

static enum tally_status restore(const struct tally_job_spec *spec,
                                 const struct tally_progress *progress,
                                 const struct tally_buffer *state)
{
    uint8_t *exact = fuzz_allocate(state->size, 1); /* exact: the sanitizer detects overreads */
    memcpy(exact, state->data, state->size);
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status =
        tally_job_restore(spec, TALLY_JOB_RUNNING, progress, exact, state->size, &job, &err);
    FUZZ_CHECK(status == TALLY_OK ? job != NULL
                                  : status == TALLY_DATA_LOSS && err.message[0] != '\0');
    tally_job_free(job);
    free(exact);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tally_job *job = NULL;
    struct tally_buffer state = {0};
    if (size < HEAD) {
        return 0;
    }
    tally_cpu_set_limit(fuzz_cpu(data[0] / N_KINDS));
    const struct tally_job_spec spec = spec_of(data);
    FUZZ_CHECK(tally_job_new(&spec, &job, NULL) == TALLY_OK &&
               tally_job_start(job, 0, "", NULL) == TALLY_OK &&
               tally_job_save_state(job, &state) == TALLY_OK);
    struct tally_progress progress = *tally_job_progress(job);
    tally_job_free(job);
    FUZZ_CHECK(restore(&spec, &progress, &state) == TALLY_OK);

    progress.round = data[3];
    progress.iterate = 1 + data[4];
    append(&state, data + HEAD, size - HEAD);
    if (data[1] >= 128) {
        const uint64_t sum = tally_checksum64(data + HEAD, size - HEAD);
        append(&state, &sum, sizeof sum);
    }
    (void)restore(&spec, &progress, &state);
    tally_buffer_fini(&state);
    return 0;
}

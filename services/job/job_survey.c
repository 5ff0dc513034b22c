#include "services/job/job_survey.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/scaling.h"
#include "services/objectives/data/survey.h"

enum { NUMBERS = 3, HEAD_BYTES = 16 };

void job_survey_init(struct job_survey *survey, const struct tally_job_spec *spec)
{
    *survey = (struct job_survey){.features =
                                      tally_job_spec_is_surveyed(spec)
                                          ? (size_t)tally_data_spec_features(&spec->objective.data)
                                          : 0};
}

enum tally_status job_survey_make(struct job_survey *survey, struct tally_error *err)
{
    if (survey->features > 0 && survey->numbers == NULL) {
        survey->numbers = calloc(NUMBERS * survey->features, sizeof *survey->numbers);
    }
    return survey->features == 0 || survey->numbers != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the scaling");
}

void job_survey_fini(struct job_survey *survey)
{
    tally_buffer_fini(&survey->total);
    free(survey->numbers);
    survey->numbers = NULL;
}

bool job_survey_is_due(const struct job_survey *survey)
{
    return survey->features > 0 && survey->digest == 0;
}

size_t job_survey_scaling_bytes(const struct job_survey *survey)
{
    return NUMBERS * survey->features * sizeof *survey->numbers;
}

enum tally_status job_survey_receive(struct job_survey *survey, const uint8_t *bytes, size_t n,
                                     struct tally_error *err)
{
    const enum tally_status status =
        tally_survey_add(&survey->total, bytes, n, survey->features, err);
    if (status == TALLY_OK) {
        survey->bits += 8 * (uint64_t)n;
    }
    return status;
}

/* Notes that the numbers are known. */
static void adopt(struct job_survey *survey)
{
    survey->digest = tally_scaling_digest(survey->numbers, survey->features);
    tally_buffer_fini(&survey->total);
}

enum tally_status job_survey_close(struct job_survey *survey, const struct tally_job_spec *spec,
                                   struct tally_error *err)
{
    const enum tally_status status =
        tally_survey_conclude(&survey->total, survey->features,
                              spec->objective.data.table.standardize, NULL, survey->numbers, err);
    if (status == TALLY_OK) {
        survey->bits += 8 * (uint64_t)job_survey_scaling_bytes(survey);
        adopt(survey);
    }
    return status;
}

size_t job_survey_saved_bytes(const struct job_survey *survey)
{
    return survey->features > 0 ? HEAD_BYTES + job_survey_scaling_bytes(survey) : 0;
}

void job_survey_save(const struct job_survey *survey, struct tally_buffer *out)
{
    const bool is_known = survey->digest != 0;
    const uint64_t head[] = {is_known, is_known ? survey->bits : 0};
    if (survey->features > 0) {
        tally_buffer_append(out, head, sizeof head);
        tally_buffer_append(out, survey->numbers, job_survey_scaling_bytes(survey));
    }
}

enum tally_status job_survey_load(struct job_survey *survey, const uint8_t *bytes,
                                  struct tally_error *err)
{
    uint64_t head[2];
    if (survey->features == 0) {
        return TALLY_OK;
    }
    memcpy(head, bytes, sizeof head);
    if (head[0] == 0) {
        return TALLY_OK;
    }
    memcpy(survey->numbers, bytes + sizeof head, job_survey_scaling_bytes(survey));
    for (size_t i = 0; i < NUMBERS * survey->features; i++) {
        if (!isfinite(survey->numbers[i])) {
            return tally_fail(err, TALLY_DATA_LOSS, NULL,
                              "the stored scaling of the features is damaged");
        }
    }
    survey->bits = head[1];
    adopt(survey);
    return TALLY_OK;
}

/* job_survey: the round before the first one, in jobs whose features are scaled by the means of all
 * clients although each client has a file of its own.
 *
 * Every client sends the survey of its points (services/objectives/data/survey.h). The sums are
 * exact, so only their total is kept, and the order of arrival does not matter. When all clients
 * have answered, the total gives the scaling, which the state contains from then on, and round 1
 * opens. The survey has the number of that round and another mark; it has no record, no queries
 * and no round deadline, and needs the answers of all clients, whatever cohort and policy. Its
 * bits, up and down, are control bits of the record of round 1. */
#ifndef TALLY_SERVICES_JOB_JOB_SURVEY_H
#define TALLY_SERVICES_JOB_JOB_SURVEY_H

#include "codec/buffer.h"
#include "services/job/job_spec.h"

struct job_survey {
    size_t features;           /* 0 = the job needs no survey */
    struct tally_buffer total; /* of the clients that have answered */
    uint64_t bits;             /* of the survey's messages, until the record of round 1 has them */
    double *numbers;           /* double[3][features]: fill, mean, s; NULL until the job starts */
    uint32_t digest;           /* tally_scaling_digest() of the numbers; 0 = not known yet */
};

void job_survey_init(struct job_survey *survey, const struct tally_job_spec *spec);
/* Makes what only a started job needs. Errors: NO_MEMORY. */
enum tally_status job_survey_make(struct job_survey *survey, struct tally_error *err);
void job_survey_fini(struct job_survey *survey);

/* Whether the survey is still to be made. */
bool job_survey_is_due(const struct job_survey *survey);

/* Adds an answer. Errors, after which nothing has changed: MALFORMED, NO_MEMORY. */
enum tally_status job_survey_receive(struct job_survey *survey, const uint8_t *bytes, size_t n,
                                     struct tally_error *err);
/* Computes the scaling, once all clients have answered. Errors: INVALID_ARGUMENT (a feature has no
 * value at any point). */
enum tally_status job_survey_close(struct job_survey *survey, const struct tally_job_spec *spec,
                                   struct tally_error *err);
/* Bytes of the scaling, as it is sent. */
size_t job_survey_scaling_bytes(const struct job_survey *survey);

/* The section of the saved state; its length does not depend on whether the survey has been made:
 * u64 whether it has been, u64 bits, f64 numbers[3][features]. Nothing if the job needs none. */
size_t job_survey_saved_bytes(const struct job_survey *survey);
void job_survey_save(const struct job_survey *survey, struct tally_buffer *out);
/* Reads job_survey_saved_bytes() bytes. Errors: DATA_LOSS. */
enum tally_status job_survey_load(struct job_survey *survey, const uint8_t *bytes,
                                  struct tally_error *err);

#endif

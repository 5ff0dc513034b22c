/* detail_reading: reads what job_detail.c writes: a job's detail and its round records, as they
 * stand in a bundle of another coordinator (services/base/bundle.h).
 *
 * The readers are lenient: a member that is absent or of a different type gives 0, NaN or "", and a
 * text is cut. The caller writes what was read again, and compares it with what was given
 * (tally_detail_matches): so nothing is lost, and nothing can come in that a detail of this program
 * would not show. */
#ifndef TALLY_SERVICES_JOB_DETAIL_READING_H
#define TALLY_SERVICES_JOB_DETAIL_READING_H

#include "api/json/json.h"
#include "codec/record.h"
#include "services/job/job_reasons.h"
#include "services/job/job_spec.h"

/* What a detail says besides the document and the progress. */
struct tally_detail_facts {
    char id[33];
    enum tally_job_status status;       /* QUEUED if it is none */
    char reason[TALLY_REASON_CAPACITY]; /* as job_reasons.h stores it */
    int64_t created_ms, started_ms, finished_ms;
    uint64_t recovery_bits, wire_in_bytes, wire_out_bytes;
    struct tally_curvature curvature;
    char schedule[TALLY_SCHEDULE_CAPACITY];
};
void tally_detail_read(const struct tally_json *detail, struct tally_detail_facts *ret_facts,
                       struct tally_progress *ret_progress);
void tally_detail_read_round(const struct tally_json *object,
                             struct tally_round_record *ret_record);

/* A checksum as tally_detail_checksum() writes it; 0 if it is none. */
uint64_t tally_detail_read_checksum(const char *text);

/* Whether two objects have the same members with the same values, apart from those that `others`
 * names (NULL-terminated). If not, ret_key is the first that differs. */
enum { TALLY_DETAIL_KEY_CAPACITY = 64 };
bool tally_detail_matches(const struct tally_json *a, const struct tally_json *b,
                          const char *const *others, char ret_key[TALLY_DETAIL_KEY_CAPACITY]);

#endif

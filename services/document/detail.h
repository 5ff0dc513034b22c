/* detail: jobs, rounds and models as JSON, the answers of the REST interface and of `tally
 * simulate`. */
#ifndef TALLY_SERVICES_DOCUMENT_DETAIL_H
#define TALLY_SERVICES_DOCUMENT_DETAIL_H

#include <stddef.h>

#include "api/json.h"
#include "codec/base/record.h"

/* What the detail tells beyond the document and the engine's progress. */
struct tally_job_facts {
    const char *id; /* "" = none */
    enum tally_job_status status;
    const char *reason;
    int64_t clients, dim;
    int64_t created_ms, started_ms, finished_ms; /* Unix time, 0 = null */
    uint64_t recovery_bits;
    uint64_t wire_in_bytes, wire_out_bytes;
};

/* Adds the detail's members to `object`, the job's document. False = out of memory. */
bool tally_detail_add(struct tally_json *object, const struct tally_job_facts *facts,
                      const struct tally_progress *progress);

/* One round record as an object; NULL = out of memory. */
struct tally_json *tally_detail_round(const struct tally_round_record *record);

/* The CSV header line and one line per record, the same members as the object. */
enum tally_status tally_detail_round_csv_header(struct tally_buffer *out);
enum tally_status tally_detail_round_csv(const struct tally_round_record *record,
                                         struct tally_buffer *out);

/* 16 lower-case hexadecimal digits, as x_checksum is shown. */
void tally_detail_checksum(uint64_t checksum, char ret_text[17]);

/* The bytes of a NumPy .npy file (version 1.0) of double[n]. */
enum tally_status tally_detail_npy(const double *values, size_t n, struct tally_buffer *out);

#endif

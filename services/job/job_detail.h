/* job_detail: jobs, rounds and models as JSON, the responses of the REST interface and the output
 * of `tally simulate`. */
#ifndef TALLY_SERVICES_JOB_JOB_DETAIL_H
#define TALLY_SERVICES_JOB_JOB_DETAIL_H

#include <stddef.h>

#include "api/json/json.h"
#include "api/worker/worker_messages.h"
#include "codec/record.h"
#include "services/job/document.h"
#include "services/job/job_advice.h"

enum { TALLY_WAITING_WORKERS = 16, TALLY_WAITING_TEXT_CAPACITY = 768 };

/* What a live job waits for. */
enum tally_waiting_for {
    TALLY_WAITS_FOR_REFERENCE, /* f(x*) is being solved */
    TALLY_WAITS_FOR_WORKERS,   /* too few slots are free for it to start */
    TALLY_WAITS_FOR_CLIENTS,   /* clients of its open round have not sent updates */
    TALLY_WAITS_FOR_RESUME,    /* it is paused */
    TALLY_WAITS_FOR_STORE,     /* its new state cannot be written */
    TALLY_WAITS_FOR_MEMORY     /* not enough memory is free for it */
};

struct tally_waiting {
    enum tally_waiting_for what;
    int64_t since_ms;                     /* Unix time */
    int64_t n_clients;                    /* missing ones; 0 unless it waits for clients */
    char clients[TALLY_MISSING_CAPACITY]; /* as tally_round_record.missing; "" if n_clients is 0 */
    char workers[TALLY_WAITING_WORKERS][TALLY_WORKER_NAME_CAPACITY]; /* that serve or served these
                                                                      * clients */
    int n_workers;
    char text[TALLY_WAITING_TEXT_CAPACITY]; /* for users; has no time, so that it does not change */
};

bool tally_waiting_equals(const struct tally_waiting *a, const struct tally_waiting *b);

/* The members of the detail that are neither in the document nor in the engine's progress. */
struct tally_job_facts {
    const char *id; /* "" = none */
    enum tally_job_status status;
    const char *reason; /* as job_reasons.h stores it */
    int64_t clients, dim;
    int64_t created_ms, started_ms, finished_ms; /* Unix time, 0 = null */
    uint64_t recovery_bits;
    uint64_t wire_in_bytes, wire_out_bytes;
    const struct tally_waiting *waiting; /* NULL = it is progressing, or has ended */
    struct tally_curvature curvature;
    const struct tally_advice *advice;   /* NULL = none */
    const struct tally_planned *planned; /* NULL = it was not planned */
};

/* Adds the detail's members to `object`, the job's document. False = out of memory. */
bool tally_detail_add(struct tally_json *object, const struct tally_job_facts *facts,
                      const struct tally_progress *progress);

/* Adds the member `metrics`, from summaries (record.h); none if there are none. False = out of
 * memory. */
bool tally_detail_set_metrics(struct tally_json *object, const char *metrics);

/* One round record as an object; NULL = out of memory. */
struct tally_json *tally_detail_round(const struct tally_round_record *record);

/* The CSV header line, and the line of a record, with the same members as the object; empty for
 * null. Each metric in `metrics`, a summary (record.h), has the columns NAME_mean, NAME_min and
 * NAME_max. */
enum tally_status tally_detail_round_csv_header(const char *metrics, struct tally_buffer *out);
enum tally_status tally_detail_round_csv(const struct tally_round_record *record,
                                         const char *metrics, struct tally_buffer *out);

/* 16 lower-case hexadecimal digits, as x_checksum is shown. */
void tally_detail_checksum(uint64_t checksum, char ret_text[17]);

/* The bytes of a NumPy .npy file (version 1.0) of double[n]: a header and the numbers. */
enum { TALLY_NPY_HEADER_BYTES = 128 };
enum tally_status tally_detail_npy_header(size_t n, struct tally_buffer *out);
enum tally_status tally_detail_npy(const double *values, size_t n, struct tally_buffer *out);

#endif

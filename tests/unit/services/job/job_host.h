/* job_host: the smallest host of the engine: one job, one model copy, all records kept. */
#ifndef TALLY_TESTS_UNIT_SERVICES_JOB_JOB_HOST_H
#define TALLY_TESTS_UNIT_SERVICES_JOB_JOB_HOST_H

#include "services/job/job.h"
#include "services/job/model_copy.h"

enum { HOST_MAX_CLIENTS = 10, HOST_MAX_RECORDS = 1000 };

struct job_host {
    struct tally_job_spec spec;
    struct tally_objective *objective;
    struct tally_model_copy *copy;
    struct tally_job *job;
    double f_star;
    struct tally_update updates[HOST_MAX_CLIENTS]; /* of the open round; payloads are on the heap */
    struct tally_bits bits[HOST_MAX_CLIENTS];      /* their costs by the clients' count */
    double loss;                                   /* f at the open round's point */
    struct tally_round_record records[HOST_MAX_RECORDS];
    int n_records;
};

/* 5 clients, dim 6, 63 points (so that shards differ in size), horizon 300: 20 rounds of stages 2
 * to 7, of which 14 pass, some messages are clipped either way, and the last is cut at the horizon.
 */
struct tally_job_spec job_host_spec(void);
/* The same job with FedAvg, 3 local steps, and the given clients and cohort. */
struct tally_job_spec job_host_fedavg_spec(int64_t clients, double cohort);

/* Starts a job. */
void job_host_init(struct job_host *host, const struct tally_job_spec *spec);
/* Starts a job whose files are in a folder. */
void job_host_init_in(struct job_host *host, const struct tally_job_spec *spec,
                      const char *data_dir);
/* Starts a job with the specification of job_host_spec(). */
void job_host_init_standard(struct job_host *host);
void job_host_fini(struct job_host *host);

/* Brings the model copy to the engine's point and makes the updates of all clients. */
void job_host_compute(struct job_host *host);
/* Gives the engine one client's update, which must be accepted, and keeps the records. */
struct tally_job_outcome job_host_send(struct job_host *host, uint32_t client);
/* Computes and sends the updates of the round's clients, in order. */
void job_host_round(struct job_host *host);
void job_host_run(struct job_host *host);

/* All observable state of an engine, for comparisons. */
struct job_look {
    enum tally_job_status status;
    struct tally_progress progress;
    struct tally_job_round open;
    bool received[HOST_MAX_CLIENTS];
    struct tally_buffer state;
};
struct job_look job_look(const struct tally_job *job);
void job_look_fini(struct job_look *look);
bool job_looks_same(const struct job_look *a, const struct job_look *b);

bool job_same_progress(const struct tally_progress *a, const struct tally_progress *b);
bool job_same_record(const struct tally_round_record *a, const struct tally_round_record *b);

#endif

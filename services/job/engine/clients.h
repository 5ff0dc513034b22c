/* clients: what the engine keeps of every client of a job: the last message that it accepted, to
 * recognize a duplicate, and whether the open round waits for the client.
 *
 * A client has answered round r if its last accepted message is of round r. It is absent if its
 * host says so, and stays absent until the host says otherwise. Invariant: n_awaited is the number
 * of clients that are present and have not answered the open round. */
#ifndef TALLY_SERVICES_JOB_ENGINE_CLIENTS_H
#define TALLY_SERVICES_JOB_ENGINE_CLIENTS_H

#include "services/job/job.h"

struct job_client {
    struct tally_receipt receipt; /* of the last accepted message */
    double loss;                  /* reported in the open round; NaN = none */
    struct tally_report report;   /* of the opening round */
    bool absent;
};

struct job_clients {
    struct job_client *all; /* [n]; NULL until the job starts */
    uint32_t n;
    int64_t n_awaited;
};

/* A round opens: no client has answered it. */
void job_clients_open_round(struct job_clients *clients);
bool job_clients_has_answered(const struct job_clients *clients, uint32_t client, int64_t round);
/* Keeps a client's answer to the open round. `answer->absent` is not looked at. */
void job_clients_accept(struct job_clients *clients, uint32_t client,
                        const struct job_client *answer);
/* `round` is the open one. */
void job_clients_set_absent(struct job_clients *clients, uint32_t client, bool absent,
                            int64_t round);

/* Whether the round lacks the client's answer. With `skip_absent`, absent clients do not count as
 * long as others are awaited. */
bool job_clients_lacks(const struct job_clients *clients, uint32_t client, int64_t round,
                       bool skip_absent);
/* Lists those clients as tally_round_record.missing: "3 7-9", with " ..." where it is cut. */
void job_clients_list(const struct job_clients *clients, int64_t round, bool skip_absent,
                      char ret_text[TALLY_MISSING_CAPACITY]);

/* The receipts as they are saved: per client round, digest, formula and payload bits, 8 bytes each,
 * little-endian. */
enum { JOB_CLIENT_SAVED_BYTES = 32 };
void job_clients_save(const struct job_clients *clients, struct tally_buffer *out);
/* Reads n * JOB_CLIENT_SAVED_BYTES bytes. Every client is present then. */
void job_clients_load(struct job_clients *clients, const uint8_t *bytes);
/* Forgets the answers to rounds after `round`. */
void job_clients_forget_after(struct job_clients *clients, int64_t round);

#endif

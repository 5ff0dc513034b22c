/* job_clients: what the engine keeps for every client of a job: the last message that it accepted,
 * to recognize a duplicate, and whether the open round waits for the client.
 *
 * The open round concerns only its cohort (job_cohort.h): a client that is not drawn for it costs
 * no time, and the round never waits for it. A client has answered round r if its last accepted
 * message is of round r. It is absent if its host says so, and stays absent until the host says
 * otherwise. It sits a round out if its computation failed there and the round does without it.
 * Invariant: n_awaited is the number of drawn clients that are present, do not sit out, and have
 * not answered the open round. */
#ifndef TALLY_SERVICES_JOB_JOB_CLIENTS_H
#define TALLY_SERVICES_JOB_JOB_CLIENTS_H

#include "services/job/job.h"
#include "services/job/job_cohort.h"

struct job_client {
    struct tally_receipt receipt; /* of the last accepted message */
    double loss;                  /* reported in the open round; NaN = none */
    struct tally_report report;   /* of the opening round */
    uint32_t drawn_for;           /* the last round that drew the client ... */
    uint32_t place;               /* ... and its place in that cohort */
    uint32_t weight;              /* of its last answer; 0 = unknown */
    uint32_t setback_in;          /* the last round in which it had a setback, and ... */
    uint8_t n_setbacks;           /* ... how many it had there */
    bool sits_out;                /* of that round, which does without the client */
    bool absent;
};

/* What a client's last answer before the open round has left. */
struct job_earlier_answer {
    struct tally_receipt receipt;
    uint32_t weight;
};

struct job_clients {
    struct job_client *all;             /* [n]; NULL until the job starts */
    struct job_earlier_answer *earlier; /* [n]; NULL unless they are kept */
    uint32_t n;
    int64_t n_awaited;
    uint32_t open_round;
    bool keeps_weights;            /* saved with the receipts; set before anything is saved */
    struct tally_cohort cohort;    /* of the open round, unless it asks all */
    bool asks_all;                 /* the open round asks all clients, whatever the cohorts */
    struct tally_cohort everyone;  /* all clients, if cohorts are below M; n = 0: not needed */
    struct tally_cohort *recalled; /* scratch: of an earlier round */
};

/* Errors: NO_MEMORY. */
enum tally_status job_clients_init(struct job_clients *clients, const struct tally_setting *setting,
                                   struct tally_error *err);
void job_clients_fini(struct job_clients *clients);
/* Keeps the earlier answers, for job_clients_withdraw(). To be called before any answer. Errors:
 * NO_MEMORY. */
enum tally_status job_clients_keep_earlier(struct job_clients *clients, struct tally_error *err);
/* Allows rounds of all clients. Errors: NO_MEMORY. */
enum tally_status job_clients_need_everyone(struct job_clients *clients, struct tally_error *err);

/* Opens a round: draws its cohort. No client has answered yet. */
void job_clients_open_round(struct job_clients *clients, int64_t round);
/* Opens a round of all clients, before the first one, whose number it has. Precondition:
 * job_clients_need_everyone() has been called. */
void job_clients_open_all(struct job_clients *clients, int64_t round);
/* Ends such a round: nothing of its answers is kept, and the next one may have its number. */
void job_clients_close_all(struct job_clients *clients);
/* The clients of the open round. */
const struct tally_cohort *job_clients_open(const struct job_clients *clients);
/* Leaves only one client in the open round, of which no client has answered. */
void job_clients_leave_only(struct job_clients *clients, uint32_t client);
/* Takes back all answers to the open round and all setbacks in it, as if it had just been opened.
 * The clients' earlier answers are known again if they were kept. */
void job_clients_withdraw(struct job_clients *clients);
/* The cohort of any round; borrowed until the next recall, save or load. */
const struct tally_cohort *job_clients_recall(const struct job_clients *clients, int64_t round);
/* Whether the client is in the cohort of the open round. */
bool job_clients_is_drawn(const struct job_clients *clients, uint32_t client);
bool job_clients_has_answered(const struct job_clients *clients, uint32_t client, int64_t round);
/* Keeps a client's answer to the open round: receipt, loss, report and weight. */
void job_clients_accept(struct job_clients *clients, uint32_t client,
                        const struct job_client *answer);
/* `round` is the open one. */
void job_clients_set_absent(struct job_clients *clients, uint32_t client, bool absent,
                            int64_t round);

/* Counts a setback of a client that is drawn and has not answered; `sits_out`: the round does
 * without it. Returns how many setbacks the client has had in the open round. */
int job_clients_set_back(struct job_clients *clients, uint32_t client, bool sits_out);
int job_clients_n_setbacks(const struct job_clients *clients, uint32_t client);
/* Whether the client sits the open round out. */
bool job_clients_sits_out(const struct job_clients *clients, uint32_t client);

/* Whether the open round lacks the client's answer. With `skip_absent`, clients that are absent
 * or sit out do not count as long as others are awaited. */
bool job_clients_lacks(const struct job_clients *clients, uint32_t client, int64_t round,
                       bool skip_absent);
/* Lists those clients as in tally_round_record.missing: "3 7-9", ending in " ..." if truncated. */
void job_clients_list(const struct job_clients *clients, int64_t round, bool skip_absent,
                      char ret_text[TALLY_MISSING_CAPACITY]);

/* For a job with cohorts below M, the receipts of the last 16 closed rounds are kept. An older
 * message that is sent again is refused like any message of a closed round. */
enum { JOB_RECEIPT_ROUNDS = 16 };
bool job_clients_has_cohorts(const struct job_clients *clients);

/* A saved receipt has round, digest, formula and payload bits, 8 bytes each, little-endian. The
 * receipts of all clients are saved. With cohorts below M these are instead the receipts of the
 * cohort of each of the n_rounds rounds that end with `round`, with zeros where a client's last
 * message is of a different round. If weights are kept, a saved receipt ends with the weight in 8
 * more bytes. */
enum { JOB_RECEIPT_BYTES = 32, JOB_WEIGHT_BYTES = 8 };
size_t job_clients_saved_bytes(const struct job_clients *clients, int64_t n_rounds);
void job_clients_save(const struct job_clients *clients, int64_t round, int64_t n_rounds,
                      struct tally_buffer *out);
/* Reads job_clients_saved_bytes() bytes. */
void job_clients_load(struct job_clients *clients, int64_t round, int64_t n_rounds,
                      const uint8_t *bytes);
/* Forgets the answers to rounds after `round`. */
void job_clients_forget_after(struct job_clients *clients, int64_t round);

#endif

/* sim_job: a job drawn at random, and its fault-free run: tally_local_run of the same spec, which
 * every run with faults must repeat bit for bit. */
#ifndef TALLY_TESTS_SIMULATION_CHECKS_SIM_JOB_H
#define TALLY_TESTS_SIMULATION_CHECKS_SIM_JOB_H

#include "services/job/job_cohort.h"
#include <stdbool.h>
#include <stdint.h>

#include "codec/record.h"
#include "services/job/job_spec.h"

enum { SIM_MAX_JOBS = 2, SIM_MAX_ROUNDS = 60 };

struct sim_job {
    char name[32];            /* in its document */
    char idempotency_key[32]; /* of its submission */
    struct tally_job_spec spec;
    struct tally_buffer document;
    int64_t n_rounds;
    struct tally_round_record records[SIM_MAX_ROUNDS];
    struct tally_round_record evaluated[SIM_MAX_ROUNDS]; /* with the evaluations of their models */
    uint64_t checksums[SIM_MAX_ROUNDS + 2];              /* of the point of iterate k */
    struct tally_cohort *cohort; /* of the round last given to sim_job_draws() */
    double f_star;
    char schedule[TALLY_SCHEDULE_CAPACITY]; /* that it starts with */
    uint64_t *surveys; /* digests of the clients' surveys, [clients]; 0 = the job has none */
    uint32_t scaling;  /* digest of what they give; 0 = none */
    uint64_t *updates; /* digests of messages, [n_rounds][clients], round 1 first; 0 = none */
    struct tally_progress progress; /* at the end */
};

/* Draws until the spec is valid and its fault-free run succeeds. */
void sim_job_draw(struct sim_job *job, int number, int64_t max_clients);
void sim_job_fini(struct sim_job *job);
struct tally_job;
struct tally_model_copy;
struct tally_objective;
/* Makes the job's objective, a model copy and an engine, which starts. */
enum tally_status sim_job_start(const struct sim_job *job, struct tally_objective **ret_objective,
                                struct tally_model_copy **ret_model, struct tally_job **ret_engine);
/* Takes the surveys of all clients, if the job has a survey, and notes them unless `ret_digests` is
 * NULL. */
void sim_job_survey(const struct tally_job_spec *spec, struct tally_job *engine,
                    struct tally_model_copy *model, uint64_t *ret_digests);
/* Whether the client takes part in the round. */
bool sim_job_draws(const struct sim_job *job, int64_t round, uint32_t client);

struct tally_update;
/* Digest of what a client sends: equal digests mean equal messages. Never 0. */
uint64_t sim_update_digest(const struct tally_update *update);

/* Whether "3 17 20-25", as tally_round_record.missing, names the client. */
bool sim_is_listed(const char *text, int64_t client);

#endif

/* job_engine: the state behind job.h, for the files of this folder.
 *
 * The engine is a state machine over plain memory. An event is a call of job.h; it changes the
 * state and returns. The effects are in its outcome and in the state that the host reads:
 *
 *     event                              what the host does then
 *     start(f*)                          hand out tasks of the open round
 *     receive(update), not the last      store the update, then acknowledge it
 *     receive(update), the last one      store record and state, send the broadcast, hand out tasks
 *     overdue, set_absent                the same if they closed the round
 *     pause, resume, cancel, fail        store the status
 *
 * One round with M = 3 clients, and the file that implements each step:
 *
 *     open_round()   the algorithm plans: stage 5, 8 samples, quantizer grid       job_round.c
 *                   the round's cohort is drawn: here, all 3 clients              job_clients.c
 *     client 2 ->    admit, decode, add its levels to sums[dim]; received = 1      job_messages.c
 *     client 0 ->    the same; received = 2                                        job_messages.c
 *     client 0 ->    the same bytes again: a duplicate, nothing changes            job_messages.c
 *     overdue        policy drop, quorum 2: client 1 is absent, the round closes   job_stragglers.c
 *     close_round()  average of 2; |g| passes the test: broadcast q                job_round.c
 *                    x := x - eta q, decoded from the encoded q as clients do it   job_round.c
 *                    keep q for clients that are behind                            job_broadcasts.c
 *                    record: samples 8, received 2, missing "1", bits              job_round.c
 *     open_round()   iterate k + 1, or the job completes at its horizon            job_round.c
 *     save_change()  appends q (or, if the algorithm has a memory, the messages    job_saving.c
 *                    of the round) and the receipts to the state of an earlier
 *                    round
 *
 * With a survey (job_survey.h), start() opens that first: it has no plan, and all M clients answer
 * with sums of their points instead of messages. The last answer opens round 1.
 *
 * The order of arrival does not matter: levels are added as int64, and losses and reports are kept
 * per client (job_clients.h) and combined in client order when the round closes. */
#ifndef TALLY_SERVICES_JOB_JOB_ENGINE_H
#define TALLY_SERVICES_JOB_JOB_ENGINE_H

#include "codec/numeric/checksum.h"
#include "services/algorithms/weights.h"
#include "services/job/job.h"
#include "services/job/job_broadcasts.h"
#include "services/job/job_clients.h"
#include "services/job/job_kept.h"
#include "services/job/job_metrics.h"
#include "services/job/job_reasons.h"
#include "services/job/job_status_moves.h"
#include "services/job/job_survey.h"

struct tally_job {
    struct tally_job_spec spec;
    union tally_algorithm_params params; /* of the spec, with the estimates */
    struct tally_setting setting;
    const struct tally_algorithm *algorithm;
    enum tally_job_status status;
    char reason[TALLY_REASON_CAPACITY];
    struct tally_progress progress;
    double *x;                   /* double[dim]; NULL, like all vectors, until it starts */
    double *best_x;              /* double[dim]; NULL unless the best point is kept */
    bool has_new_best;           /* best_x is of this event */
    struct tally_checksum saved; /* of the saved state, up to and including x */

    struct tally_job_round open;
    int64_t *sums;                /* int64[dim] or [dim][2], of the open round (weights.h) */
    struct tally_weights weights; /* of its answers, including those without a message */
    void *memory;                 /* the algorithm's; NULL where it has none */
    struct tally_bits received_bits;
    uint64_t telemetry_bits;
    struct job_clients clients;
    struct job_survey survey;
    struct job_metrics metrics;
    struct job_metrics evaluation; /* of the open round's point, if it is a model to evaluate */

    struct tally_scratch scratch;
    struct tally_decision decision;
    struct job_broadcasts broadcasts;
    struct job_kept open_kept, closed_kept; /* of the open and the last closed round */
};

/* job.c */

enum tally_status job_make_queued(const struct tally_job_spec *spec, struct tally_job **ret_job,
                                  struct tally_error *err);
/* Allocates what only a started job needs, and sets the point to the initial one. */
enum tally_status job_make_vectors(struct tally_job *job, struct tally_error *err);
/* Fills the algorithm's memory, if it has one. For `schedule` see algorithm.h. */
void job_begin_memory(struct tally_job *job, int64_t opening_samples, const char *schedule);
/* Length of `memory`. */
size_t job_memory_bytes(const struct tally_job *job);
/* Whether the job has its vectors. False if it was cancelled or failed before it could start, until
 * a restore makes the vectors. */
bool job_has_started(const struct tally_job *job);
bool job_is_open(const struct tally_job *job); /* running or paused */
bool job_has_regret(const struct tally_job *job);
enum tally_status job_move(struct tally_job *job, enum tally_job_event event,
                           struct tally_error *err);
void job_check_invariants(const struct tally_job *job);

/* job_round.c */

/* Opens the next round, or ends the job. */
void job_open_round(struct tally_job *job, struct tally_job_outcome *outcome);
/* Closes the round with the answers that it has. */
void job_close_round(struct tally_job *job, struct tally_job_outcome *outcome);
/* Closes the round if it has all the answers that it waits for. */
void job_close_if_complete(struct tally_job *job, struct tally_job_outcome *outcome);
/* Clears what the messages of a round add up to. */
void job_open_sums(struct tally_job *job);
/* Has the algorithm decide from the sums whether the point moves, and moves it. */
enum tally_status job_decide(struct tally_job *job, struct tally_round_record *record,
                             struct tally_error *err);
/* Whether the open round is the opening round, which estimates unknown parameters. */
bool job_is_opening(const struct tally_job *job);

/* Keeps the reason of a setback, in one line. */
void job_note_setback(struct tally_job *job, const char *why);

/* job_messages.c */

/* Takes the message of an update that the open round has taken before, without its telemetry.
 * Errors: MALFORMED, DATA_LOSS (the round does not wait for it). */
enum tally_status job_receive_again(struct tally_job *job, const struct tally_update *update,
                                    struct tally_error *err);

/* job_stopping.c */

/* Whether the document asks for the best point or has a rule about a metric or the loss. */
bool job_judges_points(const struct tally_job *job);
/* What has been measured at the engine's point: summaries of the metrics (record.h) and the loss
 * (NaN = none) of the open round's clients, whose record is that of `round`, and the evaluation of
 * the round before, which counts where both have a metric of one name. */
struct job_measured {
    const char *metrics;
    int64_t round;
    const struct tally_round_evaluation *evaluation;
    double loss;
};
/* Judges the engine's point, before the open round moves it. Keeps the point if it is the best so
 * far. Returns whether a rule of `stop` is met, unless one was met before: then progress.stopped
 * says which, and the job must end with this point. */
bool job_judge_point(struct tally_job *job, const struct job_measured *measured);
/* Sets progress.stopped if the job has sent as many bits as `stop` allows. */
void job_judge_bits(struct tally_job *job);
/* Whether a rule has been met. The job then takes no more steps, but its last model may still be
 * evaluated. */
bool job_has_stopped(const struct tally_job *job);
/* Completes the job, at its horizon or because of progress.stopped. */
void job_end(struct tally_job *job);

/* job_saving.c */

/* Computes `saved` and the point's own checksum after the point has changed. Returns the latter. */
uint64_t job_sum_point(struct tally_job *job);

#endif

/* job: the engine of one job, a pure state machine. No sockets, clock, files or threads.
 *
 * The host feeds it events (start, receive, pause, ...), each of which returns at once, and reads
 * from it what to do next: hand out tasks, send broadcasts, persist records, finish. Coordinator,
 * simulator and fault tests are three hosts of the same engine; the same job and seed give the same
 * bits in all three. job_engine.h shows one round, step by step.
 *
 *     queued --start--> running --(horizon reached, or a rule of `stop` met)--> completed
 *               pause | ^ resume        | fail             cancel: from any that is not final
 *                     v |               v
 *                    paused          failed
 *
 * The server adds integer levels (int64 per coordinate). This is exact and associative, so the
 * order of arrival does not matter. Losses are kept per client and averaged in client order when
 * the round closes.
 *
 * A round is open to its cohort (job_cohort.h): by default all M clients, otherwise a subset
 * drawn from the seed. An update of any other client is refused. Clients that are not drawn cost
 * nothing: regret and bits count only those that take part.
 *
 * A round closes when all clients of its cohort have answered or, with over-selection, as soon as
 * the required number has. Policies `drop` and `fail` can close it earlier, once the quorum has
 * answered: at its deadline, and under `drop` also when all present clients have answered. The
 * average is then over the answers that arrived, and the record lists the missing clients. Only the
 * host knows which clients are absent and when a deadline has passed; it reports them as events.
 * These events are not saved: after a restore all clients are present, and the time limit of the
 * open round starts again.
 *
 * A job with parameters to be estimated ("auto") begins with an opening round of stage 0. Its
 * clients send reports instead of gradients. These are combined in client order when the round
 * closes, and the estimates are part of the progress from then on.
 *
 * A store that loses its last commits in a power cut takes the job back to an earlier round. The
 * lost rounds close again, perhaps with other clients missing, so the number of a round does not
 * identify the point that a client has seen. The round's mark does: a digest of everything that an
 * update depends on besides spec, client and round. An update with a different mark is refused.
 *
 * A job whose features are scaled by numbers that depend on the points of all clients, although no
 * process has these points, begins with a survey (job_survey.h): a round that all clients must
 * answer, whatever cohort and policy, and that has no record. It has the number of the first round,
 * but another mark. The deadline of rounds does not hold for it.
 *
 * With reference `none` f(x*) is unknown and there is no regret: both are NaN. Only such a job
 * accepts updates without a loss, from clients that have only gradients; f at that point is then
 * NaN.
 *
 * In a job whose clients train, a client of the next round evaluates the model that a round made,
 * or each client does on its own data (tally_job_round.evaluate_model). What they report belongs to
 * the round that made the model, so the metrics of a round are complete when the next one closes:
 * before the next step is taken. The last model has a round of its own, which takes no messages and
 * has no record; then the job is completed. An evaluation never decides whether a round closes, and
 * changes nothing else in the job.
 *
 * Invariants, of which job_check_invariants() asserts the ranges: 0 <= time_step <= horizon;
 * received <= cohort; a message is counted once per (round, client); ledger = sum of the records;
 * x_checksum is the checksum of x. */
#ifndef TALLY_SERVICES_JOB_JOB_H
#define TALLY_SERVICES_JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/worker/worker_messages.h"
#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/record.h"
#include "services/algorithms/algorithm.h"
#include "services/job/job_spec.h"

struct tally_job;

/* Creates a job in status queued. The spec is copied and must be valid. Until the job starts, its
 * size does not depend on dim or clients: the initial point is computed for its checksum and freed.
 * Errors: NO_MEMORY. */
enum tally_status tally_job_new(const struct tally_job_spec *spec, struct tally_job **ret_job,
                                struct tally_error *err);
void tally_job_free(struct tally_job *job);

/* Appends the state bytes. A host stores them with status and progress, which are plain data, and
 * the updates of the open round one by one. After a restore it passes these updates to
 * tally_job_receive() again. Errors: FAILED_PRECONDITION (the job has not started), NO_MEMORY. */
enum tally_status tally_job_save_state(const struct tally_job *job, struct tally_buffer *out);
/* How far a job was when its state was saved. */
struct tally_saved {
    int64_t round, iterate;
};
/* Appends the change from the state of an earlier round to the current state. It contains the
 * broadcasts instead of the point or, if the algorithm has a memory, the messages of the last round
 * instead of both, which makes it far shorter if the point is long. Errors: FAILED_PRECONDITION
 * (these are not kept), NO_MEMORY. */
enum tally_status tally_job_save_change(const struct tally_job *job,
                                        const struct tally_saved *since, struct tally_buffer *out,
                                        struct tally_error *err);
/* Whether the algorithm has a memory, so that loading a change closes a round again. */
bool tally_job_has_memory(const struct tally_job *job);
/* The number of bytes that tally_job_save_change() appends; SIZE_MAX if it fails. */
size_t tally_job_change_bytes(const struct tally_job *job, const struct tally_saved *since);
/* Appends a state with the point x, double[dim], of a job that ended elsewhere: it has no receipts,
 * and the algorithm's memory is that of a start. Errors: NO_MEMORY. */
enum tally_status tally_job_make_state(const struct tally_job_spec *spec,
                                       const struct tally_progress *progress, const char *schedule,
                                       const double *x, struct tally_buffer *out,
                                       struct tally_error *err);
/* Restores a saved job. `state` is a saved state followed by the later changes. n = 0: no round has
 * closed; only f(x*) is taken from progress, and for a queued job also x_checksum. Errors:
 * DATA_LOSS (the bytes are damaged or do not fit the spec or progress, or there are none although
 * the job has started from a given point), NO_MEMORY. */
enum tally_status tally_job_restore(const struct tally_job_spec *spec, enum tally_job_status status,
                                    const struct tally_progress *progress, const uint8_t *state,
                                    size_t n, struct tally_job **ret_job, struct tally_error *err);

/* Events. */

/* Called when f(x*) is known and the clients are present: allocates the vectors and opens the first
 * round. f_star is ignored with reference none. `schedule` is the result of tally_local_schedule();
 * "" = nothing was planned, and the algorithm follows its own schedule. The engine never plans,
 * because planning may take seconds. Errors, after which the job is still queued:
 * FAILED_PRECONDITION, NO_MEMORY. */
enum tally_status tally_job_start(struct tally_job *job, double f_star, const char *schedule,
                                  struct tally_error *err);
/* The same for a job whose initial point is given (initial_point.h): x, double[dim], is that point,
 * finite; NULL = it is not given. From here on the state contains it, so the host stores the state
 * together with the start. */
enum tally_status tally_job_start_from(struct tally_job *job, const double *x, double f_star,
                                       const char *schedule, struct tally_error *err);
/* Errors: FAILED_PRECONDITION, with a message that names the current status. */
enum tally_status tally_job_pause(struct tally_job *job, struct tally_error *err);
/* The time limit of the open round starts again. Errors: those of tally_job_pause(). */
enum tally_status tally_job_resume(struct tally_job *job, struct tally_error *err);
/* Errors: those of tally_job_pause(). */
enum tally_status tally_job_cancel(struct tally_job *job, struct tally_error *err);
/* The job cannot continue, for a cause outside the engine. `reason` is written by
 * TALLY_REASON_WRITE. Errors: those of tally_job_pause(). */
enum tally_status tally_job_fail(struct tally_job *job, const char *reason,
                                 struct tally_error *err);

/* What an event led to. */
struct tally_job_outcome {
    struct tally_bits bits; /* of the message; also for a duplicate */
    bool duplicate;         /* received before: nothing changed, nothing to persist */
    int n_records;          /* rounds that closed: 0, 1, or 2 when the horizon cut the next one */
    struct tally_round_record records[2];
    struct tally_round_evaluation evaluation; /* for the record of an earlier round */
    bool surveyed; /* the survey has closed: the host stores the state and drops the answers */
};

/* The rule `stop.seconds`: the job, which has run for that long, ends with its current point. The
 * answers of the open round do not count, and the host drops what it has stored of them. If the
 * point is a model to be evaluated, the open round becomes that of its evaluation, with a new mark,
 * and the job ends when it closes. In that round, also if the horizon or another rule has opened
 * it, this ends the job at once, with the evaluations that have arrived. Errors:
 * FAILED_PRECONDITION (the job is neither running nor paused). */
enum tally_status tally_job_stop(struct tally_job *job, double seconds,
                                 struct tally_job_outcome *ret_outcome, struct tally_error *err);

/* Takes a message in a running or paused job. If it is the last one of the round, the round closes
 * (ret_outcome->n_records > 0 or ->surveyed, or the job completes) and the next one opens or the
 * job completes.
 * If the algorithm cannot continue, the job fails; see its status and reason. Errors, after which
 * nothing has changed: FAILED_PRECONDITION (job not open, not the open round, a different mark, or
 * client not drawn), ALREADY_EXISTS (this client sent other bytes for this round), OUT_OF_RANGE
 * (client), MALFORMED (payload, loss or metrics), NO_MEMORY. */
enum tally_status tally_job_receive(struct tally_job *job, const struct tally_update *update,
                                    struct tally_job_outcome *ret_outcome, struct tally_error *err);

/* What a job keeps of a client's last message to recognize a duplicate. With cohorts below M it is
 * kept for 16 rounds. */
struct tally_receipt {
    int64_t round; /* 0 = the client has sent none, or none is kept */
    uint64_t digest, formula_bits, payload_bits;
};

/* Precondition: client < M. */
struct tally_receipt tally_job_receipt(const struct tally_job *job, uint32_t client);

/* The last closed round in which a client reported metrics; 0 = none. */
int64_t tally_job_metrics_round(const struct tally_job *job);
/* The cohort of that round, ascending, with clients that did not answer; none if there is no such
 * round. Borrowed until the next call of the engine. */
const uint32_t *tally_job_metrics_clients(const struct tally_job *job, uint32_t *ret_n);
/* The metrics that the client reported in that round, ascending by name. Returns their number.
 * Precondition: client < M. */
size_t tally_job_client_metrics(const struct tally_job *job, uint32_t client,
                                struct tally_metric ret_metrics[TALLY_METRICS_MOST]);
/* Restores the metrics that a client reported in that round. A host that needs them after a restart
 * stores them beside the state. Errors: MALFORMED (not what a client may report, or no closed round
 * of this job), NO_MEMORY. */
enum tally_status tally_job_restore_metrics(struct tally_job *job, int64_t round, uint32_t client,
                                            const struct tally_metric *metrics, size_t n,
                                            struct tally_error *err);

/* The shift of a client in the open round, float[dim] (shift.h); NULL if the job keeps
 * none. *ret_round: the round of the last message that it includes, 0 = none. Borrowed until the
 * job changes. */
const float *tally_job_shift(const struct tally_job *job, uint32_t client, int64_t *ret_round);
/* OK if the update is the same message again; the outcome is then that of tally_job_receive().
 * Precondition: the update is of the receipt's client and round. Errors: ALREADY_EXISTS (a
 * different message). */
enum tally_status tally_receipt_compare(const struct tally_receipt *receipt,
                                        const struct tally_update *update,
                                        struct tally_job_outcome *ret_outcome,
                                        struct tally_error *err);

/* Checks that an update computed for `round` and `mark` is for the open round. A mark of 0 matches
 * every point. Errors: FAILED_PRECONDITION. */
enum tally_status tally_job_check_round(const struct tally_job *job, int64_t round, uint32_t mark,
                                        struct tally_error *err);

/* The deadline of the open round has passed. `wait`: nothing happens. Otherwise the missing clients
 * are absent from now on, and the round closes if it has `quorum` answers. With fewer answers it
 * closes as soon as it has enough (`drop`), or the job fails (`fail`). Only the records of the
 * outcome are set. Errors: FAILED_PRECONDITION (not running). */
enum tally_status tally_job_overdue(struct tally_job *job, struct tally_job_outcome *ret_outcome,
                                    struct tally_error *err);
/* Sets whether a client is absent: no worker serves it, or its worker is silent. Under `drop` this
 * may close the round; only the records of the outcome are set. No effect on a job that has ended.
 * Preconditions: client < M, and the job has started. */
void tally_job_set_absent(struct tally_job *job, uint32_t client, bool absent,
                          struct tally_job_outcome *ret_outcome);

/* A client's computation for the open round failed, but may succeed the next time. `why` is kept as
 * the progress's setback. Under `drop` the round does without the client, which may close it,
 * unless it lacks the quorum and awaits no other client. Otherwise the client may be asked again,
 * at most TALLY_RETRIES_MOST times in the round; after one more failure the job fails. The count is
 * not saved. Only the records and the evaluation of the outcome are set. Errors, after which
 * nothing has changed: FAILED_PRECONDITION (job not open, or client not drawn or has answered),
 * OUT_OF_RANGE (client). */
enum { TALLY_RETRIES_MOST = 3 };
enum tally_status tally_job_take_setback(struct tally_job *job, uint32_t client, const char *why,
                                         struct tally_job_outcome *ret_outcome,
                                         struct tally_error *err);

/* The client's setbacks in the open round. Precondition: client < M. */
int tally_job_n_setbacks(const struct tally_job *job, uint32_t client);

/* Reading the state. */

enum tally_job_status tally_job_status(const struct tally_job *job);
/* Why the job failed or stopped before its horizon, in the stored form of job_reasons.h; else "".
 */
const char *tally_job_reason(const struct tally_job *job);
const struct tally_job_spec *tally_job_get_spec(const struct tally_job *job);
const struct tally_progress *tally_job_progress(const struct tally_job *job);
/* The current point, double[dim]; borrowed until the next event. NULL: the job has not started. */
const double *tally_job_point(const struct tally_job *job, size_t *ret_dim);

/* The point that the last event found to be the best so far (`keep.best`), double[dim]; which one
 * it is, is in progress.best. NULL: there was none. Borrowed until the next event. */
const double *tally_job_new_best(const struct tally_job *job);

/* The point that a job starts from, double[dim]; free() frees it. Errors: FAILED_PRECONDITION (it
 * is given, and only a started job has it), NO_MEMORY. */
enum tally_status tally_job_make_initial_point(const struct tally_job_spec *spec, double **ret_x,
                                               struct tally_error *err);

/* The open round; meaningful while running or paused. */
struct tally_job_round {
    int64_t round;
    int64_t iterate;
    struct tally_round_plan plan; /* if cut: no gradient message, only the loss if `evaluate`; with
                                   * no samples either, only an evaluation of the last model */
    bool evaluate;                /* clients report a loss, see algorithm.h */
    bool evaluate_model;          /* the point is a new model, and clients evaluate it: ... */
    uint32_t evaluator;           /* ... all of them, or one: 1 + its number; 0 = all */
    uint32_t mark;                /* of the point and the plan, in [1, 2^28) */
    bool surveys;                 /* no plan: clients send surveys of their points instead */
    uint32_t scaling; /* digest of the features' scaling, which clients need; 0 = none */
    int64_t received; /* clients that have answered */
    bool overdue;     /* its deadline has passed */
};
const struct tally_job_round *tally_job_open_round(const struct tally_job *job);
/* Whether the client evaluates the point of the round. */
bool tally_job_round_evaluates(const struct tally_job_round *round, uint32_t client);
/* Whether that is all that the round asks for. */
bool tally_job_round_only_evaluates(const struct tally_job_round *round);
/* The clients of the open round, ascending; none if no round is open. Borrowed until it closes. */
const uint32_t *tally_job_cohort(const struct tally_job *job, uint32_t *ret_n);
/* Sorts clients into the order in which they are asked to compute in the open round. With
 * over-selection, where the first answers count, this is the order of random numbers drawn for each
 * client and round, so that every order of a cohort has the same probability. Otherwise the order
 * stays as given. Errors: NO_MEMORY. */
enum tally_status tally_job_order(const struct tally_job *job, uint32_t *clients, size_t n,
                                  struct tally_error *err);
/* Whether the client is in the cohort of the open round. Precondition: client < M. */
bool tally_job_is_drawn(const struct tally_job *job, uint32_t client);
bool tally_job_has_received(const struct tally_job *job, uint32_t client);
/* Whether the client is to compute for the open round: it is drawn, has not answered, and the round
 * does not do without it after a setback. Precondition: client < M. */
bool tally_job_asks(const struct tally_job *job, uint32_t client);
bool tally_job_is_absent(const struct tally_job *job, uint32_t client);
/* Lists the drawn clients that have not answered the open round, as in
 * tally_round_record.missing. */
void tally_job_list_missing(const struct tally_job *job, char ret_text[TALLY_MISSING_CAPACITY]);
/* Whether the open round waits for the client's answer. Under `drop` it does not wait for absent
 * clients, unless no other client is awaited and the quorum is not reached. */
bool tally_job_awaits(const struct tally_job *job, uint32_t client);
void tally_job_list_awaited(const struct tally_job *job, char ret_text[TALLY_MISSING_CAPACITY]);

/* The scaling of the features, double[3][features], that the survey gave and that clients need;
 * NULL: there is none, or not yet. *ret_bytes: its length. Its digest is that of the open round. */
const double *tally_job_scaling(const struct tally_job *job, size_t *ret_bytes);

/* The broadcast that led to point `iterate`, or NULL if it is no longer kept (job_broadcasts.h):
 * a client that lacks it then needs the point itself. */
const struct tally_message *tally_job_broadcast(const struct tally_job *job, int64_t iterate);

#endif

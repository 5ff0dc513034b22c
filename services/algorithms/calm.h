/* calm: declarations that the files of CALM share; calm.c explains the method. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_H
#define TALLY_SERVICES_ALGORITHMS_CALM_H

#include "services/algorithms/algorithm.h"
#include "services/algorithms/calm/calm_model.h"
#include "services/algorithms/calm/calm_travel.h"

/* noise, share: variances of what is believed of s0 and of V, the latter as a share of
 * calm_memory.state.variance; both: their covariance (calm_belief.c). share = 0: the job keeps no
 * belief. */
struct calm_belief {
    double noise, both, share;
    double regret; /* of the epochs so far, as predicted */
};

/* What the server remembers between rounds: plain data, stored unchanged. The same bytes continue
 * with z, double[dim], and the bits that each client has sent, uint64[clients]. If the job may
 * travel, a struct tally_calm_travel and the clients' last mean, double[dim], come next. If the job
 * keeps shifts, W and the shift of each client come last. */
struct calm_memory {
    double noise, client_spread; /* s0 and B, given or as estimated so far; NaN: not known yet */
    struct tally_calm_state state;
    int64_t epoch;           /* closed epochs: index of the open one in the schedule */
    int64_t opening_samples; /* queries of the opening round; 0: there was none */
    double step_size;        /* 1 / h, if it is estimated; 0: the document gives it */
    int64_t downlink_bits;   /* broadcast and control bits so far */
    double told_left;        /* bits that each client may still send, as told to clients */
    struct calm_belief belief;
    struct tally_calm_schedule schedule;
};

/* Control bits. If a value differs from the one that clients expect, the server sends them the
 * factor as 2^(k/4): one bit for k = 0; otherwise also the sign and |k| in unary, because |k| is
 * mostly small. Four factors are sent this way. The first is between the planned uplink grids and
 * those that the rest of a budget allows; its |k| is at most CALM_MOST_INDEX. The second, if
 * constants are estimated, is between the expected and the true size of a broadcast. The third is
 * between the V that clients expect and the V that the messages show: once, after the first
 * message, or after each of the first three if the job keeps a belief (calm_belief.c). The fourth,
 * of such a job, is between the expected and the true noise of a message. If the rest is planned
 * again, k is also the number of units between the expected and the true bits that are left up. A
 * broadcast grid that is 1.125^i times as coarse as intended takes i + 1 bits. */
uint64_t calm_index_bits(int64_t k);

enum { CALM_MOST_INDEX = 8, CALM_MOST_INDEX_BITS = CALM_MOST_INDEX + 2 };

/* The slots of tally_algorithm.memory. */
size_t calm_memory_bytes(const struct tally_setting *setting);
void calm_memory_begin(const struct tally_setting *setting, const double *x,
                       int64_t opening_samples, const char *schedule, void *bytes);
void calm_memory_spend(const struct tally_setting *setting, void *memory, uint32_t client,
                       uint64_t bits);
bool calm_memory_is_valid(const struct tally_setting *setting, const void *bytes);
bool calm_keeps_shifts(const struct tally_setting *setting);
enum tally_shift_start calm_shift_start(const struct tally_setting *setting);
struct tally_shift *calm_shift(const struct tally_setting *setting, void *memory, uint32_t client);

/* Whether a job's schedule is planned before it starts: its constants are known, and it has a
 * budget. */
bool calm_is_planned(const struct tally_setting *setting);

/* Plans a job with known constants for its budget, minus a reserve for the scatter of message
 * lengths and for control bits. A direction without a budget is given bits while they are worth
 * their price (calm/calm_plan.h, which gives processor times). */
void calm_make_schedule(const struct tally_setting *setting,
                        struct tally_calm_schedule *ret_schedule);

/* The forecast of a schedule from the start, for a job that has nothing to estimate. */
void calm_forecast(const struct tally_setting *setting, const struct tally_calm_schedule *schedule,
                   struct tally_calm_forecast *ret_forecast);

/* The slot tally_algorithm.schedule. A plan as text is the number of epochs, then for each epoch
 * its queries and both resolutions, exact in hexadecimal: "1 49 0x1.8p+0 0x1.4p+0". */
void calm_schedule(const struct tally_setting *setting, char ret_schedule[TALLY_SCHEDULE_CAPACITY]);
/* The inverse of calm_schedule(). False if the text is not a plan. */
bool calm_read_schedule(const char *text, struct tally_calm_schedule *ret_schedule);

/* The vectors that follow a struct calm_memory. */
double *calm_estimate(struct calm_memory *memory);
uint64_t *calm_spent(const struct tally_setting *setting, struct calm_memory *memory);
/* NULL for a job that never travels: it has a budget or keeps shifts, or its document limits the
 * clients' own steps or gives problem constants. */
struct tally_calm_travel *calm_travel(const struct tally_setting *setting,
                                      struct calm_memory *memory);
/* Whether a job that has an opening round may travel. */
bool calm_may_travel(const struct tally_setting *setting);
/* Whether a job that has an opening round plans the rest of its epochs at every broadcast. */
bool calm_replans(const struct tally_setting *setting);
/* Whether the document limits neither the clients' own steps nor gives their spread. */
bool calm_is_free(const struct tally_setting *setting);
/* W of calm/calm_model.h. Precondition: the job keeps shifts. */
double *calm_shift_error(const struct tally_setting *setting, struct calm_memory *memory);
double *calm_last_mean(const struct tally_setting *setting, struct calm_memory *memory);

/* 1 / h: of `facts` if the job estimates it, otherwise of the document. */
double calm_step_size(const struct tally_setting *setting, const struct tally_walk_facts *facts);

/* The constants of the job for the recursion; noise, spread and repeats are those of `facts`. */
struct tally_calm_constants calm_constants(const struct tally_setting *setting,
                                           const struct tally_walk_facts *facts);

/* The constants of a job that has nothing to estimate, at its start. */
struct tally_calm_constants calm_known_constants(const struct tally_setting *setting);

/* The open epoch as scheduled. A job that may travel uses only its resolutions. */
const struct tally_calm_epoch *calm_open_epoch(const struct calm_memory *memory);

/* The open epoch with the resolutions that its grids have now. */
struct tally_calm_epoch calm_open_grids(const struct tally_setting *setting,
                                        const struct calm_memory *memory);

/* The number of queries behind a client's message of this round, with those of the opening round
 * that it includes. */
int64_t calm_message_samples(const struct tally_round_plan *plan);

/* The facts that are sent to the clients of the open round. */
struct tally_walk_facts calm_facts(const struct tally_setting *setting,
                                   const struct calm_memory *memory);

/* The most bits that a client may still send if the client that has sent most is to stay within the
 * budget. */
uint64_t calm_bits_left(const struct tally_setting *setting, const struct calm_memory *memory);

/* Adjusts the grids of the remaining epochs so that they use the rest of the budget, and no more;
 * if constants are estimated and both directions have a budget, plans these epochs again. Returns
 * the number of control bits that state this to clients, at most CALM_MOST_INDEX_BITS: of the
 * factor of the uplink's grids, or of the bits that are left up. `message_bits`: the expected
 * length of the last message. */
uint64_t calm_fit_grids(const struct tally_setting *setting, struct calm_memory *memory,
                        double message_bits);

/* Updates s0 and B, in a job that estimates them, from the messages of a walk. `noise` is the
 * variance of these messages around x*. */
void calm_learn(const struct tally_setting *setting, struct calm_memory *memory,
                const struct tally_calm_walk *walk, double noise);

/* calm_belief.c: jobs that estimate all constants, and whose directions are alike. */
bool calm_has_belief(const struct calm_memory *memory);
void calm_belief_begin(const struct tally_setting *setting, struct calm_memory *memory);
/* Takes the messages of an epoch that averaged: corrects s0, V and B. `walk`: the clients' walk;
 * `noise`: the variance of their messages without that of the quantization. Returns control bits.
 */
uint64_t calm_believe(const struct tally_server_task *task, const struct tally_calm_walk *walk,
                      double noise);
/* Follows V from an epoch to the next; `gain` is that of z. */
void calm_belief_follow(struct calm_memory *memory, double gain);
/* The queries of the message of the epoch that opens now, in the first one with those of the
 * opening; more than are left if it has no message. `before`: those of the last message, at first
 * of the opening. */
int64_t calm_next_length(const struct tally_setting *setting, const struct calm_memory *memory,
                         int64_t before);

extern const struct tally_opening CALM_OPENING;

/* Whether s0, V or the step size must be estimated in an opening round. */
bool calm_opens(const union tally_algorithm_params *params);

/* Whether no direction of f can be much flatter than one of this curvature. */
bool calm_is_round(const struct tally_setting *setting, double curvature);

/* Gradient queries of every client in the opening round: draws at the initial point, and, if the
 * step size is to be found, probes near it (calm_curvature.c). Each query costs regret, so many
 * clients make fewer draws, and one probe if that will not fail because its length is a bad guess.
 * A user's program needs more probes. The first message includes the draws, and at least
 * CALM_OPENING_SAMPLES queries in all unless the job has chosen another number (calm_belief.c,
 * calm_memory.c). */
enum {
    CALM_OPENING_SAMPLES = 6,
    CALM_FEW_DRAWS = 4,
    CALM_MANY_CLIENTS = 8,
    CALM_PROGRAM_PROBES = 4
};
int64_t calm_draws(const struct tally_setting *setting, bool finds_step);
int64_t calm_probes(const struct tally_setting *setting);
int64_t calm_opening_samples(const struct tally_setting *setting);
/* The draws of the opening round that has ended; 0: there was none. */
int64_t calm_drawn(const struct tally_setting *setting, const struct calm_memory *memory);

/* Bits of a client's report, and the most control bits of the opening round; both are more if the
 * step size is estimated. */
enum { CALM_REPORT_BITS = 20, CALM_CURVATURE_BITS = 18, CALM_SHARE_BITS = 6, CALM_STEP_BITS = 14 };
unsigned calm_report_bits(const struct tally_setting *setting, bool finds_step);
unsigned calm_most_report_bits(const union tally_algorithm_params *params);
unsigned calm_answer_bits(const union tally_algorithm_params *params);

/* What a client measures of the curvature of f near the initial point (calm_curvature.c): c1 along
 * its gradients, c2 along the gradient's change, and r. c1 and c2 may be negative if f is not
 * convex; all are 0 if nothing could be measured. */
struct calm_curvature {
    double along, steep, sample;
};

/* Client: makes the queries of the opening round of a job whose step size is to be estimated.
 * scratch->wide.reals is the mean of the gradients at x, *ret_variance the sum of their variances
 * over the coordinates. *ret_loss is the mean of f over all queries; NULL = not wanted. Errors:
 * FAILED_PRECONDITION (the gradients of a program do not repeat their draws), NOT_FINITE (the
 * loss), NO_MEMORY, those of the objective. */
enum tally_status calm_measure(const struct tally_client_task *task, struct tally_scratch *scratch,
                               double *ret_variance, struct calm_curvature *ret_curvature,
                               double *ret_loss, struct tally_error *err);

/* Client: the slot tally_algorithm.client_step. */
enum tally_status calm_client_step(const struct tally_client_task *task,
                                   struct tally_scratch *scratch,
                                   struct tally_client_answer *answer, struct tally_error *err);

/* The variance of the rounding of the round's messages, per coordinate. */
double calm_rounding(const struct tally_server_task *task);

/* Both sides: encodes scratch->vector on the grid. Errors: NOT_FINITE, TOO_LARGE, NO_MEMORY. */
enum tally_status calm_encode(const struct tally_setting *setting, const struct tally_grid *grid,
                              const struct tally_rng *rng, struct tally_scratch *scratch,
                              struct tally_message *message, struct tally_error *err);

/* Server: the mean square of a coordinate of the clients' mean, without shifts. received >= 1. */
double calm_mean_square(const struct tally_server_task *task);
/* Server: coordinate i of the mean of all shifts, which is added to the mean of the messages; 0
 * without shifts. */
double calm_mean_shift(const struct tally_server_task *task, size_t i);
/* Server: updates W after a round. `moved`: the mean square of a coordinate of the broadcast. */
void calm_follow_shifts(const struct tally_server_task *task, double moved);

/* Both sides: adds a client's decoded message of a round to its shift. */
void calm_take_shift(const struct tally_round_plan *plan, uint32_t round, const int64_t *integers,
                     size_t dim, struct tally_shift *shift);

/* Client: makes the queries of the opening round, and its report. Errors: NOT_FINITE, those of
 * calm_measure(). */
enum tally_status calm_report(const struct tally_client_task *task, struct tally_scratch *scratch,
                              struct tally_client_answer *answer, struct tally_error *err);

#endif

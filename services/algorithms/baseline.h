/* baseline: the parts that all algorithms except CEAL and CALM share: local steps, real-valued
 * sums, and a float32 broadcast of the new point.
 *
 *     between rounds   K gradient queries, at the common point or along a client's own iterates;
 *                      FedAvg, FedProx and FedPAQ may have steps that decay and rounds
 *                      that grow
 *     server           x <- x + (weighted) mean of the clients' (dequantized) steps, or the step
 *                      that a server optimizer computes from that mean (server_optimizer.h)
 *     downlink         x as float32; every client and the server continue with the rounded values,
 *                      projected onto the domain, as is every local step
 *
 * The server sums in fixed point (codec/numeric/fixed_point.h), so its sums do not depend on the
 * order of the messages. */
#ifndef TALLY_SERVICES_ALGORITHMS_BASELINE_H
#define TALLY_SERVICES_ALGORITHMS_BASELINE_H

#include "services/algorithms/algorithm.h"
#include "services/algorithms/server_optimizer.h"

/* The fields of a tally_baseline_params, for the tables of the algorithms: step_size, local_steps,
 * levels, server_step_size. */
extern const struct tally_field TALLY_BASELINE_FIELDS[4];
/* The fields of methods whose steps may decay and whose rounds may grow: step_size, local_steps,
 * step_decay, local_steps_growth, levels. The stage of such a job is the number of queries that
 * each client has made before the round; it stays 0 if neither is set. */
extern const struct tally_field TALLY_SCHEDULED_FIELDS[5];
/* TALLY_SCHEDULED_FIELDS with mu in place of levels. */
extern const struct tally_field TALLY_PROXIMAL_FIELDS[5];
/* step_size, local_steps, levels, alpha. */
extern const struct tally_field TALLY_DIANA_FIELDS[4];
/* step_size, local_steps, server_step_size. */
extern const struct tally_field TALLY_SCAFFOLD_FIELDS[3];
/* Which coordinates a message of `ef21` contains (ef21.c). */
enum tally_compressor { TALLY_TOP_K, TALLY_RAND_K };
/* step_size, local_steps, k, compressor. */
extern const struct tally_field TALLY_EF21_FIELDS[4];
union tally_algorithm_params tally_baseline_defaults(void);
int64_t tally_baseline_first_stage(const union tally_algorithm_params *params);
/* 2 / smoothness. A step multiplies the distance from x* by 1 - step_size lambda along an
 * eigenvector of the Hessian, which shrinks it while step_size lambda < 2. Local steps only repeat
 * this. */
struct tally_step_limit tally_baseline_step_limit(const union tally_algorithm_params *params,
                                                  double smoothness);
enum tally_status tally_baseline_plan(const struct tally_setting *setting, int64_t stage,
                                      const void *memory, struct tally_round_plan *ret_plan,
                                      struct tally_error *err);

/* The slots that all baselines share, and those of the baselines without client_shifts.h, with
 * `plan`. */
#define TALLY_BASELINE_COMMON_SLOTS                                                                \
    .defaults = tally_baseline_defaults, .first_stage = tally_baseline_first_stage,                \
    .client_step = client_step, .decide = decide, .apply = tally_baseline_apply
#define TALLY_BASELINE_SLOTS                                                                       \
    TALLY_BASELINE_COMMON_SLOTS, .plan = tally_baseline_plan, .takes_cohorts = true,               \
                                 .takes_weights = true

/* The slots shared by the methods with local steps. */
#define TALLY_FEDERATED_SLOTS                                                                      \
    TALLY_BASELINE_SLOTS, .moves_locally = true, .takes_server_optimizer = true,                   \
                          .memory = {.bytes = tally_baseline_memory_bytes,                         \
                                     .begin = tally_baseline_memory_begin,                         \
                                     .is_valid = tally_baseline_memory_is_valid}

/* The `memory` slots: of the server optimizer, and of a compressed job. */
size_t tally_baseline_memory_bytes(const struct tally_setting *setting);
void tally_baseline_memory_begin(const struct tally_setting *setting, const double *x,
                                 int64_t opening_samples, const char *schedule, void *memory);
bool tally_baseline_memory_is_valid(const struct tally_setting *setting, const void *memory);

/* The `message_bits` slots for the two kinds of message. */
struct tally_message_bits tally_baseline_bits_float32(const struct tally_setting *setting);
struct tally_message_bits tally_baseline_bits_qsgd(const struct tally_setting *setting);

/* Takes K local steps from x against gradients of f plus mu/2 |. - x|^2, or has the client's own
 * training loop do what it does. Leaves the end point in
 * scratch->local and, if the task says `evaluate`, the mean of f along the way in *ret_loss.
 * Errors: NOT_FINITE, NO_MEMORY. */
enum tally_status tally_baseline_walk(const struct tally_client_task *task,
                                      struct tally_scratch *scratch, double *ret_loss,
                                      struct tally_error *err);

/* tally_baseline_walk() with `correction`, double[dim] or NULL, added to every gradient. */
enum tally_status tally_baseline_corrected_walk(const struct tally_client_task *task,
                                                const double *correction,
                                                struct tally_scratch *scratch, double *ret_loss,
                                                struct tally_error *err);

/* scratch->vector <- scale * (scratch->local - x), as float32. */
void tally_baseline_difference(const struct tally_client_task *task, double scale,
                               struct tally_scratch *scratch);

/* For kinds of messages other than those below: the index of the first of values[n] that the server
 * cannot sum exactly, n if there is none; the error of a client that has one; the server's check of
 * a message. */
size_t tally_baseline_first_unsummable(const struct tally_setting *setting, const float *values,
                                       size_t n);
enum tally_status tally_baseline_diverged(const struct tally_client_task *task,
                                          struct tally_error *err);
enum tally_status tally_baseline_check_bounds(const struct tally_setting *setting,
                                              const float *values, size_t n,
                                              struct tally_error *err);
/* Makes room for a message of n payload bits and n formula bits. Errors: NO_MEMORY. */
enum tally_status tally_baseline_open_message(struct tally_message *message, uint64_t n_bits,
                                              struct tally_error *err);

/* Makes a client's message from scratch->vector, as float32 values, compressed if the job is
 * (compression.h), or by QSGD with the params'
 * levels. If the job keeps shifts, the decoded message is added to the client's shift
 * (shift.h). Errors: NOT_FINITE (also for numbers that the server cannot sum,
 * codec/numeric/fixed_point.h: a diverging walk exceeds that bound first), NO_MEMORY. */
enum tally_status tally_baseline_send_float32(const struct tally_client_task *task,
                                              struct tally_scratch *scratch,
                                              struct tally_message *message,
                                              struct tally_error *err);
enum tally_status tally_baseline_send_qsgd(const struct tally_client_task *task,
                                           struct tally_scratch *scratch,
                                           struct tally_message *message, struct tally_error *err);

/* The `receive` slots for the two kinds of message. They also add the message to the client's
 * shift. */
enum tally_status tally_baseline_receive_float32(const struct tally_setting *setting,
                                                 const struct tally_round_plan *plan,
                                                 const struct tally_message_view *message,
                                                 struct tally_scratch *scratch, int64_t *sums,
                                                 struct tally_bits *ret_bits,
                                                 struct tally_error *err);
enum tally_status tally_baseline_receive_qsgd(const struct tally_setting *setting,
                                              const struct tally_round_plan *plan,
                                              const struct tally_message_view *message,
                                              struct tally_scratch *scratch, int64_t *sums,
                                              struct tally_bits *ret_bits, struct tally_error *err);

/* Broadcasts float32(x + D), where D = scale * the (weighted) mean of the messages, or the step
 * that the job's server optimizer computes from that mean. Errors: NOT_FINITE, NO_MEMORY. */
enum tally_status tally_baseline_decide(const struct tally_server_task *task, double scale,
                                        struct tally_scratch *scratch,
                                        struct tally_decision *decision, struct tally_error *err);

/* Broadcasts scratch->vector, the new point; `square` is the squared norm of the server's
 * estimate. Errors: NOT_FINITE, NO_MEMORY. */
enum tally_status tally_baseline_conclude(const struct tally_server_task *task, double square,
                                          struct tally_scratch *scratch,
                                          struct tally_decision *decision, struct tally_error *err);

/* The `apply` slot: sets x to the broadcast, projected onto the domain. */
enum tally_status tally_baseline_apply(const struct tally_setting *setting,
                                       const struct tally_message_view *broadcast,
                                       struct tally_scratch *scratch, double *x,
                                       struct tally_error *err);

#endif

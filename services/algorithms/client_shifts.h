/* client_shifts: the memory (algorithm.h) of a method that keeps one shift per client
 * (services/algorithms/shift.h) and nothing else: M shifts, in the order of the clients.
 *
 * The plan of such a method sets facts.shift_gain > 0 in every round, including one that the
 * horizon cuts. Both sides call tally_shift_add() with the decoded message and that gain. The
 * server does so in `receive`, after it has checked the whole message. The client does so in
 * `client_step`, with the values that the server will decode. */
#ifndef TALLY_SERVICES_ALGORITHMS_CLIENT_SHIFTS_H
#define TALLY_SERVICES_ALGORITHMS_CLIENT_SHIFTS_H

#include "services/algorithms/algorithm.h"

/* The slots of an algorithm whose shifts begin at `zero` or at the initial `point`. */
#define TALLY_CLIENT_SHIFTS_SLOTS(start)                                                           \
    .memory = {.bytes = tally_client_shifts_bytes,                                                 \
               .begin = tally_client_shifts_begin_##start,                                         \
               .is_valid = tally_client_shifts_are_valid,                                          \
               .shift = tally_client_shifts_of},                                                   \
    .shift_start = tally_client_shifts_##start,                                                    \
    .no_cohorts_reason = "it keeps a state per client and saves all of them in every round, so a " \
                         "cohort would not make rounds cheaper",                                   \
    .no_weights_reason = "its server needs the mean of the states of all clients, and knows a "    \
                         "client's weight only when it answers"

size_t tally_client_shifts_bytes(const struct tally_setting *setting);
void tally_client_shifts_begin_zero(const struct tally_setting *setting, const double *x,
                                    int64_t opening_samples, const char *schedule, void *memory);
void tally_client_shifts_begin_point(const struct tally_setting *setting, const double *x,
                                     int64_t opening_samples, const char *schedule, void *memory);
bool tally_client_shifts_are_valid(const struct tally_setting *setting, const void *memory);
struct tally_shift *tally_client_shifts_of(const struct tally_setting *setting, void *memory,
                                           uint32_t client);
enum tally_shift_start tally_client_shifts_zero(const struct tally_setting *setting);
enum tally_shift_start tally_client_shifts_point(const struct tally_setting *setting);

/* Client: scratch->vector <- the mean of plan->samples gradient queries at x, minus the shift, as
 * float32. Errors: those of the objective. */
enum tally_status tally_client_shifts_difference(const struct tally_client_task *task,
                                                 struct tally_scratch *scratch,
                                                 struct tally_error *err);

/* Server, in `decide`: scratch->wide.reals <- the mean of the shifts of all M clients, summed in
 * client order, with or without the messages of the round. Errors: NO_MEMORY. */
enum tally_status tally_client_shifts_mean(const struct tally_server_task *task, bool with_messages,
                                           struct tally_scratch *scratch, struct tally_error *err);

/* Server, in `decide`, if clients take no steps of their own: broadcasts x - eta g, where g is
 * scratch->wide.reals, with a control bit that says whether a client's message counted. Errors:
 * those of tally_baseline_conclude(). */
enum tally_status tally_client_shifts_descend(const struct tally_server_task *task,
                                              struct tally_scratch *scratch,
                                              struct tally_decision *decision,
                                              struct tally_error *err);

#endif

/* sim_process: a process other than the coordinator: a peer in the network whose code runs in a
 * fiber, and which can be killed, asked to stop, and stopped for a while. */
#ifndef TALLY_TESTS_SIMULATION_WORLD_SIM_PROCESS_H
#define TALLY_TESTS_SIMULATION_WORLD_SIM_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/simulation/world/sim_fiber.h"
#include "tests/simulation/world/sim_network.h"

struct sim_process {
    struct sim_peer peer;
    volatile sig_atomic_t stop; /* as tally_signals_stop() shows it */
    struct sim_fiber *fiber;    /* NULL = not running */
    bool is_killed;             /* nothing that it still does has an effect */
    struct sim_exchange *exchange;
    struct sim_answer answer;
    bool can_be_cancelled; /* whether the waiting call can be */
    int64_t n_waits;       /* number of the current wait, to recognise late wake-ups */
    void (*body)(void *context);
    void (*on_end)(void *context);
    void *context;
};

/* Runs `body`; `on_end` follows when it returns. */
void sim_process_start(struct sim_process *process, void (*body)(void *context),
                       void (*on_end)(void *context), void *context);
/* kill -9. With `unseen`, the coordinator does not see that its connections are gone. */
void sim_process_kill(struct sim_process *process, bool unseen);
/* SIGTERM. */
void sim_process_terminate(struct sim_process *process);

/* For the code of the process: */

/* The process whose code runs; NULL in the event loop. */
struct sim_process *sim_process_self(void);
/* Ends early when the process is killed or terminated. */
void sim_process_sleep(int64_t us);
/* Sends and waits. CANCELLED when killed or, if it can be, terminated; else ret_answer->status. */
enum tally_status sim_process_call(const struct sim_message *message, int64_t timeout_ms,
                                   bool can_be_cancelled, struct sim_answer *ret_answer);

#endif

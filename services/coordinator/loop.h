/* loop: one turn of the loop, after every step of the HTTP server.
 *
 *     work         run what is due, take results of other threads, in the step's transaction
 *     commit       one commit for everything that the step wrote (group commit)
 *     acknowledge  respond to the writes, only after the commit
 *     retire       remove jobs that ended, in a transaction of their own
 *     outside      use the store without a transaction: heartbeats, reloading jobs
 *     serve        hand out tasks, answer the reads, fill the event streams
 *
 * So nothing that a crash could undo is ever visible outside: an acknowledged update is durable,
 * and no task follows from an update that is not. Commit and acknowledge are left out while a
 * commit is deferred, which only updates that close no round allow; so is outside, as long as a
 * transaction is open. The phases' bodies are LOOP_OPS in coordinator.c; run_loop() in
 * coordinator_main.c alternates this turn with the HTTP server's step, in which requests that write
 * run at once. */
#ifndef TALLY_SERVICES_COORDINATOR_LOOP_H
#define TALLY_SERVICES_COORDINATOR_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"

struct call;
struct tally_coordinator;

enum {
    TICK_MS = 100,      /* precision of the time limits of long polls */
    STALL_MS = 1000,    /* a pause between two turns that no wait explains: waits end with a tick */
    DEFER_MS = 250,     /* how long the commit of updates that poll may be deferred */
    DEFER_SHARED_MS = 5 /* the same, if something waits for the end of the transaction */
};

/* All are required. */
struct loop_ops {
    /* The loop has served no socket for stalled_ms. It will now serve what has arrived meanwhile,
     * so most of this time does not count as silence of others. */
    void (*stalled)(struct tally_coordinator *coordinator, int64_t now_ms, int64_t stalled_ms);
    /* Runs what is due. ticks: TICK_MS have passed; seconds: a second has passed, too. */
    void (*work)(struct tally_coordinator *coordinator, int64_t now_ms, bool ticks, bool seconds);
    /* Latest time for the commit of a transaction that may be deferred. */
    int64_t (*defer_until)(const struct tally_coordinator *coordinator, int64_t now_ms);
    /* Whether there is a task for the session that the call polls for. */
    bool (*has_task)(const struct tally_coordinator *coordinator, const struct call *call);
    /* Holds the durable update's request as the session's poll, and takes the call. False: the call
     * must be answered. */
    bool (*begin_poll)(struct tally_coordinator *coordinator, struct call *call);
    /* Transaction `number` is lost: reloads the jobs that it wrote to. */
    void (*lost)(struct tally_coordinator *coordinator, uint64_t number);
    void (*retire)(struct tally_coordinator *coordinator);
    void (*outside)(struct tally_coordinator *coordinator, int64_t now_ms);
    /* defers: a transaction stays open. True: the next turn must follow at once. */
    bool (*serve)(struct tally_coordinator *coordinator, int64_t now_ms, bool defers);
};

struct loop {
    const struct loop_ops *ops;
    int wake_fd;      /* an eventfd: readable when another thread has something for the loop */
    int64_t began_ms; /* monotonic; of the last turn; 0 = none yet */
    int64_t next_tick_ms;
    uint64_t n_ticks;
    bool defers;                      /* the transaction stays open through this turn */
    int64_t defer_until_ms;           /* monotonic; 0 = it has not been deferred yet */
    const struct call *last_deferred; /* last call of the queue `written` that was examined */
};

/* Errors: NO_MEMORY, UNAVAILABLE (file descriptors). */
enum tally_status loop_new(const struct loop_ops *ops, struct loop **ret_loop,
                           struct tally_error *err);
/* wake_fd stays open: a thread may still write to it. NULL is allowed. */
void loop_free(struct loop *loop);
/* Returns how long the next step may wait, in ms. */
int loop_run(struct tally_coordinator *coordinator);
/* Makes the next turn tick, as if a second had passed. */
void loop_hurry(struct loop *loop);

#endif

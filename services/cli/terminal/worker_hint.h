/* worker_hint: tells a person who has submitted a job that workers are missing, and how to start
 * one. */
#ifndef TALLY_SERVICES_CLI_TERMINAL_WORKER_HINT_H
#define TALLY_SERVICES_CLI_TERMINAL_WORKER_HINT_H

#include <stdint.h>

#include "services/cli/view/cli.h"

/* Slots that workers must have before the job of this detail can start: tally_job_spec_slots(). */
int64_t tally_slots_needed(const struct tally_json *detail);

/* Asks the coordinator for its slots. If all workers together have fewer than the job needs, says
 * so on stderr, with the command that adds the rest:
 *
 *   no worker is connected, and the job needs 4 clients; start a worker:
 *     tally-worker --clients 4 --plugin FILE
 *
 * Says nothing about a job that has ended, or if the coordinator does not say. */
void tally_worker_hint(struct tally_cli *cli, const struct tally_json *detail);

#endif

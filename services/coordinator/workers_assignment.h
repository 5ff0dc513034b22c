/* workers_assignment: gives clients of jobs to sessions, and starts jobs, as workers_matching.h
 * decides. */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_ASSIGNMENT_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_ASSIGNMENT_H

#include <stdbool.h>
#include <stdint.h>

struct hosted_job;
struct tally_coordinator;

/* Fills vacant clients and starts queued jobs that can be filled. Writes. */
void assign_slots(struct tally_coordinator *coordinator);

/* Counts the slots that are free for the job now. */
int64_t count_free_slots(const struct tally_coordinator *coordinator, const struct hosted_job *job);
/* Whether any worker of this replica may serve the job. */
bool can_be_served(const struct tally_coordinator *coordinator, const struct hosted_job *job);
/* Slots of unbound workers here that serve only progressing jobs, and so can move elsewhere once
 * these have ended. */
int64_t count_moving_slots(const struct tally_coordinator *coordinator);
/* Key of the oldest queued job that the slots here will be enough for; 0 = none. */
int64_t find_next_to_start(const struct tally_coordinator *coordinator);
/* The oldest job that lacks slots that other replicas could send, and how many; key 0 = none.
 * n_elsewhere: slots of all other replicas; n_free_elsewhere: of them, those that are free. */
void find_lacking_job(const struct tally_coordinator *coordinator, int64_t n_elsewhere,
                      int64_t n_free_elsewhere, int64_t *ret_key, int64_t *ret_slots);

#endif

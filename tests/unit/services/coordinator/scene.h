/* scene: a coordinator with a store in memory, and workers that call it without a network. */
#ifndef TALLY_TESTS_UNIT_SERVICES_COORDINATOR_SCENE_H
#define TALLY_TESTS_UNIT_SERVICES_COORDINATOR_SCENE_H

#include "services/coordinator/coordinator.h"
#include "services/coordinator/hosted_job.h"
#include "services/job/model_copy.h"
#include "tests/unit/services/coordinator/fake_http.h"

enum { SCENE_REQUESTS = 32 };

struct scene {
    struct tally_coordinator *coordinator;
    struct tally_store *store;
    struct tally_http_request requests[SCENE_REQUESTS];
    int n_requests;
};

void scene_init(struct scene *scene);
void scene_fini(struct scene *scene);

/* Adds a small queued job that starts once it has enough workers and ends after many rounds. */
struct hosted_job *scene_add_job(struct scene *scene, int clients, enum tally_policy policy,
                                 int quorum);
/* Runs one pass of the loop. Ticks are due every 100 ms of the real clock, so no test may depend on
 * one. */
void scene_turn(struct scene *scene);

/* Sends a request. The returned request holds its response once there is one. */
struct tally_http_request *scene_get(struct scene *scene, const char *path);
struct tally_http_request *scene_post(struct scene *scene, const char *path);
/* Joins a worker and returns its session. */
uint64_t scene_join(struct scene *scene, const char *name, uint32_t slots);
/* Sends the Join of a worker that serves only this job and accepts that it has ended. */
struct tally_http_request *scene_join_pinned(struct scene *scene, const char *name,
                                             const char *job_id);
/* Sends a poll with this waiting time. */
struct tally_http_request *scene_poll(struct scene *scene, uint64_t session, uint32_t wait_ms);
/* Appends the client's update for the open round, as a field of a PostUpdateRequest. */
void scene_encode_update(const struct hosted_job *job, uint32_t client, struct tally_buffer *out);
/* Sends an encoded PostUpdateRequest. */
struct tally_http_request *scene_post_update(struct scene *scene, struct tally_buffer *body);
/* Sends the client's update for the job's open round from this session. */
struct tally_http_request *scene_update(struct scene *scene, uint64_t session,
                                        struct hosted_job *job, uint32_t client);
/* Says from the session how far a message that it sends has got. */
void scene_progress(struct scene *scene, uint64_t session, uint64_t n, uint64_t n_whole);
/* Sends those of n clients, from `first` on, in one request. */
struct tally_http_request *scene_updates(struct scene *scene, uint64_t session,
                                         struct hosted_job *job, uint32_t first, uint32_t n);
void scene_leave(struct scene *scene, uint64_t session);

#endif

#include "tests/unit/services/coordinator/scene.h"

#include <stdio.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "storage/backends.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/job_in_store.h"

void scene_init(struct scene *scene)
{
    struct tally_error err = TALLY_ERROR_INIT;
    memset(scene, 0, sizeof *scene);
    TALLY_ASSERT_STATUS(tally_store_open("memory:", NULL, &scene->store, &err), TALLY_OK, &err);
    const struct tally_coordinator_config config = {.store = scene->store,
                                                    .session_timeout_ms = 1000000,
                                                    .max_jobs = 10,
                                                    .max_streams = 2,
                                                    .max_clients = 10,
                                                    .max_dim = 1000,
                                                    .max_job_bytes = INT64_C(1) << 30,
                                                    .max_sessions = 10,
                                                    .max_batch_bytes = 1 << 20,
                                                    .max_sessions_per_token = 10,
                                                    .heartbeat_ms = 1000000,
                                                    .metrics_keep_ms = 60000};
    TALLY_ASSERT_STATUS(tally_coordinator_new(&config, &scene->coordinator, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(scene->coordinator);
}

void scene_fini(struct scene *scene)
{
    for (int i = 0; i < scene->n_requests; i++) {
        struct tally_http_request *request = &scene->requests[i];
        if (request->status == 0) {
            tally_coordinator_on_abandoned(scene->coordinator, request);
        }
        fake_request_fini(request);
    }
    tally_coordinator_free(scene->coordinator);
}

void scene_turn(struct scene *scene)
{
    (void)tally_coordinator_turn(scene->coordinator);
}

struct hosted_job *scene_add_job(struct scene *scene, int clients, enum tally_policy policy,
                                 int quorum)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_spec spec = job_in_store_spec();
    struct hosted_job *job = NULL;
    spec.objective.data.synthetic_linear.dim = 4;
    spec.clients = clients;
    spec.policy = (int)policy;
    spec.quorum = quorum;
    spec.round_deadline_ms = policy == TALLY_POLICY_WAIT ? 0 : 1000000;
    TALLY_ASSERT_STATUS(jobs_create(scene->coordinator, &spec, NULL, 0, &job, &err), TALLY_OK,
                        &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    job->prepared = true; /* do not wait for the solver's thread */
    tally_list_append(&scene->coordinator->jobs->prepared, &job->in_prepared);
    scene_turn(scene);
    return job;
}

static struct tally_http_request *send_request(struct scene *scene, const char *method,
                                               const char *path, const char *content_type,
                                               const struct tally_buffer *body)
{
    CU_ASSERT_FATAL(scene->n_requests < SCENE_REQUESTS);
    struct tally_http_request *request = &scene->requests[scene->n_requests++];
    request->method = method;
    request->path = path;
    request->content_type = content_type;
    if (body != NULL) {
        request->body = *body;
    }
    tally_coordinator_on_request(scene->coordinator, request);
    return request;
}

struct tally_http_request *scene_get(struct scene *scene, const char *path)
{
    return send_request(scene, "GET", path, NULL, NULL);
}

struct tally_http_request *scene_post(struct scene *scene, const char *path)
{
    return send_request(scene, "POST", path, NULL, NULL);
}

static struct tally_http_request *call(struct scene *scene, const char *path,
                                       const struct tally_buffer *body)
{
    return send_request(scene, "POST", path, "application/proto", body);
}

uint64_t scene_join(struct scene *scene, const char *name, uint32_t slots)
{
    struct tally_join_request join = {.slots = slots, .format = TALLY_FORMAT_VERSION};
    struct tally_join_response response = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_buffer body = {0};
    snprintf(join.name, sizeof join.name, "%s", name);
    CU_ASSERT_EQUAL_FATAL(tally_join_request_encode(&join, &body), TALLY_OK);
    struct tally_http_request *request = call(scene, "/tally.v1.WorkerService/Join", &body);
    scene_turn(scene);
    CU_ASSERT_EQUAL_FATAL(request->status, 200);
    TALLY_ASSERT_STATUS(
        tally_join_response_decode(request->response.data, request->response.size, &response, &err),
        TALLY_OK, &err);
    return response.session;
}

struct tally_http_request *scene_join_pinned(struct scene *scene, const char *name,
                                             const char *job_id)
{
    struct tally_join_request join = {.slots = 1, .format = TALLY_FORMAT_VERSION};
    struct tally_buffer body = {0};
    snprintf(join.name, sizeof join.name, "%s", name);
    snprintf(join.job_id, sizeof join.job_id, "%s", job_id);
    CU_ASSERT_EQUAL_FATAL(tally_join_request_encode(&join, &body), TALLY_OK);
    struct tally_http_request *request = call(scene, "/tally.v1.WorkerService/Join", &body);
    scene_turn(scene);
    return request;
}

struct tally_http_request *scene_poll(struct scene *scene, uint64_t session, uint32_t wait_ms)
{
    static struct tally_poll_request poll; /* large */
    struct tally_buffer body = {0};
    poll.session = session;
    poll.wait_ms = wait_ms;
    CU_ASSERT_EQUAL_FATAL(tally_poll_request_encode(&poll, &body), TALLY_OK);
    return call(scene, "/tally.v1.WorkerService/PollTask", &body);
}

/* An update, and what owns its payload. */
struct computed_update {
    struct tally_update update;
    struct tally_objective *objective;
    struct tally_model_copy *copy;
};

static void compute_update(const struct hosted_job *job, uint32_t client,
                           struct computed_update *ret_computed)
{
    const struct tally_job_round *round = tally_job_open_round(job->engine);
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *objective = NULL;
    struct tally_model_copy *copy = NULL;
    struct tally_bits bits;
    size_t dim;
    const double *x = tally_job_point(job->engine, &dim);
    TALLY_ASSERT_STATUS(tally_objective_new(&job->spec.objective, (uint32_t)job->spec.clients,
                                            tally_job_spec_setting(&job->spec).key, NULL,
                                            &objective, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_model_copy_new(&job->spec, objective, &copy, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(
        tally_model_copy_load(copy, round->iterate, (const uint8_t *)x, dim * sizeof *x, &err),
        TALLY_OK, &err);
    *ret_computed = (struct computed_update){.objective = objective, .copy = copy};
    TALLY_ASSERT_STATUS(
        tally_model_copy_compute(copy, round, client, &ret_computed->update, &bits, &err), TALLY_OK,
        &err);
}

static void computed_update_fini(struct computed_update *computed)
{
    tally_model_copy_free(computed->copy);
    tally_objective_free(computed->objective);
}

struct tally_http_request *scene_update(struct scene *scene, uint64_t session,
                                        struct hosted_job *job, uint32_t client)
{
    return scene_updates(scene, session, job, client, 1);
}

void scene_encode_update(const struct hosted_job *job, uint32_t client, struct tally_buffer *out)
{
    struct computed_update computed;
    compute_update(job, client, &computed);
    CU_ASSERT_EQUAL_FATAL(tally_update_request_add(&computed.update, out), TALLY_OK);
    computed_update_fini(&computed);
}

struct tally_http_request *scene_post_update(struct scene *scene, struct tally_buffer *body)
{
    return call(scene, "/tally.v1.WorkerService/PostUpdate", body);
}

void scene_progress(struct scene *scene, uint64_t session, uint64_t n, uint64_t n_whole)
{
    const struct tally_progress_request message = {
        .session = session, .bytes = n, .of_bytes = n_whole};
    struct tally_buffer body = {0};
    CU_ASSERT_EQUAL_FATAL(tally_progress_request_encode(&message, &body), TALLY_OK);
    (void)call(scene, "/tally.v1.WorkerService/Progress", &body);
    scene_turn(scene);
}

struct tally_http_request *scene_updates(struct scene *scene, uint64_t session,
                                         struct hosted_job *job, uint32_t first, uint32_t n)
{
    struct tally_update_request message = {
        .session = session, .round = (uint32_t)tally_job_open_round(job->engine)->round};
    struct tally_buffer body = {0};
    memcpy(message.job_id, job->row.id, sizeof job->row.id);
    for (uint32_t m = first; m < first + n; m++) {
        scene_encode_update(job, m, &body);
    }
    CU_ASSERT_EQUAL_FATAL(tally_update_request_end(&message, &body), TALLY_OK);
    return scene_post_update(scene, &body);
}

void scene_leave(struct scene *scene, uint64_t session)
{
    struct tally_buffer body = {0};
    CU_ASSERT_EQUAL_FATAL(tally_leave_request_encode(session, &body), TALLY_OK);
    (void)call(scene, "/tally.v1.WorkerService/Leave", &body);
}

#include "services/worker/worker_origin.h"

#include <string.h>

#include "services/base/environment.h"
#include "services/base/log.h"
#include "services/objectives/blas_version.h"
#include "services/worker/worker_contact.h"

static enum tally_status write_origin(const struct worker *worker, const struct job_copy *job,
                                      struct tally_buffer *out)
{
    struct tally_user_code code;
    struct tally_json *environment = NULL;
    const char *given = worker->config->environment;
    if (given != NULL) {
        (void)tally_json_parse(given, strlen(given), &environment, NULL);
    } else {
        environment = tally_environment_json(tally_blas_version());
    }
    tally_plugin_set_code(worker->config->plugins, &job->spec.objective, &code);
    struct tally_json *origin = tally_origin_json(environment, job->objective->data_digest, &code);
    enum tally_status status = TALLY_NO_MEMORY;
    if (origin != NULL) {
        status = tally_json_dump(origin, 0, out);
        tally_json_free(origin);
    }
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
}

void origin_tell(struct worker *worker, struct job_copy *job)
{
    struct tally_describe_request request = {.session = worker->session};
    struct tally_buffer text = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    if (job->described_in == worker->session) {
        return;
    }
    enum tally_status status = write_origin(worker, job, &text);
    if (status == TALLY_OK && text.size <= sizeof request.origin) {
        memcpy(request.job_id, job->id, sizeof request.job_id);
        memcpy(request.origin, text.data, text.size);
        contact_limit_calls(worker, INT64_MAX);
        status = call_describe(worker->client, &worker->buffers, &request, &err);
    }
    const bool is_foreign = strcmp(err.field, TALLY_HTTP_FOREIGN) == 0;
    if (status == TALLY_OK || status == TALLY_INVALID_ARGUMENT ||
        (is_foreign && !contact_is_passing(status))) { /* it would be refused again */
        job->described_in = worker->session;
    }
    if (status != TALLY_OK) {
        tally_log(TALLY_LOG_DEBUG, tally_log_event("origin not told"),
                  tally_log_text("job", job->id), tally_log_problem(&err));
    }
    tally_buffer_fini(&text);
}

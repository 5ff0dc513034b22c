#include "services/coordinator/rest_surveys.h"
#include "services/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"
#include "services/coordinator/background.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop.h"
#include "services/job/document_complete.h"

struct survey {
    struct background_work work; /* must be first */
    struct call *call;
    size_t n_body;
    /* The result. */
    enum tally_status status;
    struct tally_error err;   /* unless it is OK */
    struct tally_buffer text; /* the completed document */
    char found[TALLY_FOUND_CAPACITY];
    /* Copies of the body and of the data folder's name: reading may outlive both at the end of the
     * process. */
    char copies[];
};

struct surveys {
    struct background *background; /* NULL = no file has been read yet */
    int n;                         /* in progress or waiting */
    struct survey *result;         /* whose call runs again; NULL = none */
};

struct surveys *surveys_new(void)
{
    return tally_xcalloc(1, sizeof(struct surveys));
}

static struct survey *survey_at(struct tally_list_node *node)
{
    return (struct survey *)TALLY_LIST_MEMBER(struct background_work, in_works, node);
}

static void survey_free(struct survey *survey)
{
    tally_buffer_fini(&survey->text);
    free(survey);
}

void surveys_free(struct tally_coordinator *coordinator)
{
    struct surveys *surveys = coordinator->surveys;
    struct background_work *work;
    if (surveys != NULL && surveys->background != NULL) {
        while ((work = background_take(surveys->background)) != NULL) {
            call_free(coordinator, ((struct survey *)work)->call);
            survey_free((struct survey *)work);
        }
        TALLY_LIST_EACH(node, background_works(surveys->background))
        {
            call_free(coordinator, survey_at(node)->call);
        }
        background_free(surveys->background);
    }
    free(surveys);
    coordinator->surveys = NULL;
}

static bool goes_on(void *context, const struct tally_load_progress *progress)
{
    const struct survey *survey = context;
    (void)progress;
    return !atomic_load(&survey->work.stop);
}

/* Reads the file, in the background. */
static void run(struct background_work *work)
{
    struct survey *survey = (struct survey *)work;
    const struct tally_data_source files = {
        .dir = survey->copies + survey->n_body, .on_progress = goes_on, .context = survey};
    survey->status = tally_buffer_append(&survey->text, survey->copies, survey->n_body);
    if (survey->status == TALLY_OK) {
        survey->status =
            tally_document_complete(&survey->text, &files, survey->found, &survey->err);
    }
    if (atomic_load(&work->stop)) {
        tally_buffer_fini(&survey->text);
    }
}

static enum tally_status begin(struct tally_coordinator *coordinator, struct call *call,
                               const char *body, size_t n_body, struct tally_error *err)
{
    struct surveys *surveys = coordinator->surveys;
    const char *dir = coordinator->config.data_dir != NULL ? coordinator->config.data_dir : "";
    if (surveys->n == MAX_SURVEYS) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, "objective.data.features",
                          "%d files of other documents are being read, which is the limit",
                          (int)MAX_SURVEYS);
    }
    if (surveys->background == NULL &&
        background_new(coordinator->loop->wake_fd, &surveys->background, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    struct survey *survey = calloc(1, sizeof *survey + n_body + strlen(dir) + 1);
    if (survey == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a document");
    }
    survey->work.run = run;
    survey->call = call;
    survey->n_body = n_body;
    memcpy(survey->copies, body, n_body);
    memcpy(survey->copies + n_body, dir, strlen(dir) + 1);
    background_add(surveys->background, &survey->work);
    surveys->n++;
    call->is_held = true;
    return TALLY_OK;
}

/* Moves the completed document to the call. */
static enum tally_status take_result(struct survey *survey, struct call *call,
                                     struct tally_error *err)
{
    if (survey->status != TALLY_OK) {
        return tally_fail(err, survey->status, survey->err.field, "%s", survey->err.message);
    }
    tally_log(TALLY_LOG_INFO, tally_log_event("document completed"),
              tally_log_text("found", survey->found));
    call->document = survey->text;
    survey->text = (struct tally_buffer){0};
    return TALLY_OK;
}

enum tally_status surveys_complete(struct tally_coordinator *coordinator, struct call *call,
                                   const char *body, size_t n_body, const char **ret_text,
                                   size_t *ret_n, struct tally_error *err)
{
    struct survey *result = coordinator->surveys->result;
    enum tally_status status = TALLY_OK;
    if (result != NULL && result->call == call) {
        status = take_result(result, call, err);
    } else if (call->document.size == 0 && tally_document_is_open(body, n_body)) {
        status = begin(coordinator, call, body, n_body, err);
    }
    const bool is_completed = call->document.size > 0;
    *ret_text = is_completed ? (const char *)call->document.data : body;
    *ret_n = is_completed ? call->document.size : n_body;
    return status;
}

static void run_again(struct tally_coordinator *coordinator, struct survey *survey)
{
    if (survey->call->request == NULL) {
        call_send(coordinator, survey->call); /* its client has disconnected */
        return;
    }
    coordinator->surveys->result = survey;
    coordinator->jobs->ops->run_again(coordinator, survey->call);
    coordinator->surveys->result = NULL;
}

void surveys_serve(struct tally_coordinator *coordinator)
{
    struct surveys *surveys = coordinator->surveys;
    struct background_work *work;
    if (surveys->n == 0) {
        return;
    }
    TALLY_LIST_EACH(node, background_works(surveys->background))
    {
        if (survey_at(node)->call->request == NULL) {
            atomic_store(&survey_at(node)->work.stop, true);
        }
    }
    while ((work = background_take(surveys->background)) != NULL) {
        surveys->n--;
        run_again(coordinator, (struct survey *)work);
        survey_free((struct survey *)work);
    }
}

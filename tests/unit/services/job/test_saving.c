#include <limits.h>
#include <string.h>

#include "services/algorithms/compression.h"
#include "services/algorithms/server_optimizer.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

/* What a host keeps in its store. */
struct stored {
    enum tally_job_status status;
    struct tally_progress progress;
    struct tally_buffer state;
};

static void save(struct stored *stored, const struct tally_job *job)
{
    stored->status = tally_job_status(job);
    stored->progress = *tally_job_progress(job);
    stored->state.size = 0;
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(job, &stored->state), TALLY_OK);
}

static struct tally_job *restore(const struct tally_job_spec *spec, const struct stored *stored)
{
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_restore(spec, stored->status, &stored->progress,
                                          stored->state.data, stored->state.size, &job, &err),
                        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

static enum tally_status try_restore(const struct tally_job_spec *spec, const struct stored *stored)
{
    struct tally_job *job = NULL;
    enum tally_status status =
        tally_job_restore(spec, stored->status, &stored->progress, stored->state.data,
                          stored->state.size, &job, NULL);
    CU_ASSERT_EQUAL(status == TALLY_OK, job != NULL);
    tally_job_free(job);
    return status;
}

/* Reloads the copy of a new process, which has no broadcasts: it loads the point. */
static void reload_copy(struct job_host *host)
{
    size_t dim;
    const double *x = tally_job_point(host->job, &dim);
    CU_ASSERT_EQUAL(tally_model_copy_load(host->copy, tally_job_progress(host->job)->iterate,
                                          (const uint8_t *)x, dim * sizeof *x, NULL),
                    TALLY_OK);
}

static void expect_same_run(struct job_host *host, struct job_host *expected)
{
    struct job_look a = job_look(host->job), b = job_look(expected->job);
    CU_ASSERT_TRUE(job_looks_same(&a, &b));
    CU_ASSERT_EQUAL(host->n_records, expected->n_records);
    bool same = true;
    for (int i = 0; i < expected->n_records; i++) {
        same = same && job_same_record(&host->records[i], &expected->records[i]);
    }
    CU_ASSERT_TRUE(same);
    job_look_fini(&a);
    job_look_fini(&b);
}

static struct job_host HOST, EXPECTED; /* large: not on the stack */

static void init_both_of(const struct tally_job_spec *spec)
{
    job_host_init(&EXPECTED, spec);
    job_host_run(&EXPECTED);
    job_host_init(&HOST, spec);
}

static void init_both(void)
{
    const struct tally_job_spec spec = job_host_spec();
    init_both_of(&spec);
}

static void fini_both(void)
{
    job_host_fini(&HOST);
    job_host_fini(&EXPECTED);
}

static void restore_at_every_round_boundary(const struct tally_job_spec *spec)
{
    init_both_of(spec);
    struct stored stored = {0};
    while (!tally_job_status_is_terminal(tally_job_status(HOST.job))) {
        save(&stored, HOST.job);
        struct job_look before = job_look(HOST.job);
        tally_job_free(HOST.job);
        HOST.job = restore(&HOST.spec, &stored);
        struct job_look after = job_look(HOST.job);
        CU_ASSERT_TRUE(job_looks_same(&before, &after));
        job_look_fini(&before);
        job_look_fini(&after);
        reload_copy(&HOST);
        job_host_round(&HOST);
    }
    expect_same_run(&HOST, &EXPECTED);
    tally_buffer_fini(&stored.state);
    fini_both();
}

static void test_job_saving__restored_at_every_round_boundary_ends_the_same(void)
{
    const struct tally_job_spec spec = job_host_spec();
    restore_at_every_round_boundary(&spec);
}

static struct tally_job_spec baseline_spec(int algorithm)
{
    struct tally_job_spec spec = job_host_spec();
    spec.algorithm = algorithm;
    spec.params.baseline = (struct tally_baseline_params){
        .step_size = 0.1, .local_steps = 3, .levels = 4, .server_step_size = 1, .alpha = 0.5};
    spec.params.baseline.k = 2;
    return spec;
}

/* The memory of the server's optimizer is restored too, and so are the clients' shifts. */
static void test_job_saving__memories_end_the_same(void)
{
    for (int type = 0; TALLY_SERVER_OPTIMIZER_NAMES[type] != NULL; type++) {
        struct tally_job_spec spec = baseline_spec(2 + type % 3); /* fedavg, fedpaq, fedcom */
        spec.params.baseline.server_optimizer = tally_server_optimizer_defaults();
        spec.params.baseline.server_optimizer.type = type;
        spec.params.baseline.server_optimizer.step_size = 0.1;
        restore_at_every_round_boundary(&spec);
    }
    for (int a = 0; TALLY_ALGORITHMS[a] != NULL; a++) {
        if (TALLY_ALGORITHMS[a]->shift_start != NULL && TALLY_ALGORITHMS[a] != &TALLY_CALM) {
            const struct tally_job_spec spec = baseline_spec(a);
            restore_at_every_round_boundary(&spec);
        }
    }
}

/* A crash after each message of each round. With `late` the state is saved at the crash itself,
 * otherwise at the last round boundary, as in the coordinator. In both cases the acknowledged
 * updates of the open round are received again, one by one. */
static void crash_after_every_message(bool late)
{
    init_both();
    struct stored stored = {0};
    while (!tally_job_status_is_terminal(tally_job_status(HOST.job))) {
        save(&stored, HOST.job);
        job_host_compute(&HOST);
        for (uint32_t m = 0; m < 5; m++) {
            struct tally_job_outcome outcome = job_host_send(&HOST, m);
            if (outcome.n_records > 0) {
                break;
            }
            struct job_look before = job_look(HOST.job);
            if (late) {
                save(&stored, HOST.job);
            }
            tally_job_free(HOST.job);
            HOST.job = restore(&HOST.spec, &stored);
            CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->received, 0);
            for (uint32_t again = 0; again <= m; again++) {
                CU_ASSERT_FALSE(tally_job_has_received(HOST.job, again));
                CU_ASSERT_FALSE(job_host_send(&HOST, again).duplicate);
            }
            struct job_look after = job_look(HOST.job);
            CU_ASSERT_TRUE(job_looks_same(&before, &after));
            job_look_fini(&before);
            job_look_fini(&after);
        }
        if (!tally_job_status_is_terminal(tally_job_status(HOST.job))) {
            reload_copy(&HOST);
        }
    }
    expect_same_run(&HOST, &EXPECTED);
    tally_buffer_fini(&stored.state);
    fini_both();
}

static void test_job_saving__crash_after_every_message_with_state_of_the_boundary(void)
{
    crash_after_every_message(false);
}

static void test_job_saving__crash_after_every_message_with_state_of_the_moment(void)
{
    crash_after_every_message(true);
}

/* A client whose response was lost in the crash sends the message of the closed round again. */
static void test_job_saving__restored_job_still_knows_the_last_messages(void)
{
    init_both();
    job_host_round(&HOST);
    struct stored stored = {0};
    save(&stored, HOST.job);
    tally_job_free(HOST.job);
    HOST.job = restore(&HOST.spec, &stored);
    for (uint32_t m = 0; m < 5; m++) {
        struct tally_job_outcome outcome;
        CU_ASSERT_EQUAL(tally_job_receive(HOST.job, &HOST.updates[m], &outcome, NULL), TALLY_OK);
        CU_ASSERT_TRUE(outcome.duplicate);
        CU_ASSERT_EQUAL(memcmp(&outcome.bits, &HOST.bits[m], sizeof outcome.bits), 0);
        struct tally_update other = HOST.updates[m];
        other.clipped ^= 1;
        CU_ASSERT_EQUAL(tally_job_receive(HOST.job, &other, &outcome, NULL), TALLY_ALREADY_EXISTS);
    }
    CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->received, 0);
    tally_buffer_fini(&stored.state);
    fini_both();
}

static void test_job_saving__every_status_comes_back(void)
{
    init_both();
    struct stored stored = {0};
    struct tally_job *job;

    tally_job_pause(HOST.job, NULL);
    save(&stored, HOST.job);
    job = restore(&HOST.spec, &stored);
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_PAUSED);
    CU_ASSERT_EQUAL(tally_job_open_round(job)->round, 1);
    CU_ASSERT_EQUAL(tally_job_resume(job, NULL), TALLY_OK);
    tally_job_free(job);

    tally_job_cancel(HOST.job, NULL);
    save(&stored, HOST.job);
    job = restore(&HOST.spec, &stored);
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_CANCELLED);
    tally_job_free(job);

    save(&stored, EXPECTED.job);
    job = restore(&HOST.spec, &stored);
    struct job_look a = job_look(job), b = job_look(EXPECTED.job);
    CU_ASSERT_TRUE(job_looks_same(&a, &b));
    job_look_fini(&a);
    job_look_fini(&b);
    tally_job_free(job);
    tally_buffer_fini(&stored.state);
    fini_both();
}

/* Nothing was ever saved: the job is queued, or running without a closed round. */
static void test_job_saving__job_without_state_starts_at_the_beginning(void)
{
    init_both();
    struct stored stored = {.status = TALLY_JOB_QUEUED};
    struct tally_job *job = restore(&HOST.spec, &stored);
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_QUEUED);
    CU_ASSERT_FALSE(tally_job_progress(job)->has_f_star);
    CU_ASSERT_EQUAL(tally_job_start(job, 1, "", NULL), TALLY_OK);
    tally_job_free(job);

    stored.status = TALLY_JOB_RUNNING;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS); /* f(x*) is lost */
    stored.progress.f_star = HOST.f_star;
    stored.progress.has_f_star = true;
    tally_job_free(HOST.job);
    HOST.job = restore(&HOST.spec, &stored);
    job_host_run(&HOST);
    expect_same_run(&HOST, &EXPECTED);
    stored.progress.round = 1;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    fini_both();
}

static void test_job_saving__damaged_bytes_are_data_loss(void)
{
    init_both();
    job_host_round(&HOST);
    struct stored stored = {0};
    save(&stored, HOST.job);
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_OK);
    bool refused = true;
    for (size_t bit = 0; bit < 8 * stored.state.size; bit++) {
        stored.state.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused = refused && try_restore(&HOST.spec, &stored) == TALLY_DATA_LOSS;
        stored.state.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_TRUE(refused);
    const size_t size = stored.state.size;
    for (stored.state.size = 1; stored.state.size < size; stored.state.size++) {
        CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    }
    CU_ASSERT_EQUAL(tally_buffer_append(&stored.state, "", 1), TALLY_OK);
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    tally_buffer_fini(&stored.state);
    fini_both();
}

static void test_job_saving__progress_that_does_not_fit_is_data_loss(void)
{
    init_both();
    job_host_round(&HOST);
    struct stored stored = {0};
    save(&stored, HOST.job);
    const struct tally_progress good = stored.progress;
    stored.progress.x_checksum ^= 1;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.progress = good;
    stored.progress.time_step = 301;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.progress.time_step = -1;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.progress = good;
    stored.progress.round = -1;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.progress = good;
    stored.progress.iterate = 0;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.progress = good;
    stored.progress.has_f_star = false;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.progress = good;
    stored.status = TALLY_JOB_COMPLETED;
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.status = TALLY_JOB_RUNNING;

    struct tally_job_spec other = HOST.spec;
    other.clients = 4;
    CU_ASSERT_EQUAL(try_restore(&other, &stored), TALLY_DATA_LOSS);
    other = HOST.spec;
    other.objective.data.synthetic_linear.dim = 7;
    CU_ASSERT_EQUAL(try_restore(&other, &stored), TALLY_DATA_LOSS);
    tally_buffer_fini(&stored.state);
    fini_both();
}

/* save_state() appends; the bytes before it do not matter. */
static void test_job_saving__appends_to_the_buffer(void)
{
    init_both();
    job_host_round(&HOST);
    struct tally_buffer alone = {0}, behind = {0};
    CU_ASSERT_EQUAL(tally_job_save_state(HOST.job, &alone), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append_text(&behind, "abc"), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_save_state(HOST.job, &behind), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(behind.size, alone.size + 3);
    CU_ASSERT_EQUAL(memcmp(behind.data + 3, alone.data, alone.size), 0);
    tally_buffer_fini(&alone);
    tally_buffer_fini(&behind);
    fini_both();
}

static struct tally_saved saved_at(const struct tally_job *job)
{
    const struct tally_progress *progress = tally_job_progress(job);
    return (struct tally_saved){progress->round, progress->iterate};
}

/* Appends the changes since `since` to what is stored. */
static void save_change(struct stored *stored, const struct tally_job *job,
                        struct tally_saved since)
{
    struct tally_error err = TALLY_ERROR_INIT;
    stored->status = tally_job_status(job);
    stored->progress = *tally_job_progress(job);
    TALLY_ASSERT_STATUS(tally_job_save_change(job, &since, &stored->state, &err), TALLY_OK, &err);
}

static void expect_restored_like(const struct stored *stored, const struct tally_job *expected)
{
    struct tally_job *job = restore(tally_job_get_spec(expected), stored);
    struct job_look a = job_look(job), b = job_look(expected);
    CU_ASSERT_TRUE(job_looks_same(&a, &b));
    job_look_fini(&a);
    job_look_fini(&b);
    tally_job_free(job);
}

/* Saves the whole state every `every` rounds, and in between the changes every `stride` rounds. */
static void save_changes_of(const struct tally_job_spec *spec, int every, int stride)
{
    job_host_init(&HOST, spec);
    struct stored stored = {0};
    struct tally_saved since = {0};
    int n_changes = 0;
    for (int n = 0; !tally_job_status_is_terminal(tally_job_status(HOST.job)); n++) {
        job_host_round(&HOST);
        if (n % every == 0) {
            save(&stored, HOST.job);
        } else if (n % stride == 0) {
            save_change(&stored, HOST.job, since);
            n_changes++;
        } else {
            continue;
        }
        since = saved_at(HOST.job);
        expect_restored_like(&stored, HOST.job);
    }
    CU_ASSERT_TRUE(n_changes > 1);
    tally_buffer_fini(&stored.state);
    job_host_fini(&HOST);
}

static void test_job_saving__whole_and_changes_are_the_state_of_now(void)
{
    struct tally_job_spec spec = job_host_spec();
    save_changes_of(&spec, INT_MAX, 1);
    save_changes_of(&spec, 4, 1);
    save_changes_of(&spec, 8, 3); /* some changes have several broadcasts */
    spec.domain = (struct tally_domain){.type = TALLY_DOMAIN_BALL, .radius = 3};
    save_changes_of(&spec, INT_MAX, 1);
    for (int a = 0; TALLY_ALGORITHMS[a] != NULL; a++) {
        if (TALLY_ALGORITHMS[a]->takes_cohorts) { /* the others keep more, or are ceal */
            spec = baseline_spec(a);
            save_changes_of(&spec, INT_MAX, 2);
        }
    }
}

/* The bytes of a whole state: with the memory, which job_look() does not have. */
static bool is_same_state(const struct tally_job *a, const struct tally_job *b)
{
    struct tally_buffer one = {0}, other = {0};
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(a, &one), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(b, &other), TALLY_OK);
    const bool same = one.size == other.size && memcmp(one.data, other.data, one.size) == 0;
    tally_buffer_fini(&one);
    tally_buffer_fini(&other);
    return same;
}

/* Saves the whole state after each round that a change cannot tell, and the changes of the others.
 * Returns how many changes there were. Every third round, the job continues from what is stored. */
static int save_changes_of_memory(const struct tally_job_spec *spec)
{
    struct stored stored = {0};
    struct tally_saved since = {0};
    int n_changes = 0, n_other = 0;
    bool same = true;
    init_both_of(spec);
    for (int n = 0; !tally_job_status_is_terminal(tally_job_status(HOST.job)); n++) {
        job_host_round(&HOST);
        if (tally_job_change_bytes(HOST.job, &since) == SIZE_MAX) {
            save(&stored, HOST.job);
        } else {
            const size_t announced = tally_job_change_bytes(HOST.job, &since);
            const size_t before = stored.state.size;
            save_change(&stored, HOST.job, since);
            CU_ASSERT_EQUAL(stored.state.size, before + announced);
            n_changes++;
        }
        since = saved_at(HOST.job);
        struct tally_job *job = restore(spec, &stored);
        same = same && is_same_state(job, HOST.job);
        if (n % 3 == 2) {
            struct tally_job *old = HOST.job;
            HOST.job = job;
            tally_job_free(old);
            reload_copy(&HOST);
            n_other += tally_job_change_bytes(HOST.job, &since) != SIZE_MAX;
        } else {
            tally_job_free(job);
        }
    }
    CU_ASSERT_TRUE(same);
    CU_ASSERT_EQUAL(n_other, 0); /* a restored engine has not closed a round */
    expect_same_run(&HOST, &EXPECTED);
    tally_buffer_fini(&stored.state);
    fini_both();
    return n_changes;
}

static struct tally_job_spec long_spec(int algorithm)
{
    struct tally_job_spec spec = baseline_spec(algorithm);
    spec.objective.data.synthetic_linear.dim = 600;
    spec.objective.data.synthetic_linear.points = 700;
    spec.params.baseline.step_size = 1e-3;
    spec.horizon = 60;
    return spec;
}

static void test_job_saving__messages_are_the_change_of_a_memory(void)
{
    struct tally_job_spec spec = long_spec(2); /* fedavg */
    spec.params.baseline.compression.type = TALLY_COMPRESSION_AUTO;
    CU_ASSERT_TRUE(save_changes_of_memory(&spec) > 10);
    spec.params.baseline.server_optimizer = tally_server_optimizer_defaults();
    spec.params.baseline.server_optimizer.type = TALLY_FEDADAM;
    spec.params.baseline.server_optimizer.step_size = 1e-3;
    CU_ASSERT_TRUE(save_changes_of_memory(&spec) > 10);
    spec.cohort = 2;
    CU_ASSERT_TRUE(save_changes_of_memory(&spec) > 10);
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 1;
    CU_ASSERT_TRUE(save_changes_of_memory(&spec) > 10);
    spec = long_spec(2); /* its messages are too long to be kept */
    spec.params.baseline.server_optimizer = tally_server_optimizer_defaults();
    spec.params.baseline.server_optimizer.type = TALLY_FEDADAM;
    spec.params.baseline.server_optimizer.step_size = 1e-3;
    CU_ASSERT_EQUAL(save_changes_of_memory(&spec), 0);
    for (int a = 0; TALLY_ALGORITHMS[a] != NULL; a++) {
        const bool is_calm = TALLY_ALGORITHMS[a] == &TALLY_CALM;
        if (TALLY_ALGORITHMS[a]->shift_start != NULL && TALLY_ALGORITHMS[a] != &TALLY_SCAFFOLD) {
            spec = long_spec(a);
            spec.params.baseline.k = 20;
            if (is_calm) { /* with an opening round, which no change tells */
                spec.params = TALLY_CALM.defaults();
                spec.params.calm.step_size = 0.1;
                spec.encoding = TALLY_ENCODING_INDEX_DITHERED;
                spec.horizon = 600;
            }
            CU_ASSERT_TRUE(save_changes_of_memory(&spec) > 3);
        }
    }
}

static struct tally_job_spec cohort_spec(void)
{
    struct tally_job_spec spec = baseline_spec(2);
    spec.cohort = 2;
    spec.horizon = 301; /* the last round is cut */
    return spec;
}

static void test_job_saving__cohorts_end_the_same(void)
{
    struct tally_job_spec spec = cohort_spec();
    restore_at_every_round_boundary(&spec);
    save_changes_of(&spec, INT_MAX, 1);
    save_changes_of(&spec, INT_MAX, 2);
    save_changes_of(&spec, 7, 3);
    spec.params.baseline.server_optimizer = tally_server_optimizer_defaults();
    spec.params.baseline.server_optimizer.type = TALLY_FEDADAM;
    spec.params.baseline.server_optimizer.step_size = 0.1;
    restore_at_every_round_boundary(&spec);
}

static enum tally_status receive(const struct tally_update *update,
                                 struct tally_job_outcome *ret_outcome)
{
    return tally_job_receive(HOST.job, update, ret_outcome, NULL);
}

/* 2 of 5 clients take part in a round. A client that waits for a response may not be drawn for the
 * next rounds. It is told again for 16 rounds, before and after a restart. */
static void test_job_saving__cohorts_keep_receipts_for_sixteen_rounds(void)
{
    const struct tally_job_spec spec = cohort_spec();
    struct stored stored = {0};
    struct tally_job_outcome outcome;
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    uint32_t n;
    const uint32_t client = tally_job_cohort(HOST.job, &n)[0];
    uint8_t payload[64];
    struct tally_update update = HOST.updates[client];
    CU_ASSERT_FATAL(update.payload.size <= sizeof payload);
    memcpy(payload, update.payload.data, update.payload.size);
    update.payload.data = payload;
    for (int64_t round = 1; round <= 18; round++) {
        job_host_round(&HOST);
        if (tally_job_receipt(HOST.job, client).round > 1) {
            break; /* drawn again: the client has sent another update */
        }
        for (int restarted = 0; restarted < 2; restarted++) {
            const bool is_kept = round <= 16;
            CU_ASSERT_EQUAL(receive(&update, &outcome),
                            is_kept ? TALLY_OK : TALLY_FAILED_PRECONDITION);
            CU_ASSERT_TRUE(!is_kept || outcome.duplicate);
            save(&stored, HOST.job);
            tally_job_free(HOST.job);
            HOST.job = restore(&spec, &stored);
        }
        reload_copy(&HOST);
    }
    tally_buffer_fini(&stored.state);
    job_host_fini(&HOST);
}

static void test_job_saving__damaged_cohorts_are_data_loss(void)
{
    const struct tally_job_spec spec = cohort_spec();
    struct stored stored = {0};
    job_host_init(&HOST, &spec);
    for (int i = 0; i < 3; i++) {
        job_host_round(&HOST);
    }
    save(&stored, HOST.job);
    const struct tally_saved since = saved_at(HOST.job);
    job_host_round(&HOST);
    save_change(&stored, HOST.job, since);
    bool refused = true;
    for (size_t bit = 0; bit < 8 * stored.state.size; bit++) {
        stored.state.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused = refused && try_restore(&spec, &stored) == TALLY_DATA_LOSS;
        stored.state.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_TRUE(refused);
    for (size_t size = stored.state.size; stored.state.size-- > 1;) {
        CU_ASSERT_EQUAL(try_restore(&spec, &stored), TALLY_DATA_LOSS);
        CU_ASSERT_TRUE(stored.state.size < size);
    }
    tally_buffer_fini(&stored.state);
    job_host_fini(&HOST);
}

static void test_job_saving__damaged_changes_are_data_loss(void)
{
    init_both();
    struct stored stored = {0};
    size_t ends[8];
    struct tally_saved since = {0};
    int n = 0;
    for (; n < 8; n++) { /* the last two stages pass */
        job_host_round(&HOST);
        if (n == 0) {
            save(&stored, HOST.job);
        } else {
            save_change(&stored, HOST.job, since);
        }
        since = saved_at(HOST.job);
        ends[n] = stored.state.size;
    }
    expect_restored_like(&stored, HOST.job);
    bool refused = true;
    for (size_t bit = 8 * ends[0]; bit < 8 * stored.state.size; bit++) {
        stored.state.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused = refused && try_restore(&HOST.spec, &stored) == TALLY_DATA_LOSS;
        stored.state.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_TRUE(refused);
    const size_t size = stored.state.size;
    for (stored.state.size = ends[0]; stored.state.size < size; stored.state.size++) {
        CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    }
    /* The last change twice, and the last two in reverse order. */
    struct tally_buffer good = stored.state;
    stored.state = (struct tally_buffer){0};
    tally_buffer_append(&stored.state, good.data, size);
    tally_buffer_append(&stored.state, good.data + ends[6], size - ends[6]);
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    stored.state.size = ends[5];
    tally_buffer_append(&stored.state, good.data + ends[6], size - ends[6]);
    tally_buffer_append(&stored.state, good.data + ends[5], ends[6] - ends[5]);
    CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
    /* A change whose round passed is missing in the middle. */
    for (int i = 1; i < 7; i++) {
        if (HOST.records[i].passed) {
            stored.state.size = ends[i - 1];
            tally_buffer_append(&stored.state, good.data + ends[i], size - ends[i]);
            CU_ASSERT_EQUAL(try_restore(&HOST.spec, &stored), TALLY_DATA_LOSS);
        }
    }
    tally_buffer_fini(&good);
    tally_buffer_fini(&stored.state);
    fini_both();
}

/* The engine keeps 16 broadcasts; a restored one starts with none. */
static void test_job_saving__change_since_too_long_ago_is_refused(void)
{
    const struct tally_job_spec spec = baseline_spec(1);
    job_host_init(&HOST, &spec);
    while (tally_job_progress(HOST.job)->iterate < 20) { /* every round passes */
        job_host_round(&HOST);
    }
    struct stored stored = {0};
    save(&stored, HOST.job);
    const size_t size = stored.state.size;
    const struct tally_saved refused[] = {{0, 0}, {2, 3}, {20, 21}};
    for (size_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(tally_job_save_change(HOST.job, &refused[i], &stored.state, NULL),
                        TALLY_FAILED_PRECONDITION);
    }
    CU_ASSERT_EQUAL(stored.state.size, size);
    const struct tally_saved fourth = {3, 4}, nineteenth = {18, 19}, twentieth = {19, 20};
    CU_ASSERT_EQUAL(tally_job_change_bytes(HOST.job, &refused[1]), SIZE_MAX);
    const size_t announced = tally_job_change_bytes(HOST.job, &fourth);
    struct tally_job *job = restore(&spec, &stored);
    CU_ASSERT_EQUAL(tally_job_save_change(job, &nineteenth, &stored.state, NULL),
                    TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_save_change(job, &twentieth, &stored.state, NULL), TALLY_OK);
    stored.state.size = 0;
    CU_ASSERT_EQUAL(tally_job_save_change(HOST.job, &fourth, &stored.state, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(stored.state.size, announced);
    tally_job_free(job);
    tally_buffer_fini(&stored.state);
    job_host_fini(&HOST);
}

/* A given initial point is only in the state, so a job that has started is not restored without. */
static void test_job_saving__a_given_initial_point_is_part_of_the_state(void)
{
    struct tally_job_spec spec = job_host_spec();
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    double start[] = {1, -2, 3, -4, 5, 1e-300}, *made = NULL;
    size_t dim;
    spec.initial_point = (struct tally_initial_point){.type = TALLY_INITIAL_NPY, .file = "x.npy"};
    spec.domain = (struct tally_domain){.type = TALLY_DOMAIN_BOX, .lower = -3, .upper = 4};
    TALLY_ASSERT_STATUS(tally_job_new(&spec, &job, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(tally_job_make_initial_point(&spec, &made, NULL), TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_STATUS(tally_job_start_from(job, start, 0.5, "", &err), TALLY_OK, &err);
    struct stored stored = {.status = TALLY_JOB_QUEUED};
    save(&stored, job);
    struct tally_job *again = restore(&spec, &stored);
    start[3] = -3; /* the domain holds for it, too */
    start[4] = 4;
    CU_ASSERT_EQUAL(memcmp(tally_job_point(again, &dim), start, sizeof start), 0);
    CU_ASSERT_EQUAL(tally_job_open_round(again)->mark, tally_job_open_round(job)->mark);
    tally_job_free(again);
    stored.state.size = 0;
    CU_ASSERT_EQUAL(try_restore(&spec, &stored), TALLY_DATA_LOSS);
    stored.status = TALLY_JOB_CANCELLED; /* before it started: it has no point */
    again = restore(&spec, &stored);
    CU_ASSERT_PTR_NULL(tally_job_point(again, &dim));
    tally_job_free(again);
    tally_job_free(job);
    tally_buffer_fini(&stored.state);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_saving__restored_at_every_round_boundary_ends_the_same),
    TALLY_TEST(test_job_saving__memories_end_the_same),
    TALLY_TEST(test_job_saving__crash_after_every_message_with_state_of_the_boundary),
    TALLY_TEST(test_job_saving__crash_after_every_message_with_state_of_the_moment),
    TALLY_TEST(test_job_saving__restored_job_still_knows_the_last_messages),
    TALLY_TEST(test_job_saving__every_status_comes_back),
    TALLY_TEST(test_job_saving__job_without_state_starts_at_the_beginning),
    TALLY_TEST(test_job_saving__a_given_initial_point_is_part_of_the_state),
    TALLY_TEST(test_job_saving__damaged_bytes_are_data_loss),
    TALLY_TEST(test_job_saving__progress_that_does_not_fit_is_data_loss),
    TALLY_TEST(test_job_saving__appends_to_the_buffer),
    TALLY_TEST(test_job_saving__whole_and_changes_are_the_state_of_now),
    TALLY_TEST(test_job_saving__cohorts_end_the_same),
    TALLY_TEST(test_job_saving__cohorts_keep_receipts_for_sixteen_rounds),
    TALLY_TEST(test_job_saving__damaged_cohorts_are_data_loss),
    TALLY_TEST(test_job_saving__damaged_changes_are_data_loss),
    TALLY_TEST(test_job_saving__messages_are_the_change_of_a_memory),
    TALLY_TEST(test_job_saving__change_since_too_long_ago_is_refused),
};
TALLY_SUITE(job_saving, TESTS);

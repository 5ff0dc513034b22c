#include "tests/bench/players.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/problem.h"
#include "codec/encoding.h"
#include "services/base/time.h"

static const char JOIN[] = "/tally.v1.WorkerService/Join";
static const char POLL[] = "/tally.v1.WorkerService/PollTask";
static const char UPDATE[] = "/tally.v1.WorkerService/PostUpdate";

enum {
    STEP_MS = 100,
    HANG_MS = 60000, /* no response for so long is an error */
    /* The minimum wait of a poll, as for a worker. Random up to twice that, so that idle players do
     * not all poll again at once. */
    WAIT_MS = 10000,
    /* Different messages take turns: the branch predictor would learn a single one. */
    MAX_MESSAGES = 64,
    MESSAGES_BYTES = 32 << 20, /* of all messages, but at least MIN_MESSAGES of them */
    MIN_MESSAGES = 8,
    ACCUMULATE_TIMES = 5,
};

enum call { CALL_JOIN, CALL_POLL, CALL_UPDATE };

struct player {
    uint64_t session;
    enum call call;                             /* the pending one */
    uint64_t iterate;                           /* of the player's point; 0 = none */
    uint32_t message;                           /* first message of the last update, .. */
    uint32_t n_clients;                         /* .. and number of its messages */
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* of the point */
};

struct message {
    struct tally_buffer payload;
    struct tally_level_stats stats;
    uint32_t clipped;
};

struct tally_players {
    struct tally_players_config config;
    struct tally_load *load;
    struct tally_poll_response response; /* large */
    struct tally_buffer body, poll, end; /* of requests */
    struct tally_update_request last;    /* its poll is in `poll` */
    uint32_t last_client;
    const struct tally_encoding *encoding;
    struct tally_grid grid; /* of the messages; 0 = no messages yet */
    struct message messages[MAX_MESSAGES];
    uint32_t n_messages, n_joined;
    struct tally_rng jitter;
    struct tally_play play;
    int64_t begin_ns, round_ns; /* when job and round began; 0 = not yet */
    struct player players[];
};

/* ---- Messages ---- */

static void messages_fini(struct tally_players *players)
{
    for (uint32_t i = 0; i < MAX_MESSAGES; i++) {
        tally_buffer_fini(&players->messages[i].payload);
    }
}

/* One vector of standard deviation 1 step is rounded anew for every message, so that messages are
 * as similar as gradients of clients that agree. */
static enum tally_status draw_messages(struct tally_players *players, const float *y,
                                       int32_t *scratch, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    players->n_messages = 0;
    size_t n_bytes = 0;
    while (status == TALLY_OK && players->n_messages < MAX_MESSAGES &&
           (players->n_messages < MIN_MESSAGES || n_bytes < MESSAGES_BYTES)) {
        struct message *message = &players->messages[players->n_messages];
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(1, 0), 0, players->n_messages++, TALLY_RNG_UPLINK);
        const struct tally_vector vector = {
            .y = y, .dim = players->config.dim, .grid = &players->grid, .rng = &rng};
        uint64_t clipped;
        status = tally_quantize_encode(players->encoding, &vector, scratch, &message->payload,
                                       &message->stats, &clipped, err);
        message->clipped = (uint32_t)clipped;
        n_bytes += message->payload.size;
    }
    return status;
}

static enum tally_status make_messages(struct tally_players *players, const struct tally_task *task,
                                       struct tally_error *err)
{
    const size_t dim = players->config.dim;
    players->grid =
        (struct tally_grid){.step = task->quantizer_step, .intervals = task->quantizer_intervals};
    players->encoding = NULL;
    for (size_t i = 0; TALLY_ENCODINGS[i] != NULL; i++) {
        if (strcmp(TALLY_ENCODINGS[i]->name, task->encoding) == 0) {
            players->encoding = TALLY_ENCODINGS[i];
        }
    }
    if (players->encoding == NULL || !tally_grid_is_valid(&players->grid)) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "a task without encoding or grid");
    }
    float *y = malloc(dim * sizeof *y);
    int32_t *scratch = malloc(dim * sizeof *scratch);
    enum tally_status status = TALLY_OK;
    if (y == NULL || scratch == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu coordinates", dim);
    } else {
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(1, 0), 0, 0, TALLY_RNG_NOISE);
        for (size_t i = 0; i < dim; i++) {
            double normal;
            tally_rng_normal(&rng, &normal, 1);
            y[i] = (float)(players->grid.step * normal);
        }
        status = draw_messages(players, y, scratch, err);
    }
    free(y);
    free(scratch);
    return status;
}

/* ---- Calls ---- */

static enum tally_status call(struct tally_players *players, uint32_t index, enum call which,
                              const char *path, enum tally_status encoded,
                              const struct tally_load_body *body, struct tally_error *err)
{
    if (encoded != TALLY_OK) {
        return tally_fail(err, encoded, NULL, "no memory for a request");
    }
    players->players[index].call = which;
    return tally_load_post(players->load, index, path, body, err);
}

static enum tally_status join(struct tally_players *players, uint32_t index,
                              struct tally_error *err)
{
    struct tally_join_request request = {.slots = players->config.clients_per_worker,
                                         .format = TALLY_FORMAT_VERSION};
    snprintf(request.name, sizeof request.name, "player-%u", index);
    players->body.size = 0;
    enum tally_status encoded = tally_join_request_encode(&request, &players->body);
    const struct tally_load_body body = {.begin = players->body.data,
                                         .n_begin = players->body.size};
    return call(players, index, CALL_JOIN, JOIN, encoded, &body, err);
}

/* Replaces the content of `out` by a player's poll; in an update, no job is named. */
static enum tally_status write_poll(struct tally_players *players, const struct player *player,
                                    bool names_job, struct tally_buffer *out)
{
    const double wait_ms = WAIT_MS * (1 + tally_rng_uniform(&players->jitter));
    struct tally_poll_request request = {.session = player->session,
                                         .wait_ms = (uint32_t)wait_ms,
                                         .n_cursors = player->iterate > 0 ? 1 : 0};
    request.cursors[0].iterate = player->iterate;
    if (names_job) {
        memcpy(request.cursors[0].job_id, player->job_id, sizeof player->job_id);
    }
    out->size = 0;
    return tally_poll_request_encode(&request, out);
}

static enum tally_status poll(struct tally_players *players, uint32_t index,
                              struct tally_error *err)
{
    enum tally_status encoded = write_poll(players, &players->players[index], true, &players->body);
    const struct tally_load_body body = {.begin = players->body.data,
                                         .n_begin = players->body.size};
    return call(players, index, CALL_POLL, POLL, encoded, &body, err);
}

static const struct message *message_of(const struct tally_players *players,
                                        const struct player *player, uint32_t i)
{
    return &players->messages[(player->message + i) % players->n_messages];
}

static struct tally_update update_of(const struct message *message, uint32_t client)
{
    return (struct tally_update){.client = client,
                                 .payload = {message->payload.data, message->payload.size},
                                 .payload_bits = message->stats.payload_bits,
                                 .clipped = message->clipped};
}

static size_t put_varint(uint8_t *out, uint64_t value)
{
    size_t n = 0;
    for (; value > 0x7f; value >>= 7) {
        out[n++] = (uint8_t)(value | 0x80);
    }
    out[n++] = (uint8_t)value;
    return n;
}

/* Writes a request with one update around the payload, so that the payload itself need not be
 * copied into every request:
 *
 *     | session | 6: length | 1: client | 3: bits | 4: clipped | 2: length | payload | job ... poll
 * | */
static enum tally_status write_around(struct tally_players *players, const struct message *message,
                                      struct tally_load_body *ret_body)
{
    struct tally_update update = update_of(message, players->last_client);
    struct tally_update_request rest = players->last;
    uint8_t head[TALLY_SESSION_FIELD_BYTES + 11], length[11] = {2 << 3 | 2};
    const size_t n_length = 1 + put_varint(length + 1, message->payload.size);
    update.payload.size = players->body.size = players->end.size = 0;
    enum tally_status status = tally_update_request_add(&update, &players->end);
    const size_t n_fields = players->end.size - 2; /* without tag and length, which are replaced */
    tally_session_write_first(rest.session, head);
    size_t n_head = TALLY_SESSION_FIELD_BYTES;
    head[n_head++] = 6 << 3 | 2;
    n_head += put_varint(head + n_head, n_fields + n_length + message->payload.size);
    if (status == TALLY_OK) {
        status = tally_buffer_append(&players->body, head, n_head);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(&players->body, players->end.data + 2, n_fields);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(&players->body, length, n_length);
    }
    players->end.size = 0;
    rest.session = 0;
    rest.poll = (struct tally_bytes){players->poll.data, players->poll.size};
    if (status == TALLY_OK) {
        status = tally_update_request_end(&rest, &players->end);
    }
    *ret_body = (struct tally_load_body){.begin = players->body.data,
                                         .n_begin = players->body.size,
                                         .middle = message->payload.data,
                                         .n_middle = message->payload.size,
                                         .end = players->end.data,
                                         .n_end = players->end.size};
    return status;
}

/* Writes a request with the updates of all clients of a worker. */
static enum tally_status write_together(struct tally_players *players, const struct player *player,
                                        const struct tally_task *task,
                                        struct tally_load_body *ret_body)
{
    enum tally_status status = TALLY_OK;
    players->body.size = 0;
    for (uint32_t i = 0; status == TALLY_OK && i < player->n_clients; i++) {
        const struct tally_update update =
            update_of(message_of(players, player, i), task->clients[i]);
        status = tally_update_request_add(&update, &players->body);
    }
    struct tally_update_request whole = players->last;
    whole.poll = (struct tally_bytes){players->poll.data, players->poll.size};
    if (status == TALLY_OK) {
        status = tally_update_request_end(&whole, &players->body);
    }
    *ret_body =
        (struct tally_load_body){.begin = players->body.data, .n_begin = players->body.size};
    return status;
}

/* Posts the updates of all clients of a worker, and the poll whose result is in the response. */
static enum tally_status update(struct tally_players *players, uint32_t index,
                                const struct tally_task *task, struct tally_error *err)
{
    struct player *player = &players->players[index];
    players->last = (struct tally_update_request){
        .session = player->session, .round = task->round, .has_poll = true};
    memcpy(players->last.job_id, task->job_id, sizeof task->job_id);
    players->last_client = task->clients[0];
    player->message = (index + task->round) % players->n_messages;
    player->n_clients = (uint32_t)task->n_clients;
    struct tally_load_body body = {.n_begin = 0};
    enum tally_status encoded = write_poll(players, player, false, &players->poll);
    if (encoded == TALLY_OK) {
        encoded = player->n_clients == 1
                      ? write_around(players, message_of(players, player, 0), &body)
                      : write_together(players, player, task, &body);
    }
    return call(players, index, CALL_UPDATE, UPDATE, encoded, &body, err);
}

/* ---- Answers ---- */

static enum tally_status take_task(struct tally_players *players, uint32_t index,
                                   const struct tally_task *task, struct tally_error *err)
{
    struct player *player = &players->players[index];
    enum tally_status status = TALLY_OK;
    if (players->n_messages == 0) {
        status = make_messages(players, task, err);
    }
    if (status == TALLY_OK &&
        (task->n_clients < 1 || task->n_clients > players->config.clients_per_worker || task->cut ||
         task->quantizer_step != players->grid.step ||
         task->quantizer_intervals != players->grid.intervals)) {
        status = tally_fail(err, TALLY_INTERNAL, NULL,
                            "round %u is not one of a benchmark's job: %zu clients, step %g",
                            task->round, task->n_clients, task->quantizer_step);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (players->begin_ns == 0) {
        players->begin_ns = players->round_ns = tally_monotonic_ns();
    }
    for (size_t i = 0; i < task->n_broadcasts; i++) {
        players->play.payload_bytes += task->broadcasts[i].payload.size;
    }
    players->play.payload_bytes += task->snapshot.size;
    player->iterate = task->iterate;
    memcpy(player->job_id, task->job_id, sizeof player->job_id);
    return update(players, index, task, err);
}

static enum tally_status take_poll(struct tally_players *players, uint32_t index,
                                   const uint8_t *bytes, size_t n, struct tally_error *err)
{
    struct tally_poll_response *response = &players->response;
    enum tally_status status = tally_poll_response_decode(bytes, n, response, err);
    if (status != TALLY_OK) {
        return status;
    }
    switch (response->kind) {
    case TALLY_POLL_IDLE:
        status = poll(players, index, err);
        break;
    case TALLY_POLL_RELEASED:
        players->players[index].iterate = 0;
        status = poll(players, index, err);
        break;
    case TALLY_POLL_TASK:
        status = take_task(players, index, &response->task, err);
        break;
    }
    tally_poll_response_fini(response);
    return status;
}

/* Counts acknowledged updates. Errors: DATA_LOSS (bit counts differ). */
static enum tally_status count_updates(struct tally_players *players, const struct player *player,
                                       uint64_t formula_bits, uint64_t payload_bits,
                                       struct tally_error *err)
{
    struct tally_play *play = &players->play;
    uint64_t formula = 0, payload = 0;
    for (uint32_t i = 0; i < player->n_clients; i++) {
        const struct message *sent = message_of(players, player, i);
        formula += sent->stats.formula_bits;
        payload += sent->stats.payload_bits;
        play->payload_bytes += sent->payload.size;
        if (++play->updates % players->config.clients == 0) {
            const int64_t now_ns = tally_monotonic_ns();
            tally_latencies_add(&play->rounds, now_ns - players->round_ns);
            players->round_ns = now_ns;
        }
    }
    return formula_bits == formula && payload_bits == payload
               ? TALLY_OK
               : tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "the coordinator counts %llu payload bits, expected %llu",
                            (unsigned long long)payload_bits, (unsigned long long)payload);
}

static enum tally_status take_update(struct tally_players *players, uint32_t index,
                                     const struct tally_load_answer *answer,
                                     struct tally_error *err)
{
    struct tally_update_response response;
    enum tally_status status =
        tally_update_response_decode(answer->body, answer->n_body, &response, err);
    if (status == TALLY_OK) {
        status = response.n_results > 0
                     ? tally_fail(err, TALLY_INTERNAL, NULL, "an update was refused")
                     : count_updates(players, &players->players[index], response.formula_bits,
                                     response.payload_bits, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    players->play.answer_bytes += answer->n_body;
    tally_latencies_add(&players->play.posts, answer->ns);
    return response.has_next
               ? take_poll(players, index, response.next.data, response.next.size, err)
               : poll(players, index, err);
}

static enum tally_status take_join(struct tally_players *players, uint32_t index,
                                   const struct tally_load_answer *answer, struct tally_error *err)
{
    struct tally_join_response response;
    enum tally_status status =
        tally_join_response_decode(answer->body, answer->n_body, &response, err);
    if (status == TALLY_OK) {
        players->players[index].session = response.session;
        players->n_joined++;
        status = poll(players, index, err);
    }
    return status;
}

static enum tally_status on_answer(void *context, uint32_t index,
                                   const struct tally_load_answer *answer, struct tally_error *err)
{
    struct tally_players *players = context;
    if (answer->status != 200) {
        struct tally_error problem = TALLY_ERROR_INIT;
        tally_problem_decode(answer->status, (const char *)answer->body, answer->n_body, &problem);
        return tally_fail(err, problem.status, problem.field, "%s", problem.message);
    }
    switch (players->players[index].call) {
    case CALL_JOIN:
        return take_join(players, index, answer, err);
    case CALL_POLL:
        return take_poll(players, index, answer->body, answer->n_body, err);
    case CALL_UPDATE:
        break;
    }
    return take_update(players, index, answer, err);
}

/* ---- Players ---- */

/* Serves what is ready. Errors: also DEADLINE, if no response has arrived for HANG_MS. */
static enum tally_status step(struct tally_players *players, int64_t *last_ms,
                              struct tally_error *err)
{
    uint32_t n;
    enum tally_status status = tally_load_step(players->load, STEP_MS, &n, err);
    const int64_t now_ms = tally_monotonic_ms();
    if (n > 0) {
        *last_ms = now_ms;
    } else if (status == TALLY_OK && now_ms - *last_ms > HANG_MS) {
        status = tally_fail(err, TALLY_DEADLINE, NULL, "no answer for %d s, after %llu updates",
                            HANG_MS / 1000, (unsigned long long)players->play.updates);
    }
    return status;
}

enum tally_status tally_players_new(const struct tally_players_config *config,
                                    struct tally_players **ret_players, struct tally_error *err)
{
    struct tally_players *players =
        calloc(1, sizeof *players + config->n * sizeof players->players[0]);
    if (players == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u workers", config->n);
    }
    players->config = *config;
    tally_rng_init(&players->jitter, tally_rng_key(1, 0), 0, 0, TALLY_RNG_SAMPLING);
    enum tally_status status =
        tally_load_new(config->port, config->n, on_answer, players, &players->load, err);
    for (uint32_t i = 0; status == TALLY_OK && i < config->n; i++) {
        status = join(players, i, err);
    }
    int64_t last_ms = tally_monotonic_ms();
    while (status == TALLY_OK && players->n_joined < config->n) {
        status = step(players, &last_ms, err);
    }
    if (status != TALLY_OK) {
        tally_players_free(players);
        return status;
    }
    *ret_players = players;
    return TALLY_OK;
}

void tally_players_free(struct tally_players *players)
{
    if (players != NULL) {
        tally_load_free(players->load);
        messages_fini(players);
        tally_buffer_fini(&players->body);
        tally_buffer_fini(&players->poll);
        tally_buffer_fini(&players->end);
        free(players);
    }
}

enum tally_status tally_players_settle(struct tally_players *players, int quiet_ms,
                                       struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    uint32_t n = 1;
    while (status == TALLY_OK && n > 0) {
        status = tally_load_step(players->load, quiet_ms, &n, err);
    }
    return status;
}

enum tally_status tally_players_play(struct tally_players *players, uint32_t n_rounds,
                                     struct tally_play *ret_play, struct tally_error *err)
{
    const uint64_t n_updates = (uint64_t)n_rounds * players->config.clients;
    const struct tally_load_bytes before = tally_load_bytes(players->load);
    int64_t last_ms = tally_monotonic_ms();
    players->play = (struct tally_play){0};
    players->begin_ns = 0;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && players->play.updates < n_updates) {
        status = step(players, &last_ms, err);
    }
    const struct tally_load_bytes after = tally_load_bytes(players->load);
    *ret_play = players->play;
    ret_play->seconds = 1e-9 * (double)(players->round_ns - players->begin_ns);
    ret_play->wire_bytes = after.wire - before.wire;
    ret_play->body_bytes = after.bodies - before.bodies;
    return status;
}

/* ---- Yardsticks ---- */

enum tally_status tally_players_sample(struct tally_players *players, const char **ret_path,
                                       struct tally_load_body *ret_body, struct tally_error *err)
{
    const enum tally_status status = write_around(players, &players->messages[0], ret_body);
    *ret_path = UPDATE;
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for a request");
}

static enum tally_status accumulate(const struct tally_players *players, int64_t *sums,
                                    double *ret_s, struct tally_error *err)
{
    const double begin = tally_thread_cpu_s();
    enum tally_status status = TALLY_OK;
    for (uint32_t i = 0; i < players->n_messages && status == TALLY_OK; i++) {
        const struct message *message = &players->messages[i];
        struct tally_level_stats stats;
        status = players->encoding->accumulate(message->payload.data, message->payload.size,
                                               message->stats.payload_bits, players->config.dim,
                                               &players->grid, sums, &stats, err);
    }
    *ret_s = (tally_thread_cpu_s() - begin) / (double)players->n_messages;
    return status;
}

enum tally_status tally_players_accumulate_s(const struct tally_players *players, double *ret_s,
                                             struct tally_error *err)
{
    int64_t *sums = calloc(players->config.dim, sizeof *sums);
    enum tally_status status =
        sums != NULL ? TALLY_OK : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for sums");
    double s = 0, total = 0;
    for (int i = 0; i <= ACCUMULATE_TIMES && status == TALLY_OK; i++) {
        status = accumulate(players, sums, &s, err);
        total += i > 0 ? s : 0; /* the first pass only touches the pages of the sums */
    }
    free(sums);
    *ret_s = total / ACCUMULATE_TIMES;
    return status;
}

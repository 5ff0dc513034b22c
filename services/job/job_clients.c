#include "services/job/job_clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/job/job_footprint.h"

_Static_assert(sizeof(struct job_client) <= TALLY_FOOTPRINT_ENGINE_CLIENT,
               "as job_footprint.h says");

enum tally_status job_clients_init(struct job_clients *clients, const struct tally_setting *setting,
                                   struct tally_error *err)
{
    clients->n = setting->clients;
    clients->all = calloc(clients->n, sizeof *clients->all);
    clients->recalled = calloc(1, sizeof *clients->recalled);
    if (clients->all == NULL || clients->recalled == NULL ||
        tally_cohort_init(&clients->cohort, setting->key, setting->clients, setting->cohort, err) !=
            TALLY_OK ||
        tally_cohort_init(clients->recalled, setting->key, setting->clients, setting->cohort,
                          err) != TALLY_OK) {
        job_clients_fini(clients);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u clients", setting->clients);
    }
    return TALLY_OK;
}

void job_clients_fini(struct job_clients *clients)
{
    tally_cohort_fini(&clients->cohort);
    tally_cohort_fini(&clients->everyone);
    if (clients->recalled != NULL) {
        tally_cohort_fini(clients->recalled);
    }
    free(clients->recalled);
    free(clients->all);
    free(clients->earlier);
    clients->recalled = NULL;
    clients->all = NULL;
    clients->earlier = NULL;
}

enum tally_status job_clients_keep_earlier(struct job_clients *clients, struct tally_error *err)
{
    clients->earlier = calloc(clients->n, sizeof *clients->earlier);
    return clients->earlier != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u clients", clients->n);
}

enum tally_status job_clients_need_everyone(struct job_clients *clients, struct tally_error *err)
{
    return job_clients_has_cohorts(clients)
               ? tally_cohort_init(&clients->everyone, clients->cohort.key, clients->n, clients->n,
                                   err)
               : TALLY_OK;
}

bool job_clients_has_cohorts(const struct job_clients *clients)
{
    return clients->cohort.n < clients->n;
}

void job_clients_open_round(struct job_clients *clients, int64_t round)
{
    clients->open_round = (uint32_t)round;
    clients->n_awaited = 0;
    clients->asks_all = false;
    tally_cohort_draw(&clients->cohort, clients->open_round);
    for (uint32_t i = 0; i < clients->cohort.n; i++) {
        struct job_client *client = &clients->all[clients->cohort.drawn[i]];
        client->drawn_for = clients->open_round;
        client->place = i;
        clients->n_awaited += !client->absent;
    }
}

void job_clients_open_all(struct job_clients *clients, int64_t round)
{
    clients->open_round = (uint32_t)round;
    clients->n_awaited = 0;
    clients->asks_all = true;
    for (uint32_t m = 0; m < clients->n; m++) {
        clients->all[m].drawn_for = clients->open_round;
        clients->n_awaited += !clients->all[m].absent;
    }
}

void job_clients_close_all(struct job_clients *clients)
{
    for (uint32_t m = 0; m < clients->n; m++) {
        clients->all[m] = (struct job_client){.absent = clients->all[m].absent};
    }
    clients->asks_all = false;
    clients->n_awaited = 0;
}

const struct tally_cohort *job_clients_open(const struct job_clients *clients)
{
    return clients->asks_all && clients->everyone.n > 0 ? &clients->everyone : &clients->cohort;
}

void job_clients_leave_only(struct job_clients *clients, uint32_t client)
{
    for (uint32_t i = 0; i < clients->cohort.n; i++) {
        clients->all[clients->cohort.drawn[i]].drawn_for = 0;
    }
    clients->all[client].drawn_for = clients->open_round;
    clients->n_awaited = !clients->all[client].absent;
}

void job_clients_withdraw(struct job_clients *clients)
{
    static const struct job_earlier_answer none = {.weight = 0};
    for (uint32_t i = 0; i < clients->cohort.n; i++) {
        const uint32_t m = clients->cohort.drawn[i];
        struct job_client *client = &clients->all[m];
        client->setback_in = 0;
        if (client->receipt.round == clients->open_round) {
            const struct job_earlier_answer *earlier =
                clients->earlier != NULL ? &clients->earlier[m] : &none;
            client->receipt = earlier->receipt;
            client->weight = earlier->weight;
        }
    }
    job_clients_open_round(clients, clients->open_round);
}

const struct tally_cohort *job_clients_recall(const struct job_clients *clients, int64_t round)
{
    tally_cohort_draw(clients->recalled, (uint32_t)round);
    return clients->recalled;
}

bool job_clients_is_drawn(const struct job_clients *clients, uint32_t client)
{
    return clients->all != NULL && clients->open_round != 0 &&
           clients->all[client].drawn_for == clients->open_round;
}

bool job_clients_has_answered(const struct job_clients *clients, uint32_t client, int64_t round)
{
    return clients->all != NULL && clients->all[client].receipt.round == round;
}

int job_clients_n_setbacks(const struct job_clients *clients, uint32_t client)
{
    const struct job_client *of = &clients->all[client];
    return of->setback_in == clients->open_round ? of->n_setbacks : 0;
}

bool job_clients_sits_out(const struct job_clients *clients, uint32_t client)
{
    const struct job_client *of = &clients->all[client];
    return of->sits_out && of->setback_in == clients->open_round;
}

/* Whether the round waits for an answer that the client has not given. */
static bool is_awaited(const struct job_clients *clients, uint32_t client)
{
    return !clients->all[client].absent && !job_clients_sits_out(clients, client);
}

int job_clients_set_back(struct job_clients *clients, uint32_t client, bool sits_out)
{
    struct job_client *of = &clients->all[client];
    if (of->setback_in != clients->open_round) {
        of->setback_in = clients->open_round;
        of->n_setbacks = 0;
        of->sits_out = false;
    }
    if (sits_out) {
        clients->n_awaited -= is_awaited(clients, client);
        of->sits_out = true;
    }
    return ++of->n_setbacks;
}

void job_clients_accept(struct job_clients *clients, uint32_t client,
                        const struct job_client *answer)
{
    struct job_client *kept = &clients->all[client];
    clients->n_awaited -= is_awaited(clients, client);
    if (clients->earlier != NULL) {
        clients->earlier[client] = (struct job_earlier_answer){kept->receipt, kept->weight};
    }
    kept->receipt = answer->receipt;
    kept->loss = answer->loss;
    kept->report = answer->report;
    kept->weight = answer->weight;
}

void job_clients_set_absent(struct job_clients *clients, uint32_t client, bool absent,
                            int64_t round)
{
    if (job_clients_is_drawn(clients, client) && !job_clients_sits_out(clients, client) &&
        !job_clients_has_answered(clients, client, round)) {
        clients->n_awaited += clients->all[client].absent - absent;
    }
    clients->all[client].absent = absent;
}

bool job_clients_lacks(const struct job_clients *clients, uint32_t client, int64_t round,
                       bool skip_absent)
{
    const bool is_skipped = skip_absent && clients->n_awaited > 0 && !is_awaited(clients, client);
    return !is_skipped && job_clients_is_drawn(clients, client) &&
           !job_clients_has_answered(clients, client, round);
}

/* Appends " first" or " first-last" if " ..." still fits after it. Otherwise appends " ..." and
 * returns false. */
static bool append_range(char *text, size_t *at, uint32_t first, uint32_t last)
{
    static const char more[] = " ...";
    char range[48];
    const char *space = *at == 0 ? "" : " ";
    const int n = first == last ? snprintf(range, sizeof range, "%s%u", space, first)
                                : snprintf(range, sizeof range, "%s%u-%u", space, first, last);
    const bool fits = *at + (size_t)n + sizeof more <= TALLY_MISSING_CAPACITY;
    const char *added = fits ? range : more;
    memcpy(text + *at, added, strlen(added) + 1);
    *at += strlen(added);
    return fits;
}

void job_clients_list(const struct job_clients *clients, int64_t round, bool skip_absent,
                      char ret_text[TALLY_MISSING_CAPACITY])
{
    const uint32_t *drawn = job_clients_open(clients)->drawn;
    const uint32_t n = clients->all != NULL ? job_clients_open(clients)->n : 0;
    size_t at = 0;
    bool fits = true;
    memset(ret_text, 0, TALLY_MISSING_CAPACITY);
    for (uint32_t i = 0; fits && i < n; i++) {
        if (!job_clients_lacks(clients, drawn[i], round, skip_absent)) {
            continue;
        }
        const uint32_t first = drawn[i];
        while (i + 1 < n && drawn[i + 1] == drawn[i] + 1 &&
               job_clients_lacks(clients, drawn[i + 1], round, skip_absent)) {
            i++;
        }
        fits = append_range(ret_text, &at, first, drawn[i]);
    }
}

/* Saving. */

static size_t receipt_bytes(const struct job_clients *clients)
{
    return (size_t)JOB_RECEIPT_BYTES + (clients->keeps_weights ? JOB_WEIGHT_BYTES : 0);
}

size_t job_clients_saved_bytes(const struct job_clients *clients, int64_t n_rounds)
{
    const size_t n = job_clients_has_cohorts(clients) ? (size_t)n_rounds * clients->cohort.n
                                                      : (size_t)clients->n;
    return n * receipt_bytes(clients);
}

static void save_receipt(const struct tally_receipt *receipt, struct tally_buffer *out)
{
    const uint64_t words[] = {(uint64_t)receipt->round, receipt->digest, receipt->formula_bits,
                              receipt->payload_bits};
    _Static_assert(sizeof words == JOB_RECEIPT_BYTES, "as job_clients.h says");
    tally_buffer_append(out, words, sizeof words);
}

static struct tally_receipt load_receipt(const uint8_t *bytes)
{
    uint64_t words[4];
    memcpy(words, bytes, sizeof words);
    return (struct tally_receipt){(int64_t)words[0], words[1], words[2], words[3]};
}

static uint32_t load_weight(const uint8_t *bytes)
{
    uint64_t weight;
    _Static_assert(sizeof weight == JOB_WEIGHT_BYTES, "as job_clients.h says");
    memcpy(&weight, bytes, sizeof weight);
    return (uint32_t)weight;
}

void job_clients_save(const struct job_clients *clients, int64_t round, int64_t n_rounds,
                      struct tally_buffer *out)
{
    if (!job_clients_has_cohorts(clients)) {
        round = n_rounds = 1; /* all of them, once */
    }
    for (int64_t r = round - n_rounds + 1; r <= round; r++) {
        tally_cohort_draw(clients->recalled, (uint32_t)r);
        for (uint32_t i = 0; i < clients->recalled->n; i++) {
            const struct tally_receipt none = {.round = 0};
            const struct job_client *client = &clients->all[clients->recalled->drawn[i]];
            const bool is_of_round =
                client->receipt.round == r || !job_clients_has_cohorts(clients);
            const uint64_t weight = is_of_round ? client->weight : 0;
            save_receipt(is_of_round ? &client->receipt : &none, out);
            tally_buffer_append(out, &weight, clients->keeps_weights ? sizeof weight : 0);
        }
    }
}

void job_clients_load(struct job_clients *clients, int64_t round, int64_t n_rounds,
                      const uint8_t *bytes)
{
    if (!job_clients_has_cohorts(clients)) {
        round = n_rounds = 1;
    }
    for (int64_t r = round - n_rounds + 1; r <= round; r++) {
        tally_cohort_draw(clients->recalled, (uint32_t)r);
        for (uint32_t i = 0; i < clients->recalled->n; i++, bytes += receipt_bytes(clients)) {
            const struct tally_receipt receipt = load_receipt(bytes);
            struct job_client *client = &clients->all[clients->recalled->drawn[i]];
            if (receipt.round != 0) {
                client->receipt = receipt;
                client->weight =
                    clients->keeps_weights ? load_weight(bytes + JOB_RECEIPT_BYTES) : 0;
            }
        }
    }
}

void job_clients_forget_after(struct job_clients *clients, int64_t round)
{
    for (uint32_t m = 0; m < clients->n; m++) {
        if (clients->all[m].receipt.round > round) {
            clients->all[m] = (struct job_client){0};
        }
    }
}

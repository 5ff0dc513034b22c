#include "services/job/engine/clients.h"

#include <stdio.h>
#include <string.h>

#include "services/job/footprint.h"

_Static_assert(sizeof(struct job_client) <= TALLY_FOOTPRINT_ENGINE_CLIENT, "as footprint.h says");

void job_clients_open_round(struct job_clients *clients)
{
    clients->n_awaited = 0;
    for (uint32_t m = 0; m < clients->n; m++) {
        clients->n_awaited += !clients->all[m].absent;
    }
}

bool job_clients_has_answered(const struct job_clients *clients, uint32_t client, int64_t round)
{
    return clients->all != NULL && clients->all[client].receipt.round == round;
}

void job_clients_accept(struct job_clients *clients, uint32_t client,
                        const struct job_client *answer)
{
    struct job_client *kept = &clients->all[client];
    const bool absent = kept->absent;
    clients->n_awaited -= !absent;
    *kept = *answer;
    kept->absent = absent;
}

void job_clients_set_absent(struct job_clients *clients, uint32_t client, bool absent,
                            int64_t round)
{
    if (!job_clients_has_answered(clients, client, round)) {
        clients->n_awaited += clients->all[client].absent - absent;
    }
    clients->all[client].absent = absent;
}

bool job_clients_lacks(const struct job_clients *clients, uint32_t client, int64_t round,
                       bool skip_absent)
{
    const bool is_skipped = skip_absent && clients->n_awaited > 0 && clients->all[client].absent;
    return !is_skipped && !job_clients_has_answered(clients, client, round);
}

/* Appends " first" or " first-last" if it and " ..." still fit. */
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
    size_t at = 0;
    bool fits = true;
    memset(ret_text, 0, TALLY_MISSING_CAPACITY);
    for (uint32_t m = 0; fits && m < clients->n; m++) {
        const uint32_t first = m;
        while (m < clients->n && job_clients_lacks(clients, m, round, skip_absent)) {
            m++;
        }
        if (m > first) {
            fits = append_range(ret_text, &at, first, m - 1);
        }
    }
}

void job_clients_save(const struct job_clients *clients, struct tally_buffer *out)
{
    for (uint32_t m = 0; m < clients->n; m++) {
        const struct tally_receipt *receipt = &clients->all[m].receipt;
        const uint64_t words[] = {(uint64_t)receipt->round, receipt->digest, receipt->formula_bits,
                                  receipt->payload_bits};
        _Static_assert(sizeof words == JOB_CLIENT_SAVED_BYTES, "as clients.h says");
        tally_buffer_append(out, words, sizeof words);
    }
}

void job_clients_load(struct job_clients *clients, const uint8_t *bytes)
{
    for (uint32_t m = 0; m < clients->n; m++, bytes += JOB_CLIENT_SAVED_BYTES) {
        uint64_t words[4];
        memcpy(words, bytes, sizeof words);
        clients->all[m] =
            (struct job_client){.receipt = {(int64_t)words[0], words[1], words[2], words[3]}};
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

/* cmd_doctor: what `tally doctor` finds out about an installation. */
#ifndef TALLY_SERVICES_CLI_CMD_DOCTOR_H
#define TALLY_SERVICES_CLI_CMD_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "storage/backend.h"

/* ---- Facts about an installation, and the findings derived from them. The checks are
 * pure functions; `tally doctor` gathers the facts (cmd_doctor.c). */

enum { DOCTOR_TEXT_CAPACITY = 512 };

/* Result of a request to the coordinator. HTTP status 0 = no response; `error` has the reason. */
struct doctor_answer {
    bool was_asked;
    int status;
    struct tally_error error;
};

struct doctor_facts {
    const char *coordinator; /* its URL */
    bool has_token;          /* one is sent */
    struct doctor_answer health, ready, jobs, workers;
    bool has_clock;
    int64_t clock_ahead_ms; /* of the coordinator's clock */
    char version[32];       /* of the coordinator; "" = not known */
    const char *own_version;
    int64_t n_shared_tokens; /* tokens of the coordinator that grant two roles */
    int64_t n_workers, n_slots, n_free_slots;
    int64_t n_rivals;                    /* names that two live workers have */
    char rivals[DOCTOR_TEXT_CAPACITY];   /* the first of them, with both addresses */
    int64_t n_queued, most_clients;      /* number of queued jobs, and most slots that one needs */
    int64_t n_waiting;                   /* jobs that wait for something */
    char waiting[DOCTOR_TEXT_CAPACITY];  /* the first of them, and what it waits for */
    int64_t n_data_jobs, n_data_missing; /* live jobs with data files, and those with wrong files */
    char data_error[DOCTOR_TEXT_CAPACITY];
    bool has_data_dir;
    const char *store; /* its name in findings; NULL = do not check it */
    bool has_file;     /* the store is a file; else a database server */
    struct tally_error store_error;
    struct tally_store_report report;
    int64_t owner; /* process that has the store open; 0 = none, -1 = unknown */
    bool can_write_folder;
    int64_t n_free_bytes;                    /* for the store; -1 = not known */
    int64_t n_descriptors, descriptor_limit; /* of the owner; -1 = not known */
};

enum doctor_level { DOCTOR_SKIPPED, DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_finding {
    enum doctor_level level;
    char text[DOCTOR_TEXT_CAPACITY];
    char advice[256]; /* "" = none */
};

struct doctor_check {
    const char *name; /* "clock" */
    void (*judge)(const struct doctor_facts *facts, struct doctor_finding *ret_finding);
};

/* Terminated by a NULL name. A check that does not apply leaves its finding at DOCTOR_SKIPPED. */
extern const struct doctor_check DOCTOR_CHECKS[];

const char *doctor_level_name(enum doctor_level level); /* "ok", "warn", "FAIL" */

#endif

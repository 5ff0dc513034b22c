#include <string.h>

#include "services/cli/cmd_doctor.h"
#include "tests/harness.h"

/* The facts of an installation without faults. */
static struct doctor_facts sound_facts(void)
{
    struct doctor_facts facts = {
        .coordinator = "http://127.0.0.1:8080",
        .health = {.was_asked = true, .status = 200},
        .ready = {.was_asked = true, .status = 200},
        .jobs = {.was_asked = true, .status = 200},
        .workers = {.was_asked = true, .status = 200},
        .has_clock = true,
        .version = "1.2.3",
        .own_version = "1.2.3",
        .n_workers = 2,
        .n_slots = 10,
        .store = "sqlite:tally.db",
        .has_file = true,
        .report = {.schema_version = 2},
        .owner = 7,
        .can_write_folder = true,
        .n_free_bytes = INT64_C(1) << 40,
        .n_descriptors = 10,
        .descriptor_limit = 1000,
    };
    return facts;
}

static struct doctor_finding judge(const char *name, const struct doctor_facts *facts)
{
    struct doctor_finding finding = {.level = DOCTOR_SKIPPED};
    for (const struct doctor_check *check = DOCTOR_CHECKS; check->name != NULL; check++) {
        if (strcmp(check->name, name) == 0) {
            check->judge(facts, &finding);
            return finding;
        }
    }
    CU_FAIL("no such check");
    return finding;
}

static void test_cli_doctor__sound_set_up_has_no_complaint(void)
{
    struct doctor_facts facts = sound_facts();
    for (const struct doctor_check *check = DOCTOR_CHECKS; check->name != NULL; check++) {
        struct doctor_finding finding = {.level = DOCTOR_SKIPPED};
        check->judge(&facts, &finding);
        CU_ASSERT(finding.level == DOCTOR_OK || finding.level == DOCTOR_SKIPPED);
        TALLY_ASSERT_TEXT(finding.advice, "");
    }
}

static void test_cli_doctor__a_token_of_two_roles_is_told(void)
{
    struct doctor_facts facts = sound_facts();
    CU_ASSERT_EQUAL(judge("shared tokens", &facts).level, DOCTOR_SKIPPED);
    facts.n_shared_tokens = 1;
    CU_ASSERT_EQUAL(judge("shared tokens", &facts).level, DOCTOR_WARN);
}

static void test_cli_doctor__connections_that_fail_are_told_apart(void)
{
    static const struct {
        const char *message, *advice;
    } CASES[] = {
        {"Could not resolve host: x", "DNS"},
        {"Failed to connect to x: Connection refused", "--listen"},
        {"SSL certificate problem: self-signed certificate", "--tls-ca"},
        {"wrong version number (SSL routines)", "https://"},
        {"Connection timed out", "firewall"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct doctor_facts facts = sound_facts();
        facts.health.status = 0;
        tally_fail(&facts.health.error, TALLY_UNAVAILABLE, NULL, "%s", CASES[i].message);
        struct doctor_finding finding = judge("coordinator", &facts);
        CU_ASSERT_EQUAL(finding.level, DOCTOR_FAIL);
        CU_ASSERT_PTR_NOT_NULL(strstr(finding.text, CASES[i].message));
        CU_ASSERT_PTR_NOT_NULL(strstr(finding.advice, CASES[i].advice));
    }
}

/* Expects the verdict of the check `name`, after a fact was changed. */
static void expect(const char *name, const struct doctor_facts *facts, enum doctor_level level,
                   const char *words)
{
    struct doctor_finding finding = judge(name, facts);
    CU_ASSERT_EQUAL(finding.level, level);
    CU_ASSERT_PTR_NOT_NULL(strstr(finding.text, words));
    CU_ASSERT(strlen(finding.advice) > 0);
}

static void test_cli_doctor__each_fault_has_its_verdict(void)
{
    struct doctor_facts facts = sound_facts();
    facts.ready.status = 503;
    tally_fail(&facts.ready.error, TALLY_UNAVAILABLE, NULL, "disk is full");
    expect("ready", &facts, DOCTOR_FAIL, "disk is full");
    facts = sound_facts();
    facts.own_version = "1.2.4";
    expect("version", &facts, DOCTOR_WARN, "1.2.4");
    facts.clock_ahead_ms = -61000;
    expect("clock", &facts, DOCTOR_WARN, "61 s behind");
    facts.jobs.status = 401;
    expect("token", &facts, DOCTOR_FAIL, "requires a token");
    facts.has_token = true;
    expect("token", &facts, DOCTOR_FAIL, "does not accept");
    facts.jobs.status = 403;
    expect("token", &facts, DOCTOR_FAIL, "role does not permit");
    facts = sound_facts();
    facts.n_queued = 1;
    facts.most_clients = 11;
    expect("workers", &facts, DOCTOR_FAIL, "needs 11 clients");
    facts.n_workers = 0;
    expect("workers", &facts, DOCTOR_FAIL, "no worker has joined");
    facts.n_rivals = 1;
    strcpy(facts.rivals, "w at 10.0.0.7 and at 10.0.0.8");
    expect("worker names", &facts, DOCTOR_FAIL, "w at 10.0.0.7 and at 10.0.0.8");
    facts.n_waiting = 1;
    strcpy(facts.waiting, "abc: for client 3");
    expect("waiting", &facts, DOCTOR_WARN, "abc: for client 3");
    facts.n_data_jobs = 1;
    expect("data files", &facts, DOCTOR_WARN, "1 live jobs need data files");
    facts.has_data_dir = true;
    facts.n_data_missing = 1;
    strcpy(facts.data_error, "x.gz is missing");
    expect("data files", &facts, DOCTOR_FAIL, "x.gz is missing");
}

static void test_cli_doctor__each_fault_of_a_store_has_its_verdict(void)
{
    struct doctor_facts facts = sound_facts();
    tally_fail(&facts.store_error, TALLY_FAILED_PRECONDITION, NULL, "schema version 1");
    expect("store", &facts, DOCTOR_FAIL, "schema version 1");
    tally_error_clear(&facts.store_error);
    tally_fail(&facts.store_error, TALLY_DATA_LOSS, NULL, "rounds, job_key 1");
    expect("store", &facts, DOCTOR_FAIL, "rounds, job_key 1");
    facts.owner = 0;
    expect("store in use", &facts, DOCTOR_WARN, "no process");
    facts.n_free_bytes = 0;
    expect("disk", &facts, DOCTOR_FAIL, "0 MiB");
    facts.n_free_bytes = 1 << 20;
    expect("disk", &facts, DOCTOR_WARN, "1 MiB");
    facts.can_write_folder = false;
    expect("disk", &facts, DOCTOR_FAIL, "cannot be written");
    facts.n_descriptors = 900;
    expect("descriptors", &facts, DOCTOR_WARN, "900 of 1000");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_doctor__sound_set_up_has_no_complaint),
    TALLY_TEST(test_cli_doctor__a_token_of_two_roles_is_told),
    TALLY_TEST(test_cli_doctor__connections_that_fail_are_told_apart),
    TALLY_TEST(test_cli_doctor__each_fault_has_its_verdict),
    TALLY_TEST(test_cli_doctor__each_fault_of_a_store_has_its_verdict),
};
TALLY_SUITE(cli_doctor, TESTS);

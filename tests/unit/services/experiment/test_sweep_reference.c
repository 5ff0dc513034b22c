/* Checks that the members in services/experiment/SWEEP.md are those of the tables. If
 * TALLY_WRITE_REFERENCE=1 is set in the environment, the test writes them first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/experiment/sweep.h"
#include "tests/harness.h"

static const char PATH[] = TALLY_SOURCE_DIR "/services/experiment/SWEEP.md";
static const char MARK[] = "experiment_sweep_reference -->\n";

static void write_limits(struct tally_buffer *out, const struct tally_field *field)
{
    switch (field->kind) {
    case TALLY_FIELD_BOOL:
        return;
    case TALLY_FIELD_INTEGER:
    case TALLY_FIELD_REAL:
        tally_buffer_printf(out, "%c%.16g, %.16g]", field->min_exclusive ? '(' : '[', field->min,
                            field->max);
        return;
    case TALLY_FIELD_TEXT:
        tally_buffer_printf(out, "at most %zu bytes", field->capacity - 1);
        return;
    case TALLY_FIELD_CHOICE:
        for (size_t i = 0; field->choices[i] != NULL; i++) {
            tally_buffer_printf(out, "%s`%s`", i > 0 ? ", " : "", field->choices[i]);
        }
    }
}

static void write_default(struct tally_buffer *out, const struct tally_field *field,
                          const void *defaults)
{
    const void *member = defaults != NULL ? (const char *)defaults + field->offset : NULL;
    double number = 0;
    if (field->required) {
        tally_buffer_append_text(out, "required");
    } else if (member == NULL || field->kind == TALLY_FIELD_TEXT) {
        tally_buffer_append_text(out, "none");
    } else if (field->kind == TALLY_FIELD_BOOL) {
        tally_buffer_append_text(out, *(const bool *)member ? "true" : "false");
    } else if (field->kind == TALLY_FIELD_CHOICE) {
        tally_buffer_printf(out, "`%s`", field->choices[*(const int *)member]);
    } else {
        number = field->kind == TALLY_FIELD_REAL ? *(const double *)member
                                                 : (double)*(const int64_t *)member;
        tally_buffer_printf(out, number >= field->min ? "%.16g" : "none", number);
    }
}

static void write_part(struct tally_buffer *out, const struct tally_sweep_part *part)
{
    static const char *const TYPES[] = {[TALLY_FIELD_BOOL] = "boolean",
                                        [TALLY_FIELD_INTEGER] = "integer",
                                        [TALLY_FIELD_REAL] = "number",
                                        [TALLY_FIELD_TEXT] = "text",
                                        [TALLY_FIELD_CHOICE] = "text"};
    const bool is_top = part->name[0] == '\0';
    tally_buffer_printf(out, "\n### %s%s%s\n\n%s%s", is_top ? "" : "`",
                        is_top ? "Top level" : part->name, is_top ? "" : "`", part->doc,
                        part->doc[0] != '\0' ? "\n\n" : "");
    tally_buffer_append_text(out, "| member | type | limits | default | meaning |\n"
                                  "|---|---|---|---|---|\n");
    for (size_t i = 0; part->others != NULL && part->others[i][0] != NULL; i++) {
        tally_buffer_printf(out, "| `%s` | %s | | | %s |\n", part->others[i][0], part->others[i][1],
                            part->others[i][2]);
    }
    for (size_t i = 0; i < part->n_fields; i++) {
        const struct tally_field *field = &part->fields[i];
        tally_buffer_printf(out, "| `%s` | %s | ", field->name, TYPES[field->kind]);
        write_limits(out, field);
        tally_buffer_append_text(out, " | ");
        write_default(out, field, part->defaults);
        tally_buffer_printf(out, " | %s |\n", field->doc);
    }
}

static void write_all(struct tally_buffer *out)
{
    for (size_t i = 0; i < TALLY_N_SWEEP_PARTS; i++) {
        write_part(out, &TALLY_SWEEP_PARTS[i]);
    }
    tally_buffer_append_text(out, "\n### Results\n\n| name | meaning |\n|---|---|\n");
    for (size_t i = 0; i < TALLY_N_SWEEP_RESULTS; i++) {
        tally_buffer_printf(out, "| `%s` | %s |\n", TALLY_SWEEP_RESULTS[i].name,
                            TALLY_SWEEP_RESULTS[i].doc);
    }
    tally_buffer_append_text(out, "| `metrics.NAME` | a metric of the job, mean over the clients "
                                  "of the last round that had it |\n");
    CU_ASSERT_EQUAL(tally_buffer_append(out, "", 1), TALLY_OK);
}

static void test_experiment_sweep_reference__is_current(void)
{
    enum { CAPACITY = 1 << 18 };
    char *text = calloc(1, CAPACITY);
    struct tally_buffer wanted = {0};
    FILE *file = fopen(PATH, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_TRUE(fread(text, 1, CAPACITY - 1, file) < CAPACITY - 1);
    fclose(file);
    char *tail = strstr(text, MARK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(tail);
    tail += sizeof MARK - 1;
    write_all(&wanted);
    const char *writes = getenv("TALLY_WRITE_REFERENCE");
    if (writes != NULL && strcmp(writes, "1") == 0) {
        file = fopen(PATH, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        CU_ASSERT_TRUE(
            fprintf(file, "%.*s%s", (int)(tail - text), text, (const char *)wanted.data) > 0);
        CU_ASSERT_EQUAL(fclose(file), 0);
        snprintf(tail, (size_t)(text + CAPACITY - tail), "%s", (const char *)wanted.data);
    }
    TALLY_ASSERT_TEXT(tail, (const char *)wanted.data);
    tally_buffer_fini(&wanted);
    free(text);
}

/* `tally sweep --members` has every member of every part. */
static void test_experiment_sweep_reference__members_are_printed(void)
{
    struct tally_buffer out = {0};
    CU_ASSERT_EQUAL(tally_sweep_members(&out), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&out, "", 1), TALLY_OK);
    for (size_t i = 0; i < TALLY_N_SWEEP_PARTS; i++) {
        const struct tally_sweep_part *part = &TALLY_SWEEP_PARTS[i];
        for (size_t k = 0; k < part->n_fields; k++) {
            char line[64];
            snprintf(line, sizeof line, "\n  %s (", part->fields[k].name);
            CU_ASSERT_PTR_NOT_NULL(strstr((const char *)out.data, line));
            CU_ASSERT_TRUE(part->fields[k].doc != NULL && strlen(part->fields[k].doc) >= 8);
        }
    }
    tally_buffer_fini(&out);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_sweep_reference__is_current),
    TALLY_TEST(test_experiment_sweep_reference__members_are_printed),
};
TALLY_SUITE(experiment_sweep_reference, TESTS);

#include "services/job/document_complete.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/job/document.h"
#include "services/objectives/data/formats.h"
#include "services/objectives/data/load_data.h"
#include "services/objectives/data/number.h"

/* What a document leaves open. */
struct open_members {
    bool features, classes;
    enum tally_labels labels; /* that the objective takes */
};

static const char FEATURES[] = "objective.data.features", CLASSES[] = "objective.data.classes";

static struct open_members find_open(const struct tally_json *document)
{
    const struct tally_json *objective = tally_json_get(document, "objective");
    const struct tally_json *data = tally_json_get(objective, "data");
    const char *type = tally_json_get_text(objective, "type");
    const char *of_data = tally_json_get_text(data, "type");
    struct open_members open = {.features = false};
    int i = 0;
    while (type != NULL && TALLY_OBJECTIVE_NAMES[i] != NULL &&
           strcmp(TALLY_OBJECTIVE_NAMES[i], type) != 0) {
        i++;
    }
    if (type == NULL || TALLY_OBJECTIVE_NAMES[i] == NULL || of_data == NULL ||
        strcmp(of_data, TALLY_DATA_NAMES[TALLY_DATA_CSV]) != 0) {
        return open;
    }
    const struct tally_json *classes = tally_json_get(data, "classes");
    const char *word = tally_json_as_text(classes);
    open.labels = TALLY_OBJECTIVE_KINDS[i]->labels;
    open.features = tally_json_get(data, "features") == NULL;
    open.classes = open.labels != TALLY_LABELS_REAL &&
                   (classes == NULL ? open.features || open.labels == TALLY_LABELS_CLASSES
                                    : word != NULL && strcmp(word, "auto") == 0);
    return open;
}

/* Reads a copy of the document with stand-ins for the open members. False: it is not valid. */
static bool read_otherwise(const struct tally_json *document, const struct open_members *open,
                           struct tally_job_spec *ret_spec)
{
    struct tally_json *whole = tally_json_copy(document);
    struct tally_json *part = tally_json_copy(tally_json_get(document, "objective"));
    struct tally_json *data = tally_json_copy(tally_json_get(part, "data"));
    struct tally_buffer text = {0};
    bool ok =
        whole != NULL && part != NULL && data != NULL &&
        (!open->features || tally_json_set_integer(data, "features", 1)) &&
        (!open->classes ||
         tally_json_set_integer(data, "classes", open->labels == TALLY_LABELS_CLASSES ? 2 : 0));
    ok = tally_json_set(part, "data", data) && ok;
    ok = tally_json_set(whole, "objective", part) && ok;
    ok = ok && tally_json_dump(whole, 0, &text) == TALLY_OK &&
         tally_document_parse((const char *)text.data, text.size, ret_spec, NULL) == TALLY_OK;
    tally_json_free(whole);
    tally_buffer_fini(&text);
    return ok;
}

/* Parses a text that leaves members open and is valid otherwise. False: it is not such a text. */
static bool read_open(const char *text, size_t n, struct tally_json **ret_document,
                      struct open_members *ret_open, struct tally_job_spec *ret_spec)
{
    struct tally_json *document = NULL;
    if (tally_json_check_limits(text, n, &TALLY_DOCUMENT_LIMITS, NULL) != TALLY_OK ||
        tally_json_parse(text, n, &document, NULL) != TALLY_OK) {
        return false;
    }
    *ret_open = find_open(document);
    if ((!ret_open->features && !ret_open->classes) ||
        !read_otherwise(document, ret_open, ret_spec)) {
        tally_json_free(document);
        return false;
    }
    *ret_document = document;
    return true;
}

bool tally_document_is_open(const char *text, size_t n)
{
    struct tally_job_spec *spec = malloc(sizeof *spec); /* large */
    struct tally_json *document = NULL;
    struct open_members open;
    const bool is_open = spec != NULL && read_open(text, n, &document, &open, spec);
    tally_json_free(document);
    free(spec);
    return is_open;
}

/* Whether the labels are numbers that need no names: 0 to n - 1, or -1 and 1 of a binary
 * objective. */
static bool are_numbers(const struct tally_csv_labels *labels, enum tally_labels rule)
{
    bool has[TALLY_CSV_CLASSES_MOST] = {false};
    size_t n_minus = 0;
    for (const char *at = labels->names; at[0] != '\0'; at += strlen(at) + 1) {
        double value;
        if (tally_number_parse(at, &value) != NULL) {
            return false;
        }
        n_minus += value == -1;
        if (value >= 0 && value < TALLY_CSV_CLASSES_MOST && value == floor(value)) {
            has[(size_t)value] = true;
        }
    }
    size_t n = 0;
    while (n < labels->n && has[n]) {
        n++;
    }
    return n == labels->n ||
           (rule == TALLY_LABELS_BINARY && labels->n == 2 && n_minus == 1 && has[1]);
}

static bool has_zero(const struct tally_csv_labels *labels)
{
    double value = 1;
    for (const char *at = labels->names; at[0] != '\0' && value != 0; at += strlen(at) + 1) {
        tally_number_parse(at, &value);
    }
    return value == 0;
}

/* The member `classes`. NULL = out of memory. */
static struct tally_json *names_of(const struct tally_csv_labels *labels)
{
    struct tally_json *list = tally_json_array();
    bool ok = list != NULL;
    for (const char *at = labels->names; ok && at[0] != '\0'; at += strlen(at) + 1) {
        ok = tally_json_append(list, tally_json_text(at)); /* NULL unless it is UTF-8 */
    }
    return tally_json_if_complete(list, ok);
}

/* Writes as many of the labels as fit: "benign", "malignant", ... */
static void list_labels(const struct tally_csv_labels *labels, char *ret_list, size_t capacity)
{
    size_t used = 0;
    ret_list[0] = '\0';
    for (const char *at = labels->names; at[0] != '\0'; at += strlen(at) + 1) {
        const size_t n = strlen(at) + 4;
        if (used + n + 4 > capacity) {
            snprintf(ret_list + used, capacity - used, ", ...");
            break;
        }
        used += (size_t)snprintf(ret_list + used, capacity - used, "%s\"%s\"", used > 0 ? ", " : "",
                                 at);
    }
    tally_utf8_sanitize_line(ret_list);
}

static bool is_text(const struct tally_csv_labels *labels)
{
    for (const char *at = labels->names; at[0] != '\0'; at += strlen(at) + 1) {
        if (tally_utf8_find_control(at) < strlen(at)) {
            return false;
        }
    }
    return tally_utf8_valid_prefix(labels->names, labels->size) == labels->size;
}

static enum tally_status set_classes(struct tally_json *document, const struct tally_job_spec *spec,
                                     enum tally_labels rule, const struct tally_csv_labels *labels,
                                     struct tally_error *err)
{
    char list[120];
    list_labels(labels, list, sizeof list);
    if (!is_text(labels)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, CLASSES,
                          "a label in column %.40s of %.80s is not UTF-8, or has a control "
                          "character: %s",
                          spec->objective.data.table.label, spec->objective.data.table.file, list);
    }
    if (labels->n < 2 || (rule == TALLY_LABELS_BINARY && labels->n != 2)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, CLASSES,
                          "column %.40s of %.80s has %zu different labels (%s); %s",
                          spec->objective.data.table.label, spec->objective.data.table.file,
                          labels->n, list,
                          labels->n < 2 ? "a classifier needs two or more"
                                        : "logistic_regression takes two, softmax_regression any "
                                          "number");
    }
    if (!are_numbers(labels, rule)) {
        return tally_json_set_path(document, CLASSES, names_of(labels), err);
    }
    const bool counts = rule == TALLY_LABELS_CLASSES || has_zero(labels);
    const int64_t n = counts ? (int64_t)labels->n : 0; /* 0: the labels are -1 and 1 */
    return tally_json_set_path(document, CLASSES, tally_json_integer(n), err);
}

static enum tally_status complete(struct tally_json *document, const struct open_members *open,
                                  const struct tally_job_spec *spec,
                                  const struct tally_data_source *source,
                                  struct tally_csv_labels *labels,
                                  char ret_found[TALLY_FOUND_CAPACITY], struct tally_error *err)
{
    const struct tally_data_spec *data = &spec->objective.data;
    size_t features = 0;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = tally_dataset_survey(data, (uint32_t)spec->clients, source,
                                                    &features, open->classes ? labels : NULL, &why);
    if (status != TALLY_OK) {
        tally_fail(err, status, open->features ? FEATURES : CLASSES, "%s", why.message);
        tally_error_wrap(err, "to find %s in the file",
                         !open->features  ? "classes"
                         : !open->classes ? "features"
                                          : "features and classes");
        return status;
    }
    char text[TALLY_FOUND_CAPACITY - 128];
    list_labels(labels, text, sizeof text);
    snprintf(ret_found, TALLY_FOUND_CAPACITY, "%.80s: features %zu%s%s", data->table.file, features,
             open->classes ? ", classes " : "", open->classes ? text : "");
    if (open->features) {
        status =
            tally_json_set_path(document, FEATURES, tally_json_integer((int64_t)features), err);
    }
    return status == TALLY_OK && open->classes
               ? set_classes(document, spec, open->labels, labels, err)
               : status;
}

enum tally_status tally_document_complete(struct tally_buffer *text,
                                          const struct tally_data_source *source,
                                          char ret_found[TALLY_FOUND_CAPACITY],
                                          struct tally_error *err)
{
    struct tally_job_spec *spec = malloc(sizeof *spec); /* large */
    struct tally_csv_labels *labels = calloc(1, sizeof *labels);
    struct tally_json *document = NULL;
    struct open_members open;
    enum tally_status status = TALLY_OK;
    ret_found[0] = '\0';
    if (spec == NULL || labels == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a document");
    } else if (read_open((const char *)text->data, text->size, &document, &open, spec)) {
        status = complete(document, &open, spec, source, labels, ret_found, err);
        if (status == TALLY_OK) {
            text->size = 0;
            status = tally_json_dump(document, 2, text);
        }
    }
    tally_json_free(document);
    free(labels);
    free(spec);
    return status;
}

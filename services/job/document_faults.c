#include "services/job/document_faults.h"

#include <stdio.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/algorithms/compression.h"
#include "services/algorithms/server_optimizer.h"
#include "services/base/nearest_name.h"
#include "services/job/document.h"

/* The list under construction; `ok` turns false when memory runs out. */
struct faults {
    struct tally_json *list;
    bool ok;
};

/* The members of one fault besides its path. */
struct fault {
    const char *code, *detail;
    const char *suggestion;     /* NULL = none */
    const char *const *choices; /* NULL = none */
    bool auto_allowed;
};

enum { TEXT_CAPACITY = sizeof((struct tally_error *)0)->message + 96, PATH_CAPACITY = 192 };

/* Sanitizes a message, which may quote the document and be cut within a character. */
static bool set_line(struct tally_json *object, const char *key, const char *text)
{
    char line[TEXT_CAPACITY];
    snprintf(line, sizeof line, "%s", text);
    tally_utf8_sanitize_line(line);
    return tally_json_set_text(object, key, line);
}

static bool set_choices(struct tally_json *object, const char *const *choices)
{
    struct tally_json *list = tally_json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && choices[i] != NULL; i++) {
        ok = tally_json_append(list, tally_json_text(choices[i]));
    }
    return tally_json_set(object, "choices", tally_json_if_complete(list, ok));
}

static void add(struct faults *faults, const char *path, const struct fault *fault)
{
    if (!faults->ok || tally_json_size(faults->list) == TALLY_MAX_FAULTS) {
        return;
    }
    char detail[TEXT_CAPACITY];
    snprintf(detail, sizeof detail, "%s%s%s%s", fault->detail,
             fault->suggestion != NULL ? "; did you mean " : "",
             fault->suggestion != NULL ? fault->suggestion : "",
             fault->suggestion != NULL ? "?" : "");
    struct tally_json *object = tally_json_object();
    const bool ok = set_line(object, "field", path) &&
                    tally_json_set_text(object, "code", fault->code) &&
                    set_line(object, "detail", detail) &&
                    (fault->suggestion == NULL ||
                     tally_json_set_text(object, "suggestion", fault->suggestion)) &&
                    (fault->choices == NULL || set_choices(object, fault->choices)) &&
                    (!fault->auto_allowed || tally_json_set_bool(object, "auto", true));
    object = tally_json_if_complete(object, ok);
    faults->ok = object != NULL && tally_json_append(faults->list, object);
}

bool tally_document_add_fault(struct tally_json *list, const char *code,
                              const struct tally_error *err)
{
    struct faults faults = {.list = list, .ok = true};
    add(&faults, err->field, &(struct fault){.code = code, .detail = err->message});
    return faults.ok;
}

static void join(const char *path, const char *key, char ret_path[PATH_CAPACITY])
{
    snprintf(ret_path, PATH_CAPACITY, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
}

static void add_unknown(struct faults *faults, const char *path, const char *key,
                        const struct tally_nearest_name *nearest)
{
    char whole[PATH_CAPACITY], detail[128];
    join(path, key, whole);
    snprintf(detail, sizeof detail, "unknown key \"%.80s\"", key);
    add(faults, whole,
        &(struct fault){.code = "unknown_member", .detail = detail, .suggestion = nearest->name});
}

/* The fields of an object, and the other keys that it may have. */
struct members {
    const struct tally_field *fields;
    size_t n;
    const char *const *others; /* NULL-terminated; NULL = none */
};

static void check_keys(struct faults *faults, const struct tally_json *object, const char *path,
                       const struct members *members)
{
    const char *key;
    for (size_t at = 0; (key = tally_json_key(object, at)) != NULL; at++) {
        struct tally_nearest_name nearest = {.typed = key};
        bool is_known = false;
        for (size_t i = 0; i < members->n; i++) {
            is_known = is_known || strcmp(members->fields[i].name, key) == 0;
            tally_nearest_name_offer(&nearest, members->fields[i].name);
        }
        for (size_t i = 0; members->others != NULL && members->others[i] != NULL; i++) {
            is_known = is_known || strcmp(members->others[i], key) == 0;
            tally_nearest_name_offer(&nearest, members->others[i]);
        }
        if (!is_known) {
            add_unknown(faults, path, key, &nearest);
        }
    }
}

static const char *code_of(const struct tally_field *field, const struct tally_json *value,
                           const struct tally_error *err)
{
    const bool is_text = tally_json_as_text(value) != NULL &&
                         (field->kind == TALLY_FIELD_TEXT || field->kind == TALLY_FIELD_CHOICE);
    return value == NULL                       ? "missing"
           : err->status == TALLY_OUT_OF_RANGE ? "out_of_range"
           : is_text                           ? "not_allowed"
                                               : "wrong_type";
}

static const char *nearest_choice(const struct tally_field *field, const struct tally_json *value)
{
    struct tally_nearest_name nearest = {.typed = tally_json_as_text(value)};
    for (size_t i = 0; nearest.typed != NULL && field->choices[i] != NULL; i++) {
        tally_nearest_name_offer(&nearest, field->choices[i]);
    }
    return nearest.name;
}

/* Any member's value; `text` has room for the longest. */
union scratch {
    bool boolean;
    int64_t integer;
    double real;
    int choice;
    char text[4096];
    int64_t names[1 + TALLY_DATA_CLASS_NAMES_CAPACITY / sizeof(int64_t)];
};

/* Checks one member. True if it is valid, or absent and not required. */
static bool check_member(struct faults *faults, const struct tally_json *object, const char *path,
                         const struct tally_field *field, union scratch *ret_value)
{
    char whole[PATH_CAPACITY];
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_field alone = *field;
    alone.offset = 0;
    if (alone.capacity > sizeof ret_value->text ||
        tally_json_read_field(object, &alone, ret_value, &err) == TALLY_OK) {
        return true;
    }
    const struct tally_json *value = tally_json_get(object, field->name);
    const bool is_choice = field->kind == TALLY_FIELD_CHOICE;
    join(path, field->name, whole);
    add(faults, whole,
        &(struct fault){.code = code_of(field, value, &err),
                        .detail = err.message,
                        .suggestion = is_choice ? nearest_choice(field, value) : NULL,
                        .choices = is_choice ? field->choices : NULL,
                        .auto_allowed = field->auto_allowed});
    return false;
}

static void check_members(struct faults *faults, const struct tally_json *object, const char *path,
                          const struct members *members)
{
    check_keys(faults, object, path, members);
    for (size_t i = 0; i < members->n; i++) {
        union scratch value;
        check_member(faults, object, path, &members->fields[i], &value);
    }
}

/* Member `key` if it is an object; else adds a fault, unless the member may be absent. */
static const struct tally_json *get_object(struct faults *faults, const struct tally_json *parent,
                                           const char *path, const char *key, bool required)
{
    const struct tally_json *object = tally_json_get(parent, key);
    char whole[PATH_CAPACITY], detail[96];
    if (tally_json_is_object(object) || (object == NULL && !required)) {
        return object;
    }
    join(path, key, whole);
    snprintf(detail, sizeof detail, "%s %s", key,
             object == NULL ? "is missing" : "must be an object");
    add(faults, whole,
        &(struct fault){.code = object == NULL ? "missing" : "wrong_type", .detail = detail});
    return NULL;
}

/* Reads the type of an object as an index into `names`. The other members of an object with a
 * mistyped type are checked for the type that was probably meant. */
static bool get_type(struct faults *faults, const struct tally_json *object, const char *path,
                     const char *const *names, int *ret_type)
{
    const struct tally_field type = {
        .name = "type", .kind = TALLY_FIELD_CHOICE, .required = true, .choices = names};
    union scratch value;
    if (object == NULL) {
        return false;
    }
    if (check_member(faults, object, path, &type, &value)) {
        *ret_type = value.choice;
        return true;
    }
    const char *meant = nearest_choice(&type, tally_json_get(object, type.name));
    for (int i = 0; meant != NULL && names[i] != NULL; i++) {
        if (strcmp(names[i], meant) == 0) {
            *ret_type = i;
            return true;
        }
    }
    return false;
}

static void check_label(struct faults *faults, const struct tally_json *labels, const char *key)
{
    char path[PATH_CAPACITY];
    struct tally_label label;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_document_read_label(labels, key, &label, &err) == TALLY_OK) {
        return;
    }
    const bool is_text = tally_json_get_text(labels, key) != NULL;
    snprintf(path, sizeof path, "labels%s%s", key[0] != '\0' ? "." : "", key);
    add(faults, path,
        &(struct fault){.code = err.status == TALLY_OUT_OF_RANGE      ? "out_of_range"
                                : is_text || !tally_label_is_key(key) ? "not_allowed"
                                                                      : "wrong_type",
                        .detail = err.message});
}

static void check_labels(struct faults *faults, const struct tally_json *document)
{
    const struct tally_json *labels = get_object(faults, document, "", "labels", false);
    struct tally_error err = TALLY_ERROR_INIT;
    const char *key;
    if (labels != NULL && tally_document_count_labels(labels, &err) != TALLY_OK) {
        add(faults, "labels", &(struct fault){.code = "out_of_range", .detail = err.message});
    }
    for (size_t i = 0; labels != NULL && (key = tally_json_key(labels, i)) != NULL; i++) {
        check_label(faults, labels, key);
    }
}

static const char *const BESIDE_TYPE[] = {"type", NULL};

static void check_server_optimizer(struct faults *faults, const struct tally_json *algorithm)
{
    const struct tally_json *object =
        get_object(faults, algorithm, "algorithm", "server_optimizer", false);
    int type;
    if (get_type(faults, object, "algorithm.server_optimizer", TALLY_SERVER_OPTIMIZER_NAMES,
                 &type)) {
        const struct tally_server_optimizer_kind *kind = &TALLY_SERVER_OPTIMIZER_KINDS[type];
        const struct members members = {kind->fields, kind->n_fields, BESIDE_TYPE};
        check_members(faults, object, "algorithm.server_optimizer", &members);
    }
}

static void check_compression(struct faults *faults, const struct tally_json *algorithm)
{
    const struct tally_json *value = tally_json_get(algorithm, TALLY_COMPRESSION_NAME.name);
    if (tally_json_is_object(value)) {
        const struct members members = {TALLY_COMPRESSION_FIELDS, TALLY_N_COMPRESSION_FIELDS, NULL};
        check_members(faults, value, "algorithm.compression", &members);
    } else {
        union scratch name;
        check_member(faults, algorithm, "algorithm", &TALLY_COMPRESSION_NAME, &name);
    }
}

static void check_algorithm(struct faults *faults, const struct tally_json *document)
{
    const struct tally_json *object = get_object(faults, document, "", "algorithm", true);
    int type;
    if (!get_type(faults, object, "algorithm", TALLY_ALGORITHM_NAMES, &type)) {
        return;
    }
    const struct tally_algorithm *algorithm = TALLY_ALGORITHMS[type];
    struct tally_field fields[TALLY_ALGORITHM_FIELDS_MOST];
    const size_t n_fields =
        tally_algorithm_fields(algorithm, tally_document_trains(document), fields);
    const struct members members = {fields, n_fields, tally_document_algorithm_parts(algorithm)};
    check_members(faults, object, "algorithm", &members);
    if (algorithm->takes_server_optimizer) {
        check_server_optimizer(faults, object);
    }
    if (algorithm->takes_compression) {
        check_compression(faults, object);
    }
}

static void check_objective(struct faults *faults, const struct tally_json *document)
{
    static const char *const with_data[] = {"type", "data", NULL};
    const struct tally_json *object = get_object(faults, document, "", "objective", true);
    int type;
    if (!get_type(faults, object, "objective", TALLY_OBJECTIVE_NAMES, &type)) {
        return;
    }
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[type];
    const bool has_data = kind->data != 0;
    const struct members members = {kind->fields, kind->n_fields,
                                    has_data ? with_data : BESIDE_TYPE};
    check_members(faults, object, "objective", &members);
    if (!has_data) {
        return;
    }
    object = get_object(faults, object, "objective", "data", true);
    if (get_type(faults, object, "objective.data", TALLY_DATA_NAMES, &type)) {
        const struct tally_data_kind *data = &TALLY_DATA_KINDS[type];
        const struct members of_data = {data->fields, data->n_fields, BESIDE_TYPE};
        check_members(faults, object, "objective.data", &of_data);
    }
}

static void check_domain(struct faults *faults, const struct tally_json *document)
{
    const struct tally_json *object = get_object(faults, document, "", "domain", false);
    int type;
    if (get_type(faults, object, "domain", TALLY_DOMAIN_NAMES, &type)) {
        const struct tally_domain_kind *kind = &TALLY_DOMAIN_KINDS[type];
        const struct members members = {kind->fields, kind->n_fields, BESIDE_TYPE};
        check_members(faults, object, "domain", &members);
    }
}

static void check_initial_point(struct faults *faults, const struct tally_json *document)
{
    const struct tally_json *object = get_object(faults, document, "", "initial_point", false);
    int type;
    if (get_type(faults, object, "initial_point", TALLY_INITIAL_POINT_NAMES, &type)) {
        const struct tally_initial_point_kind *kind = &TALLY_INITIAL_POINT_KINDS[type];
        const struct members members = {kind->fields, kind->n_fields, BESIDE_TYPE};
        check_members(faults, object, "initial_point", &members);
    }
}

static void check_optional(struct faults *faults, const struct tally_json *document,
                           const char *key, const struct tally_field *fields, size_t n)
{
    const struct tally_json *object = get_object(faults, document, "", key, false);
    if (object != NULL) {
        const struct members members = {fields, n, NULL};
        check_members(faults, object, key, &members);
    }
}

/* In the order of read_document(). */
static void check_all_members(struct faults *faults, const struct tally_json *document)
{
    const struct members top = {TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS, TALLY_DOCUMENT_PARTS};
    check_members(faults, document, "", &top);
    check_labels(faults, document);
    check_algorithm(faults, document);
    check_objective(faults, document);
    check_initial_point(faults, document);
    check_domain(faults, document);
    check_optional(faults, document, "budget", TALLY_BUDGET_FIELDS, TALLY_N_BUDGET_FIELDS);
    check_optional(faults, document, "stop", TALLY_STOP_FIELDS, TALLY_N_STOP_FIELDS);
    check_optional(faults, document, "keep", TALLY_KEEP_FIELDS, TALLY_N_KEEP_FIELDS);
    check_optional(faults, document, "reference", TALLY_REFERENCE_FIELDS, TALLY_N_REFERENCE_FIELDS);
}

static void add_rule(struct faults *faults, const struct tally_error *err)
{
    const char *code = err->status == TALLY_OUT_OF_RANGE ? "out_of_range" : "conflict";
    add(faults, err->field, &(struct fault){.code = code, .detail = err->message});
}

/* The last rule walks through the stages of the job, so it is checked only if the others hold. */
static void check_rules(struct faults *faults, const struct tally_json *document)
{
    struct tally_job_spec spec = tally_job_spec_default();
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_document_read(document, &spec, &err) != TALLY_OK) {
        add_rule(faults, &err);
        return;
    }
    for (size_t rule = 0; rule < TALLY_N_JOB_RULES; rule++) {
        const bool is_last = rule == TALLY_N_JOB_RULES - 1;
        tally_error_clear(&err);
        if (is_last && tally_json_size(faults->list) > 0) {
            break;
        }
        if (tally_job_spec_check(&spec, rule, &err) != TALLY_OK) {
            add_rule(faults, &err);
        }
    }
}

struct tally_json *tally_document_faults(const char *text, size_t n)
{
    struct tally_json *document = NULL;
    if (tally_json_check_limits(text, n, &TALLY_DOCUMENT_LIMITS, NULL) != TALLY_OK ||
        tally_json_parse(text, n, &document, NULL) != TALLY_OK) {
        return NULL;
    }
    struct faults faults = {.list = tally_json_array()};
    faults.ok = faults.list != NULL && tally_json_is_object(document);
    if (faults.ok) {
        check_all_members(&faults, document);
    }
    if (faults.ok && tally_json_size(faults.list) == 0) {
        check_rules(&faults, document);
    }
    tally_json_free(document);
    return tally_json_if_complete(faults.list, faults.ok);
}

#include "services/job/document.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/algorithms/compression.h"
#include "services/algorithms/server_optimizer.h"
#include "services/algorithms/weights.h"
#include "services/job/job_advice.h"
#include "services/job/job_footprint.h"

/* Reads the member `labels` of a document, if it exists, as a text. Errors: those of
 * tally_document_read_label() and _count_labels(), with field "labels.KEY" or "labels". */
static enum tally_status read_labels(const struct tally_json *document,
                                     char ret_labels[TALLY_LABELS_CAPACITY],
                                     struct tally_error *err);

/* Prepends the name of the member that was read to the path of an error. */
static enum tally_status in_field(enum tally_status status, const char *key,
                                  struct tally_error *err)
{
    if (status != TALLY_OK) {
        tally_error_in_field(err, key);
    }
    return status;
}

/* Borrows member `key` if it is an object. */
static enum tally_status get_object(const struct tally_json *parent, const char *key,
                                    const struct tally_json **ret_object, struct tally_error *err)
{
    const struct tally_json *object = tally_json_get(parent, key);
    if (object == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, key, "%s is missing", key);
    }
    if (!tally_json_is_object(object)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, key, "%s must be an object", key);
    }
    *ret_object = object;
    return TALLY_OK;
}

/* As get_object(), for an object with a type, which is read as an index into `names`. */
static enum tally_status get_typed(const struct tally_json *parent, const char *key,
                                   const char *const *names, const struct tally_json **ret_object,
                                   int *ret_type, struct tally_error *err)
{
    const struct tally_field type = {
        .name = "type", .kind = TALLY_FIELD_CHOICE, .required = true, .choices = names};
    enum tally_status status = get_object(parent, key, ret_object, err);
    return status == TALLY_OK
               ? in_field(tally_json_read_field(*ret_object, &type, ret_type, err), key, err)
               : status;
}

static const char *const BESIDE_TYPE[] = {"type", NULL};
static const char *const WITH_OPTIMIZER[] = {"type", "server_optimizer", NULL};
static const char *const WITH_COMPRESSION[] = {"type", "server_optimizer", "compression", NULL};

const char *const *tally_document_algorithm_parts(const struct tally_algorithm *algorithm)
{
    return algorithm->takes_compression        ? WITH_COMPRESSION
           : algorithm->takes_server_optimizer ? WITH_OPTIMIZER
                                               : BESIDE_TYPE;
}

/* Without this member, the server moves by the mean difference. */
static enum tally_status read_server_optimizer(const struct tally_json *algorithm,
                                               struct tally_server_optimizer *optimizer,
                                               struct tally_error *err)
{
    const struct tally_json *object = NULL;
    if (tally_json_get(algorithm, "server_optimizer") == NULL) {
        return TALLY_OK;
    }
    *optimizer = tally_server_optimizer_defaults();
    enum tally_status status =
        get_typed(algorithm, "server_optimizer", TALLY_SERVER_OPTIMIZER_NAMES, &object,
                  &optimizer->type, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_server_optimizer_kind *kind = &TALLY_SERVER_OPTIMIZER_KINDS[optimizer->type];
    status =
        tally_json_read_fields(object, kind->fields, kind->n_fields, BESIDE_TYPE, optimizer, err);
    return in_field(status, "server_optimizer", err);
}

/* A name, or an object with both resolutions. */
static enum tally_status read_compression(const struct tally_json *algorithm,
                                          struct tally_compression *compression,
                                          struct tally_error *err)
{
    const struct tally_json *value = tally_json_get(algorithm, "compression");
    if (!tally_json_is_object(value)) {
        return tally_json_read_field(algorithm, &TALLY_COMPRESSION_NAME, &compression->type, err);
    }
    compression->type = TALLY_COMPRESSION_SET;
    return in_field(tally_json_read_fields(value, TALLY_COMPRESSION_FIELDS,
                                           TALLY_N_COMPRESSION_FIELDS, NULL, compression, err),
                    "compression", err);
}

bool tally_document_trains(const struct tally_json *document)
{
    const char *type = tally_json_get_text(tally_json_get(document, "objective"), "type");
    return type != NULL && strcmp(type, TALLY_OBJECTIVE_NAMES[TALLY_TRAINING]) == 0;
}

bool tally_document_evaluates(const struct tally_json *document)
{
    const char *who = tally_json_get_text(document, "evaluation");
    return tally_document_trains(document) &&
           (who == NULL || strcmp(who, TALLY_EVALUATION_NAMES[TALLY_EVALUATION_NONE]) != 0);
}

static enum tally_status read_algorithm(const struct tally_json *document,
                                        struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_json *object = NULL;
    enum tally_status status =
        get_typed(document, "algorithm", TALLY_ALGORITHM_NAMES, &object, &spec->algorithm, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const char *const *const beside = tally_document_algorithm_parts(algorithm);
    struct tally_field fields[TALLY_ALGORITHM_FIELDS_MOST];
    const size_t n_fields =
        tally_algorithm_fields(algorithm, tally_document_trains(document), fields);
    spec->params = algorithm->defaults();
    status = tally_json_read_fields(object, fields, n_fields, beside, &spec->params, err);
    if (status == TALLY_OK && algorithm->takes_server_optimizer) {
        status = read_server_optimizer(object, &spec->params.baseline.server_optimizer, err);
    }
    if (status == TALLY_OK && algorithm->takes_compression) {
        status = read_compression(object, &spec->params.baseline.compression, err);
    }
    if (status == TALLY_OK && algorithm->defaults_beside != NULL) {
        spec->params = algorithm->defaults_beside(&spec->params);
        status = tally_json_read_fields(object, algorithm->fields, algorithm->n_fields, BESIDE_TYPE,
                                        &spec->params, err);
    }
    return in_field(status, "algorithm", err);
}

static enum tally_status read_data(const struct tally_json *objective, struct tally_data_spec *data,
                                   struct tally_error *err)
{
    const struct tally_json *object = NULL;
    enum tally_status status =
        get_typed(objective, "data", TALLY_DATA_NAMES, &object, &data->type, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_data_kind *kind = &TALLY_DATA_KINDS[data->type];
    status = tally_json_read_fields(object, kind->fields, kind->n_fields, BESIDE_TYPE, data, err);
    return in_field(status, "data", err);
}

static enum tally_status read_objective(const struct tally_json *document,
                                        struct tally_objective_spec *spec, struct tally_error *err)
{
    static const char *const with_data[] = {"type", "data", NULL};
    const struct tally_json *object = NULL;
    enum tally_status status =
        get_typed(document, "objective", TALLY_OBJECTIVE_NAMES, &object, &spec->type, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[spec->type];
    const bool has_data = kind->data != 0;
    tally_objective_spec_choose(spec, spec->type);
    status = tally_json_read_fields(object, kind->fields, kind->n_fields,
                                    has_data ? with_data : BESIDE_TYPE, spec, err);
    if (status == TALLY_OK && has_data) {
        status = read_data(object, &spec->data, err);
    }
    return in_field(status, "objective", err);
}

/* Without this member, the domain is the whole space. */
static enum tally_status read_domain(const struct tally_json *document, struct tally_domain *domain,
                                     struct tally_error *err)
{
    const struct tally_json *object = NULL;
    if (tally_json_get(document, "domain") == NULL) {
        return TALLY_OK;
    }
    enum tally_status status =
        get_typed(document, "domain", TALLY_DOMAIN_NAMES, &object, &domain->type, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_domain_kind *kind = &TALLY_DOMAIN_KINDS[domain->type];
    status = tally_json_read_fields(object, kind->fields, kind->n_fields, BESIDE_TYPE, domain, err);
    return in_field(status, "domain", err);
}

/* Without this member, the job starts from 0. */
static enum tally_status read_initial_point(const struct tally_json *document,
                                            struct tally_initial_point *initial,
                                            struct tally_error *err)
{
    const struct tally_json *object = NULL;
    if (tally_json_get(document, "initial_point") == NULL) {
        return TALLY_OK;
    }
    enum tally_status status = get_typed(document, "initial_point", TALLY_INITIAL_POINT_NAMES,
                                         &object, &initial->type, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_initial_point_kind *kind = &TALLY_INITIAL_POINT_KINDS[initial->type];
    status =
        tally_json_read_fields(object, kind->fields, kind->n_fields, BESIDE_TYPE, initial, err);
    return in_field(status, "initial_point", err);
}

/* Reads an optional object made of plain fields. */
static enum tally_status read_optional(const struct tally_json *document, const char *key,
                                       const struct tally_field *fields, size_t n_fields,
                                       void *ret_struct, struct tally_error *err)
{
    const struct tally_json *object = NULL;
    if (tally_json_get(document, key) == NULL) {
        return TALLY_OK;
    }
    enum tally_status status = get_object(document, key, &object, err);
    return status == TALLY_OK
               ? in_field(tally_json_read_fields(object, fields, n_fields, NULL, ret_struct, err),
                          key, err)
               : status;
}

static enum tally_status check_reference(const struct tally_json *document,
                                         const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_json *reference = tally_json_get(document, "reference");
    bool has_value = reference != NULL && tally_json_get(reference, "value") != NULL;
    bool needs_value = spec->reference.type == TALLY_REFERENCE_VALUE;
    if (has_value == needs_value) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, "reference.value", "reference of type %s %s",
                      TALLY_REFERENCE_NAMES[spec->reference.type],
                      needs_value ? "needs a value" : "takes no value");
}

/* Over-selection, or a quorum below the answers of a round, without a policy means `drop`; `drop`
 * without a quorum means a quorum of 1. */
static enum tally_status complete_quorum(const struct tally_json *document,
                                         struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const uint32_t answers = tally_job_spec_answers(spec);
    const bool drops = spec->over_selection > 0 || (spec->quorum != 0 && spec->quorum < answers);
    if (tally_json_get(document, "policy") == NULL && drops) {
        spec->policy = TALLY_POLICY_DROP;
    }
    if (spec->quorum != 0) {
        return TALLY_OK;
    }
    const bool is_drop = spec->policy == TALLY_POLICY_DROP;
    const bool cannot_drop = is_drop && algorithm->needs_everyone && answers > 1;
    spec->quorum = is_drop && !cannot_drop ? 1 : answers;
    return !cannot_drop || spec->over_selection > 0 /* over-selection has its own error */
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "policy",
                            "policy drop closes rounds without all clients; algorithm %s needs the "
                            "message of every client in every round",
                            algorithm->name);
}

static enum tally_status check_evaluation(const struct tally_json *document,
                                          struct tally_error *err)
{
    return tally_json_get(document, "evaluation") == NULL || tally_document_trains(document)
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "evaluation",
                            "only the clients of an objective of type training evaluate models");
}

static void complete_encoding(const struct tally_json *document, struct tally_job_spec *spec)
{
    if (tally_json_get(document, "encoding") == NULL &&
        tally_job_spec_algorithm(spec) == &TALLY_CALM) {
        spec->encoding = TALLY_ENCODING_INDEX_DITHERED;
    }
}

const char *const TALLY_DOCUMENT_PARTS[] = {"labels", "algorithm", "objective", "initial_point",
                                            "domain", "reference", "budget",    "stop",
                                            "keep",   NULL};

enum tally_status tally_document_read(const struct tally_json *document,
                                      struct tally_job_spec *spec, struct tally_error *err)
{
    enum tally_status status = tally_json_read_fields(
        document, TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS, TALLY_DOCUMENT_PARTS, spec, err);
    if (status == TALLY_OK) {
        status = read_labels(document, spec->labels, err);
    }
    if (status == TALLY_OK) {
        status = read_algorithm(document, spec, err);
    }
    if (status == TALLY_OK) {
        status = read_objective(document, &spec->objective, err);
    }
    if (status == TALLY_OK) {
        status = read_initial_point(document, &spec->initial_point, err);
    }
    if (status == TALLY_OK) {
        status = read_domain(document, &spec->domain, err);
    }
    if (status == TALLY_OK) {
        status = read_optional(document, "budget", TALLY_BUDGET_FIELDS, TALLY_N_BUDGET_FIELDS,
                               &spec->budget, err);
    }
    if (status == TALLY_OK) {
        status = read_optional(document, "stop", TALLY_STOP_FIELDS, TALLY_N_STOP_FIELDS,
                               &spec->stop, err);
    }
    if (status == TALLY_OK) {
        status = read_optional(document, "keep", TALLY_KEEP_FIELDS, TALLY_N_KEEP_FIELDS,
                               &spec->keep, err);
    }
    if (status == TALLY_OK) {
        if (tally_objective_spec_is_plugin(&spec->objective)) { /* nobody can compute it here */
            spec->reference.type = TALLY_REFERENCE_NONE;
        }
        status = read_optional(document, "reference", TALLY_REFERENCE_FIELDS,
                               TALLY_N_REFERENCE_FIELDS, &spec->reference, err);
    }
    if (status == TALLY_OK) {
        status = check_reference(document, spec, err);
    }
    if (status == TALLY_OK) {
        status = complete_quorum(document, spec, err);
        complete_encoding(document, spec);
    }
    return status == TALLY_OK ? check_evaluation(document, err) : status;
}

/* A complete document has about 75 members on 3 levels, and 30 KiB if every text has its greatest
 * length and is escaped. The rest is room for white space and for unknown keys, which the error
 * then names. */
const struct tally_json_limits TALLY_DOCUMENT_LIMITS = {
    .bytes = 1 << 20, .values = 1000, .depth = 16};

enum tally_status tally_document_parse(const char *text, size_t n, struct tally_job_spec *ret_spec,
                                       struct tally_error *err)
{
    struct tally_json *document;
    enum tally_status status = tally_json_check_limits(text, n, &TALLY_DOCUMENT_LIMITS, err);
    if (status == TALLY_OK) {
        status = tally_json_parse(text, n, &document, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_job_spec spec = tally_job_spec_default();
    status = tally_document_read(document, &spec, err);
    tally_json_free(document);
    if (status == TALLY_OK) {
        status = tally_job_spec_validate(&spec, err);
    }
    if (status == TALLY_OK) {
        *ret_spec = spec;
    }
    return status;
}

/* The index of an object's type among `names`; -1 if it is none of them. */
static int type_of(const struct tally_json *object, const char *const *names)
{
    const char *type = tally_json_get_text(object, "type");
    for (int i = 0; type != NULL && names[i] != NULL; i++) {
        if (strcmp(names[i], type) == 0) {
            return i;
        }
    }
    return -1;
}

static bool has_text(const struct tally_field *fields, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (fields[i].kind == TALLY_FIELD_TEXT && strcmp(fields[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The objects that are not named here have no texts. */
bool tally_document_is_text(const struct tally_json *document, const char *path)
{
    static const char OBJECTIVE[] = "objective.", DATA[] = "objective.data.", STOP[] = "stop.",
                      KEEP[] = "keep.";
    const struct tally_json *objective = tally_json_get(document, "objective");
    if (strncmp(path, DATA, sizeof DATA - 1) == 0) {
        const int type = type_of(tally_json_get(objective, "data"), TALLY_DATA_NAMES);
        return type >= 0 && has_text(TALLY_DATA_KINDS[type].fields, TALLY_DATA_KINDS[type].n_fields,
                                     path + sizeof DATA - 1);
    }
    if (strncmp(path, OBJECTIVE, sizeof OBJECTIVE - 1) == 0) {
        const int type = type_of(objective, TALLY_OBJECTIVE_NAMES);
        return type >= 0 &&
               has_text(TALLY_OBJECTIVE_KINDS[type]->fields, TALLY_OBJECTIVE_KINDS[type]->n_fields,
                        path + sizeof OBJECTIVE - 1);
    }
    if (strncmp(path, STOP, sizeof STOP - 1) == 0) {
        return has_text(TALLY_STOP_FIELDS, TALLY_N_STOP_FIELDS, path + sizeof STOP - 1);
    }
    if (strncmp(path, KEEP, sizeof KEEP - 1) == 0) {
        return has_text(TALLY_KEEP_FIELDS, TALLY_N_KEEP_FIELDS, path + sizeof KEEP - 1);
    }
    return has_text(TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS, path);
}

/* An object that starts with its type. */
static struct tally_json *typed(const char *type, const struct tally_field *fields, size_t n_fields,
                                const void *from)
{
    struct tally_json *object = tally_json_object();
    bool ok = tally_json_set_text(object, "type", type) &&
              tally_json_write_fields(object, fields, n_fields, from);
    return tally_json_if_complete(object, ok);
}

/* Nothing for `none`, which a document may omit. */
static bool set_compression(struct tally_json *algorithm,
                            const struct tally_compression *compression)
{
    if (compression->type == TALLY_COMPRESSION_NONE) {
        return true;
    }
    if (compression->type == TALLY_COMPRESSION_AUTO) {
        return tally_json_set_text(algorithm, "compression", "auto");
    }
    struct tally_json *object = tally_json_object();
    const bool ok = tally_json_write_fields(object, TALLY_COMPRESSION_FIELDS,
                                            TALLY_N_COMPRESSION_FIELDS, compression);
    return tally_json_set(algorithm, "compression", tally_json_if_complete(object, ok));
}

static struct tally_json *algorithm_of(const struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_server_optimizer *optimizer = &spec->params.baseline.server_optimizer;
    struct tally_field fields[TALLY_ALGORITHM_FIELDS_MOST];
    const size_t n_fields =
        tally_algorithm_fields(algorithm, spec->objective.type == TALLY_TRAINING, fields);
    struct tally_json *object = typed(algorithm->name, fields, n_fields, &spec->params);
    if (algorithm->takes_compression) {
        object = tally_json_if_complete(
            object, set_compression(object, &spec->params.baseline.compression));
    }
    if (object == NULL || !algorithm->takes_server_optimizer ||
        !tally_server_optimizer_is_set(optimizer)) {
        return object;
    }
    const struct tally_server_optimizer_kind *kind = &TALLY_SERVER_OPTIMIZER_KINDS[optimizer->type];
    struct tally_json *part = typed(TALLY_SERVER_OPTIMIZER_NAMES[optimizer->type], kind->fields,
                                    kind->n_fields, optimizer);
    return tally_json_if_complete(object, tally_json_set(object, "server_optimizer", part));
}

static struct tally_json *objective_of(const struct tally_objective_spec *spec)
{
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[spec->type];
    struct tally_json *object = typed(kind->name, kind->fields, kind->n_fields, spec);
    if (object == NULL || kind->data == 0) {
        return object;
    }
    const struct tally_data_kind *data_kind = &TALLY_DATA_KINDS[spec->data.type];
    struct tally_json *data =
        typed(data_kind->name, data_kind->fields, data_kind->n_fields, &spec->data);
    if (!tally_json_set(object, "data", data)) {
        tally_json_free(object);
        return NULL;
    }
    return object;
}

/* Sets an object of plain fields, unless all of them have defaults that are not written. */
static bool set_optional(struct tally_json *document, const char *key,
                         const struct tally_field *fields, size_t n_fields, const void *from)
{
    struct tally_json *object = tally_json_object();
    const bool ok = tally_json_write_fields(object, fields, n_fields, from);
    if (ok && tally_json_key(object, 0) == NULL) {
        tally_json_free(object);
        return true;
    }
    return tally_json_set(document, key, tally_json_if_complete(object, ok));
}

struct tally_json *tally_document_of(const struct tally_job_spec *spec)
{
    const bool has_value = spec->reference.type == TALLY_REFERENCE_VALUE;
    const struct tally_domain_kind *domain = &TALLY_DOMAIN_KINDS[spec->domain.type];
    const struct tally_initial_point_kind *initial =
        &TALLY_INITIAL_POINT_KINDS[spec->initial_point.type];
    struct tally_json *document = tally_json_object();
    struct tally_json *parts[] = {
        algorithm_of(spec),
        objective_of(&spec->objective),
        typed(TALLY_INITIAL_POINT_NAMES[spec->initial_point.type], initial->fields,
              initial->n_fields, &spec->initial_point),
        typed(TALLY_DOMAIN_NAMES[spec->domain.type], domain->fields, domain->n_fields,
              &spec->domain),
        typed(TALLY_REFERENCE_NAMES[spec->reference.type], TALLY_REFERENCE_FIELDS + 1,
              has_value ? TALLY_N_REFERENCE_FIELDS - 1 : 0, &spec->reference),
    };
    static const char *const keys[] = {"algorithm", "objective", "initial_point", "domain",
                                       "reference"};
    const bool has_budget = spec->budget.uplink_bits > 0 || spec->budget.downlink_bits > 0;
    bool ok = tally_json_write_fields(document, TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS, spec) &&
              tally_document_set_labels(document, spec->labels);
    if (has_budget) {
        struct tally_json *budget = tally_json_object();
        ok = tally_json_set(document, "budget", budget) &&
             tally_json_write_fields(budget, TALLY_BUDGET_FIELDS, TALLY_N_BUDGET_FIELDS,
                                     &spec->budget) &&
             ok;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ok = tally_json_set(document, keys[i], parts[i]) && ok;
    }
    ok = set_optional(document, "stop", TALLY_STOP_FIELDS, TALLY_N_STOP_FIELDS, &spec->stop) &&
         set_optional(document, "keep", TALLY_KEEP_FIELDS, TALLY_N_KEEP_FIELDS, &spec->keep) && ok;
    return tally_json_if_complete(document, ok);
}

enum tally_status tally_document_count_labels(const struct tally_json *labels,
                                              struct tally_error *err)
{
    size_t n = 0;
    while (tally_json_key(labels, n) != NULL) {
        n++;
    }
    return n <= TALLY_LABELS_MOST ? TALLY_OK
                                  : tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                                               "%zu labels, at most %d", n, TALLY_LABELS_MOST);
}

enum tally_status tally_document_read_label(const struct tally_json *labels, const char *key,
                                            struct tally_label *ret_label, struct tally_error *err)
{
    const struct tally_field field = {
        .name = key, .kind = TALLY_FIELD_TEXT, .capacity = TALLY_LABEL_VALUE_CAPACITY};
    struct tally_label label = {.value = ""};
    if (!tally_label_is_key(key)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, key,
                          "\"%.80s\" is not a key: a key has " TALLY_LABEL_KEY_RULE, key);
    }
    memcpy(label.key, key, strlen(key) + 1);
    const enum tally_status status = tally_json_read_field(labels, &field, label.value, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (!tally_label_is_value(label.value)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, key, "%s contains a control character", key);
    }
    *ret_label = label;
    return TALLY_OK;
}

static enum tally_status read_labels(const struct tally_json *document,
                                     char ret_labels[TALLY_LABELS_CAPACITY],
                                     struct tally_error *err)
{
    const struct tally_json *labels = tally_json_get(document, "labels");
    char text[TALLY_LABELS_CAPACITY] = "";
    if (labels == NULL) {
        return TALLY_OK;
    }
    if (!tally_json_is_object(labels)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "labels", "labels must be an object");
    }
    enum tally_status status = tally_document_count_labels(labels, err);
    const char *key;
    for (size_t i = 0; status == TALLY_OK && (key = tally_json_key(labels, i)) != NULL; i++) {
        struct tally_label label;
        status = tally_document_read_label(labels, key, &label, err);
        if (status == TALLY_OK) {
            tally_labels_add(text, &label);
        }
    }
    if (status != TALLY_OK) {
        tally_error_in_field(err, "labels");
        return status;
    }
    memcpy(ret_labels, text, sizeof text);
    return TALLY_OK;
}

bool tally_document_set_labels(struct tally_json *object, const char *labels)
{
    struct tally_label label;
    if (labels[0] == '\0') {
        return true;
    }
    struct tally_json *value = tally_json_object();
    bool ok = value != NULL;
    while (ok && tally_labels_next(&labels, &label)) {
        ok = tally_json_set_text(value, label.key, label.value);
    }
    return tally_json_set(object, "labels", tally_json_if_complete(value, ok));
}

void tally_planned_make(const struct tally_setting *setting,
                        const struct tally_calm_schedule *schedule,
                        struct tally_planned *ret_planned)
{
    ret_planned->schedule = *schedule;
    calm_forecast(setting, schedule, &ret_planned->forecast);
}

bool tally_planned_is_due(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    return tally_job_spec_algorithm(spec) == &TALLY_CALM && calm_is_planned(&setting);
}

bool tally_planned_read(const struct tally_job_spec *spec, const char *schedule,
                        struct tally_planned *ret_planned)
{
    struct tally_calm_schedule read;
    if (!tally_planned_is_due(spec) || !calm_read_schedule(schedule, &read)) {
        return false;
    }
    const struct tally_setting setting = tally_job_spec_setting(spec);
    tally_planned_make(&setting, &read, ret_planned);
    const struct tally_calm_forecast *forecast = &ret_planned->forecast;
    return isfinite(forecast->regret + forecast->uplink_bits + forecast->downlink_bits);
}

static struct tally_json *epoch_json(const struct tally_calm_epoch_forecast *epoch,
                                     const struct tally_calm_epoch *planned)
{
    struct tally_json *object = tally_json_object();
    const bool sends = planned != NULL;
    return tally_json_if_complete(
        object, tally_json_set_integer(object, "samples", epoch->samples) &&
                    tally_json_set_real(object, "uplink_resolution",
                                        sends ? planned->uplink_resolution : NAN) &&
                    tally_json_set_real(object, "downlink_resolution",
                                        sends ? planned->downlink_resolution : NAN) &&
                    tally_json_set_real(object, "uplink_bits", epoch->uplink_bits) &&
                    tally_json_set_real(object, "downlink_bits", epoch->downlink_bits) &&
                    tally_json_set_real(object, "regret", epoch->regret) &&
                    tally_json_set_real(object, "variance", epoch->variance));
}

static struct tally_json *epochs_json(const struct tally_planned *planned)
{
    struct tally_json *list = tally_json_array();
    const struct tally_calm_schedule *schedule = &planned->schedule;
    bool ok = list != NULL;
    for (int k = 0; ok && k < planned->forecast.n; k++) {
        ok = tally_json_append(list, epoch_json(&planned->forecast.epochs[k],
                                                k < schedule->n ? &schedule->epochs[k] : NULL));
    }
    return tally_json_if_complete(list, ok);
}

bool tally_planned_add(struct tally_json *object, const struct tally_planned *planned)
{
    return tally_json_set_real(object, "regret", planned->forecast.regret) &&
           tally_json_set_real(object, "uplink_bits", planned->forecast.uplink_bits) &&
           tally_json_set_real(object, "downlink_bits", planned->forecast.downlink_bits) &&
           tally_json_set(object, "epochs", epochs_json(planned));
}

bool tally_planned_set(struct tally_json *object, const struct tally_planned *planned)
{
    if (planned == NULL) {
        return tally_json_set_null(object, "planned");
    }
    struct tally_json *value = tally_json_object();
    return tally_json_set(object, "planned",
                          tally_json_if_complete(value, tally_planned_add(value, planned)));
}

/* Bits of a whole job; 0 = not known. */
struct expected {
    uint64_t uplink_per_client, downlink;
    bool is_exact;
};

enum { MAX_ROUNDS = 1000000 }; /* that are counted one by one, in a few milliseconds */

static int64_t samples_after(const struct tally_algorithm *algorithm,
                             const struct tally_setting *setting, int64_t n_queries)
{
    struct tally_round_plan plan = {0};
    const bool ok = algorithm->plan(setting, n_queries, NULL, &plan, NULL) == TALLY_OK;
    return ok && plan.samples > 0 ? plan.samples : 1;
}

/* Counts the rounds that end within the horizon, and whether the horizon cuts one more. If a
 * baseline's rounds grow, their stage is the number of earlier queries. False: *ret_n is only an
 * upper bound, from the least number of queries of a round. */
static bool count_rounds(const struct tally_algorithm *algorithm,
                         const struct tally_setting *setting, int64_t *ret_n, bool *ret_is_cut)
{
    const int64_t horizon = setting->horizon;
    const int64_t least = samples_after(algorithm, setting, 0);
    *ret_n = horizon / least;
    *ret_is_cut = horizon % least != 0;
    if (*ret_n == 0 || samples_after(algorithm, setting, horizon) == least) {
        return true;
    }
    if (*ret_n > MAX_ROUNDS) {
        return false;
    }
    int64_t n = 0, last = 0;
    for (int64_t t = least; t <= horizon; t += samples_after(algorithm, setting, t)) {
        n++;
        last = t;
    }
    *ret_n = n;
    *ret_is_cut = last < horizon;
    return true;
}

/* A client's average bits, rounded up, given the `bits` of one that answers in every round: on
 * average, a client answers in answers / clients of the rounds. */
static uint64_t share_of(const struct tally_job_spec *spec, uint64_t bits)
{
    const uint64_t clients = (uint64_t)spec->clients, answers = tally_job_spec_answers(spec);
    return bits / clients * answers + (bits % clients * answers + clients - 1) / clients;
}

/* Every round has a message each way, except a last round cut by the horizon, which has only the
 * weights. A round that does not need all clients may have fewer messages. */
static struct expected baseline_bits(const struct tally_job_spec *spec,
                                     const struct tally_setting *setting)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_message_bits bits = algorithm->message_bits(setting);
    const uint64_t weight_bits = tally_weight_bits(setting);
    int64_t n;
    bool is_cut;
    const bool is_counted = count_rounds(algorithm, setting, &n, &is_cut);
    const uint64_t uplink = (uint64_t)n * (bits.uplink + weight_bits) + is_cut * weight_bits;
    return (struct expected){.uplink_per_client = share_of(spec, uplink),
                             .downlink = (uint64_t)n * bits.downlink,
                             .is_exact =
                                 is_counted && !bits.is_bound && spec->policy == TALLY_POLICY_WAIT};
}

static struct expected expect(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    if (tally_job_spec_algorithm(spec)->message_bits != NULL) {
        return baseline_bits(spec, &setting);
    }
    return (struct expected){.uplink_per_client = (uint64_t)spec->budget.uplink_bits,
                             .downlink = (uint64_t)spec->budget.downlink_bits};
}

static bool set_bits(struct tally_json *object, const char *key, uint64_t bits, bool is_known)
{
    return is_known ? tally_json_set_unsigned(object, key, bits) : tally_json_set_null(object, key);
}

static bool set_expected(struct tally_json *object, const struct tally_job_spec *spec)
{
    const struct expected bits = expect(spec);
    if (!bits.is_exact && bits.uplink_per_client == 0 && bits.downlink == 0) {
        return tally_json_set_null(object, "expected_bits");
    }
    struct tally_json *value = tally_json_object();
    const bool ok =
        set_bits(value, "uplink_per_client", bits.uplink_per_client,
                 bits.is_exact || bits.uplink_per_client > 0) &&
        set_bits(value, "downlink", bits.downlink, bits.is_exact || bits.downlink > 0) &&
        tally_json_set_bool(value, "is_exact", bits.is_exact);
    return tally_json_set(object, "expected_bits", tally_json_if_complete(value, ok));
}

static struct tally_json *texts(const char *const *list, size_t n)
{
    struct tally_json *array = tally_json_array();
    bool ok = array != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = tally_json_append(array, tally_json_text(list[i]));
    }
    return tally_json_if_complete(array, ok);
}

static struct tally_json *warnings_of(const struct tally_job_spec *spec, double suggested)
{
    const struct tally_curvature unknown = TALLY_CURVATURE_UNKNOWN;
    const struct tally_advice advice = tally_advise(spec, &unknown);
    const double step_size = tally_suggestion_step_of(spec);
    const char *list[TALLY_ADVICE_MOST + 1];
    char text[TALLY_ADVICE_CAPACITY];
    size_t n = 0;
    while (n < (size_t)advice.n) {
        list[n] = advice.texts[n];
        n++;
    }
    if (step_size > TALLY_SUGGESTION_WARNS * suggested) {
        snprintf(
            text, sizeof text,
            "step_size %.6g is %.3g times %.4g, the step size that is suggested for these data",
            step_size, step_size / suggested, suggested);
        list[n++] = text;
    }
    return texts(list, n);
}

/* What the preview leaves open. */
static struct tally_json *not_checked(const struct tally_suggestion *suggestion)
{
    static const char step[] = "step_size against the smoothness of f, which needs the data";
    const bool has_reason = suggestion != NULL && suggestion->reason[0] != '\0';
    const char *list[3];
    char text[sizeof step + TALLY_SUGGESTION_REASON_CAPACITY + 2];
    size_t n = 0;
    if (suggestion == NULL || isnan(suggestion->step_size)) {
        list[n++] = "whether data files exist and can be read";
        snprintf(text, sizeof text, "%s%s%s", step, has_reason ? ": " : "",
                 has_reason ? suggestion->reason : "");
        list[n++] = text;
    }
    list[n++] = "whether f(x*) can be solved for";
    return texts(list, n);
}

struct tally_json *tally_document_preview(const struct tally_job_spec *spec,
                                          const struct tally_planned *planned,
                                          const struct tally_suggestion *suggestion)
{
    const double suggested = suggestion != NULL ? suggestion->step_size : NAN;
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object,
        tally_json_set(object, "document", tally_document_of(spec)) &&
            tally_json_set(object, "warnings", warnings_of(spec, suggested)) &&
            set_expected(object, spec) && tally_planned_set(object, planned) &&
            tally_json_set_real(object, "suggested_step_size", suggested) &&
            tally_json_set_integer(object, "memory_bytes", tally_footprint_started(spec)) &&
            tally_json_set_integer(object, "solving_bytes", tally_footprint_solving(spec)) &&
            tally_json_set(object, "not_checked", not_checked(suggestion)));
}

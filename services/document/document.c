#include "services/document/document.h"

#include <string.h>

static size_t n_names(const char *const *names)
{
    size_t n = 0;
    while (names[n] != NULL) {
        n++;
    }
    return n;
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

/* Reads the "type" of an object as an index into names. */
static enum tally_status get_type(const struct tally_json *object, const char *const *names,
                                  int *ret_type, struct tally_error *err)
{
    const struct tally_field field = {
        .name = "type", .kind = TALLY_FIELD_CHOICE, .required = true, .choices = names};
    const char *type = tally_json_get_text(object, "type");
    for (size_t i = 0; type != NULL && i < n_names(names); i++) {
        if (strcmp(names[i], type) == 0) {
            *ret_type = (int)i;
            return TALLY_OK;
        }
    }
    /* Not one of them: let the field reader say so in its words. */
    const struct tally_json *value = tally_json_get(object, "type");
    struct tally_json *alone = tally_json_object();
    enum tally_status status = TALLY_NO_MEMORY;
    if (alone != NULL && (value == NULL || tally_json_set(alone, "type", tally_json_copy(value)))) {
        status = tally_json_read_fields(alone, &field, 1, NULL, ret_type, err);
    }
    tally_json_free(alone);
    return status;
}

static enum tally_status read_algorithm(const struct tally_json *document,
                                        struct tally_job_spec *spec, struct tally_error *err)
{
    static const char *const others[] = {"type", NULL};
    const struct tally_json *object = NULL;
    enum tally_status status = get_object(document, "algorithm", &object, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = get_type(object, TALLY_ALGORITHM_NAMES, &spec->algorithm, err);
    if (status == TALLY_OK) {
        const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
        spec->params = algorithm->defaults();
        status = tally_json_read_fields(object, algorithm->fields, algorithm->n_fields, others,
                                        &spec->params, err);
        if (status == TALLY_OK && algorithm->defaults_beside != NULL) {
            spec->params = algorithm->defaults_beside(&spec->params);
            status = tally_json_read_fields(object, algorithm->fields, algorithm->n_fields, others,
                                            &spec->params, err);
        }
    }
    if (status != TALLY_OK) {
        tally_error_in_field(err, "algorithm");
    }
    return status;
}

static enum tally_status read_data(const struct tally_json *objective, struct tally_data_spec *data,
                                   struct tally_error *err)
{
    static const char *const others[] = {"type", NULL};
    const struct tally_json *object = NULL;
    enum tally_status status = get_object(objective, "data", &object, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = get_type(object, TALLY_DATA_NAMES, &data->type, err);
    if (status == TALLY_OK) {
        const struct tally_data_kind *kind = &TALLY_DATA_KINDS[data->type];
        status = tally_json_read_fields(object, kind->fields, kind->n_fields, others, data, err);
    }
    if (status != TALLY_OK) {
        tally_error_in_field(err, "data");
    }
    return status;
}

static enum tally_status read_objective(const struct tally_json *document,
                                        struct tally_objective_spec *spec, struct tally_error *err)
{
    static const char *const with_data[] = {"type", "data", NULL};
    static const char *const without_data[] = {"type", NULL};
    bool has_data = false;
    const struct tally_json *object = NULL;
    enum tally_status status = get_object(document, "objective", &object, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = get_type(object, TALLY_OBJECTIVE_NAMES, &spec->type, err);
    if (status == TALLY_OK) {
        const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[spec->type];
        has_data = kind->data != 0;
        tally_objective_spec_choose(spec, spec->type);
        status = tally_json_read_fields(object, kind->fields, kind->n_fields,
                                        has_data ? with_data : without_data, spec, err);
    }
    if (status == TALLY_OK && has_data) {
        status = read_data(object, &spec->data, err);
    }
    if (status != TALLY_OK) {
        tally_error_in_field(err, "objective");
    }
    return status;
}

/* Without it the domain is the whole space. */
static enum tally_status read_domain(const struct tally_json *document, struct tally_domain *domain,
                                     struct tally_error *err)
{
    static const char *const others[] = {"type", NULL};
    if (tally_json_get(document, "domain") == NULL) {
        return TALLY_OK;
    }
    const struct tally_json *object = NULL;
    enum tally_status status = get_object(document, "domain", &object, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = get_type(object, TALLY_DOMAIN_NAMES, &domain->type, err);
    if (status == TALLY_OK) {
        const struct tally_domain_kind *kind = &TALLY_DOMAIN_KINDS[domain->type];
        status = tally_json_read_fields(object, kind->fields, kind->n_fields, others, domain, err);
    }
    if (status != TALLY_OK) {
        tally_error_in_field(err, "domain");
    }
    return status;
}

/* Reads an optional object made of plain fields. */
static enum tally_status read_optional(const struct tally_json *document, const char *key,
                                       const struct tally_field *fields, size_t n_fields,
                                       void *ret_struct, struct tally_error *err)
{
    if (tally_json_get(document, key) == NULL) {
        return TALLY_OK;
    }
    const struct tally_json *object = NULL;
    enum tally_status status = get_object(document, key, &object, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_json_read_fields(object, fields, n_fields, NULL, ret_struct, err);
    if (status != TALLY_OK) {
        tally_error_in_field(err, key);
    }
    return status;
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

/* A quorum alone means that a round need not wait for more; a policy of dropping alone, that any
 * answer will do. */
static void complete_quorum(const struct tally_json *document, struct tally_job_spec *spec)
{
    if (tally_json_get(document, "policy") == NULL && spec->quorum != 0 &&
        spec->quorum < spec->clients) {
        spec->policy = TALLY_POLICY_DROP;
    }
    if (spec->quorum == 0) {
        spec->quorum = spec->policy == TALLY_POLICY_DROP ? 1 : spec->clients;
    }
}

static enum tally_status read_document(const struct tally_json *document,
                                       struct tally_job_spec *spec, struct tally_error *err)
{
    static const char *const others[] = {"algorithm", "objective", "initial_point",
                                         "domain",    "reference", NULL};
    enum tally_status status =
        tally_json_read_fields(document, TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS, others, spec, err);
    if (status == TALLY_OK) {
        status = read_algorithm(document, spec, err);
    }
    if (status == TALLY_OK) {
        status = read_objective(document, &spec->objective, err);
    }
    if (status == TALLY_OK) {
        status = read_optional(document, "initial_point", TALLY_INITIAL_POINT_FIELDS,
                               TALLY_N_INITIAL_POINT_FIELDS, &spec->initial_point, err);
    }
    if (status == TALLY_OK) {
        status = read_domain(document, &spec->domain, err);
    }
    if (status == TALLY_OK) {
        if (spec->objective.type == TALLY_PLUGIN) { /* nobody here could solve for it */
            spec->reference.type = TALLY_REFERENCE_NONE;
        }
        status = read_optional(document, "reference", TALLY_REFERENCE_FIELDS,
                               TALLY_N_REFERENCE_FIELDS, &spec->reference, err);
    }
    if (status == TALLY_OK) {
        status = check_reference(document, spec, err);
    }
    if (status == TALLY_OK) {
        complete_quorum(document, spec);
        status = tally_job_spec_validate(spec, err);
    }
    return status;
}

/* A complete document has about 60 members on 3 levels, and 30 KiB if all its texts have their
 * greatest length and are escaped. The rest leaves room for white space and for unknown keys, which
 * the error then names. */
static const struct tally_json_limits LIMITS = {.bytes = 1 << 20, .values = 1000, .depth = 16};

enum tally_status tally_document_parse(const char *text, size_t n, struct tally_job_spec *ret_spec,
                                       struct tally_error *err)
{
    struct tally_json *document;
    enum tally_status status = tally_json_check_limits(text, n, &LIMITS, err);
    if (status == TALLY_OK) {
        status = tally_json_parse(text, n, &document, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_job_spec spec = tally_job_spec_default();
    status = read_document(document, &spec, err);
    tally_json_free(document);
    if (status == TALLY_OK) {
        *ret_spec = spec;
    }
    return status;
}

/* An object that starts with its type. */
static struct tally_json *typed(const char *type, const struct tally_field *fields, size_t n_fields,
                                const void *from)
{
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL && tally_json_set_text(object, "type", type) &&
              tally_json_write_fields(object, fields, n_fields, from);
    if (!ok) {
        tally_json_free(object);
        return NULL;
    }
    return object;
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

struct tally_json *tally_document_of(const struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const bool has_value = spec->reference.type == TALLY_REFERENCE_VALUE;
    const struct tally_domain_kind *domain = &TALLY_DOMAIN_KINDS[spec->domain.type];
    struct tally_json *document = tally_json_object();
    struct tally_json *parts[] = {
        typed(algorithm->name, algorithm->fields, algorithm->n_fields, &spec->params),
        objective_of(&spec->objective),
        typed(TALLY_INITIAL_POINT_NAMES[spec->initial_point.type], TALLY_INITIAL_POINT_FIELDS + 1,
              TALLY_N_INITIAL_POINT_FIELDS - 1, &spec->initial_point),
        typed(TALLY_DOMAIN_NAMES[spec->domain.type], domain->fields, domain->n_fields,
              &spec->domain),
        typed(TALLY_REFERENCE_NAMES[spec->reference.type], TALLY_REFERENCE_FIELDS + 1,
              has_value ? TALLY_N_REFERENCE_FIELDS - 1 : 0, &spec->reference),
    };
    static const char *const keys[] = {"algorithm", "objective", "initial_point", "domain",
                                       "reference"};
    bool ok = document != NULL &&
              tally_json_write_fields(document, TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS, spec);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (ok) {
            ok = tally_json_set(document, keys[i], parts[i]);
        } else {
            tally_json_free(parts[i]);
        }
    }
    if (!ok) {
        tally_json_free(document);
        return NULL;
    }
    return document;
}

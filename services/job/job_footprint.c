#include "services/job/job_footprint.h"

#include "services/job/job_clients.h"

enum {
    REAL_BYTES = 8,
    /* x, sums, scratch, broadcasts kept, the next one, the task, the state */
    COORDINATE_BYTES = 8 + 8 + 8 + 8 + 4 + 8 + 8,
    STATE_CLIENT_BYTES = 32,
    CLIENT_BYTES = TALLY_FOOTPRINT_ENGINE_CLIENT + TALLY_FOOTPRINT_SLOT,
    /* of a cohort below M: the receipts of 16 rounds in the state; two draws */
    COHORT_CLIENT_BYTES = 16 * STATE_CLIENT_BYTES + 2 * 20,
    EARLIER_ANSWER_BYTES = sizeof(struct job_earlier_answer),
    FIXED_BYTES = 192 << 10,
    SOLVER_VECTORS = 10,
    POINT_BYTES = 16,       /* label and place of a point */
    MAX_HESSIAN_DIM = 1024, /* the largest of all solvers */
    HESSIANS = 3,           /* the Hessian, and its factor or eigenvalues */
};

static int64_t dim_of(const struct tally_job_spec *spec)
{
    return (int64_t)tally_objective_spec_dim(&spec->objective);
}

/* With weights a sum has two words; the best point is one more vector. */
static int64_t coordinate_bytes(const struct tally_job_spec *spec)
{
    const bool is_weighted = spec->objective.weighting == TALLY_WEIGHTING_POINTS;
    const bool keeps_best = spec->keep.best[0] != '\0';
    return (COORDINATE_BYTES + (is_weighted ? 8 : 0) + (keeps_best ? REAL_BYTES : 0)) *
           dim_of(spec);
}

/* The memory of an algorithm that has one. */
static int64_t own_bytes(const struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_setting setting = tally_job_spec_setting(spec);
    return algorithm->memory.bytes == NULL ? 0 : (int64_t)algorithm->memory.bytes(&setting);
}

/* The additional bytes of an algorithm with a memory: the memory, its copy in the saved state, and
 * a wide scratch vector. */
static int64_t memory_bytes(const struct tally_job_spec *spec)
{
    const int64_t n = own_bytes(spec);
    return n == 0 ? 0 : 2 * n + REAL_BYTES * dim_of(spec);
}

static int64_t round_bytes(const struct tally_job_spec *spec)
{
    const int64_t cohort = tally_job_spec_cohort(spec);
    return cohort < spec->clients ? COHORT_CLIENT_BYTES * cohort
                                  : STATE_CLIENT_BYTES * spec->clients;
}

static int64_t clients_bytes(const struct tally_job_spec *spec)
{
    const int64_t earlier = tally_job_spec_keeps_earlier_weights(spec) ? EARLIER_ANSWER_BYTES : 0;
    return (CLIENT_BYTES + earlier) * spec->clients + round_bytes(spec);
}

/* The scaling that a survey gives. */
static int64_t scaling_bytes(const struct tally_job_spec *spec)
{
    return tally_job_spec_is_surveyed(spec)
               ? 3 * REAL_BYTES * tally_data_spec_features(&spec->objective.data)
               : 0;
}

/* The scaling, its copy in the state and in a task, and two totals of the survey at once. With
 * cohorts, the list of all clients. */
static int64_t survey_bytes(const struct tally_job_spec *spec)
{
    enum { TOTAL_BYTES = 64 }; /* of a feature, usually 35 */
    return tally_job_spec_is_surveyed(spec)
               ? 3 * scaling_bytes(spec) +
                     2 * TOTAL_BYTES * tally_data_spec_features(&spec->objective.data) +
                     4 * spec->clients
               : 0;
}

int64_t tally_footprint_state(const struct tally_job_spec *spec)
{
    return REAL_BYTES * dim_of(spec) + round_bytes(spec) + own_bytes(spec) + scaling_bytes(spec);
}

int64_t tally_footprint_started(const struct tally_job_spec *spec)
{
    return coordinate_bytes(spec) + clients_bytes(spec) + memory_bytes(spec) + survey_bytes(spec) +
           FIXED_BYTES;
}

static struct tally_message_bits message_bits(const struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_setting setting = tally_job_spec_setting(spec);
    if (algorithm->message_bits != NULL) {
        return algorithm->message_bits(&setting);
    }
    /* `unary` has a bit or more for each coordinate. With a budget, longer messages are empty. */
    const bool is_unary =
        setting.encoding == &TALLY_ENCODING_UNARY && spec->budget.uplink_bits == 0;
    return (struct tally_message_bits){.is_bound = true, .least = is_unary ? setting.dim : 0};
}

int64_t tally_footprint_update(const struct tally_job_spec *spec)
{
    const struct tally_message_bits bits = message_bits(spec);
    return (int64_t)(((bits.is_bound ? bits.least : bits.uplink) + 7) / 8);
}

const char *tally_footprint_update_field(const struct tally_job_spec *spec)
{
    const char *field = message_bits(spec).field;
    return field != NULL ? field : tally_objective_dim_field(&spec->objective);
}

const char *tally_footprint_started_field(const struct tally_job_spec *spec)
{
    return coordinate_bytes(spec) >= clients_bytes(spec)
               ? tally_objective_dim_field(&spec->objective)
               : "clients";
}

/* Bytes of the data; 0 if the document does not give their size. */
static int64_t data_bytes(const struct tally_data_spec *data)
{
    const int64_t features = tally_data_spec_features(data);
    if (data->type == TALLY_DATA_SYNTHETIC_LINEAR) {
        return data->synthetic_linear.points * (REAL_BYTES * features + POINT_BYTES);
    }
    if (data->type == TALLY_DATA_IDX) {
        return data->idx.points_per_class * data->idx.classes * (features + POINT_BYTES);
    }
    return data->type == TALLY_DATA_MATRIX ? 2 * REAL_BYTES * features * features : 0;
}

int64_t tally_footprint_solving(const struct tally_job_spec *spec)
{
    if (spec->reference.type != TALLY_REFERENCE_SOLVE) {
        return 0;
    }
    const int64_t dim = dim_of(spec);
    const int64_t hessian = dim <= MAX_HESSIAN_DIM ? HESSIANS * REAL_BYTES * dim * dim : 0;
    return data_bytes(&spec->objective.data) + SOLVER_VECTORS * REAL_BYTES * dim + hessian;
}

const char *tally_footprint_solving_field(const struct tally_job_spec *spec)
{
    const struct tally_data_spec *data = &spec->objective.data;
    const bool is_data = 2 * data_bytes(data) > tally_footprint_solving(spec);
    if (is_data && data->type == TALLY_DATA_SYNTHETIC_LINEAR) {
        return "objective.data.points";
    }
    return is_data && data->type == TALLY_DATA_IDX ? "objective.data.points_per_class"
                                                   : tally_objective_dim_field(&spec->objective);
}

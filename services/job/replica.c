#include "services/job/replica.h"

#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"

struct tally_replica {
    struct tally_job_spec spec;
    struct tally_setting setting;
    const struct tally_algorithm *algorithm;
    const struct tally_objective *objective;
    int64_t iterate;
    double *x;    /* double[dim] */
    double *next; /* double[dim]: where a broadcast is applied before it is taken */
    struct tally_scratch scratch;
    struct tally_client_answer answer;
};

void tally_replica_free(struct tally_replica *replica)
{
    if (replica != NULL) {
        free(replica->x);
        free(replica->next);
        tally_scratch_fini(&replica->scratch);
        tally_message_fini(&replica->answer.message);
        free(replica);
    }
}

enum tally_status tally_replica_new(const struct tally_job_spec *spec,
                                    const struct tally_objective *objective,
                                    struct tally_replica **ret_replica, struct tally_error *err)
{
    struct tally_replica *replica = calloc(1, sizeof *replica);
    if (replica == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a replica");
    }
    replica->spec = *spec;
    replica->setting = tally_job_spec_setting(&replica->spec);
    replica->algorithm = tally_job_spec_algorithm(spec);
    replica->objective = objective;
    replica->iterate = 1;
    size_t dim = replica->setting.dim;
    replica->x = calloc(dim, sizeof *replica->x);
    replica->next = calloc(dim, sizeof *replica->next);
    enum tally_status status =
        tally_scratch_init(&replica->scratch, dim, TALLY_SCRATCH_CLIENT, err);
    if (status != TALLY_OK || replica->x == NULL || replica->next == NULL) {
        tally_replica_free(replica);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for vectors of dim %zu", dim);
    }
    tally_job_spec_initial_point(&replica->spec, replica->x);
    *ret_replica = replica;
    return TALLY_OK;
}

int64_t tally_replica_iterate(const struct tally_replica *replica)
{
    return replica->iterate;
}

uint64_t tally_replica_checksum(const struct tally_replica *replica)
{
    return tally_checksum64(replica->x, replica->setting.dim * sizeof *replica->x);
}

enum tally_status tally_replica_apply(struct tally_replica *replica, int64_t iterate,
                                      const struct tally_message_view *broadcast,
                                      struct tally_error *err)
{
    if (iterate != replica->iterate + 1) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "broadcasts",
                          "broadcast to iterate %lld cannot follow iterate %lld",
                          (long long)iterate, (long long)replica->iterate);
    }
    memcpy(replica->next, replica->x, replica->setting.dim * sizeof *replica->x);
    enum tally_status status = replica->algorithm->apply(&replica->setting, broadcast,
                                                         &replica->scratch, replica->next, err);
    if (status == TALLY_OK) {
        double *old = replica->x;
        replica->x = replica->next;
        replica->next = old;
        replica->iterate = iterate;
    }
    return status;
}

enum tally_status tally_replica_load(struct tally_replica *replica, int64_t iterate,
                                     const uint8_t *snapshot, size_t n, struct tally_error *err)
{
    size_t need = replica->setting.dim * sizeof *replica->x;
    if (n != need) {
        return tally_fail(err, TALLY_MALFORMED, "snapshot", "snapshot of %zu bytes instead of %zu",
                          n, need);
    }
    memcpy(replica->x, snapshot, n);
    replica->iterate = iterate;
    return TALLY_OK;
}

enum tally_status tally_replica_compute(struct tally_replica *replica,
                                        const struct tally_job_round *round, uint32_t client,
                                        struct tally_job_update *ret_update,
                                        struct tally_bits *ret_bits, struct tally_error *err)
{
    if (client >= replica->setting.clients) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "clients", "client %u outside [0, %u]", client,
                          replica->setting.clients - 1);
    }
    if (round->plan.samples < 1 || round->plan.samples > replica->spec.horizon) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "samples", "samples %lld outside [1, %lld]",
                          (long long)round->plan.samples, (long long)replica->spec.horizon);
    }
    const bool evaluate = round->evaluate && tally_objective_has_loss(replica->objective);
    const struct tally_client_task task = {
        &replica->setting, &round->plan, replica->objective, client, (uint32_t)round->round,
        replica->x,        evaluate};
    enum tally_status status =
        replica->algorithm->client_step(&task, &replica->scratch, &replica->answer, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_job_update update = {.round = round->round, .client = client};
    struct tally_bits bits = {0};
    if (!round->plan.cut) {
        bits = replica->answer.message.bits;
        update.payload = replica->answer.message.payload.data;
        update.n_payload = replica->answer.message.payload.size;
        update.payload_bits = bits.payload_bits;
        update.clipped = (uint32_t)bits.clipped;
    }
    if (evaluate) {
        update.has_loss = true;
        update.loss = replica->answer.loss;
    }
    *ret_update = update;
    *ret_bits = bits;
    return TALLY_OK;
}

#include "tests/unit/services/plugins/stub_plugin.h"

#include <stdio.h>
#include <string.h>

struct stub stub;

static int answer(char *ret_why, size_t capacity)
{
    if (stub.code != 0 && stub.why != NULL) {
        snprintf(ret_why, capacity, "%s", stub.why);
    }
    return stub.code;
}

static int open_stub(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                     size_t capacity)
{
    stub.problem = *problem;
    snprintf(stub.options, sizeof stub.options, "%s", problem->options);
    snprintf(stub.data_dir, sizeof stub.data_dir, "%s", problem->data_dir);
    const int code = answer(ret_why, capacity);
    stub.n_opened += code == 0;
    *ret_state = &stub;
    return code;
}

static void close_stub(void *state)
{
    ((struct stub *)state)->n_closed++;
}

static int gradient(void *state, const struct tally_plugin_query *query, const double *x,
                    double *ret_gradient, uint64_t *ret_dim, char *ret_why, size_t capacity)
{
    struct stub *self = state;
    self->n_gradients++;
    self->query = *query;
    for (int i = 0; i < 4; i++) {
        self->draws[i] = query->below(query->stream, 1000);
    }
    for (uint64_t i = 0; i + self->left_out < STUB_DIM; i++) {
        ret_gradient[i] = self->change[i] != 0 ? self->change[i] : x[i] + (double)i;
    }
    *ret_dim = self->dim != 0 ? self->dim : STUB_DIM;
    return answer(ret_why, capacity);
}

static int loss(void *state, uint32_t client, const double *x, double *ret_loss, char *ret_why,
                size_t capacity)
{
    struct stub *self = state;
    self->n_losses++;
    *ret_loss = self->loss != 0 ? self->loss : client + x[0];
    return answer(ret_why, capacity);
}

const struct tally_plugin STUB_PLUGIN = {.abi = TALLY_PLUGIN_ABI,
                                         .size = sizeof STUB_PLUGIN,
                                         .name = "stub",
                                         .open = open_stub,
                                         .close = close_stub,
                                         .gradient = gradient,
                                         .loss = loss};

struct tally_plugin_problem stub_problem(void)
{
    return (struct tally_plugin_problem){.size = sizeof(struct tally_plugin_problem),
                                         .dim = STUB_DIM,
                                         .clients = 2,
                                         .seed = 5,
                                         .options = "shallow",
                                         .data_dir = "here"};
}

struct tally_job_spec stub_job(void)
{
    struct tally_job_spec spec = tally_job_spec_default();
    spec.objective.type = TALLY_PLUGIN;
    spec.objective.plugin =
        (struct tally_plugin_spec){.name = "stub", .dim = STUB_DIM, .options = "shallow"};
    spec.reference.type = TALLY_REFERENCE_NONE;
    spec.clients = 2;
    spec.seed = 5;
    return spec;
}

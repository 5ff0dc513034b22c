#include "services/experiment/run_problem.h"

#include <stdio.h>

/* 1/sqrt(N), N = 2000: equivalent to unit noise with rows of norm 100 and sample gradients that
 * keep the 1/N of f. */
static const double QUIET_NOISE_STD = 0.022360679774997897; /* 1 / sqrt(2000) */

const char *tally_problem_experiment(const struct tally_problem *problem)
{
    return problem->kind == TALLY_PROBLEM_MNIST ? "mnist" : "synthetic";
}

const char *tally_problem_reading(const struct tally_problem *problem)
{
    static const char *const names[] = {[TALLY_PROBLEM_LOUD] = "loud",
                                        [TALLY_PROBLEM_QUIET] = "quiet",
                                        [TALLY_PROBLEM_MNIST] = NULL};
    return names[problem->kind];
}

double tally_problem_usual_radius(enum tally_problem_kind kind)
{
    static const double radii[] = {
        [TALLY_PROBLEM_LOUD] = 2, [TALLY_PROBLEM_QUIET] = 1, [TALLY_PROBLEM_MNIST] = 0};
    return radii[kind];
}

static void make_synthetic(const struct tally_problem *problem, struct tally_job_spec *spec)
{
    spec->horizon = 2000;
    spec->minibatch = 1;
    spec->objective.type = TALLY_LEAST_SQUARES;
    spec->objective.data.type = TALLY_DATA_SYNTHETIC_LINEAR;
    spec->objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 30,
        .points = 2000,
        .frobenius_norm = 100,
        .noise_std = problem->kind == TALLY_PROBLEM_LOUD ? 1 : QUIET_NOISE_STD};
    spec->initial_point = (struct tally_initial_point){.type = TALLY_INITIAL_RANDOM_SPHERE,
                                                       .radius = problem->radius};
}

static void make_mnist(struct tally_job_spec *spec)
{
    struct tally_idx_data *data = &spec->objective.data.idx;
    spec->horizon = 1000;
    spec->minibatch = 25;
    spec->evaluate_every = 10; /* f sums over 50,000 images; test_baseline bounds the error */
    spec->objective.type = TALLY_SOFTMAX_REGRESSION;
    spec->objective.l2 = 0.5;
    spec->objective.data.type = TALLY_DATA_IDX;
    snprintf(data->images, sizeof data->images, "train-images-idx3-ubyte");
    snprintf(data->labels, sizeof data->labels, "train-labels-idx1-ubyte");
    data->features = 784;
    data->classes = 10;
    data->points_per_class = 5000;
    spec->initial_point.type = TALLY_INITIAL_ZEROS;
}

struct tally_job_spec tally_problem_job(const struct tally_problem *problem)
{
    struct tally_job_spec spec = tally_job_spec_default();
    spec.encoding = TALLY_ENCODING_INDEX_UNARY; /* as in [1]; formula bits are the same for any */
    spec.clients = 10;
    spec.quorum = 10;
    if (problem->kind == TALLY_PROBLEM_MNIST) {
        make_mnist(&spec);
    } else {
        make_synthetic(problem, &spec);
    }
    return spec;
}

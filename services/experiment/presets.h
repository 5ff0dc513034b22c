/* presets: the algorithms of [1]'s Table I, and CALM, with their parameters and the bits that [1]
 * reports for them.
 *
 * Baselines have one preset, `paper`, at [1]'s step size. The preset also has the step size of
 * least regret, because a baseline at a step size that is too large for the problem makes CEAL and
 * CALM look better than they are. On the synthetic problem FedAvg and FedPAQ also have `scheduled`:
 * steps that decay and rounds that grow, tuned within Table I's rounds, which is the structure of
 * CALM's epochs without CALM's coding. FedAvg also has `compressed` and, on the synthetic problem,
 * `scheduled_compressed`: the member `compression` is "auto", and all else as in the row of FedAvg
 * that has the least regret, or as in `scheduled`. [1] has no such method; they stand beside the
 * bits that [1] reports for FedAvg. CEAL has more presets, because [1] states none of its
 * constants except the step size:
 *   paper        at [1]'s step size;
 *   paper_bits   within the bits of Table I, both ways;
 *   low_regret   as little regret as a few hundred bits more buy (on MNIST that is `paper`).
 *
 * CALM's presets on the synthetic problem have the constants of the problem and a budget. Message
 * lengths vary, so a job leaves part of its budget unused. The budgets are such that the means of
 * the bits actually sent, control bits included, stay within these limits, up and down:
 *   half_bits    130 / 145, half of what [1] reports for CEAL;
 *   paper_bits   263 / 289, what [1] reports for CEAL;
 *   low_regret   540 / 550; on MNIST 31,000 / 57,000;
 *   paper_regret only for MNIST: no more regret than CEAL has there, and fewer bits;
 *   auto         knows nothing but the step size, and has no budget.
 *
 * Each preset, with seed 1, is also a file in deploy/jobs. A baseline has two:
 * synthetic-fedavg.json at the step size of least regret, and synthetic-fedavg-paper.json. */
#ifndef TALLY_SERVICES_EXPERIMENT_PRESETS_H
#define TALLY_SERVICES_EXPERIMENT_PRESETS_H

#include "services/algorithms/algorithm.h"
#include "services/experiment/run.h"

/* Step sizes tried: that of [1] times factor^first .. factor^last. factor 0: the step size is
 * fixed. */
struct tally_step_range {
    double factor;
    int first, last;
};

/* Bits of Table I over the job: up, per client; down, each broadcast counted once. */
struct tally_paper_bits {
    double uplink, downlink;
};

struct tally_preset {
    const char *name;
    unsigned problems; /* the bits 1 << enum tally_problem_kind of its problems */
    const struct tally_algorithm *algorithm;
    union tally_algorithm_params params;
    struct tally_step_range grid;
    double tuned[3]; /* step size of least regret, by enum tally_problem_kind; 0 = not known */
    struct tally_paper_bits paper; /* those of CEAL, where [1] does not have the algorithm */
    struct tally_budget budget;    /* of CALM */
};

/* In the order of Table I, then CEAL, then CALM. */
extern const struct tally_preset TALLY_PRESETS[];
extern const size_t TALLY_N_PRESETS;

bool tally_preset_is_for(const struct tally_preset *preset, enum tally_problem_kind kind);

/* Borrows the preset of that name; NULL if there is none. */
const struct tally_preset *tally_preset_get(enum tally_problem_kind kind,
                                            const struct tally_algorithm *algorithm,
                                            const char *name);

/* Whether its job sends compressed messages both ways (services/algorithms/COMPRESSION.md). */
bool tally_preset_is_compressed(const struct tally_preset *preset);

/* tally_summary_counted_bits; of a compressed preset, the bits sent. */
struct tally_bit_pair tally_preset_counted_bits(const struct tally_preset *preset,
                                                const struct tally_mean_bits *bits);

double tally_preset_step_size(const struct tally_preset *preset);

/* The job of a preset with this step size. Its name states problem, algorithm and preset:
 * "synthetic-quiet-fedavg-paper", "mnist-ceal-paper-bits". If the preset gives CALM the variance of
 * the initial point, the job of a synthetic problem has the variance that follows from the
 * problem's radius. */
struct tally_job_spec tally_preset_job(const struct tally_preset *preset,
                                       const struct tally_problem *problem, double step_size,
                                       int64_t seed);

/* The same for a step size found on a grid; the name is "synthetic-fedavg" for a baseline, and
 * "synthetic-ceal-tuned" for CEAL. */
struct tally_job_spec tally_preset_tuned_job(const struct tally_preset *preset,
                                             const struct tally_problem *problem, double step_size,
                                             int64_t seed);

#endif

/* algorithm: what a federated optimisation method does in one round, on both sides of the wire.
 *
 * One file per algorithm; services/algorithms/README.md lists papers and equations. All functions
 * are pure: the point, the sums and the random streams are arguments. Coordinator, worker and
 * simulator therefore share these functions and agree bit for bit. */
#ifndef TALLY_SERVICES_ALGORITHMS_ALGORITHM_H
#define TALLY_SERVICES_ALGORITHMS_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/encoding.h"
#include "codec/error.h"
#include "codec/field.h"
#include "codec/ledger.h"
#include "codec/numeric/rng.h"
#include "codec/quantize/quantizer.h"
#include "codec/record.h"
#include "services/algorithms/shift.h"
#include "services/objectives/objective.h"
#include "services/objectives/solve/domain.h"

/* Parameters of `ceal`; README.md gives the equations. NaN: must be estimated. */
struct tally_ceal_params {
    double step_size;      /* eta > 0 */
    double sigma;          /* noise of one gradient query; may be NaN */
    double delta;          /* failure probability, in (0, 1) */
    double gamma0, phi0;   /* resolution up and down, relative */
    double sample_scale;   /* c; theory: 40 */
    bool log_factor;       /* theory: true */
    int64_t first_stage;   /* j0; theory: 1 */
    double gradient_bound; /* L; theory: 1; may be NaN */
};

/* The server's step of a baseline with local steps (server_optimizer.h). Zeroed: the
 * clients' mean difference. */
struct tally_server_optimizer {
    int type;            /* enum tally_server_optimizer_type */
    double step_size;    /* S > 0; 0: none is set */
    double beta1, beta2; /* in [0, 1) */
    double tau;          /* > 0 */
};

/* How both messages of a federated method are compressed (compression.h). Zeroed: as float32. */
struct tally_compression {
    int type;                 /* enum tally_compression_type */
    double uplink_resolution; /* r_u and r_d, if they are set */
    double downlink_resolution;
};

/* Parameters of the baselines. Each baseline uses those that its file names. */
struct tally_baseline_params {
    double step_size;          /* eta > 0 */
    int64_t local_steps;       /* K gradient queries between two rounds */
    int64_t levels;            /* s of the QSGD quantizer */
    double server_step_size;   /* S: factor of the clients' mean step */
    double step_decay;         /* step t has length eta / (1 + step_decay t); 0: always eta */
    double local_steps_growth; /* after t queries, a round has K + local_steps_growth t */
    double mu;                 /* weight of the proximal term of `fedprox`; 0: none */
    double alpha;              /* gain of the shifts of `diana`; NaN: by theory */
    int64_t k;                 /* coordinates of a message of `ef21` */
    int compressor;            /* of `ef21`, enum tally_compressor */
    struct tally_server_optimizer server_optimizer;
    struct tally_compression compression;
};

/* Parameters of `calm`, per coordinate unless stated otherwise; calm.c gives the equations. NaN:
 * must be estimated. */
struct tally_calm_params {
    double step_size;        /* 1 / h, h: the curvature of f; may be NaN */
    double noise;            /* s0: variance of one gradient query at x*; may be NaN */
    double noise_growth;     /* m: growth of a query's variance per squared distance from x* */
    double client_spread;    /* B: variance of the clients' own optima around x*; may be NaN */
    double curvature_spread; /* hs: relative variance of the curvature around h */
    double initial_variance; /* V: mean square of x^(1) - x*; may be NaN */
    double local_step_limit; /* longest own step of a client; NaN: step_size */
    bool shifts;             /* both sides keep a shift per client (shift.h) */
    /* As the opening round has it; not members of documents: */
    bool is_found;  /* step_size follows from it */
    bool is_even;   /* all directions are alike, and m follows */
    bool is_uneven; /* some directions are much flatter than others */
};

/* `own`: for an algorithm that does not fit these structs; its file names the elements. */
union tally_algorithm_params {
    struct tally_ceal_params ceal;
    struct tally_baseline_params baseline;
    struct tally_calm_params calm;
    struct {
        double reals[6];
        int64_t integers[4];
    } own;
};

/* The most that a job may send, in coded bits; 0: no limit. */
struct tally_budget {
    int64_t uplink_bits;   /* of each client */
    int64_t downlink_bits; /* of all broadcasts and control bits, each counted once */
};

/* What is constant during a job. */
struct tally_setting {
    const union tally_algorithm_params *params;
    uint32_t clients;           /* M */
    uint32_t cohort;            /* clients that take part in a round, in [1, M] */
    size_t dim;                 /* d */
    int64_t horizon;            /* T */
    int64_t minibatch;          /* data points per gradient query; 0: all points of the client */
    int64_t evaluate_every;     /* local steps between two evaluations of the loss */
    struct tally_domain domain; /* all points stay in it */
    struct tally_rng_key key;
    const struct tally_encoding *encoding; /* of the levels; NULL: `dithered` */
    struct tally_budget budget;
    bool weighs_points;   /* clients are weighted by their points (weights.h) */
    uint32_t points;      /* of all clients, if weighs_points; 0: each client knows only its own */
    bool has_regret;      /* f(x*) is known; otherwise the job is judged only by its final point */
    bool is_program;      /* a user's program computes the gradients */
    bool start_is_random; /* x1 is drawn at random, so its length shows the unit of x */
    double convexity;     /* f's curvature is at least this in every direction; 0: unknown */
};

/* Facts about the point of a round that the server knows and that clients need for their own steps,
 * per coordinate. Only `calm` sets them (see calm.c), except shift_gain, which every algorithm with
 * shifts sets. */
struct tally_walk_facts {
    double distance;      /* V: mean square of x - x* */
    double client_spread; /* B */
    double noise;         /* s0 */
    double noise_growth;  /* m */
    double travel_step;   /* e: length of the clients' plain gradient steps; 0: they take none */
    double shift_gain;    /* a client's shift changes by this times its message; 0: no shifts */
    double step_size;     /* 1 / h as estimated; 0: the document gives it */
    double shift_error;   /* W: of the shifts (calm/calm_model.h); only the server uses it */
    int64_t repeats;      /* queries of the round before, at x, that the message includes */
};

/* What every client does in a round. */
struct tally_round_plan {
    int64_t stage;          /* j */
    int64_t samples;        /* gradient queries per client */
    struct tally_grid grid; /* of the uplink message; zero if the message has none */
    bool cut;               /* the horizon ends the round: clients take steps but send no vector */
    struct tally_walk_facts facts;
    uint64_t max_bits; /* of one message; 0: no limit. A client whose message is longer declines */
};

/* A message as it is sent: a bit string and its costs. */
struct tally_message {
    struct tally_buffer payload;
    struct tally_bits bits; /* formula, payload, messages = 1, clipped */
    struct tally_grid grid;
};

/* What a client must do in a round. Borrowed. */
struct tally_client_task {
    const struct tally_setting *setting;
    const struct tally_round_plan *plan;
    const struct tally_objective *objective;
    uint32_t client, round;
    const double *x;           /* double[dim]: the common point */
    bool evaluate;             /* the client reports a loss */
    struct tally_shift *shift; /* of the client; NULL: the job keeps no shifts */
};

/* The weights of the messages of a round; equal weights are 1. */
struct tally_weights {
    uint64_t sum;
    uint32_t unit; /* greatest common divisor; 0: no message */
};

/* What the server knows when a round ends. Borrowed. */
struct tally_server_task {
    const struct tally_setting *setting;
    const struct tally_round_plan *plan;
    const int64_t *sums; /* of the messages: int64[dim], or [dim][2] (weights.h) */
    int64_t received;    /* messages; at least 1, unless clients may decline */
    struct tally_weights weights;
    uint32_t round, iterate;
    double squares;  /* sum of scratch.square over the messages, in the order of the clients */
    const double *x; /* double[dim]: the common point */
    void *memory;    /* the server's memory (tally_algorithm.memory); NULL if it has none */
};

/* The results of a client in a round. */
struct tally_client_answer {
    struct tally_message message; /* unless the round is cut */
    double loss;                  /* if requested; see client_step */
};

/* A message received from the other side; borrowed. */
struct tally_message_view {
    const uint8_t *payload;
    size_t n_payload;
    uint64_t payload_bits;
    struct tally_grid grid;
    uint32_t client;           /* of an update */
    uint32_t number;           /* the round of an update; the iterate that a broadcast leads to */
    uint32_t weight;           /* of an update in the mean */
    struct tally_shift *shift; /* of an update's client; NULL: the job keeps no shifts */
};

/* Scratch vectors, made once and used in every round. */
struct tally_scratch {
    double *gradient; /* double[dim]; of a client */
    double *local;    /* double[dim]: a client's own iterate */
    float *vector;    /* float[dim] */
    int32_t *levels;  /* int32[dim] */
    /* The payload whose levels are in `levels`, from the `decide` that made it to the `apply` that
     * follows, which need not decode it; NULL: none. */
    const uint8_t *levels_of;
    union {
        double *reals;
        int64_t *integers;
    } wide;        /* [dim]; NULL until tally_scratch_widen() */
    double square; /* squared norm of the last message in `receive`; 0: not computed */
};
/* Which of the functions below use the scratch vectors: all, or only receive, decide and apply. */
enum tally_scratch_use { TALLY_SCRATCH_CLIENT, TALLY_SCRATCH_SERVER };
enum tally_status tally_scratch_init(struct tally_scratch *scratch, size_t dim,
                                     enum tally_scratch_use use, struct tally_error *err);
/* Allocates `wide` if it is NULL. */
enum tally_status tally_scratch_widen(struct tally_scratch *scratch, size_t dim,
                                      struct tally_error *err);
void tally_scratch_fini(struct tally_scratch *scratch);

/* The server's decision after a round. */
struct tally_decision {
    double norm; /* of the server's estimate */
    bool passed; /* `broadcast` is sent and the iterate moves */
    int64_t next_stage;
    uint64_t control_bits;          /* sent to clients besides the broadcast */
    struct tally_message broadcast; /* meaningful if passed */
};

/* A client's report in an opening round. */
struct tally_report {
    double variance; /* of its gradients, 0 if sigma is given */
    double norm;     /* of their mean, 0 if gradient_bound is given */
    /* Curvatures, of `calm` (struct calm_curvature); 0 if step_size is given: */
    double steepest; /* at most that of a sample's steepest direction */
    float curvature; /* along the gradients */
    float steep;     /* along the gradient's change */
};

/* The opening round of an algorithm whose parameters may be unknown: round 1, stage 0. The client's
 * part is client_step, which reads the stage from the plan. All slots are required. */
struct tally_opening {
    /* Whether these parameters contain unknown values. If so, the job begins with stage 0. */
    bool (*opens)(const union tally_algorithm_params *params);
    /* Server: reads a message. Errors: MALFORMED, NOT_FINITE. */
    enum tally_status (*receive)(const struct tally_setting *setting,
                                 const struct tally_message_view *message,
                                 struct tally_report *ret_report, struct tally_bits *ret_bits,
                                 struct tally_error *err);
    /* Server: computes the estimates from n >= 1 reports, in client order, and counts the bits
     * that state them to the clients. Errors: NOT_FINITE, FAILED_PRECONDITION (the job must state a
     * value). */
    enum tally_status (*conclude)(const struct tally_setting *setting,
                                  const struct tally_round_plan *plan,
                                  const struct tally_report *reports, int64_t n,
                                  struct tally_estimates *ret_estimates, uint64_t *ret_control_bits,
                                  struct tally_error *err);
    /* Fills in the unknown values. False if these parameters cannot take such estimates. */
    bool (*adopt)(const struct tally_setting *setting, const struct tally_estimates *estimates,
                  union tally_algorithm_params *params);
};

/* Largest step size at which the method can converge with exact gradients. With a larger one, even
 * exact gradients may lead away from the minimum of a function of that smoothness. Noise and
 * quantization may require a smaller one. */
struct tally_step_limit {
    double step_size;    /* of the job */
    double limit;        /* > 0 */
    const char *formula; /* of the limit, to be displayed */
};

/* Bits of one uplink message and of one broadcast. */
struct tally_message_bits {
    uint64_t uplink, downlink;
    bool is_bound;     /* uplink is an upper bound, and .. */
    uint64_t least;    /* .. this a lower one */
    const char *field; /* member of the job document that decides uplink; NULL = the dimension */
};

/* Slots are required unless stated otherwise. Functions that fail leave their results unspecified
 * but releasable. */
struct tally_algorithm {
    const char *name;
    const struct tally_field *fields; /* of its params */
    size_t n_fields;
    union tally_algorithm_params (*defaults)(void);
    /* Optional: other defaults for members that a document omits. They depend on the members that
     * it states (`read`). */
    union tally_algorithm_params (*defaults_beside)(const union tally_algorithm_params *read);
    const struct tally_opening *opening; /* NULL: its parameters are always known */

    /* The first stage of a job; 0 if it begins with an opening round. */
    int64_t (*first_stage)(const union tally_algorithm_params *params);

    /* What the server remembers between rounds besides the point: plain bytes, which are stored
     * with the point. Optional: an algorithm without these functions remembers nothing. */
    struct {
        /* 0: a job with this setting has no memory, and the other functions are not called. */
        size_t (*bytes)(const struct tally_setting *setting);
        /* Fills the memory of a job at its initial point x, double[dim]. Called again once an
         * opening round of `opening_samples` > 0 queries has made the job's parameters known.
         * `schedule`: the text from the slot `schedule` below. If it is not a plan, for example
         * "", the algorithm uses its own schedule. */
        void (*begin)(const struct tally_setting *setting, const double *x, int64_t opening_samples,
                      const char *schedule, void *memory);
        /* Optional: records that a client's message had `bits` bits in the round that is being
         * closed. Called before `decide`. */
        void (*spend)(const struct tally_setting *setting, void *memory, uint32_t client,
                      uint64_t bits);
        /* Whether bytes from the store are valid for this job. */
        bool (*is_valid)(const struct tally_setting *setting, const void *memory);
        /* Optional: the shift of a client, a part of the server's memory. NULL for a job that keeps
         * no shifts. */
        struct tally_shift *(*shift)(const struct tally_setting *setting, void *memory,
                                     uint32_t client);
    } memory;
    /* Optional, with memory.shift: where the shifts of a job begin. If the job keeps shifts, the
     * plan of each round has a facts.shift_gain above 0. */
    enum tally_shift_start (*shift_start)(const struct tally_setting *setting);

    /* Optional: plans a job before it starts. This may take seconds, so a host calls it once,
     * outside its event loop, and stores the text. "" if there is nothing to plan. */
    void (*schedule)(const struct tally_setting *setting,
                     char ret_schedule[TALLY_SCHEDULE_CAPACITY]);

    /* The plan of a round of `stage`. `memory` is NULL if only the grids of the stages are needed.
     * Errors: OUT_OF_RANGE (the grid would be too fine). */
    enum tally_status (*plan)(const struct tally_setting *setting, int64_t stage,
                              const void *memory, struct tally_round_plan *ret_plan,
                              struct tally_error *err);

    struct tally_step_limit (*step_limit)(const union tally_algorithm_params *params,
                                          double smoothness);

    /* Whether params.baseline.server_optimizer may be set. */
    bool takes_server_optimizer;
    /* Whether params.baseline.compression may be set. */
    bool takes_compression;
    /* Whether only some of the clients may take part in a round (job/job_cohort.h). Such an
     * algorithm moves the point in every round except a cut one, and keeps no state per client. */
    bool takes_cohorts;
    /* Whether clients may have weights. The algorithm's mean is then tally_weighted_mean(). */
    bool takes_weights;
    /* The reasons if not: clauses for the error that rejects cohorts or weights. */
    const char *no_cohorts_reason, *no_weights_reason;
    /* Whether clients may run a training loop of their own (objective type `training`). */
    bool takes_training;
    /* Whether a round needs the message of every client. The quorum must then be `clients`. */
    bool needs_everyone;
    /* Whether no point may be projected onto a domain. */
    bool needs_whole_space;
    /* Whether clients move away from the common point within a round. */
    bool moves_locally;
    /* Whether the message of a round may include the queries of the opening round (facts.repeats),
     * and then have no samples of its own. */
    bool repeats_opening;

    /* Optional, for algorithms with messages of fixed or bounded length: the bits of each message
     * of a client and of each broadcast. Every round except a cut one has both messages. */
    struct tally_message_bits (*message_bits)(const struct tally_setting *setting);

    /* Client: makes plan->samples gradient queries, starting at x. Then it makes its message,
     * unless the round is cut. With `evaluate` it reports a loss whose mean over clients is the
     * mean of f over the round's clients and time steps. If all clients stay at x, that is the
     * local loss at x. Otherwise it is f at the client's own iterates, evaluated every
     * evaluate_every steps and at the last one, and interpolated linearly. Errors: NOT_FINITE (the
     * iterates diverged), NO_MEMORY. */
    enum tally_status (*client_step)(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err);

    /* Server: checks the whole message, then adds it to sums, an int64[dim] or, with weights,
     * [dim][2], with notes behind them (weights.h). Errors: MALFORMED; nothing is added in that
     * case. */
    enum tally_status (*receive)(const struct tally_setting *setting,
                                 const struct tally_round_plan *plan,
                                 const struct tally_message_view *message,
                                 struct tally_scratch *scratch, int64_t *sums,
                                 struct tally_bits *ret_bits, struct tally_error *err);

    /* Server: concludes a round. */
    enum tally_status (*decide)(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err);

    /* Both sides: applies a broadcast to x, then projects x onto the domain. Errors: MALFORMED. */
    enum tally_status (*apply)(const struct tally_setting *setting,
                               const struct tally_message_view *broadcast,
                               struct tally_scratch *scratch, double *x, struct tally_error *err);
};

/* One row per algorithm: the struct that its file defines, and the name in job documents. */
#define TALLY_ALGORITHM_TABLE(X)                                                                   \
    X(CEAL, ceal)                                                                                  \
    X(MINIBATCH_SGD, minibatch_sgd)                                                                \
    X(FEDAVG, fedavg)                                                                              \
    X(FEDPAQ, fedpaq)                                                                              \
    X(FEDCOM, fedcom)                                                                              \
    X(CALM, calm)                                                                                  \
    X(FEDPROX, fedprox)                                                                            \
    X(DIANA, diana)                                                                                \
    X(SCAFFOLD, scaffold)                                                                          \
    X(EF21, ef21)

#define TALLY_ALGORITHM_EXTERN(symbol, name) extern const struct tally_algorithm TALLY_##symbol;
TALLY_ALGORITHM_TABLE(TALLY_ALGORITHM_EXTERN)
#undef TALLY_ALGORITHM_EXTERN

/* In the order of the table; NULL-terminated. */
extern const struct tally_algorithm *const TALLY_ALGORITHMS[];
extern const char *const TALLY_ALGORITHM_NAMES[];

/* Shared by algorithms. */

/* Copies the members that a document may have: the algorithm's fields or, for clients with a
 * training loop of their own, those that do not concern the algorithm's own steps. Returns their
 * number. */
enum { TALLY_ALGORITHM_FIELDS_MOST = 12 };
size_t tally_algorithm_fields(const struct tally_algorithm *algorithm, bool trains,
                              struct tally_field ret_fields[TALLY_ALGORITHM_FIELDS_MOST]);

/* Client: the loss f_m at x, for an algorithm whose clients stay at x, if the task requests a loss.
 * Errors: NOT_FINITE (the server takes no such loss), those of the objective. */
enum tally_status tally_client_loss(const struct tally_client_task *task, double *ret_loss,
                                    struct tally_error *err);

/* Client: scratch->vector <- the mean of plan->samples gradient queries at x, as float32. Errors:
 * those of the objective. */
enum tally_status tally_client_gradient(const struct tally_client_task *task,
                                        struct tally_scratch *scratch, struct tally_error *err);

/* Client: mean <- the mean of plan->samples gradient queries at x, double[dim], by Welford's
 * recurrence. *ret_variance is the sum of the variances of all coordinates; 0 for one query.
 * Errors: those of the objective. */
enum tally_status tally_client_moments(const struct tally_client_task *task,
                                       struct tally_scratch *scratch, double *mean,
                                       double *ret_variance, struct tally_error *err);

/* Quantizes scratch->vector on `grid`, with the words of `rng`, and encodes it into message,
 * replacing the old payload. Errors: NOT_FINITE, TOO_LARGE, NO_MEMORY. */
enum tally_status tally_message_of_vector(const struct tally_setting *setting,
                                          const struct tally_grid *grid,
                                          const struct tally_rng *rng,
                                          struct tally_scratch *scratch,
                                          struct tally_message *message, struct tally_error *err);
void tally_message_fini(struct tally_message *message);
struct tally_message_view tally_message_view(const struct tally_message *message);

#endif

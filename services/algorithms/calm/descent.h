/* descent: minimises a smooth function of a few variables by BFGS.
 *
 * Idea: every step follows -B g, where g is the gradient and B an estimate of the inverse Hessian
 * that each step updates (Broyden, Fletcher, Goldfarb, Shanno 1970). A step is halved until the
 * value falls by a sufficient share of what g predicts (Armijo). The descent uses no random numbers
 * and no clock: equal arguments give equal results. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_DESCENT_H
#define TALLY_SERVICES_ALGORITHMS_CALM_DESCENT_H

enum { TALLY_DESCENT_MAX_VARIABLES = 48 };

struct tally_descent {
    /* Returns the value at x, or INFINITY if x is outside the function's domain. Writes the
     * gradient to ret_gradient[n] unless ret_gradient is NULL. */
    double (*value)(const void *context, const double *x, double *ret_gradient);
    const void *context;
    int n;             /* variables, in [1, TALLY_DESCENT_MAX_VARIABLES] */
    int most_steps;    /* at most this many steps */
    double least_gain; /* stops after a step that gains less */
};

/* Minimises from x[n], a point of finite value. Returns the value at the final x. */
double tally_descent_run(const struct tally_descent *descent, double *x);

#endif

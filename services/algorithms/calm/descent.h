/* descent: the least value of a smooth function of a few variables, by BFGS.
 *
 * Idea: every step goes along -B g, where g is the gradient and B an estimate of the inverse
 * Hessian that each step corrects (Broyden, Fletcher, Goldfarb, Shanno 1970); a step is halved
 * until the value falls by a fair share of what g promises (Armijo). No random numbers, no clock:
 * equal arguments give equal results. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_DESCENT_H
#define TALLY_SERVICES_ALGORITHMS_CALM_DESCENT_H

enum { TALLY_DESCENT_MAX_VARIABLES = 48 };

struct tally_descent {
    /* Returns the value at x; writes the gradient to ret_gradient[n] unless it is NULL. INFINITY
     * where x is outside of the function's domain. */
    double (*value)(const void *context, const double *x, double *ret_gradient);
    const void *context;
    int n;             /* variables, in [1, TALLY_DESCENT_MAX_VARIABLES] */
    int most_steps;    /* at most this many steps */
    double least_gain; /* stops after a step that gains less */
};

/* Moves x[n] downhill from a point of finite value and returns the value where it ends. */
double tally_descent_run(const struct tally_descent *descent, double *x);

#endif

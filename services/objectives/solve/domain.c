#include "services/objectives/solve/domain.h"

#include <math.h>

const char *const TALLY_DOMAIN_NAMES[] = {"whole", "ball", "box", NULL};

static const struct tally_field BALL_FIELDS[] = {
    /* The square of the least radius is still a normal number. */
    TALLY_REAL("radius", offsetof(struct tally_domain, radius), 1e-100, 1e100, .required = true,
               .unit = "norm of x", .doc = "radius of the ball around 0"),
};
static const struct tally_field BOX_FIELDS[] = {
    TALLY_REAL("lower", offsetof(struct tally_domain, lower), -1e100, 1e100, .required = true,
               .unit = "coordinate", .doc = "lower bound of every coordinate"),
    TALLY_REAL("upper", offsetof(struct tally_domain, upper), -1e100, 1e100, .required = true,
               .unit = "coordinate", .doc = "upper bound of every coordinate, above `lower`"),
};

const struct tally_domain_kind TALLY_DOMAIN_KINDS[] = {
    [TALLY_DOMAIN_WHOLE] = {NULL, 0},
    [TALLY_DOMAIN_BALL] = {TALLY_ROWS(BALL_FIELDS)},
    [TALLY_DOMAIN_BOX] = {TALLY_ROWS(BOX_FIELDS)},
};

enum tally_status tally_domain_validate(const struct tally_domain *domain, struct tally_error *err)
{
    if (domain->type == TALLY_DOMAIN_BOX && !(domain->lower < domain->upper)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "upper", "upper %g is not above lower %g",
                          domain->upper, domain->lower);
    }
    return TALLY_OK;
}

/* |scale x|, with every product rounded as when x is scaled. */
static double norm_of(double scale, const double *x, size_t dim)
{
    double square = 0;
    for (size_t i = 0; i < dim; i++) {
        const double value = scale * x[i];
        square += value * value;
    }
    return sqrt(square);
}

/* Rounding may leave the scaled point outside by a few units in the last place. The factor is
 * therefore reduced until the point is inside, so that a projected point is a fixed point. */
static void project_ball(double radius, double *x, size_t dim)
{
    const double norm = norm_of(1, x, dim);
    if (!isfinite(norm) || norm <= radius) {
        return;
    }
    const double factor = radius / norm;
    double scale = factor;
    for (double give = 0x1p-53; norm_of(scale, x, dim) > radius; give *= 2) {
        scale = factor * (1 - give);
    }
    for (size_t i = 0; i < dim; i++) {
        x[i] = scale * x[i];
    }
}

static void project_box(double lower, double upper, double *x, size_t dim)
{
    for (size_t i = 0; i < dim; i++) {
        if (x[i] < lower) {
            x[i] = lower;
        } else if (x[i] > upper) {
            x[i] = upper;
        }
    }
}

void tally_domain_project(const struct tally_domain *domain, double *x, size_t dim)
{
    if (domain->type == TALLY_DOMAIN_BALL) {
        project_ball(domain->radius, x, dim);
    } else if (domain->type == TALLY_DOMAIN_BOX) {
        project_box(domain->lower, domain->upper, x, dim);
    }
}

static bool is_in_box(double lower, double upper, const double *x, size_t dim)
{
    for (size_t i = 0; i < dim; i++) {
        if (!(x[i] >= lower && x[i] <= upper)) {
            return false;
        }
    }
    return true;
}

bool tally_domain_is_bounded(const struct tally_domain *domain)
{
    return domain != NULL && domain->type != TALLY_DOMAIN_WHOLE;
}

bool tally_domain_is_inside(const struct tally_domain *domain, const double *x, size_t dim)
{
    switch ((enum tally_domain_type)domain->type) {
    case TALLY_DOMAIN_WHOLE:
        return true;
    case TALLY_DOMAIN_BALL:
        return norm_of(1, x, dim) <= domain->radius;
    case TALLY_DOMAIN_BOX:
        return is_in_box(domain->lower, domain->upper, x, dim);
    }
    return false;
}

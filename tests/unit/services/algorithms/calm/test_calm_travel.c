/* When a CALM job travels. The sequences were computed by a NumPy program that was written
 * independently, from the equations. The first two start from what the server saw in jobs, the
 * others from random numbers that reach every branch. */
#include "services/algorithms/calm/calm_travel.h"

#include <math.h>

#include "tests/harness.h"

/* What the server sees and decides, and, for an epoch that travelled, what it expected of the
 * message. */
struct row {
    double square, cosine, spread, noise, step, variance, query;
    int64_t answers, time;
    int is_on;
    double length, gap, told;
    int64_t samples;
    double message_noise, message_square;
};

static const struct row LOGISTIC[] = {
    {0.008819, 0, 0.0006804, 0.000651, 0.03042, 0.008743, 0.01314, 4, 6, 0, 0, 0, 0, 18, 0, 0},
    {0.00147, 0.4845, 0.0007346, 0.0007299, 0.01915, 0.001457, 0.01562, 4, 24, 0, 0, 0, 0, 54, 0,
     0},
    {0.0004196, 0.9519, 0.0001269, 0.0001217, 0.01106, 0.0002429, 0.01562, 4, 78, 1, 0.08838834765,
     0.0008582243356, 0.0003730515301, 24, 0, 0},
    {0.002156, 0.9669, 0.001593, 0.001465, 0.04976, 4.048e-05, 0.01562, 4, 102, 1, 0.25,
     0.003432897343, 0.001671338133, 24, 0.001464375, 0.004448787241},
    {0.008006, 0.8447, 0.004388, 0.004143, 0.08368, 0.0004961, 0.01562, 4, 126, 1, 0.2973017788,
     0.005149346014, 0.006684320755, 24, 0.004143645738, 0.0175143508},
    {0.005188, 0.7217, 0.005898, 0.004927, 0.09125, 0.001403, 0.01562, 4, 150, 1, 0.2973017788,
     0.005149346014, 0.003974562512, 24, 0.004926885077, 0.01437994214},
    {0.002694, 0.521, 0.005885, 0.004927, 0.09125, 0.001669, 0.01562, 4, 174, 1, 0.2973017788,
     0.005149346014, 0.001405220052, 26, 0.004927, 0.008901562512},
    {0.001852, 0.3822, 0.004345, 0.003774, 0.09498, 0.001669, 0.01562, 4, 200, 1, 0.25,
     0.003392875695, 0.0006727592451, 30, 0.005337583333, 0.0069867652},
    {0.001797, -0.3073, 0.00535, 0.005179, 0.07867, 0.001344, 0.01562, 4, 230, 1, 0.1767766953,
     0.002232201879, 0.000355921713, 34, 0.003661780467, 0.004295125677},
    {0.001233, -0.03234, 0.004443, 0.00349, 0.09133, 0.001691, 0.01562, 4, 264, 1, 0.1486508894,
     0.001476932787, 0.0001849569223, 39, 0.004150386822, 0.004378967656},
    {0.0005086, 0.2773, 0.002168, 0.001683, 0.06917, 0.001242, 0.01562, 4, 303, 1, 0.1051120519,
     0.0009774622684, 9.670239302e-06, 45, 0.003366306208, 0.003538384851},
    {0.0005515, -0.3235, 0.001741, 0.001633, 0.04818, 0.000618, 0.01562, 4, 348, 1, 0.07432544469,
     0.0006455751461, 9.599056994e-05, 52, 0.001373146976, 0.001379584266},
    {0.0002912, 0.06013, 0.001011, 0.0007935, 0.04749, 0.0005423, 0.01562, 4, 400, 1, 0.05255602595,
     0.0004253659041, 4.337400398e-05, 60, 0.00133432621, 0.001398414728},
    {0.0002035, -0.2199, 0.0008305, 0.0007699, 0.03308, 0.0002913, 0.01562, 4, 460, 1, 0.03125,
     0.0002798518589, 4.00005855e-06, 69, 0.000647410651, 0.0006762838785},
    {0.0001448, -0.4917, 0.0005358, 0.0004427, 0.03253, 0.0002556, 0.01562, 4, 529, 1,
     0.02209708691, 0.0001841169266, 1.173097681e-05, 79, 0.0005264530708, 0.0005283233956},
    {0.0001118, -0.2214, 0.0003497, 0.0003014, 0.02461, 0.0001576, 0.01562, 4, 608, 1, 0.015625,
     0.0001213411119, 2.199193802e-05, 91, 0.0003584037332, 0.0003660925618},
    {3.204e-05, 0.03167, 0.0002172, 0.0001736, 0.01868, 0.0001045, 0.01562, 4, 699, 1,
     0.009290680586, 7.989980002e-05, 9.415107574e-07, 104, 0.0002454949434, 0.0002600851725},
    {1.444e-05, 0.118, 0.0001393, 0.0001179, 0.0154, 6.016e-05, 0.01562, 4, 803, 1, 0.006569503244,
     5.273362963e-05, 6.394930292e-07, 120, 0.0001179693458, 0.0001184041204},
    {1.651e-05, -0.5277, 8.988e-05, 8.092e-05, 0.01275, 4.088e-05, 0.01562, 4, 923, 1,
     0.004645340293, 3.474460156e-05, 4.388307808e-07, 138, 9.619371866e-05, 9.661941668e-05},
    {7.182e-06, -0.1487, 6.347e-05, 5.533e-05, 0.00967, 2.805e-05, 0.01562, 4, 1061, 1,
     0.002762135864, 2.288782599e-05, 2.932250668e-07, 159, 6.580194284e-05, 6.60921197e-05},
    {3.872e-06, 0.07517, 3.186e-05, 2.681e-05, 0.008729, 1.874e-05, 0.01562, 4, 1220, 1,
     0.001953125, 1.506364307e-05, 1.540377193e-07, 183, 3.790584753e-05, 3.80434709e-05},
    {1.58e-06, 0.132, 2.262e-05, 1.834e-05, 0.006072, 9.843e-06, 0.01562, 4, 1403, 1,
     0.001161335073, 9.910499347e-06, 9.946803314e-08, 210, 2.181904719e-05, 2.192107182e-05},
};
static const struct row LOUD[] = {
    {0.4062, 0, 2.394, 2.121, 1.893, 0.1, 1.414, 10, 6, 0, 0, 0, 0, 18, 0, 0},
    {0.1715, 0.313, 0.6506, 0.5946, 1.093, 0.08423, 1.414, 10, 24, 0, 0, 0, 0, 54, 0, 0},
    {0.06877, 0.3664, 0.2144, 0.1982, 0.5788, 0.04217, 1.189, 10, 78, 0, 0, 0, 0, 162, 0, 0},
    {0.02213, 0.391, 0.08392, 0.07857, 0.3341, 0.01677, 1.189, 10, 240, 0, 0, 0, 0, 486, 0, 0},
    {0.005369, 0.1508, 0.05226, 0.05238, 0.1929, 0.006582, 1.189, 10, 726, 0, 0, 0, 0, 1458, 0, 0},
};
static const struct row SHALLOW[] = {
    {0.477, 0, 0.73, 0.5662, 0.9782, 1.13, 1.432, 4, 6, 0, 0, 0, 0, 18, 0, 0},
    {11.56, 0.9069, 0.7991, 0.5572, 0.9704, 5.64, 1.039, 1, 42, 1, 2.680965147, 34.44584242,
     10.17076821, 24, 0, 0},
    {54.74, -0.09366, 139.7, 94.32, 12.63, 25.08, 2.631, 10, 70, 0, 0, 0, 0, 72, 226.9260902,
     877.8552558},
    {0.5553, 0.8732, 0.2318, 0.1906, 0.5676, 0.1986, 0.5967, 4, 94, 1, 0.2818017477, 1.032011186,
     0.5171801807, 24, 0, 0},
    {19.68, 0.1595, 101.6, 119.5, 14.21, 25.87, 2.643, 1, 141, 0, 0, 0, 0, 72, 2.518638129,
     2.884339742},
    {1.321, 0.9502, 0.5933, 0.6014, 1.008, 1.545, 0.6296, 4, 184, 1, 0.6702412869, 2.454854973,
     1.153830971, 27, 0, 0},
    {2.058, 0.1155, 0.8383, 0.5814, 0.9912, 2.61, 2.446, 10, 195, 0, 0, 0, 0, 81, 14.83380532,
     20.67507461},
    {1.314, 0.722, 15.43, 14.06, 4.875, 2.721, 0.9219, 4, 224, 0, 0, 0, 0, 243, 0, 0},
    {0.705, 0.04289, 0.3624, 0.2782, 0.6857, 0.2264, 0.511, 10, 256, 0, 0, 0, 0, 729, 0, 0},
    {0.9682, 0.5021, 0.2516, 0.2966, 0.708, 0.1369, 0.4341, 10, 266, 1, 0.7970557071, 2.019950819,
     0.9570605431, 39, 0, 0},
    {7.78, 0.5734, 0.26, 0.2488, 0.6484, 2.947, 0.6857, 1, 310, 1, 1.594111414, 8.079803275,
     7.637632429, 46, 8.494662182, 22.79087918},
    {0.3622, 0.5026, 0.02937, 0.02453, 0.2036, 0.1122, 0.4682, 1, 367, 1, 1.340482574, 4.873046085,
     0.316607495, 55, 0.5869128205, 43.08850446},
    {8.608, 0.4564, 1.434, 1.095, 1.36, 16.28, 0.4893, 1, 400, 1, 1.127206991, 3.765115683,
     7.066165205, 60, 0.02466294345, 0.3447115269},
    {0.292, 0.818, 0.05292, 0.04015, 0.2605, 0.1457, 0.9789, 4, 410, 1, 0.6702412869, 3.765115683,
     0.2591123267, 61, 1.004488991, 6.950776594},
};
static const struct row STEEP[] = {
    {0.00397, 0, 0.003618, 0.003651, 0.07855, 0.004343, 0.9303, 1, 6, 0, 0, 0, 0, 18, 0, 0},
    {0.3297, 0.759, 0.01445, 0.01088, 0.1356, 0.04577, 2.192, 1, 28, 1, 0.3864413673, 2.016948943,
     0.3339981362, 33, 0, 0},
    {0.01493, -0.295, 0.01364, 0.01177, 0.141, 0.02391, 1.29, 4, 62, 0, 0, 0, 0, 99, 3.178636563,
     117.4860525},
    {0.02631, 0.1788, 0.001954, 0.002256, 0.06175, 0.006471, 2.379, 4, 84, 0, 0, 0, 0, 297, 0, 0},
    {0.001262, 0.6883, 0.0004016, 0.0003908, 0.0257, 0.0006195, 1.293, 10, 141, 0, 0, 0, 0, 891, 0,
     0},
    {0.07915, -0.2633, 0.006443, 0.004388, 0.08611, 0.06972, 0.5657, 4, 152, 0, 0, 0, 0, 2673, 0,
     0},
    {0.0006796, 0.7649, 0.0002312, 0.0001656, 0.01673, 0.001115, 1.139, 10, 162, 0, 0, 0, 0, 8019,
     0, 0},
    {0.0028, 0.8896, 0.001458, 0.0009831, 0.04076, 0.004117, 0.8495, 1, 199, 1, 0.00853922848,
     0.003388605562, 0.001586108581, 33, 0, 0},
    {0.3533, 0.02814, 0.008358, 0.005828, 0.09924, 0.06291, 1.592, 4, 211, 0, 0, 0, 0, 99,
     0.001915421136, 0.002180474504},
    {0.03743, 0.7363, 0.002146, 0.001752, 0.05441, 0.01607, 0.6262, 10, 254, 1, 0.1932206837,
     0.1036348796, 0.03802996844, 38, 0, 0},
    {0.04287, 0.1779, 0.06971, 0.07401, 0.3537, 0.09603, 0.7575, 10, 288, 0, 0, 0, 0, 114,
     0.5373329426, 4.85188438},
    {0.4388, 0.8748, 0.05496, 0.05577, 0.307, 0.09147, 0.7332, 4, 332, 1, 0.3864413673, 1.238781358,
     0.4280101088, 49, 0, 0},
    {0.0006771, 0.9351, 0.001096, 0.0007563, 0.03575, 0.0006855, 0.6935, 4, 378, 1, 0.3864413673,
     1.171706045, 0.0004314026042, 56, 2.53734645, 325.4972974},
    {0.00185, 0.1052, 0.004521, 0.005087, 0.09272, 0.002998, 1.595, 4, 429, 1, 0.3249571605,
     0.8019675042, 0.0004313415145, 64, 0.0008643428571, 0.001427807483},
};

static void assert_near(double actual, double expected)
{
    CU_ASSERT_DOUBLE_EQUAL(actual, expected, 1e-9 * fabs(expected));
}

/* The rows say nothing of nu: it contradicts the curvature h in each of them, so what they test are
 * the other conditions. */
static struct tally_calm_sight sight_of(const struct row *row)
{
    return (struct tally_calm_sight){.product = 1e6,
                                     .innovation = 1e6,
                                     .gain = 1,
                                     .square = row->square,
                                     .cosine = row->cosine,
                                     .spread = row->spread,
                                     .noise = row->noise,
                                     .rounding = row->step * row->step / 12,
                                     .variance = row->variance,
                                     .query = row->query,
                                     .answers = row->answers,
                                     .time = row->time};
}

/* A regime costs one bit where there is a choice. A step costs 6 bits, or 5 after the first
 * travelling epoch, and a mean square 6. */
static void play(const struct tally_calm_ground *ground, const struct row *rows, int n)
{
    struct tally_calm_travel travel;
    tally_calm_travel_begin(&travel, 6);
    for (int k = 0; k < n; k++) {
        if (travel.is_on) {
            const struct tally_calm_passage message =
                tally_calm_travel_message(&travel, rows[k].query);
            assert_near(message.noise, rows[k].message_noise);
            assert_near(message.square, rows[k].message_square);
        }
        const struct tally_calm_sight sight = sight_of(&rows[k]);
        const bool is_settled = travel.is_on && !travel.is_first;
        const int bits = tally_calm_travel_advance(&travel, ground, &sight);
        CU_ASSERT_EQUAL(bits, is_settled ? 11 : (k > 0) + 12 * rows[k].is_on);
        CU_ASSERT_EQUAL_FATAL(travel.is_on, rows[k].is_on);
        CU_ASSERT_EQUAL_FATAL(travel.samples, rows[k].samples);
        CU_ASSERT_TRUE(tally_calm_travel_is_valid(&travel));
        if (travel.is_on) {
            assert_near(travel.step, rows[k].length);
            assert_near(travel.gap, rows[k].gap);
            assert_near(travel.told, rows[k].told);
        }
    }
}

#define PLAY(rows, ...)                                                                            \
    play(&(struct tally_calm_ground){__VA_ARGS__, false, false, false}, rows,                      \
         sizeof(rows) / sizeof(rows)[0])

static void test_algorithms_calm_travel__decides_as_the_reference(void)
{
    PLAY(LOGISTIC, 2, 30);
    PLAY(LOUD, 1.0 / 3, 30);
    PLAY(SHALLOW, 0.1865, 13);
    PLAY(STEEP, 2.176, 400);
}

/* Of a mean of this many messages, whose noise is small. */
static struct tally_calm_sight clear_sight(double cosine, double gain, int64_t answers)
{
    return (struct tally_calm_sight){.square = 1,
                                     .cosine = cosine,
                                     .noise = 0.1,
                                     .spread = 0.1,
                                     .variance = 1,
                                     .query = 1,
                                     .gain = gain,
                                     .answers = answers,
                                     .time = 6};
}

/* Two means that agree start it even if the noise of the second is as large as its motion. Then the
 * step must not be 0, because it would remain so. */
static void test_algorithms_calm_travel__noise_does_not_hide_the_motion(void)
{
    const struct tally_calm_ground ground = {1, 30, false, false, false};
    struct tally_calm_travel travel;
    struct tally_calm_sight sight = clear_sight(0.9, 0.5, 1);
    tally_calm_travel_begin(&travel, 6);
    (void)tally_calm_travel_advance(&travel, &ground, &sight);
    sight.noise = sight.spread = 2;
    sight.time = 24;
    (void)tally_calm_travel_advance(&travel, &ground, &sight);
    CU_ASSERT_TRUE(travel.is_on);
    CU_ASSERT_TRUE(travel.step > 0.1 && travel.step < 0.3);
}

/* On uneven ground it travels after the first epoch, whatever the means are, and no bit says so. */
static void test_algorithms_calm_travel__uneven_ground_leaves_no_choice(void)
{
    struct tally_calm_ground ground = {1, 30, false, false, true};
    const struct tally_calm_sight sight = clear_sight(-0.5, 1, 4);
    struct tally_calm_travel travel;
    tally_calm_travel_begin(&travel, 6);
    for (int k = 0; k < 4; k++) {
        CU_ASSERT_EQUAL(tally_calm_travel_advance(&travel, &ground, &sight), k < 2 ? 12 : 11);
        CU_ASSERT_TRUE(travel.is_on);
        CU_ASSERT_TRUE(tally_calm_travel_is_valid(&travel));
    }
    ground.is_round = true;
    tally_calm_travel_begin(&travel, 6);
    for (int k = 0; k < 4; k++) {
        CU_ASSERT_EQUAL(tally_calm_travel_advance(&travel, &ground, &sight), k > 0);
        CU_ASSERT_FALSE(travel.is_on);
    }
}

/* Whether a job starts to travel when epoch `epochs` ends with this cosine, m / V and m / N. */
static bool starts(int64_t epochs, double cosine, double by_variance, double by_noise, size_t dim,
                   bool is_even, bool is_round)
{
    const struct tally_calm_ground ground = {1, dim, is_even, is_round, false};
    struct tally_calm_travel travel;
    struct tally_calm_sight sight = {
        .square = 1, .noise = 1e-9, .rounding = 1e-19, .query = 1, .product = 1e6, .gain = 1};
    tally_calm_travel_begin(&travel, 6);
    for (int64_t k = 0; k <= epochs; k++) {
        const bool is_last = k == epochs;
        sight.cosine = is_last ? cosine : 0;
        sight.variance = 1 / by_variance;
        sight.answers = 4;
        sight.spread = 4 / by_noise;
        sight.time = 10 * (k + 1);
        CU_ASSERT_FALSE(travel.is_on);
        tally_calm_travel_advance(&travel, &ground, &sight);
    }
    return travel.is_on;
}

static void test_algorithms_calm_travel__starts_at_the_thresholds(void)
{
    static const struct {
        int64_t epochs;
        double cosine, by_variance, by_noise;
        size_t dim;
        bool starts;
    } ROWS[] = {
        {0, 0.99, 9, 99, 30, false}, /* there is no earlier mean */
        {1, 0.71, 1.21, 4.04, 30, true},  {1, 0.69, 1.21, 4.04, 30, false},
        {1, 0.71, 1.19, 4.04, 30, false}, {1, 0.71, 1.21, 3.96, 30, false},
        {1, 0.21, 1.51, 8.08, 30, true},  {1, 0.19, 1.51, 8.08, 30, false},
        {1, 0.21, 1.49, 8.08, 30, false}, {1, 0.21, 1.51, 7.92, 30, false},
        {2, 0.21, 2.97, 8.08, 30, false}, {2, 0.21, 3.03, 8.08, 30, true},
        {3, 0.81, 0.1, 0.1, 10, true},    {3, 0.79, 0.1, 0.1, 10, false},
        {3, 0.99, 0.1, 0.1, 9, false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        CU_ASSERT_EQUAL(starts(ROWS[i].epochs, ROWS[i].cosine, ROWS[i].by_variance,
                               ROWS[i].by_noise, ROWS[i].dim, false, false),
                        ROWS[i].starts);
    }
    /* If the opening took all directions to be alike, the cosine alone does not suffice. */
    CU_ASSERT_FALSE(starts(3, 0.99, 0.1, 0.1, 30, true, false));
    CU_ASSERT_TRUE(starts(1, 0.71, 1.21, 4.04, 30, true, false));
    /* If no direction is known to be much flatter, nothing does. */
    CU_ASSERT_FALSE(starts(1, 0.71, 1.21, 4.04, 30, false, true));
    CU_ASSERT_FALSE(starts(3, 0.99, 0.1, 0.1, 30, false, true));
}

/* Two means of noise N = 0.04 with a gain of 1/2, after which the product is (m - N) / 2 in
 * expectation, and |nu|^2 is m / 4 + N / 4 + 0.02 m + 0.03. */
static void test_algorithms_calm_travel__contradiction_is_counted_in_standard_errors(void)
{
    enum { DIM = 100 };
    const struct tally_calm_ground ground = {1, DIM, false, false, false};
    const double noise = 0.04, m = 1, next = 0.03;
    const double expected = m / 4 + noise / 4 + 0.02 * m;
    struct tally_calm_travel travel = {
        .samples = 18, .epochs = 1, .square = m + noise, .motion = m, .told = 0.5};
    struct tally_calm_sight sight = {.spread = 10 * next,
                                     .answers = 10,
                                     .product = (m - noise) / 2,
                                     .innovation = expected + next};
    struct tally_calm_contradiction seen =
        tally_calm_travel_contradiction(&travel, &ground, &sight);
    CU_ASSERT_DOUBLE_EQUAL(seen.direction, 0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(seen.length, 0, 1e-12);
    sight.product += 3 * sqrt((next * (m + noise) + noise * m + 2 * noise * noise) / DIM);
    sight.innovation += 6 * sqrt((2 * (next + expected) * (next + expected) +
                                  (2 * noise * noise + 4 * noise * m) / 16) /
                                 DIM);
    seen = tally_calm_travel_contradiction(&travel, &ground, &sight);
    CU_ASSERT_DOUBLE_EQUAL(seen.direction, 3, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(seen.length, 6, 1e-9);
    travel.told = 0; /* the state of an older version: the gain is not known */
    seen = tally_calm_travel_contradiction(&travel, &ground, &sight);
    CU_ASSERT_EQUAL(seen.direction, 0);
    CU_ASSERT_EQUAL(seen.length, 0);
}

/* Means that are longer than V must also contradict h: V may have been estimated too small. After a
 * small gain they do not. */
static void test_algorithms_calm_travel__a_small_variance_alone_does_not_start_it(void)
{
    static const struct {
        double gain, product, innovation;
        bool starts;
    } ROWS[] = {
        {0.8, 0.19, 0.076, false}, /* what this gain leaves of a mean square of 0.99 */
        {0.8, 0.3, 0.076, true},
        {0.8, 0.19, 0.3, true},
        {0.6, 2, 2, false},
    };
    const struct tally_calm_ground ground = {1, 30, false, false, false};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct tally_calm_travel travel;
        struct tally_calm_sight sight = {.square = 1,
                                         .spread = 0.1,
                                         .noise = 0.1,
                                         .rounding = 0.01 / 12,
                                         .query = 1,
                                         .variance = 0.1,
                                         .gain = ROWS[i].gain,
                                         .answers = 10,
                                         .time = 6};
        tally_calm_travel_begin(&travel, 6);
        tally_calm_travel_advance(&travel, &ground, &sight);
        sight.time = 24;
        sight.cosine = 0.75;
        sight.product = ROWS[i].product;
        sight.innovation = ROWS[i].innovation;
        tally_calm_travel_advance(&travel, &ground, &sight);
        CU_ASSERT_EQUAL(travel.is_on, ROWS[i].starts);
    }
}

/* The expected message follows from the last one, scaled by how far the epoch goes. Beyond a factor
 * of four the last message no longer matters. */
static void test_algorithms_calm_travel__message_is_expected_like_the_last(void)
{
    struct tally_calm_travel travel = {
        .is_on = true, .samples = 10, .step = 1, .noise = 3, .told = 2, .reach = 5};
    struct tally_calm_passage message = tally_calm_travel_message(&travel, 1);
    assert_near(message.noise, 6);
    assert_near(message.square, 6 + 8);
    travel.reach = 1;
    message = tally_calm_travel_message(&travel, 1);
    assert_near(message.noise, 12);
    assert_near(message.square, 12 + 32);
    travel.reach = 100;
    message = tally_calm_travel_message(&travel, 1);
    assert_near(message.noise, 0.75);
    assert_near(message.square, 0.75 + 0.125);
}

/* A job that started to travel at its second mean. */
static struct tally_calm_travel started(const struct tally_calm_ground *ground, double query)
{
    struct tally_calm_travel travel;
    struct tally_calm_sight sight = {.square = 1,
                                     .spread = 1e-3,
                                     .noise = 1e-3,
                                     .rounding = 0.0009 / 12,
                                     .variance = 0.1,
                                     .query = query,
                                     .product = 1,
                                     .gain = 1,
                                     .answers = 10,
                                     .time = 6};
    tally_calm_travel_begin(&travel, 6);
    tally_calm_travel_advance(&travel, ground, &sight);
    sight.cosine = 0.9;
    sight.time = 24;
    tally_calm_travel_advance(&travel, ground, &sight);
    CU_ASSERT_TRUE(travel.is_on && travel.is_first);
    return travel;
}

/* The first step is at most that of eight times the gap that one query's noise is worth,
 * e = 8 / 9 / h, and at most what m allows, e = 2 h m / (h^2 m + s), both to an eighth of an
 * octave. */
static void test_algorithms_calm_travel__first_step_is_bounded(void)
{
    const struct tally_calm_ground ground = {4, 30, false, false, false};
    const double quiet = started(&ground, 1e-9).step, loud = started(&ground, 100).step;
    CU_ASSERT_TRUE(quiet < 0.95 / 4 && quiet > 0.8 / 4);
    CU_ASSERT_TRUE(fabs(loud / (2 * 4 / (16 + 100.0)) - 1) < 0.1);
}

/* The first epochs of a long vector are longer: n = 24 (d / 30)^0.12. Later ones are not. */
static void test_algorithms_calm_travel__long_vectors_make_long_epochs(void)
{
    const struct tally_calm_ground ground = {4, 25450, false, false, false};
    struct tally_calm_travel travel = started(&ground, 1);
    CU_ASSERT_EQUAL(travel.samples, 54);
    const struct tally_calm_sight sight = {.square = 1,
                                           .cosine = 0.9,
                                           .spread = 1e-3,
                                           .noise = 1e-3,
                                           .rounding = 0.0009 / 12,
                                           .variance = 0.1,
                                           .query = 1,
                                           .answers = 10,
                                           .time = 2000};
    tally_calm_travel_advance(&travel, &ground, &sight);
    CU_ASSERT_EQUAL(travel.samples, 300);
}

/* The rest of the horizon becomes one epoch if less than a third of an epoch would be left over. */
static void test_algorithms_calm_travel__last_epoch_reaches_the_horizon(void)
{
    struct tally_calm_travel travel;
    tally_calm_travel_begin(&travel, 6);
    CU_ASSERT_FALSE(tally_calm_travel_is_last(&travel, 9));
    CU_ASSERT_TRUE(tally_calm_travel_is_last(&travel, 8));
    CU_ASSERT_TRUE(tally_calm_travel_is_last(&travel, 1));
    travel.samples = INT64_MAX; /* from damaged bytes */
    CU_ASSERT_TRUE(tally_calm_travel_is_last(&travel, INT32_MAX));
}

/* r = seen / s shortens the step to eh / (eh + (1 - eh) r) / h. Less noise does not lengthen it. */
static void test_algorithms_calm_travel__noise_shortens_a_step(void)
{
    assert_near(tally_calm_travel_step(0.25, 2, 1, 1), 0.25);
    assert_near(tally_calm_travel_step(0.25, 2, 0.1, 1), 0.25);
    assert_near(tally_calm_travel_step(0.25, 2, 3, 1), 0.125);
    CU_ASSERT_TRUE(isfinite(tally_calm_travel_step(0.25, 2, 1, 0)));
}

static void test_algorithms_calm_travel__values_are_coded_in_quarter_octaves(void)
{
    for (int j = -32; j <= 31; j++) {
        const double value = 3 * exp2(j / 4.0);
        assert_near(tally_calm_coded(value * 1.08, 3, 6), value);
        assert_near(tally_calm_coded(value / 1.08, 3, 6), value);
    }
    assert_near(tally_calm_coded(1e9, 3, 6), 3 * exp2(31 / 4.0));
    assert_near(tally_calm_coded(0, 3, 6), 3 * exp2(-8));
    assert_near(tally_calm_coded(1e9, 3, 5), 3 * exp2(15 / 4.0));
    assert_near(tally_calm_coded(0, 3, 5), 3 * exp2(-4));
}

static void test_algorithms_calm_travel__damaged_states_are_not_valid(void)
{
    const struct tally_calm_ground ground = {4, 30, false, false, false};
    const struct tally_calm_travel good = started(&ground, 1);
    CU_ASSERT_TRUE(tally_calm_travel_is_valid(&good));
    struct tally_calm_travel bad = good;
    double *places[8];
    int n = 0;
    places[n++] = &bad.step;
    places[n++] = &bad.reach;
    places[n++] = &bad.square;
    places[n++] = &bad.motion;
    places[n++] = &bad.noise;
    places[n++] = &bad.told;
    places[n++] = &bad.total_reach;
    places[n++] = &bad.gap;
    for (int i = 0; i < n; i++) {
        const double wrong[] = {-1, NAN, INFINITY};
        for (int k = 0; k < 3; k++) {
            bad = good;
            *places[i] = wrong[k];
            CU_ASSERT_FALSE(tally_calm_travel_is_valid(&bad));
        }
    }
    bad = good;
    bad.samples = 0;
    CU_ASSERT_FALSE(tally_calm_travel_is_valid(&bad));
    bad = good;
    bad.epochs = 0; /* it cannot travel yet */
    CU_ASSERT_FALSE(tally_calm_travel_is_valid(&bad));
    bad = good;
    bad.time = 0;
    CU_ASSERT_FALSE(tally_calm_travel_is_valid(&bad));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_calm_travel__noise_does_not_hide_the_motion),
    TALLY_TEST(test_algorithms_calm_travel__uneven_ground_leaves_no_choice),
    TALLY_TEST(test_algorithms_calm_travel__decides_as_the_reference),
    TALLY_TEST(test_algorithms_calm_travel__starts_at_the_thresholds),
    TALLY_TEST(test_algorithms_calm_travel__contradiction_is_counted_in_standard_errors),
    TALLY_TEST(test_algorithms_calm_travel__a_small_variance_alone_does_not_start_it),
    TALLY_TEST(test_algorithms_calm_travel__message_is_expected_like_the_last),
    TALLY_TEST(test_algorithms_calm_travel__first_step_is_bounded),
    TALLY_TEST(test_algorithms_calm_travel__long_vectors_make_long_epochs),
    TALLY_TEST(test_algorithms_calm_travel__last_epoch_reaches_the_horizon),
    TALLY_TEST(test_algorithms_calm_travel__noise_shortens_a_step),
    TALLY_TEST(test_algorithms_calm_travel__values_are_coded_in_quarter_octaves),
    TALLY_TEST(test_algorithms_calm_travel__damaged_states_are_not_valid),
};
TALLY_SUITE(algorithms_calm_travel, TESTS);

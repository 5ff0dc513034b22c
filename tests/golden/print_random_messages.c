/* tally-random-messages N SEED: prints N random messages of every encoding, each as a golden file
 * on one line (README.md), for the second decoder. Messages in the long form with fewer coordinates
 * than usual have a member "form": "long". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/golden/random_messages.h"

static const char *const NAMES[N_RANDOM_KINDS] = {"unary", "entropy", "entropy", "float32",
                                                  "qsgd",  "top_k",   "adaptive"};

/* Prints a JSON number with a point or an exponent, and keeps the sign of -0.0. */
static void print_real(double value)
{
    if (value == floor(value) && fabs(value) < 1e15) {
        printf("%.1f", value);
    } else {
        printf("%.17e", value);
    }
}

/* Prints what a receiver knows in addition to the payload. */
static void print_terms(const struct random_message *message)
{
    if (message->kind == RANDOM_ENTROPY_LONG) {
        printf("\"form\": \"long\", ");
    }
    if (message->kind == RANDOM_QSGD) {
        printf("\"s\": %lu, \"norm\": ", (unsigned long)message->qsgd.levels);
        print_real((double)message->qsgd.norm);
        printf(", ");
    } else if (message->kind == RANDOM_TOP_K) {
        printf("\"k\": %zu, ", message->k);
    } else if (message->kind == RANDOM_ADAPTIVE && message->has_dither) {
        printf("\"seed\": %llu, \"run\": %lu, \"client\": %lu, \"round\": %lu, \"purpose\": %d, ",
               (unsigned long long)message->seed, (unsigned long)message->run,
               (unsigned long)message->client, (unsigned long)message->round,
               (int)TALLY_RNG_UPLINK);
    } else if (random_encoding(message->kind) != NULL || message->kind == RANDOM_FLOAT32) {
        printf("\"intervals\": %lu, ", (unsigned long)message->grid.intervals);
    }
}

static void print_integers(const char *name, const int32_t *integers, size_t n)
{
    printf(", \"%s\": [[1, [", name);
    for (size_t i = 0; i < n; i++) {
        printf("%s%ld", i > 0 ? ", " : "", (long)integers[i]);
    }
    printf("]]]");
}

static void print_values(const float *values, size_t n)
{
    printf(", \"values\": [[1, [");
    for (size_t i = 0; i < n; i++) {
        printf("%s", i > 0 ? ", " : "");
        print_real((double)values[i]);
    }
    printf("]]]");
}

static void print_message(const struct random_message *message)
{
    const size_t k = message->kind == RANDOM_TOP_K ? message->k : message->dim;
    printf("{\"encoding\": \"%s\", \"dim\": %zu, ", NAMES[message->kind], message->dim);
    print_terms(message);
    printf("\"payload_bits\": %llu, \"formula_bits\": %llu, \"payload\": [[1, \"",
           (unsigned long long)message->stats.payload_bits,
           (unsigned long long)message->stats.formula_bits);
    for (size_t i = 0; i < message->n_payload; i++) {
        printf("%02x", message->payload[i]);
    }
    printf("\"]]");
    if (message->values != NULL) {
        print_values(message->values, k);
    }
    if (message->indices != NULL) {
        print_integers("indices", (const int32_t *)message->indices, k);
    }
    if (message->levels != NULL) {
        print_integers("levels", message->levels, message->dim);
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "tally-random-messages N SEED\n");
        return 2;
    }
    const unsigned long n = strtoul(argv[1], NULL, 10);
    struct tally_rng rng = random_stream(strtoull(argv[2], NULL, 10));
    for (unsigned long k = 0; k < n; k++) {
        for (int kind = 0; kind < N_RANDOM_KINDS; kind++) {
            struct random_message message;
            random_message_init(&message, &rng, (enum random_kind)kind);
            print_message(&message);
            random_message_fini(&message);
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

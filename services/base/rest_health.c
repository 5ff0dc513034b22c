#include "services/base/rest_health.h"

#include <stdio.h>
#include <stdlib.h>

#include "services/base/rest_client.h"

enum { TIMEOUT_MS = 3000 }; /* the images' HEALTHCHECK waits 5 s */

int tally_health_print(const struct tally_http_client_config *config, const char *program)
{
    struct tally_rest_client client = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_http_exchange exchange = {
        .method = "GET", .path = "/readyz", .timeout_ms = TIMEOUT_MS};
    enum tally_status status = tally_rest_client_init(&client, config, &err);
    if (status == TALLY_OK) {
        status = tally_rest_call(&client, &exchange, &err);
    }
    tally_rest_client_fini(&client);
    if (status != TALLY_OK) {
        fprintf(stderr, "%s: %s\n", program, err.message);
        return EXIT_FAILURE;
    }
    puts("ready");
    return EXIT_SUCCESS;
}

#include "services/base/child_environment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char **tally_child_environment_new(void)
{
    static const char OURS[] = "TALLY_";
    size_t n = 0, kept = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **environment = calloc(n + 1, sizeof *environment);
    for (size_t i = 0; environment != NULL && i < n; i++) {
        if (strncmp(environ[i], OURS, sizeof OURS - 1) != 0) {
            environment[kept++] = environ[i];
        }
    }
    return environment;
}

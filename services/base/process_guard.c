#include "services/base/process_guard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Neither call can fail on Debian 12's Linux; if one did, running unguarded would still be better
 * than not running. */
void tally_process_guard(bool keeps_secrets)
{
    umask(umask(0) | S_IRWXG | S_IRWXO);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (keeps_secrets) {
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

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

#include "services/base/process_guard.h"

#include <sys/prctl.h>
#include <sys/stat.h>

/* Neither can fail on the Linux that Debian 12 has; and were it otherwise, a program that runs is
 * worth more than one that does not. */
void tally_process_guard(bool keeps_secrets)
{
    umask(umask(0) | S_IRWXG | S_IRWXO);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (keeps_secrets) {
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

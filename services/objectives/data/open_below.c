#include "services/objectives/data/open_below.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Without O_NONBLOCK, opening a pipe would wait for its writer. For a regular file it has no
 * effect. */
enum { HOW = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

enum { MAX_TRIES = 16 };

bool tally_is_name_below(const char *name)
{
    if (name[0] == '\0' || name[0] == '/') {
        return false;
    }
    for (const char *at = name; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        if (at[0] == '.' && at[1] == '.' && (at[2] == '/' || at[2] == '\0')) {
            return false;
        }
    }
    return true;
}

/* Returns the descriptor of a regular file; closes any other. */
static int only_regular(int fd)
{
    struct stat status;
    const int why = fstat(fd, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
    if (why != 0) {
        close(fd);
        return -why;
    }
    return fd;
}

int tally_open_below_walking(int folder, const char *name)
{
    if (!tally_is_name_below(name)) {
        return -EXDEV;
    }
    int at = folder;
    for (;;) {
        char component[NAME_MAX + 1];
        const size_t n = strcspn(name, "/");
        const bool is_last = name[n] == '\0';
        int next = -1, why = ENAMETOOLONG;
        if (n < sizeof component) {
            memcpy(component, n > 0 ? name : ".", n > 0 ? n : 1);
            component[n > 0 ? n : 1] = '\0';
            next =
                openat(at, component,
                       is_last ? HOW | O_NOFOLLOW : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            why = errno;
        }
        if (at != folder) {
            close(at);
        }
        if (next < 0) {
            return -why;
        }
        if (is_last) {
            return only_regular(next);
        }
        at = next;
        name += n + 1;
    }
}

int tally_open_below(int folder, const char *name)
{
    if (!tally_is_name_below(name)) {
        return -EXDEV;
    }
    const struct open_how how = {.flags = HOW, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd;
    int tries = 0;
    do { /* EAGAIN: something in the folder was renamed in the meantime */
        fd = syscall(SYS_openat2, folder, name, &how, sizeof how);
    } while (fd < 0 && (errno == EINTR || errno == EAGAIN) && ++tries < MAX_TRIES);
    if (fd >= 0) {
        return only_regular((int)fd);
    }
    /* Old kernels lack the call, and old container runtimes forbid unknown calls. */
    return errno == ENOSYS || errno == EPERM ? tally_open_below_walking(folder, name) : -errno;
}

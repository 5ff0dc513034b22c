/* slow_file: to be preloaded. Reading a file below the folder $TALLY_SLOW_FOLDER waits while that
 * folder has a file `hold`; a file `reading` appears when that begins. */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_below(int fd, const char *folder)
{
    char entry[64], file[PATH_MAX];
    snprintf(entry, sizeof entry, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(entry, file, sizeof file);
    const size_t n_folder = strlen(folder);
    return n > (ssize_t)n_folder && memcmp(file, folder, n_folder) == 0 && file[n_folder] == '/';
}

static void wait_while_held(const char *folder)
{
    char hold[PATH_MAX + 8], reading[PATH_MAX + 8];
    snprintf(hold, sizeof hold, "%s/hold", folder);
    snprintf(reading, sizeof reading, "%s/reading", folder);
    if (access(hold, F_OK) == 0) {
        FILE *file = fopen(reading, "w");
        if (file != NULL) {
            fclose(file);
        }
    }
    while (access(hold, F_OK) == 0) {
        usleep(2000);
    }
}

ssize_t read(int fd, void *buf, size_t nbytes)
{
    const char *folder = getenv("TALLY_SLOW_FOLDER");
    if (folder != NULL && is_below(fd, folder)) {
        wait_while_held(folder);
    }
    return syscall(SYS_read, fd, buf, nbytes);
}

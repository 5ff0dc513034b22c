#include "services/cli/out_folder.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/base/whole_file.h"

enum tally_status tally_folder_make(const char *folder, const char *field, struct tally_error *err)
{
    struct stat found;
    if (mkdir(folder, 0777) == 0) {
        return TALLY_OK;
    }
    const int failure = errno;
    if (failure == EEXIST && stat(folder, &found) == 0 && S_ISDIR(found.st_mode)) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "%.200s: %s", folder, strerror(failure));
}

enum tally_status tally_out_folder_make(const char *folder, struct tally_error *err)
{
    return tally_folder_make(folder, "out", err);
}

enum tally_status tally_out_folder_write(const char *folder, const char *name,
                                         enum tally_status made, const struct tally_buffer *text,
                                         struct tally_error *err)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (made != TALLY_OK) {
        return tally_fail(err, made, NULL, "no memory for %s", name);
    }
    if (n < 0 || (size_t)n >= sizeof path) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "out", "%.200s: path too long", folder);
    }
    return tally_whole_file_write(path, text->data, text->size, err);
}

/* Returns errno, or 0 with gnuplot's wait status. */
static int run_gnuplot(const char *folder, const char *script, int *ret_ended)
{
    char program[] = "gnuplot", name[128];
    char *const argv[] = {program, name, NULL};
    snprintf(name, sizeof name, "%s", script);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    /* Only results go to stdout. */
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    pid_t child;
    const int failure = posix_spawnp(&child, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failure != 0) {
        return failure;
    }
    while (waitpid(child, ret_ended, 0) < 0 && errno == EINTR) {
    }
    return 0;
}

enum tally_status tally_out_folder_draw(const char *folder, const char *const *scripts, size_t n,
                                        struct tally_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int ended = 0;
        const int failure = run_gnuplot(folder, scripts[i], &ended);
        if (failure != 0) {
            fprintf(stderr,
                    "tally: no pictures, gnuplot cannot be run (%s); its scripts are in %s\n",
                    strerror(failure), folder);
            return TALLY_OK;
        }
        if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "out", "gnuplot could not draw %s/%s",
                              folder, scripts[i]);
        }
    }
    return TALLY_OK;
}

#include "services/base/process_guard.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/base/whole_file.h"

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

enum { FILE_BYTES = 4096 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t tally_cgroup_limit(const char *text)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    /* Version 1 writes a number near 2^63 for no limit; strtoll() stops at 2^63 - 1. */
    const bool is_limit = end != text && (*end == '\0' || *end == '\n') && value > 0;
    return is_limit ? value : INT64_MAX;
}

/* The lowest limit of a cgroup and its ancestors. `path` begins with '/' and is shortened in
 * place. */
static int64_t least_limit(const char *root, const char *controller, char *path, const char *name)
{
    int64_t least = INT64_MAX;
    for (;;) {
        char file[PATH_MAX], text[FILE_BYTES];
        const int n = snprintf(file, sizeof file, "%s%s%s/%s", root, controller, path, name);
        if (n > 0 && n < (int)sizeof file) {
            tally_file_peek(file, text, sizeof text);
            least = smaller(least, tally_cgroup_limit(text));
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

/* Whether a comma-separated list has the name. */
static bool has_controller(const char *list, size_t n, const char *name)
{
    const size_t n_name = strlen(name);
    for (const char *at = list; at < list + n;) {
        const size_t n_word = strcspn(at, ",:");
        if (n_word == n_name && strncmp(at, name, n_name) == 0) {
            return true;
        }
        at += n_word + 1;
    }
    return false;
}

/* The limit for a line "HIERARCHY:CONTROLLERS:PATH" of /proc/self/cgroup. In version 2 of cgroups
 * CONTROLLERS is empty. */
static int64_t limit_of_line(const char *line, size_t n, const char *root)
{
    const char *list = memchr(line, ':', n);
    const char *colon = list != NULL ? memchr(list + 1, ':', n - (size_t)(list + 1 - line)) : NULL;
    char path[PATH_MAX];
    if (colon == NULL) {
        return INT64_MAX;
    }
    const int n_path = (int)(n - (size_t)(colon + 1 - line));
    const size_t n_list = (size_t)(colon - (list + 1));
    if (n_path >= (int)sizeof path) {
        return INT64_MAX;
    }
    snprintf(path, sizeof path, "%.*s", n_path, colon + 1);
    if (n_list == 0) {
        return least_limit(root, "", path, "memory.max");
    }
    return has_controller(list + 1, n_list, "memory")
               ? least_limit(root, "/memory", path, "memory.limit_in_bytes")
               : INT64_MAX;
}

int64_t tally_cgroup_memory(const char *membership, const char *root)
{
    int64_t least = INT64_MAX;
    for (const char *line = membership; *line != '\0';) {
        const size_t n = strcspn(line, "\n");
        least = smaller(least, limit_of_line(line, n, root));
        line += n + (line[n] == '\n');
    }
    return least;
}

int64_t tally_machine_memory(void)
{
    char membership[FILE_BYTES];
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    const int64_t machine =
        pages > 0 && page_bytes > 0 ? (int64_t)pages * (int64_t)page_bytes : INT64_MAX;
    tally_file_peek("/proc/self/cgroup", membership, sizeof membership);
    return smaller(machine, tally_cgroup_memory(membership, "/sys/fs/cgroup"));
}

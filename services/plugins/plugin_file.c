#include "services/plugins/plugin_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/objectives/plugin_instance.h"

/* What dlopen() says less well, or not at all: a folder and a device are opened too. */
static enum tally_status check_file(const char *path, struct tally_error *err)
{
    static const unsigned char MAGIC[4] = {0x7f, 'E', 'L', 'F'};
    unsigned char start[sizeof MAGIC] = {0};
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%s", strerror(errno));
    }
    const bool is_file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    const bool is_elf = is_file && read(fd, start, sizeof start) == (ssize_t)sizeof start &&
                        memcmp(start, MAGIC, sizeof MAGIC) == 0;
    close(fd);
    return is_elf ? TALLY_OK
                  : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                               "it is no shared object (ELF), which a plug-in must be");
}

static enum tally_status fail_loader(struct tally_error *err)
{
    const char *text = dlerror();
    return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%s", text != NULL ? text : "dlopen");
}

static enum tally_status load(const char *path, struct tally_plugin_file *file,
                              struct tally_error *err)
{
    char here[4096];
    const char *name = path;
    if (strchr(path, '/') == NULL) {
        if (snprintf(here, sizeof here, "./%s", path) >= (int)sizeof here) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%s", strerror(ENAMETOOLONG));
        }
        name = here;
    }
    file->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (file->handle == NULL) {
        return fail_loader(err);
    }
    const struct tally_plugin *(*get)(void) = NULL;
    void *symbol = dlsym(file->handle, "tally_plugin");
    if (symbol == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "it exports no function tally_plugin()");
    }
    memcpy(&get, &symbol, sizeof get); /* ISO C has no conversion from an object to a function */
    file->plugin = get();
    return tally_plugin_check(file->plugin, err);
}

enum tally_status tally_plugin_file_open(const char *path, struct tally_plugin_file *ret_file,
                                         struct tally_error *err)
{
    struct tally_plugin_file file = {0};
    enum tally_status status = check_file(path, err);
    if (status == TALLY_OK) {
        status = load(path, &file, err);
    }
    if (status != TALLY_OK) {
        tally_plugin_file_close(&file);
        return status;
    }
    *ret_file = file;
    return TALLY_OK;
}

void tally_plugin_file_close(struct tally_plugin_file *file)
{
    if (file->handle != NULL) {
        dlclose(file->handle);
    }
    *file = (struct tally_plugin_file){0};
}

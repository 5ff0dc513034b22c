#include "services/plugins/plugin_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/objectives/plugin_instance.h"

static bool read_at(int fd, void *ret_bytes, size_t n, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fd, ret_bytes, n, (off_t)offset) == (ssize_t)n;
}

/* Whether the file contains everything that its program headers map. Access past the end of a
 * mapped file raises SIGBUS. */
static bool is_whole(int fd, const ElfW(Ehdr) * header, uint64_t size)
{
    for (uint64_t i = 0; i < header->e_phnum; i++) {
        ElfW(Phdr) part;
        if (!read_at(fd, &part, sizeof part, header->e_phoff + i * sizeof part) ||
            part.p_offset > size || part.p_filesz > size - part.p_offset) {
            return false;
        }
    }
    return true;
}

/* Checks what dlopen() does not: it opens folders and devices, and crashes on a truncated file. */
static enum tally_status check_open_file(int fd, struct tally_error *err)
{
    ElfW(Ehdr) header;
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        !read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "it is not a shared object (ELF), which a plug-in must be");
    }
    const bool is_ours =
        header.e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32);
    if (is_ours && !is_whole(fd, &header, (uint64_t)about.st_size)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "it is cut short");
    }
    return TALLY_OK;
}

static enum tally_status check_file(const char *path, struct tally_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%s", strerror(errno));
    }
    const enum tally_status status = check_open_file(fd, err);
    close(fd);
    return status;
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

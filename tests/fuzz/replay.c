/* replay: runs a fuzz target on every given file and on every file in a given folder. It replaces
 * libFuzzer, so that every compiler and every build checks the seeds. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static bool replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0) {
        perror(path);
        return false;
    }
    const size_t size = (size_t)info.st_size;
    uint8_t *data = fuzz_allocate(size, 1); /* exact size: the sanitizer detects reads beyond it */
    const bool is_whole = fread(data, 1, size, file) == size;
    fclose(file);
    if (is_whole) {
        LLVMFuzzerTestOneInput(data, size);
    } else {
        perror(path);
    }
    free(data);
    return is_whole;
}

/* Returns the number of files, or -1 on failure. */
static long replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        perror(path);
        return -1;
    }
    long n = 0;
    for (const struct dirent *entry = readdir(folder); n >= 0 && entry != NULL;
         entry = readdir(folder)) {
        char file[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        n = replay_file(file) ? n + 1 : -1;
    }
    closedir(folder);
    return n;
}

int main(int argc, char **argv)
{
    long n = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        const bool is_folder = stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode);
        const long more = is_folder ? replay_folder(argv[i]) : replay_file(argv[i]) ? 1 : -1;
        if (more < 0) {
            return 1;
        }
        n += more;
    }
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1; /* no seeds: nothing was checked */
}

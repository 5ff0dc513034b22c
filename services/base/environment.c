#include "services/base/environment.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "api/http/sha256.h"
#include "codec/utf8.h"
#include "commit.h"
#include "services/base/whole_file.h"

enum { TEXT_CAPACITY = 160 };

/* The value after `key` in a small file of lines KEY SEPARATOR VALUE; "" if there is none. */
static void find_value(const char *path, const char *key, char separator,
                       char ret_value[TEXT_CAPACITY])
{
    char text[8192];
    tally_file_peek(path, text, sizeof text);
    const char *line = text;
    ret_value[0] = '\0';
    while (line != NULL && strncmp(line, key, strlen(key)) != 0) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    const char *value = line != NULL ? strchr(line, separator) : NULL;
    if (value != NULL) {
        value += 1 + strspn(value + 1, " \"");
        snprintf(ret_value, TEXT_CAPACITY, "%.*s", (int)strcspn(value, "\"\n"), value);
        tally_utf8_sanitize_line(ret_value);
    }
}

static void describe_processor(const struct utsname *names, char ret_text[TEXT_CAPACITY])
{
    find_value("/proc/cpuinfo", "model name", ':', ret_text);
    if (ret_text[0] == '\0') { /* for example on ARM */
        snprintf(ret_text, TEXT_CAPACITY, "%s", names->machine);
    }
}

/* "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64 x86_64" */
static void describe_system(const struct utsname *names, char ret_text[2 * TEXT_CAPACITY])
{
    char distribution[TEXT_CAPACITY];
    find_value("/etc/os-release", "PRETTY_NAME", '=', distribution);
    snprintf(ret_text, 2 * TEXT_CAPACITY, "%s%s%.20s %.80s %.20s", distribution,
             distribution[0] != '\0' ? ", " : "", names->sysname, names->release, names->machine);
    tally_utf8_sanitize_line(ret_text);
}

struct tally_json *tally_environment_json(const char *blas)
{
    struct utsname names = {.machine = ""};
    char processor[TEXT_CAPACITY], system[2 * TEXT_CAPACITY], libc[TEXT_CAPACITY];
    uname(&names);
    describe_processor(&names, processor);
    describe_system(&names, system);
    snprintf(libc, sizeof libc, "glibc %s", gnu_get_libc_version());
    struct tally_json *environment = tally_json_object(), *libraries = tally_json_object(),
                      *machine = tally_json_object();
    bool ok = tally_json_set_text(libraries, "openblas", blas) &&
              tally_json_set_text(libraries, "libc", libc);
    ok = tally_json_set_text(machine, "processor", processor) &&
         tally_json_set_text(machine, "system", system) && ok;
    ok = tally_json_set_text(environment, "version", TALLY_VERSION) &&
         tally_json_set_text_or_null(environment, "commit", TALLY_COMMIT) &&
         tally_json_set_text(environment, "compiler", TALLY_COMPILER) && ok;
    ok = tally_json_set(environment, "libraries", libraries) && ok;
    ok = tally_json_set(environment, "machine", machine) && ok;
    return tally_json_if_complete(environment, ok);
}

static void write_digest(const void *bytes, size_t n, char ret_text[TALLY_DIGEST_TEXT_CAPACITY])
{
    uint8_t digest[TALLY_SHA256_BYTES];
    tally_sha256(bytes, n, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        snprintf(ret_text + 2 * i, 3, "%02x", digest[i]);
    }
}

struct tally_json *tally_provenance_json(const void *document, size_t n_document,
                                         struct tally_json *coordinators,
                                         struct tally_json *workers)
{
    char text[TALLY_DIGEST_TEXT_CAPACITY];
    struct tally_json *provenance = tally_json_object();
    write_digest(document, n_document, text);
    bool ok = tally_json_set_text(provenance, "document_sha256", text);
    ok = tally_json_set(provenance, "coordinators", coordinators) && ok;
    ok = tally_json_set(provenance, "workers", workers) && ok;
    return tally_json_if_complete(provenance, ok);
}

struct tally_json *tally_origin_json(struct tally_json *environment, uint64_t data,
                                     const struct tally_user_code *code)
{
    char digest[17];
    snprintf(digest, sizeof digest, "%016" PRIx64, data);
    bool ok = tally_json_set_text_or_null(environment, "data", data != 0 ? digest : NULL);
    if (code->name[0] == '\0') {
        ok = tally_json_set_null(environment, "code") && ok;
    } else {
        struct tally_json *known = tally_json_object();
        ok = tally_json_set_text(known, "name", code->name) &&
             tally_json_set_text_or_null(known, "sha256", code->sha256) && ok;
        ok = tally_json_set(environment, "code", known) && ok;
    }
    return tally_json_if_complete(environment, ok);
}

void tally_file_digest(const char *path, char ret_text[TALLY_DIGEST_TEXT_CAPACITY])
{
    struct tally_buffer bytes = {.limit = (size_t)256 << 20};
    ret_text[0] = '\0';
    if (tally_file_read(path, &bytes, NULL) == TALLY_OK) {
        write_digest(bytes.data, bytes.size, ret_text);
    }
    tally_buffer_fini(&bytes);
}

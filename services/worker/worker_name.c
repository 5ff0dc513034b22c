#include "services/worker/worker_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codec/numeric/checksum.h"
#include "codec/utf8.h"

enum { DIGITS = 8, SALTED_BASE_BYTES = TALLY_WORKER_NAME_CAPACITY - 1 - DIGITS - 1 };

void worker_name_write(const char *base, const char *salt,
                       char ret_name[TALLY_WORKER_NAME_CAPACITY])
{
    const bool is_salted = salt != NULL && salt[0] != '\0';
    snprintf(ret_name, TALLY_WORKER_NAME_CAPACITY, "%.*s",
             is_salted ? SALTED_BASE_BYTES : TALLY_WORKER_NAME_CAPACITY - 1, base);
    const size_t n = tally_utf8_valid_prefix(ret_name, strlen(ret_name));
    ret_name[n] = '\0';
    if (is_salted) {
        uint64_t digest = tally_digest64(base, strlen(base));
        digest = tally_checksum64_more(digest, salt, strlen(salt));
        snprintf(ret_name + n, TALLY_WORKER_NAME_CAPACITY - n, "-%0*" PRIx32, DIGITS,
                 (uint32_t)(digest ^ digest >> 32));
    }
}

/* "" if the system does not tell. */
static void read_boot_id(char ret_id[64])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL || fgets(ret_id, 64, file) == NULL) {
        ret_id[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    ret_id[strcspn(ret_id, "\n")] = '\0';
}

void worker_name_write_default(const char *suffix, const char *salt,
                               char ret_name[TALLY_WORKER_NAME_CAPACITY])
{
    char base[320], boot_id[64], host[256] = "worker";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    snprintf(base, sizeof base, "%s-%s", host, suffix);
    read_boot_id(boot_id);
    worker_name_write(base, salt != NULL ? salt : boot_id, ret_name);
}

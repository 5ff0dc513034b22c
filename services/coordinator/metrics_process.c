/* metrics_process: what every exporter reports about its process, under Prometheus' conventional
 * names, read from Linux. What cannot be read is left out. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "services/base/whole_file.h"
#include "services/coordinator/metrics.h"

static void write_gauge(struct exposition *exposition, const char *name, const char *help,
                        double value)
{
    exposition_family(exposition, name, EXPOSITION_GAUGE, help);
    exposition_real(exposition, name, NULL, value);
}

static void write_memory(struct exposition *exposition)
{
    char line[128];
    tally_file_peek("/proc/self/statm", line, sizeof line);
    uint64_t virtual_pages, resident_pages;
    /* NOLINTNEXTLINE(cert-err34-c): the kernel's own numbers */
    if (sscanf(line, "%" SCNu64 " %" SCNu64, &virtual_pages, &resident_pages) == 2) {
        const double page_bytes = (double)sysconf(_SC_PAGESIZE);
        write_gauge(exposition, "process_virtual_memory_bytes", "Virtual memory.",
                    (double)virtual_pages * page_bytes);
        write_gauge(exposition, "process_resident_memory_bytes", "Memory in use.",
                    (double)resident_pages * page_bytes);
    }
}

static void write_descriptors(struct exposition *exposition)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder != NULL) {
        int n = -3; /* ".", ".." and the folder itself */
        while (readdir(folder) != NULL) {
            n++;
        }
        closedir(folder);
        write_gauge(exposition, "process_open_fds", "Open file descriptors.", n);
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        write_gauge(exposition, "process_max_fds", "Maximum number of open file descriptors.",
                    (double)files.rlim_cur);
    }
}

void metrics_write_process(const struct metrics *metrics, struct exposition *exposition)
{
    static const char BUILD[] = "tally_build_info";
    exposition_family(exposition, BUILD, EXPOSITION_GAUGE, "Always 1; the label is the version.");
    exposition_unsigned(exposition, BUILD, EXPOSITION_LABELS({"version", TALLY_VERSION}), 1);
    struct rusage usage;
    static const char CPU[] = "process_cpu_seconds_total";
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        exposition_family(exposition, CPU, EXPOSITION_COUNTER, "User and system processor time.");
        exposition_real(exposition, CPU, NULL,
                        (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                            (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    }
    write_gauge(exposition, "process_start_time_seconds", "Unix time at which the process started.",
                (double)metrics->started_ms / 1000);
    write_memory(exposition);
    write_descriptors(exposition);
}

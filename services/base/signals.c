#include "services/base/signals.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "services/base/time.h"

static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t n_interrupts, n_terminations;
static volatile sig_atomic_t reload_wanted;
static volatile sig_atomic_t wake_fd = -1;

static const int HANDLED[] = {SIGTERM, SIGINT, SIGPIPE};
enum { N_HANDLED = sizeof HANDLED / sizeof HANDLED[0] };
static struct sigaction previous[N_HANDLED];
static struct sigaction previous_hangup;
static bool handles_hangup;

static void wake(void)
{
    int saved_errno = errno;
    uint64_t one = 1;
    ssize_t ignored = write(wake_fd, &one, sizeof one);
    (void)ignored;
    errno = saved_errno;
}

static void on_hangup(int number)
{
    (void)number;
    reload_wanted = 1;
    wake();
}

static void on_signal(int number)
{
    /* Counted by kind, because Ctrl-C reaches the whole process group and the parent may then send
     * a SIGTERM. */
    if ((number == SIGINT && n_interrupts++ > 0) || (number == SIGTERM && n_terminations++ > 0)) {
        _exit(128 + number);
    }
    if (stop_signal == 0) {
        stop_signal = number;
    }
    wake();
}

/* Without SA_RESTART: a blocking call returns EINTR, so that its caller checks the flag. */
enum tally_status tally_signals_install(struct tally_error *err)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "eventfd: %s", strerror(errno));
    }
    wake_fd = fd;
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGINT);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (int i = 0; i < N_HANDLED; i++) {
        (void)sigaction(HANDLED[i], HANDLED[i] == SIGPIPE ? &ignore : &action, &previous[i]);
    }
    return TALLY_OK;
}

/* With SA_RESTART: a call that does not wait for the descriptor is not interrupted. */
void tally_signals_install_reload(void)
{
    struct sigaction action = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    handles_hangup = sigaction(SIGHUP, &action, &previous_hangup) == 0;
}

/* Drains the descriptor first: a signal that arrives in between is served by this reload. */
bool tally_signals_take_reload(void)
{
    if (reload_wanted == 0) {
        return false;
    }
    tally_signals_drain_fd();
    reload_wanted = 0;
    return true;
}

void tally_signals_uninstall(void)
{
    if (wake_fd < 0) {
        return;
    }
    for (int i = 0; i < N_HANDLED; i++) {
        (void)sigaction(HANDLED[i], &previous[i], NULL);
    }
    if (handles_hangup) {
        (void)sigaction(SIGHUP, &previous_hangup, NULL);
        handles_hangup = false;
    }
    reload_wanted = 0;
    close(wake_fd);
    wake_fd = -1;
    stop_signal = 0;
    n_interrupts = 0;
    n_terminations = 0;
}

const volatile sig_atomic_t *tally_signals_stop(void)
{
    return &stop_signal;
}

int tally_signals_fd(void)
{
    return wake_fd;
}

void tally_signals_drain_fd(void)
{
    uint64_t count;
    ssize_t ignored = read(wake_fd, &count, sizeof count);
    (void)ignored;
}

bool tally_signals_wait(int timeout_ms)
{
    int64_t until = tally_monotonic_ms() + timeout_ms;
    while (stop_signal == 0) {
        int64_t left = until - tally_monotonic_ms();
        if (timeout_ms >= 0 && left <= 0) {
            return false;
        }
        struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
        (void)poll(&wake, 1, timeout_ms < 0 ? -1 : (int)left);
    }
    return true;
}

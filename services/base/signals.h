/* signals: SIGTERM and SIGINT ask a program to stop; SIGHUP, if installed, asks it to reload its
 * files. Nothing else interrupts it.
 *
 * The first stop signal sets a flag and wakes every poll() on the descriptor below; the program
 * then drains. A second one of the same kind exits at once with 128 + its number, for impatient
 * users. SIGPIPE is ignored: a lost reader is an error of write(). Signal handlers belong to the
 * process, hence so does the state here. */
#ifndef TALLY_SERVICES_BASE_SIGNALS_H
#define TALLY_SERVICES_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "codec/error.h"

/* Installs the handlers; once per process, before threads start. Errors: UNAVAILABLE (no
 * descriptor). */
enum tally_status tally_signals_install(struct tally_error *err);
/* From now on SIGHUP, which by default ends a program, asks this one to reload its files. */
void tally_signals_install_reload(void);
/* Whether SIGHUP has arrived since the last call. If so, makes the descriptor below unreadable. */
bool tally_signals_take_reload(void);
/* Restores the previous handlers and clears the stop flag. */
void tally_signals_uninstall(void);

/* Number of the signal that asked to stop, 0 if none has; for struct tally_http_client_config. */
const volatile sig_atomic_t *tally_signals_stop(void);
/* Readable after a stop or a reload was requested; -1 before install. */
int tally_signals_fd(void);
/* Makes it unreadable until the next signal; the flag stays. For loops that poll while draining. */
void tally_signals_drain_fd(void);
/* Sleeps; -1 = forever. True, at once, if a stop was requested. */
bool tally_signals_wait(int timeout_ms);

#endif

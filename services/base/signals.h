/* signals: SIGTERM and SIGINT ask a program to stop, SIGHUP, where it is wanted, to read its files
 * again; nothing else interrupts it.
 *
 * The first of them sets a flag and wakes every poll() on the descriptor below; the program then
 * drains. A second one of the same kind exits at once with 128 + its number, for people who will
 * not wait. SIGPIPE is ignored: a lost reader is an error of write(). Signal handlers belong to the
 * process, hence so does the state here. */
#ifndef TALLY_SERVICES_BASE_SIGNALS_H
#define TALLY_SERVICES_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "codec/base/error.h"

/* Installs the handlers; once per process, before threads start. Errors: UNAVAILABLE (no
 * descriptor). */
enum tally_status tally_signals_install(struct tally_error *err);
/* After that: SIGHUP, which otherwise ends a program, asks this one to read its files again. */
void tally_signals_install_reload(void);
/* Whether SIGHUP has come since the last time; makes the descriptor below unreadable. */
bool tally_signals_take_reload(void);
/* Puts back the handlers that were there and forgets a stop. */
void tally_signals_uninstall(void);

/* Number of the signal that asked to stop, 0 while none has; for struct tally_http_client_config.
 */
const volatile sig_atomic_t *tally_signals_stop(void);
/* Readable once a stop or a reload was asked for; -1 before install. */
int tally_signals_fd(void);
/* Makes it unreadable until the next signal; the flag stays. For loops that poll while draining. */
void tally_signals_drain_fd(void);
/* Sleeps; true, at once, if a stop was asked for. -1 = for ever. */
bool tally_signals_wait(int timeout_ms);

#endif

/* check_store: `tally-coordinator --check`: would a start succeed, and is everything stored intact?
 */
#ifndef TALLY_SERVICES_COORDINATOR_CHECK_STORE_H
#define TALLY_SERVICES_COORDINATOR_CHECK_STORE_H

/* Examines the store `uri`, even while a coordinator uses it, and loads every live job from it.
 * Prints one line per finding on stdout and, on a terminal, its progress on stderr. Changes
 * nothing. Returns an exit code: 0 if everything is intact, else 1. */
int coordinator_check(const char *uri);

#endif

/* worker_name: names of workers that differ from machine to machine.
 *
 * Machines that are copies of one image have the same host name, and their workers the same process
 * ids or numbers. The kernel draws a new boot id at every boot, also of a copy, so eight digits of
 * its digest set them apart. A worker that is restarted keeps its name until the next boot. */
#ifndef TALLY_SERVICES_WORKER_WORKER_NAME_H
#define TALLY_SERVICES_WORKER_WORKER_NAME_H

#include "api/worker/worker_messages.h"

/* "BASE-1a2b3c4d": the base, cut if it is too long, and a digest of the base and the salt. Without
 * a salt ("" or NULL) only the base. */
void worker_name_write(const char *base, const char *salt,
                       char ret_name[TALLY_WORKER_NAME_CAPACITY]);
/* "HOST-SUFFIX-1a2b3c4d", with the boot id as salt, or `salt` unless it is NULL. */
void worker_name_write_default(const char *suffix, const char *salt,
                               char ret_name[TALLY_WORKER_NAME_CAPACITY]);

#endif

/* jobs_import: a job that ended on another coordinator, from the bundle that `tally export
 * --bundle` made there (services/base/bundle.h), as an ended job of this one.
 *
 * A bundle is hostile input. It is read completely before anything is written:
 *
 *     archive       every byte is one that an export writes, and SHA256SUMS has the digest of each
 *                   member
 *     document      valid, as for a submission
 *     detail        read into the row of the store; the detail that this coordinator makes of the
 *                   row must be the same, member by member. So nothing is lost, and a member that
 *                   this program does not know is refused
 *     rounds        the same, byte by byte; they are 1, 2, ..., and their bits add up to the job's
 *     clients       metrics of the last round that has any, and traffic, in the order of clients
 *     models        of the job's dimension, with the checksums of models.json and of the detail; an
 *                   engine can be restored with the last one
 *
 * Not compared, because they are computed when they are shown: the warnings, and the numbers of a
 * plan. The state that is stored has no receipts: no worker of the job posts here.
 *
 * Reading takes seconds for a large bundle and touches nothing but its arguments: a thread does it
 * (rest_imports.h). */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_IMPORT_H
#define TALLY_SERVICES_COORDINATOR_JOBS_IMPORT_H

#include <stdatomic.h>

#include "services/coordinator/coordinator.h"
#include "services/job/job_spec.h"

struct imported_job;

/* Reads only the document of a bundle, to compare it with the coordinator's limits before the
 * memory that its job takes is allocated. False if it cannot be read; imported_job_read() says why.
 */
bool imported_job_peek(const uint8_t *bytes, size_t n, struct tally_job_spec *ret_spec);
/* Reads a bundle, which must stay as it is until the job is freed. now_ms: of the import, Unix
 * time. Once *stop is set, it ends at the next line. Errors: INVALID_ARGUMENT, MALFORMED,
 * OUT_OF_RANGE (the field is a member of the bundle, or one of the detail or the document),
 * CANCELLED (*stop was set), NO_MEMORY. */
enum tally_status imported_job_read(const uint8_t *bytes, size_t n, int64_t now_ms,
                                    const atomic_bool *stop, struct imported_job **ret_job,
                                    struct tally_error *err);
/* NULL is allowed. */
void imported_job_free(struct imported_job *job);

/* Stores the job in the step's transaction, unless this coordinator has it already. *ret_row: the
 * stored row; *ret_is_new: it was stored now. Errors: ALREADY_EXISTS (another job has the id),
 * FAILED_PRECONDITION (retention would delete it at once), those of the store. */
enum tally_status jobs_import(struct tally_coordinator *coordinator, struct imported_job *job,
                              struct tally_store_job *ret_row, bool *ret_is_new,
                              struct tally_error *err);

#endif

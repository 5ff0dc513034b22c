/* worker_messages_direct: the messages of an update's path, read and written without nanopb, whose
 * general way costs as much as the rest of a small update. The bytes are the same.
 *
 * Readers take what our encoders and every other write of well-formed messages; they say no to
 * all that is out of the ordinary, which is then left to worker_messages.c to read or refuse. */
#ifndef TALLY_API_WORKER_MESSAGES_DIRECT_H
#define TALLY_API_WORKER_MESSAGES_DIRECT_H

#include "api/worker_messages.h"

/* False: nothing is known, read it otherwise. `ret_message` is undefined then. */
bool direct_read_update(struct tally_bytes bytes, struct tally_update *ret_message);
bool direct_read_poll_request(struct tally_bytes bytes, struct tally_poll_request *ret_message);

/* Errors: NO_MEMORY, TOO_LARGE. */
enum tally_status direct_write_update(const struct tally_update *message, struct tally_buffer *out);
enum tally_status direct_write_update_response(const struct tally_update_response *message,
                                               struct tally_buffer *out);
/* `message` is a task. */
enum tally_status direct_write_task(const struct tally_poll_response *message,
                                    struct tally_buffer *out);

#endif

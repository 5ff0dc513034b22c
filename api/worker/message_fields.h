/* message_fields: how worker messages are encoded and decoded.
 *
 * nanopb makes a field list from each message of worker.proto. Each line of a list is one field of
 * our struct, and two macros turn it into code:
 *
 *     worker.proto           uint32 round = 3;
 *     worker.pb.h            X(a, STATIC, SINGULAR, UINT32, round, 3)
 *     PUT (worker_messages_encode.c)  && put_varint(stream, 3, message->round)
 *     TAKE (worker_messages_decode.c) case 3: return take_uint32(value, &message->round, err);
 *
 * So numbers and types are those of the .proto, and a missing member or one of another type does
 * not compile. Messages within messages have functions of their own, put_NAME() and take_NAME().
 *
 * Varints, tags and lengths are nanopb's. Its pb_encode() and pb_decode() interpret descriptors,
 * which takes ten times as long, and this is most of the coordinator's work for an update. */
#ifndef TALLY_API_WORKER_MESSAGE_FIELDS_H
#define TALLY_API_WORKER_MESSAGE_FIELDS_H

#include "api/worker/worker_messages.h"
#include "worker.pb.h"

/* Messages that have no struct in worker_messages.h. */
struct released {
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY];
};

struct leave_request {
    uint64_t session;
};

#endif

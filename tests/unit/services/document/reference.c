#include "tests/unit/services/document/reference.h"

#include "services/job/reasons.h"

static const char GENERATED[] =
    "<!-- Generated: TALLY_WRITE_REFERENCE=1 build/release/bin/tally-test-document "
    "document_reference -->\n\n";

void reference_write_reasons(struct tally_buffer *out)
{
    tally_buffer_printf(
        out,
        "# Why a job ended\n\n%s"
        "`reason_code` in the job detail is one of the codes below, and `reason` is its text for "
        "people, with %%-marks\nwhere values stand. Both are null while a job is live; a completed "
        "or cancelled job has a code and no text.\nA job that failed under release 0.11.0 or "
        "earlier has a text and no code: those rows were stored without one.\nThe store keeps "
        "\"code: text\" in one column, and so do the logs. The table is `reasons.c`.\n\n"
        "| `reason_code` | `status` | meaning | what helps | `reason` | named in |\n"
        "|---|---|---|---|---|---|\n",
        GENERATED);
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        const struct tally_reason_info *info = &TALLY_REASON_INFO[i];
        tally_buffer_printf(out, "| `%s` | `%s` | %s | %s | %s%s%s | `%s` |\n", info->code,
                            tally_job_status_name(info->status), info->meaning, info->remedy,
                            info->format[0] != '\0' ? "`" : "",
                            info->format[0] != '\0' ? info->format : "null",
                            info->format[0] != '\0' ? "`" : "", info->room);
    }
}

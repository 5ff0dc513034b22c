#include "services/coordinator/workers_matching.h"

bool match_is_candidate(const struct match_job *job)
{
    return job->is_prepared || (job->is_unsolved && !job->has_memory);
}

enum match match_queued(const struct match_job *job)
{
    if (job->is_prepared && job->has_memory && job->n_free >= job->needed) {
        return MATCH_START;
    }
    return job->will_have_memory && job->n_coming >= job->needed ? MATCH_WAIT : MATCH_PASS;
}

int64_t match_lacking(const struct match_job *job, int64_t n_free_elsewhere)
{
    const int64_t now = job->needed - job->n_free;
    return now <= n_free_elsewhere ? now : job->needed - job->n_coming;
}

bool match_can_borrow(int64_t n_lacking, int64_t n_elsewhere, int64_t n_refused)
{
    return n_elsewhere - n_refused >= n_lacking;
}

#include "tests/simulation/world/sim_clock.h"

#include <stdlib.h>

#include "services/base/time.h"
#include "tests/simulation/world/sim.h"

struct event {
    int64_t at_us;
    uint64_t number; /* order among equals */
    sim_event_fn *fn;
    void *context;
    int64_t argument;
};

static struct {
    int64_t now_us;
    int64_t realtime_ms; /* at now_us = 0 */
    struct event *heap;  /* heap[0] is the next */
    size_t n, capacity;
    uint64_t n_asked;
    const struct sim_clocks *clocks; /* NULL = those of the simulation */
} queue;

/* Long after boot, and not at midnight. */
static const int64_t BOOT_NS = INT64_C(86400123456789);
static const int64_t EPOCH_MS = INT64_C(1790000000123);

void sim_clock_begin(void)
{
    queue.now_us = 0;
    queue.realtime_ms = EPOCH_MS;
    queue.n = 0;
    queue.n_asked = 0;
    queue.clocks = NULL;
}

void sim_clock_end(void)
{
    free(queue.heap);
    queue.heap = NULL;
    queue.capacity = 0;
    queue.n = 0;
}

int64_t sim_now_us(void)
{
    return queue.now_us;
}

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->number < b->number;
}

static void swap(size_t i, size_t j)
{
    const struct event old = queue.heap[i];
    queue.heap[i] = queue.heap[j];
    queue.heap[j] = old;
}

void sim_after(int64_t delay_us, sim_event_fn *event, void *context, int64_t argument)
{
    if (queue.n == queue.capacity) {
        queue.capacity = queue.capacity == 0 ? 256 : 2 * queue.capacity;
        queue.heap = sim_grow(queue.heap, queue.capacity * sizeof *queue.heap);
    }
    size_t i = queue.n++;
    queue.heap[i] = (struct event){queue.now_us + (delay_us > 0 ? delay_us : 0), queue.n_asked++,
                                   event, context, argument};
    for (; i > 0 && is_before(&queue.heap[i], &queue.heap[(i - 1) / 2]); i = (i - 1) / 2) {
        swap(i, (i - 1) / 2);
    }
}

static struct event take_first(void)
{
    const struct event first = queue.heap[0];
    queue.heap[0] = queue.heap[--queue.n];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < queue.n; child++) {
            least = is_before(&queue.heap[child], &queue.heap[least]) ? child : least;
        }
        if (least == i) {
            return first;
        }
        swap(i, least);
        i = least;
    }
}

bool sim_step(void)
{
    if (queue.n == 0) {
        return false;
    }
    const struct event event = take_first();
    queue.now_us = event.at_us;
    event.fn(event.context, event.argument);
    return true;
}

void sim_jump_realtime(int64_t ms)
{
    queue.realtime_ms += ms;
}

const struct sim_clocks *sim_clock_look_at(const struct sim_clocks *clocks)
{
    const struct sim_clocks *before = queue.clocks;
    queue.clocks = clocks;
    return before;
}

/* Microseconds that the clocks in use have counted since the start. */
static int64_t counted_us(void)
{
    const int64_t drift_ppm = queue.clocks != NULL ? queue.clocks->drift_ppm : 0;
    return queue.now_us + queue.now_us / 1000 * drift_ppm / 1000;
}

int64_t tally_monotonic_ns(void)
{
    return BOOT_NS + counted_us() * 1000;
}

int64_t tally_monotonic_ms(void)
{
    return tally_monotonic_ns() / 1000000;
}

int64_t tally_realtime_ms(void)
{
    const int64_t ahead_ms = queue.clocks != NULL ? queue.clocks->realtime_ms : 0;
    return queue.realtime_ms + ahead_ms + counted_us() / 1000;
}

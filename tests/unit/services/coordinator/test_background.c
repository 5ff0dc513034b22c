#include "services/coordinator/background.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/harness.h"

struct piece {
    struct background_work work; /* must be first */
    int number;
    bool waits_for_gate;
    bool has_run;
};

static atomic_int n_begun;
static atomic_bool gate;

static void run(struct background_work *work)
{
    struct piece *piece = (struct piece *)work;
    atomic_fetch_add(&n_begun, 1);
    while (piece->waits_for_gate && !atomic_load(&gate)) {
        (void)sched_yield();
    }
    piece->has_run = true;
}

static struct piece *add(struct background *background, int number, bool waits_for_gate)
{
    struct piece *piece = calloc(1, sizeof *piece);
    CU_ASSERT_PTR_NOT_NULL_FATAL(piece);
    piece->work.run = run;
    piece->number = number;
    piece->waits_for_gate = waits_for_gate;
    background_add(background, &piece->work);
    return piece;
}

static struct background *open_background(int *ret_wake_fd)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct background *background = NULL;
    atomic_store(&n_begun, 0);
    atomic_store(&gate, false);
    *ret_wake_fd = eventfd(0, EFD_CLOEXEC);
    TALLY_ASSERT_STATUS(background_new(*ret_wake_fd, &background, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(background);
    return background;
}

/* Waits until the thread has finished something more. */
static void wait_for_more(int wake_fd)
{
    uint64_t count;
    CU_ASSERT_EQUAL_FATAL(read(wake_fd, &count, sizeof count), (ssize_t)sizeof count);
}

static struct piece *take(struct background *background, int wake_fd)
{
    struct background_work *work;
    while ((work = background_take(background)) == NULL) {
        wait_for_more(wake_fd);
    }
    return (struct piece *)work;
}

static void wait_for_begin(int n)
{
    while (atomic_load(&n_begun) < n) {
        (void)sched_yield();
    }
}

static int count_works(const struct background *background)
{
    int n = 0;
    TALLY_LIST_EACH(node, background_works(background))
    {
        n++;
    }
    return n;
}

static void test_coordinator_background__work_is_done_in_order(void)
{
    int wake_fd;
    struct background *background = open_background(&wake_fd);
    for (int i = 0; i < 20; i++) {
        add(background, i, false);
    }
    CU_ASSERT_EQUAL(count_works(background), 20);
    for (int i = 0; i < 20; i++) {
        struct piece *piece = take(background, wake_fd);
        CU_ASSERT_EQUAL(piece->number, i);
        CU_ASSERT_TRUE(piece->has_run);
        free(piece);
    }
    CU_ASSERT_EQUAL(count_works(background), 0);
    CU_ASSERT_PTR_NULL(background_take(background));
    background_free(background);
    close(wake_fd);
}

static void test_coordinator_background__what_is_stopped_in_time_is_not_begun(void)
{
    int wake_fd;
    struct background *background = open_background(&wake_fd);
    add(background, 0, true);
    struct piece *second = add(background, 1, false);
    atomic_store(&second->work.stop, true);
    wait_for_begin(1);
    CU_ASSERT_PTR_NULL(background_take(background));
    atomic_store(&gate, true);
    for (int i = 0; i < 2; i++) {
        struct piece *piece = take(background, wake_fd);
        CU_ASSERT_EQUAL(piece->number, i);
        CU_ASSERT_EQUAL(piece->has_run, i == 0);
        free(piece);
    }
    background_free(background);
    close(wake_fd);
}

/* The piece in progress is left to the thread, which then frees all. */
static void test_coordinator_background__its_end_waits_for_no_work(void)
{
    int wake_fd;
    struct background *background = open_background(&wake_fd);
    add(background, 0, true);
    add(background, 1, false);
    wait_for_begin(1);
    background_free(background);
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
    CU_ASSERT_EQUAL(poll(&wake, 1, 0), 0);
    atomic_store(&gate, true);
    wait_for_more(wake_fd);
    CU_ASSERT_EQUAL(atomic_load(&n_begun), 1);
    close(wake_fd);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_background__work_is_done_in_order),
    TALLY_TEST(test_coordinator_background__what_is_stopped_in_time_is_not_begun),
    TALLY_TEST(test_coordinator_background__its_end_waits_for_no_work),
};
TALLY_SUITE(coordinator_background, TESTS);

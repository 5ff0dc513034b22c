#include "services/base/signals.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/base/time.h"
#include "tests/harness.h"

static bool is_readable(void)
{
    struct pollfd wake = {.fd = tally_signals_fd(), .events = POLLIN};
    return poll(&wake, 1, 0) == 1;
}

static void test_base_signals__sigterm_sets_the_flag_and_wakes(void)
{
    TALLY_ASSERT_STATUS(tally_signals_install(NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(*tally_signals_stop(), 0);
    CU_ASSERT_FALSE(is_readable());
    CU_ASSERT_FALSE(tally_signals_wait(0));
    raise(SIGTERM);
    CU_ASSERT_EQUAL(*tally_signals_stop(), SIGTERM);
    CU_ASSERT_TRUE(is_readable());
    CU_ASSERT_TRUE(tally_signals_wait(-1));
    tally_signals_uninstall();
    CU_ASSERT_EQUAL(*tally_signals_stop(), 0);
    CU_ASSERT_EQUAL(tally_signals_fd(), -1);
}

static void test_base_signals__draining_keeps_the_flag(void)
{
    TALLY_ASSERT_STATUS(tally_signals_install(NULL), TALLY_OK, NULL);
    tally_signals_drain_fd(); /* nothing to read: must not block */
    raise(SIGTERM);
    tally_signals_drain_fd();
    CU_ASSERT_FALSE(is_readable());
    CU_ASSERT_EQUAL(*tally_signals_stop(), SIGTERM);
    raise(SIGINT);
    CU_ASSERT_TRUE(is_readable());
    CU_ASSERT_EQUAL(*tally_signals_stop(), SIGTERM); /* the first one is the reason */
    tally_signals_uninstall();
}

static void test_base_signals__sighup_asks_for_a_reload_and_not_to_stop(void)
{
    TALLY_ASSERT_STATUS(tally_signals_install(NULL), TALLY_OK, NULL);
    tally_signals_install_reload();
    CU_ASSERT_FALSE(tally_signals_take_reload());
    raise(SIGHUP);
    raise(SIGHUP);
    CU_ASSERT_TRUE(is_readable());
    CU_ASSERT_EQUAL(*tally_signals_stop(), 0);
    CU_ASSERT_TRUE(tally_signals_take_reload());
    CU_ASSERT_FALSE(is_readable());
    CU_ASSERT_FALSE(tally_signals_take_reload());
    raise(SIGHUP);
    raise(SIGTERM);
    CU_ASSERT_TRUE(tally_signals_take_reload()); /* clears the wake-up, but not the stop */
    CU_ASSERT_EQUAL(*tally_signals_stop(), SIGTERM);
    raise(SIGHUP);
    tally_signals_uninstall();
    CU_ASSERT_FALSE(tally_signals_take_reload());
    struct sigaction now;
    CU_ASSERT_EQUAL(sigaction(SIGHUP, NULL, &now), 0);
    CU_ASSERT_PTR_EQUAL(now.sa_handler, SIG_DFL);
}

static void test_base_signals__wait_ends_by_time_or_by_signal(void)
{
    TALLY_ASSERT_STATUS(tally_signals_install(NULL), TALLY_OK, NULL);
    int64_t before = tally_monotonic_ms();
    CU_ASSERT_FALSE(tally_signals_wait(20));
    CU_ASSERT(tally_monotonic_ms() - before >= 20);
    pid_t parent = getpid(), child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        kill(parent, SIGTERM);
        _exit(0);
    }
    CU_ASSERT_TRUE(tally_signals_wait(-1));
    waitpid(child, NULL, 0);
    tally_signals_uninstall();
}

static void test_base_signals__sigpipe_is_an_error_of_write(void)
{
    TALLY_ASSERT_STATUS(tally_signals_install(NULL), TALLY_OK, NULL);
    int fds[2];
    CU_ASSERT_FATAL(pipe(fds) == 0);
    close(fds[0]);
    CU_ASSERT_EQUAL(write(fds[1], "x", 1), -1);
    close(fds[1]);
    CU_ASSERT_EQUAL(*tally_signals_stop(), 0);
    tally_signals_uninstall();
}

static void test_base_signals__second_sigterm_exits_at_once(void)
{
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        tally_signals_install(NULL);
        raise(SIGINT);
        raise(SIGTERM);
        raise(SIGTERM);
        _exit(2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CU_ASSERT_TRUE(WIFEXITED(status));
    CU_ASSERT_EQUAL(WEXITSTATUS(status), 143);
}

static void test_base_signals__second_sigint_exits_at_once(void)
{
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        tally_signals_install(NULL);
        raise(SIGTERM);
        raise(SIGINT); /* the first SIGINT, but the second signal */
        if (*tally_signals_stop() != SIGTERM) {
            _exit(1);
        }
        raise(SIGINT);
        _exit(2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CU_ASSERT_TRUE(WIFEXITED(status));
    CU_ASSERT_EQUAL(WEXITSTATUS(status), 130);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_signals__sigterm_sets_the_flag_and_wakes),
    TALLY_TEST(test_base_signals__draining_keeps_the_flag),
    TALLY_TEST(test_base_signals__sighup_asks_for_a_reload_and_not_to_stop),
    TALLY_TEST(test_base_signals__wait_ends_by_time_or_by_signal),
    TALLY_TEST(test_base_signals__sigpipe_is_an_error_of_write),
    TALLY_TEST(test_base_signals__second_sigterm_exits_at_once),
    TALLY_TEST(test_base_signals__second_sigint_exits_at_once),
};
TALLY_SUITE(base_signals, TESTS);

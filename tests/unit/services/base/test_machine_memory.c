#include "services/base/process_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness.h"

/* Files in their own temporary folder, laid out as in /sys/fs/cgroup. */
struct tree {
    char root[64];
    char *made[16]; /* paths to remove, last first; heap */
    int n;
};

static void tree_init(struct tree *tree)
{
    *tree = (struct tree){.n = 0};
    strcpy(tree->root, "/tmp/tally-cgroup-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(tree->root));
}

static const char *place(struct tree *tree, const char *name)
{
    CU_ASSERT_FATAL(tree->n < 16);
    char **path = &tree->made[tree->n++];
    CU_ASSERT_FATAL(asprintf(path, "%s/%s", tree->root, name) > 0);
    return *path;
}

static void add_folder(struct tree *tree, const char *name)
{
    CU_ASSERT_EQUAL_FATAL(mkdir(place(tree, name), 0700), 0);
}

static void add_file(struct tree *tree, const char *name, const char *text)
{
    FILE *file = fopen(place(tree, name), "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static void tree_fini(struct tree *tree)
{
    while (tree->n > 0) {
        remove(tree->made[--tree->n]);
        free(tree->made[tree->n]);
    }
    rmdir(tree->root);
}

static void test_base_machine_memory__reads_a_limit(void)
{
    static const struct {
        const char *text;
        int64_t limit;
    } CASES[] = {
        {"1073741824\n", 1073741824},
        {"1", 1},
        {"max\n", INT64_MAX},
        {"9223372036854771712\n", 9223372036854771712},
        {"", INT64_MAX},
        {"99999999999999999999\n", INT64_MAX},
        {"-1\n", INT64_MAX},
        {"0\n", INT64_MAX},
        {"12 apples\n", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        CU_ASSERT_EQUAL(tally_cgroup_limit(CASES[i].text), CASES[i].limit);
    }
}

/* systemd: the service has no limit, its slice has one, and the parent slice has a larger one. */
static void test_base_machine_memory__version_2_the_least_up_the_tree(void)
{
    struct tree tree;
    tree_init(&tree);
    add_folder(&tree, "big.slice");
    add_file(&tree, "big.slice/memory.max", "8589934592\n");
    add_folder(&tree, "big.slice/small.slice");
    add_file(&tree, "big.slice/small.slice/memory.max", "536870912\n");
    add_folder(&tree, "big.slice/small.slice/tally.service");
    add_file(&tree, "big.slice/small.slice/tally.service/memory.max", "max\n");
    CU_ASSERT_EQUAL(tally_cgroup_memory("0::/big.slice/small.slice/tally.service\n", tree.root),
                    536870912);
    CU_ASSERT_EQUAL(tally_cgroup_memory("0::/big.slice\n", tree.root), 8589934592);
    CU_ASSERT_EQUAL(tally_cgroup_memory("0::/\n", tree.root), INT64_MAX);
    tree_fini(&tree);
}

/* A container sees its own cgroup at the root, with a cgroup namespace ("/") or without one. */
static void test_base_machine_memory__version_2_in_a_container(void)
{
    struct tree tree;
    tree_init(&tree);
    add_file(&tree, "memory.max", "1073741824\n");
    CU_ASSERT_EQUAL(tally_cgroup_memory("0::/\n", tree.root), 1073741824);
    CU_ASSERT_EQUAL(tally_cgroup_memory("0::/system.slice/docker-0123.scope\n", tree.root),
                    1073741824);
    tree_fini(&tree);
}

static void test_base_machine_memory__version_1(void)
{
    static const char MEMBERSHIP[] = "12:cpu,cpuacct:/docker/77\n"
                                     "4:memory:/docker/77\n"
                                     "1:name=systemd:/docker/77\n"
                                     "0::/system.slice/containerd.service\n";
    struct tree tree;
    tree_init(&tree);
    add_folder(&tree, "memory");
    add_file(&tree, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    add_folder(&tree, "memory/docker");
    add_file(&tree, "memory/docker/memory.limit_in_bytes", "2147483648\n");
    add_folder(&tree, "memory/docker/77");
    add_file(&tree, "memory/docker/77/memory.limit_in_bytes", "268435456\n");
    add_folder(&tree, "docker");
    add_file(&tree, "docker/memory.max", "4096\n"); /* this process is not in that cgroup */
    CU_ASSERT_EQUAL(tally_cgroup_memory(MEMBERSHIP, tree.root), 268435456);
    CU_ASSERT_EQUAL(tally_cgroup_memory("4:hugetlb,memory:/docker/12\n", tree.root), 2147483648);
    CU_ASSERT_EQUAL(tally_cgroup_memory("4:memory_x:/docker/77\n", tree.root), INT64_MAX);
    CU_ASSERT_EQUAL(tally_cgroup_memory("4:memory:/\n", tree.root), 9223372036854771712);
    tree_fini(&tree);
}

static void test_base_machine_memory__nonsense_is_no_limit(void)
{
    static const char *const TEXTS[] = {
        "", "\n", ":", "::", "0:", "0:\n:", "0::", "memory", "0::x\n\n0::"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        CU_ASSERT_EQUAL(tally_cgroup_memory(TEXTS[i], "/nowhere"), INT64_MAX);
    }
    CU_ASSERT_TRUE(tally_machine_memory() > 1 << 20);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_machine_memory__reads_a_limit),
    TALLY_TEST(test_base_machine_memory__version_2_the_least_up_the_tree),
    TALLY_TEST(test_base_machine_memory__version_2_in_a_container),
    TALLY_TEST(test_base_machine_memory__version_1),
    TALLY_TEST(test_base_machine_memory__nonsense_is_no_limit),
};
TALLY_SUITE(base_machine_memory, TESTS);

#include "codec/list.h"
#include "tests/harness.h"

enum { N_MEMBERS = 4 };

struct member {
    int value;
    struct tally_list_node node;
};

/* Returns the values in order as decimal digits, and checks that reading backwards agrees. */
static int values_of(const struct tally_list *list)
{
    int forwards = 0, backwards = 0, place = 1;
    TALLY_LIST_EACH(node, list)
    {
        forwards = 10 * forwards + TALLY_LIST_MEMBER(struct member, node, node)->value;
    }
    for (const struct tally_list_node *node = list->head.previous; node != &list->head;
         node = node->previous, place *= 10) {
        backwards += place * TALLY_LIST_MEMBER(struct member, node, node)->value;
    }
    CU_ASSERT_EQUAL(forwards, backwards);
    return forwards;
}

static void fill(struct tally_list *list, struct member members[N_MEMBERS])
{
    tally_list_init(list);
    for (int i = 0; i < N_MEMBERS; i++) {
        members[i] = (struct member){.value = i + 1};
        tally_list_append(list, &members[i].node);
    }
}

static void test_codec_list__order(void)
{
    struct tally_list list;
    struct member members[N_MEMBERS], other = {.value = 9};
    tally_list_init(&list);
    CU_ASSERT_TRUE(tally_list_is_empty(&list));
    CU_ASSERT_PTR_NULL(TALLY_LIST_FIRST(struct member, node, &list));
    CU_ASSERT_EQUAL(values_of(&list), 0);
    fill(&list, members);
    CU_ASSERT_EQUAL(values_of(&list), 1234);
    CU_ASSERT_PTR_EQUAL(TALLY_LIST_FIRST(struct member, node, &list), &members[0]);
    tally_list_prepend(&list, &other.node);
    CU_ASSERT_EQUAL(values_of(&list), 91234);
    tally_list_remove(&other.node);
    tally_list_insert(&members[1].node, &other.node);
    CU_ASSERT_EQUAL(values_of(&list), 12934);
}

static void test_codec_list__remove(void)
{
    struct tally_list list;
    struct member members[N_MEMBERS];
    fill(&list, members);
    tally_list_remove(&members[3].node);
    tally_list_remove(&members[0].node);
    CU_ASSERT_EQUAL(values_of(&list), 23);
    CU_ASSERT_FALSE(tally_list_has(&members[0].node));
    tally_list_remove(&members[0].node); /* in no list: no effect */
    CU_ASSERT_EQUAL(values_of(&list), 23);
    tally_list_append(&list, &members[0].node);
    CU_ASSERT_EQUAL(values_of(&list), 231);
    CU_ASSERT_TRUE(tally_list_has(&members[0].node));
    CU_ASSERT_FALSE(tally_list_is_empty(&list));
}

static void test_codec_list__remove_within_loop(void)
{
    struct tally_list list;
    struct member members[N_MEMBERS];
    int seen = 0;
    fill(&list, members);
    TALLY_LIST_EACH(node, &list)
    {
        struct member *member = TALLY_LIST_MEMBER(struct member, node, node);
        if (member->value == 4) {
            break;
        }
        seen = 10 * seen + member->value;
        if (member->value != 2) {
            tally_list_remove(node);
        }
    }
    CU_ASSERT_EQUAL(seen, 123);
    CU_ASSERT_EQUAL(values_of(&list), 24);
}

struct owner {
    int others[4];
    struct tally_list list;
};

static void add_value(const struct member *member, int *sum)
{
    *sum += member->value;
}

/* Empties a queue through pointers, as callers do. If inlined, the compiler would know the list. */
__attribute__((noinline)) static void
drain(struct owner *const *owner, void (*work)(const struct member *member, int *sum), int *sum)
{
    struct member *member;
    while ((member = TALLY_LIST_FIRST(struct member, node, &(*owner)->list)) != NULL) {
        tally_list_remove(&member->node);
        if (member->value != 0) {
            work(member, sum);
        }
    }
}

static void test_codec_list__drain(void)
{
    struct owner owner, *pointer = &owner;
    struct member members[N_MEMBERS];
    tally_list_init(&owner.list);
    for (int i = 0; i < N_MEMBERS; i++) {
        members[i] = (struct member){.value = i % 2};
        tally_list_append(&owner.list, &members[i].node);
    }
    int sum = 0;
    drain(&pointer, add_value, &sum);
    CU_ASSERT_EQUAL(sum, N_MEMBERS / 2);
    CU_ASSERT_TRUE(tally_list_is_empty(&owner.list));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_list__order),
    TALLY_TEST(test_codec_list__remove),
    TALLY_TEST(test_codec_list__remove_within_loop),
    TALLY_TEST(test_codec_list__drain),
};
TALLY_SUITE(codec_list, TESTS);

#include "services/base/word_list.h"

#include <string.h>

const char *tally_word_list_next(const char **list, size_t *ret_n)
{
    const char *word = *list;
    if (word == NULL || word[0] == '\0') {
        return NULL;
    }
    *ret_n = strcspn(word, ",");
    *list = word + *ret_n + (word[*ret_n] == ',');
    return word;
}

bool tally_word_list_has(const char *list, const char *word, size_t n)
{
    size_t n_each;
    for (const char *each; (each = tally_word_list_next(&list, &n_each)) != NULL;) {
        if (n_each == n && memcmp(each, word, n) == 0) {
            return true;
        }
    }
    return false;
}

/* word_list: words separated by commas, as in the value of an option. */
#ifndef TALLY_SERVICES_BASE_WORD_LIST_H
#define TALLY_SERVICES_BASE_WORD_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a word of the list is the n bytes at `word`. False for NULL and "". */
bool tally_word_list_has(const char *list, const char *word, size_t n);

/* The word at *list and its length; moves *list past it. NULL = no word is left. */
const char *tally_word_list_next(const char **list, size_t *ret_n);

#endif

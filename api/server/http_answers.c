#include "api/server/http_answers.h"

#include <stdlib.h>
#include <string.h>

static void answer_free(struct http_answer *answer)
{
    if (answer->response != NULL) {
        MHD_destroy_response(answer->response);
    }
    free(answer);
}

static struct http_answer *answer_new(struct http_answers *answers, size_t n)
{
    if (answers->n == HTTP_MAX_ANSWERS) {
        http_answers_clear(answers); /* of lengths that nobody asks for any more, perhaps */
    }
    struct http_answer *answer =
        answers->n < HTTP_MAX_ANSWERS ? calloc(1, sizeof *answer + n) : NULL;
    if (answer == NULL) {
        return NULL;
    }
    answer->n = n;
    answer->response = MHD_create_response_from_buffer(n, answer->bytes, MHD_RESPMEM_PERSISTENT);
    if (answer->response == NULL ||
        MHD_add_response_header(answer->response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                answers->content_type) == MHD_NO) {
        answer_free(answer);
        return NULL;
    }
    answers->n++;
    return answer;
}

struct http_answer *http_answers_take(struct http_answers *answers, const uint8_t *bytes, size_t n)
{
    if (n > HTTP_ANSWER_MAX_BYTES) {
        return NULL;
    }
    struct http_answer *answer = answers->by_length[n];
    if (answer != NULL) {
        answers->by_length[n] = answer->next;
        answers->n_waiting--;
    } else {
        answer = answer_new(answers, n);
    }
    if (answer != NULL && n > 0) {
        memcpy(answer->bytes, bytes, n);
    }
    return answer;
}

void http_answers_give_back(struct http_answers *answers, struct http_answer *answer)
{
    answer->next = answers->by_length[answer->n];
    answers->by_length[answer->n] = answer;
    answers->n_waiting++;
}

void http_answers_clear(struct http_answers *answers)
{
    for (size_t n = 0; answers->n_waiting > 0 && n <= HTTP_ANSWER_MAX_BYTES; n++) {
        while (answers->by_length[n] != NULL) {
            struct http_answer *answer = answers->by_length[n];
            answers->by_length[n] = answer->next;
            answers->n_waiting--;
            answers->n--;
            answer_free(answer);
        }
    }
}

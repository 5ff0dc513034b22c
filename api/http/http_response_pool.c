#include "api/http/http_response_pool.h"

#include <stdlib.h>
#include <string.h>

static void pooled_free(struct http_pooled_response *pooled)
{
    if (pooled->response != NULL) {
        MHD_destroy_response(pooled->response);
    }
    free(pooled);
}

static struct http_pooled_response *pooled_new(struct http_response_pool *pool, size_t n)
{
    if (pool->n == HTTP_MAX_POOLED) {
        http_response_pool_clear(pool); /* perhaps of lengths no longer needed */
    }
    struct http_pooled_response *pooled =
        pool->n < HTTP_MAX_POOLED ? calloc(1, sizeof *pooled + n) : NULL;
    if (pooled == NULL) {
        return NULL;
    }
    pooled->n = n;
    pooled->response = MHD_create_response_from_buffer(n, pooled->bytes, MHD_RESPMEM_PERSISTENT);
    if (pooled->response == NULL ||
        MHD_add_response_header(pooled->response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                pool->content_type) == MHD_NO) {
        pooled_free(pooled);
        return NULL;
    }
    pool->n++;
    return pooled;
}

struct http_pooled_response *http_response_pool_take(struct http_response_pool *pool,
                                                     const uint8_t *bytes, size_t n)
{
    if (n > HTTP_POOLED_MAX_BYTES) {
        return NULL;
    }
    struct http_pooled_response *pooled = pool->by_length[n];
    if (pooled != NULL) {
        pool->by_length[n] = pooled->next;
        pool->n_waiting--;
    } else {
        pooled = pooled_new(pool, n);
    }
    if (pooled != NULL && n > 0) {
        memcpy(pooled->bytes, bytes, n);
    }
    return pooled;
}

void http_response_pool_give_back(struct http_response_pool *pool,
                                  struct http_pooled_response *pooled)
{
    pooled->next = pool->by_length[pooled->n];
    pool->by_length[pooled->n] = pooled;
    pool->n_waiting++;
}

void http_response_pool_clear(struct http_response_pool *pool)
{
    for (size_t n = 0; pool->n_waiting > 0 && n <= HTTP_POOLED_MAX_BYTES; n++) {
        while (pool->by_length[n] != NULL) {
            struct http_pooled_response *pooled = pool->by_length[n];
            pool->by_length[n] = pooled->next;
            pool->n_waiting--;
            pool->n--;
            pooled_free(pooled);
        }
    }
}

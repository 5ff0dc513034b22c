/* json_path: a member deep inside an object. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "api/json/json.h"

enum { MAX_KEY = 128 };

/* The object in member `key` of `parent`, created if absent. NULL = the member is something else,
 * or memory ran out. */
static json_t *enter(json_t *parent, const char *key)
{
    json_t *value = json_object_get(parent, key);
    if (value == NULL && json_object_set_new(parent, key, json_object()) == 0) {
        value = json_object_get(parent, key);
    }
    return json_is_object(value) ? value : NULL;
}

enum tally_status tally_json_set_path(struct tally_json *object, const char *path,
                                      struct tally_json *value, struct tally_error *err)
{
    json_t *at = (json_t *)object;
    const char *rest = path;
    char key[MAX_KEY];
    for (;;) {
        const size_t n = strcspn(rest, ".");
        if (n == 0 || n >= sizeof key) {
            tally_json_free(value);
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "\"%.100s\" is not a path of a member", path);
        }
        memcpy(key, rest, n);
        key[n] = '\0';
        if (rest[n] == '\0') {
            break;
        }
        rest += n + 1;
        at = enter(at, key);
        if (at == NULL) {
            tally_json_free(value);
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.100s: %s is not an object",
                              path, key);
        }
    }
    return json_object_set_new(at, key, (json_t *)value) == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %.100s", path);
}

#include "services/dashboard/dashboard.h"

#include <string.h>

const struct tally_asset *tally_asset_get(const char *path)
{
    for (const struct tally_asset *asset = TALLY_ASSETS; asset->path != NULL; asset++) {
        if (strcmp(asset->path, path) == 0) {
            return asset;
        }
    }
    return NULL;
}

/* The list is `"tag", W/"tag", ...` or `*`; the comparison is weak. In a malformed header, nothing
 * matches from the first error on. */
bool tally_asset_is_known(const struct tally_asset *asset, const char *if_none_match)
{
    const size_t n_etag = strlen(asset->etag);
    const char *at = if_none_match != NULL ? if_none_match : "";
    at += strspn(at, " \t");
    if (at[0] == '*' && at[1 + strspn(at + 1, " \t")] == '\0') {
        return true;
    }
    while (*at != '\0') {
        at += strncmp(at, "W/", 2) == 0 ? 2 : 0;
        const char *end = *at == '"' ? strchr(at + 1, '"') : NULL;
        if (end == NULL) {
            return false;
        }
        if ((size_t)(end + 1 - at) == n_etag && memcmp(at, asset->etag, n_etag) == 0) {
            return true;
        }
        at = end + 1;
        at += strspn(at, " \t,");
    }
    return false;
}

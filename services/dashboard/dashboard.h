/* dashboard: the files of the web page that watches jobs, embedded in the program.
 *
 * Plain HTML, CSS and ES modules from assets/, Chart.js from the system, api/openapi.yaml and the
 * documents of deploy/jobs, all of them embedded and compressed at build time. */
#ifndef TALLY_SERVICES_DASHBOARD_DASHBOARD_H
#define TALLY_SERVICES_DASHBOARD_DASHBOARD_H

#include <stdbool.h>
#include <stddef.h>

struct tally_asset {
    const char *path;         /* "/", "/openapi.yaml", "/assets/main.js" */
    const char *content_type; /* with charset if it has one */
    const char *etag;         /* of the content, in double quotes */
    const char *bytes;
    size_t n_bytes;
    const struct tally_asset *gzip; /* the same file compressed (RFC 1952), with an ETag of its own;
                                     * NULL if that would not be smaller */
};

/* All assets, terminated by a NULL path. */
extern const struct tally_asset TALLY_ASSETS[];

/* The asset at a path, or NULL. */
const struct tally_asset *tally_asset_get(const char *path);

/* Whether the value of an If-None-Match header (RFC 9110, section 13.1.2; NULL = absent) names the
 * asset: the peer has it already. */
bool tally_asset_is_known(const struct tally_asset *asset, const char *if_none_match);

#endif

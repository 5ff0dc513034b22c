/* rest_dashboard: the dashboard's files and openapi.yaml. */
#include "services/coordinator/rest_handlers.h"
#include "services/dashboard/dashboard.h"

/* The page may load from and connect to its own origin only, and no page may frame it. Chart.js
 * needs no more; blob: is for the charts that are saved as pictures. */
#define CONTENT_SECURITY_POLICY                                                                    \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "        \
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

enum tally_status get_asset(struct tally_coordinator *coordinator, struct call *call,
                            struct tally_error *err)
{
    (void)coordinator;
    const char *path = tally_http_path(call->request);
    const struct tally_asset *asset = tally_asset_get(path);
    if (asset == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no such resource: %.128s", path);
    }
    size_t n = 0;
    if (asset->gzip != NULL) {
        call->headers[n].name = "Vary";
        call->headers[n++].value = "Accept-Encoding";
        const char *accepted = tally_http_header(call->request, "Accept-Encoding");
        if (accepted != NULL && accepts(accepted, "gzip")) {
            asset = asset->gzip;
            call->headers[n].name = "Content-Encoding";
            call->headers[n++].value = "gzip";
        }
    }
    call->headers[n].name = "ETag";
    call->headers[n++].value = asset->etag;
    call->headers[n].name = "Cache-Control";
    call->headers[n++].value = "no-cache"; /* revalidate each time; the response is mostly 304 */
    call->headers[n].name = "Content-Security-Policy";
    call->headers[n++].value = CONTENT_SECURITY_POLICY;
    call->headers[n].name = "X-Content-Type-Options";
    call->headers[n++].value = "nosniff";
    call->headers[n].name = "Referrer-Policy";
    call->headers[n].value = "no-referrer";
    call->answered = true;
    call->static_body = asset->bytes; /* a 304 sends only the length, which is that of the 200 */
    call->n_static_body = asset->n_bytes;
    if (tally_asset_is_known(asset, tally_http_header(call->request, "If-None-Match"))) {
        call->status = 304;
        return TALLY_OK;
    }
    call->status = 200;
    call->content_type = asset->content_type;
    return TALLY_OK;
}

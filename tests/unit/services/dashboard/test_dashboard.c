#include <stdio.h>
#include <string.h>

#include "services/dashboard/dashboard.h"
#include "tests/harness.h"

static bool begins_with(const struct tally_asset *asset, const char *text)
{
    return asset != NULL && asset->n_bytes >= strlen(text) &&
           memcmp(asset->bytes, text, strlen(text)) == 0;
}

static void test_dashboard_assets__paths_find_their_files(void)
{
    CU_ASSERT(begins_with(tally_asset_get("/"), "<!doctype html>"));
    CU_ASSERT(begins_with(tally_asset_get("/assets/chart.js"), "/*!\n * Chart.js v3"));
    CU_ASSERT(begins_with(tally_asset_get("/assets/main.js"), "// main:"));
    CU_ASSERT(begins_with(tally_asset_get("/assets/job-0.json"), "{"));
    const struct tally_asset *openapi = tally_asset_get("/openapi.yaml");
    CU_ASSERT(openapi != NULL && strstr(openapi->bytes, "openapi: 3.1") != NULL);
    const char *const absent[] = {
        "", "/assets/", "/assets/main", "/assets/main.jsx", "/index.html", "//"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        CU_ASSERT_PTR_NULL(tally_asset_get(absent[i]));
    }
}

/* n_bytes is the length of the file: embed.cmake appends a NUL to each file, and no text contains
 * one. */
static void test_dashboard_assets__sizes_are_those_of_the_files(void)
{
    for (const struct tally_asset *asset = TALLY_ASSETS; asset->path != NULL; asset++) {
        CU_ASSERT(asset->n_bytes > 0);
        CU_ASSERT_EQUAL(strlen(asset->bytes), asset->n_bytes);
        CU_ASSERT_EQUAL(strlen(asset->etag), 34);
        CU_ASSERT_PTR_NOT_NULL(strchr(asset->content_type, '/'));
    }
}

/* The compressed form has its own ETag, so that a cache cannot confuse the two forms. */
static void test_dashboard_assets__compressed_forms_are_smaller_and_have_their_own_etag(void)
{
    int n = 0;
    for (const struct tally_asset *asset = TALLY_ASSETS; asset->path != NULL; asset++) {
        const struct tally_asset *gzip = asset->gzip;
        if (gzip != NULL) {
            CU_ASSERT(gzip->n_bytes < asset->n_bytes);
            CU_ASSERT(memcmp(gzip->bytes, "\x1f\x8b\x08", 3) == 0);
            CU_ASSERT_STRING_EQUAL(gzip->content_type, asset->content_type);
            CU_ASSERT_STRING_NOT_EQUAL(gzip->etag, asset->etag);
            CU_ASSERT_PTR_NULL(gzip->gzip);
            n++;
        }
    }
    CU_ASSERT(n > 20);
    CU_ASSERT_PTR_NOT_NULL(tally_asset_get("/assets/chart.js")->gzip);
}

/* Every document in the list of the submit form can be fetched. */
static void test_dashboard_assets__job_documents_are_listed(void)
{
    const struct tally_asset *list = tally_asset_get("/assets/jobs.json");
    CU_ASSERT_PTR_NOT_NULL_FATAL(list);
    static const char KEY[] = "\"path\": \"";
    int n = 0;
    for (const char *at = list->bytes; (at = strstr(at, KEY)) != NULL; n++) {
        char path[64];
        at += sizeof KEY - 1;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, "\""), at);
        CU_ASSERT(begins_with(tally_asset_get(path), "{"));
    }
    CU_ASSERT(n >= 11);
}

static void test_dashboard_assets__if_none_match(void)
{
    const struct tally_asset asset = {.etag = "\"abc\""};
    const char *const known[] = {"\"abc\"",         "W/\"abc\"",      "*", " * ", "\"x\", \"abc\"",
                                 "\"\" ,W/\"abc\"", "\"a,b\",\"abc\""};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        CU_ASSERT(tally_asset_is_known(&asset, known[i]));
    }
    const char *const unknown[] = {NULL,       "",          "abc",      "\"abc", "\"ab\"",
                                   "\"abcd\"", "**",        "x\"abc\"", "W/",    "W/abc",
                                   "\"",       "w/\"abc\"", "\"x\" *",  ","};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        CU_ASSERT_FALSE(tally_asset_is_known(&asset, unknown[i]));
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_dashboard_assets__paths_find_their_files),
    TALLY_TEST(test_dashboard_assets__sizes_are_those_of_the_files),
    TALLY_TEST(test_dashboard_assets__compressed_forms_are_smaller_and_have_their_own_etag),
    TALLY_TEST(test_dashboard_assets__job_documents_are_listed),
    TALLY_TEST(test_dashboard_assets__if_none_match),
};
TALLY_SUITE(dashboard_assets, TESTS);

#include "services/objectives/data/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "services/objectives/data/sharding.h"
#include "tests/harness.h"
#include "tests/unit/services/objectives/idx_files.h"

/* 26 images of 2 x 3 pixels, each identified by its pixels. Class 0 has 9 images, class 1 has 8,
 * class 2 has 6, and 3 images are of class 5, which no test requests. */
enum { N = 26, FEATURES = 6 };
static const uint8_t LABELS[N] = {0, 1, 2, 0, 1, 5, 0, 1, 2, 0, 1, 2, 0,
                                  1, 5, 0, 1, 2, 0, 1, 2, 0, 1, 5, 0, 2};

static uint8_t pixel_of(uint32_t image, size_t feature)
{
    return (uint8_t)(image * 9 + feature * (image % 2 + 1));
}

static struct idx_files FILES;
static const struct tally_data_source SOURCE = {.dir = FILES.folder};
static uint8_t IMAGE_BYTES[IDX_MAX_BYTES], LABEL_BYTES[IDX_MAX_BYTES];
static size_t n_image_bytes, n_label_bytes;

static void init(void)
{
    uint8_t pixels[N * FEATURES];
    for (uint32_t i = 0; i < N; i++) {
        for (size_t f = 0; f < FEATURES; f++) {
            pixels[i * FEATURES + f] = pixel_of(i, f);
        }
    }
    idx_files_init(&FILES);
    n_image_bytes = idx_images(N, 2, 3, pixels, IMAGE_BYTES);
    n_label_bytes = idx_labels(N, LABELS, LABEL_BYTES);
    idx_files_write(&FILES, "images", IMAGE_BYTES, n_image_bytes);
    idx_files_write(&FILES, "labels", LABEL_BYTES, n_label_bytes);
}

static struct tally_idx_data data_of(int64_t points_per_class)
{
    return (struct tally_idx_data){.images = "images",
                                   .labels = "labels",
                                   .features = FEATURES,
                                   .classes = 3,
                                   .points_per_class = points_per_class};
}

static struct tally_idx_set load(const struct tally_idx_data *data, uint64_t seed)
{
    struct tally_idx_set set = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_idx_load(data, TALLY_SHARDING_IID, &SOURCE, tally_rng_key(seed, 0), &set, &err),
        TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(err.status, TALLY_OK);
    return set;
}

static void expect_refused(const struct tally_idx_data *data, const char *field,
                           const char *message)
{
    struct tally_idx_set set = {.points = 4711};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_idx_load(data, TALLY_SHARDING_IID, &SOURCE, tally_rng_key(1, 0), &set, &err),
        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, field);
    TALLY_ASSERT_TEXT(err.message, message);
    CU_ASSERT_EQUAL(set.points, 4711); /* written only on success */
}

/* Returns the index in the file of the image in row `at` of the set. */
static uint32_t image_at(const struct tally_idx_set *set, uint32_t at)
{
    for (uint32_t i = 0; i < N; i++) {
        bool same = true;
        for (size_t f = 0; f < FEATURES; f++) {
            same = same && set->pixels[at * FEATURES + f] == pixel_of(i, f);
        }
        if (same) {
            return i;
        }
    }
    CU_FAIL_FATAL("no image of the file");
    return 0;
}

static void test_objectives_idx__loads_as_many_of_every_class(void)
{
    init();
    for (int64_t per_class = 1; per_class <= 6; per_class++) {
        const struct tally_idx_data data = data_of(per_class);
        struct tally_idx_set set = load(&data, 3);
        CU_ASSERT_EQUAL_FATAL(set.points, 3 * per_class);
        CU_ASSERT_EQUAL(set.features, FEATURES);
        int64_t count[3] = {0};
        bool seen[N] = {false};
        for (uint32_t at = 0; at < set.points; at++) {
            const uint32_t image = image_at(&set, at);
            CU_ASSERT_FALSE(seen[image]);
            seen[image] = true;
            CU_ASSERT_EQUAL_FATAL(set.labels[at], LABELS[image]);
            count[set.labels[at]]++;
        }
        for (int c = 0; c < 3; c++) {
            CU_ASSERT_EQUAL(count[c], per_class);
        }
        tally_idx_fini(&set);
        CU_ASSERT_PTR_NULL(set.pixels);
    }
    idx_files_fini(&FILES);
}

/* The same key gives the same set. Another key gives another choice and another order. */
static void test_objectives_idx__key_decides_choice_and_order(void)
{
    init();
    const struct tally_idx_data data = data_of(5);
    struct tally_idx_set first = load(&data, 1);
    int other_order = 0, other_choice = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct tally_idx_set set = load(&data, seed);
        bool a[N] = {false}, b[N] = {false}, in_order = true;
        for (uint32_t at = 0; at < set.points; at++) {
            a[image_at(&first, at)] = true;
            b[image_at(&set, at)] = true;
            in_order = in_order && (at == 0 || image_at(&set, at) > image_at(&set, at - 1));
        }
        const bool same = memcmp(set.pixels, first.pixels, set.points * FEATURES) == 0;
        CU_ASSERT_EQUAL(same, seed == 1);
        CU_ASSERT_FALSE(in_order); /* neither the file's order nor by class */
        other_order += !same;
        other_choice += memcmp(a, b, sizeof a) != 0;
        tally_idx_fini(&set);
    }
    CU_ASSERT_EQUAL(other_order, 19);
    CU_ASSERT_TRUE(other_choice >= 15);
    tally_idx_fini(&first);
    idx_files_fini(&FILES);
}

/* A class with more images than requested is as frequent at the end, in the last client's shard, as
 * anywhere. The last third has on average 1 of its 3 images, with a standard deviation of 0.04 over
 * 300 keys. */
static void test_objectives_idx__shards_of_a_subset_are_alike(void)
{
    enum { KEYS = 300, PER_CLASS = 3 };
    init();
    const struct tally_idx_data data = data_of(PER_CLASS);
    int counts[3][3] = {{0}}; /* [third][class] */
    for (uint64_t seed = 1; seed <= KEYS; seed++) {
        struct tally_idx_set set = load(&data, seed);
        CU_ASSERT_EQUAL_FATAL(set.points, 3 * PER_CLASS);
        for (uint32_t at = 0; at < set.points; at++) {
            counts[at / PER_CLASS][set.labels[at]]++;
        }
        tally_idx_fini(&set);
    }
    for (int third = 0; third < 3; third++) {
        for (int c = 0; c < 3; c++) {
            CU_ASSERT_TRUE(abs(counts[third][c] - KEYS) < KEYS / 6);
        }
    }
    idx_files_fini(&FILES);
}

/* Without a subset the order is a single permutation, as in releases before 0.15.0. */
static void test_objectives_idx__all_images_keep_the_first_permutation(void)
{
    init();
    struct tally_idx_data data = data_of(0);
    data.classes = 6;
    struct tally_idx_set set = load(&data, 3);
    uint32_t order[N];
    tally_shard_permutation(tally_rng_key(3, 0), N, order);
    CU_ASSERT_EQUAL_FATAL(set.points, N);
    for (uint32_t at = 0; at < N; at++) {
        CU_ASSERT_EQUAL(image_at(&set, at), order[at]);
    }
    tally_idx_fini(&set);
    idx_files_fini(&FILES);
}

/* The name "images" finds images, otherwise images.gz. A name that ends in .gz works too. */
static void test_objectives_idx__gzip_files_give_the_same_set(void)
{
    init();
    static uint8_t zipped[IDX_MAX_BYTES];
    struct tally_idx_data data = data_of(4);
    struct tally_idx_set plain = load(&data, 7);
    idx_files_write(&FILES, "images.gz", zipped, idx_gzip(IMAGE_BYTES, n_image_bytes, zipped));
    idx_files_write(&FILES, "labels.gz", zipped, idx_gzip(LABEL_BYTES, n_label_bytes, zipped));
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0) {
            idx_files_remove(&FILES, "images");
            idx_files_remove(&FILES, "labels");
        } else {
            strcpy(data.images, "images.gz");
            strcpy(data.labels, "labels.gz");
        }
        struct tally_idx_set set = load(&data, 7);
        CU_ASSERT_EQUAL(memcmp(set.pixels, plain.pixels, plain.points * FEATURES), 0);
        CU_ASSERT_EQUAL(memcmp(set.labels, plain.labels, plain.points), 0);
        tally_idx_fini(&set);
    }
    tally_idx_fini(&plain);
    idx_files_fini(&FILES);
}

static void test_objectives_idx__too_few_of_a_class_are_refused(void)
{
    init();
    struct tally_idx_data data = data_of(7);
    expect_refused(&data, "objective.data.points_per_class",
                   "labels has only 6 images of class 2, not 7");
    data = data_of(10);
    expect_refused(&data, "objective.data.points_per_class",
                   "labels has only 9 images of class 0, not 10");
    data = data_of(1);
    data.classes = 4;
    expect_refused(&data, "objective.data.points_per_class",
                   "labels has only 0 images of class 3, not 1");
    data.classes = 256;
    expect_refused(&data, "objective.data.points_per_class",
                   "labels has only 0 images of class 3, not 1");
    uint8_t from_one[N], bytes[IDX_MAX_BYTES];
    for (int i = 0; i < N; i++) {
        from_one[i] = (uint8_t)(i % 3 + 1);
    }
    idx_files_write(&FILES, "labels", bytes, idx_labels(N, from_one, bytes));
    data.classes = 3;
    expect_refused(&data, "objective.data.points_per_class",
                   "labels has only 0 images of class 0, not 1; if they count from 1, subtract 1 "
                   "from every label");
    data.classes = 4;
    expect_refused(&data, "objective.data.points_per_class",
                   "labels has only 0 images of class 0, not 1");
    idx_files_fini(&FILES);
}

/* Every shorter length, and one byte more. */
static void test_objectives_idx__truncated_and_longer_files_are_refused(void)
{
    init();
    const struct tally_idx_data data = data_of(2);
    char message[200];
    for (size_t n = 0; n < n_label_bytes; n++) {
        idx_files_write(&FILES, "labels", LABEL_BYTES, n);
        expect_refused(&data, "objective.data",
                       n < 8 ? "labels: ends in its header" : "labels: ends before its 26 labels");
    }
    idx_files_write(&FILES, "labels", LABEL_BYTES, n_label_bytes + 1);
    expect_refused(&data, "objective.data", "labels: has data after its 26 labels");
    idx_files_write(&FILES, "labels", LABEL_BYTES, n_label_bytes);
    for (size_t n = 0; n < n_image_bytes; n++) {
        idx_files_write(&FILES, "images", IMAGE_BYTES, n);
        snprintf(message, sizeof message, "images: ends in image %zu of 26", (n - 16) / FEATURES);
        expect_refused(&data, "objective.data", n < 16 ? "images: ends in its header" : message);
    }
    idx_files_write(&FILES, "images", IMAGE_BYTES, n_image_bytes + 1);
    expect_refused(&data, "objective.data", "images: has data after its 26 images");
    idx_files_fini(&FILES);
}

/* Truncated anywhere, or with a wrong checksum: data that zlib has not verified are not used. */
static void test_objectives_idx__damaged_gzip_files_are_refused(void)
{
    init();
    static uint8_t zipped[IDX_MAX_BYTES];
    const struct tally_idx_data data = data_of(2);
    const size_t n = idx_gzip(IMAGE_BYTES, n_image_bytes, zipped);
    idx_files_remove(&FILES, "images");
    struct tally_idx_set set = {0};
    for (size_t cut = 0; cut < n; cut++) {
        idx_files_write(&FILES, "images.gz", zipped, cut);
        CU_ASSERT_EQUAL(
            tally_idx_load(&data, TALLY_SHARDING_IID, &SOURCE, tally_rng_key(1, 0), &set, NULL),
            TALLY_INVALID_ARGUMENT);
    }
    for (size_t at = 15 + 16; at < n; at++) { /* from the first pixel to the length */
        zipped[at] ^= 0x10;
        idx_files_write(&FILES, "images.gz", zipped, n);
        CU_ASSERT_EQUAL(
            tally_idx_load(&data, TALLY_SHARDING_IID, &SOURCE, tally_rng_key(1, 0), &set, NULL),
            TALLY_INVALID_ARGUMENT);
        zipped[at] ^= 0x10;
    }
    idx_files_write(&FILES, "images.gz", zipped, n);
    set = load(&data, 1);
    tally_idx_fini(&set);
    idx_files_fini(&FILES);
}

static void test_objectives_idx__other_headers_are_refused(void)
{
    init();
    const struct tally_idx_data data = data_of(2);
    for (size_t at = 0; at < 4; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            LABEL_BYTES[at] ^= (uint8_t)(1u << bit);
            idx_files_write(&FILES, "labels", LABEL_BYTES, n_label_bytes);
            expect_refused(&data, "objective.data",
                           "labels: is not an IDX file of bytes in 1 dimensions");
            LABEL_BYTES[at] ^= (uint8_t)(1u << bit);
        }
    }
    idx_files_write(&FILES, "labels", IMAGE_BYTES, n_image_bytes); /* swapped */
    expect_refused(&data, "objective.data", "labels: is not an IDX file of bytes in 1 dimensions");
    idx_files_write(&FILES, "labels", LABEL_BYTES, n_label_bytes);
    idx_files_write(&FILES, "images", LABEL_BYTES, n_label_bytes);
    expect_refused(&data, "objective.data", "images: is not an IDX file of bytes in 3 dimensions");
    idx_files_fini(&FILES);
}

static void patch_images(size_t at, uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    static uint8_t bytes[IDX_MAX_BYTES];
    memcpy(bytes, IMAGE_BYTES, n_image_bytes);
    memcpy(bytes + at, (const uint8_t[4]){a, b, c, d}, 4);
    idx_files_write(&FILES, "images", bytes, n_image_bytes);
}

static void test_objectives_idx__other_shapes_are_refused(void)
{
    init();
    struct tally_idx_data data = data_of(2);
    patch_images(4, 0, 0, 0, 25);
    expect_refused(&data, "objective.data.features",
                   "images has 25 images of 2 x 3, not 26 of 6 pixels");
    patch_images(8, 0, 0, 0, 3);
    expect_refused(&data, "objective.data.features",
                   "images has 26 images of 3 x 3, not 26 of 6 pixels");
    patch_images(12, 0, 0, 0, 0);
    expect_refused(&data, "objective.data.features",
                   "images has 26 images of 2 x 0, not 26 of 6 pixels");
    /* A product that is correct only modulo 2^32. */
    IMAGE_BYTES[15] = 2;
    patch_images(8, 0x80, 0, 0, 3);
    expect_refused(&data, "objective.data.features",
                   "images has 26 images of 2147483651 x 2, not 26 of 6 pixels");
    IMAGE_BYTES[15] = 3;
    data.features = 5;
    patch_images(8, 0, 0, 0, 2);
    expect_refused(&data, "objective.data.features",
                   "images has 26 images of 2 x 3, not 26 of 5 pixels");
    LABEL_BYTES[4] = 0x7f; /* two thousand million labels are neither read nor allocated */
    idx_files_write(&FILES, "labels", LABEL_BYTES, n_label_bytes);
    expect_refused(&data, "objective.data",
                   "labels: claims 2130706458 labels, the limit is 33554432");
    idx_files_fini(&FILES);
}

/* 3 x 2 is equivalent to 2 x 3: only the number of pixels counts. */
static void test_objectives_idx__rows_times_columns_is_what_counts(void)
{
    init();
    const struct tally_idx_data data = data_of(2);
    struct tally_idx_set expected = load(&data, 5);
    IMAGE_BYTES[11] = 3;
    IMAGE_BYTES[15] = 2;
    idx_files_write(&FILES, "images", IMAGE_BYTES, n_image_bytes);
    struct tally_idx_set set = load(&data, 5);
    CU_ASSERT_EQUAL(memcmp(set.pixels, expected.pixels, set.points * FEATURES), 0);
    tally_idx_fini(&set);
    tally_idx_fini(&expected);
    idx_files_fini(&FILES);
}

static void test_objectives_idx__names_stay_below_the_folder(void)
{
    static const char *const outside[] = {"",        "/etc/passwd", "..",           "../images",
                                          "a/..",    "a/../images", "a/../../x",    "./../images",
                                          "a/b/../", "../..",       "//etc/passwd", "images/.."};
    static const char *const inside[] = {"..images", "images..",   "...",         "a..b",
                                         "./images", "sub/images", "sub/..images"};
    init();
    char path[100], message[300];
    snprintf(path, sizeof path, "%s/sub", FILES.folder);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        snprintf(
            message, sizeof message,
            "\"%s\" is not a name below the data folder: it must be relative and without \"..\"",
            outside[i]);
        struct tally_idx_data data = data_of(2);
        strcpy(data.images, outside[i]);
        expect_refused(&data, "objective.data", message);
        data = data_of(2);
        strcpy(data.labels, outside[i]);
        expect_refused(&data, "objective.data", message);
    }
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        struct tally_idx_data data = data_of(2);
        strcpy(data.images, inside[i]);
        idx_files_write(&FILES, inside[i], IMAGE_BYTES, n_image_bytes);
        struct tally_idx_set set = load(&data, 1);
        tally_idx_fini(&set);
    }
    idx_files_fini(&FILES);
}

static void test_objectives_idx__missing_files_are_named(void)
{
    init();
    char message[300];
    struct tally_idx_data data = data_of(2);
    strcpy(data.images, "train");
    snprintf(message, sizeof message,
             "train (or .gz) is not in the data folder %s; put it there, or name another "
             "folder with --data-dir",
             FILES.folder);
    expect_refused(&data, "objective.data", message);
    data = data_of(2);
    strcpy(data.labels, "train");
    expect_refused(&data, "objective.data", message);
    data = data_of(2);
    strcpy(data.labels, "."); /* a folder is not a file */
    snprintf(message, sizeof message, ". in the data folder %s is not a regular file",
             FILES.folder);
    expect_refused(&data, "objective.data", message);
    const struct tally_data_source nowhere = {.dir = "/nowhere"};
    struct tally_idx_set set;
    struct tally_error err = TALLY_ERROR_INIT;
    data = data_of(2);
    TALLY_ASSERT_STATUS(
        tally_idx_load(&data, TALLY_SHARDING_IID, &nowhere, tally_rng_key(1, 0), &set, &err),
        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(
        err.message,
        "cannot open the data folder /nowhere (--data-dir): No such file or directory");
    idx_files_fini(&FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_idx__loads_as_many_of_every_class),
    TALLY_TEST(test_objectives_idx__key_decides_choice_and_order),
    TALLY_TEST(test_objectives_idx__shards_of_a_subset_are_alike),
    TALLY_TEST(test_objectives_idx__all_images_keep_the_first_permutation),
    TALLY_TEST(test_objectives_idx__gzip_files_give_the_same_set),
    TALLY_TEST(test_objectives_idx__too_few_of_a_class_are_refused),
    TALLY_TEST(test_objectives_idx__truncated_and_longer_files_are_refused),
    TALLY_TEST(test_objectives_idx__damaged_gzip_files_are_refused),
    TALLY_TEST(test_objectives_idx__other_headers_are_refused),
    TALLY_TEST(test_objectives_idx__other_shapes_are_refused),
    TALLY_TEST(test_objectives_idx__rows_times_columns_is_what_counts),
    TALLY_TEST(test_objectives_idx__names_stay_below_the_folder),
    TALLY_TEST(test_objectives_idx__missing_files_are_named),
};
TALLY_SUITE(objectives_idx, TESTS);

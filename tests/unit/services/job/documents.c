#include "tests/unit/services/job/documents.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

const char DOCUMENT_EXAMPLE[] =
    "{\"name\": \"synthetic-ceal\", \"algorithm\": {\"type\": \"ceal\", \"step_size\": 2.0, "
    "\"sigma\": 4.47, \"delta\": 0.1, \"gamma0\": 2.0, \"phi0\": 2.0,\n"
    "  \"sample_scale\": 0.1, \"log_factor\": false, \"first_stage\": 3, \"gradient_bound\": "
    "1.0},\n"
    " \"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\", "
    "\"dim\": 30, \"points\": 2000, \"frobenius_norm\": 100, \"noise_std\": 1}},\n"
    " \"clients\": 10, \"horizon\": 2000, \"minibatch\": 1, \"seed\": 1, \"encoding\": \"unary\",\n"
    " \"initial_point\": {\"type\": \"random_sphere\", \"radius\": 1.0}, \"reference\": {\"type\": "
    "\"solve\"}, \"quorum\": 10, \"round_deadline_ms\": 30000}";

const char DOCUMENT_SHORTEST[] =
    "{\"algorithm\": {\"type\": \"ceal\", \"step_size\": 2, \"sigma\": 4},"
    " \"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\","
    " \"dim\": 30, \"points\": 2000}}, \"clients\": 10, \"horizon\": 2000}";

const char DOCUMENT_IMAGES[] =
    "{\"algorithm\": {\"type\": \"fedcom\", \"step_size\": 0.0005, \"local_steps\": 50, "
    "\"levels\": 5, \"server_step_size\": 10},"
    " \"objective\": {\"type\": \"softmax_regression\", \"l2\": 0.25, \"data\": {\"type\": "
    "\"idx\", "
    "\"images\": \"train-images-idx3-ubyte\", \"labels\": \"train-labels-idx1-ubyte\", "
    "\"features\": 784, \"classes\": 10, \"points_per_class\": 5000}},"
    " \"clients\": 10, \"horizon\": 1000, \"minibatch\": 25, \"evaluate_every\": 7}";

void document_edit(const char *text, const char *find, const char *replace, char ret_text[4000])
{
    const char *at = strstr(text, find);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    CU_ASSERT_PTR_NULL_FATAL(strstr(at + 1, find));
    snprintf(ret_text, 4000, "%.*s%s%s", (int)(at - text), text, replace, at + strlen(find));
}

enum tally_status document_parse(const char *text, struct tally_job_spec *spec,
                                 struct tally_error *err)
{
    *err = (struct tally_error)TALLY_ERROR_INIT;
    return tally_document_parse(text, strlen(text), spec, err);
}

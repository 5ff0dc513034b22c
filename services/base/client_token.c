#include "services/base/client_token.h"

#include "services/base/time.h"

enum tally_status tally_client_token_read(const struct tally_options *options,
                                          struct tally_client_token *ret_token,
                                          struct tally_error *err)
{
    const char *path = tally_options_text(options, "token-file");
    bool found = false;
    ret_token->text[0] = '\0';
    ret_token->is_exposed = false;
    enum tally_status status =
        tally_token_take_environment("TALLY_TOKEN", ret_token->text, &found, err);
    if (status == TALLY_OK && found && path != NULL) {
        return tally_options_refuse(options, "token-file", err,
                                    "TALLY_TOKEN holds a token, too: use only one");
    }
    return status == TALLY_OK && path != NULL
               ? tally_token_file_first(path, tally_realtime_ms(), ret_token->text,
                                        &ret_token->is_exposed, err)
               : status;
}

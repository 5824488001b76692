#pragma once

#include <string>
#include <vector>

#include "files/bounded_open.h"
#include "tokenizer/tokenizer_json.h"

namespace heddle::model {

/// The tokens that tokenizer_config.json, or special_tokens_map.json and added_tokens.json next to
/// it, add to a folder's tokenizer.json, in transformers' order (version 5.23): those of
/// added_tokens_decoder by id, those that have a role (`pad_token`, `image_token`), and
/// extra_special_tokens, which earlier versions call additional_special_tokens. Where there is an
/// added_tokens_decoder the other two files do not count. Errors name file and field.
[[nodiscard]] std::vector<tokenizer::ExtraToken> read_extra_tokens(
    const std::string& folder, const files::FolderBounds& bounds = {});

}  // namespace heddle::model

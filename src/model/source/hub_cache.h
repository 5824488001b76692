#pragma once

#include <string>
#include <string_view>

namespace heddle::model {

/// Whether the text may be a name on the Hugging Face hub: "org/model".
[[nodiscard]] bool is_hub_id(std::string_view text);

/// The local cache of Hugging Face's tools: $HF_HUB_CACHE, else $HF_HOME/hub, else
/// $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
[[nodiscard]] std::string hub_cache_folder();

/// The folder of a model or an adapter in that cache: the commit that refs/main names. An error
/// where it is not there tells the command that downloads it. No network is used.
[[nodiscard]] std::string find_in_hub_cache(const std::string& id);

/// The folder "models--ORG--NAME" of such a cache, wherever it is, to which a path without links
/// belongs: one under its "snapshots" or "blobs". Empty where it is none of these.
[[nodiscard]] std::string hub_folder_of(const std::string& path);

}  // namespace heddle::model

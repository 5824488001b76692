#pragma once

#include <string>

namespace heddle::app {

/// The folder of the examples, with demo.jsonl and adapters: the one that is given, or else the one
/// that was installed with this program or lies in the checkout that it was built in. Throws Error
/// where there is none.
[[nodiscard]] std::string find_examples(const std::string& given);

/// The path as a user would type it in the current folder: relative where it is inside.
[[nodiscard]] std::string as_typed(const std::string& path);

}  // namespace heddle::app

#pragma once

#include <string>
#include <vector>

namespace heddle::serve {

/// What the folder of an adapter says of it to people.
struct AdapterNote {
  std::string about{};                 // the first paragraph of README.md, of up to 300 bytes
  std::vector<std::string> prompts{};  // up to 6 examples, of up to 1000 bytes each
};

/// Reads the note of an adapter from eval.jsonl, lines with `prompt` or `messages`, and README.md,
/// whose head may have a `widget` with examples as cards of the Hugging Face hub do; of either file
/// the first 64 KiB. What is missing or of another form is left out, and so is a file that is a
/// link out of the folder. Takes as long as the disk does.
[[nodiscard]] AdapterNote read_adapter_note(const std::string& folder);

}  // namespace heddle::serve

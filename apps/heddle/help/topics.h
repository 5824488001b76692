#pragma once

#include <string>
#include <vector>

namespace heddle::app {

/// A piece of a topic's text.
struct Block {
  enum class Kind { kText, kTerm, kCode };
  Kind kind;
  std::string term;  // of kTerm: what `text` explains
  std::string text;
};

/// What `heddle help NAME` shows and a section of the man page holds.
struct Topic {
  std::string name;
  std::string title;
  std::string section;  // heading in the man page
  std::vector<Block> blocks;
};

/// All topics, in the order in which they are listed.
[[nodiscard]] std::vector<Topic> topics();

}  // namespace heddle::app

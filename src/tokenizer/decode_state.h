#pragma once

#include <cstdint>
#include <string>

namespace heddle::tokenizer {

/// How far the decoding of a text has come whose tokens arrive one by one; a text begins with a new
/// one.
struct DecodeState {
  bool has_tokens = false;
  std::string byte_run;     // of byte tokens, until it is clear whether they are characters
  int64_t num_dropped = 0;  // characters dropped at the text's beginning; -1: no more of them
  std::string held;         // what is dropped if the text ends here
};

}  // namespace heddle::tokenizer

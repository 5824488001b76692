#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

namespace heddle::app {

/// A row of work: a prompt of the command line, or a line of a prompts file.
struct Row {
  int64_t index = 0;                          // among the rows of the input, from 0
  std::string id{}, custom_id{}, metadata{};  // JSON text, echoed in the answer; empty: not given
  Request request{};
  std::vector<AdapterList>
      each{};           // what the request runs with, one after another; empty: as it is
  int64_t n = 1;        // answers, where each is empty
  std::string error{};  // one sentence that says why the row cannot run; empty: it can
};

}  // namespace heddle::app

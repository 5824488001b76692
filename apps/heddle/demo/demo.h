#pragma once

#include <string>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// The options of `heddle demo`.
struct DemoOptions {
  EngineOptions engine;  // model_path may be empty: find_model
  std::string examples;  // a folder with demo.jsonl and adapters; empty: find_examples
};

/// The rows of demo.jsonl that name an adapter, each answered by the base model and by
/// its adapter, all in one batch: on a terminal as they are written, then whole, side by side. Each
/// adapter's answer is then made again without the others, and has to have the same bits. `program`
/// is how the user calls this program, for the commands that are shown at the end. Returns the exit
/// code of the program.
int demo(const DemoOptions& options, const std::string& program);

}  // namespace heddle::app

// What a failed step means for its requests, and for the engine.
#include <new>
#include <sstream>

#include "heddle/core/error.h"

#include "engine/face/engine_state.h"
#include "engine/rows/row_failure.h"

namespace heddle {
namespace {

/// Whether the device failed, and not the request: it may compute nothing more.
bool is_of_device(const std::exception& failure) {
  const auto* const error = dynamic_cast<const Error*>(&failure);
  return error != nullptr && error->code() == ErrorCode::kCuda;
}

std::string sentence_of(const std::exception& failure, const std::string& device,
                        const StepSchedule& step) {
  std::ostringstream text;
  text << "the engine has ended: " << device << " failed in a step of " << step.rows.size()
       << " rows and " << step.num_prompt_tokens << " tokens of prompts: " << failure.what();
  return text.str();
}

}  // namespace

/// Ends the requests of the step. Where the device has failed, the engine ends: it answers all
/// requests with the reason, later ones too.
void Engine::State::fail_step(const std::exception& failure, const StepSchedule& step) {
  if (!is_of_device(failure)) {
    for (const RowStep& row : step.rows) {
      if (row.is_alive()) queue.fail(*row.sequence, failure_of(failure));
    }
    return;
  }
  try {
    ended_by = sentence_of(failure, options.device, step);
  } catch (const std::bad_alloc&) {
    ended_by = "device failed";  // short enough to need no memory
  }
  for (StepInFlight& each : steps) each.handle = std::nullopt;
  queue.fail_all({RequestError::kEngineEnded, ended_by});
}

}  // namespace heddle

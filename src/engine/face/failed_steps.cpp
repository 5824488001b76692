// What a failed step means for its rows, and for the engine.
#include <new>
#include <sstream>

#include "heddle/core/error.h"

#include "engine/face/engine_state.h"
#include "engine/rows/row_failure.h"

namespace heddle {
namespace {

/// Whether the device failed, and not what it was asked for: it may do nothing more.
bool is_of_device(const std::exception& failure) {
  const auto* const error = dynamic_cast<const Error*>(&failure);
  return error != nullptr && error->code() == ErrorCode::kCuda;
}

std::string sentence_of(const std::exception& failure, const std::string& device, int64_t num_rows,
                        int64_t num_prompt_tokens) {
  std::ostringstream text;
  text << "the engine has ended: " << device << " failed in a step of " << num_rows << " rows and "
       << num_prompt_tokens << " tokens of prompts: " << failure.what();
  return text.str();
}

}  // namespace

void Engine::State::fail_running(const std::exception& failure) {
  while (!queue.running().empty()) queue.fail(queue.running().front(), failure_of(failure));
}

/// Ends the rows of the planned step, which has failed; all rows and the engine where it was the
/// device.
void Engine::State::fail_planned(const std::exception& failure, int64_t num_prompt_tokens) {
  int64_t num_rows = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.num_tokens[i] == 0) continue;
    ++num_rows;
    if (!is_of_device(failure)) queue.fail(*plan.rows[i], failure_of(failure));
  }
  if (is_of_device(failure)) end_engine(failure, num_rows, num_prompt_tokens);
}

/// The same of a step that was launched before; returns whether the engine has ended.
bool Engine::State::fail_launched(const std::exception& failure, const LaunchedStep& step) {
  if (!is_of_device(failure)) return false;
  end_engine(failure, std::ssize(step.rows), step.num_prompt_tokens);
  return true;
}

/// Answers all requests with the reason, those that come later, too.
void Engine::State::end_engine(const std::exception& failure, int64_t num_rows,
                               int64_t num_prompt_tokens) {
  try {
    ended_by = sentence_of(failure, options.device, num_rows, num_prompt_tokens);
  } catch (const std::bad_alloc&) {
    ended_by = "device failed";  // short enough to need no memory
  }
  for (LaunchedStep& step : launched) step.is_under_way = false;
  queue.fail_all({RequestError::kEngineEnded, ended_by});
}

}  // namespace heddle

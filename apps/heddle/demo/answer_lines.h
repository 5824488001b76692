#pragma once

#include <string>
#include <vector>

namespace heddle::app {

/// A question of the demo, and what has come of its two answers.
struct DemoQuestion {
  std::string prompt, adapter;
  std::string of_base, of_adapter;
};

inline constexpr int kDemoWidth = 80;  // of all lines, in cells of the terminal

/// One line for each question while answers are written: the adapter, and where its answer and the
/// base model's have got to.
[[nodiscard]] std::string running_lines(const std::vector<DemoQuestion>& questions);

/// A question with both answers side by side, each in at most four lines; what is cut ends in
/// " ...".
[[nodiscard]] std::string finished_lines(const DemoQuestion& question);

}  // namespace heddle::app

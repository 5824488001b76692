#pragma once

#include "options.h"

namespace heddle::app {

struct ChatOptions {
  ModelOptions model;
  AnswerOptions answer;
  bool history = true;   // lines of the terminal are kept for later runs
  bool timings = false;  // tokens and seconds after each answer
};

/// Talks with whoever is at standard input until it ends; returns the program's exit code: 0, 1
/// when input that is no terminal held a line that failed, 128 + n when signal n ended it. Throws
/// Error before the first line is read when the options are wrong.
int chat(const ChatOptions& options);

}  // namespace heddle::app
